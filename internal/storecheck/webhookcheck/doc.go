// Package webhookcheck kills webhook receivers with SIGKILL at every step of a delivery's way, sends it again as a provider
// would, lets two of them take one delivery at once, and counts receipts and effects outside of them. It has tests only.
package webhookcheck
