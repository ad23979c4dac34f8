package idempo_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func TestAtomicDo(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	t.Run("[stores/E8] an error rolls back, is known to have done nothing, and the retry runs", func(t *testing.T) {
		var l ledger
		e := newEngine(t, idempo.Config{}, atomicOp)
		_, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(idempo.Result{}, boom))
		if !errors.Is(err, boom) || idempo.MayHaveHappened(err) {
			t.Fatal(err)
		}
		l.want(t, 0)
		b, err := e.Do(t.Context(), request("pay", "k", "other body: nothing was kept"), l.local(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		l.want(t, 1)
	})
	t.Run("[stores/E8] a panic and a Goexit roll back and go on", func(t *testing.T) {
		var l ledger
		e := newEngine(t, idempo.Config{}, atomicOp)
		var wg sync.WaitGroup
		for i, stop := range []func(){func() { panic(boom) }, runtime.Goexit} {
			var got any
			returned := false
			wg.Go(func() {
				defer func() { got = recover() }()
				_, _ = e.Do(t.Context(), request("pay", "k", "1"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
					memstore.OnCommit(ctx, func() { l.n.Add(1) })
					stop()
					return okResult, nil
				})
				returned = true
			})
			wg.Wait()
			if returned || i == 0 && got != error(boom) {
				t.Fatalf("stop %d: returned %v, recovered %v", i, returned, got)
			}
		}
		l.want(t, 0)
		b, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		l.want(t, 1)
	})
	t.Run("[stores/E8] a failing result undoes the effects and is answered again", func(t *testing.T) {
		var l ledger
		e := newEngine(t, idempo.Config{}, atomicOp)
		declined := idempo.Result{Status: 422, Failing: true, Body: []byte("no")}
		for i, want := range []idempo.Verdict{idempo.VerdictRun, idempo.VerdictReplay} {
			b, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(declined, nil))
			wantVerdict(t, b, err, want)
			if err != nil || !b.Record.Result.Equal(declined) {
				t.Errorf("call %d: %+v, %v", i, b.Record.Result, err)
			}
		}
		l.want(t, 0)
	})
	t.Run("[stores/E10] in the caller's own transaction nothing is committed or undone", func(t *testing.T) {
		var l ledger
		s := memstore.New(memstore.Options{})
		e := engineOn(t, s, idempo.Config{}, atomicOp)
		ctx, tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := e.Do(ctx, request("pay", "k", "1"), l.local(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		tx.Rollback()
		l.want(t, 0)
		ctx, tx, _ = s.Begin(t.Context())
		b, err = e.Begin(ctx, request("pay", "k", "1"))
		wantVerdict(t, b, err, idempo.VerdictRun)
		memstore.OnCommit(ctx, func() { l.n.Add(1) })
		if err := errors.Join(b.Claim.Complete(ctx, okResult), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		l.want(t, 1)
		b, err = e.Do(t.Context(), request("pay", "k", "1"), l.local(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictReplay)
	})
	t.Run("[stores/E4] a guard in the wrong place is misuse without a store call", func(t *testing.T) {
		s := newFaulty()
		e := engineOn(t, s, idempo.Config{}, atomicOp, leasedOp)
		_, err := e.Begin(t.Context(), request("pay", "k", "1"))
		wantCode(t, err, "misuse")
		ctx, tx, _ := s.Begin(t.Context())
		defer tx.Rollback()
		_, err = e.Begin(ctx, request("send", "k", "1"))
		wantCode(t, err, "misuse")
		_, err = e.Begin(t.Context(), request("nobody", "k", "1"))
		wantCode(t, err, "misuse")
		if s.total() != 0 {
			t.Errorf("%d store calls", s.total())
		}
	})
	t.Run("[stores/E4, E20] a key begun inside its own claim is nested", func(t *testing.T) {
		s := newFaulty()
		e := engineOn(t, s, idempo.Config{}, atomicOp)
		_, err := e.Do(t.Context(), request("pay", "k", "1"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			before := s.total()
			_, err := e.Do(ctx, request("pay", "k", "1"), nil)
			wantCode(t, err, "nested")
			if s.total() != before {
				t.Error("nested cost a store call")
			}
			return okResult, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"acquire", "complete", "tx"} {
		t.Run("[stores/E13] a conflict at "+op+" runs the whole work again", func(t *testing.T) {
			t.Parallel()
			var l ledger
			s := newFaulty()
			s.before = func(o string, n int) error {
				if o == op && n <= 2 {
					return conflict()
				}
				return nil
			}
			e := engineOn(t, s, idempo.Config{}, atomicOp)
			b, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(okResult, nil))
			wantVerdict(t, b, err, idempo.VerdictRun)
			if err != nil {
				t.Fatal(err)
			}
			l.want(t, 1)
		})
	}
	t.Run("[stores/E13] after TxRetries it is unavailable and nothing was done", func(t *testing.T) {
		t.Parallel()
		var l ledger
		s := newFaulty()
		s.before = func(o string, _ int) error {
			if o == "complete" {
				return conflict()
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{TxRetries: 2}, atomicOp)
		_, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(okResult, nil))
		if !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) || s.count("complete") != 3 {
			t.Fatal(err, s.count("complete"))
		}
		l.want(t, 0)
	})
	t.Run("[stores/E13] the work's own errors are not taken for the transaction's", func(t *testing.T) {
		t.Parallel()
		e := newEngine(t, idempo.Config{}, atomicOp)
		runs := 0
		for _, err := range []error{away(true), fmt.Errorf("inner: %w", idempo.ErrLeaseLost), &idempo.Error{Code: "lease_lost"}} {
			_, got := e.Do(t.Context(), request("pay", "k", "1"), func(context.Context, *idempo.Claim) (idempo.Result, error) {
				runs++
				return idempo.Result{}, err
			})
			if !errors.Is(got, err) && got.Error() != err.Error() || idempo.MayHaveHappened(got) {
				t.Errorf("%v became %v", err, got)
			}
		}
		if runs != 3 {
			t.Errorf("%d runs, want 3", runs)
		}
	})
}

func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	lose := func(s *faulty, times int) {
		s.after = func(op string, n int) error {
			if op == "tx" && n <= times {
				return away(true)
			}
			return nil
		}
	}
	t.Run("[stores/CT12] it happened: own token recognised, the work ran once", func(t *testing.T) {
		var l ledger
		s := newFaulty()
		lose(s, 1)
		e := engineOn(t, s, idempo.Config{}, atomicOp)
		runs := 0
		b, err := e.Do(t.Context(), request("pay", "k", "1"), func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
			runs++
			return l.local(okResult, nil)(ctx, c)
		})
		wantVerdict(t, b, err, idempo.VerdictRun)
		if err != nil || runs != 1 || !b.Record.Result.Equal(okResult) {
			t.Fatal(err, runs, b.Record.Result)
		}
		l.want(t, 1)
	})
	t.Run("[stores/CT11] it did not happen: rolled back, run again", func(t *testing.T) {
		var l ledger
		s := newFaulty()
		s.before = func(op string, n int) error {
			if op == "tx" && n == 1 {
				return away(true)
			}
			return nil
		}
		e := engineOn(t, s, idempo.Config{}, atomicOp)
		b, err := e.Do(t.Context(), request("pay", "k", "1"), l.local(okResult, nil))
		wantVerdict(t, b, err, idempo.VerdictRun)
		if err != nil {
			t.Fatal(err)
		}
		l.want(t, 1)
	})
	t.Run("[stores/E20] several claims in one transaction are settled together", func(t *testing.T) {
		var l ledger
		s := newFaulty()
		lose(s, 1)
		e := engineOn(t, s, idempo.Config{}, atomicOp)
		runs := 0
		err := e.InTx(t.Context(), func(ctx context.Context) error {
			runs++
			memstore.OnCommit(ctx, func() { l.n.Add(1) })
			for _, id := range []string{"a", "b"} {
				b, err := e.Begin(ctx, request("pay", id, "1"))
				if err != nil || b.Claim == nil {
					return fmt.Errorf("%s: %v %v", id, b.Verdict, err)
				}
				if err := b.Claim.Complete(ctx, okResult); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || runs != 1 {
			t.Fatal(err, runs)
		}
		l.want(t, 1)
	})
	t.Run("[stores/E20] a claim left open rolls everything back", func(t *testing.T) {
		var l ledger
		e := newEngine(t, idempo.Config{}, atomicOp)
		err := e.InTx(t.Context(), func(ctx context.Context) error {
			memstore.OnCommit(ctx, func() { l.n.Add(1) })
			_, err := e.Begin(ctx, request("pay", "a", "1"))
			return err
		})
		wantCode(t, err, "misuse")
		l.want(t, 0)
	})
}
