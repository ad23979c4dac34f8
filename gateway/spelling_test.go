package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestSpellings(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC57] a method or host in other letters reaches no guarded route's upstream unguarded", func(t *testing.T) {
		t.Parallel()
		up, calls := counting(t, nil)
		c := payTo(nil, up.URL)
		c.Routes = append(c.Routes, Route{Match: "POST Api.Example/v2/payments", Upstream: "up", Operation: "pay2"})
		g := newWorld(t).gate(c, nil)
		for _, line := range []string{
			"post /v1/payments HTTP/1.1\r\nHost: h", "Post /v1/payments HTTP/1.1\r\nHost: h", "POST /v2/payments HTTP/1.1\r\nHost: API.EXAMPLE",
			"POST /v2/payments HTTP/1.1\r\nHost: api.example.", "POST /v2/payments HTTP/1.1\r\nHost: api.example.:80", "POST http://API.example/v2/payments HTTP/1.1\r\nHost: h",
			"POST /v2/payments HTTP/1.1\r\nHost: api.example", "POST /v2/payments HTTP/1.1\r\nHost: api.example:80:80",
			"POST /v2/payments HTTP/1.1\r\nHost: api.example:x", "POST /v2/payments HTTP/1.1\r\nHost: [api.example", "POST /v2/payments HTTP/1.1\r\nHost: [::1]api.example",
		} {
			conn := dialRaw(t, g.address)
			conn.send(line + "\r\nContent-Length: 0\r\n\r\n")
			if res, body := conn.answer(); res == nil || res.StatusCode != 400 || calls.count() != 0 {
				t.Errorf("%q: %v %s, %d calls", line, res, body, calls.count())
			}
		}
		conn := dialRaw(t, g.address)
		conn.send("post /elsewhere HTTP/1.1\r\nHost: API.Example.\r\nContent-Length: 0\r\n\r\n")
		res, _ := conn.answer()
		if r, _ := calls.last(); res == nil || res.StatusCode != 200 || r == nil || r.Method != "post" || r.Host != "API.Example." {
			t.Errorf("an unguarded request was not passed as it came: %v %v", res, r)
		}
	})
	t.Run("[security/SEC57] over HTTP/2 a path that is none over HTTP/1.1 is refused", func(t *testing.T) {
		t.Parallel()
		a := newAuthority(t)
		a.issue("server", 2, nil)
		up, calls := counting(t, nil)
		c := payTo(nil, up.URL)
		c.TLS = TLS{Cert: a.file("server.pem"), Key: a.file("server.key")}
		g := newWorld(t).gate(c, nil)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		for path, want := range map[string]int{"/v1/payments#": 400, "/v1/payments#x": 400, "/v1/payments HTTP/1.1": 400, "/v1/payments ": 400,
			"/v1/payments\xc3\xa9": 400, "/other": 200} {
			before := calls.count()
			res, err := transport.RoundTrip(&http.Request{Method: "POST", URL: &url.URL{Scheme: "https", Host: g.address, Opaque: path}, Header: http.Header{}})
			if err != nil {
				t.Errorf("%q: %v", path, err)
				continue
			}
			res.Body.Close()
			if res.ProtoMajor != 2 || res.StatusCode != want || (calls.count() == before) != (want == 400) {
				t.Errorf("%q: %s %d, %d calls", path, res.Proto, res.StatusCode, calls.count()-before)
			}
		}
	})
	t.Run("[security/SEC53] hosts have one reading", func(t *testing.T) {
		t.Parallel()
		for host, want := range map[string]bool{"h": true, "h:": true, "h:80": true, "a_b.c-d.": true, "[::1]": true, "[fe80::1%25eth0]:8080": true, "127.0.0.1:1": true,
			"": false, ":80": false, "h:80:80": false, "h:x": false, "h:8x": false, "::1": false, "[::1": false, "[]": false, "[::1]h": false, "[::1]:x": false, "u@h": false, "h/": false, "a b": false, "h]": false} {
			if validHost([]byte(host)) != want {
				t.Errorf("%q: %v", host, !want)
			}
		}
	})
	t.Run("[security/SEC57] an upgrade to another HTTP does not open a way past the guard", func(t *testing.T) {
		t.Parallel()
		for _, protocol := range []string{"h2c", "websocket, H2C", "HTTP/1.1", "chat"} {
			up, calls := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					io.WriteString(w, "plain")
					return
				}
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
				rw.Flush()
			}))
			c := payTo(nil, up.URL)
			g := newWorld(t).gate(c, nil)
			conn := dialRaw(t, g.address)
			conn.send("GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + "\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
			res, body := conn.answer()
			want := 200
			if protocol == "chat" {
				want = 101
			}
			if r, _ := calls.last(); res == nil || res.StatusCode != want || want == 200 && (strings.TrimSpace(body) != "plain" || r.Header.Get("Http2-Settings") != "") {
				t.Errorf("%s: %v %s", protocol, res, body)
			}
		}
	})
}

func TestPassedStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"000", "099"} {
		t.Run("[security/SEC63] an unguarded answer of status "+status+" is no answer", func(t *testing.T) {
			t.Parallel()
			up := scripted(t, nil, func(c net.Conn, next func() *http.Request) {
				if next() != nil {
					io.WriteString(c, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\n\r\n")
				}
			})
			g := newWorld(t).gate(payTo(nil, up.url()), nil)
			g.want(g.do("GET", "/x", ""), 502, "", "outcome_unknown")
		})
	}
}
