package gateway

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// errRefused is what reading gives once a connection has sent what may not be passed on.
var errRefused = errors.New("gateway: refused to read on")

// refusedRead dresses errRefused as an error of the network: to another one net/http would add an answer of its own.
func refusedRead() error { return &net.OpError{Op: "read", Net: "tcp", Err: errRefused} }

// conn is an HTTP/1 connection whose request heads and chunk lines are judged before net/http sees them, also on a
// connection that is kept alive, and where requests follow each other without waiting.
//
// Bytes go straight into the reader's buffer; only a head that came in pieces, and what follows it, is held here.
// A head that is refused is replaced by a request of our own, to a target nobody can guess: so it is answered in its
// turn, after the answers before it, by [Gateway.ServeHTTP]; nothing after it is read.
//
// net/http reads from one goroutine at a time, but sets deadlines and writes from others.
type conn struct {
	net.Conn
	limits *connLimits
	done   func() // once, when the connection closes

	phase    phase
	head     headScan
	chunks   chunkScan
	left     int64  // of a body with a Content-Length
	switches bool   // the request being read asks for another protocol
	held     []byte // read, and not all passed on
	clear    int    // bytes of held that may be passed on
	gone     int    // bytes of held that have been; more than clear only while it is open whether the connection switches
	err      error  // after held
	over     bool   // after held nothing is passed on any more

	h2                          atomic.Bool  // HTTP/2, and this is below TLS
	in, useful, streams, resets atomic.Int64 // of HTTP/2
	since                       time.Time    // when in and useful began

	refused   atomic.Pointer[refusal]
	switching atomic.Int32 // a switchState
	born      time.Time
	written   atomic.Int64 // when the write deadline was set last, in ns after born; 0: never

	mu        sync.Mutex
	readUntil time.Time // what net/http asked for
	headUntil time.Time // ours, while a head is incomplete
	closed    bool
}

// connLimits are what all connections of a gateway share.
type connLimits struct {
	head       int
	readHeader time.Duration
	write      time.Duration
}

type phase uint8

const (
	phaseHead      phase = iota // at or in a request head
	phaseLength                 // in a body with a Content-Length
	phaseChunked                // in a chunked body
	phaseSwitching              // after a request that asks for another protocol: the handler decides
	phaseRaw                    // another protocol: nothing is ours
)

const (
	switchOpen int32 = iota // nobody has decided
	switchRaw               // the handler took the connection
	switchBack              // the handler answered: requests go on
)

func newConn(c net.Conn, limits *connLimits, done func()) *conn {
	return &conn{Conn: c, limits: limits, done: done, head: headScan{max: limits.head}, born: time.Now()}
}

// Read passes on what has been judged, and reads on where nothing has.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if c.gone < c.clear {
			return c.pass(p), nil
		}
		if err := c.err; err != nil {
			c.err = io.EOF // once is enough: net/http would answer a second error itself
			return 0, err
		}
		if c.over {
			return 0, c.discard()
		}
		if c.phase == phaseSwitching {
			if over, err := c.readSwitching(); over {
				return copy(p, c.held[:c.gone]), err
			}
			continue
		}
		if len(c.held) > 0 {
			if err := c.readHeld(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := c.Conn.Read(p)
		if n == 0 {
			return 0, err
		}
		if c.phase == phaseRaw {
			if c.h2.Load() {
				if c.in.Add(int64(n)); c.flooded() {
					return 0, refusedRead()
				}
			}
			return n, err
		}
		clear := c.judge(p[:n])
		if clear < n {
			c.held = append(c.held, p[clear:n]...)
			c.settle(0)
		}
		if clear > 0 {
			return clear, nil
		}
	}
}

// pass copies judged bytes out and forgets them.
func (c *conn) pass(p []byte) int {
	n := copy(p, c.held[c.gone:c.clear])
	if c.gone += n; c.gone == c.clear {
		c.held, c.gone, c.clear = c.held[c.gone:], 0, 0
		if len(c.held) == 0 {
			c.held = nil
		}
	}
	return n
}

// settle notes how many of the held bytes may be passed on, and puts our own request in the place of refused ones.
func (c *conn) settle(clear int) {
	c.clear = clear
	r := c.refused.Load()
	if r == nil {
		c.deadline(clear < len(c.held) && c.phase == phaseHead)
		return
	}
	c.deadline(false)
	if r.target == "" || clear < c.gone { // inside a body; or a byte of the bad head has left: no answer can stand for it
		c.held, c.err = c.held[:clear], refusedRead()
		c.gone = min(c.gone, clear)
		return
	}
	c.held = append(c.held[:clear], "GET "+r.target+" HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n"...)
	c.clear, c.over = len(c.held), true
}

// discard reads what nobody will see until the connection ends. To say that it has ended would be wrong: requests before
// the refused one may still be running, and net/http would call their caller gone.
func (c *conn) discard() error {
	var scratch [4 << 10]byte
	for {
		if _, err := c.Conn.Read(scratch[:]); err != nil {
			return err
		}
	}
}

// readHeld reads more of a head that came in pieces, and judges on. After an error the bytes stay: net/http interrupts
// a read in the background by a deadline in the past, and reads on later.
func (c *conn) readHeld() error {
	if cap(c.held)-len(c.held) < 512 {
		c.held = append(make([]byte, 0, 2*len(c.held)+1024), c.held...)
	}
	n, err := c.Conn.Read(c.held[len(c.held):cap(c.held)])
	if n == 0 {
		return err
	}
	c.held = c.held[:len(c.held)+n]
	c.settle(c.judge(c.held))
	return nil
}

// judge goes through bytes that begin where the last judged ones ended, and tells how many may be passed on. Fewer than
// all: the rest is an incomplete head, or undecided, or refused.
func (c *conn) judge(b []byte) (clear int) {
	for clear < len(b) {
		rest := b[clear:]
		switch c.phase {
		case phaseHead:
			size, bad := c.head.feed(rest)
			if bad != nil {
				c.refuse(bad)
				return clear
			}
			if size == 0 {
				return clear
			}
			clear += size
			c.begin()
		case phaseLength:
			n := min(c.left, int64(len(rest)))
			clear += int(n)
			if c.left -= n; c.left == 0 {
				c.end()
			}
		case phaseChunked:
			n, done, ok := c.chunks.feed(rest)
			clear += n
			if !ok {
				c.refused.Store(&refusal{}) // inside a body: the handler is told by the error
				return clear
			}
			if done {
				c.end()
			}
		case phaseSwitching:
			return clear
		case phaseRaw:
			return len(b)
		}
	}
	return clear
}

// begin goes from a complete head to what follows it.
func (c *conn) begin() {
	h := c.head
	c.head = headScan{max: c.limits.head}
	c.switches = h.upgrade && !h.http10
	switch {
	case h.chunked:
		c.phase, c.chunks = phaseChunked, chunkScan{max: c.limits.head}
	case h.length > 0:
		c.phase, c.left = phaseLength, h.length
	default:
		c.end()
	}
}

// end goes from a complete request to the next.
func (c *conn) end() {
	c.phase = phaseHead
	if c.switches {
		c.phase, c.switches = phaseSwitching, false
		c.switching.Store(switchOpen)
	}
}

// refuse marks the connection; the target makes the answer ours alone.
func (c *conn) refuse(r *refusal) {
	c.refused.Store(&refusal{status: r.status, detail: r.detail, target: "/" + rand.Text()})
}

// readSwitching follows the handler's decision. Before it one byte may leave: net/http reads one in the background to
// see a peer leave, and does nothing with it until the handler is done. over: that byte, or the error, is the answer.
func (c *conn) readSwitching() (over bool, err error) {
	switch c.switching.Load() {
	case switchRaw:
		c.phase, c.clear = phaseRaw, len(c.held)
		if c.gone == c.clear {
			c.held, c.gone, c.clear = nil, 0, 0
		}
		return false, nil
	case switchBack:
		c.phase = phaseHead
		if len(c.held) > 0 {
			c.settle(c.judge(c.held))
		}
		return false, nil
	}
	if c.gone > 0 {
		c.gone = 0
		return true, refusedRead()
	}
	if len(c.held) == 0 {
		one := make([]byte, 1)
		if n, err := c.Conn.Read(one); n == 0 {
			return true, err
		}
		c.held = one
	}
	c.gone = 1
	return true, nil
}

// Write gives each write its own time: a client that reads nothing is cut, one that reads slowly is served.
func (c *conn) Write(p []byte) (int, error) {
	c.extendWrite()
	return c.Conn.Write(p)
}

// extendWrite moves the write deadline where a quarter of its time has gone: a timer per write would cost throughput.
func (c *conn) extendWrite() {
	if c.limits.write <= 0 {
		return
	}
	now, last := time.Since(c.born), c.written.Load()
	if last == 0 || now-time.Duration(last) > c.limits.write/4 {
		c.written.Store(max(1, int64(now)))
		c.Conn.SetWriteDeadline(time.Now().Add(c.limits.write))
	}
}

// SetReadDeadline keeps what net/http asks for; while a head is incomplete ours may be sooner, never later.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readUntil = t
	return c.Conn.SetReadDeadline(c.sooner())
}

// SetDeadline sets both; it comes with a hijacked connection.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *conn) sooner() time.Time {
	if c.headUntil.IsZero() || (!c.readUntil.IsZero() && c.readUntil.Before(c.headUntil)) {
		return c.readUntil
	}
	return c.headUntil
}

// deadline starts, once per head, or ends the time an incomplete head has. net/http cannot: it waits with the idle
// time-out for the first bytes, and we pass none on before the last.
func (c *conn) deadline(incomplete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if incomplete == !c.headUntil.IsZero() {
		return
	}
	c.headUntil = time.Time{}
	if incomplete {
		c.headUntil = time.Now().Add(c.limits.readHeader)
	}
	c.Conn.SetReadDeadline(c.sooner())
}

// Close lets a refused peer read its answer before the connection goes: closing with unread bytes would reset it.
func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if !first {
		return c.Conn.Close()
	}
	defer c.done()
	if c.refused.Load() != nil && c.CloseWrite() == nil {
		c.Conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		io.CopyN(io.Discard, c.Conn, 256<<10)
	}
	return c.Conn.Close()
}

// CloseWrite ends our side where the transport can.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// LocalAddr carries the connection to the handler, since net/http puts this address into each request's context.
func (c *conn) LocalAddr() net.Addr { return connAddr{Addr: c.Conn.LocalAddr(), conn: c} }

type connAddr struct {
	net.Addr
	conn *conn
}

// connOf is the judged connection a request came in on, or nil.
func connOf(r *http.Request) *conn {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(connAddr)
	if !ok {
		return nil
	}
	return a.conn
}

// tlsConn is a conn over TLS; net/http takes Request.TLS from its ConnectionState.
type tlsConn struct {
	*conn
	secure *tls.Conn
}

// ConnectionState is that of the TLS connection below.
func (c tlsConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }
