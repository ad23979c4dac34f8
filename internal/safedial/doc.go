// Package safedial is the one guard for connections whose target somebody else chose: forwarded webhooks, published
// events, fetched key sets and certificates, authentication endpoints.
//
// It judges the resolved address, at every dial, and dials exactly what it judged: a name that pointed to a public
// address a moment ago and now points to a private one is refused. Public unicast addresses on ports 80 and 443 are
// allowed; other networks and ports must be named. The metadata services of clouds stay out of reach even then.
//
// What it never promises: that an allowed address is harmless, or that what answers there is who it claims to be; the
// latter is TLS's work, which [NewClient] leaves on.
//
//	client := safedial.NewClient(safedial.Options{Timeout: 5 * time.Second})
//	res, err := client.Get("https://keys.example/jwks.json") // no redirect, no proxy, at most 64 KiB
//
// Layer: adapter.
package safedial
