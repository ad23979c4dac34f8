package idempo_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
)

func TestDuplicatesInOneProcess(t *testing.T) {
	t.Parallel()
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		op := idempo.Operation{Name: "pay", Guard: guard}
		t.Run("[stores/L7] one leader, no store call for the rest, one stored answer: "+string(guard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				e := engineOn(t, s, idempo.Config{Wait: 10 * time.Second}, op)
				var runs, replays, runVerdicts atomic.Int64
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						b, err := e.Do(t.Context(), request("pay", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
							runs.Add(1)
							time.Sleep(time.Second)
							return okResult, nil
						})
						switch {
						case err != nil || !b.Record.Result.Equal(okResult):
							t.Error(b.Verdict, err)
						case b.Verdict == idempo.VerdictRun:
							runVerdicts.Add(1)
						case b.Verdict == idempo.VerdictReplay:
							replays.Add(1)
						}
					})
				}
				wg.Wait()
				if runs.Load() != 1 || runVerdicts.Load() != 1 || replays.Load() != 49 || s.count("acquire") != 1 || s.count("lookup") != 0 {
					t.Errorf("%d runs, %d replays, calls %v", runs.Load(), replays.Load(), s.calls)
				}
			})
		})
		t.Run("[stores/L7] without a wait they are told at once, and other input is a mismatch: "+string(guard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaulty()
				e := engineOn(t, s, idempo.Config{}, op)
				_, err := e.Do(t.Context(), request("pay", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
					calls := s.total()
					time.Sleep(8 * time.Second)
					b, err := e.Do(context.Background(), request("pay", "k", "1"), nil)
					wantVerdict(t, b, err, idempo.VerdictInProgress)
					if b.RetryAfter != 4*time.Second {
						t.Errorf("[stores/E7] retry after %v, want half the age", b.RetryAfter)
					}
					b, err = e.Do(context.Background(), request("pay", "k", "2"), nil)
					wantVerdict(t, b, err, idempo.VerdictMismatch)
					if guard == idempo.GuardAtomic && s.total() != calls {
						t.Errorf("%d store calls for duplicates", s.total()-calls)
					}
					return okResult, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		})
		t.Run("[stores/L7] a leader that gives up or panics frees them: exactly one claims anew: "+string(guard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := op
				if guard == idempo.GuardLeased {
					op.StartMark = true // nothing started: the key is free at once
				}
				e := newEngine(t, idempo.Config{Wait: time.Minute}, op)
				var runs, won atomic.Int64
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						defer func() { _ = recover() }()
						b, err := e.Do(t.Context(), request("pay", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
							n := runs.Add(1)
							time.Sleep(time.Second)
							if n == 1 {
								panic("the first one dies")
							}
							return okResult, nil
						})
						if err == nil && b.Verdict == idempo.VerdictRun {
							won.Add(1)
						}
					})
				}
				wg.Wait()
				if runs.Load() != 2 || won.Load() != 1 {
					t.Errorf("%d runs, %d won", runs.Load(), won.Load())
				}
			})
		})
	}
	t.Run("[stores/L8] over MaxWaiters they are told it is in progress; a waiter's end disturbs nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, idempo.Config{Wait: time.Minute, MaxWaiters: 3}, atomicOp)
			var busy, replay, ended atomic.Int64
			var wg sync.WaitGroup
			wg.Go(func() {
				_, _ = e.Do(t.Context(), request("pay", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
					time.Sleep(5 * time.Second)
					return okResult, nil
				})
			})
			synctest.Wait()
			for i := range 5 {
				ctx, cancel := context.WithCancel(t.Context())
				if i == 0 {
					time.AfterFunc(time.Second, cancel)
				}
				defer cancel()
				wg.Go(func() {
					b, err := e.Do(ctx, request("pay", "k", "1"), nil)
					switch {
					case b.Verdict == idempo.VerdictInProgress:
						busy.Add(1)
					case b.Verdict == idempo.VerdictReplay:
						replay.Add(1)
					case err != nil:
						ended.Add(1)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			if busy.Load() != 2 || replay.Load() != 2 || ended.Load() != 1 {
				t.Errorf("%d busy, %d replay, %d ended", busy.Load(), replay.Load(), ended.Load())
			}
		})
	})
}

func TestDuplicatesOfAnAnswer(t *testing.T) {
	t.Parallel()
	t.Run("[stores/L7] while the leader only reads, its answer is everybody's, without a wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			e := engineOn(t, s, idempo.Config{}, atomicOp, leasedOp)
			for _, op := range []string{"pay", "send"} {
				if _, err := e.Do(t.Context(), request(op, "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) { return okResult, nil }); err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				s.before = func(string, int) error {
					time.Sleep(100 * time.Millisecond)
					return nil
				}
				s.mu.Unlock()
				before := s.total()
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						b, err := e.Do(t.Context(), request(op, "k", "1"), nil)
						if err != nil || b.Verdict != idempo.VerdictReplay || !b.Record.Result.Equal(okResult) {
							t.Error(b.Verdict, err)
						}
					})
				}
				wg.Wait()
				if n := s.total() - before; n != 1 {
					t.Errorf("%d store calls", n)
				}
			}
		})
	})
	t.Run("[stores/L8] while the leader waits for another process, who does not wait is told at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			owner, other := engineOn(t, s, idempo.Config{}, leasedOp), engineOn(t, s, idempo.Config{}, leasedOp)
			_, _ = owner.Begin(t.Context(), request("send", "k", "1"))
			var wg sync.WaitGroup
			wg.Go(func() {
				req := request("send", "k", "1")
				req.Wait = 20 * time.Second
				_, _ = other.Begin(t.Context(), req)
			})
			time.Sleep(time.Second)
			start := time.Now()
			b, err := other.Begin(t.Context(), request("send", "k", "1"))
			wantVerdict(t, b, err, idempo.VerdictInProgress)
			if d := time.Since(start); d != 0 {
				t.Errorf("told after %v", d)
			}
			wg.Wait()
			owner.Drain(contextOver(t))
		})
	})
}

func TestWaitForAnotherProcess(t *testing.T) {
	t.Parallel()
	t.Run("[stores/L8] one poller per key, 25 ms growing to 250 ms, then the result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			owner := engineOn(t, s, idempo.Config{}, leasedOp)
			other := engineOn(t, s, idempo.Config{Wait: 30 * time.Second}, leasedOp)
			b, err := owner.Begin(t.Context(), request("send", "k", "1"))
			wantVerdict(t, b, err, idempo.VerdictRun)
			before := s.count("acquire")
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					b, err := other.Begin(t.Context(), request("send", "k", "1"))
					if err != nil || b.Verdict != idempo.VerdictReplay {
						t.Error(b.Verdict, err)
					}
				})
			}
			time.Sleep(10 * time.Second)
			polls := s.count("acquire") - before
			if polls < 30 || polls > 60 {
				t.Errorf("%d polls of 20 waiters in 10 s", polls)
			}
			if err := b.Claim.Complete(t.Context(), okResult); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
		})
	})
	t.Run("[stores/L8] the time is over: in progress", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newFaulty()
			owner := engineOn(t, s, idempo.Config{}, leasedOp)
			other := engineOn(t, s, idempo.Config{}, leasedOp)
			_, _ = owner.Begin(t.Context(), request("send", "k", "1"))
			start := time.Now()
			req := request("send", "k", "1")
			req.Wait = 2 * time.Second
			b, err := other.Begin(t.Context(), req)
			wantVerdict(t, b, err, idempo.VerdictInProgress)
			if d := time.Since(start); d < 2*time.Second || d > 2500*time.Millisecond {
				t.Errorf("waited %v", d)
			}
			owner.Drain(contextOver(t))
		})
	})
}
