package storecheck

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

func TestMySQLEpoch(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT20] in the window a leased key that is not found counts as lapsed and started", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		epoch, err := m.AdvanceEpoch(t.Context(), time.Hour)
		if err != nil || epoch < 2 {
			t.Fatal(epoch, err)
		}
		hold := pgClaim(idempo.GuardLeased)
		pgAcquire(t, t.Context(), m, hold, idempo.VerdictInDoubt)
		pgAcquire(t, t.Context(), m, pgAgain(hold), idempo.VerdictInDoubt)
		r, err := m.Lookup(t.Context(), idempo.LookupParams{Key: hold.Key})
		if err != nil || r.State != idempo.StateInDoubt || r.Attempt != 1 || !strings.Contains(r.Note, "lost") {
			t.Errorf("what an operator finds: %+v, %v", r, err)
		}
		other := pgAgain(hold)
		other.Hash = []byte("another request!")
		pgAcquire(t, t.Context(), m, other, idempo.VerdictMismatch)
		for _, c := range []idempo.OnCrash{idempo.OnCrashProbe, idempo.OnCrashRerun} {
			c2 := pgClaim(idempo.GuardLeased)
			c2.OnCrash = c
			a := pgAcquire(t, t.Context(), m, c2, idempo.VerdictRun)
			if !a.Lapsed || a.Record.Attempt != 2 {
				t.Errorf("%s: Lapsed %t, attempt %d", c, a.Lapsed, a.Record.Attempt)
			}
			_, err := m.Complete(t.Context(), pgResult(c2, a, "x"))
			must(t, err)
		}
		many := pgClaim(idempo.GuardLeased) // under several digest keys
		many.Aliases = []string{pgDigest(pgIDs.Add(1))}
		pgAcquire(t, t.Context(), m, many, idempo.VerdictInDoubt)
		pgAcquire(t, t.Context(), m, pgAgain(many), idempo.VerdictInDoubt)
		must(t, m.InTx(t.Context(), func(ctx context.Context) error { // atomic: effect and record are there, or neither
			c := pgClaim(idempo.GuardAtomic)
			_, err := m.Complete(ctx, pgResult(c, pgAcquire(t, ctx, m, c, idempo.VerdictRun), "x"))
			return err
		}))
		enqueued := pgClaim(idempo.GuardLeased)
		enqueued.Due = time.Now().Add(time.Hour)
		pgAcquire(t, t.Context(), m, enqueued, idempo.VerdictRun)

		again, err := m.AdvanceEpoch(t.Context(), 0) // ends the window
		if err != nil || again <= epoch {
			t.Errorf("epoch %d after %d, %v", again, epoch, err)
		}
		pgAcquire(t, t.Context(), m, pgClaim(idempo.GuardLeased), idempo.VerdictRun)
		pgAcquire(t, t.Context(), m, pgAgain(hold), idempo.VerdictInDoubt) // what is in doubt stays so
		_, err = m.AdvanceEpoch(t.Context(), time.Millisecond)             // over by itself, the trigger still there
		must(t, err)
		for m.count(t, "select count(*) from idempo_meta where epoch_until > utc_timestamp(6)") > 0 && !pauseTest(t) {
			continue
		}
		pgAcquire(t, t.Context(), m, pgClaim(idempo.GuardLeased), idempo.VerdictRun)
		if _, err := m.AdvanceEpoch(t.Context(), -1); codeOf(err) != "invalid" {
			t.Error(err)
		}
	})
	t.Run("[stores/CT20] claims of the old epoch are refused, those of the new one are not", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		var held []idempo.AcquireParams
		var got []idempo.Acquired
		for i := range 4 {
			c := pgClaim(idempo.GuardLeased)
			c.StartMark = i == 3
			held, got = append(held, c), append(got, pgAcquire(t, t.Context(), m, c, idempo.VerdictRun))
		}
		_, err := m.Release(t.Context(), idempo.ReleaseParams{Key: held[2].Key, Token: held[2].Token, To: idempo.StateInDoubt})
		must(t, err)
		_, err = m.AdvanceEpoch(t.Context(), time.Hour)
		must(t, err)
		if _, err = m.Renew(t.Context(), idempo.RenewParams{Key: held[0].Key, Token: held[0].Token, Lease: time.Minute}); !errors.Is(err, idempo.ErrLeaseLost) {
			t.Errorf("renewal: %v", err)
		}
		for i := range 3 {
			if _, err := m.Complete(t.Context(), pgResult(held[i], got[i], "x")); !errors.Is(err, idempo.ErrLeaseLost) {
				t.Errorf("completion %d: %v", i, err)
			}
		}
		pgAcquire(t, t.Context(), m, pgAgain(held[0]), idempo.VerdictInDoubt)
		if a := pgAcquire(t, t.Context(), m, pgAgain(held[3]), idempo.VerdictRun); a.Lapsed { // never started
			t.Error("what never started may have had an effect?")
		}
	})
	t.Run("[stores/CT20] a backup is restored in which commits are missing: without an epoch the effect is repeated, with one it is in doubt", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		for _, advance := range []bool{false, true} {
			c := pgClaim(idempo.GuardLeased)
			_, err := m.Complete(t.Context(), pgResult(c, pgAcquire(t, t.Context(), m, c, idempo.VerdictRun), "x"))
			must(t, err)
			_, err = m.db.ExecContext(t.Context(), "delete from idempo_records where idempotency_key = ?", []byte(c.Key.ID)) // what the restore lost
			must(t, err)
			want := idempo.VerdictRun
			if advance {
				want = idempo.VerdictInDoubt
				_, err := m.AdvanceEpoch(t.Context(), time.Hour)
				must(t, err)
			}
			pgAcquire(t, t.Context(), m, pgAgain(c), want)
		}
	})
	t.Run("[stores/CT20] it lets open transactions end, and no claim beside it is of the old epoch", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		in, tx, err := m.begin(t.Context(), nil)
		must(t, err)
		c := pgClaim(idempo.GuardAtomic)
		pgAcquire(t, in, m, c, idempo.VerdictRun)
		advanced := make(chan error, 1)
		go func() { _, err := m.AdvanceEpoch(t.Context(), time.Hour); advanced <- err }()
		for m.count(t, "select count(*) from information_schema.processlist where info like 'lock tables%' and db = ?", m.c.DBName) == 0 {
			if pauseTest(t) {
				t.Fatal("the lock was not asked for")
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		verdicts := map[idempo.Verdict]int{}
		var won []idempo.AcquireParams
		for range 8 {
			wg.Go(func() {
				c := pgClaim(idempo.GuardLeased)
				a, err := m.Acquire(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				verdicts[a.Verdict]++
				if a.Verdict == idempo.VerdictRun {
					won = append(won, c)
				}
			})
		}
		must(t, tx.Rollback())
		must(t, <-advanced)
		wg.Wait()
		for _, c := range won { // before the change, so they are lost
			if _, err := m.Renew(t.Context(), idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: time.Minute}); !errors.Is(err, idempo.ErrLeaseLost) {
				t.Errorf("a claim of the old epoch goes on: %v", err)
			}
		}
		if n := verdicts[idempo.VerdictRun] + verdicts[idempo.VerdictInDoubt] + verdicts[idempo.VerdictInProgress]; n != 8 { // in progress: met the lock
			t.Errorf("%v", verdicts)
		}
	})
}
