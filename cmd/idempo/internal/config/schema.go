package config

// schema is the table of every key that a configuration file may have. Reading, hints, the example, the JSON Schema and
// `config check --print` come from it. A key of a part that this version does not have carries the part's name in later: it is
// known, and refused when set, since a key that is silently ignored is a promise silently broken.
func schema() *field {
	return &field{kind: section, fields: []field{
		{name: "version", kind: whole, def: "1", min: "1", max: "1", required: true, doc: "Version of this format. Always 1."},
		storeField(),
		engineField(),
		leaseField(),
		retentionField(),
		{name: "operations", kind: mapping, later: "surfaces without a route; declare operations on gateway routes",
			doc: "Operations of surfaces that have no route, by name."},
		{name: "listen", kind: section, doc: "Addresses to listen on, HOST:PORT.", fields: []field{
			{name: "gateway", kind: text, def: "127.0.0.1:8080", check: checkAddress, doc: "Callers come here."},
			{name: "admin", kind: text, def: "127.0.0.1:7070", check: checkAddress,
				doc: "Dashboard, health and metrics. Beyond loopback, metrics.token must be set."},
		}},
		gatewayField(),
		webhooksField(),
		outboxField(),
		relaysField(),
		{name: "sagas", kind: mapping, later: "sagas", doc: "Saga definitions, by name."},
		{name: "run", kind: section, later: "idempo run", doc: "Defaults of idempo run."},
		securityField(),
		quotaField(),
		limitsField(),
		outboundField(),
		{name: "ready", kind: section, doc: "What /readyz demands.", fields: []field{
			{name: "requires_store", kind: truth, def: "false",
				doc: "Not ready while the store is down. By default the instance stays ready, since unguarded traffic still flows."},
		}},
		{name: "shutdown", kind: section, doc: "What SIGTERM does.", fields: []field{
			{name: "delay", kind: duration, def: "0s", max: "1h", doc: "Time between not ready and refusing new keyed requests, for load balancers to notice."},
			{name: "grace", kind: duration, def: "30s", min: "1ms", max: "24h", doc: "Time that running requests have to finish, delay included."},
		}},
		dashboardField(),
		{name: "metrics", kind: section, doc: "What /metrics shows, and to whom.", fields: []field{
			{name: "max_operations", kind: whole, def: "200", min: "1", max: "10000", doc: "Operations with series of their own. The rest are counted as _other."},
			{name: "token", kind: text, secret: true, def: `""`, check: checkToken,
				doc: "Bearer token that /metrics and the detail of /readyz demand. Empty: /metrics is open."},
		}},
		{name: "tracing", kind: section, later: "tracing", doc: "Where spans are sent."},
		{name: "log", kind: section, doc: "Log lines on stderr.", fields: []field{
			{name: "level", kind: word, def: "info", words: []string{"debug", "info", "warn", "error"}, doc: "The least severe level that is written."},
			{name: "format", kind: word, def: "auto", words: []string{"auto", "text", "json"}, doc: "auto is text on a terminal, JSON otherwise."},
		}},
		{name: "reload", kind: section, doc: "SIGHUP and POST /-/reload take a changed file over while running.", fields: []field{
			{name: "watch", kind: truth, def: "true", doc: "Look every 5 s whether the content of this file has changed, and take it over."},
		}},
		{name: "audit", kind: section, later: "operator actions", doc: "How long audit rows are kept."},
		contractField(),
	}}
}

func storeField() field {
	return field{name: "store", kind: section, doc: "Where records live: one of sqlite, postgres, mysql, redis.", fields: []field{
		{name: "sqlite", kind: path, defDoc: "idempo.db in the data folder", sample: "/var/lib/idempo/idempo.db", doc: "File of an SQLite store."},
		{name: "postgres", kind: text, secret: true, sample: "${env:IDEMPO_POSTGRES}", check: checkPostgres, doc: "URL of a PostgreSQL database."},
		{name: "mysql", kind: text, secret: true, sample: "${env:IDEMPO_MYSQL}", check: checkMySQL, doc: "URL of a MySQL or MariaDB database; ?tls=true for verified TLS."},
		{name: "redis", kind: text, secret: true, later: "Redis", doc: "URL of a Redis or Valkey server."},
		{name: "strict", kind: truth, def: "true", doc: "Refuse database settings that can lose acknowledged records. false: only warn."},
		{name: "migrate", kind: word, words: []string{"auto", "manual"}, defDoc: "auto for SQLite, else manual", sample: "manual",
			doc: "auto brings an older schema up at start; manual refuses to start on one."},
		{name: "acquire_timeout", kind: duration, def: "1s", min: "1ms", max: "1m", doc: "Wait for a connection before a call is answered 503."},
		{name: "schema", kind: text, def: "idempo", check: checkSQLName, doc: "PostgreSQL schema of the tables."},
		{name: "prefix", kind: text, defDoc: "none on PostgreSQL, else idempo_", sample: "idempo_", check: checkSQLName, doc: "Prefix of table names."},
		{name: "tx_idle", kind: duration, def: "10s", min: "1s", max: "1h", doc: "A transaction left idle this long by a lost process is ended (PostgreSQL, MySQL)."},
		{name: "busy_timeout", kind: duration, def: "5s", min: "1ms", max: "1m", doc: "Wait for another process's write lock (SQLite)."},
		{name: "assume_no_eviction", kind: truth, later: "Redis", doc: "The server cannot be asked whether it evicts."},
		{name: "min_replicas", kind: whole, later: "Redis", doc: "Replicas that must confirm a write."},
	}}
}

func engineField() field {
	return field{name: "engine", kind: section, doc: "Bounds of the engine; routes may set some of their own.", fields: []field{
		{name: "complete_budget", kind: duration, def: "10s", min: "1ms", max: "10m", doc: "How long saving a result is tried before the outcome is called unknown."},
		{name: "tx_retries", kind: whole, def: "3", min: "1", max: "100", doc: "Repetitions of a transaction that lost to another one."},
		{name: "max_waiters", kind: whole, def: "100", min: "1", max: "1000", doc: "Duplicates that may wait for one running request; a process has at most 1000 waiting."},
		{name: "wait", kind: duration, def: "0s", max: "60s", doc: "How long a duplicate waits for the running request before it gets 409."},
		{name: "probe_every", kind: duration, def: "5s", min: "1s", max: "1h", doc: "First pause between two probes of a key in doubt; doubles to one minute."},
		{name: "max_run", kind: duration, defDoc: "60s for gateway routes", sample: "60s", min: "1s", max: "7d", doc: "Longest run of one request."},
		{name: "max_result", kind: size, def: "1MiB", min: "1B", max: "64MiB", doc: "Largest answer that is kept; a larger one reaches the first caller only."},
		{name: "issued_for", kind: duration, def: "1h", min: "1s", max: "365d", doc: "Life of a key that was handed out and not used."},
	}}
}

func leaseField() field {
	return field{name: "lease", kind: section, doc: "How long a silent owner can block its key.", fields: []field{
		{name: "duration", kind: duration, def: "30s", min: "1s", max: "1h", doc: "A crashed owner blocks its key at most this long."},
		{name: "renew", kind: duration, defDoc: "a third of the lease", sample: "10s", min: "100ms", max: "30m",
			doc: "Pause between two renewals; under half of lease.duration."},
	}}
}

func retentionField() field {
	horizon := field{kind: duration, min: "1s", doc: "Longest time after which the same intent may still arrive."}
	return field{name: "retention", kind: section, doc: "How long results, and the fact that they happened, are kept.", fields: []field{
		{name: "result", kind: duration, def: "24h", min: "1s", doc: "Retries within this time get the stored answer."},
		{name: "tombstone", kind: duration, forever: true, defDoc: "ten times the retention", sample: "240h", min: "1s",
			doc: "Retries within this time are told that it happened, and are not run again. forever is allowed."},
		{name: "horizons", kind: mapping, item: &horizon, sample: "{client_retry: 72h}",
			words: []string{"client_retry", "queue_redelivery", "webhook_replay", "operator_replay", "settlement"},
			doc:   "How late a retry may come, by source. retention.result must cover each."},
		{name: "sweep_every", kind: duration, def: "1m", min: "1s", max: "24h", doc: "Pause between two sweeps of expired records."},
		{name: "sweep_batch", kind: whole, def: "1000", min: "1", max: "1000", doc: "Rows that one sweep transaction removes at most."},
	}}
}

func outboundField() field {
	network, port := field{kind: text, check: checkNetwork}, field{kind: whole, min: "1", max: "65535"}
	return field{name: "outbound", kind: section, doc: "Where jwks_url and forward_auth may lead. Public networks always; cloud metadata never.", fields: []field{
		{name: "allow", kind: list, item: &network, defDoc: "none", sample: `["10.0.0.0/8"]`, doc: "Networks besides public ones."},
		{name: "ports", kind: list, item: &port, defDoc: "[80, 443]", sample: "[80, 443]", doc: "Ports."},
	}}
}

func securityField() field {
	key := func(sample, doc string, check func(string) error) *field {
		return &field{kind: section, fields: []field{
			{name: "id", kind: text, required: true, sample: sample, check: checkKeyID, doc: "Name of the key, kept with each record."},
			{name: "value", kind: text, secret: true, required: true, sample: "{file: /run/secrets/" + sample + "}", check: check, doc: doc},
		}}
	}
	return field{name: "security", kind: section, doc: "Keys that protect what is stored.", fields: []field{
		{name: "digest_keys", kind: list, item: key("d1", "The secret itself, at least 32 bytes.", checkDigestKey), defDoc: "one, made in the data folder on first start",
			doc: "Secrets that turn keys and requests into digests. The first makes new records, the others still find theirs."},
		{name: "encryption_keys", kind: list, item: key("e1", "The secret itself, exactly 32 bytes: openssl rand -base64 24 makes one.", checkEncryptionKey), defDoc: "none, and answers are stored in clear",
			doc: "Secrets that encrypt stored answers. The first encrypts, the others still decrypt."},
		{name: "require_encryption", kind: truth, def: "false", doc: "Refuse to start without an encryption key."},
	}}
}

func quotaField() field {
	return field{name: "quota", kind: section, doc: "How much one tenant may use. Without a number there is no limit.", fields: []field{
		{name: "in_flight", kind: whole, def: "1000", min: "1", max: "1000000", doc: "Running requests per tenant and process."},
		{name: "new_per_second", kind: whole, min: "1", max: "1000000", sample: "50", doc: "New keys per second and tenant."},
		{name: "burst", kind: whole, min: "1", max: "1000000", sample: "200", doc: "New keys at once, above the rate."},
		{name: "records", kind: whole, min: "1", sample: "5000000", doc: "Records per tenant.", later: "quotas on stored records"},
		{name: "stored_bytes", kind: size, min: "1B", sample: "10GiB", doc: "Stored bytes per tenant.", later: "quotas on stored records"},
	}}
}

func limitsField() field {
	return field{name: "limits", kind: section, doc: "Bounds of the gateway listener.", fields: []field{
		{name: "head", kind: size, def: "32KiB", min: "1KiB", max: "1MiB", doc: "Largest request line and headers."},
		{name: "connections_per_peer", kind: whole, def: "1000", min: "1", max: "1000000", doc: "Connections from one address."},
		{name: "h2_streams", kind: whole, def: "250", min: "1", max: "10000", doc: "Concurrent HTTP/2 streams of one connection."},
	}}
}
