package gateway

import (
	"io"
	"net/http"
	"time"
)

// HTTP/2 is parsed by net/http, which bounds what a peer can make it keep, and not all of what it can make it do. Two
// more rules, on the connection below TLS, end the rest of row SEC65:
//
//   - streams that their peer resets: more than floodResets of them, and more than half of all;
//   - frames that lead to nothing (empty DATA, CONTINUATION without end, streams beyond the limit): bytes read beyond
//     what requests, bodies and answers, whose WINDOW_UPDATEs come back, account for.
const (
	floodResets = 100
	floodBytes  = 512 << 10 // the receive window of a connection, and as much again
	floodWindow = 10 * time.Minute
	h2Receive   = 256 << 10
)

// flooded tells whether what was read lately is out of proportion.
func (c *conn) flooded() bool {
	if c.in.Load() <= floodBytes+c.useful.Load() {
		return false
	}
	if now := time.Now(); now.Sub(c.since) > floodWindow {
		c.since = now
		c.in.Store(0)
		c.useful.Store(0)
		return false
	}
	return true
}

// arrived notes a request of the connection, by the size of its head: on the wire it is smaller.
func (c *conn) arrived(r *http.Request) {
	n := 128 + len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	c.useful.Add(int64(n))
	c.streams.Add(1)
}

// departed notes a stream that its peer has reset while it was served, and ends a connection that does little else.
func (c *conn) departed(r *http.Request) {
	if r.Context().Err() == nil {
		return
	}
	if n := c.resets.Add(1); n > floodResets && 2*n > c.streams.Load() {
		c.Close()
	}
}

// counted tells the connection what a body brings.
type counted struct {
	io.ReadCloser
	conn *conn
}

// Read reads and counts.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.conn.useful.Add(4 * int64(n)) // small frames cost more than they carry
	return n, err
}
