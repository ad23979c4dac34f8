// Package backoff is the arithmetic of waiting: full jitter under a growing cap, and a spread around a period. One copy
// serves the engine, stores, sagas, tasks, the outbox and package retry.
//
// Layer: domain. It imports the standard library only.
package backoff
