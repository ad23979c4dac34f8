package gateway

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// script is an upstream below HTTP: it counts whole requests, and acts on each as its script says.
type script struct {
	t        *testing.T
	ln       net.Listener
	requests atomic.Int32
	work     sync.WaitGroup
}

// scripted serves each connection with each, which gets a function that reads one whole HTTP/1 request and counts it.
func scripted(t *testing.T, config *tls.Config, each func(c net.Conn, next func() *http.Request)) *script {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	s := &script{t: t, ln: ln}
	s.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				each(c, func() *http.Request {
					req, err := http.ReadRequest(r)
					if err != nil {
						return nil
					}
					if _, err := io.Copy(io.Discard, req.Body); err != nil {
						return nil
					}
					s.requests.Add(1)
					return req
				})
			})
		}
	})
	t.Cleanup(func() { ln.Close() })
	return s
}

func (s *script) url() string { return "http://" + s.ln.Addr().String() }

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// reset ends a connection with RST where it can.
func reset(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok {
		tc.SetLinger(0)
	}
	c.Close()
}

func TestSentUnknown(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{"empty": "", "small": "abc", "spooled": strings.Repeat("x", 300<<10)}
	for name, act := range map[string]func(net.Conn){
		"reset":     reset,
		"end":       func(c net.Conn) { c.Close() },
		"cut head":  func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") },
		"cut body":  func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") },
		"cut chunk": func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab") },
		"no last one": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
		},
		"no HTTP": func(c net.Conn) { io.WriteString(c, "220 mail.example ESMTP\r\n") },
		"two lengths": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok")
		},
		"control byte": func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\x00c\r\n\r\nok") },
		"status 000":   func(c net.Conn) { io.WriteString(c, "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n") },
		"status 099":   func(c net.Conn) { io.WriteString(c, "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n") },
		"bad name":     func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA b: c\r\n\r\nok") },
		"head > 64 KiB": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: "+strings.Repeat("x", 70<<10)+"\r\n\r\nok")
		},
	} {
		t.Run("[http/P6] [security/SEC63] "+name+" is one call and a doubt", func(t *testing.T) {
			t.Parallel()
			for size, body := range bodies {
				up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
					if next() != nil {
						act(c)
					}
				})
				never := scripted(t, nil, func(c net.Conn, next func() *http.Request) { next() })
				g := newWorld(t).gate(payTo(func(r *Route) { r.MaxBody = 1 << 20 }, up.url()), nil)
				r := g.do("POST", "/v1/payments", body, "Idempotency-Key: k1")
				g.want(r, 502, "in_doubt", "outcome_unknown")
				if r.problem.Retryable || !r.problem.SameKey || r.problem.KeyRef == "" {
					t.Errorf("%s: problem %+v", size, r.problem)
				}
				g.want(g.do("POST", "/v1/payments", body, "Idempotency-Key: k1"), 409, "in_doubt", "in_doubt")
				if n := up.requests.Load() + never.requests.Load(); n != 1 {
					t.Errorf("%s: %d calls", size, n)
				}
			}
		})
	}
	t.Run("[http/P6] no other address, and 504 for one too slow", func(t *testing.T) {
		t.Parallel()
		silent := make(chan struct{})
		t.Cleanup(func() { close(silent) })
		act := func(c net.Conn, next func() *http.Request) {
			if next() != nil {
				<-silent
			}
		}
		one, two := scripted(t, nil, act), scripted(t, nil, act)
		c := payTo(nil, one.url(), two.url())
		up := c.Upstreams["up"]
		up.HeaderTimeout = 1
		c.Upstreams["up"] = up
		g := newWorld(t).gate(c, nil)
		g.want(g.pay("k1"), 504, "in_doubt", "outcome_unknown")
		eventually(t, "the one call", func() bool { return one.requests.Load()+two.requests.Load() == 1 })
		g.want(g.pay("k1"), 409, "in_doubt", "in_doubt")
		if n := one.requests.Load() + two.requests.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("[http/P6] a long answer that is cut is cut for the caller too", func(t *testing.T) {
		t.Parallel()
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			if next() != nil {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n"+strings.Repeat("x", 2<<20))
			}
		})
		g := newWorld(t).gate(payTo(nil, up.url()), nil)
		if r, err := g.try("POST", "/v1/payments", "abc", "Idempotency-Key: k1"); err == nil && r.StatusCode == 200 {
			t.Errorf("a cut answer looks whole: %d bytes", len(r.body))
		}
		g.want(g.do("POST", "/v1/payments", "abc", "Idempotency-Key: k1"), 409, "in_doubt", "in_doubt")
		if up.requests.Load() != 1 {
			t.Errorf("%d calls", up.requests.Load())
		}
	})
}

// closedPort is an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func TestNeverSent(t *testing.T) {
	t.Parallel()
	t.Run("[http/P5] the next address, or released", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(created))
		dead := "http://" + closedPort(t)
		for _, body := range []string{"", "abc", strings.Repeat("x", 300<<10)} {
			g := newWorld(t).gate(payTo(nil, dead, up.URL), nil)
			before := got.count()
			for i := range 4 {
				g.want(g.do("POST", "/v1/payments", body, fmt.Sprintf("Idempotency-Key: k%d", i)), 201, "executed", "")
			}
			if got.count() != before+4 {
				t.Errorf("%d calls", got.count()-before)
			}
			if s := g.g.Status().Upstreams[0]; s.Total != 2 || s.Well != 1 {
				t.Errorf("the failing address does not rest: %+v", s)
			}
			if r := g.do("GET", "/x", ""); r.StatusCode != 201 {
				t.Errorf("unguarded: %d", r.StatusCode)
			}
		}
		port := closedPort(t)
		g := newWorld(t).gate(payTo(nil, "http://"+port, "http://name.invalid:1"), nil)
		r := g.pay("k1")
		g.want(r, 502, "released", "upstream_unreachable")
		if !r.problem.Retryable || !r.problem.SameKey || r.Header.Get("Retry-After") != "1" {
			t.Errorf("problem %+v", r.problem)
		}
		r = g.do("GET", "/x", "")
		g.want(r, 502, "", "upstream_unreachable")
		ln, err := net.Listen("tcp", port)
		if err != nil {
			t.Skipf("the port is taken meanwhile: %v", err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(created)}
		done := make(chan struct{})
		go func() { defer close(done); srv.Serve(ln) }()
		t.Cleanup(func() { srv.Close(); <-done })
		g.want(g.pay("k1"), 201, "executed", "")
	})
	t.Run("[http/P5] a handshake that fails is never sent", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, nil) // speaks no TLS
		g := newWorld(t).gate(payTo(nil, strings.Replace(up.URL, "http:", "https:", 1)), nil)
		g.want(g.pay("k1"), 502, "released", "upstream_unreachable")
		if got.count() != 0 {
			t.Errorf("%d calls", got.count())
		}
	})
	t.Run("[http/P5] an address that fails its health check gets nothing until it answers again", func(t *testing.T) {
		t.Parallel()
		var sick atomic.Bool
		sick.Store(true)
		answer := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" && sick.Load() {
				w.WriteHeader(503)
			}
		}
		one, got := counting(t, http.HandlerFunc(answer))
		two, _ := counting(t, nil)
		c := payTo(nil, one.URL, two.URL)
		u := c.Upstreams["up"]
		u.HealthCheck = &HealthCheck{Path: "/health", Every: 1e6}
		c.Upstreams["up"] = u
		g := newWorld(t).gate(c, nil)
		paid := func() (n int) {
			got.mu.Lock()
			defer got.mu.Unlock()
			for _, r := range got.requests {
				if r.Method == "POST" {
					n++
				}
			}
			return n
		}
		well := func(n int) {
			eventually(t, "the health check", func() bool { return g.g.Status().Upstreams[0].Well == n })
		}
		well(1)
		for i := range 6 {
			g.want(g.pay(fmt.Sprint("a", i)), 200, "executed", "")
		}
		if paid() != 0 {
			t.Errorf("%d calls at the sick one", paid())
		}
		sick.Store(false)
		well(2)
		for i := range 6 {
			g.want(g.pay(fmt.Sprint("b", i)), 200, "executed", "")
		}
		if paid() != 3 {
			t.Errorf("%d of 6 calls at the one that is well again", paid())
		}
	})
	t.Run("[http/P5] a connection that died idle is replaced", func(t *testing.T) {
		t.Parallel()
		drop := make(chan struct{})
		dropped := make(chan struct{}, 8)
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			for next() != nil {
				io.WriteString(c, okAnswer)
				<-drop
				reset(c)
				dropped <- struct{}{}
			}
		})
		g := newWorld(t).gate(payTo(nil, up.url()), nil)
		g.want(g.pay("k1"), 200, "executed", "")
		drop <- struct{}{}
		<-dropped
		eventually(t, "the dead connection", func() bool {
			ls := g.g.upstreams["up"].targets[0].links
			ls.mu.Lock()
			defer ls.mu.Unlock()
			return len(ls.ready) == 0
		})
		go func() { drop <- struct{}{} }()
		g.want(g.pay("k2"), 200, "executed", "")
		if up.requests.Load() != 2 {
			t.Errorf("%d calls", up.requests.Load())
		}
	})
	for name, answer := range map[string]func(h2 *h2peer, stream uint32){
		"REFUSED_STREAM": func(p *h2peer, stream uint32) { p.frame(3, 0, stream, []byte{0, 0, 0, 7}) },
		"GOAWAY":         func(p *h2peer, stream uint32) { p.frame(7, 0, 0, []byte{0, 0, 0, 0, 0, 0, 0, 0}) },
		"GOAWAY with an error": func(p *h2peer, stream uint32) {
			p.frame(7, 0, 0, []byte{0, 0, 0, 0, 0, 0, 0, 11})
		},
	} {
		t.Run("[http/P5] HTTP/2 "+name+" is never sent", func(t *testing.T) {
			t.Parallel()
			for _, body := range []string{"", "abc"} {
				a := newAuthority(t)
				pair := a.issue("up", 2, nil)
				up := scriptedH2(t, pair, answer)
				c := payTo(nil, "https://"+up.ln.Addr().String())
				u := c.Upstreams["up"]
				u.CA = a.file("ca.pem")
				c.Upstreams["up"] = u
				g := newWorld(t).gate(c, nil)
				r := g.do("POST", "/v1/payments", body, "Idempotency-Key: k1")
				g.want(r, 502, "released", "upstream_unreachable")
				if n := up.requests.Load(); n < 1 {
					t.Errorf("%d streams", n)
				}
			}
		})
	}
}

// h2peer is a server that speaks just enough HTTP/2 to answer each stream with frames of a test's own.
type h2peer struct{ c net.Conn }

func (p *h2peer) frame(kind, flags byte, stream uint32, payload []byte) {
	head := make([]byte, 9, 9+len(payload))
	head[0], head[1], head[2] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload))
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	p.c.Write(append(head, payload...))
}

// scriptedH2 counts the streams whose request is whole, and answers each with answer.
func scriptedH2(t *testing.T, pair tls.Certificate, answer func(*h2peer, uint32)) *script {
	t.Helper()
	var s *script
	s = scripted(t, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}, func(c net.Conn, _ func() *http.Request) {
		preface := make([]byte, 24)
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		p := &h2peer{c}
		p.frame(4, 0, 0, nil)
		for {
			head := make([]byte, 9)
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			if _, err := io.ReadFull(c, payload); err != nil {
				return
			}
			stream := binary.BigEndian.Uint32(head[5:])
			switch {
			case head[3] == 4 && head[4]&1 == 0:
				p.frame(4, 1, 0, nil)
			case (head[3] == 0 || head[3] == 1) && head[4]&1 == 1: // END_STREAM
				s.requests.Add(1)
				answer(p, stream)
			}
		}
	})
	return s
}

func TestNoSilentResend(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for size, body := range map[string]string{"empty": "", "small": "abc", "spooled": strings.Repeat("x", 300<<10)} {
			t.Run(fmt.Sprintf("[http/P8] HTTP/1.1, %s, %s: one call on a reused connection that drops", header, size), func(t *testing.T) {
				t.Parallel()
				// The first request of a connection is answered; the second is acted on, and the connection dropped.
				up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
					if next() != nil {
						io.WriteString(c, okAnswer)
						if next() != nil {
							reset(c)
						}
					}
				})
				c := payTo(func(r *Route) { r.Key.Headers = []string{header} }, up.url())
				u := c.Upstreams["up"]
				u.IdleTimeout = 1 << 40
				c.Upstreams["up"] = u
				g := newWorld(t).gate(c, nil)
				g.want(g.do("POST", "/v1/payments", body, header+": k1"), 200, "executed", "")
				waitReady(t, g)
				g.want(g.do("POST", "/v1/payments", body, header+": k2"), 502, "in_doubt", "outcome_unknown")
				if n := up.requests.Load(); n != 2 {
					t.Errorf("%d calls for two keys", n)
				}
			})
		}
	}
	t.Run("[http/P8] HTTP/2: one call where the stream ends with an error", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		pair := a.issue("up", 2, nil)
		for _, code := range []byte{1, 2, 8, 11} { // PROTOCOL_ERROR is the one that net/http sends again
			for _, body := range []string{"", "abc", strings.Repeat("x", 60<<10)} {
				up := scriptedH2(t, pair, func(p *h2peer, stream uint32) { p.frame(3, 0, stream, []byte{0, 0, 0, code}) })
				c := payTo(nil, "https://"+up.ln.Addr().String())
				u := c.Upstreams["up"]
				u.CA = a.file("ca.pem")
				c.Upstreams["up"] = u
				g := newWorld(t).gate(c, nil)
				g.want(g.do("POST", "/v1/payments", body, "Idempotency-Key: k1"), 502, "in_doubt", "outcome_unknown")
				if n := up.requests.Load(); n != 1 {
					t.Errorf("code %d, %d bytes: %d calls", code, len(body), n)
				}
			}
		}
	})
	t.Run("[http/P8] a keyed request that passes through is sent once too", func(t *testing.T) {
		t.Parallel()
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			if next() != nil {
				io.WriteString(c, okAnswer)
				if next() != nil {
					reset(c)
				}
			}
		})
		c := payTo(func(r *Route) { r.Guard = "upstream" }, up.url())
		u := c.Upstreams["up"]
		u.IdleTimeout = 1 << 40
		c.Upstreams["up"] = u
		g := newWorld(t).gate(c, nil)
		for _, path := range []string{"/v1/payments", "/other"} {
			before := up.requests.Load()
			g.want(g.do("POST", path, "", "Idempotency-Key: k1"), 200, "", "")
			waitReady(t, g)
			g.want(g.do("POST", path, "", "Idempotency-Key: k1"), 502, "", "outcome_unknown")
			if n := up.requests.Load() - before; n != 2 {
				t.Errorf("%s: %d calls for two requests", path, n)
			}
		}
	})
	t.Run("[http/P8] fresh_connections", func(t *testing.T) {
		t.Parallel()
		var connections atomic.Int32
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			connections.Add(1)
			for next() != nil {
				io.WriteString(c, okAnswer)
			}
		})
		c := payTo(nil, up.url())
		u := c.Upstreams["up"]
		u.FreshConnections = true
		c.Upstreams["up"] = u
		g := newWorld(t).gate(c, nil)
		for i := range 3 {
			g.want(g.pay(fmt.Sprint(i)), 200, "executed", "")
		}
		if connections.Load() != 3 {
			t.Errorf("%d connections", connections.Load())
		}
	})
	t.Run("[http/P8] idle connections close after idle_timeout", func(t *testing.T) {
		t.Parallel()
		ended := make(chan struct{}, 1)
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			for next() != nil {
				io.WriteString(c, okAnswer)
			}
			ended <- struct{}{}
		})
		c := payTo(nil, up.url())
		u := c.Upstreams["up"]
		u.IdleTimeout = 1
		c.Upstreams["up"] = u
		g := newWorld(t).gate(c, nil)
		g.want(g.pay("k1"), 200, "executed", "")
		<-ended
	})
}

// waitReady waits until the connection of the last request can be used again.
func waitReady(t *testing.T, g *gate) {
	t.Helper()
	ls := g.g.upstreams["up"].targets[0].links
	eventually(t, "a reusable connection", func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return len(ls.ready) == 1
	})
}
