package gateway

import (
	"bufio"
	"net"
	"net/http"
)

// switchable lets a handler take the connection over; the judge of heads then lets go of it.
type switchable struct {
	http.ResponseWriter
	conn *conn
}

// Unwrap serves http.ResponseController for everything else.
func (s switchable) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Hijack takes the connection.
func (s switchable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.conn.switching.Store(switchRaw)
	}
	return c, rw, err
}

// Flush sends what is buffered.
func (s switchable) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }
