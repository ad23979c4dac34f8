package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresSilentOwner(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			p := o.open(t, dsn, migrated(t, dsn, postgres.Options{TxIdle: time.Second}))
			t.Run("[stores/CT16] an owner that says nothing any more loses its transaction, and the key is free", func(t *testing.T) {
				c := pgClaim(idempo.GuardAtomic)
				silent, went, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
				go func() {
					over <- p.InTx(t.Context(), func(ctx context.Context) error {
						a, err := p.Acquire(ctx, c)
						if err != nil {
							return err
						}
						err = p.effect(ctx, "silent")
						close(silent)
						<-went // a black hole, as the server sees it
						if err == nil {
							_, err = p.Complete(ctx, pgResult(c, a, "late"))
						}
						return err
					})
				}()
				<-silent
				pgAcquireTx(t, p, pgAgain(c), idempo.VerdictInProgress)
				next := pgAgain(c)
				next.Wait = time.Minute // until the server has ended the silent one
				must(t, p.InTx(t.Context(), func(ctx context.Context) error {
					a := pgAcquire(t, ctx, p, next, idempo.VerdictRun)
					_, err := p.Complete(ctx, pgResult(next, a, "next"))
					return err
				}))
				close(went)
				if err := <-over; err == nil || codeOf(err) != "tx_conflict" && codeOf(err) != "unavailable" {
					t.Errorf("the silent owner: %v", err)
				}
				if n := p.count(t, `select count(*) from SCHEMA.effects`); n != 0 {
					t.Errorf("%d effects of the silent owner", n)
				}
			})
		})
	}
}

// pgAcquireTx acquires in a transaction that is then given up.
func pgAcquireTx(t testing.TB, p *pg, c idempo.AcquireParams, want idempo.Verdict) {
	t.Helper()
	gaveUp := errors.New("given up")
	if err := p.InTx(t.Context(), func(ctx context.Context) error {
		pgAcquire(t, ctx, p, c, want)
		return gaveUp
	}); !errors.Is(err, gaveUp) {
		t.Fatal(err)
	}
}

// calls counts the store calls of an engine.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) Observe(_ context.Context, e idempo.Event) {
	if e.Kind == "store" {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n == nil {
			c.n = map[string]int{}
		}
		c.n[e.Op]++
	}
}

// take returns how many claims were sent, or tried to, since it was last called.
func (c *calls) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n["acquire"]
	delete(c.n, "acquire")
	return n
}

// trouble is a server of the test's own, with a store on it that logs in as an ordinary role.
type trouble struct {
	p     *pg
	kind  string
	e     *idempo.Engine
	calls calls
	ran   atomic.Int64
	admin *sql.DB // one connection of the superuser, whose place nobody takes
}

// crowd is how many callers meet a fault at once.
const crowd = 20

// refused has a crowd call at once and wants every one refused, before its work, by a bounded number of statements.
func (tr *trouble) refused(t *testing.T, what, say string) {
	t.Helper()
	tr.calls.take()
	var wg sync.WaitGroup
	for i := range crowd {
		op := []string{"leased", "atomic"}[i%2]
		wg.Go(func() {
			_, err := tr.e.Do(t.Context(), request(op, fmt.Sprint(what, tr.kind, i)), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				tr.ran.Add(1)
				return idempo.Result{}, nil
			})
			if !errors.Is(err, idempo.ErrUnavailable) || !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v, want unavailable saying %q", op, err, say)
			}
		})
	}
	wg.Wait()
	if n := tr.ran.Load(); n != 0 {
		t.Errorf("the work ran %d times", n)
	}
	if n := tr.calls.take(); n > 4*crowd { // a claim whose answer is open is sent four times at most
		t.Errorf("%d claims for %d callers", n, crowd)
	}
}

// do runs a statement of the superuser.
func (tr *trouble) do(t *testing.T, statement string) {
	t.Helper()
	_, err := tr.admin.ExecContext(t.Context(), strings.ReplaceAll(statement, "SCHEMA", `"`+tr.p.o.Schema+`"`))
	must(t, err)
}

// number asks the superuser for one number until it is as want says.
func (tr *trouble) number(t *testing.T, what, query string, want func(n int) bool) {
	t.Helper()
	for {
		var n int
		must(t, tr.admin.QueryRowContext(t.Context(), query).Scan(&n))
		if want(n) {
			return
		}
		if pauseTest(t) {
			t.Fatalf("%s: still %d", what, n)
		}
	}
}

// Places of the server in TestPostgresTrouble.
const (
	places   = 64
	reserved = 4 // of the superuser
	others   = `select count(*) from pg_stat_activity where backend_type = 'client backend' and usename = 'app'`
	waiting  = `select count(*) from pg_locks where not granted`
)

func TestPostgresTrouble(t *testing.T) {
	t.Parallel()
	s := pgserver.Start(t, fmt.Sprint("max_connections=", places), fmt.Sprint("superuser_reserved_connections=", reserved))
	admin := openDB(t, "pgx", s.DSN())
	admin.SetMaxOpenConns(1)
	_, err := admin.ExecContext(t.Context(), `create role app login; grant all on database postgres to app`)
	must(t, err)
	dsn := strings.Replace(s.DSN(), "postgres@", "app@", 1)
	o := migrated(t, dsn, postgres.Options{})
	for _, kind := range pgOpeners() {
		t.Run(kind.name, func(t *testing.T) { // one after the other: each wants the server for itself
			tr := &trouble{p: kind.open(t, dsn, o), kind: kind.name, admin: admin}
			tr.e = pgEngineWith(t, tr.p, idempo.Config{Observer: &tr.calls})
			tr.cases(t, dsn)
		})
	}
}

func (tr *trouble) cases(t *testing.T, dsn string) {
	t.Run("[stores/CT23] a DDL lock on the records", func(t *testing.T) {
		tx, err := tr.admin.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), fmt.Sprintf(`lock table "%s".records in access exclusive mode`, tr.p.o.Schema))
		must(t, err)
		tr.refused(t, "ddl", "")
		// While the lock is still held, what was given up leaves the queue; one claim to be given back is still tried.
		for n := 2; n > 1; {
			must(t, tx.QueryRowContext(t.Context(), waiting).Scan(&n))
			if pauseTest(t) {
				t.Fatalf("%d statements are still waiting", n)
			}
		}
		must(t, tx.Rollback())
		tr.well(t)
	})
	t.Run("[stores/CT23] too many connections: every place of the server is taken", func(t *testing.T) {
		var hog []*sql.Conn
		t.Cleanup(func() {
			for _, c := range hog {
				_ = c.Close()
			}
		})
		db := openDB(t, "pgx", withParam(t, dsn, "connect_timeout", "5")) // a full server may not answer at all
		db.SetMaxIdleConns(0)                                             // a connection that is given back would be a place
		tr.p.leave()
		tr.do(t, `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'`) // those of this test
		tr.number(t, "connections that leave", others, func(n int) bool { return n == 0 })
		for len(hog) < places-reserved-1 { // the superuser's own connection has one
			if c, err := db.Conn(t.Context()); err == nil {
				hog = append(hog, c)
			} else if pauseTest(t) { // a connection that left gives its place back a little later
				t.Fatal(err)
			}
		}
		if c, err := db.Conn(t.Context()); err == nil {
			_ = c.Close()
			t.Fatal("void run: the server has a place left")
		}
		tr.refused(t, "many", "")
		for _, c := range hog { // the places were taken all the time
			must(t, c.PingContext(t.Context()))
		}
		tr.number(t, "connections", others, func(n int) bool { return n == len(hog) })
		for _, c := range hog {
			must(t, c.Close())
		}
		tr.number(t, "connections that leave", others, func(n int) bool { return n == 0 })
		tr.well(t)
	})
	t.Run("[stores/CT23] the schema changed under a running process", func(t *testing.T) {
		tr.do(t, `alter table SCHEMA.records rename column due_at to due`)
		tr.refused(t, "schema", "idempo migrate up")
		tr.do(t, `alter table SCHEMA.records rename column due to due_at`)
		tr.well(t)
	})
	t.Run("[stores/CT23] the store became read-only", func(t *testing.T) {
		tr.do(t, `alter system set default_transaction_read_only = on`)
		tr.do(t, `select pg_reload_conf()`)
		readOnly(t, dsn, "on")
		refusedReadOnly(t, tr.e, tr.kind)
		tr.do(t, `set default_transaction_read_only = off`)
		tr.do(t, `alter system reset default_transaction_read_only`)
		tr.do(t, `select pg_reload_conf()`)
		readOnly(t, dsn, "off")
		tr.well(t)
	})
}

// well wants the store to work, with the same process and no statement left waiting.
func (tr *trouble) well(t *testing.T) {
	t.Helper()
	tr.number(t, "statements that wait", waiting, func(n int) bool { return n == 0 })
	for _, op := range []string{"leased", "atomic"} {
		// A connection that was lost meanwhile may cost one call.
		var err error
		for range 3 {
			if _, err = tr.e.Do(t.Context(), request(op, "after "+t.Name()), nothing); err == nil {
				break
			}
		}
		must(t, err)
	}
}

// readOnly waits until new transactions of the server are, or are not, read-only.
func readOnly(t *testing.T, dsn, want string) {
	t.Helper()
	for {
		db := openDB(t, "pgx", dsn)
		var is string
		must(t, db.QueryRowContext(t.Context(), "show default_transaction_read_only").Scan(&is))
		must(t, db.Close())
		if is == want {
			return
		}
		if pauseTest(t) {
			t.Fatal("the setting does not arrive")
		}
	}
}

// refusedReadOnly checks that claims are refused with what to do, and the work of a leased one is not run.
func refusedReadOnly(t *testing.T, e *idempo.Engine, name string) {
	t.Helper()
	ran := false
	_, err := e.Do(t.Context(), request("leased", "read-only "+name), func(context.Context, *idempo.Claim) (idempo.Result, error) {
		ran = true
		return idempo.Result{}, nil
	})
	if !errors.Is(err, idempo.ErrUnavailable) || !strings.Contains(err.Error(), "target_session_attrs=read-write") || ran {
		t.Errorf("leased: %v, ran %v", err, ran)
	}
	// lib/pq begins a transaction READ WRITE by itself, and so may write; then the record is there.
	if _, err = e.Do(t.Context(), request("atomic", "read-only "+name), nothing); err == nil {
		if b, err := e.Do(t.Context(), request("atomic", "read-only "+name), nothing); err != nil || b.Verdict != idempo.VerdictReplay {
			t.Errorf("atomic: %q %v", b.Verdict, err)
		}
	} else if !errors.Is(err, idempo.ErrUnavailable) {
		t.Errorf("atomic: %v", err)
	}
}
