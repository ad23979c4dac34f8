package gateway

import (
	"sync"
	"time"
)

// breaker stops new keys from reaching an upstream that fails: five failures in a row, or half of at least twenty in ten
// seconds, open it. After a pause it lets one request through; success closes it, failure opens it again.
//
// It runs on this process's monotonic clock and is not shared between processes: it protects, it decides nothing.
type breaker struct {
	moved func(state string)

	mu     sync.Mutex
	row    int         // failures in a row
	recent [10]seconds // outcomes of the last ten seconds, by second modulo ten
	start  time.Time   // of the clock of recent
	until  time.Time   // end of the pause; zero while closed
	trial  bool        // half-open, and the one request is under way
}

type seconds struct {
	second      int64
	good, wrong int
}

const (
	breakerRow    = 5
	breakerLeast  = 20
	breakerPause  = 5 * time.Second
	stateClosed   = "closed"
	stateOpen     = "open"
	stateHalfOpen = "half_open"
)

func newBreaker(moved func(string)) *breaker { return &breaker{moved: moved, start: time.Now()} }

// admit tells whether a new key may go to the upstream now, and how long to wait if not. An admitted request must be
// followed by one call of done or of forget.
func (b *breaker) admit() (rest time.Duration, ok bool) {
	if b == nil {
		return 0, true
	}
	b.mu.Lock()
	switch now := time.Now(); {
	case b.until.IsZero():
		ok = true
	case now.Before(b.until):
		rest = b.until.Sub(now)
	case b.trial:
		rest = time.Second
	default:
		b.trial, ok = true, true
		defer b.moved(stateHalfOpen)
	}
	b.mu.Unlock()
	return rest, ok
}

// open tells, without taking the half-open request, whether new keys are refused now.
func (b *breaker) open() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.until.IsZero() && (b.trial || time.Now().Before(b.until))
}

// rest is what is left of the pause.
func (b *breaker) rest() time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.until))
}

// state is closed, open or half_open.
func (b *breaker) state() string {
	if b == nil {
		return stateClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return stateClosed
	case time.Now().Before(b.until):
		return stateOpen
	}
	return stateHalfOpen
}

// forget ends an admitted request that told nothing about the upstream.
func (b *breaker) forget() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trial = false
}

// done tells how an exchange ended: good is an answer below 500.
func (b *breaker) done(good bool) {
	if b == nil {
		return
	}
	if state := b.note(good); state != "" {
		b.moved(state)
	}
}

func (b *breaker) note(good bool) (moved string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	second := int64(now.Sub(b.start) / time.Second)
	slot := &b.recent[second%int64(len(b.recent))]
	if slot.second != second {
		*slot = seconds{second: second}
	}
	trial := b.trial
	b.trial = false
	if good {
		slot.good++
		b.row = 0
		if trial {
			b.until, b.recent = time.Time{}, [10]seconds{}
			return stateClosed
		}
		return ""
	}
	slot.wrong++
	b.row++
	if !b.until.IsZero() && !trial {
		return "" // a request from before the pause
	}
	all, wrong := 0, 0
	for _, s := range b.recent {
		if second-s.second < int64(len(b.recent)) {
			all, wrong = all+s.good+s.wrong, wrong+s.wrong
		}
	}
	if trial || b.row >= breakerRow || (all >= breakerLeast && wrong*2 >= all) {
		b.until = now.Add(breakerPause)
		return stateOpen
	}
	return ""
}
