// Package idemhttp guards HTTP handlers: a request that carries an idempotency key has one effect, and every retry gets the
// first answer again.
//
// One request becomes one claim. The key comes from a header, the body, the query or the path, as [Rules] say; a keyed
// fingerprint of the normalised request is kept beside it, so that a key used for another request is refused instead of
// answered with a stranger's result. Where the effect is in the same database as the records, claim, effect and answer
// commit together; elsewhere the effect runs under a lease.
//
// The package never promises "exactly once". It says which requests are the same, for how long the answer is kept, and which
// outcomes nobody can know.
//
// # Keys
//
// A key may stand quoted (an RFC 9651 String) or bare; both spellings are one key. Nothing is folded or decoded, and anything
// that could be read in two ways is refused: a key cut short would merge two intents. [ParseKey] and [FormatKey] are the
// same reading for callers.
//
// # Fingerprints
//
// Two requests are the same when method, path, query, media type, the named headers and the body are. Bodies in JSON, forms
// and multipart are compared by what they say, not by how they are spelled; a body that could be read in two ways counts byte
// by byte. The recipe has a number, and each record carries the recipe it was made with.
//
// # Guarding a handler
//
//	m, err := idemhttp.New(engine, idemhttp.Config{TenantFunc: account})
//	h, err := m.Wrap(idempo.Operation{Name: "create-payment", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, http.HandlerFunc(create))
//	mux.Handle("POST /v1/payments", authenticate(h)) // recover → authenticate → compress → guard → handler
//
// The handler's answer waits in a recorder until its result is stored; then it leaves. A retry gets the same status, the same
// bytes and the headers that belong to the answer. In an atomic operation the handler works in the claim's transaction, found by
// the store's accessor in the request's context; a 4xx undoes its writes and is kept, a 5xx leaves nothing. Under a lease a 5xx
// means that nobody knows what happened: the key is in doubt until something proves it. [SetOutcome] and Rules.Outcomes say
// otherwise where you know better.
//
// The handler runs on a context that the client cannot end. It must be repeatable until it returns: after a serialization failure
// it is called again with the buffered request and a new writer.
//
// Every answer to a keyed request says in Idempotency-Status what became of it; what idempo answers itself is a [Problem].
//
// Layer: adapter. It imports the root package and the standard library.
package idemhttp
