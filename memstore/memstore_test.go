package memstore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func key(n int) idempo.Key {
	d := sha256.Sum256(fmt.Append(nil, n))
	return idempo.Key{Tenant: "acct_7", Operation: "create-order", ID: string(d[:])}
}

func token(n int) (t idempo.Token) {
	binary.BigEndian.PutUint64(t[:], uint64(n)+1)
	return t
}

func leased(n int) idempo.AcquireParams {
	d := sha256.Sum256([]byte("request"))
	return idempo.AcquireParams{Key: key(n), Hash: d[:], Recipe: "http-1/k1", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashHold,
		Token: token(n), Lease: 30 * time.Second, Surface: "http", Owner: "host-1/4711/v1", DerivedKey: "6be8f39f-c03c-4adc-b47a-d559a3522431"}
}

func atomically(n int) idempo.AcquireParams {
	p := leased(n)
	p.Guard = idempo.GuardAtomic
	return p
}

func completed(p idempo.AcquireParams, attempt int64) idempo.CompleteParams {
	return idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: attempt, Kept: true, Size: 256,
		Result:    idempo.Result{Status: 201, Header: [][2]string{{"Content-Type", "application/json"}}, Body: make([]byte, 256), Resource: idempo.Resource{Type: "order", ID: "9"}},
		Retention: 24 * time.Hour, Tombstone: 240 * time.Hour}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func claim(t testing.TB, ctx context.Context, s *memstore.Store, p idempo.AcquireParams) idempo.Record {
	t.Helper()
	a, err := s.Acquire(ctx, p)
	must(t, err)
	if a.Verdict != idempo.VerdictRun {
		t.Fatalf("verdict %s, want run", a.Verdict)
	}
	return a.Record
}

func TestFull(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E25] at MaxRecords new keys are unavailable, nothing live or tombstone is evicted, what is over makes room", func(t *testing.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := memstore.New(memstore.Options{MaxRecords: 3, Clock: func() time.Time { return now }})
		ctx := t.Context()
		for n := range 3 {
			p := leased(n)
			p.Aliases = []string{key(100 + n).ID} // aliases are no records
			claim(t, ctx, s, p)
		}
		_, err := s.Complete(ctx, completed(leased(0), 1))
		must(t, err)
		refused := func() {
			t.Helper()
			if _, err := s.Acquire(ctx, leased(3)); !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) {
				t.Fatalf("a key too many: %v", err)
			}
			if err := s.InTx(ctx, func(ctx context.Context) error { _, err := s.Acquire(ctx, atomically(3)); return err }); !errors.Is(err, idempo.ErrUnavailable) {
				t.Fatalf("an atomic key too many: %v", err)
			}
		}
		refused()
		now = now.Add(30 * time.Hour) // 0 is a tombstone, 1 and 2 are in doubt
		refused()
		for n, want := range []idempo.Verdict{idempo.VerdictExpired, idempo.VerdictInDoubt, idempo.VerdictInDoubt} {
			p := leased(n)
			p.Token = token(50)
			if a, err := s.Acquire(ctx, p); err != nil || a.Verdict != want {
				t.Fatalf("record %d: %s %v, want %s", n, a.Verdict, err, want)
			}
		}
		now = now.Add(240 * time.Hour)
		claim(t, ctx, s, leased(3))
		refusedNow, err := s.Acquire(ctx, leased(4))
		if !errors.Is(err, idempo.ErrUnavailable) {
			t.Fatalf("one more: %s %v", refusedNow.Verdict, err)
		}
	})
}

func TestCommitWhenFull(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Options{MaxRecords: 1})
	effects := 0
	err := s.InTx(t.Context(), func(ctx context.Context) error {
		for n := range 2 {
			r := claim(t, ctx, s, atomically(n))
			memstore.OnCommit(ctx, func() { effects++ })
			if _, err := s.Complete(ctx, completed(atomically(n), r.Attempt)); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, idempo.ErrUnavailable) || effects != 0 {
		t.Fatalf("two new keys in a store of one: %v, %d effects", err, effects)
	}
	for n := range 2 {
		if r, err := s.Lookup(t.Context(), idempo.LookupParams{Key: key(n)}); err != nil || r.State != "" {
			t.Fatalf("key %d: %s %v", n, r.State, err)
		}
	}
}

func TestWaitInABubble(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E25] a bounded wait for an open transaction obeys synctest and starts no goroutine", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			ctx, tx, err := s.Begin(t.Context())
			must(t, err)
			r := claim(t, ctx, s, atomically(1))
			_, err = s.Complete(ctx, completed(atomically(1), r.Attempt))
			must(t, err)

			p := leased(1)
			p.Token, p.Wait = token(2), 5*time.Second
			start := time.Now()
			a, err := s.Acquire(t.Context(), p)
			if err != nil || a.Verdict != idempo.VerdictInProgress || time.Since(start) != p.Wait {
				t.Fatalf("after %s: %s %v", time.Since(start), a.Verdict, err)
			}
			time.AfterFunc(2*time.Second, func() { must(t, tx.Commit()) })
			start = time.Now()
			a, err = s.Acquire(t.Context(), p)
			if err != nil || a.Verdict != idempo.VerdictReplay || time.Since(start) != 2*time.Second {
				t.Fatalf("after %s: %s %v", time.Since(start), a.Verdict, err)
			}
		})
	})
}

func TestOwnTransaction(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E10] the caller's own transaction is the caller's: rolled back, nothing remains", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		for _, commit := range []bool{false, true} {
			effects := 0
			ctx, tx, err := s.Begin(t.Context())
			must(t, err)
			if in, own, err := s.Joined(ctx); !in || own || err != nil {
				t.Fatalf("joined %t, own %t, %v", in, own, err)
			}
			r := claim(t, ctx, s, atomically(1))
			memstore.OnCommit(ctx, func() { effects++ })
			_, err = s.Complete(ctx, completed(atomically(1), r.Attempt))
			must(t, err)
			want := idempo.State("")
			if commit {
				want = idempo.StateCompleted
				must(t, tx.Commit())
			}
			tx.Rollback()
			got, err := s.Lookup(t.Context(), idempo.LookupParams{Key: key(1)})
			if err != nil || got.State != want || effects == 1 != commit {
				t.Fatalf("commit %t: %q, %d effects, %v", commit, got.State, effects, err)
			}
			if e, ok := errors.AsType[*idempo.Error](tx.Commit()); !ok || e.Code != "tx_ended" {
				t.Fatalf("a second end: %v", e)
			}
		}
	})
}

func TestJoinedWriteMeetsAnother(t *testing.T) {
	t.Parallel()
	s := memstore.New(memstore.Options{})
	claim(t, t.Context(), s, leased(1))
	err := s.InTx(t.Context(), func(ctx context.Context) error {
		if _, err := s.Complete(ctx, completed(leased(1), 1)); err != nil {
			return err
		}
		_, err := s.Release(t.Context(), idempo.ReleaseParams{Key: key(1), Token: token(1), To: idempo.StateInDoubt})
		return err
	})
	if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "tx_conflict" {
		t.Fatalf("commit over another's write: %v", err)
	}
	if r, _ := s.Lookup(t.Context(), idempo.LookupParams{Key: key(1)}); r.State != idempo.StateInDoubt {
		t.Fatalf("state %s, want the other's in doubt", r.State)
	}
}

func TestAnotherStoresTransaction(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E11] a transaction of another store is misuse before any effect", func(t *testing.T) {
		one, two := memstore.New(memstore.Options{}), memstore.New(memstore.Options{})
		must(t, one.InTx(t.Context(), func(ctx context.Context) error {
			_, _, joined := two.Joined(ctx)
			_, acquired := two.Acquire(ctx, atomically(1))
			_, looked := two.Lookup(ctx, idempo.LookupParams{Key: key(1)})
			for _, err := range []error{joined, acquired, looked, two.InTx(ctx, nil), one.InTx(ctx, nil)} {
				if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "misuse" {
					t.Errorf("%v, want misuse", err)
				}
			}
			return nil
		}))
	})
}

func TestOnCommitOutside(t *testing.T) {
	t.Parallel()
	var over context.Context
	s := memstore.New(memstore.Options{})
	must(t, s.InTx(t.Context(), func(ctx context.Context) error { over = ctx; return nil }))
	for _, ctx := range []context.Context{t.Context(), over} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an effect without an open transaction would be lost in silence")
				}
			}()
			memstore.OnCommit(ctx, func() {})
		}()
	}
}

func TestMemory(t *testing.T) { // not parallel: it reads the heap
	t.Run("[stores/E40] bytes per completed record and per tombstone, indexes included", func(t *testing.T) {
		const n = 20_000
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := memstore.New(memstore.Options{Clock: func() time.Time { return now }})
		heap := func() float64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.HeapAlloc)
		}
		before := heap()
		for i := range n {
			claim(t, t.Context(), s, leased(i))
			_, err := s.Complete(t.Context(), completed(leased(i), 1))
			must(t, err)
		}
		perRecord := (heap() - before) / n
		now = now.Add(25 * time.Hour)
		if done, err := s.Sweep(t.Context(), n+1); done != n || err != nil {
			t.Fatalf("swept %d: %v", done, err)
		}
		perTombstone := (heap() - before) / n
		t.Logf("%.0f bytes a record, %.0f a tombstone", perRecord, perTombstone)
		if perRecord > 1200 || perTombstone > 500 {
			t.Errorf("want at most 1200 and 500")
		}
		runtime.KeepAlive(s)
	})
}

func TestAllocations(t *testing.T) { // not parallel: AllocsPerRun
	t.Run("[stores/E40] the store's share of a first call and of a replay", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		n := 0
		params := make([]idempo.AcquireParams, 3000)
		for i := range params {
			params[i] = atomically(i)
		}
		first := testing.AllocsPerRun(1000, func() {
			p := params[n]
			n++
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				a, err := s.Acquire(ctx, p)
				if err != nil {
					return err
				}
				_, err = s.Complete(ctx, completed(p, a.Record.Attempt))
				return err
			})
			must(t, err)
		})
		replay := testing.AllocsPerRun(1000, func() {
			n--
			a, err := s.Acquire(t.Context(), func() idempo.AcquireParams { p := params[n]; p.Guard = idempo.GuardLeased; return p }())
			if err != nil || a.Verdict != idempo.VerdictReplay {
				t.Fatal(a.Verdict, err)
			}
		})
		t.Logf("%.0f allocations a first call, %.0f a replay", first, replay)
		if first > 18 || replay > 7 {
			t.Errorf("leaves the engine too little of its 20 and 10")
		}
	})
}
