package gateway

import (
	"io"
	"net"
	"testing"
	"time"
)

// loop is a connection on which the same request comes for ever.
type loop struct {
	net.Conn
	request []byte
}

func (l *loop) Read(p []byte) (int, error)       { return copy(p, l.request), nil }
func (l *loop) Write(p []byte) (int, error)      { return len(p), nil }
func (l *loop) SetReadDeadline(time.Time) error  { return nil }
func (l *loop) SetWriteDeadline(time.Time) error { return nil }

func browser() []byte {
	return []byte("POST /v1/payments HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n" +
		"Content-Type: application/json\r\nContent-Length: 15\r\nCookie: session=0123456789abcdef0123456789abcdef\r\nIdempotency-Key: 0b9c3c3e-5a63-4f0c-9df1-4b2f3a1c9d10\r\n\r\n{\"amount\":1200}")
}

func TestHeadCost(t *testing.T) {
	t.Run("[security/SEC93] a head that comes in one piece costs no allocation", func(t *testing.T) {
		c := newConn(&loop{request: browser()}, &connLimits{head: 32 << 10, readHeader: time.Second, write: time.Minute}, func() {})
		p := make([]byte, 4<<10)
		answer := make([]byte, 300)
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := c.Read(p); err != nil {
				t.Fatal(err)
			}
			c.Write(answer)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func BenchmarkHead(b *testing.B) {
	p := make([]byte, 4<<10)
	b.Run("judged", func(b *testing.B) {
		c := newConn(&loop{request: browser()}, &connLimits{head: 32 << 10, readHeader: time.Second, write: time.Minute}, func() {})
		for b.Loop() {
			c.Read(p)
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			c.SetReadDeadline(time.Time{})
		}
	})
	b.Run("bare", func(b *testing.B) {
		c := &loop{request: browser()}
		for b.Loop() {
			c.Read(p)
			c.Write(p[:20])
			c.SetReadDeadline(time.Time{})
		}
	})
}
