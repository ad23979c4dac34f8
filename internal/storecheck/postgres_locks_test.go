package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresTransactions(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			hard := withParam(t, dsn, "default_transaction_isolation", "serializable", "idle_in_transaction_session_timeout", "77000", "lock_timeout", "33000")
			p := o.open(t, hard, migrated(t, dsn, postgres.Options{TxIdle: 5 * time.Second}))
			ctx := t.Context()
			setting := func(ctx context.Context, name, want string) {
				t.Helper()
				must(t, p.exec(ctx, fmt.Sprintf(`do $$ begin if current_setting('%s') <> '%s' then raise 'it is %%', current_setting('%[1]s'); end if; end $$`, name, want)))
			}
			t.Run("[stores/PG3] InTx is READ COMMITTED whatever the default; distinct keys do not abort each other", func(t *testing.T) {
				var ready, wg sync.WaitGroup
				ready.Add(4)
				for range 4 {
					wg.Go(func() {
						c := pgClaim(idempo.GuardAtomic)
						if err := p.InTx(ctx, func(ctx context.Context) error {
							a, err := p.Acquire(ctx, c)
							if err != nil {
								return err
							}
							setting(ctx, "transaction_isolation", "read committed")
							ready.Done()
							ready.Wait() // all are open at once
							_, err = p.Complete(ctx, pgResult(c, a, "x"))
							return err
						}); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			})
			t.Run("[stores/PG5] InTx limits how long it may be idle, and leaves nothing behind in the session", func(t *testing.T) {
				must(t, p.InTx(ctx, func(ctx context.Context) error {
					pgAcquire(t, ctx, p, pgClaim(idempo.GuardAtomic), idempo.VerdictRun)
					setting(ctx, "idle_in_transaction_session_timeout", "5s")
					setting(ctx, "lock_timeout", "33s") // of the work's own statements
					return nil
				}))
				must(t, p.InTx(ctx, func(ctx context.Context) error { // begun by the work itself
					setting(ctx, "idle_in_transaction_session_timeout", "5s")
					setting(ctx, "transaction_isolation", "read committed")
					return nil
				}))
				own, commit, _, err := p.begin(ctx)
				must(t, err)
				c := pgClaim(idempo.GuardAtomic)
				a := pgAcquire(t, own, p, c, idempo.VerdictRun)
				_, err = p.Complete(own, pgResult(c, a, "x"))
				must(t, err)
				setting(own, "idle_in_transaction_session_timeout", "77s")
				setting(own, "lock_timeout", "33s")
				must(t, commit())
			})
			t.Run("[stores/E10] in a caller's transaction at a higher level a lost race is code tx_conflict", func(t *testing.T) {
				c := pgClaim(idempo.GuardAtomic)
				own, _, rollback, err := p.begin(ctx) // serializable, by the default
				must(t, err)
				must(t, p.exec(own, "select 1")) // its snapshot is taken
				must(t, p.InTx(ctx, func(ctx context.Context) error {
					_, err := p.Complete(ctx, pgResult(c, pgAcquire(t, ctx, p, c, idempo.VerdictRun), "first"))
					return err
				}))
				d := pgAgain(c)
				a := pgAcquire(t, own, p, d, idempo.VerdictRun) // the old snapshot shows nothing
				if _, err = p.Complete(own, pgResult(d, a, "second")); codeOf(err) != "tx_conflict" {
					t.Errorf("Complete = %v", err)
				}
				must(t, rollback())
			})
			t.Run("[stores/E11] a transaction of another database or of a database without the store is misuse before any effect", func(t *testing.T) {
				other := o.open(t, dsn, migrated(t, dsn, postgres.Options{}))
				must(t, other.InTx(ctx, func(ctx context.Context) error {
					_, err := p.Acquire(ctx, pgClaim(idempo.GuardAtomic))
					if codeOf(err) != "misuse" {
						t.Errorf("another store's InTx: %v", err)
					}
					if _, _, err := p.Joined(ctx); codeOf(err) != "misuse" {
						t.Errorf("Joined: %v", err)
					}
					return nil
				}))
				elsewhere := o.open(t, dsn, p.o)
				gone, _, rollback, err := elsewhere.at(ctx, strings.Replace(dsn, "/test?", "/postgres?", 1))
				must(t, err)
				if _, err := p.Acquire(gone, pgClaim(idempo.GuardAtomic)); codeOf(err) != "misuse" {
					t.Errorf("another database: %v", err)
				}
				must(t, p.exec(gone, "select 1")) // it is not harmed
				must(t, rollback())
			})
			t.Run("[stores/E12] the transaction refuses to be used after InTx has returned", func(t *testing.T) {
				var kept context.Context
				must(t, p.InTx(ctx, func(ctx context.Context) error {
					kept = ctx
					return p.effect(ctx, "kept "+o.name)
				}))
				if err := p.effect(kept, "stray"); err == nil {
					t.Error("a statement after the end was accepted")
				}
				if _, err := p.Acquire(kept, pgClaim(idempo.GuardAtomic)); codeOf(err) != "tx_ended" {
					t.Errorf("Acquire after the end: %v", err)
				}
				if n := p.count(t, `select count(*) from SCHEMA.effects where what = 'stray'`); n != 0 {
					t.Errorf("%d stray writes", n)
				}
			})
			t.Run("[stores/E12] SQL that ends the transaction behind the store's back: tx_ended, no record", func(t *testing.T) {
				c := pgClaim(idempo.GuardAtomic)
				err := p.InTx(ctx, func(ctx context.Context) error {
					a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
					must(t, p.effect(ctx, "ended "+o.name))
					must(t, p.exec(ctx, "commit"))
					_, err := p.Complete(ctx, pgResult(c, a, "x"))
					return err
				})
				if codeOf(err) != "tx_ended" {
					t.Errorf("InTx = %v", err)
				}
				if n := p.count(t, `select count(*) from SCHEMA.records where idempotency_key = $1`, []byte(c.Key.ID)); n != 0 {
					t.Error("a record was written")
				}
			})
		})
	}
}

func TestPostgresConflicts(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p *pg) {
		e := pgEngine(t, p)
		ctx := t.Context()
		raise := func(ctx context.Context, state string) error {
			return p.exec(ctx, fmt.Sprintf(`do $$ begin raise exception 'injected' using errcode = '%s'; end $$`, state))
		}
		// once runs an operation whose first run meets a fault.
		once := func(id string, fault func(ctx context.Context) error) (int64, error) {
			var runs atomic.Int64
			_, err := e.Do(ctx, request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				if err := p.effect(ctx, id); err != nil {
					return idempo.Result{}, err
				}
				if runs.Add(1) == 1 {
					if err := fault(ctx); err != nil {
						return idempo.Result{}, fmt.Errorf("wrapped: %w", err)
					}
				}
				return idempo.Result{Status: 200}, nil
			})
			return runs.Load(), err
		}
		check := func(t *testing.T, id string, runs int64, err error) {
			t.Helper()
			if err != nil || runs != 2 {
				t.Errorf("%d runs, %v", runs, err)
			}
			if n := p.count(t, `select count(*) from SCHEMA.effects where what = $1`, id); n != 1 {
				t.Errorf("%d effects", n)
			}
		}
		for _, state := range []string{"40001", "40P01"} {
			t.Run("[stores/CT18, E13] "+state+" of a statement that the work returns: the whole again", func(t *testing.T) {
				runs, err := once("returned "+state, func(ctx context.Context) error { return raise(ctx, state) })
				check(t, "returned "+state, runs, err)
			})
			t.Run("[stores/CT18] "+state+" at COMMIT: the whole again", func(t *testing.T) {
				name := "at commit " + state
				must(t, p.deferred(ctx, name, state))
				runs, err := once(name, func(context.Context) error { return nil })
				check(t, name, runs, err)
			})
		}
		if p.name == "idempgx" {
			t.Run("[stores/CT18] 40001 that the work swallows: the whole again", func(t *testing.T) {
				runs, err := once("swallowed", func(ctx context.Context) error { _ = raise(ctx, "40001"); return nil })
				check(t, "swallowed", runs, err)
			})
		}
		t.Run("[stores/CT17] the server process is terminated inside the work: rolled back, the whole again", func(t *testing.T) {
			runs, err := once("terminated", func(ctx context.Context) error {
				return p.exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			})
			check(t, "terminated", runs, err)
		})
		for name, statements := range map[string][]string{"cancelled": {"select pg_cancel_backend(pg_backend_pid())", "select pg_sleep(60)"},
			"timed out": {"set local statement_timeout = '1ms'", "select pg_sleep(60)"}} {
			t.Run("[stores/CT17] a statement is "+name+" inside the work: rolled back and known, and the next call does it", func(t *testing.T) {
				runs, err := once(name, func(ctx context.Context) (err error) {
					for _, statement := range statements {
						if err = p.exec(ctx, statement); err != nil {
							break
						}
					}
					return err
				})
				if err == nil || idempo.MayHaveHappened(err) || runs != 1 {
					t.Errorf("%d runs, %v, want an error that knows that nothing happened", runs, err)
				}
				if n := p.count(t, `select count(*) from SCHEMA.effects where what = $1`, name); n != 0 {
					t.Errorf("%d effects", n)
				}
				_, err = e.Do(ctx, request("atomic", name), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
					return idempo.Result{Status: 200}, p.effect(ctx, name)
				})
				check(t, name, 2, err)
			})
		}
		t.Run("a foreign deferred constraint that refuses at COMMIT: tx_aborted, nothing remains", func(t *testing.T) {
			must(t, p.deferred(ctx, "refused", "23505"))
			runs, err := once("refused", func(context.Context) error { return nil })
			if codeOf(err) != "tx_aborted" || runs != 1 {
				t.Errorf("%d runs, %v", runs, err)
			}
			if n := p.count(t, `select count(*) from SCHEMA.effects where what = 'refused'`); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	})
}

func TestPostgresLocks(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, p *pg) {
		ctx := t.Context()
		t.Run("[stores/L9] a claim never waits for an open transaction that has the key", func(t *testing.T) {
			c := pgClaim(idempo.GuardAtomic)
			must(t, p.InTx(ctx, func(inner context.Context) error {
				a := pgAcquire(t, inner, p, c, idempo.VerdictRun)
				own, _, rollback, err := p.begin(ctx)
				must(t, err)
				b := pgAcquire(t, own, p, pgAgain(c), idempo.VerdictInProgress)
				if b.RetryAfter != time.Second {
					t.Errorf("RetryAfter %v", b.RetryAfter)
				}
				must(t, rollback())
				leased := pgAgain(c)
				leased.Guard = idempo.GuardLeased
				pgAcquire(t, ctx, p, leased, idempo.VerdictInProgress)
				_, err = p.Complete(inner, pgResult(c, a, "x"))
				return err
			}))
		})
		t.Run("[stores/CT17, PG5] a row that somebody has locked: in progress, or unavailable, after a second", func(t *testing.T) {
			c := pgClaim(idempo.GuardLeased)
			pgAcquire(t, ctx, p, c, idempo.VerdictRun)
			d := pgClaim(idempo.GuardLeased)
			a := pgAcquire(t, ctx, p, d, idempo.VerdictRun)
			_, err := p.Release(ctx, idempo.ReleaseParams{Key: c.Key, Token: c.Token, To: idempo.StateFailed, Retention: time.Hour})
			must(t, err)
			tx, err := p.db.BeginTx(ctx, nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(ctx, fmt.Sprintf(`update "%s".records set note = note`, p.o.Schema))
			must(t, err)
			pgAcquire(t, ctx, p, pgAgain(c), idempo.VerdictInProgress)
			_, err = p.Complete(ctx, pgResult(d, a, "x"))
			if e, ok := pgError(err); !ok || e.Code != "unavailable" || e.Unknown || !strings.Contains(err.Error(), "55P03") {
				t.Errorf("Complete = %v", err)
			}
			must(t, tx.Rollback())
			_, err = p.Complete(ctx, pgResult(d, a, "x"))
			must(t, err)
			pgAcquire(t, ctx, p, pgAgain(c), idempo.VerdictRun)
		})
		t.Run("[stores/T7] a sweep passes locked rows over", func(t *testing.T) {
			var held idempo.AcquireParams
			for i := range 3 {
				c := pgClaim(idempo.GuardLeased)
				c.Now = time.Now().Add(-3 * time.Hour)
				a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
				r := pgResult(c, a, "x")
				r.Now = c.Now
				_, err := p.Complete(ctx, r)
				must(t, err)
				if i == 0 {
					held = c
				}
			}
			tx, err := p.db.BeginTx(ctx, nil)
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(ctx, fmt.Sprintf(`select 1 from "%s".records where idempotency_key = $1 for update`, p.o.Schema), []byte(held.Key.ID))
			must(t, err)
			if n, err := p.Sweep(ctx, 100); n != 2 || err != nil {
				t.Errorf("%d swept, %v", n, err)
			}
			must(t, tx.Rollback())
			if n, err := p.Sweep(ctx, 100); n != 1 || err != nil {
				t.Errorf("%d swept, %v", n, err)
			}
		})
		t.Run("[stores/L10] no connection in time: unavailable, nothing sent", func(t *testing.T) {
			p.full(t, func() {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, err := p.Acquire(short, pgClaim(idempo.GuardLeased))
				if e, ok := pgError(err); !ok || e.Code != "unavailable" || e.Unknown || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
			})
		})
	})
}

// unlocked is a port whose advisory locks are always free: only the primary key is left to decide.
type unlocked struct{ postgres.Port }

func strip(statements []postgres.Statement) []postgres.Statement {
	out := make([]postgres.Statement, len(statements))
	for i, st := range statements {
		out[i] = st
		out[i].SQL = strings.ReplaceAll(st.SQL, "pg_try_advisory_xact_lock(", "idempo_free(")
	}
	return out
}

func (u unlocked) Run(ctx context.Context, tx postgres.PortTx, st ...postgres.Statement) error {
	return u.Port.Run(ctx, tx, strip(st)...)
}

func (u unlocked) Begin(ctx context.Context, st ...postgres.Statement) (postgres.PortTx, error) {
	return u.Port.Begin(ctx, strip(st)...)
}

func TestPostgresWithoutLocks(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	o := migrated(t, dsn, postgres.Options{})
	setup := openDB(t, "pgx", dsn)
	_, err := setup.ExecContext(t.Context(), fmt.Sprintf(`create function "%s".idempo_free(bigint) returns boolean language sql as 'select true'`, o.Schema))
	must(t, err)
	db := openDB(t, "pgx", withParam(t, dsn, "search_path", o.Schema))
	s, err := postgres.Over(t.Context(), unlocked{postgres.NewPort(db)}, o)
	must(t, err)
	p := &pg{Store: s, name: "unlocked", o: o, db: setup, exec: func(ctx context.Context, query string, args ...any) error {
		_, err := postgres.Tx(ctx).ExecContext(ctx, query, args...)
		return err
	}}
	t.Run("[stores/PG2] the primary key decides without any lock: many runs at once, one effect", func(t *testing.T) {
		for _, many := range []bool{false, true} {
			c := pgClaim(idempo.GuardAtomic)
			if many {
				c.Aliases = []string{pgDigest(pgIDs.Add(1))}
			}
			const n = 8
			var ready, wg sync.WaitGroup
			var ran, won, lost atomic.Int64
			ready.Add(n)
			for i := range n {
				wg.Go(func() {
					mine := pgAgain(c)
					if many && i%2 == 1 { // one rotation step apart
						mine.Key.ID, mine.Aliases = c.Aliases[0], []string{c.Key.ID}
					}
					err := p.InTx(t.Context(), func(ctx context.Context) error {
						a := pgAcquire(t, ctx, p, mine, idempo.VerdictRun)
						ran.Add(1)
						ready.Done()
						ready.Wait()
						must(t, p.effect(ctx, fmt.Sprintf("%s %d", c.Key.ID[:8], i)))
						_, err := p.Complete(ctx, pgResult(mine, a, "x"))
						return err
					})
					switch codeOf(err) {
					case "":
						won.Add(1)
					case "lease_lost", "tx_conflict": // the latter where the winner's commit took longer than a lock wait may
						lost.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if ran.Load() != n || won.Load() != 1 || lost.Load() != n-1 {
				t.Errorf("%d ran, %d won, %d lost", ran.Load(), won.Load(), lost.Load())
			}
			if e := p.count(t, `select count(*) from SCHEMA.effects where what like $1`, c.Key.ID[:8]+"%"); e != 1 {
				t.Errorf("%d effects", e)
			}
		}
	})
}
