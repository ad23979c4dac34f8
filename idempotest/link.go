package idempotest

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Link dials servers and can be cut, once or for a while. The zero value is whole. It is safe for concurrent use.
type Link struct {
	mu    sync.Mutex
	away  bool
	dials int
	conns []net.Conn
}

// DialContext connects, unless the link is cut.
func (l *Link) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	l.dials++
	away := l.away
	l.mu.Unlock()
	if !away {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if l.keep(c) {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the link is cut")}
}

// Dial is DialContext without a context.
func (l *Link) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		_ = c.Close()
		return false
	}
	l.conns = append(l.conns, c)
	return true
}

// Cut breaks every connection. New ones can be made.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// Away cuts the link, with true, until it is called with false.
func (l *Link) Away(away bool) {
	l.mu.Lock()
	l.away = away
	l.mu.Unlock()
	if away {
		l.Cut()
	}
}

// Dials is how often a connection was asked for.
func (l *Link) Dials() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}
