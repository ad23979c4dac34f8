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
// What it never promises: that an unsigned delivery id is the sender's own; [ID] says which ids a code covers. Nothing here
// stores or deduplicates.
//
// Layer: adapter.
package webhook
