// Package realcheck puts the gateway, as people run it, before a service that nobody here wrote: PocketBase, in a process
// of its own, with an open collection of orders. Many clients create a record each, send every request several times,
// answers are cut on both sides of the gateway, and the gateway is killed and started again. Then the records are counted
// where they are.
//
// It holds tests only, in a module of its own, so that PocketBase is linked into nothing else.
package realcheck
