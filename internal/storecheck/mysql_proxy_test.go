package storecheck

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy stands between a store and MySQL and does to one write of a client what a network can do.
type proxy struct {
	addr string // of the server

	mu     sync.Mutex
	match  func(data []byte) bool // the write to be hit; nil: none
	fault  fault
	hit    chan struct{} // closed when it was hit
	resume chan struct{} // of a held write: closed by the test
	conns  int
	down   bool // every connection is refused
}

// refuse makes the server unreachable, or reachable again.
func (p *proxy) refuse(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

type fault int

const (
	cutBefore  fault = iota // it never reaches the server
	dropAnswer              // it does, and the answer is lost
	goDown                  // as dropAnswer, and nobody reaches the server any more
	hold                    // the client is cut off; the write reaches the server when the test says so
)

// newProxy starts a proxy before a server and returns it with its own address.
func newProxy(t testing.TB, addr string) (*proxy, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{addr: addr}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return p, l.Addr().String()
}

// arm makes the next write of any client that match accepts meet f, once.
func (p *proxy) arm(f fault, match func([]byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.match, p.fault, p.hit, p.resume = match, f, make(chan struct{}), make(chan struct{})
}

// struck returns a channel that is closed when the armed fault has happened.
func (p *proxy) struck() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hit
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.resume)
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// due reports whether data is the write to be hit.
func (p *proxy) due(data []byte) (f fault, hit, resume chan struct{}, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.match == nil || !p.match(data) {
		return 0, nil, nil, false
	}
	p.match = nil
	return p.fault, p.hit, p.resume, true
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	down := p.down
	p.mu.Unlock()
	if down {
		return
	}
	server, err := net.Dial("tcp", p.addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	p.mu.Lock()
	p.conns++
	p.mu.Unlock()
	lost := make(chan struct{}) // closed: answers go nowhere from now on
	answered := make(chan struct{}, 1)
	var back sync.WaitGroup
	back.Go(func() {
		defer func() { _ = client.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			select {
			case <-lost:
				select {
				case answered <- struct{}{}:
				default:
				}
			default:
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	})
	defer back.Wait()
	defer func() { _ = server.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		f, hit, resume, yes := p.due(buf[:n])
		if !yes {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		p.strike(f, hit, resume, client, server, buf[:n], lost, answered)
		return
	}
}

// strike lets the fault happen.
func (p *proxy) strike(f fault, hit, resume chan struct{}, client, server net.Conn, data []byte, lost chan struct{}, answered chan struct{}) {
	close(lost)
	switch f {
	case dropAnswer, goDown:
		_, _ = server.Write(data)
		<-answered // the server has done it
		p.refuse(f == goDown)
		close(hit)
		_ = client.Close()
	case hold:
		close(hit)
		_ = client.Close()
		<-resume
		_, _ = server.Write(data)
		<-answered
	default:
		close(hit)
		_ = client.Close()
	}
}

// commits matches the COMMIT that the driver sends.
func commits(data []byte) bool { return bytes.Contains(bytes.ToLower(data), []byte("commit")) }
