package storecheck

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/storetest"
)

// startPooler starts a PgBouncer in transaction mode before the server of dsn, with two server connections, and returns
// the way through it.
func startPooler(t testing.TB, dsn string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if found, _ := filepath.Glob("/usr/sbin/pgbouncer"); len(found) == 1 {
			program = found[0]
		} else if os.Getenv("CI") == "true" {
			t.Fatal("no pgbouncer")
		} else {
			t.Skip("no pgbouncer: install it (Debian: apt-get install pgbouncer)")
		}
	}
	u, err := url.Parse(dsn)
	must(t, err)
	dir, err := os.MkdirTemp("", "idempo-pooler")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	conf := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = %s/log
`, u.Hostname(), u.Port(), port, dir)
	file := filepath.Join(dir, "conf")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(conf, "* = host", "* = user="+u.User.Username()+" host")), 0o644))
	must(t, os.Chmod(dir, 0o755))
	cmd := pgserver.AsPostgres(t, exec.Command(program, file), dir)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	through := u.String()
	for {
		db := openDB(t, "postgres", through+"&binary_parameters=yes")
		if db.PingContext(t.Context()) == nil {
			return through
		}
		select {
		case <-t.Context().Done():
			t.Fatal("pgbouncer does not answer")
		case <-time.After(20 * time.Millisecond): // it is starting
		}
	}
}

func TestPostgresPooler(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	native, sql := pgOpeners()[0], pgOpeners()[2]
	ways := []struct {
		name string
		o    pgOpener
		add  []string
	}{
		{"pgx exec", native, []string{"default_query_exec_mode", "exec"}},
		{"pgx cache_describe", native, []string{"default_query_exec_mode", "cache_describe"}},
		{"pgx simple", native, []string{"default_query_exec_mode", "simple_protocol"}},
		{"lib/pq binary_parameters", sql, []string{"binary_parameters", "yes"}},
	}
	for _, w := range ways {
		t.Run("[stores/PG4] kit through PgBouncer in transaction mode: "+w.name, func(t *testing.T) {
			t.Parallel()
			through := withParam(t, startPooler(t, dsn), w.add...)
			storetest.Run(t, func(t testing.TB) storetest.Subject { return w.o.subjectOn(t, dsn, through) },
				kitCaps(t))
		})
	}
	t.Run("[stores/PG4] 100 clients on two server connections: every one is served, nothing outlives its transaction", func(t *testing.T) {
		t.Parallel()
		pooler := startPooler(t, dsn)
		p := native.open(t, withParam(t, pooler, "default_query_exec_mode", "exec", "pool_max_conns", "100"), migrated(t, dsn, postgres.Options{}))
		e := pgEngineWith(t, p, idempo.Config{AcquireTimeout: time.Minute}) // two connections for all, on whatever machine
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if _, err := e.Do(t.Context(), request("leased", fmt.Sprint("c", i)), nothing); err != nil {
					t.Error(err)
				}
				if _, err := e.Do(t.Context(), request("atomic", fmt.Sprint("c", i)), nothing); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		db := openDB(t, "postgres", pooler+"&binary_parameters=yes")
		for _, name := range []string{"lock_timeout", "idle_in_transaction_session_timeout"} {
			for range 10 {
				var v string
				must(t, db.QueryRowContext(t.Context(), "show "+name).Scan(&v))
				if v != "0" {
					t.Errorf("%s is %s in a pooled session", name, v)
				}
			}
		}
	})
	t.Run("[stores/PG4] prepared statements that the pooler loses are unavailable, and the hint names the setting", func(t *testing.T) {
		t.Parallel()
		through := startPooler(t, dsn)
		p := native.open(t, dsn, migrated(t, dsn, postgres.Options{}))
		pool := openPool(t, withParam(t, through, "pool_max_conns", "8"))
		var hint string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s, err := idempgx.New(t.Context(), pool, p.o)
				for range 20 {
					if err == nil {
						_, err = s.Acquire(t.Context(), pgClaim(idempo.GuardLeased))
					}
					if err != nil {
						mu.Lock()
						hint = err.Error()
						mu.Unlock()
						return
					}
				}
			})
		}
		wg.Wait()
		if !strings.Contains(hint, "default_query_exec_mode=exec") {
			t.Errorf("%q", hint)
		}
	})
}

func nothing(context.Context, *idempo.Claim) (idempo.Result, error) {
	return idempo.Result{Status: 204}, nil
}
