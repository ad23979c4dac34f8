package demo

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// cutter is a piece of wire between client and service that can lose an answer: the request arrives, the service acts, and the
// connection ends before a byte comes back.
type cutter struct {
	target string
	l      net.Listener
	next   atomic.Int32 // answers still to lose
	work   sync.WaitGroup
}

func newCutter(target string) (*cutter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cutter{target: target, l: l}
	c.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.work.Go(func() { c.carry(conn) })
		}
	})
	return c, nil
}

func (c *cutter) address() string { return c.l.Addr().String() }

// lose makes the next answer get lost.
func (c *cutter) lose() { c.next.Add(1) }

func (c *cutter) close() {
	_ = c.l.Close()
	c.work.Wait()
}

func (c *cutter) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer server.Close()
	c.work.Go(func() {
		_, _ = io.Copy(server, client) // ends when either side closes
	})
	first := make([]byte, 4096)
	n, err := server.Read(first) // an answer: the service has acted
	if err != nil {
		return
	}
	if c.next.Add(-1) >= 0 {
		return
	}
	c.next.Add(1)
	if _, err := client.Write(first[:n]); err != nil {
		return
	}
	_, _ = io.Copy(client, server)
}
