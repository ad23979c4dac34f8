package around_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/around"
	"github.com/idempo/idempo/memstore"
)

func TestFault(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		s := memstore.New(memstore.Options{})
		f := &around.Fault{N: 2, After: after}
		a := around.Store(s, f.Through)
		p := idempo.AcquireParams{Key: idempo.Key{Tenant: "t", Operation: "o", ID: "12345678901234567890123456789012"}, Guard: idempo.GuardLeased,
			OnCrash: idempo.OnCrashHold, Token: idempo.Token{1}, Lease: 30e9}
		if _, err := a.Acquire(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		_, err := a.Release(t.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateFailed, Retention: 30e9})
		if !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) != after || f.Op != "release" {
			t.Errorf("after %t: %v at %q", after, err, f.Op)
		}
		r, err := a.Lookup(t.Context(), idempo.LookupParams{Key: p.Key})
		if err != nil || (r.State == idempo.StateFailed) != after {
			t.Errorf("after %t: %s %v", after, r.State, err)
		}
	}
}

func TestEveryCallPasses(t *testing.T) {
	t.Parallel()
	var ops []string
	a := around.Store(memstore.New(memstore.Options{}), func(op string, call func() error) error {
		ops = append(ops, op)
		return call()
	})
	k := idempo.Key{Tenant: "t", Operation: "o", ID: "12345678901234567890123456789012"}
	_, _ = a.Acquire(t.Context(), idempo.AcquireParams{Key: k})
	_, _ = a.Renew(t.Context(), idempo.RenewParams{Key: k})
	_, _ = a.Complete(t.Context(), idempo.CompleteParams{Key: k})
	_, _ = a.Release(t.Context(), idempo.ReleaseParams{Key: k, To: idempo.StateFailed})
	_, _ = a.Release(t.Context(), idempo.ReleaseParams{Key: k, To: idempo.StateIssued})
	_, _ = a.Lookup(t.Context(), idempo.LookupParams{Key: k})
	_ = a.(idempo.Transactor).InTx(t.Context(), func(context.Context) error { return nil })
	if want := []string{"acquire", "renew", "complete", "release", "forget", "lookup", "tx"}; !slices.Equal(ops, want) {
		t.Errorf("%q, want %q", ops, want)
	}
	if _, ok := around.Store(struct{ idempo.Store }{a}, nil).(idempo.Transactor); ok {
		t.Error("transactions from nowhere")
	}
}
