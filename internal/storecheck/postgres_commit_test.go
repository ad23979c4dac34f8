package storecheck

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/postgres"
)

// pgEngine is an engine over p with an atomic and a leased operation.
func pgEngine(t testing.TB, p *pg) *idempo.Engine {
	t.Helper()
	return pgEngineWith(t, p, idempo.Config{})
}

// pgEngineWith is pgEngine with limits of the test's own.
func pgEngineWith(t testing.TB, p *pg, c idempo.Config) *idempo.Engine {
	t.Helper()
	c.DigestKeys = []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}}
	c.Operations = []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic}, {Name: "leased", Guard: idempo.GuardLeased}}
	e, err := idempo.New(p.Store, c)
	must(t, err)
	return e
}

func request(operation, id string) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: "acct", Operation: operation, ID: id}, Input: [][]byte{[]byte("in")}}
}

// protocols are the ways in which a store speaks to its server, by opener and parameter of the DSN: pgx prepares and sends
// many statements in one flight, stdlib prepares, pq sends COMMIT as a simple query.
func protocols() map[string]func(t testing.TB, dsn string, o postgres.Options) *pg {
	all := map[string]func(t testing.TB, dsn string, o postgres.Options) *pg{}
	for _, o := range pgOpeners() {
		all[o.name] = o.open
	}
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		all["pgx "+mode] = func(t testing.TB, dsn string, o postgres.Options) *pg {
			return openPgx(t, withParam(t, dsn, "default_query_exec_mode", mode), o)
		}
	}
	return all
}

// throughWire runs f on stores that speak every protocol, each behind a proxy.
func throughWire(t *testing.T, f func(t *testing.T, p *pg, x *crashtest.Wire)) {
	dsn := postgresDSN(t)
	for name, open := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := migrated(t, dsn, postgres.Options{})
			x, behind := newWire(t, dsn)
			p := open(t, behind, opts)
			p.db = openDB(t, "pgx", dsn) // who looks is not in the way of the fault
			f(t, p, x)
		})
	}
}

func TestPostgresCommitInDoubt(t *testing.T) {
	t.Parallel()
	throughWire(t, func(t *testing.T, p *pg, x *crashtest.Wire) {
		e := pgEngineWith(t, p, idempo.Config{AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second})
		// once does an operation whose COMMIT meets f in its first run.
		once := func(t *testing.T, id string, f crashtest.Fault, during func(links int)) (idempo.Begun, int64, error) {
			if _, err := e.Do(t.Context(), request("atomic", id+" before"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				return idempo.Result{}, nil
			}); err != nil { // so that the connection knows the statements, and the next write is the commit
				t.Fatal(err)
			}
			var runs atomic.Int64
			var wg sync.WaitGroup
			b, err := e.Do(t.Context(), request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				n := runs.Add(1)
				if err := p.effect(ctx, id); err != nil {
					return idempo.Result{}, err
				}
				if n == 1 {
					x.Arm(crashtest.Trap{Match: crashtest.IsCommit, Fault: f, Cut: true})
					links := x.Links()
					wg.Go(func() { during(links) })
				}
				return idempo.Result{Status: 200, Body: fmt.Appendf(nil, "run %d", n)}, nil
			})
			wg.Wait()
			return b, runs.Load(), err
		}
		effects := func(t *testing.T, id string, want int) {
			t.Helper()
			if n := p.count(t, `select count(*) from SCHEMA.effects where what = $1`, id); n != want {
				t.Errorf("%d effects, want %d", n, want)
			}
		}
		t.Run("[stores/CT12] COMMIT done, its answer lost: recognised as done, not run again", func(t *testing.T) {
			b, runs, err := once(t, "ct12", crashtest.KeepAnswer, func(int) {})
			if err != nil || b.Verdict != idempo.VerdictRun || runs != 1 || string(b.Record.Result.Body) != "run 1" {
				t.Errorf("%q %v, %d runs, %q", b.Verdict, err, runs, b.Record.Result.Body)
			}
			effects(t, "ct12", 1)
		})
		for name, f := range map[string]crashtest.Fault{"before COMMIT reaches the server": crashtest.LoseRequest, "inside the COMMIT": crashtest.CutInside} {
			t.Run("[stores/CT11] reset "+name+": nothing of the first run remains", func(t *testing.T) {
				b, runs, err := once(t, name, f, func(int) {})
				if err != nil || b.Verdict != idempo.VerdictRun || runs != 2 || string(b.Record.Result.Body) != "run 2" {
					t.Errorf("%q %v, %d runs, %q", b.Verdict, err, runs, b.Record.Result.Body)
				}
				effects(t, name, 1)
			})
		}
		t.Run("[stores/CT13] COMMIT delayed on the wire: settling waits for the decision, no second run meanwhile", func(t *testing.T) {
			b, runs, err := once(t, "ct13", crashtest.Delay, func(links int) {
				<-x.Sprung()
				// The settling claim asks on a connection of its own, and finds the key in use by the open transaction.
				for x.Links() == links {
					if pauseTest(t) {
						break
					}
				}
				x.Release()
			})
			if err != nil || b.Verdict != idempo.VerdictRun || runs != 1 || string(b.Record.Result.Body) != "run 1" {
				t.Errorf("%q %v, %d runs, %q", b.Verdict, err, runs, b.Record.Result.Body)
			}
			effects(t, "ct13", 1)
		})
	})
}

func TestPostgresUnreachable(t *testing.T) {
	t.Parallel()
	throughWire(t, func(t *testing.T, p *pg, x *crashtest.Wire) {
		t.Run("[stores/CT14] COMMIT done, no answer, and nobody reaches the server: unavailable and unknown; the retry replays", func(t *testing.T) {
			e := pgEngineWith(t, p, idempo.Config{CompleteBudget: 300 * time.Millisecond, AcquireTimeout: 20 * time.Second})
			_, err := e.Do(t.Context(), request("atomic", "before"), nothing)
			must(t, err)
			var runs atomic.Int64
			work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				runs.Add(1)
				err := p.effect(ctx, "ct14")
				x.Arm(crashtest.Trap{Match: crashtest.IsCommit, Fault: crashtest.KeepAnswer, Cut: true, Down: true})
				return idempo.Result{Status: 200, Body: []byte("one")}, err
			}
			_, err = e.Do(t.Context(), request("atomic", "ct14"), work)
			if f, ok := pgError(err); !ok || !errors.Is(err, idempo.ErrUnavailable) || !f.Unknown || !idempo.MayHaveHappened(err) {
				t.Errorf("Do = %v", err)
			}
			x.Refuse(false)
			b, err := e.Do(t.Context(), request("atomic", "ct14"), work)
			if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != "one" || runs.Load() != 1 {
				t.Errorf("%q %v, %d runs", b.Verdict, err, runs.Load())
			}
			if n := p.count(t, `select count(*) from SCHEMA.effects where what = 'ct14'`); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	})
}

// pauseTest yields until the test's end; true: it is over.
func pauseTest(t testing.TB) bool {
	runtime.Gosched()
	select {
	case <-t.Context().Done():
		return true
	default:
		return false
	}
}

func TestPostgresCommitUnknown(t *testing.T) {
	t.Parallel()
	throughWire(t, func(t *testing.T, p *pg, x *crashtest.Wire) {
		inTx := func(t *testing.T, f crashtest.Fault, match func(string) bool) (idempo.AcquireParams, error) {
			w := pgClaim(idempo.GuardAtomic)
			must(t, p.InTx(t.Context(), func(ctx context.Context) error {
				_, err := p.Complete(ctx, pgResult(w, pgAcquire(t, ctx, p, w, idempo.VerdictRun), "before"))
				return err
			}))
			c := pgClaim(idempo.GuardAtomic)
			return c, p.InTx(t.Context(), func(ctx context.Context) error {
				a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
				must(t, p.effect(ctx, c.Key.ID[:8]))
				_, err := p.Complete(ctx, pgResult(c, a, "body"))
				x.Arm(crashtest.Trap{Match: match, Fault: f, Cut: true})
				return err
			})
		}
		t.Run("InTx says Unknown exactly where COMMIT was sent and not answered", func(t *testing.T) {
			_, err := inTx(t, crashtest.KeepAnswer, crashtest.IsCommit)
			if e, ok := pgError(err); !ok || e.Code != "unavailable" || !e.Unknown {
				t.Errorf("answer lost: %v", err)
			}
			_, err = inTx(t, crashtest.LoseRequest, crashtest.IsCommit) // the client cannot know better
			if e, ok := pgError(err); !ok || e.Code != "unavailable" || !e.Unknown {
				t.Errorf("cut before: %v", err)
			}
			if p.name == "idempgx" {
				return // record and COMMIT are one write
			}
			_, err = inTx(t, crashtest.LoseRequest, anyStatement) // the record's own statement, before COMMIT
			if e, ok := pgError(err); !ok || e.Code != "unavailable" || e.Unknown {
				t.Errorf("cut before the record: %v", err)
			}
		})
		t.Run("[stores/CT15] the answer of an autocommit claim, renewal, completion, release is lost: the same call again is harmless", func(t *testing.T) {
			c := pgClaim(idempo.GuardLeased)
			var a idempo.Acquired
			again := func(what string, call func() error) {
				t.Helper()
				x.Arm(crashtest.Trap{Match: anyStatement, Fault: crashtest.KeepAnswer, Cut: true})
				err := call()
				<-x.Sprung()
				if e, ok := pgError(err); err != nil && (!ok || e.Code != "unavailable" || !e.Unknown) {
					t.Fatalf("%s: %v", what, err)
				}
				if err := call(); err != nil {
					t.Fatalf("%s, again: %v", what, err)
				}
			}
			must(t, warm(p))
			again("claim", func() (err error) { a, err = p.Acquire(t.Context(), c); return err })
			if a.Verdict != idempo.VerdictRun || a.Record.Attempt != 1 {
				t.Fatalf("%q attempt %d", a.Verdict, a.Record.Attempt)
			}
			again("renew", func() error {
				_, err := p.Renew(t.Context(), idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: c.Lease})
				return err
			})
			again("complete", func() error { _, err := p.Complete(t.Context(), pgResult(c, a, "body")); return err })
			d := pgClaim(idempo.GuardLeased)
			pgAcquire(t, t.Context(), p, d, idempo.VerdictRun)
			again("release", func() error {
				_, err := p.Release(t.Context(), idempo.ReleaseParams{Key: d.Key, Token: d.Token, To: idempo.StateFailed, Retention: d.Lease})
				return err
			})
		})
	})
}

// warm makes the store's statements known to a connection, so that the next write is the statement itself.
func warm(p *pg) error {
	c := pgClaim(idempo.GuardLeased)
	for range 2 {
		a, err := p.Acquire(context.Background(), c)
		if err != nil {
			return err
		}
		if _, err := p.Renew(context.Background(), idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: c.Lease}); a.Verdict == idempo.VerdictRun && err != nil {
			return err
		}
		if a.Verdict == idempo.VerdictRun {
			if _, err := p.Complete(context.Background(), pgResult(c, a, "x")); err != nil {
				return err
			}
		}
	}
	return errors.Join()
}
