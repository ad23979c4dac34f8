package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
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

func TestPostgresTrouble(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, false, "max_connections=12", "superuser_reserved_connections=2")
	o := migrated(t, s.dsn, postgres.Options{})
	admin := openDB(t, "pgx", s.dsn)
	admin.SetMaxOpenConns(1)
	must(t, admin.Ping())
	for _, kind := range pgOpeners() {
		p := kind.open(t, s.dsn, o)
		e := pgEngine(t, p)
		var ran atomic.Int64
		refused := func(t *testing.T, what, say string) {
			t.Helper()
			for _, op := range []string{"leased", "atomic"} {
				_, err := e.Do(t.Context(), request(op, what+kind.name), func(context.Context, *idempo.Claim) (idempo.Result, error) {
					ran.Add(1)
					return idempo.Result{}, nil
				})
				if !errors.Is(err, idempo.ErrUnavailable) || !strings.Contains(err.Error(), say) {
					t.Errorf("%s: %v, want unavailable saying %q", op, err, say)
				}
			}
			if ran.Load() != 0 {
				t.Error("the work ran")
			}
		}
		do := func(t *testing.T, statement string) {
			t.Helper()
			_, err := admin.ExecContext(t.Context(), strings.ReplaceAll(statement, "SCHEMA", `"`+o.Schema+`"`))
			must(t, err)
		}
		t.Run("[stores/CT23] "+kind.name+": a DDL lock on the records", func(t *testing.T) {
			tx, err := admin.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.ExecContext(t.Context(), fmt.Sprintf(`lock table "%s".records in access exclusive mode`, o.Schema))
			must(t, err)
			refused(t, "ddl", "")
			var waiting int
			for try := 0; try == 0 || waiting > 1; try++ { // what was given up leaves the queue; giving a claim back is still tried
				must(t, tx.QueryRowContext(t.Context(), `select count(*) from pg_locks where not granted`).Scan(&waiting))
				if pauseTest(t) {
					t.Fatalf("%d statements are still waiting", waiting)
				}
			}
			must(t, tx.Rollback())
		})
		t.Run("[stores/CT23] "+kind.name+": the schema changed under a running process", func(t *testing.T) {
			do(t, `alter table SCHEMA.records rename column due_at to due`)
			refused(t, "schema", "idempo migrate up")
			do(t, `alter table SCHEMA.records rename column due to due_at`)
		})
		t.Run("[stores/CT23] "+kind.name+": the store became read-only", func(t *testing.T) {
			do(t, `alter system set default_transaction_read_only = on`)
			do(t, `select pg_reload_conf()`)
			readOnly(t, s.dsn, "on")
			refusedReadOnly(t, e, kind.name)
			do(t, `set default_transaction_read_only = off`)
			do(t, `alter system reset default_transaction_read_only`)
			do(t, `select pg_reload_conf()`)
			readOnly(t, s.dsn, "off")
		})
		t.Run("[stores/CT23] "+kind.name+": afterwards all is well", func(t *testing.T) {
			_, err := pgEngine(t, p).Do(t.Context(), request("leased", "after "+kind.name), nothing)
			must(t, err)
		})
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
