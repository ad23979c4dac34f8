package gateway

import (
	"net/http"
	"time"
)

// paced gives each write of an HTTP/2 answer its own time: the connection's time does not see a stream whose window its
// peer keeps shut.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
	each    time.Duration
	set     time.Time
	conn    *conn // what is written counts for it; nil: a connection of another listener
}

func newPaced(w http.ResponseWriter, each time.Duration, c *conn) *paced {
	return &paced{ResponseWriter: w, control: http.NewResponseController(w), each: each, conn: c}
}

// Unwrap serves http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write writes within its time.
func (p *paced) Write(b []byte) (int, error) {
	p.extend()
	if p.conn != nil {
		p.conn.useful.Add(int64(len(b)))
	}
	return p.ResponseWriter.Write(b)
}

// FlushError flushes within its time.
func (p *paced) FlushError() error {
	p.extend()
	return p.control.Flush()
}

func (p *paced) extend() {
	if now := time.Now(); now.Sub(p.set) > p.each/4 {
		p.set = now
		_ = p.control.SetWriteDeadline(now.Add(p.each))
	}
}
