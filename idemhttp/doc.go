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
// Layer: adapter. It imports the root package and the standard library.
package idemhttp
