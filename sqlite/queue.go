package sqlite

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/idempo/idempo"
)

var (
	errClosed = errors.New("the store is closed")
	errOpen   = errors.New("another transaction of this process holds the key") // never leaves the package
)

// queue hands the one writing connection to one caller at a time, in the order of arrival. Two kinds stand in it:
// a transaction of its own, which gets the connection alone, and works, which share the next commit.
type queue struct {
	mu     sync.Mutex
	held   bool
	closed bool
	line   []*turn
	idle   chan struct{} // made by close, closed once nobody holds the connection
}

// turn is one place in the line.
type turn struct {
	keys  []idempo.Key // the claim's keys: once another transaction holds one, waiting on makes no sense
	work  *work        // nil: a transaction of its own
	ready chan error   // of a transaction: nil grants, an error sends away
}

// work is a few statements that share a transaction, and its commit, with other works.
type work struct {
	do   func(*session) error
	ran  chan struct{} // closed once do was called, or never will be
	done chan struct{} // closed once the commit is durable or has failed
	err  error         // valid after done
}

// enter waits for the connection and holds it alone until leave. It returns ctx's cause, errClosed, or errOpen where
// another transaction came to hold one of keys meanwhile.
func (q *queue) enter(ctx context.Context, keys []idempo.Key) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return errClosed
	}
	if !q.held {
		q.held = true
		q.mu.Unlock()
		return nil
	}
	t := &turn{keys: keys, ready: make(chan error, 1)}
	q.line = append(q.line, t)
	q.mu.Unlock()
	select {
	case err := <-t.ready:
		return err
	case <-ctx.Done():
	}
	if q.drop(t) {
		return context.Cause(ctx)
	}
	return <-t.ready // the turn came at the same moment: take it, what follows sees ctx for itself
}

// tryEnter holds the connection alone until leave, if nobody else does.
func (q *queue) tryEnter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.held {
		return false
	}
	q.held = true
	return true
}

// add puts a work in the line. lead says that nobody holds the connection: the caller now does, and has to serve.
func (q *queue) add(t *turn) (lead bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, errClosed
	}
	q.line = append(q.line, t)
	lead = !q.held
	q.held = true
	return lead, nil
}

// take removes up to limit works from the line, wherever they stand in it: they cost those before them no commit.
func (q *queue) take(limit int) []*work {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*work
	q.line = slices.DeleteFunc(q.line, func(t *turn) bool {
		if t.work == nil || len(out) == limit {
			return false
		}
		out = append(out, t.work)
		return true
	})
	return out
}

// leave gives the connection to the next in line. serve says that works are next: the caller still holds the
// connection, and has to serve them.
func (q *queue) leave() (serve bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) == 0 {
		q.held = false
		if q.idle != nil {
			close(q.idle)
		}
		return false
	}
	next := q.line[0]
	if next.work != nil {
		return true
	}
	q.line = slices.Delete(q.line, 0, 1)
	next.ready <- nil
	return false
}

// drop takes t out of the line and reports whether it still stood there.
func (q *queue) drop(t *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.line, t)
	if i < 0 {
		return false
	}
	q.line = slices.Delete(q.line, i, i+1)
	return true
}

// send away all that wait for one of keys; each asks again and hears that the key is in progress.
func (q *queue) sendAway(keys []idempo.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line = slices.DeleteFunc(q.line, func(t *turn) bool {
		if !slices.ContainsFunc(t.keys, func(k idempo.Key) bool { return slices.Contains(keys, k) }) {
			return false
		}
		t.refuse(errOpen)
		return true
	})
}

// close refuses everybody in the line and everybody who comes, and waits until nobody holds the connection. first is
// true once.
func (q *queue) close() (first bool) {
	q.mu.Lock()
	first = !q.closed
	q.closed = true
	for _, t := range q.line {
		t.refuse(errClosed)
	}
	q.line = nil
	if first {
		q.idle = make(chan struct{})
		if !q.held {
			close(q.idle)
		}
	}
	idle := q.idle
	q.mu.Unlock()
	<-idle
	return first
}

// refuse answers a turn that has not been taken.
func (t *turn) refuse(err error) {
	if t.work == nil {
		t.ready <- err
		return
	}
	t.work.err = err
	close(t.work.ran)
	close(t.work.done)
}
