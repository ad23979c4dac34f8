package config

func gatewayField() field {
	origin := field{kind: text, check: checkOrigin}
	network := field{kind: text, check: checkNetwork}
	up, rt := upstreamField(), routeField()
	return field{name: "gateway", kind: section, doc: "The reverse proxy that guards HTTP services.", fields: []field{
		{name: "tls", kind: section, doc: "Makes the listener speak TLS 1.2 and newer. Files are read again when they change.", fields: []field{
			{name: "cert", kind: path, required: true, sample: "cert.pem", doc: "PEM file: the certificate and its chain."},
			{name: "key", kind: path, required: true, sample: "key.pem", doc: "PEM file: its private key."},
		}},
		{name: "trusted_proxies", kind: list, item: &network, defDoc: "none", sample: `["10.0.0.0/8"]`, doc: "Addresses and networks whose forwarding and tenant headers are believed."},
		tenantField(),
		{name: "timeouts", kind: section, doc: "What a client may take.", fields: []field{
			{name: "read_header", kind: duration, def: "10s", min: "1ms", doc: "For the whole request head."},
			{name: "read_body", kind: duration, def: "60s", min: "1ms", doc: "For the body of a guarded request, and for each 64 KiB of another."},
			{name: "idle", kind: duration, def: "120s", min: "1ms", doc: "Between two requests of a connection."},
			{name: "write", kind: duration, def: "60s", min: "1ms", doc: "For each write of an answer, so streams live on."},
		}},
		{name: "cors", kind: section, doc: "Browsers that may read problems and replays.", fields: []field{
			{name: "origins", kind: list, item: &origin, defDoc: "none", sample: `["https://shop.example"]`, doc: "Origins as a browser spells them, or *."},
		}},
		{name: "allow_method_override", kind: truth, def: "false", doc: "Keep X-HTTP-Method-Override and its kin on forwarded requests."},
		{name: "upstreams", kind: mapping, item: &up, doc: "The services behind the gateway, by a name of your own."},
		{name: "routes", kind: list, item: &rt, doc: "What goes where; the most specific match wins, whatever the order. Nothing matches: 404."},
	}}
}

func tenantField() field {
	algorithm := field{kind: word, words: []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}}
	passed := field{kind: text, check: checkHeader}
	return field{name: "tenant", kind: section, doc: "Who the caller is: exactly one of header, jwt, mtls, forward_auth, global. Needed once a route is guarded.", fields: []field{
		{name: "header", kind: text, check: checkHeader, sample: "X-Account", doc: "Request header that a trusted proxy sets. Needs trusted_proxies."},
		{name: "jwt", kind: section, doc: "A claim of a verified bearer token.", fields: []field{
			{name: "jwks_file", kind: path, sample: "keys.json", doc: "Key set on disk, read again when it changes."},
			{name: "jwks_url", kind: text, check: checkHTTP, sample: "https://login.example/keys", doc: "Where the key set is fetched."},
			{name: "algorithms", kind: list, item: &algorithm, required: true, sample: "[RS256]", doc: "Signature algorithms that are accepted."},
			{name: "audience", kind: text, defDoc: "not checked", sample: "pay", doc: "Demanded value of aud."},
			{name: "issuer", kind: text, defDoc: "not checked", sample: "https://login.example", doc: "Demanded value of iss."},
			{name: "claim", kind: text, required: true, sample: "account", doc: "The claim that holds the tenant."},
		}},
		{name: "mtls", kind: section, doc: "The client's verified certificate. Needs gateway.tls.", fields: []field{
			{name: "ca", kind: path, required: true, sample: "clients.pem", doc: "PEM file of the accepted authorities."},
			{name: "from", kind: word, def: "cn", words: []string{"cn", "san_dns", "san_uri", "san_email"}, doc: "The part that names the tenant."},
		}},
		{name: "forward_auth", kind: section, doc: "An HTTP endpoint that is asked for each keyed request.", fields: []field{
			{name: "url", kind: text, required: true, check: checkHTTP, sample: "https://auth.example/check", doc: "Asked with GET."},
			{name: "headers", kind: list, item: &passed, defDoc: "none", sample: "[Authorization, Cookie]", doc: "Request headers passed on to it."},
			{name: "tenant_header", kind: text, required: true, check: checkHeader, sample: "X-Account", doc: "Header of its 2xx answer that names the tenant."},
			{name: "timeout", kind: duration, def: "5s", min: "1ms", max: "1m", doc: "Wait for its answer."},
		}},
		{name: "global", kind: truth, def: "false", doc: "All callers are one tenant: right only where one client uses the gateway."},
		{name: "principal", kind: text, defDoc: "none", sample: "X-User", doc: "Header or claim that separates the keys of callers inside a tenant."},
	}}
}

func upstreamField() field {
	base := field{kind: text, check: checkBase}
	return field{kind: section, fields: []field{
		{name: "urls", kind: list, item: &base, required: true, sample: `["http://127.0.0.1:9000"]`, doc: "Scheme and host of each instance, without a path. They are equals."},
		{name: "connect_timeout", kind: duration, def: "2s", min: "1ms", doc: "Name resolution and dialling."},
		{name: "tls_timeout", kind: duration, def: "5s", min: "1ms", doc: "TLS handshake."},
		{name: "header_timeout", kind: duration, def: "30s", min: "1ms", doc: "Wait for the answer's head once the request is sent."},
		{name: "idle_timeout", kind: duration, def: "1s", min: "1ms", doc: "Unused connections close after this; short, so that the upstream seldom closes one first."},
		{name: "fresh_connections", kind: truth, def: "false", doc: "A connection of its own for every keyed request."},
		{name: "health_check", kind: section, doc: "Ask each instance regularly; one that fails gets no requests.", fields: []field{
			{name: "path", kind: text, required: true, sample: "/healthz", doc: "Asked with GET; a 2xx is healthy."},
			{name: "every", kind: duration, def: "5s", min: "1ms", doc: "Pause between two questions."},
			{name: "timeout", kind: duration, def: "2s", min: "1ms", doc: "Wait for an answer."},
		}},
		{name: "breaker", kind: truth, def: "true", doc: "Refuse new keys for a while when the upstream fails."},
		{name: "ca", kind: path, defDoc: "the system's authorities", sample: "ca.pem", doc: "PEM file of the authorities to accept."},
		{name: "cert", kind: path, defDoc: "none", sample: "client.pem", doc: "PEM file: client certificate shown to the upstream."},
		{name: "key", kind: path, defDoc: "none", sample: "client-key.pem", doc: "PEM file: its private key."},
		{name: "server_name", kind: text, defDoc: "the host of the url", sample: "pay.internal", doc: "Name expected in the upstream's certificate."},
	}}
}

func routeField() field {
	fields := []field{
		{name: "match", kind: text, required: true, sample: `"POST /v1/payments"`, doc: "Pattern as of Go's ServeMux: METHOD HOST/PATH, with {wildcards}."},
		{name: "upstream", kind: text, required: true, sample: "pay", doc: "A name of gateway.upstreams."},
		{name: "operation", kind: text, check: checkOperation, sample: "create-payment", doc: "Makes the route guarded, under this stable business name."},
	}
	fields = append(fields, declarationFields()...)
	fields = append(fields, keyField())
	fields = append(fields, requestFields()...)
	fields = append(fields, answerFields()...)
	fields = append(fields, forwardFields()...)
	return field{kind: section, fields: fields}
}

func declarationFields() []field {
	horizon := field{kind: duration, min: "1s"}
	return []field{
		{name: "guard", kind: word, def: "leased", words: []string{"leased", "upstream"}, doc: "leased: guarded here. upstream: the service guards itself, only tenant and key are checked."},
		{name: "on_crash", kind: word, def: "hold", words: []string{"hold", "probe", "rerun"}, doc: "What follows when nobody knows whether the upstream acted."},
		{name: "upstream_honours_key", kind: truth, def: "false", doc: "The upstream deduplicates by the key it is sent; needed for rerun."},
		{name: "repeat_harmless", kind: text, sample: `"sets the address"`, doc: "Why a second run does no harm; allows rerun."},
		{name: "issued", kind: truth, def: "false", doc: "Accept only keys that were handed out here; needs issue."},
		{name: "issued_for", kind: duration, defDoc: "engine.issued_for", sample: "1h", min: "1s", max: "365d", doc: "Life of an unused issued key."},
		{name: "lease", kind: duration, defDoc: "lease.duration", sample: "30s", min: "1s", max: "1h", doc: "How long a crashed gateway can block a key."},
		{name: "max_run", kind: duration, defDoc: "engine.max_run, else 60s", sample: "60s", min: "1s", max: "7d", doc: "Longest exchange with the upstream."},
		{name: "retention", kind: duration, defDoc: "retention.result", sample: "24h", min: "1s", doc: "Retries within this time get the stored answer."},
		{name: "tombstone", kind: duration, forever: true, defDoc: "ten times the retention", sample: "240h", min: "1s", doc: "Retries within this time are told that it happened. forever is allowed."},
		{name: "horizons", kind: mapping, item: &horizon, sample: "{client_retry: 72h}",
			words: []string{"client_retry", "queue_redelivery", "webhook_replay", "operator_replay", "settlement"}, doc: "How late a retry may come, by source; retention must cover each."},
		{name: "max_result", kind: size, defDoc: "engine.max_result", sample: "1MiB", min: "1B", max: "64MiB", doc: "Largest answer that is kept."},
	}
}

func keyField() field {
	header, part := field{kind: text, check: checkHeader}, field{kind: text, check: checkPart}
	return field{name: "key", kind: section, doc: "Where the key is and what it looks like.", fields: []field{
		{name: "required", kind: truth, def: "true", doc: "false: a request without a key passes unguarded."},
		{name: "profile", kind: word, def: "default", words: []string{"default", "strict", "uuid", "stripe", "adyen", "square", "paypal", "aws"}, doc: "A set of key rules."},
		{name: "headers", kind: list, item: &header, defDoc: "[Idempotency-Key]", sample: "[Idempotency-Key]", doc: "Accepted headers."},
		{name: "pointer", kind: text, check: checkPointer, sample: "/request_id", doc: "Take the key from the body instead: a JSON pointer, or /name of a form field."},
		{name: "from", kind: list, item: &part, sample: `["body:/order/id"]`, doc: "Make the key of several parts: body:/pointer, query:name, path:wildcard."},
		{name: "min", kind: whole, defDoc: "the profile's", sample: "1", min: "1", max: "1024", doc: "Shortest key in bytes."},
		{name: "max", kind: whole, defDoc: "the profile's", sample: "255", min: "1", max: "1024", doc: "Longest key in bytes."},
		{name: "pattern", kind: text, check: checkPattern, sample: `"[a-z0-9-]+"`, doc: "RE2 expression that the whole key must match."},
		{name: "attempt_header_as_key", kind: truth, def: "false", doc: "Allow a header that is usually new on every attempt."},
	}}
}

func requestFields() []field {
	method, pointer, header := field{kind: text, check: checkMethod}, field{kind: text, check: checkPointer}, field{kind: text, check: checkHeader}
	return []field{
		{name: "methods", kind: list, item: &method, defDoc: "POST and PATCH", sample: "[PUT, DELETE]", doc: "Guarded besides POST and PATCH."},
		{name: "wait", kind: duration, defDoc: "engine.wait", sample: "5s", max: "60s", doc: "How long a duplicate waits for the running request."},
		{name: "max_body", kind: size, def: "1MiB", min: "1B", doc: "Largest request body."},
		{name: "max_inflated", kind: size, defDoc: "four times max_body", sample: "4MiB", min: "1B", doc: "Largest request body once uncompressed."},
		{name: "max_spool", kind: size, def: "64MiB", min: "1B", doc: "Most that is buffered of an answer."},
		{name: "fingerprint", kind: word, def: "canonical", words: []string{"canonical", "raw", "none"}, doc: "How bodies are compared: as documents, as bytes, not at all."},
		{name: "exclude", kind: list, item: &pointer, defDoc: "none", sample: "[/sent_at]", doc: "Members that do not count."},
		{name: "include", kind: list, item: &pointer, defDoc: "all", sample: "[/amount]", doc: "The only members that count."},
		{name: "headers", kind: list, item: &header, defDoc: "none", sample: "[Accept-Language]", doc: "Request headers that count."},
		{name: "path_values", kind: truth, def: "false", doc: "Only the wildcards of match count, not the path around them."},
		{name: "defaults", kind: mapping, item: &field{kind: anything}, check: checkPointer, defDoc: "none", sample: "{/currency: EUR}", doc: "Values that an absent member stands for."},
		{name: "mismatch_detail", kind: word, def: "pointers", words: []string{"pointers", "none"}, doc: "Whether a mismatch names the members that differ."},
		{name: "mismatch_status", kind: whole, def: "422", check: checkMismatch, doc: "422, 400 or 409."},
	}
}

func answerFields() []field {
	pointer, header := field{kind: text, check: checkPointer}, field{kind: text, check: checkHeader}
	outcome := field{kind: word, words: []string{"keep", "keep_failure", "release", "in_doubt"}}
	part := field{kind: text, check: checkPart}
	return []field{
		{name: "outcomes", kind: mapping, item: &outcome, check: checkStatus, defDoc: "docs/states", sample: "{404: release}", doc: "What becomes of an answer, by status: keep, keep_failure, release, in_doubt."},
		{name: "result", kind: word, def: "full", words: []string{"full", "pointer"}, doc: "How much of an answer is kept."},
		{name: "pointer_status", kind: whole, def: "410", check: checkPointerStatus, doc: "What a retry gets where only the pointer is kept: 410, or 303 with Location."},
		{name: "redact", kind: list, item: &pointer, defDoc: "none", sample: "[/card/number]", doc: "Members of the answer that are stored as null."},
		{name: "deny_headers", kind: list, item: &header, defDoc: "none", sample: "[X-Trace]", doc: "Answer headers not kept, besides those that never are."},
		{name: "keep_headers", kind: list, item: &header, defDoc: "all others", sample: "[Location]", doc: "The only answer headers kept."},
		{name: "stream", kind: truth, def: "false", doc: "Let the answer leave as it comes; it is then not kept."},
		{name: "on_store_down", kind: word, def: "refuse", words: []string{"refuse", "run"}, doc: "run forwards unguarded while the store is down."},
		{name: "unique_by", kind: list, item: &part, defDoc: "none", sample: `["body:/transaction_id"]`, doc: "A business identity that must be new under any key."},
		{name: "resource", kind: section, doc: "What the answer made, kept longer than the answer.", fields: []field{
			{name: "type", kind: text, required: true, sample: "payment", doc: "What it is."},
			{name: "id", kind: text, required: true, check: checkPointer, sample: "/id", doc: "JSON pointer into the answer."},
		}},
		{name: "answer_within", kind: duration, defDoc: "never", sample: "20s", min: "1ms", doc: "Then the caller gets 409 in_progress while the exchange goes on."},
		{name: "issue", kind: text, check: checkMethodPath, sample: `"POST /v1/payments/keys"`, doc: "Hands out one-time keys here."},
		{name: "status", kind: text, check: checkMethodPath, sample: `"GET /v1/payments/status"`, doc: "Tells the state of a key here."},
	}
}

func forwardFields() []field {
	status := field{kind: whole, check: checkStatus}
	matches := []field{
		{name: "status", kind: list, item: &status, required: true, sample: "[200]", doc: "One of these statuses, and"},
		{name: "json", kind: mapping, item: &field{kind: anything}, check: checkPointer, sample: "{/count: 1}", doc: "these values at these JSON pointers."},
	}
	return []field{
		{name: "upstream_key", kind: word, def: "forward", words: []string{"forward", "derive", "none"}, doc: "The key that the upstream gets."},
		{name: "upstream_key_header", kind: text, check: checkHeader, defDoc: "the caller's header", sample: "X-Request-Key", doc: "The header it gets it in."},
		{name: "probe", kind: section, doc: "Asks the upstream whether an effect happened. Needed for on_crash: probe.", fields: []field{
			{name: "request", kind: text, required: true, check: checkProbe, sample: `"GET /v1/payments?ref={derived_key}"`,
				doc: "GET or HEAD and a path; {key} {derived_key} {tenant} {operation} {path.NAME} are filled in."},
			{name: "happened", kind: section, required: true, doc: "An answer that proves it.", fields: matches},
			{name: "not_happened", kind: section, required: true, doc: "An answer that proves the contrary.", fields: matches},
			{name: "result", kind: section, doc: "The stored answer, made from the probe's.", fields: []field{
				{name: "status", kind: whole, required: true, check: checkStatus, sample: "201", doc: "Its status."},
				{name: "body", kind: text, sample: "/items/0", doc: "JSON pointer to its body; empty: the whole answer."},
			}},
			{name: "timeout", kind: duration, def: "5s", min: "1ms", max: "5m", doc: "Wait for an answer."},
			{name: "settle", kind: duration, def: "60s", min: "1ms", doc: "not_happened is believed no sooner after the request was sent."},
			{name: "every", kind: duration, def: "5s", min: "100ms", doc: "First pause between two questions; doubles to one minute."},
			{name: "attempts", kind: whole, def: "20", min: "1", max: "100000", doc: "Then only a person settles it."},
		}},
	}
}
