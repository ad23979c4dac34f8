package realcheck

import (
	"context"
	"sync"
)

// stage is where a trap halts a request of the gateway.
type stage int

const (
	claimed   stage = iota + 1 // the gateway has sent it; it has not come to the upstream
	forwarded                  // the upstream has it
	replied                    // the upstream has answered; nothing of that has come to the gateway
)

// trap halts one request at each stage, and lets go of the three when the gateway is dead.
type trap struct {
	after int           // requests that pass before
	full  chan struct{} // closed when all three are there
	dead  chan struct{} // closed when the gateway is

	mu     sync.Mutex
	last   stage // given out
	caught int
}

func newTrap(after int) *trap {
	return &trap{after: after, full: make(chan struct{}), dead: make(chan struct{})}
}

// choose takes x, the nth request, if the trap wants it.
func (tr *trap) choose(nth int, x *exchange) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if nth <= tr.after || tr.last == replied {
		return false
	}
	tr.last++
	x.halt = tr.last
	return true
}

// spring waits in the trap.
func (tr *trap) spring() {
	tr.mu.Lock()
	tr.caught++
	if tr.caught == int(replied) {
		close(tr.full)
	}
	tr.mu.Unlock()
	<-tr.dead
}

// kill kills the gateway once the trap is full, and starts it again. It returns what flying says at the moment of the kill.
func (tr *trap) kill(ctx context.Context, g *gateway, flying func() int) (inFlight int, err error) {
	select {
	case <-tr.full:
		inFlight = flying()
		err = g.kill()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	close(tr.dead)
	if err != nil {
		return inFlight, err
	}
	return inFlight, g.start()
}
