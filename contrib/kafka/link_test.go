package idemkafka_test

import (
	"context"
	"errors"
	"net"
	"sync"
)

// link dials brokers, and can be cut.
type link struct {
	mu    sync.Mutex
	away  bool
	conns []net.Conn
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the link is cut")}
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// cut breaks every connection.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// set cuts the link until it is set to false.
func (l *link) set(away bool) {
	l.mu.Lock()
	l.away = away
	l.mu.Unlock()
	if away {
		l.cut()
	}
}
