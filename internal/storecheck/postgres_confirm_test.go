package storecheck

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/postgres"
)

// unwaited is a synchronous pair whose standby is down, and a store on its primary, with the hook or without.
func unwaited(t *testing.T, hook bool, budget time.Duration) (*pgPair, *pg, *idempo.Engine) {
	t.Helper()
	pair := startPair(t, true)
	c, err := pgxpool.ParseConfig(pair.a.DSN())
	must(t, err)
	if hook {
		idempgx.Configure(c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	p := pgxStore(t, pool, pair.a.DSN(), pair.o)
	eng, err := idempo.New(p, idempo.Config{DigestKeys: []idempo.Secret{{ID: "k1", Value: digestOf("confirm")}}, CompleteBudget: budget,
		Operations: []idempo.Operation{{Name: "order", Guard: idempo.GuardAtomic}, {Name: "send", Guard: idempo.GuardLeased}}})
	must(t, err)
	pair.b.Stop(t, "immediate")
	return pair, p, eng
}

// cancelWait cancels the next wait for the standby, as somebody would who sees a session hang.
func cancelWait(t *testing.T, p *pg) {
	t.Helper()
	for p.count(t, `select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'`) == 0 {
		if pauseTest(t) {
			t.Fatal("no commit waits for the standby")
		}
	}
}

type ended struct {
	b   idempo.Begun
	err error
}

// begin runs a call in the background.
func begin(t *testing.T, p *pg, eng *idempo.Engine, op string) (chan ended, *ledger) {
	ran, out := new(ledger), make(chan ended, 1)
	go func() {
		b, err := eng.Do(t.Context(), intentOf(op, "1"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			ran.add(op)
			if op == "order" {
				return idempo.Result{Status: 201}, p.exec(ctx, `insert into idempo.done (what) values ('1')`)
			}
			return idempo.Result{Status: 201}, nil
		})
		out <- ended{b, err}
	}()
	return out, ran
}

func TestPostgresUnconfirmedCommit(t *testing.T) {
	t.Parallel()
	t.Run("[stores/PG9] no success before the standby has it: over the budget the outcome is unknown", func(t *testing.T) {
		t.Parallel()
		_, p, eng := unwaited(t, true, 3*time.Second)
		out, ran := begin(t, p, eng, "order")
		cancelWait(t, p)
		got := <-out
		e, ok := errors.AsType[*idempo.Error](got.err)
		if !ok || !errors.Is(got.err, idempo.ErrUnavailable) || !e.Unknown || !idempo.MayHaveHappened(got.err) {
			t.Errorf("%q, %v; want unavailable, unknown", got.b.Verdict, got.err)
		}
		if n := ran.count("order"); n != 1 {
			t.Errorf("the work ran %d times", n)
		}
		if b, err := eng.Do(t.Context(), intentOf("order", "1"), nil); !errors.Is(err, idempo.ErrUnavailable) {
			t.Errorf("another caller is shown what may be lost: %q, %v", b.Verdict, err)
		}
	})
	t.Run("[stores/PG9] the standby comes back: the commit is confirmed, and reported as its own", func(t *testing.T) {
		t.Parallel()
		pair, p, eng := unwaited(t, true, time.Minute)
		out, ran := begin(t, p, eng, "order")
		cancelWait(t, p)
		cancelWait(t, p) // of the first try to confirm it
		pair.b.Up(t)
		got := <-out
		if got.err != nil || got.b.Verdict != idempo.VerdictRun || ran.count("order") != 1 {
			t.Errorf("%q, %v, ran %d times", got.b.Verdict, got.err, ran.count("order"))
		}
		pair.fail(t)
		p.db = openDB(t, "pgx", pair.b.DSN())
		if n := p.count(t, `select count(*) from idempo.records r, idempo.done d where r.state = 'completed'`); n != 1 {
			t.Errorf("%d rows on the standby: what was reported is lost", n)
		}
	})
	t.Run("[stores/PG9] a leased claim that is not confirmed does not run", func(t *testing.T) {
		t.Parallel()
		_, p, eng := unwaited(t, true, 3*time.Second)
		out, ran := begin(t, p, eng, "send")
		cancelWait(t, p)
		if got := <-out; !errors.Is(got.err, idempo.ErrUnavailable) {
			t.Errorf("%q, %v; want unavailable", got.b.Verdict, got.err)
		}
		if n := ran.count("send"); n != 0 {
			t.Errorf("the work ran %d times", n)
		}
	})
	t.Run("[stores/PG9] without the hook such a commit counts as acknowledged: that is what it is for", func(t *testing.T) {
		t.Parallel()
		_, p, eng := unwaited(t, false, 3*time.Second)
		out, _ := begin(t, p, eng, "order")
		cancelWait(t, p)
		if got := <-out; got.err != nil || got.b.Verdict != idempo.VerdictRun {
			t.Errorf("%q, %v", got.b.Verdict, got.err)
		}
	})
	t.Run("[stores/PG9] warnings of the work itself cost nothing but a write, and the hook before stays", func(t *testing.T) {
		t.Parallel()
		dsn := postgresDSN(t)
		o := migrated(t, dsn, postgres.Options{})
		c, err := pgxpool.ParseConfig(dsn)
		must(t, err)
		var heard ledger
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { heard.add(n.Code) }
		idempgx.Configure(c)
		pool, err := pgxpool.NewWithConfig(t.Context(), c)
		must(t, err)
		t.Cleanup(pool.Close)
		p := pgxStore(t, pool, dsn, o)
		claim := pgClaim(idempo.GuardAtomic)
		must(t, p.InTx(t.Context(), func(ctx context.Context) error {
			a := pgAcquire(t, ctx, p, claim, idempo.VerdictRun)
			must(t, p.exec(ctx, `do $$ begin raise warning 'of the work'; end $$`))
			_, err := p.Complete(ctx, pgResult(claim, a, "x"))
			return err
		}))
		if heard.count("01000") != 1 {
			t.Errorf("the hook that was there heard %d warnings", heard.count("01000"))
		}
	})
}
