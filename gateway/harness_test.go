package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// seen is what an upstream got.
type seen struct {
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *seen) last() (*http.Request, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return nil, ""
	}
	return s.requests[len(s.requests)-1], s.bodies[len(s.bodies)-1]
}

// counting is an upstream that notes each request before it answers with h; nil answers 200 "ok".
func counting(t *testing.T, h http.Handler) (*httptest.Server, *seen) {
	t.Helper()
	s := &seen{}
	srv := httptest.NewServer(s.wrap(h))
	t.Cleanup(srv.Close)
	return srv, s
}

func (s *seen) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		s.requests = append(s.requests, r)
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if h == nil {
			io.WriteString(w, "ok")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// serve starts a gateway's server on a listener of its own and gives its address.
func serve(t *testing.T, g *Gateway) string {
	t.Helper()
	return serveWith(t, g, g.Server())
}

// serveWith serves srv on a listener of g.
func serveWith(t *testing.T, g *Gateway, srv *http.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(g.Listener(ln)) }()
	t.Cleanup(func() { srv.Close(); <-done; g.Close() })
	return ln.Addr().String()
}

// passing is a gateway without an engine: guarded routes answer "guarded".
func passing(t *testing.T, c Config) *Gateway {
	t.Helper()
	g, err := assemble(c)
	if err != nil {
		t.Fatal(err)
	}
	err = g.addRoutes(func(*route) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				http.Error(w, "body", http.StatusBadRequest)
				return
			}
			io.WriteString(w, "guarded")
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	g.run()
	return g
}

// passTo is the configuration of a pass-through to urls with one guarded route.
func passTo(urls ...string) Config {
	return Config{
		Tenant:    Tenant{Global: true},
		Upstreams: map[string]Upstream{"up": {URLs: urls}},
		Routes: []Route{
			{Match: "/", Upstream: "up"},
			{Match: "POST /v1/payments", Upstream: "up", Operation: "pay"},
			{Match: "POST /v1/accounts/{account}/payments", Upstream: "up", Operation: "pay"},
		},
	}
}

// raw is a connection on which a test writes bytes of its own.
type raw struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dialRaw(t *testing.T, address string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second)) // a hang fails instead
	return &raw{t: t, Conn: c, r: bufio.NewReader(c)}
}

func (c *raw) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Logf("send: %v", err)
	}
}

// answer reads one answer and its body; nil: the connection ended.
func (c *raw) answer() (*http.Response, string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, ""
	}
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

// ended tells whether the peer has closed, with nothing more to read.
func (c *raw) ended() bool {
	_, err := c.r.ReadByte()
	return err != nil && !strings.Contains(err.Error(), "timeout")
}
