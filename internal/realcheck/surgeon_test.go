package realcheck

import (
	"bufio"
	"bytes"
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
)

// point is where an exchange is cut.
type point string

const (
	nowhere       point = ""
	beforeRequest point = "before the request" // nothing of it is passed on
	inRequest     point = "in the request"
	beforeAnswer  point = "before the answer" // the request was passed on, nothing of the answer comes back
	inAnswer      point = "in the answer"
)

// plan decides the fate of one exchange.
type plan struct {
	at    point
	part  float64 // how much of what is cut in the middle passes
	reset bool    // the connection ends with a reset, not with an end
	hasty bool    // before the answer: at once, not when the answer is there
}

// exchange is one request that came to a surgeon, and what became of it.
type exchange struct {
	key    string
	nth    int  // of this key at this surgeon, from 1
	reused bool // not the first of its connection
	cut    point
	passed bool  // all of the request was passed on
	whole  bool  // all of the answer was passed back
	life   int   // of the gateway, at its beginning
	trap   *trap // nil: none caught it
	halt   stage // where it did
}

// surgeon is a proxy that understands HTTP/1.1 well enough to cut an exchange at a chosen point. Each exchange goes to the target on a
// connection of its own; connections of callers are kept and used again.
type surgeon struct {
	target func(context.Context) (string, error)
	plan   func(key string, nth int) plan
	life   func() int // counts the starts of the gateway
	traps  []*trap

	work  sync.WaitGroup
	mu    sync.Mutex
	log   []*exchange
	seen  map[string]int
	open  map[io.Closer]bool
	inFly int // passed on and not yet answered
	ended bool
}

func newSurgeon(target func(context.Context) (string, error), plan func(string, int) plan) *surgeon {
	return &surgeon{target: target, plan: plan, life: func() int { return 0 }, seen: map[string]int{}, open: map[io.Closer]bool{}}
}

// listen opens an address of the surgeon at at; it may have several. It ends with the test.
func (c *surgeon) listen(ctx context.Context, t *testing.T, at string) string {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	release := c.hold(ln)
	c.work.Go(func() {
		defer release()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.work.Go(func() { c.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		c.mu.Lock()
		c.ended = true
		for conn := range c.open {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.work.Wait()
	})
	return ln.Addr().String()
}

// hold notes what is open, so that the end of the test can close it.
func (c *surgeon) hold(conn io.Closer) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
	if c.ended {
		_ = conn.Close()
	}
	return func() {
		_ = conn.Close()
		c.mu.Lock()
		delete(c.open, conn)
		c.mu.Unlock()
	}
}

func (c *surgeon) serve(ctx context.Context, conn net.Conn) {
	defer c.hold(conn)()
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &raw))
	for n := 0; ; n++ {
		raw.Reset()
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if !c.exchange(ctx, conn, raw.Bytes(), r, c.begin(r.Header.Get("Idempotency-Key"), n > 0)) {
			return
		}
	}
}

func (c *surgeon) begin(key string, reused bool) *exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[key]++
	x := &exchange{key: key, nth: c.seen[key], reused: reused, life: c.life()}
	c.log = append(c.log, x)
	for _, tr := range c.traps {
		if c.plan(key, x.nth).at == nowhere && x.trap == nil && tr.choose(len(c.log), x) {
			x.trap = tr
		}
	}
	return x
}

// exchange carries out one request and says whether the connection may be used again.
func (c *surgeon) exchange(ctx context.Context, conn net.Conn, request []byte, r *http.Request, x *exchange) bool {
	p := c.plan(x.key, x.nth)
	if p.at == beforeRequest {
		return c.cut(conn, x, p)
	}
	if x.halt == claimed {
		x.trap.spring()
		return false
	}
	where, err := c.target(ctx)
	if err != nil {
		return false
	}
	to, err := net.Dial("tcp", where)
	if err != nil {
		return false
	}
	defer c.hold(to)()
	if p.at == inRequest {
		_, _ = to.Write(part(request, p))
		return c.cut(conn, x, p)
	}
	if _, err := to.Write(request); err != nil {
		return false
	}
	c.note(func() { x.passed = true; c.inFly++ })
	defer c.note(func() { c.inFly-- })
	if x.halt == forwarded {
		x.trap.spring()
		return false
	}
	if p.at == beforeAnswer && p.hasty {
		return c.cut(conn, x, p)
	}
	answer, again := readAnswer(to, r)
	if x.halt == replied {
		x.trap.spring()
		return false
	}
	switch p.at {
	case beforeAnswer:
		return c.cut(conn, x, p)
	case inAnswer:
		_, _ = conn.Write(part(answer, p))
		return c.cut(conn, x, p)
	}
	if _, err := conn.Write(answer); err != nil || !again {
		return false
	}
	c.note(func() { x.whole = true })
	return !r.Close
}

// part is a beginning of b: at least a byte, never all.
func part(b []byte, p plan) []byte {
	if len(b) < 2 {
		return nil
	}
	return b[:1+int(p.part*float64(len(b)-2))]
}

// readAnswer reads one answer, byte for byte. It is not ok if the target ended before it was whole.
func readAnswer(to net.Conn, r *http.Request) (answer []byte, ok bool) {
	var raw bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(to, &raw)), r)
	if err != nil {
		return raw.Bytes(), false
	}
	_, err = io.Copy(io.Discard, res.Body)
	return raw.Bytes(), err == nil
}

func (c *surgeon) cut(conn net.Conn, x *exchange, p plan) bool {
	c.note(func() { x.cut = p.at })
	if tcp, ok := conn.(*net.TCPConn); ok && p.reset {
		_ = tcp.SetLinger(0)
	}
	return false
}

func (c *surgeon) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// flying is how many requests are passed on and not yet answered.
func (c *surgeon) flying() (n int) {
	c.note(func() { n = c.inFly })
	return n
}

// history is what came by, by key.
func (c *surgeon) history() map[string][]exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]exchange{}
	for _, x := range c.log {
		all[x.key] = append(all[x.key], *x)
	}
	return all
}

// dice gives the random numbers of one decision: the same for the same seed, whatever else happens.
func dice(seed uint64, words ...string) *rand.Rand {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = io.WriteString(h, w+"\x00")
	}
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
