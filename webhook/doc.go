// Package webhook proves who sent an HTTP callback, and tells its events, their ids, lanes and versions apart.
//
// A [Profile] describes a provider as data: where its code stands, what is signed, how a time is signed, what identifies an
// event. [Providers] lists those that are built in; a scheme of one's own is another Profile. A [Source] is one configured
// endpoint: a provider, its secrets, and what differs from the profile. [NewVerifier] checks it, says everything that is
// wrong with it at once, and gives a [Verifier].
//
//	v, err := webhook.NewVerifier(webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromEnv("2026a", "GH_HOOK")}})
//	verdict, err := webhook.Verify(v, webhook.RequestOf(r, body), time.Now())
//
// [Verify] works on the bytes as they were received and needs no store; [Accept] also answers handshakes and splits the
// body into events. [Sign] makes what a provider would send, for tests; [Explain] says why a request was refused, without
// a secret or an expected code.
//
// [New] makes a [Receiver] of sources and an engine: the keys that tell a repetition and one inbox entry for each new event
// are committed in one transaction before 2xx leaves, and [Receiver.Run] runs each event once, in order within its lane:
// by a handler, or by sending it on ([Forward]).
// Dedup is the engine's alone (operation "webhook:" + source for what arrives, the inbox of that name for what runs).
//
// What it never promises: that an unsigned delivery id is the sender's own ([ID] says which ids a code covers; an unknown
// one over known bytes is parked); that an event runs exactly once: it has one effect for as long as its keys are kept.
//
// The way of a request: serve.go, verify.go and the file of its family, accept.go, delivery.go, ingest.go; later the inbox.
//
// Layer: adapter.
package webhook
