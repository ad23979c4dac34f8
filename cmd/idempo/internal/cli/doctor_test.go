package cli

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/operator"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	grades := func(t *testing.T, s *shell, code int, args ...string) map[string]string {
		t.Helper()
		r := s.run(append([]string{"doctor", "--json"}, args...)...)
		var out struct {
			Schema   int
			Findings []finding
		}
		if err := json.Unmarshal([]byte(r.out), &out); err != nil || out.Schema != 1 || r.code != code {
			t.Fatalf("%v %+v", err, r)
		}
		g := map[string]string{}
		for _, f := range out.Findings {
			if f.Grade != "ok" && f.Fix == "" {
				t.Errorf("no fix: %+v", f)
			}
			if g[f.Check] == "" || g[f.Check] == "ok" {
				g[f.Check] = f.Grade
			}
		}
		return g
	}
	const key = "security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}]}\n"
	t.Run("a store with keys in doubt is worth a warning, which is an exit code with --strict", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\n"+key)
		for name, want := range map[string]string{"config": "ok", "schema": "ok", "durability": "ok", "latency": "ok", "digest keys": "ok", "in doubt": "warn"} {
			if got := grades(t, s, 0)[name]; got != want {
				t.Errorf("%s is %q, want %s", name, got, want)
			}
		}
		if r := s.run("doctor", "--strict"); r.code != 2 || !strings.Contains(r.out, "warn in doubt     1, the oldest since 2h\n                  fix: idempo keys list --state in_doubt\n") {
			t.Errorf("%d %s", r.code, r.out)
		}
	})
	t.Run("clients that make a key per attempt, and calls that came too late, are warnings; without counters it says so", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		path := s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\n"+key)
		if r := s.run("doctor"); !strings.Contains(r.out, "no process has written any yet") {
			t.Errorf("%d %s", r.code, r.out)
		}
		store, err := database.Open(t.Context(), config.Store{SQLite: filepath.Join(filepath.Dir(path), "idempo.db"), AutoMigrate: true}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		m := operator.NewMeter(operator.MeterConfig{Store: store.Store})
		m.Observe(t.Context(), idempo.Event{Kind: "begin", Operation: "pay", Verdict: "run"})
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if g := grades(t, s, 0); g["counters"] != "ok" || g["keys"] != "" {
			t.Error(g)
		}
		m.Observe(t.Context(), idempo.Event{Kind: "fresh_key", Operation: "pay", Count: 3})
		m.Observe(t.Context(), idempo.Event{Kind: "begin", Operation: "pay", Verdict: "expired"})
		if err := errors.Join(m.Flush(t.Context()), store.Close()); err != nil {
			t.Fatal(err)
		}
		if g := grades(t, s, 0); g["keys"] != "warn" || g["retention"] != "warn" {
			t.Error(g)
		}
		if r := s.run("doctor"); !strings.Contains(r.out, "pay: a client makes a key per attempt") || !strings.Contains(r.out, "pay: 1 calls came when the answer was gone") {
			t.Error(r.out)
		}
	})
	t.Run("what is bad is an exit code, and says what to do", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: none.db}\n"+key)
		if g := grades(t, s, 1); g["schema"] != "bad" {
			t.Error(g)
		}
		if r := s.run("doctor"); !strings.Contains(r.out, "fix: idempo migrate up") {
			t.Error(r.out)
		}
		if g := grades(t, s, 1, "--store", "postgres://127.0.0.1:1/d"); g["store"] != "bad" {
			t.Error(g)
		}
		if g := grades(t, s, 1, "--store", "postgres://u:canary@db.invalid/d"); g["store"] != "bad" {
			t.Error(g)
		}
		if r := s.run("doctor", "--store", "mysql://u:canary@db.invalid/d"); !strings.Contains(r.out, "without verified TLS\n                  fix: add tls=true") || strings.Contains(r.out+r.err, "canary") {
			t.Errorf("[security/SEC76] %s%s", r.out, r.err)
		}
		s.file("idempo.yaml", "version: 1\nlissen: {}\n")
		if g := grades(t, s, 1); g["config"] != "bad" {
			t.Error(g)
		}
	})
	t.Run("weak settings: global tenant, unguarded while down, several digest keys, a readable key file", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db, strict: false}\ngateway:\n  tenant: {global: true}\n  upstreams: {pay: {urls: [\"http://127.0.0.1:9000\"]}}\n"+
			"  routes:\n    - {match: POST /a, upstream: pay, operation: a, on_store_down: run, fingerprint: none}\n")
		g := grades(t, s, 0)
		for _, name := range []string{"tenant", "routes", "store", "digest keys"} {
			if g[name] != "warn" {
				t.Errorf("%s is %q", name, g[name])
			}
		}
		f := s.file("data/digest.key", "made-1 0123456789abcdef0123456789abcdef\n")
		if g := grades(t, s, 0); g["digest keys"] != "ok" || g["files"] != "" {
			t.Error(g)
		}
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
		if g := grades(t, s, 1); g["files"] != "bad" {
			t.Error(g)
		}
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\nsecurity: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}, {id: d2, value: 0123456789abcdef0123456789abcdef+}]}\n")
		if g := grades(t, s, 0); g["digest keys"] != "warn" {
			t.Error(g)
		}
	})
	t.Run("stored answers in clear, or encrypted", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\n"+key)
		if g := grades(t, s, 0); g["encryption"] != "warn" {
			t.Error(g)
		}
		for more, want := range map[string]string{"": "on, key e1\n", "require_encryption: true, ": "on and required, key e1\n"} {
			s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\n"+strings.Replace(key, "{", "{"+more+"encryption_keys: [{id: e1, value: 0123456789abcdef0123456789canary}], ", 1))
			if r := s.run("doctor"); r.code != 0 || !strings.Contains(r.out, "ok   encryption   "+want) {
				t.Error(r)
			}
		}
	})
	t.Run("[security/SEC77] what is open, unencrypted, shared, or has never been changed", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.seeded()
		text := func(name string) (grade, said string) {
			t.Helper()
			var out struct{ Findings []finding }
			r := s.run("doctor", "--json")
			if err := json.Unmarshal([]byte(r.out), &out); err != nil {
				t.Fatalf("%v %+v", err, r)
			}
			for _, f := range out.Findings {
				if f.Check == name && (grade == "" || grade == "ok") {
					grade, said = f.Grade, f.Text+"; "+f.Fix
				}
			}
			return grade, said
		}
		expect := func(name, grade, say string) {
			t.Helper()
			if g, said := text(name); g != grade || !strings.Contains(said, say) {
				t.Errorf("%s is %q: %q, want %s and %q", name, g, said, grade, say)
			}
		}
		secret := s.file("secret", "0123456789abcdef0123456789abcdef-")
		with := func(more string) {
			s.file("idempo.yaml", "version: 1\nstore: {sqlite: idempo.db}\n"+more)
			if err := os.Chmod(filepath.Join(s.dir, "idempo.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(secret, 0o644); err != nil {
			t.Fatal(err)
		}
		with("security: {digest_keys: [{id: d1, value: \"${file:secret}\"}]}\nlisten: {admin: \"0.0.0.0:8081\"}\ngateway: {tenant: {global: true}}\nmetrics: {token: 0123456789abcdef0123}\n")
		expect("config", "warn", "secret")
		expect("listeners", "warn", "0.0.0.0:8081")
		expect("tenant", "warn", "one tenant")
		expect("encryption", "warn", "off")
		// Records of the seeded store live under d1, none under d9.
		with("security: {digest_keys: [{id: d2, value: 0123456789abcdef0123456789abcdef+}, {id: d1, value: 0123456789abcdef0123456789abcdef-}]}\n")
		expect("digest keys", "warn", "records live under d1")
		with("security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}, {id: d9, value: 0123456789abcdef0123456789abcdef+}]}\n")
		expect("digest keys", "warn", "no record lives under d9: its rotation waits for the last step")
		if err := os.MkdirAll(filepath.Join(s.dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		token := s.file("data/admin.token", "0123456789abcdef0123456789abcdef\n")
		if err := os.Chmod(token, 0o600); err != nil {
			t.Fatal(err)
		}
		expect("token", "ok", "less than a year")
		long := time.Now().Add(-400 * 24 * time.Hour)
		if err := os.Chtimes(token, long, long); err != nil {
			t.Fatal(err)
		}
		expect("token", "warn", "400d ago")
		if err := os.Chmod(token, 0o604); err != nil {
			t.Fatal(err)
		}
		expect("files", "bad", "admin.token")
	})
	t.Run("it changes nothing", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.run("doctor")
		entries, err := os.ReadDir(s.dir)
		if err != nil || len(entries) != 0 {
			t.Errorf("%v %v", entries, err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, "data")); err == nil {
			t.Error("a data folder was made")
		}
	})
}
