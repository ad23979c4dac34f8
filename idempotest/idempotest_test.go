package idempotest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/memstore"
)

func operations() []idempo.Operation {
	return []idempo.Operation{{Name: "pay", Guard: idempo.GuardAtomic}, {Name: "send", Guard: idempo.GuardLeased}}
}

func request(op string, n int) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: fmt.Sprint("o-", n)}, Input: [][]byte{[]byte("12 EUR")}}
}

func TestEngineAndLedger(t *testing.T) {
	t.Parallel()
	var ledger idempotest.Ledger
	e := idempotest.Engine(t, memstore.New(memstore.Options{}), operations()...)
	boom := errors.New("boom")
	for _, err := range []error{boom, nil, nil} {
		_, got := e.Do(t.Context(), request("pay", 1), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			ledger.AddOnCommit(ctx, "payment 1")
			ledger.Add("try")
			return idempo.Result{Status: 201}, err
		})
		if !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	ledger.Want(t, "payment 1", 1)
	ledger.Want(t, "try", 2)
	ledger.Want(t, "nothing", 0)
}

// fails is a testing.TB that notes failures.
type fails struct {
	testing.TB
	n int
}

func (f *fails) Errorf(string, ...any) { f.n++ }

func TestWantFails(t *testing.T) {
	t.Parallel()
	var ledger idempotest.Ledger
	ledger.Add("charge")
	f := &fails{TB: t}
	ledger.Want(f, "charge", 1)
	if ledger.Want(f, "charge", 2); f.n != 1 {
		t.Errorf("%d failures, want 1", f.n)
	}
}

func TestSettledProgramPasses(t *testing.T) {
	t.Parallel()
	f := &fails{TB: t}
	n := 0
	idempotest.EveryFault(f, memstore.New(memstore.Options{}), idempo.Config{Operations: operations()}, func(e *idempo.Engine, _ *idempotest.Fault) {
		n++
		_ = idempotest.UntilAnswered(t, func() error {
			_, err := e.Do(t.Context(), request("send", n), func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, nil })
			return err
		})
	})
	if f.n > 0 || n < 5 {
		t.Errorf("%d failures in %d runs of a program that settles its claims", f.n, n)
	}
}

func TestEveryFault(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT30] each call of an atomic and a leased run fails once, before and after", func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		var ledger idempotest.Ledger
		var hit []string
		n := 0
		idempotest.EveryFault(t, s, idempo.Config{Operations: operations()}, func(e *idempo.Engine, fault *idempotest.Fault) {
			n++
			name := fmt.Sprint("payment ", n)
			err := idempotest.UntilAnswered(t, func() error {
				_, err := e.Do(t.Context(), request("pay", n), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
					ledger.AddOnCommit(ctx, name)
					return idempo.Result{Status: 201}, nil
				})
				return err
			})
			if err != nil {
				t.Errorf("%s failed: %v", fault.Op, err)
			}
			ledger.Want(t, name, 1)
			hit = append(hit, fault.Op)
		})
		for _, op := range []string{"tx", "acquire", "complete", ""} {
			if !slices.Contains(hit, op) {
				t.Errorf("no run in which %q failed: %q", op, hit)
			}
		}
	})
}

func TestUntilAnswered(t *testing.T) {
	t.Parallel()
	calls := 0
	final := &idempo.Error{Code: "mismatch"}
	err := idempotest.UntilAnswered(t, func() error {
		if calls++; calls < 3 {
			return &idempo.Error{Code: "unavailable"}
		}
		return final
	})
	if !errors.Is(err, final) || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestAroundHasTransactionsIfTheStoreHas(t *testing.T) {
	t.Parallel()
	pass := func(_ string, call func() error) error { return call() }
	if _, ok := idempotest.Around(memstore.New(memstore.Options{}), pass).(idempo.Transactor); !ok {
		t.Error("transactions are lost")
	}
	if _, ok := idempotest.Around(struct{ idempo.Store }{memstore.New(memstore.Options{})}, pass).(idempo.Transactor); ok {
		t.Error("transactions from nowhere")
	}
}

func Example() {
	store := memstore.New(memstore.Options{})
	engine, err := idempo.New(store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "pay", Guard: idempo.GuardAtomic}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var ledger idempotest.Ledger
	for range 3 {
		b, err := engine.Do(context.Background(), request("pay", 1), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			ledger.AddOnCommit(ctx, "payment")
			return idempo.Result{Status: 201}, nil
		})
		fmt.Println(b.Verdict, b.Record.Result.Status, err)
	}
	fmt.Println("payments:", ledger.Count("payment"))
	// Output:
	// run 201 <nil>
	// replay 201 <nil>
	// replay 201 <nil>
	// payments: 1
}
