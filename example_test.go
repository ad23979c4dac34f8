package idempo_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func exampleEngine(ops ...idempo.Operation) *idempo.Engine {
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 random bytes from a secret.…")}},
		Operations: ops,
	})
	if err != nil {
		panic(err)
	}
	return engine
}

// One intent, sent three times: it runs once, and everybody gets the same answer.
func ExampleEngine_Do() {
	engine := exampleEngine(idempo.Operation{Name: "create-order", Guard: idempo.GuardAtomic})
	req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "create-order", ID: "o-123"}, Input: [][]byte{[]byte(`{"amount":12}`)}}
	orders := 0
	for range 3 {
		b, err := engine.Do(context.Background(), req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			memstore.OnCommit(ctx, func() { orders++ }) // with a database: insert in postgres.Tx(ctx)
			return idempo.Result{Status: 201, Body: []byte(`{"id":9}`)}, nil
		})
		fmt.Println(b.Verdict, string(b.Record.Result.Body), err)
	}
	req.Input = [][]byte{[]byte(`{"amount":99}`)}
	_, err := engine.Do(context.Background(), req, nil)
	fmt.Println(errors.Is(err, idempo.ErrMismatch), orders)
	// Output:
	// run {"id":9} <nil>
	// replay {"id":9} <nil>
	// replay {"id":9} <nil>
	// true 1
}

// A leased claim: the effect happens outside of the database, under a lease.
func ExampleEngine_Begin() {
	engine := exampleEngine(idempo.Operation{Name: "send-parcel", Guard: idempo.GuardLeased})
	req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "send-parcel", ID: "p-1"}}
	b, err := engine.Begin(context.Background(), req)
	if err != nil || b.Verdict != idempo.VerdictRun {
		return
	}
	// call the carrier with b.Claim.Derive("") as its idempotency key, then:
	err = b.Claim.Complete(context.Background(), idempo.Result{Status: 200, Resource: idempo.Resource{Type: "parcel", ID: "77"}})
	again, _ := engine.Begin(context.Background(), req)
	fmt.Println(err, again.Verdict, again.Record.Result.Resource.ID)
	// Output: <nil> replay 77
}

// Two keys and one effect in one transaction: all of it, or nothing.
func ExampleEngine_InTx() {
	engine := exampleEngine(idempo.Operation{Name: "import-line", Guard: idempo.GuardAtomic})
	err := engine.InTx(context.Background(), func(ctx context.Context) error {
		for _, id := range []string{"line-1", "line-2"} {
			b, err := engine.Begin(ctx, idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "import-line", ID: id}})
			if err != nil || b.Verdict != idempo.VerdictRun {
				return err
			}
			if err := b.Claim.Complete(ctx, idempo.Result{Status: 200}); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
}

// What nobody can prove is in doubt; what is known to have done nothing may run again.
func ExampleNothingHappened() {
	engine := exampleEngine(idempo.Operation{Name: "charge", Guard: idempo.GuardLeased})
	try := func(id string, failure error) idempo.Verdict {
		req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "charge", ID: id}}
		work := func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, failure }
		_, _ = engine.Do(context.Background(), req, work)
		b, _ := engine.Do(context.Background(), req, work)
		return b.Verdict
	}
	fmt.Println(try("a", idempo.NothingHappened(errors.New("connection refused"))))
	fmt.Println(try("b", errors.New("connection reset while waiting for the answer")))
	// Output:
	// run
	// in_doubt
}

func ExampleDeriveKey() {
	// tenant, operation, id, step path, role, generation, label
	fmt.Println(idempo.DeriveKey("acct_7", "create-order", "o-123", "", "forward", "1", ""))
	// Output: 6be8f39f-c03c-4adc-b47a-d559a3522431
}
