package idempo_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
)

func TestLease(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	begin := func(t *testing.T, e *idempo.Engine, id string) *idempo.Claim {
		t.Helper()
		b, err := e.Begin(t.Context(), request("send", id, "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		return b.Claim
	}
	bubble("[stores/L2] renewed at each third of the lease, and no other call", func(t *testing.T) {
		s := newFaulty()
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		c := begin(t, e, "k")
		time.Sleep(10 * time.Minute)
		if n := s.count("renew"); n < 54 || n > 66 { // 600 s ÷ 10 s ± 10 %
			t.Errorf("%d renewals", n)
		}
		if err := c.Complete(t.Context(), okResult); err != nil {
			t.Fatal(err)
		}
		n := s.count("renew")
		time.Sleep(time.Minute)
		if s.count("renew") != n {
			t.Error("renewed after the end")
		}
	})
	bubble("[stores/L2] failing renewals end the context once, before the key could be given away", func(t *testing.T) {
		s := newFaulty()
		s.before = func(op string, _ int) error {
			if op == "renew" {
				return away(false)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		start := time.Now()
		c := begin(t, e, "k")
		<-c.Context().Done()
		if took := time.Since(start); context.Cause(c.Context()) != idempo.ErrLeaseLost || took != 25*time.Second {
			t.Errorf("lost after %v, cause %v", took, context.Cause(c.Context()))
		}
		if s.count("renew") < 3 {
			t.Errorf("%d tries", s.count("renew"))
		}
		b, err := e.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictInProgress)
	})
	bubble("[stores/L2] a renewal that hangs does not keep the authority", func(t *testing.T) {
		s := newFaulty()
		s.before = func(op string, _ int) error {
			if op == "renew" {
				time.Sleep(time.Minute)
				return away(true)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		start := time.Now()
		c := begin(t, e, "k")
		<-c.Context().Done()
		if took := time.Since(start); took != 25*time.Second {
			t.Errorf("lost after %v", took)
		}
		time.Sleep(2 * time.Minute)
	})
	bubble("[stores/L3] a lease that is over is never taken back", func(t *testing.T) {
		s := newFaulty()
		s.before = func(op string, n int) error {
			if op == "renew" && n < 100 {
				return away(false)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		c := begin(t, e, "k")
		time.Sleep(31 * time.Second)
		s.mu.Lock()
		s.before = nil
		s.mu.Unlock()
		if err := c.Renew(t.Context()); !errors.Is(err, idempo.ErrLeaseLost) {
			t.Error(err)
		}
	})
	bubble("[stores/L4] a late result counts while the token stands, and is fenced once it was taken over", func(t *testing.T) {
		op := idempo.Operation{Name: "send", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true, MaxRun: time.Minute}
		e := newEngine(t, idempo.Config{}, op)
		late := begin(t, e, "a")
		over := begin(t, e, "b")
		time.Sleep(2 * time.Minute)
		if err := late.Complete(t.Context(), okResult); err != nil {
			t.Error("late truth:", err)
		}
		next := begin(t, e, "b")
		if next.Attempt() != 2 || !next.Lapsed() || next.Derive("") != over.Derive("") {
			t.Errorf("attempt %d, lapsed %v", next.Attempt(), next.Lapsed())
		}
		if err := over.Complete(t.Context(), okResult); !errors.Is(err, idempo.ErrLeaseLost) {
			t.Error("fence:", err)
		}
		if err := next.Complete(t.Context(), idempo.Result{Status: 7}); err != nil {
			t.Fatal(err)
		}
		b, err := e.Begin(t.Context(), request("send", "b", "1"))
		wantVerdict(t, b, err, idempo.VerdictReplay)
		if b.Record.Result.Status != 7 {
			t.Error("the fenced write changed the row")
		}
	})
	bubble("[stores/L6] a claim begun and forgotten ends at MaxRun", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		start := time.Now()
		c := begin(t, e, "k")
		<-c.Context().Done()
		if took := time.Since(start); took != 15*time.Minute {
			t.Errorf("ended after %v", took)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		b, err := e.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictInDoubt)
		if left := e.Drain(t.Context()); left != 0 {
			t.Errorf("%d left", left)
		}
	})
	bubble("[stores/E22] without a start the key is free after the lease; after it, it is in doubt", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "send", Guard: idempo.GuardLeased, StartMark: true, MaxRun: time.Minute})
		begin(t, e, "a")
		started := begin(t, e, "b")
		if err := started.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		b, err := e.Begin(t.Context(), request("send", "a", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		b, err = e.Begin(t.Context(), request("send", "b", "1"))
		wantVerdict(t, b, err, idempo.VerdictInDoubt)
		_ = e.Drain(contextOver(t))
	})
}

func contextOver(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestLeasedDo(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	t.Run("[stores/E9] what the work's end means", func(t *testing.T) {
		var l ledger
		e := newEngine(t, idempo.Config{}, leasedOp)
		again := func(id string) idempo.Verdict {
			b, _ := e.Do(t.Context(), request("send", id, "1"), l.outside(okResult, nil))
			return b.Verdict
		}
		_, err := e.Do(t.Context(), request("send", "known", "1"), l.outside(idempo.Result{}, errors.Join(idempo.NothingHappened(boom))))
		if idempo.MayHaveHappened(err) || again("known") != idempo.VerdictRun {
			t.Error("known:", err)
		}
		_, err = e.Do(t.Context(), request("send", "unknown", "1"), l.outside(idempo.Result{}, boom))
		if !errors.Is(err, boom) || !errors.Is(err, idempo.ErrInDoubt) || !idempo.MayHaveHappened(err) || again("unknown") != idempo.VerdictInDoubt {
			t.Error("unknown:", err)
		}
		_, err = e.Do(t.Context(), request("send", "half", "1"), l.outside(idempo.Result{}, errors.Join(idempo.NothingHappened(boom), boom)))
		if !errors.Is(err, idempo.ErrInDoubt) || again("half") != idempo.VerdictInDoubt {
			t.Error("half known:", err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not go on")
				}
			}()
			_, _ = e.Do(t.Context(), request("send", "panic", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) { panic(boom) })
		}()
		if again("panic") != idempo.VerdictInDoubt {
			t.Error("panic")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = e.Do(t.Context(), request("send", "goexit", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				runtime.Goexit()
				return okResult, nil
			})
		}()
		<-done
		if again("goexit") != idempo.VerdictInDoubt {
			t.Error("goexit")
		}
	})
	t.Run("[stores/E14] the caller's end does not stop the saving", func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, leasedOp)
		ctx, cancel := context.WithCancel(t.Context())
		b, err := e.Do(ctx, request("send", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
			cancel()
			return okResult, nil
		})
		wantVerdict(t, b, err, idempo.VerdictRun)
		b, err = e.Do(t.Context(), request("send", "k", "1"), nil)
		wantVerdict(t, b, err, idempo.VerdictReplay)
	})
	t.Run("[stores/E14] saving goes on in the background, then the key replays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			var back atomic.Bool
			s.before = func(op string, _ int) error {
				if op == "complete" && !back.Load() {
					return away(true)
				}
				return nil
			}
			var l ledger
			e := engineOn(t, s, idempo.Config{}, leasedOp)
			_, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
			if !errors.Is(err, idempo.ErrInDoubt) || !idempo.MayHaveHappened(err) {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			b, err := e.Begin(t.Context(), request("send", "k", "1"))
			wantVerdict(t, b, err, idempo.VerdictInDoubt)
			back.Store(true)
			time.Sleep(time.Minute)
			b, err = e.Begin(t.Context(), request("send", "k", "1"))
			wantVerdict(t, b, err, idempo.VerdictReplay)
			l.want(t, 1)
			if left := e.Drain(t.Context()); left != 0 {
				t.Errorf("%d left", left)
			}
		})
	})
	t.Run("[stores/CT15] a claim whose answer was lost is recognised and goes on", func(t *testing.T) {
		s := newFaulty()
		s.after = func(op string, n int) error {
			if n == 1 && op != "lookup" {
				return away(true)
			}
			return nil
		}
		var l ledger
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		b, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		if err != nil || s.count("acquire") != 2 || s.count("complete") != 2 {
			t.Fatal(err, s.calls)
		}
		l.want(t, 1)
	})
}

func TestProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		state   idempo.State
		err     error
		verdict idempo.Verdict
		effects int64
	}{
		{"completed is stored and replayed", idempo.StateCompleted, nil, idempo.VerdictReplay, 0},
		{"failed lets the work run under this claim", idempo.StateFailed, nil, idempo.VerdictRun, 1},
		{"no finding stays in doubt", "", nil, idempo.VerdictInDoubt, 0},
		{"an error stays in doubt", idempo.StateCompleted, errors.New("x"), idempo.VerdictInDoubt, 0},
	} {
		t.Run("[stores/E21] "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l ledger
				asked := 0
				op := idempo.Operation{Name: "send", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe, MaxRun: time.Minute,
					ProbeFunc: func(_ context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
						asked++
						if string(r.Snapshot) != "input" || r.DerivedKey == "" {
							t.Errorf("the probe got %q %q", r.Snapshot, r.DerivedKey)
						}
						return c.state, okResult, c.err
					}}
				e := newEngine(t, idempo.Config{}, op)
				req := request("send", "k", "1")
				req.Snapshot = []byte("input")
				b, err := e.Begin(t.Context(), req) // an owner that vanishes
				wantVerdict(t, b, err, idempo.VerdictRun)
				time.Sleep(2 * time.Minute)
				b, err = e.Do(t.Context(), req, l.outside(okResult, nil))
				wantVerdict(t, b, err, c.verdict)
				l.want(t, c.effects)
				if c.verdict == idempo.VerdictInDoubt {
					after, ok := idempo.Retryable(err)
					if !ok || after <= 0 {
						t.Error("a doubt with a probe says when to ask again")
					}
					_, _ = e.Do(t.Context(), req, l.outside(okResult, nil))
					if asked != 1 {
						t.Errorf("asked %d times at once", asked)
					}
					time.Sleep(after)
					_, _ = e.Do(t.Context(), req, l.outside(okResult, nil))
				}
				if want := map[bool]int{true: 2, false: 1}[c.verdict == idempo.VerdictInDoubt]; asked != want {
					t.Errorf("asked %d times, want %d", asked, want)
				}
			})
		})
	}
	t.Run("[stores/E21] a probe that panics, ends its goroutine or hangs finds nothing", func(t *testing.T) {
		for _, f := range []func(ctx context.Context){func(context.Context) { panic(1) }, func(context.Context) { runtime.Goexit() }, func(ctx context.Context) { <-ctx.Done() }} {
			synctest.Test(t, func(t *testing.T) {
				op := idempo.Operation{Name: "send", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe, MaxRun: time.Minute,
					ProbeFunc: func(ctx context.Context, _ idempo.Record) (idempo.State, idempo.Result, error) {
						f(ctx)
						return idempo.StateCompleted, okResult, ctx.Err()
					}}
				e := newEngine(t, idempo.Config{}, op)
				_, _ = e.Begin(t.Context(), request("send", "k", "1"))
				time.Sleep(2 * time.Minute)
				b, err := e.Begin(t.Context(), request("send", "k", "1"))
				wantVerdict(t, b, err, idempo.VerdictInDoubt)
			})
		}
	})
	t.Run("[stores/E21] Run probes what another process left", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			op := idempo.Operation{Name: "send", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe, MaxRun: time.Minute,
				ProbeFunc: func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
					return idempo.StateCompleted, okResult, nil
				}}
			e := engineOn(t, s, idempo.Config{}, op)
			_, _ = e.Begin(t.Context(), request("send", "k", "1"))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(3 * time.Minute)
			rec, err := e.Lookup(t.Context(), idempo.Key{Tenant: "acct_7", Operation: "send", ID: "k"})
			if err != nil || rec.State != idempo.StateCompleted {
				t.Error(rec.State, err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	})
}
