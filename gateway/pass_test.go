package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"
)

func TestPassThrough(t *testing.T) {
	t.Parallel()
	t.Run("[http/P3] interim answers and trailers, both ways", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "s")
		}))
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") != "" {
				hints++
			}
			return nil
		}})
		for _, path := range []string{"/any", "/v1/payments"} {
			body := io.NopCloser(strings.NewReader("abc"))
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+g.address+path, body)
			req.Header.Set("Idempotency-Key", "k1")
			req.Trailer = http.Header{"X-In": nil, "Idempotency-Key": nil, "Idempotency_key": nil}
			req.Body = trailing{body, req}
			res, err := g.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if string(b) != "body" || res.Trailer.Get("X-Sum") != "s" {
				t.Errorf("%s: %q, trailer %v", path, b, res.Trailer)
			}
			if path == "/any" {
				r, body := got.last()
				if body != "abc" || r.Trailer.Get("X-In") != "in" {
					t.Errorf("the upstream got %q, trailer %v", body, r.Trailer)
				}
				t.Run("[security/SEC56] a key in a trailer is dropped", func(t *testing.T) {
					if r.Trailer["Idempotency-Key"] != nil || r.Trailer["Idempotency_key"] != nil {
						t.Errorf("trailer %v", r.Trailer)
					}
				})
			}
		}
		if hints != 2 {
			t.Errorf("%d early hints", hints)
		}
	})
	t.Run("[http/P3] bytes leave as they come", func(t *testing.T) {
		t.Parallel()
		in := make(chan string, 1)
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Type", "text/event-stream")
			line := make([]byte, 3)
			for {
				if _, err := io.ReadFull(r.Body, line); err != nil {
					return
				}
				in <- string(line)
				fmt.Fprintf(w, "data: %s\n\n", line)
				http.NewResponseController(w).Flush()
			}
		}))
		t.Cleanup(up.Close)
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		body, feed := io.Pipe()
		req, _ := http.NewRequest("POST", "http://"+g.address+"/events", body)
		// Each step needs the one before it on the other side: anything held back hangs, and fails by the deadline.
		go func() { io.WriteString(feed, "one") }()
		res, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		r := bufio.NewReader(res.Body)
		for _, want := range []string{"one", "two", "six"} {
			if want != "one" {
				io.WriteString(feed, want)
			}
			if got := <-in; got != want {
				t.Errorf("in: %q", got)
			}
			if line, err := r.ReadString('\n'); line != "data: "+want+"\n" {
				t.Errorf("out: %q, %v", line, err)
			}
			r.ReadString('\n')
		}
		feed.Close()
		if rest, err := io.ReadAll(r); len(rest) != 0 || err != nil {
			t.Errorf("rest %q, %v", rest, err)
		}
	})
	t.Run("[http/P3] upgrades, plain and TLS, accepted and declined", func(t *testing.T) {
		t.Parallel()
		up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
			for r := next(); r != nil; r = next() {
				if r.URL.Path != "/socket" {
					io.WriteString(c, okAnswer)
					continue
				}
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				io.Copy(c, c)
				return
			}
		})
		plain := serve(t, passing(t, passTo(up.url())))
		secure, roots := serveTLS(t, passTo(up.url()))
		for name, c := range map[string]*raw{"plain": dialRaw(t, plain), "TLS": dialTLS(t, secure, roots)} {
			const upgrade = " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
			c.send("GET /declined" + upgrade)
			if res, body := c.answer(); res == nil || body != "ok" {
				t.Fatalf("%s: declined: %v", name, res)
			}
			c.send("GET /after HTTP/1.1\r\nHost: h\r\n\r\nGET /declined" + upgrade + "GET /after HTTP/1.1\r\nHost: h\r\n\r\n")
			for range 3 {
				if res, body := c.answer(); res == nil || body != "ok" {
					t.Fatalf("%s: after a declined upgrade: %v", name, res)
				}
			}
			c.send("GET /socket" + upgrade)
			if res, err := http.ReadResponse(c.r, nil); err != nil || res.StatusCode != 101 {
				t.Fatalf("%s: accepted: %v %v", name, res, err)
			}
			frames := "\x00\x01 not HTTP\n\n GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 40<<10)
			go c.send(frames)
			back := make([]byte, len(frames))
			if _, err := io.ReadFull(c.r, back); err != nil || string(back) != frames {
				t.Errorf("%s: the tunnel changed bytes: %v", name, err)
			}
		}
	})
	t.Run("[http/P3] a key on an upgrade is refused", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, nil)
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		c := dialRaw(t, g.address)
		c.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
		if res, body := c.answer(); res == nil || res.StatusCode != 400 || !strings.Contains(body, "upgrade_not_guarded") || got.count() != 0 {
			t.Errorf("got %v %s", res, body)
		}
	})
	t.Run("[http/P3, P20] HTTP/2 in front and behind", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		s := &seen{}
		up := httptest.NewUnstartedServer(s.wrap(http.HandlerFunc(created)))
		up.EnableHTTP2 = true
		up.TLS = &tls.Config{Certificates: []tls.Certificate{a.issue("up", 2, nil)}}
		up.StartTLS()
		t.Cleanup(up.Close)
		a.issue("server", 3, nil)
		c := payTo(nil, up.URL)
		u := c.Upstreams["up"]
		u.CA = a.file("ca.pem")
		c.Upstreams["up"] = u
		c.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
		g := newWorld(t).gate(c, nil)
		g.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: a.pool()}}}
		for i, path := range []string{"/any", "/v1/payments", "/v1/payments"} {
			req, _ := http.NewRequest("POST", "https://"+g.address+path, strings.NewReader("abc"))
			req.Header.Set("Idempotency-Key", "k1")
			res, err := g.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != 201 || res.ProtoMajor != 2 || len(body) == 0 || res.Header.Get("Idempotency-Status") != []string{"", "executed", "replayed"}[i] {
				t.Errorf("%s: %s %d %v", path, res.Proto, res.StatusCode, res.Header)
			}
			if r, _ := s.last(); r.ProtoMajor != 2 {
				t.Errorf("%s: behind: %s", path, r.Proto)
			}
		}
		if s.count() != 2 {
			t.Errorf("%d calls", s.count())
		}
	})
}

// trailing sets a trailer of its request once the body is read.
type trailing struct {
	io.ReadCloser
	r *http.Request
}

func (b trailing) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.r.Trailer {
			b.r.Trailer[name] = []string{"in"}
		}
	}
	return n, err
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	t.Run("[http/P20] a changed certificate is used, and no connection is dropped", func(t *testing.T) {
		t.Parallel()
		up, _ := counting(t, nil)
		a := newAuthority(t)
		a.issue("server", 2, nil)
		c := passTo(up.URL)
		c.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
		g := passing(t, c)
		address := serve(t, g)
		old := dialTLS(t, address, a.pool())
		serial := func() int64 {
			c := dialTLS(t, address, a.pool())
			return c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		}
		if n := serial(); n != 2 {
			t.Fatalf("serial %d", n)
		}
		a.issue("server", 300, nil)
		later := time.Now().Add(time.Hour)
		for _, name := range []string{"server.pem", "server.key"} {
			if err := os.Chtimes(a.file(name), later, later); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the new certificate", func() bool { return serial() == 300 })
		os.WriteFile(a.file("server.pem"), []byte("half"), 0o600)
		if n := serial(); n != 300 {
			t.Errorf("serial %d after a broken file", n)
		}
		old.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if res, _ := old.answer(); res == nil || res.StatusCode != 200 {
			t.Errorf("the old connection: %v", res)
		}
	})
	t.Run("[http/P20] TLS 1.1 is refused; upstream certificates are verified, and ours is shown", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		a.issue("server", 2, nil)
		a.issue("client", 3, nil)
		s := &seen{}
		up := httptest.NewUnstartedServer(s.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		})))
		up.TLS = &tls.Config{Certificates: []tls.Certificate{a.issue("up", 4, nil)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool()}
		up.StartTLS()
		t.Cleanup(up.Close)
		c := passTo(up.URL)
		c.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
		address := serve(t, passing(t, c))
		if conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: a.pool(), MaxVersion: tls.VersionTLS11}); err == nil {
			conn.Close()
			t.Error("TLS 1.1 was accepted")
		}
		get := func(c Config) (int, string) {
			c.TLS = TLS{}
			address := serve(t, passing(t, c))
			r := dialRaw(t, address)
			r.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			res, body := r.answer()
			if res == nil {
				return 0, ""
			}
			return res.StatusCode, body
		}
		if status, _ := get(c); status != 502 || s.count() != 0 {
			t.Errorf("an unknown authority: %d, %d calls", status, s.count())
		}
		u := c.Upstreams["up"]
		u.CA, u.Cert, u.Key = a.file("ca.pem"), a.file("client.pem"), a.file("client.key")
		c.Upstreams = map[string]Upstream{"up": u}
		if status, body := get(c); status != 200 || body != "client" {
			t.Errorf("with our certificate: %d %q", status, body)
		}
		u.ServerName = "other.example"
		c.Upstreams = map[string]Upstream{"up": u}
		if status, _ := get(c); status != 502 {
			t.Errorf("another name: %d", status)
		}
	})
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Proxy-Authenticate", "x")
	}))
	stranger, trusting := payTo(nil, up.URL), payTo(nil, up.URL)
	trusting.TrustedProxies = []string{"127.0.0.0/8"}
	t.Run("[http/P22] host kept, forwarding headers rewritten, hop-by-hop dropped", func(t *testing.T) {
		for name, c := range map[string]Config{"stranger": stranger, "trusted": trusting} {
			g := newWorld(t).gate(c, nil)
			for i, path := range []string{"/a%2Fb/%7e\"|?q=%zz;a=1&b", "/v1/payments"} {
				conn := dialRaw(t, g.address)
				conn.send("POST " + strings.ReplaceAll(path, `"`, "%22") + " HTTP/1.1\r\nHost: shop.example:80\r\nContent-Length: 1\r\nIdempotency-Key: " + fmt.Sprint(i) +
					"\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 1\r\nForwarded: for=192.0.2.1" +
					"\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\nProxy-Connection: close\r\nTE: gzip\r\n\r\nx")
				res, _ := conn.answer()
				if res == nil || res.Header.Get("X-Hop")+res.Header.Get("Keep-Alive")+res.Header.Get("Proxy-Authenticate") != "" {
					t.Fatalf("%s %s: answer %v", name, path, res)
				}
				r, _ := got.last()
				want := map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "shop.example:80", "X-Forwarded-Proto": "http",
					"Forwarded": `for=127.0.0.1;host="shop.example:80";proto=http`, "X-Forwarded-Port": ""}
				if name == "trusted" {
					want = map[string]string{"X-Forwarded-For": "192.0.2.1, 127.0.0.1", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https",
						"Forwarded": `for=192.0.2.1, for=127.0.0.1;host="shop.example:80";proto=http`, "X-Forwarded-Port": "1"}
				}
				for h, v := range want {
					if strings.Join(r.Header[h], "|") != v {
						t.Errorf("%s %s: %s is %q, want %q", name, path, h, r.Header[h], v)
					}
				}
				for _, h := range []string{"X-Mine", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Connection"} {
					if r.Header[h] != nil {
						t.Errorf("%s %s: %s reached the upstream", name, path, h)
					}
				}
				if r.Host != "shop.example:80" || r.RequestURI != strings.ReplaceAll(path, `"`, "%22") {
					t.Errorf("%s: host %q, target %q", name, r.Host, r.RequestURI)
				}
			}
		}
	})
}

func TestCORS(t *testing.T) {
	t.Parallel()
	t.Run("[http/P23] configured origins read problems, replays and preflights", func(t *testing.T) {
		up, calls := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://other.example")
			created(w, r)
		}))
		c := payTo(nil, up.URL)
		c.CORS.Origins = []string{"https://shop.example"}
		g := newWorld(t).gate(c, nil)
		check := func(r got, what string) {
			t.Helper()
			h := r.Header
			if v := h.Values("Access-Control-Allow-Origin"); len(v) != 1 || v[0] != "https://shop.example" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "Idempotency-Status") ||
				!strings.Contains(h.Get("Vary"), "Origin") {
				t.Errorf("%s: %v", what, h)
			}
		}
		const origin = "Origin: https://shop.example"
		r := g.do("OPTIONS", "/v1/payments", "", origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: idempotency-key")
		check(r, "preflight")
		if !strings.Contains(strings.ToLower(r.Header.Get("Access-Control-Allow-Headers")), "idempotency-key") || calls.count() != 0 {
			t.Errorf("preflight: %v, %d calls", r.Header, calls.count())
		}
		check(g.pay("k1", origin), "first")
		check(g.pay("k1", origin), "replay")
		check(g.do("POST", "/v1/payments", "", origin), "problem")
		if r := g.do("POST", "/v1/payments", "", "Origin: https://evil.example"); r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("another origin: %v", r.Header)
		}
	})
	t.Run("[http/P23] without origins the upstream's lists get idempo's names", func(t *testing.T) {
		up, _ := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
			w.Header().Set("Access-Control-Expose-Headers", "X-Own")
			if r.Method == "OPTIONS" {
				w.Header().Set("Access-Control-Allow-Headers", "content-type")
			}
		}))
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		r := g.do("OPTIONS", "/v1/payments", "", "Origin: https://shop.example", "Access-Control-Request-Method: POST")
		if v := strings.Join(r.Header.Values("Access-Control-Allow-Headers"), ", "); !strings.HasPrefix(v, "content-type, ") || !strings.Contains(v, "Idempotency-Key") {
			t.Errorf("allow: %q", v)
		}
		r = g.pay("k1")
		if v := strings.Join(r.Header.Values("Access-Control-Expose-Headers"), ", "); !strings.HasPrefix(v, "X-Own, ") || !strings.Contains(v, "Idempotency-Status") {
			t.Errorf("expose: %q", v)
		}
	})
}
