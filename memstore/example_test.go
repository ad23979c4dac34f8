package memstore_test

import (
	"context"
	"fmt"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func Example() {
	store := memstore.New(memstore.Options{})
	engine, err := idempo.New(store, idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "create-order", Guard: idempo.GuardAtomic}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := 0
	req := idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: "create-order", ID: "o-123"}, Input: [][]byte{[]byte(`{"amount":12}`)}}
	for range 2 {
		b, err := engine.Do(context.Background(), req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			memstore.OnCommit(ctx, func() { orders++ })
			return idempo.Result{Status: 201, Body: []byte(`{"id":9}`)}, nil
		})
		fmt.Printf("%s %d %s %v\n", b.Verdict, b.Record.Result.Status, b.Record.Result.Body, err)
	}
	fmt.Println("orders:", orders)
	// Output:
	// run 201 {"id":9} <nil>
	// replay 201 {"id":9} <nil>
	// orders: 1
}
