package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// links are the connections to one address that carry keyed requests.
//
// They are net/http client connections of our own and not its pool's, because the pool sends a request again by itself:
// one with an Idempotency-Key header over HTTP/1 when a reused connection breaks, any over HTTP/2 on PROTOCOL_ERROR. Here a
// request goes to one connection, once.
type links struct {
	transport *http.Transport
	scheme    string
	address   string // host:port
	idle      time.Duration

	mu    sync.Mutex
	ready []*link // those that may take a request; the most recently used last
}

// link is one connection; over HTTP/2 it carries several requests at once.
type link struct {
	conn  *http.ClientConn
	wire  *wire
	ready bool        // in links.ready
	timer *time.Timer // closes it when it has been idle; guarded by links.mu
	fresh bool        // for one request
}

type wireKey struct{}

// withWire lets the dialer hand the connection it made to whoever asked for it.
func withWire(ctx context.Context, to **wire) context.Context {
	return context.WithValue(ctx, (*wireKey)(nil), to)
}

func noteWire(ctx context.Context, w *wire) {
	if to, ok := ctx.Value((*wireKey)(nil)).(**wire); ok {
		*to = w
	}
}

// take reserves a connection for one request: one that is there, unless fresh is asked for, or a new one. An error means
// that nothing was sent.
func (ls *links) take(ctx context.Context, fresh bool) (l *link, reused bool, err error) {
	for !fresh {
		if l = ls.pop(); l == nil {
			break
		}
		if l.conn.Reserve() != nil {
			continue // closed meanwhile, or full: its hook brings it back
		}
		ls.settle(l)
		return l, true, nil
	}
	var w *wire
	conn, err := ls.transport.NewClientConn(withWire(ctx, &w), ls.scheme, ls.address)
	if err != nil {
		return nil, false, &notSentError{err}
	}
	if err := conn.Reserve(); err != nil {
		conn.Close()
		return nil, false, &notSentError{err}
	}
	l = &link{conn: conn, wire: w, fresh: fresh}
	conn.SetStateHook(func(*http.ClientConn) { ls.settle(l) })
	ls.settle(l)
	return l, false, nil
}

// pop takes the most recently used link out.
func (ls *links) pop() *link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n := len(ls.ready)
	if n == 0 {
		return nil
	}
	l := ls.ready[n-1]
	ls.ready = ls.ready[:n-1]
	l.ready = false
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	return l
}

// settle puts a link where its state belongs. It is the connection's state hook, and never called with mu held.
func (ls *links) settle(l *link) {
	closed, available, idle := l.conn.Err() != nil, l.conn.Available() > 0, l.conn.InFlight() == 0
	if l.fresh && idle && available {
		l.conn.Close()
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch want := !closed && available && !l.fresh; {
	case want && !l.ready:
		l.ready = true
		ls.ready = append(ls.ready, l)
	case !want && l.ready:
		l.ready = false
		ls.ready = slices.DeleteFunc(ls.ready, func(o *link) bool { return o == l })
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if idle && !closed {
		l.timer = time.AfterFunc(ls.idle, func() { ls.expire(l) })
	}
}

// expire closes a link that is still idle.
func (ls *links) expire(l *link) {
	ls.mu.Lock()
	if !l.ready {
		ls.mu.Unlock()
		return
	}
	l.ready = false
	ls.ready = slices.DeleteFunc(ls.ready, func(o *link) bool { return o == l })
	ls.mu.Unlock()
	if l.conn.InFlight() == 0 {
		l.conn.Close()
		return
	}
	ls.settle(l)
}

// close ends every idle connection; running ones end with their requests.
func (ls *links) close() {
	for l := ls.pop(); l != nil; l = ls.pop() {
		if l.conn.InFlight() == 0 {
			l.conn.Close()
		}
	}
}
