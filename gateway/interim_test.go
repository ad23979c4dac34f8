package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC63] interim answers beyond the time-out are not passed on", func(t *testing.T) {
		t.Parallel()
		var sent atomic.Int64
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			if next() == nil {
				return
			}
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-A: 1\r\nX-B: 2\r\n\r\n"); err != nil {
					return
				}
				sent.Add(1)
			}
		})
		c := payTo(nil, up.url())
		upstream := c.Upstreams["up"]
		upstream.HeaderTimeout = 2 * time.Millisecond
		c.Upstreams["up"] = upstream
		g := newWorld(t).gate(c, nil)
		for i := range 50 {
			conn := dialRaw(t, g.address)
			conn.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\nConnection: close\r\nIdempotency-Key: i" + strconv.Itoa(i) + "\r\nContent-Length: 2\r\n\r\n{}")
			io.Copy(io.Discard, conn)
			conn.Close()
		}
		if sent.Load() == 0 {
			t.Error("no interim answer was sent")
		}
	})
}

func TestInterimEnds(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	i := &interim{w: w}
	i.end()
	if err := i.pass(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</a>"}}); err != nil || w.Code != 200 || len(w.Header()) != 0 {
		t.Errorf("%v, %d, %v", err, w.Code, w.Header())
	}
}
