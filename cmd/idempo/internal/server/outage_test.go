package server_test

import (
	"crypto/rand"
	"database/sql"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// postgresURL is a database of the tests; where there is none the test is skipped, under CI=true it fails.
func postgresURL(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	db, err := sql.Open("pgx", dsn)
	if err == nil {
		defer db.Close()
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return dsn
}

// schemaOf is a schema of the test's own, dropped at its end.
func schemaOf(t *testing.T, dsn string) string {
	t.Helper()
	name := "cmd_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close()
		if _, err := db.Exec(`drop schema if exists "` + name + `" cascade`); err != nil {
			t.Error(err)
		}
	})
	return name
}

// wire is a connection to a database that can be cut and mended.
type wire struct {
	l     net.Listener
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { w.carry(c, target) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut(true)
		wg.Wait()
	})
	return w
}

func (w *wire) carry(c net.Conn, target string) {
	defer c.Close()
	d, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer d.Close()
	w.mu.Lock()
	down := w.down
	w.conns[c], w.conns[d] = true, true
	w.mu.Unlock()
	if down {
		return
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(d, c)
		d.Close()
		close(done)
	}()
	_, _ = io.Copy(c, d)
	c.Close()
	<-done
}

// cut ends every connection, and new ones at once, until it is called with false.
func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for c := range w.conns {
		if down {
			c.Close()
		}
		delete(w.conns, c)
	}
}

func TestStoreOutage(t *testing.T) {
	t.Parallel()
	dsn, err := url.Parse(postgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	schema, u := schemaOf(t, dsn.String()), newUpstream(t)
	w := newWire(t, dsn.Host)
	through := *dsn
	through.Host = w.l.Addr().String()
	file := func(more string) string {
		return "store: {postgres: \"" + through.String() + "\", schema: " + schema + ", migrate: auto}\n" +
			"security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef}]}\n" + more
	}
	s := running(t, settings(t, t.TempDir(), file(""), behind(u)), server.Options{})
	strict := running(t, settings(t, t.TempDir(), file("ready: {requires_store: true}\n"), behind(u)), server.Options{})
	front, back := "http://"+s.Addr().String(), "http://"+s.AdminAddr().String()
	if a := call(t, "POST", front+"/", "k-1", "{}"); a.status != 201 {
		t.Fatalf("%+v", a)
	}
	if a := call(t, "POST", "http://"+strict.Addr().String()+"/", "k-1", "{}"); a.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("two gateways on one store: %+v", a)
	}
	w.cut(true)
	ready := func(s *server.Server, word string) answer {
		return eventually(t, func() (answer, bool) {
			a, err := try("GET", "http://"+s.AdminAddr().String()+"/readyz", "", "")
			return a, err == nil && strings.Contains(a.body, `"store":"`+word+`"`)
		})
	}
	t.Run("[operations/OP42] [http/P25] store down: ready all the same, unless the configuration demands the store", func(t *testing.T) {
		if a := ready(s, "down"); a.status != 200 {
			t.Errorf("%+v", a)
		}
		if a := ready(strict, "down"); a.status != 503 || !strings.Contains(a.body, `"ready":false`) {
			t.Errorf("%+v", a)
		}
	})
	t.Run("[security/SEC70] keyed requests get 503 and do not run, unguarded ones flow", func(t *testing.T) {
		before := u.calls.Load()
		if a := call(t, "POST", front+"/", "k-2", "{}"); a.status != 503 || !strings.Contains(a.body, `"store_unavailable"`) || a.header.Get("Retry-After") == "" {
			t.Errorf("%+v", a)
		}
		if u.calls.Load() != before {
			t.Error("it ran")
		}
		if a := call(t, "POST", front+"/", "", "{}"); a.status != 201 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("[operations/M5] store down: a scrape answers, and asks the store nothing", func(t *testing.T) {
		count := func() string {
			for line := range strings.Lines(call(t, "GET", back+"/metrics", "", "").body) {
				if strings.HasPrefix(line, `idempo_store_seconds_count{op="lookup"}`) {
					return line
				}
			}
			return ""
		}
		first := count()
		for range 20 {
			if again := count(); again != first {
				t.Fatalf("%q became %q by scraping", first, again)
			}
		}
		if m := call(t, "GET", back+"/metrics", "", "").body; !strings.Contains(m, `idempo_store_errors_total{class="unavailable",op="acquire"}`) && !strings.Contains(m, `class="timeout",op="acquire"`) {
			t.Error("the outage is not counted")
		}
	})
	w.cut(false)
	t.Run("[operations/OP42] and up again", func(t *testing.T) {
		if a := ready(s, "up"); a.status != 200 {
			t.Errorf("%+v", a)
		}
		if a := ready(strict, "up"); a.status != 200 {
			t.Errorf("%+v", a)
		}
		if a := call(t, "POST", front+"/", "k-2", "{}"); a.status != 201 {
			t.Errorf("%+v", a)
		}
	})
}
