package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

// load reads text as idempo.yaml with env as its environment.
func load(t *testing.T, text string, env map[string]string) (*config.Settings, config.Problems, error) {
	t.Helper()
	return config.Load(config.Source{File: "idempo.yaml", Content: []byte(text), DataDir: "/data",
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
}

func loads(t *testing.T, text string) *config.Settings {
	t.Helper()
	c, _, err := load(t, text, nil)
	if err != nil {
		t.Fatalf("refused:\n%v\n---\n%s", err, text)
	}
	return c
}

// refused wants exactly these lines.
func refused(t *testing.T, text string, want ...string) {
	t.Helper()
	_, _, err := load(t, text, nil)
	wantLines(t, err, text, want...)
}

func wantLines(t *testing.T, err error, text string, want ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want:\n%s\n---\n%s", strings.Join(want, "\n"), text)
	}
	if got := err.Error(); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s\n---\n%s", got, strings.Join(want, "\n"), text)
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP31] unknown and misspelt keys", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlissen: {}\n", "idempo.yaml:2:1: lissen: unknown key: did you mean listen?")
		refused(t, "version: 1\nlisten:\n  gatway: \":80\"\n", "idempo.yaml:3:3: listen.gatway: unknown key: did you mean gateway?")
		refused(t, "version: 1\nlog: {zzzzzzzzz: 1}\n", "idempo.yaml:2:7: log.zzzzzzzzz: unknown key: known here are level format")
		refused(t, "version: 1\n<<: {a: 1}\n", "idempo.yaml:2:1: <<: unknown key: known here are version store engine lease retention operations listen gateway webhooks outbox relays sagas run security quota limits outbound ready shutdown dashboard metrics tracing log reload audit contract")
		refused(t, "version: 1\nlog: {level: loud}\n", "idempo.yaml:2:14: log.level: unknown word: known here are debug info warn error")
		refused(t, "version: 1\nlog: {level: debgu}\n", "idempo.yaml:2:14: log.level: unknown word: did you mean debug?")
		refused(t, "version: 1\nretention: {horizons: {client_rerty: 1h}}\n", "idempo.yaml:2:24: retention.horizons.client_rerty: unknown name: did you mean client_retry?")
	})
	t.Run("[operations/OP31] a duplicate names both lines", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlog: {level: info}\nready: {}\nlog: {level: warn}\n", "idempo.yaml:4:1: log: key twice: lines 2 and 4")
		refused(t, "version: 1\nlog:\n  level: info\n  \"level\": warn\n", "idempo.yaml:4:3: log.level: key twice: lines 3 and 4")
	})
	t.Run("[operations/OP31] wrong types and ranges", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlog: [info]\n", "idempo.yaml:2:6: log: a set of keys (level format) wanted, a list found")
		refused(t, "version: 1\nlog:\n", "idempo.yaml:2:5: log: a set of keys (level format) wanted, nothing found")
		refused(t, "version: 1\ngateway: {routes: {a: 1}}\n", "idempo.yaml:2:19: gateway.routes: a list wanted, a set of keys found")
		refused(t, "version: 1\nlisten: {gateway: [1]}\n", "idempo.yaml:2:19: listen.gateway: text wanted, a list or a set of keys found")
		refused(t, "version: 1\nlease: {duration: 500ms}\n", "idempo.yaml:2:19: lease.duration: out of range: from 1s to 1h")
		refused(t, "version: 1\nquota: {in_flight: 0}\n", "idempo.yaml:2:20: quota.in_flight: out of range: from 1 to 1000000")
		refused(t, "version: 1\nquota: {burst: -1}\n", "idempo.yaml:2:16: quota.burst: out of range: from 1 to 1000000")
		refused(t, "version: 1\nlisten: {gateway: localhost}\n", "idempo.yaml:2:19: listen.gateway: not an address: write HOST:PORT, as in 127.0.0.1:8080")
		refused(t, "version: 1\nlog: {level: !!str info}\n", "idempo.yaml:2:14: log.level: explicit tag: remove it")
		refused(t, "- 1\n", "idempo.yaml:1:1: a set of keys (version store engine lease retention operations listen gateway webhooks outbox relays sagas run security quota limits outbound ready shutdown dashboard metrics tracing log reload audit contract) wanted, a list found")
		refused(t, "version: 1\n? [a]\n: 1\n", "idempo.yaml:2:3: a key must be a single word")
	})
	t.Run("[operations/OP31] tabs, second documents, versions, broken YAML", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlog:\n\tlevel: info\n", "idempo.yaml:3:1: tab: indent with spaces")
		refused(t, "version: 1\n---\nversion: 1\n", "idempo.yaml:2:1: second document: a configuration file holds one")
		refused(t, "version: 2\n", "idempo.yaml:1:10: version: out of range: from 1 to 1")
		refused(t, "log: {level: info}\n", "idempo.yaml:1:1: version: missing: Version of this format")
		refused(t, "", "idempo.yaml:1:1: empty file: write at least version: 1")
		refused(t, "version: 1\nlog: {level: [\n", "idempo.yaml:2:1: not YAML: did not find expected node content")
		refused(t, "version: 1\nlog: *x\n", "idempo.yaml:1:1: not YAML: unknown anchor 'x' referenced")
		refused(t, "version: 1\nlog: {level: \"a\x01\"}\n", "idempo.yaml:2:16: control character")
		refused(t, "version: 1\nlog: {level: \"\xff\"}\n", "idempo.yaml:2:15: not UTF-8")
	})
	t.Run("[operations/OP31] all of them in one go, by line", func(t *testing.T) {
		t.Parallel()
		refused(t, `version: 1
listen: {gateway: nowhere, admin: 127.0.0.1:7070}
lease: {duration: 30, renew: 1s}
retention: {result: 24h, tombstone: 1h}
log: {levle: info, format: xml}
`,
			"idempo.yaml:2:19: listen.gateway: not an address: write HOST:PORT, as in 127.0.0.1:8080",
			"idempo.yaml:3:19: lease.duration: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m",
			"idempo.yaml:4:37: retention.tombstone: shorter than the retention (1d): a late retry would run again; see retention.result (line 4)",
			"idempo.yaml:5:7: log.levle: unknown key: did you mean level?",
			"idempo.yaml:5:28: log.format: unknown word: known here are auto text json")
	})
	t.Run("a file that cannot be read is named", func(t *testing.T) {
		t.Parallel()
		_, _, err := config.Load(config.Source{File: "/nowhere/idempo.yaml"})
		wantLines(t, err, "", "/nowhere/idempo.yaml: cannot be read: no such file or directory")
		dir := t.TempDir()
		_, _, err = config.Load(config.Source{File: dir})
		wantLines(t, err, "", dir+": cannot be read: is a directory")
	})
	t.Run("parts that do not exist yet are refused, never ignored", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nsagas: {pay: {}}\nstore: {redis: \"redis://x\"}\nquota: {records: 5}\n",
			"idempo.yaml:2:8: sagas: not in this version: sagas",
			"idempo.yaml:3:16: store.redis: not in this version: Redis",
			"idempo.yaml:4:18: quota.records: not in this version: quotas on stored records")
	})
}

func TestNothingIsGuessed(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP32] booleans", func(t *testing.T) {
		t.Parallel()
		ok := func(text string, want bool) {
			t.Helper()
			if c := loads(t, "version: 1\nready: {requires_store: "+text+"}\n"); c.Ready.RequiresStore != want {
				t.Errorf("%s is %v", text, c.Ready.RequiresStore)
			}
		}
		bad := func(text, message string) {
			t.Helper()
			refused(t, "version: 1\nready: {requires_store: "+text+"}\n", "idempo.yaml:2:25: ready.requires_store: "+message)
		}
		ok("true", true)
		ok("false", false)
		for _, text := range []string{"yes", "on", "True", "TRUE", "1", "y"} {
			bad(text, "not a boolean: write true or false")
		}
		bad(`"true"`, "true or false wanted, text found: remove the quotes")
		bad("~", "true or false wanted, nothing found")
	})
	t.Run("[operations/OP32] durations and sizes carry units", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"30", "1.5h", "30 s", "-1s", "1s1m", "s", "1h30", "1y", "1S", "1us"} {
			refused(t, "version: 1\nshutdown: {grace: "+text+"}\n",
				"idempo.yaml:2:19: shutdown.grace: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m")
		}
		for _, text := range []string{"1024", "1 MiB", "1K", "1.5MiB", "MiB", "1mib"} {
			refused(t, "version: 1\nlimits: {head: "+text+"}\n",
				"idempo.yaml:2:16: limits.head: not a size: write a whole number with a unit (B kB KiB MB MiB GB GiB TB TiB), as in 64KiB")
		}
		refused(t, "version: 1\nlease: {duration: forever}\n",
			"idempo.yaml:2:19: lease.duration: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m")
		refused(t, "version: 1\nretention: {tombstone: never}\n",
			"idempo.yaml:2:24: retention.tombstone: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m, or forever")
		refused(t, "version: 1\nretention: {result: 99999999999999d}\n", "idempo.yaml:2:21: retention.result: duration too long: at most 292 years")
		refused(t, "version: 1\nlimits: {head: 99999999999TiB}\n", "idempo.yaml:2:16: limits.head: size too large")
	})
	t.Run("[operations/OP32] numbers where text is meant, and the reverse", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nsecurity: {digest_keys: [{id: 0123, value: abcdefghijklmnopqrstuvwxyzabcdef}]}\n",
			"idempo.yaml:2:31: security.digest_keys[0].id: text wanted, a number found: put it in quotes")
		refused(t, "version: 1\nsecurity: {digest_keys: [{id: true, value: 12345678901234567890123456789012}]}\n",
			"idempo.yaml:2:31: security.digest_keys[0].id: text wanted, a boolean found: put it in quotes",
			"idempo.yaml:2:44: security.digest_keys[0].value: text wanted, a number found: put it in quotes")
		refused(t, "version: 1\nstore: {schema: 2020-01-01}\n", "idempo.yaml:2:17: store.schema: text wanted, a date found: put it in quotes")
		for _, text := range []string{"0x10", "010", "1_000", "1e3", "3.0", "+3"} {
			refused(t, "version: 1\nengine: {tx_retries: "+text+"}\n", "idempo.yaml:2:22: engine.tx_retries: not a whole number: write digits only, as in 3")
		}
		refused(t, "version: 1\nengine: {tx_retries: \"3\"}\n", "idempo.yaml:2:22: engine.tx_retries: a whole number wanted, text found: remove the quotes")
		refused(t, "version: 1\nengine: {tx_retries: 99999999999999999999}\n", "idempo.yaml:2:22: engine.tx_retries: number out of range")
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP35] size, nesting, aliases", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\n# "+strings.Repeat("x", 1<<20), "idempo.yaml:1:1: file too large: at most 1 MiB")
		refused(t, "version: 1\nlog: "+strings.Repeat("[", 60)+strings.Repeat("]", 60)+"\n", "idempo.yaml:2:55: nested too deep: at most 50 levels")
		refused(t, "version: 1\nlog: "+strings.Repeat("[", 500_000)+"\n", "idempo.yaml:2:1006: nested too deep: at most 50 levels")
		var bomb strings.Builder
		bomb.WriteString("a: &a [x, x, x, x, x, x, x, x, x, x]\n")
		for _, c := range "bcdefghi" {
			bomb.WriteString(string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+", ", 10), ", ") + "]\n")
		}
		_, _, err := load(t, bomb.String(), nil)
		if err == nil || !strings.Contains(err.Error(), "aliases expand to over 10000 nodes") {
			t.Errorf("an alias bomb: %v", err)
		}
		_, _, err = load(t, "version: 1\nlog: &x [*x]\n", nil)
		if err == nil || !strings.Contains(err.Error(), "nested too deep") {
			t.Errorf("an alias of itself: %v", err)
		}
	})
	t.Run("aliases within the limits are read", func(t *testing.T) {
		t.Parallel()
		c := loads(t, "version: 1\nlease: {duration: &d 40s}\nshutdown: {grace: *d}\n")
		if c.Shutdown.Grace != c.Engine.Lease || c.Engine.Lease.Seconds() != 40 {
			t.Errorf("grace %v, lease %v", c.Shutdown.Grace, c.Engine.Lease)
		}
	})
}

func TestValuesFromOutside(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, dir, name, text string, mode os.FileMode) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const secret = "canary-secret-0123456789-0123456789"
	t.Run("[operations/OP33] environment and files, in text and in place of any scalar", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "d1", secret+"\n", 0o600)
		file := write(t, dir, "idempo.yaml", `version: 1
store: {postgres: "postgres://app:${env:PGPASS}@${HOST}/pay"}
listen: {gateway: {env: FRONT}}
shutdown: {grace: {env: GRACE}}
ready: {requires_store: {env: STRICT}}
log: {level: "${env:LEVEL}"}
metrics: {token: "a$${env:X}${file:d1}"}
security: {digest_keys: [{id: d1, value: {file: d1}}]}
`, 0o600)
		env := map[string]string{"PGPASS": "p$$w", "HOST": "db", "FRONT": "127.0.0.1:1", "GRACE": "7s", "STRICT": "true", "LEVEL": "warn"}
		c, warnings, err := config.Load(config.Source{File: file, LookupEnv: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if c.Store.Postgres != "postgres://app:p$$w@db/pay" || c.Listen.Gateway != "127.0.0.1:1" || c.Shutdown.Grace.Seconds() != 7 ||
			!c.Ready.RequiresStore || c.Log.Level.String() != "WARN" || string(c.Metrics.Token) != "a${env:X}"+secret || string(c.Keys[0].Value) != secret {
			t.Errorf("%+v", c)
		}
	})
	t.Run("[operations/OP33] unset, missing, empty or unreadable names line and name, never the value", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "empty", "\n", 0o600)
		env := map[string]string{"EMPTY": "", "N": secret, "BAD": secret}
		try := func(text string, want ...string) {
			t.Helper()
			_, _, err := config.Load(config.Source{File: filepath.Join(dir, "c.yaml"), Content: []byte("version: 1\n" + text),
				LookupEnv: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
			for i := range want {
				want[i] = filepath.Join(dir, "c.yaml") + ":" + want[i]
			}
			wantLines(t, err, text, want...)
		}
		try("log: {level: {env: NOPE}}\n", "2:14: log.level: environment variable NOPE is not set")
		try("log: {level: \"${NOPE}\"}\n", "2:14: log.level: environment variable NOPE is not set")
		try("log: {level: {env: EMPTY}}\n", "2:14: log.level: environment variable EMPTY is empty")
		try("log: {level: {file: gone}}\n", "2:14: log.level: file gone cannot be read: no such file or directory")
		try("log: {level: {file: empty}}\n", "2:14: log.level: file empty is empty")
		try("log: {level: {file: .}}\n", "2:14: log.level: file . cannot be read: not a regular file")
		try("log: {level: {env: N}}\n", "2:14: log.level: the value of env N is not one of debug info warn error")
		try("shutdown: {grace: {env: N}}\n", "2:19: shutdown.grace: the value of env N: not a duration: write whole numbers with a unit (ms s m h d w), as in 30s or 1h30m")
		try("listen: {gateway: \"${env:N}\"}\n", "2:19: listen.gateway: the value of env N: not an address: write HOST:PORT, as in 127.0.0.1:8080")
		try("log: {level: \"${env:N\"}\n", "2:14: log.level: ${ without }: write $${ for a literal ${")
		try("log: {level: \"${vault:x}\"}\n", "2:14: log.level: unknown reference \"vault\": write ${env:NAME} or ${file:PATH}, or $${ for a literal ${")
		try("log: {level: \"${env:1X}\"}\n", "2:14: log.level: not a name of an environment variable: \"1X\"")
		try("log: {level: {env: }}\n", "2:14: log.level: {env: …} wants a name")
	})
	t.Run("[operations/OP33] only one trailing line end is dropped, and nothing is expanded twice", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "d1", "${env:PGPASS}-"+secret+"\r\n", 0o600)
		c, _, err := config.Load(config.Source{File: filepath.Join(dir, "c.yaml"),
			Content: []byte("version: 1\nsecurity: {digest_keys: [{id: d1, value: {file: d1}}]}\n")})
		if err != nil || string(c.Keys[0].Value) != "${env:PGPASS}-"+secret {
			t.Error(err, len(c.Keys))
		}
	})
	t.Run("[operations/OP33] paths count from the file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		c, _, err := config.Load(config.Source{File: filepath.Join(dir, "c.yaml"), Content: []byte("version: 1\nstore: {sqlite: data/i.db}\n")})
		if err != nil || c.Store.SQLite != filepath.Join(dir, "data", "i.db") {
			t.Error(c.Store.SQLite, err)
		}
	})
	t.Run("[operations/OP33] secrets that others can read are warned of", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("mode bits say nothing here")
		}
		dir := t.TempDir()
		write(t, dir, "d1", secret, 0o644)
		file := write(t, dir, "c.yaml", "version: 1\nmetrics: {token: "+secret+"}\nsecurity:\n  digest_keys:\n    - {id: d1, value: {file: d1}}\n", 0o644)
		_, warnings, err := config.Load(config.Source{File: file})
		if err != nil {
			t.Fatal(err)
		}
		want := file + ":2:18: metrics.token: secret in a file that others can read: chmod 600, or {file: …}\n" +
			file + ":5:23: security.digest_keys[0].value: others can read the secret file d1: chmod 600 d1"
		if warnings.Error() != want {
			t.Errorf("got\n%s\nwant\n%s", warnings.Error(), want)
		}
	})
}
