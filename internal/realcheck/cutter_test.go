package realcheck

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a proxy that cuts some connections in the middle of an answer, wherever that is.
type cutter struct {
	ln     net.Listener
	target func(context.Context) (string, error) // where to connect; waits while nobody serves
	share  float64                               // of connections that are cut
	within int                                   // bytes of answers after which, at most
	cuts   atomic.Int64
	wg     sync.WaitGroup
}

func openCutter(t *testing.T, share float64, within int, target func(context.Context) (string, error)) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, target: target, share: share, within: within}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	c.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() { c.serve(ctx, in) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		end()
		c.wg.Wait()
	})
	return c
}

func (c *cutter) address() string { return c.ln.Addr().String() }

func (c *cutter) serve(ctx context.Context, in net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = in.Close() })()
	defer func() { _ = in.Close() }()
	where, err := c.target(ctx)
	if err != nil {
		return
	}
	out, err := net.Dial("tcp", where)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(out, in)
		_ = out.(*net.TCPConn).CloseWrite()
	})
	answers := io.Reader(out)
	budget := int64(-1)
	if rand.Float64() < c.share {
		budget = rand.Int64N(int64(c.within))
		answers = io.LimitReader(out, budget)
	}
	if n, _ := io.Copy(in, answers); n == budget {
		c.cuts.Add(1)
	}
	_ = in.Close() // wakes the other direction
	_ = out.Close()
	asking.Wait()
}
