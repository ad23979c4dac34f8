// Package inbox consumes messages so that each has one effect, however often the broker delivers it.
//
// A message is claimed by (subscriber, source, id); claim, effect and completion are one transaction of the application's
// own database, and only then is the message acknowledged. A crash before the commit lets the redelivery run, one after
// it makes the redelivery a duplicate. The promise is at-least-once delivery with one effect per identity for as long as
// the inbox remembers it (Retention + Tombstone), never "exactly once".
//
//	in, err := inbox.New(engine, inbox.Options{Subscriber: "billing"})
//	go in.Work(ctx, bill) // runs what was stored for later
//	out, err := in.Handle(ctx, inbox.Message{Source: d.Queue, ID: d.MessageID, Body: d.Body}, bill)
//	if err == nil && out.Ack {
//		return d.Ack()
//	}
//	return d.Nack(max(out.RetryIn, time.Second)) // nothing decided (store away, shutting down), or running elsewhere
//
// A message that fails leaves the broker: it is stored as a receipt, acknowledged, tried again with backoff by Work, and
// at last dead. One that cannot even be started (no id, other body under a known id, unreadable) is parked. Both wait for
// a person: Inbox.Find, Retry, Release and Discard.
//
// Dedup is the engine's alone (Engine.Begin, Claim.Complete). What the package adds are receipts and lanes, which a store
// offers through Opener. The way of a message: identity.go, handle.go, transact.go, settle.go; later work.go.
//
// Layer: domain. It imports the root package and the standard library without network, database and processes.
package inbox
