package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestHostileHeads writes each request to a gateway, plain and over TLS, followed by an innocent one on the same
// connection, and counts outside what reached the upstream.
func TestHostileHeads(t *testing.T) {
	t.Parallel()
	up, got := counting(t, nil)
	plain := serve(t, passing(t, passTo(up.URL)))
	tlsAddress, roots := serveTLS(t, passTo(up.URL))
	const next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n"

	refused := func(t *testing.T, statuses string, request string) {
		t.Helper()
		for _, c := range []*raw{dialRaw(t, plain), dialTLS(t, tlsAddress, roots)} {
			before := got.count()
			c.send(request + next)
			res, _ := c.answer()
			if res == nil {
				if !strings.Contains(statuses, "closed") {
					t.Errorf("%.60q: closed without an answer", request)
				}
				continue
			}
			if !strings.Contains(statuses, fmt.Sprint(res.StatusCode)) {
				t.Errorf("%.60q: status %d, want %s", request, res.StatusCode, statuses)
			}
			if !c.ended() {
				rest, _ := c.r.Peek(min(c.r.Buffered(), 200))
				t.Errorf("%.160q: the connection is still open: %q", request, rest)
			}
			if n := got.count(); n != before {
				t.Errorf("%.60q: %d requests reached the upstream", request, n-before)
			}
		}
	}
	ok := func(t *testing.T, request string) {
		t.Helper()
		for _, c := range []*raw{dialRaw(t, plain), dialTLS(t, tlsAddress, roots)} {
			c.send(request + next)
			for i := range 2 {
				if res, _ := c.answer(); res == nil || res.StatusCode != http.StatusOK {
					t.Errorf("%.60q: answer %d: %v", request, i, res)
				}
			}
		}
	}
	post := func(headers, body string) string {
		return "POST /v1/x HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body
	}
	t.Run("[security/SEC51] lengths", func(t *testing.T) {
		ok(t, post("Content-Length: 3\r\n", "abc"))
		ok(t, post("Content-Length:  3\t\r\n", "abc"))
		refused(t, "400", post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"))
		refused(t, "400", post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n"))
		for _, value := range []string{"3, 3", "+3", "-3", "3 3", "0x3", "", "99999999999999999999", "3\r\nContent-Length: 3", "3\r\ncontent-length: 4", "3;", "3_0", "٣"} {
			refused(t, "400", post("Content-Length: "+value+"\r\n", "abc"))
		}
	})
	t.Run("[security/SEC52] codings", func(t *testing.T) {
		ok(t, post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"))
		ok(t, post("transfer-encoding: CHUNKED\r\n", "3\r\nabc\r\n0\r\n\r\n"))
		for _, value := range []string{"identity", "gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked", "xchunked", "chunked;q=1", "", "\"chunked\"", "chunked,"} {
			refused(t, "400 501", post("Transfer-Encoding: "+value+"\r\n", "3\r\nabc\r\n0\r\n\r\n"))
		}
		refused(t, "400", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	})
	t.Run("[security/SEC53] lines", func(t *testing.T) {
		ok(t, "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n")
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n A: b\r\n\r\n",
			"GET / HTTP/1.1\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA: b\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA\r: b\r\n\r\n",
			"GET / HTTP/1.1\r\nHost : h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA: b\x00c\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: h\r\nA\x01: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nÄ: b\r\n\r\n",
			"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nhost: i\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
			"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / x HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n",
			"GET x HTTP/1.1\r\nHost: h\r\n\r\n", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", "GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT /x HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n", "GET http://a@b/x HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /ä HTTP/1.1\r\nHost: h\r\n\r\n", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
			"GET / HTTP/2.0\r\nHost: h\r\n\r\n", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", "GET / http/1.1\r\nHost: h\r\n\r\n", "GET /\r\nHost: h\r\n\r\n",
			"G(T / HTTP/1.1\r\nHost: h\r\n\r\n", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\x05\r\n\r\n\n",
		} {
			refused(t, "400", request)
		}
		refused(t, "431", "GET / HTTP/1.1\r\nHost: h\r\nA: "+strings.Repeat("x", 32<<10)+"\r\n\r\n")
		refused(t, "431", "GET / HTTP/1.1\r\nHost: h\r\nA: "+strings.Repeat("x", 100<<10))
		refused(t, "431", "GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("A: b\r\n", 6000)+"\r\n")
	})
	t.Run("[security/SEC54] chunks", func(t *testing.T) {
		chunked := func(body string) string {
			return "POST /v1/payments HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body
		}
		ok(t, chunked("003;a=b;c=\"d\"\r\nabc\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n"))
		for _, body := range []string{
			"3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "3\r\nabc\r\n0\n\r\n", "3\r\nabc\r\n0\r\n\n", "3\r\nabcd\r\n0\r\n\r\n",
			"\r\n", ";a\r\n", "g\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "+3\r\nabc\r\n0\r\n\r\n", " 3\r\nabc\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n",
			"fffffffffffffffff\r\nabc", "10000000000000003\r\nabc\r\n0\r\n\r\n",
			"3;" + strings.Repeat("x", 4097) + "\r\nabc\r\n0\r\n\r\n", "3;" + strings.Repeat("x", 4000) + "\r\nabc\r\n3;" + strings.Repeat("x", 4000) + "\r\nabc\r\n0\r\n\r\n",
			"3;a\x00\r\nabc\r\n0\r\n\r\n", "3;a\rb\r\nabc\r\n0\r\n\r\n",
			"0\r\nA\x01: b\r\n\r\n", "0\r\n A: b\r\n\r\n", "0\r\nA: b\n\r\n", "0\r\nA: " + strings.Repeat("x", 40<<10) + "\r\n\r\n",
		} {
			refused(t, "400 closed", chunked(body))
		}
	})
	t.Run("[security/SEC59] an expectation nobody knows", func(t *testing.T) {
		refused(t, "417", "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\nContent-Length: 3\r\n\r\nabc")
	})
}

// TestHeadsInPieces feeds a connection byte by byte, and several requests at once: what is judged does not depend on how
// it arrives.
func TestHeadsInPieces(t *testing.T) {
	t.Parallel()
	up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	address := serve(t, passing(t, passTo(up.URL)))
	var stream strings.Builder
	for i := range 4 {
		fmt.Fprintf(&stream, "GET /%d HTTP/1.1\r\nHost: h\r\n\r\n", 2*i)
		if i%2 == 0 {
			fmt.Fprintf(&stream, "POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /", 2*i+1)
		} else {
			fmt.Fprintf(&stream, "POST /%d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n", 2*i+1)
		}
	}
	stream.WriteString("GET /bad HTTP/1.1\r\nHost : h\r\n\r\nGET /after HTTP/1.1\r\nHost: h\r\n\r\n")
	for _, size := range []int{1, 2, 7, 64, stream.Len()} {
		before := got.count()
		c := dialRaw(t, address)
		for s := stream.String(); s != ""; {
			n := min(size, len(s))
			c.send(s[:n])
			s = s[n:]
		}
		for i := range 8 {
			if res, body := c.answer(); res == nil || body != fmt.Sprintf("/%d", i) {
				t.Fatalf("pieces of %d: answer %d is %v %q", size, i, res, body)
			}
		}
		if res, _ := c.answer(); res == nil || res.StatusCode != http.StatusBadRequest {
			t.Fatalf("pieces of %d: the bad head got %v", size, res)
		}
		if !c.ended() {
			t.Fatalf("pieces of %d: still open", size)
		}
		if n := got.count() - before; n != 8 {
			t.Fatalf("pieces of %d: %d requests reached the upstream", size, n)
		}
	}
}
