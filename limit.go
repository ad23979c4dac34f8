package idempo

import (
	"context"
	"sync"
	"time"
)

// limited is a context that costs one allocation until somebody waits for its end: most calls are over long before
// their deadline, and most work never asks. It ends with its parent (unless the parent is detached before), at its
// deadline, with the context it is tied to, or by end.
type limited struct {
	parent   context.Context
	detached bool      // only the values of parent count
	deadline time.Time // zero: none
	tied     *limited  // nil: none
	claim    *Claim    // what FromContext finds; nil: as in parent

	mu    sync.Mutex
	cause error           // set by end
	real  context.Context // made by the first who waits
	stop  func(error)     // ends real
}

// within returns ctx with at most d left.
func within(ctx context.Context, d time.Duration) *limited {
	return &limited{parent: ctx, deadline: time.Now().Add(d)}
}

// detachedFor returns a context with the values of ctx, not its end, and d to go.
func detachedFor(ctx context.Context, d time.Duration) *limited {
	return &limited{parent: ctx, detached: true, deadline: time.Now().Add(d)}
}

// Deadline implements context.Context.
func (l *limited) Deadline() (at time.Time, ok bool) {
	if !l.detached {
		at, ok = l.parent.Deadline()
	}
	if !l.deadline.IsZero() && (!ok || l.deadline.Before(at)) {
		at, ok = l.deadline, true
	}
	if l.tied != nil {
		if t, has := l.tied.Deadline(); has && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Done implements context.Context.
func (l *limited) Done() <-chan struct{} { return l.waited().Done() }

// waited makes the real context, once.
func (l *limited) waited() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.real != nil {
		return l.real
	}
	parent := l.parent
	if l.detached {
		parent = context.WithoutCancel(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	stop := func() bool { return false }
	if l.tied != nil {
		stop = context.AfterFunc(l.tied, func() { cancel(context.Cause(l.tied)) })
		if l.tied.Err() != nil { // at once: the first who waits may ask for the cause
			cancel(context.Cause(l.tied))
		}
	}
	end := func() {}
	l.real = ctx
	if !l.deadline.IsZero() {
		l.real, end = context.WithDeadline(ctx, l.deadline)
	}
	l.stop = func(cause error) { stop(); cancel(cause); end() }
	if l.cause != nil {
		l.stop(l.cause)
	}
	return l.real
}

// Err implements context.Context.
func (l *limited) Err() error {
	l.mu.Lock()
	real, cause := l.real, l.cause
	l.mu.Unlock()
	switch {
	case real != nil:
		return real.Err()
	case cause != nil:
		return context.Canceled
	case !l.detached && l.parent.Err() != nil:
		return l.parent.Err()
	case l.tied != nil && l.tied.Err() != nil:
		return l.tied.Err()
	case !l.deadline.IsZero() && !time.Now().Before(l.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. Package context asks for its own key, a *int, to find where a cancellation and its
// cause are kept: those of a detached or ended context are in the real one only.
func (l *limited) Value(key any) any {
	if _, ok := key.(*claimKey); ok && l.claim != nil {
		return l.claim
	}
	l.mu.Lock()
	real, cause := l.real, l.cause
	l.mu.Unlock()
	if _, internal := key.(*int); internal && real == nil && (l.detached || cause != nil || l.Err() != nil) {
		real = l.waited()
	}
	if real != nil {
		return real.Value(key)
	}
	return l.parent.Value(key)
}

// end ends the context with cause; a second end does nothing.
func (l *limited) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.stop != nil {
		l.stop(cause)
	}
}
