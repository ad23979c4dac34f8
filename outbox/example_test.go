package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/outbox"
)

// region: publisher

// printer publishes to the terminal.
type printer struct{}

// Publish says of each event what became of it. A real one says so when the broker has confirmed it.
func (printer) Publish(_ context.Context, p outbox.PublishParams) {
	for i, d := range p.Events {
		fmt.Printf("%s %s: %s\n", d.Topic, d.Key, d.Payload)
		p.Done(i, nil)
	}
}

// end: publisher

// region: outbox

func sell(ctx context.Context, box *outbox.Outbox, order string, stock int) error {
	return box.Do(ctx, func(ctx context.Context) error { // begin, run, commit, wake the relays
		// … what the order does to the database, in the transaction of ctx …
		_, err := box.Append(ctx, outbox.Event{Topic: "orders.placed", Key: order, Type: "OrderPlaced", Payload: []byte("placed")})
		if err == nil && stock == 0 {
			err = errors.New("sold out") // rolls back, and the event with it
		}
		return err
	})
}

// end: outbox

// Two orders, one of which is rolled back.
func Example() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{})
	box, err := outbox.New(store, outbox.Options{Source: "/shop/orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sell(ctx, box, "o-81", 5))
	fmt.Println(sell(ctx, box, "o-82", 0))
	relay, err := outbox.NewRelay(store, printer{}, outbox.RelayOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	left, err := relay.Once(ctx) // a service calls relay.Run
	fmt.Println(left, err)
	// Output:
	// <nil>
	// sold out
	// orders.placed o-81: placed
	// {0 0} <nil>
}
