package inbox_test

import (
	"context"
	"fmt"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// A broker delivers a message twice, and another one whose handler fails at first.
func Example() {
	ctx := context.Background()
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 random bytes, from your secrets")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing", BackoffBase: 1, BackoffMax: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	full := true
	bill := func(ctx context.Context, m inbox.Message) error {
		if m.ID == "m-2" && full {
			full = false
			return fmt.Errorf("the ledger is full")
		}
		memstore.OnCommit(ctx, func() { fmt.Printf("billed %s\n", m.Body) }) // with SQL: postgres.Tx(ctx).ExecContext …
		return nil
	}
	for _, id := range []string{"m-1", "m-1", "m-2"} {
		out, err := in.Handle(ctx, inbox.Message{Source: "orders", ID: id, Body: []byte("order of " + id), Attempt: 1}, bill)
		fmt.Println(id, out.Status, "acknowledge:", out.Ack && err == nil)
	}
	n, err := in.Once(ctx, bill) // in a service: go in.Work(ctx, bill)
	fmt.Println(n, "tried again", err)
	// Output:
	// billed order of m-1
	// m-1 done acknowledge: true
	// m-1 duplicate acknowledge: true
	// m-2 retrying acknowledge: true
	// billed order of m-2
	// 1 tried again <nil>
}
