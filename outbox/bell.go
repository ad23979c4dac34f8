package outbox

import "sync"

// Bell wakes the relays of a process. The zero value is ready; it is safe for concurrent use. Stores hold one.
type Bell struct {
	mu   sync.Mutex
	ears map[chan struct{}]struct{}
}

// Ring wakes whoever listens. It never waits; rings that nobody has heard yet are one.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ear := range b.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
}

// Listen returns a channel that gets a value when the bell has rung since the last one was taken, until stop.
func (b *Bell) Listen() (rung <-chan struct{}, stop func()) {
	ear := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ears == nil {
		b.ears = map[chan struct{}]struct{}{}
	}
	b.ears[ear] = struct{}{}
	return ear, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, ear)
	}
}
