// Package outboxcheck kills relays in processes of their own at every step, and counts what they published in a table that no relay
// reads: nothing is lost, what comes again has the same id, and the first appearances of a key are in order.
package outboxcheck
