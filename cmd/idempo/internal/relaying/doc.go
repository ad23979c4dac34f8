// Package relaying keeps relays alive: it opens their stores and destinations, runs them, and tries again what can be mended
// by waiting. `idempo relay` and `idempo serve` are its users.
//
// Layer: cmd.
package relaying
