package storecheck

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// watched is a store that counts its claims, and how many of them are at work at once.
type watched struct {
	fullAbilities
	claims, now, most atomic.Int64
}

// fullAbilities is what every store of a database has.
type fullAbilities interface {
	idempo.Store
	idempo.Transactor
	idempo.Joiner
}

func (w *watched) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	w.claims.Add(1)
	for n := w.now.Add(1); ; {
		if m := w.most.Load(); n <= m || w.most.CompareAndSwap(m, n) {
			break
		}
	}
	defer w.now.Add(-1)
	return w.fullAbilities.Acquire(ctx, p)
}

// Callers and how often each asks, without a pause.
const (
	impatient = 50
	asks      = 40
)

func TestDuplicatesWithoutPause(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) (one, two fullAbilities){
		"sqlite": func(t *testing.T) (one, two fullAbilities) {
			s, file := sqliteStore(t, sqlite.Options{})
			return s, sqliteOpen(t, file, sqlite.Options{})
		},
	}
	for _, kind := range pgOpeners() {
		stores[kind.name] = func(t *testing.T) (one, two fullAbilities) {
			dsn := postgresDSN(t)
			o := migrated(t, dsn, postgres.Options{})
			return kind.open(t, dsn, o).Store, kind.open(t, dsn, o).Store
		}
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := open(t)
			a, b := &watched{fullAbilities: one}, &watched{fullAbilities: two}
			here, there := watchedEngine(t, a), watchedEngine(t, b)
			var runs atomic.Int64
			release := make(chan struct{})
			running := make(chan struct{})
			r := request("leased", "k")
			work := func(context.Context, *idempo.Claim) (idempo.Result, error) {
				runs.Add(1)
				close(running)
				<-release
				return idempo.Result{Status: 200, Body: []byte("one")}, nil
			}
			var owner, wg sync.WaitGroup
			owner.Go(func() {
				if b, err := here.Do(t.Context(), r, work); err != nil || b.Verdict != idempo.VerdictRun {
					t.Errorf("the owner: %q %v", b.Verdict, err)
				}
			})
			<-running
			crowd := func(e *idempo.Engine, times int, r idempo.Request, want idempo.Verdict) {
				for range impatient {
					wg.Go(func() {
						for range times {
							if b, _ := e.Do(t.Context(), r, work); b.Verdict != want {
								t.Errorf("%q, want %s", b.Verdict, want)
								return
							}
						}
					})
				}
			}
			t.Run("[stores/CT26, L7] in the owner's process no duplicate asks the store", func(t *testing.T) {
				crowd(here, asks, r, idempo.VerdictInProgress)
				wg.Wait()
				if n := a.claims.Load(); n != 1 {
					t.Errorf("%d claims for %d calls", n, impatient*asks)
				}
			})
			t.Run("[stores/CT26, L7] in another process they ask one at a time", func(t *testing.T) {
				crowd(there, asks, r, idempo.VerdictInProgress)
				wg.Wait()
				if n := b.most.Load(); n != 1 {
					t.Errorf("%d claims at once", n)
				}
				if n := b.claims.Load(); n < 1 || n > impatient*asks {
					t.Errorf("%d claims for %d calls", n, impatient*asks)
				}
			})
			t.Run("[stores/CT26, L8] those who wait there have one poller, and get the answer", func(t *testing.T) {
				before := b.claims.Load()
				waiting := r
				waiting.Wait = time.Minute
				crowd(there, 1, waiting, idempo.VerdictReplay)
				for b.claims.Load() < before+4 { // it polls
					if pauseTest(t) {
						t.Fatal("nobody polls")
					}
				}
				asked := b.claims.Load()
				close(release)
				owner.Wait()
				wg.Wait()
				if n := b.most.Load(); n != 1 {
					t.Errorf("%d claims at once", n)
				}
				if n := b.claims.Load() - asked; n > impatient/5 {
					t.Errorf("%d claims of %d who waited, after the answer was there", n, impatient)
				}
			})
			if n := runs.Load(); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

func watchedEngine(t *testing.T, s idempo.Store) *idempo.Engine {
	t.Helper()
	e, err := idempo.New(s, idempo.Config{
		DigestKeys:     []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations:     []idempo.Operation{{Name: "leased", Guard: idempo.GuardLeased}},
		AcquireTimeout: 20 * time.Second,
	})
	must(t, err)
	return e
}
