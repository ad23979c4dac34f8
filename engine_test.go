package idempo_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
)

func TestDo(t *testing.T) {
	t.Parallel()
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		t.Run(string(guard), func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "pay", Guard: guard})
			effects := 0
			work := func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
				if idempo.FromContext(ctx) != c {
					t.Error("the claim is not in its context")
				}
				effects++
				return idempo.Result{Status: 201, Header: [][2]string{{"A", "b"}}, Body: []byte("made"), Resource: idempo.Resource{Type: "p", ID: "1"}}, nil
			}
			b, err := e.Do(t.Context(), request("pay", "k1", "12"), work)
			if err != nil || b.Verdict != idempo.VerdictRun || effects != 1 {
				t.Fatalf("first: %v %v, %d effects", b.Verdict, err, effects)
			}
			for range 3 {
				b, err = e.Do(t.Context(), request("pay", "k1", "12"), work)
				if err != nil || b.Verdict != idempo.VerdictReplay || !bytes.Equal(b.Record.Result.Body, []byte("made")) || b.Record.Result.Status != 201 {
					t.Fatalf("again: %v %v %+v", b.Verdict, err, b.Record)
				}
			}
			b, err = e.Do(t.Context(), request("pay", "k1", "13"), work)
			if !errors.Is(err, idempo.ErrMismatch) || b.Record.Result.Body != nil || effects != 1 {
				t.Fatalf("other body: %v %v, %d effects", b.Verdict, err, effects)
			}
		})
	}
}

func TestLeaseIsRenewedAndLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, idempo.Config{}, idempo.Operation{Name: "send", Guard: idempo.GuardLeased})
		b, err := e.Begin(t.Context(), request("send", "k1", "12"))
		if err != nil || b.Claim == nil {
			t.Fatal(b.Verdict, err)
		}
		time.Sleep(5 * time.Minute)
		if b.Claim.Context().Err() != nil {
			t.Fatal("lost although renewed")
		}
		if b2, err := e.Begin(t.Context(), request("send", "k1", "12")); err != nil || b2.Verdict != idempo.VerdictInProgress {
			t.Fatal(b2.Verdict, err)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if b.Claim.Context().Err() == nil {
			t.Fatal("MaxRun is over and the context goes on")
		}
		if b2, err := e.Begin(t.Context(), request("send", "k1", "12")); err != nil || b2.Verdict != idempo.VerdictInDoubt {
			t.Fatal(b2.Verdict, err)
		}
		if err := b.Claim.Complete(t.Context(), idempo.Result{Status: 200}); err != nil {
			t.Fatal("late truth counts:", err)
		}
		if b2, err := e.Begin(t.Context(), request("send", "k1", "12")); err != nil || b2.Verdict != idempo.VerdictReplay {
			t.Fatal(b2.Verdict, err)
		}
	})
}
