package storecheck

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/idempo/idempo/internal/crashtest"
)

// newWire starts a proxy before the server of dsn and returns it with dsn leading through it.
func newWire(t testing.TB, dsn string) (*crashtest.Wire, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	w, err := crashtest.OpenWire("tcp", u.Host, crashtest.Trap{})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	u.Host = fmt.Sprintf("127.0.0.1:%d", w.Port())
	return w, u.String()
}

// anyStatement matches whatever comes next.
func anyStatement(string) bool { return true }

// countingConn counts flights: writes that follow a read, or are the first.
type countingConn struct {
	net.Conn
	mu      sync.Mutex
	read    bool
	flights *int
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.read {
		*c.flights++
		c.read = false
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.read = true
		c.mu.Unlock()
	}
	return n, err
}

var _ io.ReadWriter = (*countingConn)(nil)
