package storecheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresEpoch(t *testing.T) {
	t.Parallel()
	t.Run("[stores/PG10] in the window a leased key that is not found counts as lapsed and started", func(t *testing.T) {
		t.Parallel()
		eachPostgres(t, func(t *testing.T, p *pg) {
			epoch, err := p.AdvanceEpoch(t.Context(), time.Hour)
			if err != nil || epoch < 2 {
				t.Fatal(epoch, err)
			}
			hold := pgClaim(idempo.GuardLeased)
			pgAcquire(t, t.Context(), p, hold, idempo.VerdictInDoubt)
			pgAcquire(t, t.Context(), p, pgAgain(hold), idempo.VerdictInDoubt)
			r, err := p.Lookup(t.Context(), idempo.LookupParams{Key: hold.Key})
			if err != nil || r.State != idempo.StateInDoubt || r.Attempt != 1 || !strings.Contains(r.Note, "lost") {
				t.Errorf("what an operator finds: %+v, %v", r, err)
			}
			other := pgAgain(hold)
			other.Hash = []byte("another request!")
			pgAcquire(t, t.Context(), p, other, idempo.VerdictMismatch)
			for _, c := range []idempo.OnCrash{idempo.OnCrashProbe, idempo.OnCrashRerun} {
				c2 := pgClaim(idempo.GuardLeased)
				c2.OnCrash = c
				a := pgAcquire(t, t.Context(), p, c2, idempo.VerdictRun)
				if !a.Lapsed || a.Record.Attempt != 2 {
					t.Errorf("%s: Lapsed %t, attempt %d", c, a.Lapsed, a.Record.Attempt)
				}
				_, err := p.Complete(t.Context(), pgResult(c2, a, "x"))
				must(t, err)
			}
			many := pgClaim(idempo.GuardLeased) // under several digest keys
			many.Aliases = []string{pgDigest(pgIDs.Add(1))}
			pgAcquire(t, t.Context(), p, many, idempo.VerdictInDoubt)
			must(t, p.InTx(t.Context(), func(ctx context.Context) error { // atomic: effect and record are there, or neither
				c := pgClaim(idempo.GuardAtomic)
				_, err := p.Complete(ctx, pgResult(c, pgAcquire(t, ctx, p, c, idempo.VerdictRun), "x"))
				return err
			}))
			enqueued := pgClaim(idempo.GuardLeased)
			enqueued.Due = time.Now().Add(time.Hour)
			pgAcquire(t, t.Context(), p, enqueued, idempo.VerdictRun)

			again, err := p.AdvanceEpoch(t.Context(), 0) // ends the window
			if err != nil || again <= epoch {
				t.Errorf("epoch %d after %d, %v", again, epoch, err)
			}
			pgAcquire(t, t.Context(), p, pgClaim(idempo.GuardLeased), idempo.VerdictRun)
			pgAcquire(t, t.Context(), p, pgAgain(hold), idempo.VerdictInDoubt) // what is in doubt stays so
			_, err = p.AdvanceEpoch(t.Context(), time.Millisecond)             // over by itself, the trigger still there
			must(t, err)
			for p.count(t, `select count(*) from SCHEMA.meta where epoch_until > clock_timestamp()`) > 0 {
				continue
			}
			pgAcquire(t, t.Context(), p, pgClaim(idempo.GuardLeased), idempo.VerdictRun)
		})
	})
	t.Run("[stores/PG10] claims of the old epoch are refused, those of the new one are not", func(t *testing.T) {
		t.Parallel()
		eachPostgres(t, func(t *testing.T, p *pg) {
			var held []idempo.AcquireParams
			var got []idempo.Acquired
			for i := range 4 {
				c := pgClaim(idempo.GuardLeased)
				c.StartMark = i == 3
				held, got = append(held, c), append(got, pgAcquire(t, t.Context(), p, c, idempo.VerdictRun))
			}
			_, err := p.Release(t.Context(), idempo.ReleaseParams{Key: held[2].Key, Token: held[2].Token, To: idempo.StateInDoubt})
			must(t, err)
			_, err = p.AdvanceEpoch(t.Context(), time.Hour)
			must(t, err)
			_, err = p.Renew(t.Context(), idempo.RenewParams{Key: held[0].Key, Token: held[0].Token, Lease: time.Minute})
			if !errors.Is(err, idempo.ErrLeaseLost) {
				t.Errorf("renewal: %v", err)
			}
			for i := range 3 {
				if _, err := p.Complete(t.Context(), pgResult(held[i], got[i], "x")); !errors.Is(err, idempo.ErrLeaseLost) {
					t.Errorf("completion %d: %v", i, err)
				}
			}
			if _, err := p.Release(t.Context(), idempo.ReleaseParams{Key: held[1].Key, Token: held[1].Token, To: idempo.StateFailed, Retention: time.Hour}); !errors.Is(err, idempo.ErrLeaseLost) {
				t.Errorf("release: %v", err)
			}
			pgAcquire(t, t.Context(), p, pgAgain(held[0]), idempo.VerdictInDoubt)
			a := pgAcquire(t, t.Context(), p, pgAgain(held[3]), idempo.VerdictRun) // never started
			if a.Lapsed {
				t.Error("what never started may have had an effect?")
			}
			c := pgClaim(idempo.GuardLeased)
			c.OnCrash = idempo.OnCrashRerun
			_, err = p.Complete(t.Context(), pgResult(c, pgAcquire(t, t.Context(), p, c, idempo.VerdictRun), "x"))
			must(t, err)
		})
	})
	t.Run("[stores/PG10] [stores/PG12] SQL callers of the old epoch get IP006, lost keys are in doubt", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		token := f.one(`select encode(token, 'hex') from idempo.claim('t', 'op', 'k', ` + canaryHash + `, guard => 'leased')`)
		f.state("IP003", `select idempo.advance_epoch('-1 s')`)
		f.state("IP003", `select idempo.advance_epoch(null)`)
		f.one(`select idempo.advance_epoch("window" => '1 h')`)
		f.state("IP006", `select idempo.complete('t', 'op', 'k', decode('`+token+`', 'hex'))`)
		f.state("IP006", `select idempo.renew('t', 'op', 'gone', decode('`+token+`', 'hex'))`)
		if got := f.one(`select concat_ws(' ', verdict, state) from idempo.claim('t', 'op', 'new', ` + canaryHash + `, guard => 'leased')`); got != "in_doubt in_doubt" {
			t.Errorf("a key that is not found: %s", got)
		}
		if got := f.one(`select concat_ws(' ', verdict, lapsed) from idempo.claim('t', 'op', 'again', ` + canaryHash + `, guard => 'leased', on_crash => 'rerun')`); got != "run t" {
			t.Errorf("a key that is not found, rerun: %s", got)
		}
		if got := f.one(`select verdict from idempo.claim('t', 'op', 'atomic', ` + canaryHash + `)`); got != "run" {
			t.Errorf("atomic: %s", got)
		}
	})
	t.Run("[stores/PG10] it waits for no open transaction while others claim, and succeeds when it ends", func(t *testing.T) {
		t.Parallel()
		dsn := postgresDSN(t)
		o := migrated(t, dsn, postgres.Options{})
		p := openPgx(t, dsn, o)
		held := make(chan struct{})
		free := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- p.InTx(t.Context(), func(ctx context.Context) error {
				err := p.exec(ctx, `insert into "`+o.Schema+`".records (tenant_id, operation, idempotency_key, created_at, changed_at) values ('x', 'x', 'x', now(), now())`)
				close(held)
				<-free
				return errors.Join(err, errors.New("undo"))
			})
		}()
		<-held
		advanced := make(chan error, 1)
		go func() { _, err := p.AdvanceEpoch(t.Context(), time.Hour); advanced <- err }()
		look := &pg{o: o, db: openDB(t, "pgx", dsn)}
		for _, waiting := range []int{1, 0, 1} { // it asks, lets go, asks again
			for look.count(t, `select count(*) from pg_locks where relation = 'SCHEMA.records'::regclass and not granted and mode = 'ShareRowExclusiveLock'`) != waiting {
				if pauseTest(t) {
					t.Fatal("the lock was not asked for")
				}
			}
		}
		close(free)
		<-ended
		must(t, <-advanced)
	})
}
