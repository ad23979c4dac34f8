// Package httppublish publishes the events of an outbox to HTTP targets: one POST for each event, a CloudEvent in binary
// mode with the event's id as idempotency key, signed by Standard Webhooks if you like.
//
//	publisher, err := httppublish.New(httppublish.Options{URL: "https://erp.example/in"})
//	relay, err := outbox.NewRelay(store, publisher, outbox.RelayOptions{})
//
// Targets are judged each time they are dialled: private, loopback and link-local networks are refused unless
// Options.Allow names them; no proxy of the environment is used and no redirect followed.
//
// Layer: adapter.
package httppublish
