package cli

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	driver "github.com/go-sql-driver/mysql"
)

// mysqlStore is the URL of a database of the test's own, with a user of its own whose password must be shown nowhere; where
// there is no server the test is skipped, under CI=true it fails.
func mysqlStore(t *testing.T) string {
	t.Helper()
	where := os.Getenv("IDEMPO_TEST_MYSQL")
	if where == "" {
		where = "mysql://root@127.0.0.1:3306/"
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err == nil {
		t.Cleanup(func() { db.Close() })
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no MySQL: set IDEMPO_TEST_MYSQL, or start one with: docker run -p 3306:3306 -e MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 mariadb"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	name := "cli_" + strings.ToLower(rand.Text())[:20]
	for _, statement := range []string{"create database " + name, "create user " + name + " identified by 'canary/é@'", "grant all on " + name + ".* to " + name} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{"drop database " + name, "drop user " + name} {
			if _, err := db.Exec(statement); err != nil {
				t.Error(err)
			}
		}
	})
	u.Path, u.User = "/"+name, url.UserPassword(name, "canary/é@")
	return u.String()
}

func TestMySQLStore(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP44] [stores/MG2, MG3] migrate, serve, keys and doctor on MySQL; the password is shown nowhere", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		store := mysqlStore(t)
		s.file("idempo.yaml", "version: 1\nstore: {mysql: \""+store+"\"}\nsecurity: {digest_keys: [{id: d1, value: abcdefghijklmnopqrstuvwxyz012345}]}\n")
		var shown strings.Builder
		run := func(code int, want string, args ...string) {
			t.Helper()
			r := s.run(args...)
			shown.WriteString(r.out + r.err)
			if r.code != code || !strings.Contains(r.out+r.err, want) {
				t.Errorf("idempo %s: %+v, want %d and %q", strings.Join(args, " "), r, code, want)
			}
		}
		run(1, "schema   version 0, this binary knows ", "migrate", "status")
		run(78, "\n  idempo migrate up\n", "keys", "list")
		run(0, ", was 0\n", "migrate", "up")
		run(0, "nothing to do\n", "migrate", "up")
		run(0, "applied  0001_records", "migrate", "status")
		run(0, "create table if not exists `idempo_records`", "migrate", "print", "--grants", "app@10.0.0.1")
		run(0, "to 'app'@'10.0.0.1';", "migrate", "print", "--grants", "app@10.0.0.1")
		run(125, "grants: the user must match", "migrate", "print", "--grants", "a b")

		var calls atomic.Int64
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "call %d", calls.Add(1))
		}))
		defer up.Close()
		v := s.serve("--upstream", up.URL)
		front := v.front()
		for range 3 {
			r, err := http.NewRequest("POST", front+"/", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "order-81")
			resp, err := http.DefaultClient.Do(r)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			resp.Body.Close()
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		run(0, "completed", "keys", "list")
		run(0, "state        completed", "keys", "show", "--tenant", "default", "--operation", "gateway.upstream", "--id", "order-81")
		run(0, "ok   durability", "doctor")
		v.signals <- syscall.SIGTERM
		if code := <-v.code; code != 0 {
			t.Errorf("exit %d: %s", code, v.err.String())
		}
		for range 20 { // what holds nothing goes
			if r := s.run("migrate", "down", "--yes"); r.code != 0 {
				break
			}
		}
		run(1, "is not empty and its rows would be lost", "migrate", "down", "--yes")
		run(0, "schema version ", "migrate", "up")
		run(0, "store.mysql: mysql://", "config", "check", "--print")
		shown.WriteString(v.err.String())
		if text := shown.String(); strings.Contains(text, "canary") || !strings.Contains(text, ":***@") {
			t.Errorf("what was shown:\n%s", text)
		}
	})
	t.Run("doctor wants verified TLS over the network", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		r := s.run("doctor", "--store", "mysql://u:canary@db.invalid/d")
		if r.code != 1 || !strings.Contains(r.out, "add tls=true to the URL") || strings.Contains(r.out+r.err, "canary") {
			t.Errorf("%+v", r)
		}
		if r = s.run("doctor", "--store", "mysql://u:canary@db.invalid/d?tls=true"); strings.Contains(r.out, "add tls=true") {
			t.Errorf("%+v", r)
		}
	})
}
