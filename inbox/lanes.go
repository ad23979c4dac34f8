package inbox

import (
	"context"
	"sync"
)

// laneLocks let the messages of one lane through one by one, in the order in which they came, within this process. They
// hold no connection. Between processes the store's lane does it.
type laneLocks struct {
	mu    sync.Mutex
	lanes map[string][]chan struct{} // who waits; there: somebody is in
}

func (l *laneLocks) init() { l.lanes = map[string][]chan struct{}{} }

// enter waits for the turn of lane. leave passes it on.
func (l *laneLocks) enter(ctx context.Context, lane string) (leave func(), err error) {
	l.mu.Lock()
	queue, busy := l.lanes[lane]
	if !busy {
		l.lanes[lane] = nil
		l.mu.Unlock()
		return func() { l.leave(lane) }, nil
	}
	turn := make(chan struct{})
	l.lanes[lane] = append(queue, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return func() { l.leave(lane) }, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	for i, w := range l.lanes[lane] {
		if w == turn {
			l.lanes[lane] = append(l.lanes[lane][:i:i], l.lanes[lane][i+1:]...)
			l.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
	l.mu.Unlock() // it is our turn already
	l.leave(lane)
	return nil, context.Cause(ctx)
}

func (l *laneLocks) leave(lane string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.lanes[lane]
	if len(queue) == 0 {
		delete(l.lanes, lane)
		return
	}
	l.lanes[lane] = queue[1:]
	close(queue[0])
}
