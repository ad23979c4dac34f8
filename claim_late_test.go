package idempo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
)

// busyStore says, for its first claims, that an open transaction of nobody known has the key.
type busyStore struct {
	*faulty
	busy   func(try int) bool
	asks   int
	unseen bool // the first claim commits, and its answer is that of the same claim sent again before
}

func (s *busyStore) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	s.asks++
	if s.asks == 1 && s.unseen {
		if a, err := s.faulty.Acquire(ctx, p); err != nil || a.Verdict != idempo.VerdictRun {
			return a, err
		}
	}
	if s.busy(s.asks) || s.asks == 1 && s.unseen {
		return idempo.Acquired{Verdict: idempo.VerdictInProgress, Record: idempo.Record{Key: p.Key, State: idempo.StatePending}, RetryAfter: time.Second}, nil
	}
	return s.faulty.Acquire(ctx, p)
}

// Claims whose answer comes late, or not at all.
func TestLateClaims(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bubble("[stores/L2] the lease counts from when the claim was sent, not from its answer", func(t *testing.T) {
		s := newFaulty()
		s.after = func(op string, _ int) error {
			if op == "acquire" {
				time.Sleep(20 * time.Second)
			}
			return nil
		}
		s.before = func(op string, _ int) error {
			if op == "renew" {
				return away(false)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{AcquireTimeout: time.Minute}, leasedOp)
		start := time.Now()
		b, err := e.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		<-b.Claim.Context().Done()
		if took := time.Since(start); took != 25*time.Second {
			t.Errorf("lost after %v: the lease of 30 s began when the store made it", took)
		}
	})
	bubble("[stores/L2, CT8] an answer that comes after the lease begins nothing, and the key is given back", func(t *testing.T) {
		s := newFaulty()
		s.after = func(op string, n int) error {
			if op == "acquire" && n == 1 {
				time.Sleep(40 * time.Second) // a paused host
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{AcquireTimeout: time.Minute}, leasedOp)
		var l ledger
		_, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		if !errors.Is(err, idempo.ErrUnavailable) {
			t.Errorf("%v, want unavailable", err)
		}
		l.want(t, 0)
		synctest.Wait()
		b, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		l.want(t, 1)
	})
	for name, lost := range map[string]bool{"its answer was lost": true, "the driver sent it twice by itself": false} {
		bubble("[stores/CT15] a claim is not refused by itself: "+name, func(t *testing.T) {
			s := &busyStore{faulty: newFaulty()}
			if lost {
				s.busy = func(try int) bool { return try == 2 || try == 3 }
				s.faulty.after = func(op string, n int) error {
					if op == "acquire" && n == 1 {
						return away(true)
					}
					return nil
				}
			} else {
				s.busy = func(try int) bool { return try == 1 }
			}
			e := engineOn(t, s, idempo.Config{}, leasedOp)
			var l ledger
			b, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
			wantVerdict(t, b, err, idempo.VerdictRun)
			l.want(t, 1)
		})
	}
	bubble("[stores/CT15] a claim that may still have the key is unavailable and unknown, and is given back", func(t *testing.T) {
		s := &busyStore{faulty: newFaulty(), busy: func(try int) bool { return try > 1 && try < 6 }}
		s.faulty.after = func(op string, n int) error {
			if op == "acquire" && n == 1 {
				return away(true)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		var l ledger
		_, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		if !errors.Is(err, idempo.ErrUnavailable) || !idempo.MayHaveHappened(err) {
			t.Errorf("%v, want unavailable and unknown", err)
		}
		l.want(t, 0)
		time.Sleep(time.Second)
		s.busy = func(int) bool { return false }
		b, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		l.want(t, 1)
	})
	bubble("[stores/CT15] a lost answer stays open where every later try is known to have failed, and the key is given back as soon as the store answers", func(t *testing.T) {
		s := newFaulty()
		var gone atomic.Bool
		gone.Store(true)
		s.after = func(op string, n int) error {
			if op == "acquire" && n == 1 {
				return away(true)
			}
			return nil
		}
		s.before = func(op string, n int) error {
			if gone.Load() && (op != "acquire" || n > 1) {
				return away(false)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		var l ledger
		_, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		if !errors.Is(err, idempo.ErrUnavailable) || !idempo.MayHaveHappened(err) {
			t.Errorf("%v, want unavailable and unknown", err)
		}
		l.want(t, 0)
		time.Sleep(10 * time.Minute) // the pauses have grown to their longest
		gone.Store(false)
		_, err = e.Do(t.Context(), request("send", "other", "1"), l.outside(okResult, nil))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b, err := e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		if b.Record.Attempt != 2 {
			t.Errorf("attempt %d: void, the first claim is not there", b.Record.Attempt)
		}
		l.want(t, 2)
	})
	bubble("[stores/E7] a key that somebody unknown has open is asked for three times more, and then in progress", func(t *testing.T) {
		s := &busyStore{faulty: newFaulty(), busy: func(int) bool { return true }}
		e := engineOn(t, s, idempo.Config{}, leasedOp)
		b, err := e.Begin(t.Context(), request("send", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictInProgress)
		if s.asks != 4 {
			t.Errorf("asked %d times", s.asks)
		}
	})
	for name, wait := range map[string]time.Duration{"the next call runs": 0, "the call that waits runs, and keeps its own claim": time.Minute} {
		bubble("[stores/CT15] what the driver sent twice by itself and nobody learnt of is given back: "+name, func(t *testing.T) {
			s := &busyStore{faulty: newFaulty(), busy: func(try int) bool { return try > 1 && try < 6 }, unseen: true}
			e := engineOn(t, s, idempo.Config{}, leasedOp)
			var l ledger
			r := request("send", "k", "1")
			r.Wait = wait
			b, err := e.Do(t.Context(), r, l.outside(okResult, nil))
			if wait == 0 {
				if !errors.Is(err, idempo.ErrInProgress) {
					t.Errorf("%q %v, want in progress", b.Verdict, err)
				}
				l.want(t, 0)
				time.Sleep(time.Second) // less than the lease
				b, err = e.Do(t.Context(), r, l.outside(okResult, nil))
			}
			wantVerdict(t, b, err, idempo.VerdictRun)
			l.want(t, 1)
			time.Sleep(time.Second)
			b, err = e.Do(t.Context(), request("send", "k", "1"), l.outside(okResult, nil))
			wantVerdict(t, b, err, idempo.VerdictReplay)
			l.want(t, 1)
		})
	}
}
