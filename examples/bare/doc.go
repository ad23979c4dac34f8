// Bare is a payments service that knows nothing of idempo: every POST makes a payment. It is what README puts behind the
// gateway.
//
//	go run ./examples/bare
package main
