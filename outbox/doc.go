// Package outbox publishes what was committed: every event of a committed transaction goes to the broker, none of one
// that was rolled back.
//
// An event is appended in the transaction of the change that it tells of, and a relay publishes it afterwards. A repeat
// carries the same id; events of one key go out in the order in which their transactions held the key. The promise is
// at-least-once delivery with stable ids, never "exactly once": package inbox absorbs the repeats.
//
//	box, err := outbox.New(store, outbox.Options{Source: "/shop/orders"})
//	err = box.Do(ctx, func(ctx context.Context) error {                 // begin, run, commit, wake the relay
//		if err := pay(ctx, postgres.Tx(ctx), id); err != nil {
//			return err
//		}
//		_, err := box.Append(ctx, outbox.Event{Topic: "orders.paid", Key: id, Type: "OrderPaid", Payload: body})
//		return err
//	})
//
//	relay, err := outbox.NewRelay(store, publisher, outbox.RelayOptions{}) // in as many processes as you like
//	err = relay.Run(ctx)                                                   // until ctx ends
//
// The log is append-only and no row is touched per event: a relay leases partitions of the keys, reads pages behind a
// cursor, publishes many at once and stores how far everything before is done. An event that fails leaves the log's way:
// it is set aside with its key, tried again with backoff, and at last dead; the other keys go on.
//
// The way of an event: event.go (its rules), append.go, then a store (store.go says what it owes); relay.go and the
// relay_*.go beside it, publisher.go (what a broker owes). desk.go is what operators see and change.
//
// Layer: domain. It imports the root package and the standard library without network, database and processes.
package outbox
