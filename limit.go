package idempo

import (
	"context"
	"slices"
	"sync"
	"time"
)

// limited is a context that costs nothing until somebody waits for its end: most calls are over long before their
// deadline, and most work never asks. It ends with its parent (unless it is detached from it), at its deadline, with the
// context it is tied to, or by end.
type limited struct {
	parent   context.Context
	detached bool      // only the values of parent count
	deadline time.Time // zero: none
	tied     *limited  // nil: none
	claim    *Claim    // what FromContext finds; nil: as in parent

	mu     sync.Mutex
	err    error         // why it is over; nil: it is not, as far as it was watched
	cause  error         // set together with err
	done   chan struct{} // made by the first who waits
	after  []*afterEnd   // what is to be called at its end
	unwait [2]func() bool
	timer  *time.Timer
	told   context.Context // ended with cause: how package context learns of it
}

// afterEnd is one call that waits for the end of a limited context.
type afterEnd struct{ call func() }

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
func (l *limited) Done() <-chan struct{} {
	l.mu.Lock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	done := l.done
	l.mu.Unlock()
	l.watch()
	return done
}

// AfterFunc is what package context looks for in a context that is not its own: f is called once l has ended, never by
// AfterFunc itself, whose caller may hold what f needs.
func (l *limited) AfterFunc(f func()) (stop func() bool) {
	e := &afterEnd{f}
	l.mu.Lock()
	over := l.err != nil
	if !over {
		l.after = append(l.after, e)
	}
	l.mu.Unlock()
	if over {
		go f()
		return func() bool { return false }
	}
	l.watch()
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.after, e)
		if i >= 0 {
			l.after = slices.Delete(l.after, i, i+1)
		}
		return i >= 0
	}
}

// watch sees to it, once, that l ends when its parent, its deadline or its tie does.
func (l *limited) watch() {
	l.mu.Lock()
	if l.err != nil || l.watched() {
		l.mu.Unlock()
		return
	}
	l.unwait[0], l.unwait[1] = never, never
	if !l.deadline.IsZero() {
		l.timer = time.AfterFunc(time.Until(l.deadline), func() { l.finish(context.DeadlineExceeded, nil) })
	}
	l.mu.Unlock()
	stops := [2]func() bool{never, never}
	if !l.detached && l.parent.Done() != nil {
		stops[0] = context.AfterFunc(l.parent, func() { l.finish(l.parent.Err(), context.Cause(l.parent)) })
	}
	if l.tied != nil {
		stops[1] = l.tied.AfterFunc(func() { l.finish(context.Canceled, context.Cause(l.tied)) })
	}
	l.mu.Lock()
	over := l.err != nil
	if !over {
		l.unwait = stops
	}
	l.mu.Unlock()
	if over {
		stops[0]()
		stops[1]()
	}
}

func (l *limited) watched() bool { return l.unwait[0] != nil }

func never() bool { return false }

// finish ends l with err and cause, nil being err itself; a second end does nothing.
func (l *limited) finish(err, cause error) {
	if cause == nil {
		cause = err
	}
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err, l.cause = err, cause
	if l.done != nil {
		close(l.done)
	}
	after, unwait := l.after, l.unwait
	l.after, l.unwait = nil, [2]func() bool{}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	for _, stop := range unwait {
		if stop != nil {
			stop()
		}
	}
	for _, e := range after {
		e.call()
	}
}

// Err implements context.Context.
func (l *limited) Err() error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !l.detached && l.parent.Err() != nil:
		l.finish(l.parent.Err(), context.Cause(l.parent))
	case l.tied != nil && l.tied.Err() != nil:
		l.finish(l.tied.Err(), context.Cause(l.tied))
	case !l.deadline.IsZero() && !time.Now().Before(l.deadline):
		l.finish(context.DeadlineExceeded, nil)
	default:
		return nil
	}
	return l.Err()
}

// Value implements context.Context. Package context asks for its own key, a *int, to find where a cancellation and its
// cause are kept: it must not find the parent's where l is detached or has ended by itself.
func (l *limited) Value(key any) any {
	if _, ok := key.(*claimKey); ok && l.claim != nil {
		return l.claim
	}
	if _, internal := key.(*int); internal {
		if l.Err() != nil {
			return l.tell().Value(key)
		}
		if l.detached {
			return nil
		}
	}
	return l.parent.Value(key)
}

// tell returns a context of package context that has ended as l has.
func (l *limited) tell() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(l.cause)
		l.told = ctx
	}
	return l.told
}

// end ends the context with cause; a second end does nothing.
func (l *limited) end(cause error) { l.finish(context.Canceled, cause) }
