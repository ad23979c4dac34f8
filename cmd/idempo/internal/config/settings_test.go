package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

const routes = `version: 1
gateway:
  tenant: {global: true}
  upstreams:
    pay: {urls: ["http://127.0.0.1:9000"]}
  routes:
`

func TestUnsafeCombinations(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP34] renewals too late for the lease", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlease:\n  renew: 15s\n  duration: 30s\n",
			"idempo.yaml:3:10: lease.renew: must be under half of the lease (30s); see lease.duration (line 4)")
		refused(t, "version: 1\nlease: {renew: 20s}\n",
			"idempo.yaml:2:16: lease.renew: must be under half of the lease (30s); see lease.duration (default)")
		loads(t, "version: 1\nlease: {renew: 14s}\n")
		refused(t, routes+"    - {match: \"POST /a\", upstream: pay, operation: a, lease: 4s}\nlease: {renew: 2s}\n",
			"idempo.yaml:7:62: gateway.routes[0].lease: must be over twice the pause between renewals; see lease.renew (line 8)")
	})
	t.Run("[operations/OP34] a tombstone that ends before the result, retention under a horizon", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nretention:\n  tombstone: 23h\n",
			"idempo.yaml:3:14: retention.tombstone: shorter than the retention (1d): a late retry would run again; see retention.result (default)")
		refused(t, "version: 1\nretention:\n  result: 2d\n  horizons: {client_retry: 72h}\n",
			"idempo.yaml:4:28: retention.horizons.client_retry: a retry may come later than the answer is kept (2d); see retention.result (line 3)")
		refused(t, routes+"    - {match: \"POST /a\", upstream: pay, operation: a, retention: 1h, horizons: {webhook_replay: 2h}, tombstone: 30m}\n",
			"idempo.yaml:7:97: gateway.routes[0].horizons.webhook_replay: a retry may come later than the answer is kept (1h); see gateway.routes[0].retention (line 7)",
			"idempo.yaml:7:113: gateway.routes[0].tombstone: shorter than the retention (2h): a late retry would run again; see gateway.routes[0].horizons.webhook_replay (line 7)")
		loads(t, "version: 1\nretention: {horizons: {client_retry: 72h}}\n")
		refused(t, "version: 1\nretention: {tombstone: 71h, horizons: {client_retry: 72h}}\n",
			"idempo.yaml:2:24: retention.tombstone: shorter than the retention (3d): a late retry would run again; see retention.horizons.client_retry (line 2)")
		loads(t, "version: 1\nretention: {result: 3d, horizons: {client_retry: 72h}, tombstone: forever}\n")
	})
	t.Run("[operations/OP34] rerun on an upstream that is not declared to honour keys [http/P12]", func(t *testing.T) {
		t.Parallel()
		_, _, err := load(t, routes+"    - match: \"POST /a\"\n      upstream: pay\n      operation: a\n      on_crash: rerun\n      upstream_honours_key: false\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:11:29: gateway.routes[0].upstream_honours_key: ") || !strings.Contains(err.Error(), "gateway.routes[0].on_crash (line 10)") {
			t.Error(err)
		}
		_, _, err = load(t, routes+"    - match: \"POST /a\"\n      upstream: pay\n      operation: a\n      on_crash: rerun\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:10:17: gateway.routes[0].on_crash: ") {
			t.Error(err)
		}
		loads(t, routes+"    - {match: \"POST /a\", upstream: pay, operation: a, on_crash: rerun, upstream_honours_key: true}\n")
	})
	t.Run("[operations/OP34] [http/P1] two operations that match one request", func(t *testing.T) {
		t.Parallel()
		_, _, err := load(t, routes+"    - {match: \"POST /{a}/b\", upstream: pay, operation: a}\n    - {match: \"POST /a/{b}\", upstream: pay, operation: b}\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:8:15: gateway.routes[1].match: ") || !strings.Contains(err.Error(), "gateway.routes[0].match (line 7)") {
			t.Error(err)
		}
		loads(t, routes+"    - {match: \"POST /a/b\", upstream: pay, operation: a}\n    - {match: \"POST /a/{b}\", upstream: pay, operation: b}\n")
	})
	t.Run("[operations/OP34] an admin address beyond loopback without a token", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlisten:\n  admin: 0.0.0.0:7070\n",
			"idempo.yaml:3:10: listen.admin: an address beyond loopback needs a token: metrics and health are open otherwise; see metrics.token (default)")
		refused(t, "version: 1\nlisten:\n  admin: \":7070\"\n",
			"idempo.yaml:3:10: listen.admin: an address beyond loopback needs a token: metrics and health are open otherwise; see metrics.token (default)")
		loads(t, "version: 1\nlisten: {admin: \":7070\"}\nmetrics: {token: 0123456789abcdef}\n")
		loads(t, "version: 1\nlisten: {admin: \"[::1]:7070\"}\n")
		refused(t, "version: 1\nlisten:\n  admin: 127.0.0.1:1\n  gateway: 127.0.0.1:1\n",
			"idempo.yaml:3:10: listen.admin: one address for two listeners; see listen.gateway (line 4)")
	})
	t.Run("[operations/UI1] [operations/UI2] [operations/OP34] a dashboard that would let anybody in, or nobody", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nlisten: {admin: \"0.0.0.0:7070\"}\nmetrics: {token: 0123456789abcdef}\ndashboard:\n  auth: none\n",
			"idempo.yaml:2:17: listen.admin: an address beyond loopback needs a login; see dashboard.auth (line 5)")
		loads(t, "version: 1\ndashboard: {auth: none}\n")
		refused(t, "version: 1\ndashboard:\n  auth: basic\n", "idempo.yaml:3:9: dashboard.auth: nobody could log in: name users; see dashboard.users (default)")
		refused(t, "version: 1\ndashboard:\n  auth: basic\n  users:\n    ann: {role: admin}\n", "idempo.yaml:5:10: dashboard.users.ann: no password: with auth basic each user has one")
		refused(t, "version: 1\ndashboard:\n  auth: basic\n  users:\n    ann: {password: hunter2}\n",
			"idempo.yaml:5:21: dashboard.users.ann.password: not a bcrypt hash of cost 4 to 15: htpasswd -nB NAME makes one")
		refused(t, "version: 1\ndashboard:\n  auth: header\n  users: {ann: {role: admin}}\n",
			"idempo.yaml:3:9: dashboard.auth: anybody could set the header: name the proxies that may; see dashboard.trusted_proxies (default)")
		loads(t, "version: 1\ndashboard: {auth: header, trusted_proxies: [10.0.0.0/8], users: {\"*\": {role: viewer}}}\n")
	})
	t.Run("two stores, two keys of one name, an upstream that is not there", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nstore:\n  sqlite: a.db\n  postgres: postgres://h/d\n",
			"idempo.yaml:4:13: store.postgres: a second store: give one; see store.sqlite (line 3)")
		refused(t, "version: 1\nstore:\n  mysql: mysql://h/d\n  postgres: postgres://h/d\n",
			"idempo.yaml:4:13: store.postgres: a second store: give one; see store.mysql (line 3)")
		key := "{id: d1, value: abcdefghijklmnopqrstuvwxyz012345}"
		refused(t, "version: 1\nsecurity:\n  digest_keys:\n    - "+key+"\n    - "+key+"\n",
			"idempo.yaml:5:12: security.digest_keys[1].id: id \"d1\" twice; see security.digest_keys[0].id (line 4)")
		_, _, err := load(t, routes+"    - {match: \"/\", upstream: pya}\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:7:30: gateway.routes[0].upstream: ") || !strings.HasSuffix(err.Error(), "did you mean pay?") {
			t.Error(err)
		}
	})
	t.Run("weak digest keys [security/SEC30]", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nsecurity: {digest_keys: [{id: d1, value: canary}]}\n",
			"idempo.yaml:2:42: security.digest_keys[0].value: secret too short: at least 32 bytes")
		refused(t, "version: 1\nsecurity: {digest_keys: [{id: d1, value: "+strings.Repeat("z", 40)+"}]}\n",
			"idempo.yaml:2:42: security.digest_keys[0].value: secret is one byte repeated")
	})
	t.Run("[security/SEC35] encryption demanded without a key [security/SEC30] and keys that are none", func(t *testing.T) {
		t.Parallel()
		refused(t, "version: 1\nsecurity: {require_encryption: true}\n",
			"idempo.yaml:2:32: security.require_encryption: there is no key to encrypt with: name one; see security.encryption_keys (default)")
		refused(t, "version: 1\nsecurity:\n  require_encryption: true\n  encryption_keys: []\n",
			"idempo.yaml:3:23: security.require_encryption: there is no key to encrypt with: name one; see security.encryption_keys (line 4)")
		refused(t, "version: 1\nsecurity: {encryption_keys: [{id: e1, value: abcdefghijklmnopqrstuvwxyz-canary}]}\n",
			"idempo.yaml:2:46: security.encryption_keys[0].value: secret of 33 bytes: an encryption key has exactly 32; openssl rand -base64 24 makes one")
		key := "{id: e1, value: abcdefghijklmnopqrstuvwxyz012345}"
		refused(t, "version: 1\nsecurity:\n  encryption_keys:\n    - "+key+"\n    - "+key+"\n",
			"idempo.yaml:5:12: security.encryption_keys[1].id: id \"e1\" twice; see security.encryption_keys[0].id (line 4)")
		c := loads(t, "version: 1\nsecurity: {require_encryption: true, encryption_keys: ["+key+"], digest_keys: ["+key+"]}\n")
		if e := c.Encrypt; !e.Required || len(e.Keys) != 1 || e.Keys[0] != (config.Key{ID: "e1", Value: "abcdefghijklmnopqrstuvwxyz012345"}) {
			t.Errorf("%+v", e)
		}
		for _, s := range c.List() {
			if strings.Contains(s.Value, "abcdef") {
				t.Errorf("%s shows the key", s.Path)
			}
		}
		if c := loads(t, "version: 1\nsecurity: {require_encryption: false}\n"); c.Encrypt.Required || len(c.Encrypt.Keys) != 0 {
			t.Errorf("%+v", c.Encrypt)
		}
	})
	t.Run("[security/SEC40] a key from the environment works, and is warned of", func(t *testing.T) {
		t.Parallel()
		env := map[string]string{"E1": "canaryghijklmnopqrstuvwxyz012345", "TOKEN": "canary-0123456789"}
		for _, value := range []string{"{env: E1}", `"${env:E1}"`} {
			c, warnings, err := load(t, "version: 1\nmetrics: {token: {env: TOKEN}}\nsecurity: {encryption_keys: [{id: e1, value: "+value+"}]}\n", env)
			want := "idempo.yaml:3:46: security.encryption_keys[0].value: secret in the environment variable E1: process lists can show it, and child processes get it; {file: …} keeps it closer"
			if err != nil || warnings.Error() != want || string(c.Encrypt.Keys[0].Value) != env["E1"] {
				t.Errorf("%v\n%v", err, warnings)
			}
		}
	})
	t.Run("what the gateway refuses is found in the file", func(t *testing.T) {
		t.Parallel()
		_, _, err := load(t, strings.Replace(routes, "{global: true}", "{header: X-Account}", 1)+"    - {match: \"POST /a\", upstream: pay, operation: a}\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:3:20: gateway.tenant.header: ") || strings.Count(err.Error(), "\n") != 0 {
			t.Error(err)
		}
		_, _, err = load(t, "version: 1\ngateway:\n  upstreams: {pay: {urls: [\"http://h\"]}}\n  routes:\n    - {match: \"POST /a\", upstream: pay, operation: a}\n", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "idempo.yaml:3:3: gateway.tenant: ") || strings.Count(err.Error(), "\n") != 0 {
			t.Error(err)
		}
		refused(t, routes+"    - {match: \"POST /a\", upstream: pay, operation: a, issue: \"/keys\"}\n",
			"idempo.yaml:7:62: gateway.routes[0].issue: write METHOD /path, as in POST /v1/payments/keys")
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := loads(t, "version: 1\n")
	if c.Store.SQLite != filepath.Join("/data", "idempo.db") || !c.Store.AutoMigrate || !c.Store.Strict || c.Store.AcquireTimeout != time.Second {
		t.Errorf("store %+v", c.Store)
	}
	if c.Listen != (config.Listen{Gateway: "127.0.0.1:8080", Admin: "127.0.0.1:7070"}) || c.Shutdown != (config.Shutdown{Grace: 30 * time.Second}) {
		t.Errorf("%+v %+v", c.Listen, c.Shutdown)
	}
	if c.Engine != (config.Engine{}) || len(c.Keys) != 0 || c.Quota != (config.Quota{InFlight: 1000}) || c.Metrics.MaxOperations != 200 || c.Log.Level != slog.LevelInfo {
		t.Errorf("%+v", c)
	}
	pg := loads(t, "version: 1\nstore: {postgres: postgres://h/d}\n")
	if pg.Store.SQLite != "" || pg.Store.AutoMigrate {
		t.Errorf("%+v", pg.Store)
	}
	r := loads(t, "version: 1\nengine: {max_run: 2m, wait: 3s}\nretention: {result: 4d, horizons: {client_retry: 3d}, tombstone: forever}\n"+strings.TrimPrefix(routes, "version: 1\n")+
		"    - {match: \"POST /a\", upstream: pay, operation: a}\n    - {match: \"POST /b\", upstream: pay, operation: b, max_run: 5s}\n    - {match: /, upstream: pay}\n")
	a, b, rest := r.Gateway.Routes[0], r.Gateway.Routes[1], r.Gateway.Routes[2]
	if a.MaxRun != 2*time.Minute || a.Wait != 3*time.Second || a.Horizons["client_retry"] != 72*time.Hour || a.Retention != 96*time.Hour || b.MaxRun != 5*time.Second || rest.MaxRun != 0 {
		t.Errorf("%+v", r.Gateway.Routes)
	}
	if r.Engine.Retention != 96*time.Hour || r.Engine.Tombstone != math.MaxInt64 {
		t.Errorf("%+v", r.Engine)
	}
}

func TestOrderOfSettings(t *testing.T) {
	t.Parallel()
	with := func(t *testing.T, text string, over ...config.Override) (*config.Settings, error) {
		t.Helper()
		c, _, err := config.Load(config.Source{File: "c.yaml", Content: []byte(text), DataDir: "/data", Overrides: over})
		return c, err
	}
	t.Run("[operations/OP11] an override beats the file, which beats the default; each is shown with its origin", func(t *testing.T) {
		t.Parallel()
		c, err := with(t, "version: 1\nlisten: {gateway: 127.0.0.1:1}\nlog: {level: warn}\nmetrics: {token: secret-canary-0123456789}\nstore: {postgres: \"postgres://app:pa55@db/pay?sslpassword=pa55\"}\n",
			config.Override{Path: "listen.gateway", Value: "127.0.0.1:2", Origin: "flag --listen"})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"listen.gateway":       "127.0.0.1:2 · flag --listen",
			"listen.admin":         "127.0.0.1:7070 · default",
			"log.level":            "warn · c.yaml:3",
			"log.format":           "auto · default",
			"metrics.token":        "*** · c.yaml:4",
			"store.postgres":       "postgres://app:***@db/pay?sslpassword=*** · c.yaml:5",
			"security.digest_keys": "",
			"store.migrate":        "(auto for SQLite, else manual) · default",
		}
		got := map[string]string{}
		for _, s := range c.List() {
			got[s.Path] = s.Value + " · " + s.Origin
			if strings.Contains(s.Value, "pa55") || strings.Contains(s.Value, "canary") {
				t.Errorf("%s shows a secret", s.Path)
			}
		}
		for p, w := range want {
			if got[p] != w {
				t.Errorf("%s: %s, want %s", p, got[p], w)
			}
		}
	})
	t.Run("[operations/OP11] a value from outside is shown as *** with the name it came from", func(t *testing.T) {
		t.Parallel()
		c, _, err := load(t, "version: 1\nlog: {level: {env: LEVEL}}\n", map[string]string{"LEVEL": "warn"})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range c.List() {
			if s.Path == "log.level" && (s.Value != "***" || s.Origin != "idempo.yaml:2, env LEVEL") {
				t.Errorf("%+v", s)
			}
		}
	})
	t.Run("a store by path or by URL", func(t *testing.T) {
		t.Parallel()
		file := "version: 1\nstore: {postgres: postgres://h/d}\n"
		c, err := with(t, file, config.Override{Path: "store", Value: "x.db", Origin: "flag --store"})
		if err != nil || c.Store.SQLite != "x.db" || c.Store.Postgres != "" {
			t.Error(err, c)
		}
		c, err = with(t, "version: 1\nstore: {sqlite: y.db}\n", config.Override{Path: "store", Value: "postgres://h/d", Origin: "flag --store"})
		if err != nil || c.Store.Postgres != "postgres://h/d" || c.Store.SQLite != "" {
			t.Error(err, c)
		}
		c, err = with(t, file, config.Override{Path: "store", Value: "mysql://u:canary@h/d", Origin: "flag --store"})
		if err != nil || c.Store.MySQL != "mysql://u:canary@h/d" || c.Store.Postgres != "" || c.Store.SQLite != "" || c.Store.AutoMigrate {
			t.Error(err, c)
		}
		_, err = with(t, file, config.Override{Path: "store", Value: "redis://h/d", Origin: "flag --store"})
		wantLines(t, err, "", "flag --store: store: not in this version: a redis store; give a path, a postgres:// or a mysql:// URL")
	})
	t.Run("[http/P2] --upstream is one route for everything", func(t *testing.T) {
		t.Parallel()
		up := config.Override{Path: "upstream", Value: "http://127.0.0.1:9000", Origin: "flag --upstream"}
		c, err := with(t, "version: 1\nlimits: {head: 1KiB}\n", up)
		if err != nil || c.Upstream != up.Value || len(c.Gateway.Routes) != 1 || !c.Gateway.Tenant.Global || c.ExplicitTenant() || c.Gateway.Limits.Head != 1024 {
			t.Error(err, c)
		}
		_, err = with(t, routes+"    - {match: /, upstream: pay}\n", up)
		wantLines(t, err, "", "flag --upstream: upstream: gateway.routes is set as well (line 7): give one of the two")
		up.Value = "127.0.0.1:9000"
		_, err = with(t, "version: 1\n", up)
		wantLines(t, err, "", "flag --upstream: upstream: not an HTTP URL: write http://HOST:PORT or https://HOST")
	})
	t.Run("a bad override names its flag", func(t *testing.T) {
		t.Parallel()
		_, err := with(t, "version: 1\n", config.Override{Path: "listen.gateway", Value: "nowhere", Origin: "env IDEMPO_LISTEN"})
		wantLines(t, err, "", "env IDEMPO_LISTEN: listen.gateway: not an address: write HOST:PORT, as in 127.0.0.1:8080")
	})
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	k := config.Key{ID: "d1", Value: "canary"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k)
	j, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	c := loads(t, "version: 1\nmetrics: {token: canary-canary-canary}\nstore: {postgres: \"postgres://u:canary@h/d\"}\n")
	t.Run("[security/SEC34] secrets of the configuration print as ***", func(t *testing.T) {
		for _, s := range []string{fmt.Sprintf("%v %+v %#v %s %q", k, k, k, k, k), fmt.Sprint([]config.Key{k}), log.String(), string(j), fmt.Sprintf("%v %+v %#v", c, c, c)} {
			if strings.Contains(s, "canary") || !strings.Contains(s, "***") {
				t.Error(s)
			}
		}
	})
}

func TestDurationsAndSizes(t *testing.T) {
	t.Parallel()
	ok := func(s string, want time.Duration) {
		t.Helper()
		if d, err := config.ParseDuration(s); err != nil || d != want {
			t.Errorf("%s is %v, %v", s, d, err)
		}
		if back, err := config.ParseDuration(config.FormatDuration(want)); err != nil || back != want {
			t.Errorf("%v is written %s, read %v", want, config.FormatDuration(want), back)
		}
	}
	t.Run("[operations/OP16] durations", func(t *testing.T) {
		ok("0s", 0)
		ok("500ms", 500*time.Millisecond)
		ok("1h30m", 90*time.Minute)
		ok("1w2d3h4m5s6ms", (9*24+3)*time.Hour+4*time.Minute+5*time.Second+6*time.Millisecond)
	})
	for s, want := range map[string]int64{"0B": 0, "64KiB": 65536, "1MiB": 1 << 20, "3kB": 3000, "2MB": 2e6, "1GB": 1e9, "1GiB": 1 << 30, "1TB": 1e12, "1TiB": 1 << 40} {
		if n, err := config.ParseSize(s); err != nil || n != want {
			t.Errorf("%s is %d, %v", s, n, err)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP15] flag, environment, here, user, system", func(t *testing.T) {
		t.Parallel()
		here, user, system := t.TempDir(), t.TempDir(), t.TempDir()
		p := config.Places{WorkDir: here, UserDir: user, SystemDir: system}
		want := func(w string) {
			t.Helper()
			if got := p.Find(); got != w {
				t.Errorf("found %q, want %q", got, w)
			}
		}
		put := func(parts ...string) string {
			t.Helper()
			f := filepath.Join(parts...)
			if err := os.MkdirAll(filepath.Dir(f), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return f
		}
		want("")
		want(put(system, "idempo", "idempo.yaml"))
		want(put(user, "idempo", "idempo.yaml"))
		want(put(here, "idempo.yaml"))
		p.Env = "e.yaml"
		want("e.yaml")
		p.Flag = "f.yaml"
		want("f.yaml")
	})
}
