package webhook

import (
	"cmp"
	"sync"
	"time"
)

// breaker lets a target rest that fails again and again: no sends until its pause is over, then one, which decides.
type breaker struct {
	limit int           // failures in a row
	pause time.Duration // the first; it doubles up to maxRest
	now   func() time.Time

	mu     sync.Mutex
	failed int
	rest   time.Duration
	until  time.Time // zero: it is closed
	trying bool      // the one that decides is on its way
}

const maxRest = 10 * time.Minute

func newBreaker(limit int, pause time.Duration, now func() time.Time) *breaker {
	return &breaker{limit: cmp.Or(limit, 10), pause: cmp.Or(pause, 30*time.Second), now: now}
}

// enter lets a send through, or says how long to wait.
func (b *breaker) enter() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return 0, true
	}
	if left := b.until.Sub(b.now()); left > 0 {
		return left, false
	}
	if b.trying {
		return time.Second, false
	}
	b.trying = true
	return 0, true
}

// left records how a send ended. opened says that the target rests from now on, closed that it is back.
func (b *breaker) left(failed bool) (opened, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	half := b.trying
	b.trying = false
	if !failed {
		closed = !b.until.IsZero()
		b.failed, b.rest, b.until = 0, 0, time.Time{}
		return false, closed
	}
	b.failed++
	if half || b.until.IsZero() && b.failed >= b.limit {
		opened = b.until.IsZero()
		b.rest = min(max(2*b.rest, b.pause), maxRest)
		b.until = b.now().Add(b.rest)
	}
	return opened, false
}

// resting tells whether it is open.
func (b *breaker) resting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero()
}
