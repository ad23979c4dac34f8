package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Listener wraps ln: what it accepts is judged head by head before net/http parses it (see the package comment), limited
// per peer, given a time per write, and spoken to in TLS where [Config].TLS is set. HTTP/2 connections, which have no
// such heads, are handed over after the handshake; their requests are judged by the handler.
//
// Closing it closes ln and ends every handshake that is still going on.
func (g *Gateway) Listener(ln net.Listener) net.Listener {
	l := &listener{Listener: ln, limits: &g.connLimits, perPeer: g.peerLimit, exempt: g.trusted, peers: map[netip.Addr]int{}}
	if g.tlsConfig == nil {
		return l
	}
	ctx, stop := context.WithCancel(context.Background())
	return &secureListener{listener: l, config: g.tlsConfig, ready: make(chan accepted), ctx: ctx, stop: stop}
}

// listener accepts plain connections.
type listener struct {
	net.Listener
	limits  *connLimits
	perPeer int
	exempt  networks

	mu    sync.Mutex
	peers map[netip.Addr]int
}

// Accept gives the next connection that is within its peer's limit; others are closed at once.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if done, ok := l.enter(c); ok {
			return newConn(c, l.limits, done), nil
		}
		c.Close()
	}
}

// enter counts a connection of a peer; done, to be called once, ends it.
func (l *listener) enter(c net.Conn) (done func(), ok bool) {
	peer := addrOf(c.RemoteAddr().String())
	if l.perPeer <= 0 || !peer.IsValid() || l.exempt.contain(peer) {
		return func() {}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peers[peer] >= l.perPeer {
		return nil, false
	}
	l.peers[peer]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.peers[peer]--; l.peers[peer] == 0 {
			delete(l.peers, peer)
		}
	}, true
}

// secureListener does handshakes beside each other, so that a slow one holds nobody up.
type secureListener struct {
	*listener
	config *tls.Config
	ready  chan accepted
	ctx    context.Context // ends when the listener closes
	stop   context.CancelFunc

	start sync.Once
	work  sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Accept gives the next connection whose handshake is done, or why the listener below gave none.
func (l *secureListener) Accept() (net.Conn, error) {
	l.start.Do(func() { l.work.Go(l.accept) })
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// accept runs until the listener closes.
func (l *secureListener) accept() {
	for l.ctx.Err() == nil {
		c, err := l.listener.Listener.Accept()
		if err != nil {
			l.offer(accepted{err: err})
			continue
		}
		done, ok := l.enter(c)
		if !ok {
			c.Close()
			continue
		}
		l.work.Go(func() { l.handshake(c, done) })
	}
}

// offer hands over what was accepted; false: the listener is closed.
func (l *secureListener) offer(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

func (l *secureListener) handshake(raw net.Conn, done func()) {
	timed := newConn(raw, l.limits, done)
	timed.phase = phaseRaw // below TLS only the times and the count are ours
	secure := tls.Server(timed, l.config)
	ctx, cancel := context.WithTimeout(l.ctx, l.limits.readHeader)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		timed.Close()
		return
	}
	var c net.Conn = secure
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		above := *l.limits
		above.write = 0 // timed does it
		c = tlsConn{conn: newConn(secure, &above, func() {}), secure: secure}
	} else {
		timed.since = time.Now()
		timed.h2.Store(true)
	}
	if !l.offer(accepted{conn: c}) {
		c.Close()
	}
}

// Close closes the listener below, ends handshakes, and closes every connection that nobody has accepted.
func (l *secureListener) Close() error {
	l.stop()
	err := l.listener.Listener.Close()
	l.work.Wait()
	return err
}

// networks is a list of networks.
type networks []netip.Prefix

func (n networks) contain(a netip.Addr) bool {
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// addrOf is the address of a "host:port" text, without zone, IPv4 in its plain form; the zero Addr for another text.
func addrOf(hostport string) netip.Addr {
	ap, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
