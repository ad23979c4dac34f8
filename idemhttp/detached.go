package idemhttp

import (
	"context"
	"time"
)

// detached is a context with the values of another and without its end. context.WithoutCancel does the same, and allocates at
// every look for a value that is not its own.
type detached struct {
	values    context.Context
	cancelKey any // under which package context keeps what can be cancelled
}

// Deadline says that there is none.
func (d *detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is nil: it never ends.
func (d *detached) Done() <-chan struct{} { return nil }

// Err is nil.
func (d *detached) Err() error { return nil }

// Value is that of the other context, but for what says how that one ends.
func (d *detached) Value(key any) any {
	if key == d.cancelKey {
		return nil
	}
	return d.values.Value(key)
}

// cancelKey is the key under which package context asks its parents for what can be cancelled. It has no name outside; so
// it is overheard.
func cancelKey() any {
	var e eavesdropper
	_ = context.Cause(&e)
	return e.heard
}

type eavesdropper struct {
	detached
	heard any
}

// Err says that it ended, or nobody would ask why.
func (e *eavesdropper) Err() error { return context.Canceled }

// Value hears the key.
func (e *eavesdropper) Value(key any) any {
	e.heard = key
	return nil
}

// callContext is the context of a guarded handler.
type callContext struct {
	context.Context
	call *call
}

// Value finds the call, and everything else where the claim's context does.
func (c *callContext) Value(key any) any {
	if key == (any)((*callKey)(nil)) {
		return c.call
	}
	return c.Context.Value(key)
}
