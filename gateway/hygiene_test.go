package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHygiene(t *testing.T) {
	t.Parallel()
	up, calls := counting(t, nil)
	config := payTo(func(r *Route) { r.Key.Headers = []string{"Idempotency-Key", "X-Ref"} }, up.URL)
	config.Tenant = Tenant{Header: "X-Account"}
	config.TrustedProxies = []string{"127.0.0.1"}
	g := newWorld(t).gate(config, nil)
	const head = "POST /v1/payments HTTP/1.1\r\nHost: h\r\nX-Account: a\r\nContent-Length: 0\r\n"
	send := func(t *testing.T, headers string) *http.Response {
		t.Helper()
		c := dialRaw(t, g.address)
		c.send(head + headers + "\r\n\r\n")
		res, _ := c.answer()
		if res == nil {
			t.Fatalf("%q: no answer", headers)
		}
		return res
	}
	t.Run("[security/SEC55] Connection that names what must arrive", func(t *testing.T) {
		for _, name := range []string{"Idempotency-Key", "idempotency-key", "X-Ref", "X-Account", "X-Idempotency-Key", "X-Forwarded-For", "Forwarded", "x-forwarded-proto",
			"Host", "Content-Length", "Transfer-Encoding", "Authorization", "Idempotency-Status", "Idempo-Outcome"} {
			for _, line := range []string{"Connection: " + name, "Connection: keep-alive,\t" + name + " ", "Connection: keep-alive\r\nConnection: " + name} {
				before := calls.count()
				res := send(t, "Idempotency-Key: k\r\n"+line)
				if res.StatusCode != 400 || !res.Close || calls.count() != before {
					t.Errorf("%q: %d, closed %v, %d calls", line, res.StatusCode, res.Close, calls.count()-before)
				}
			}
		}
		if res := send(t, "Idempotency-Key: ok\r\nConnection: keep-alive, X-Own, TE"); res.StatusCode != 200 {
			t.Errorf("an innocent Connection: %d", res.StatusCode)
		}
	})
	t.Run("[security/SEC56] names with _ for - are dropped and never read", func(t *testing.T) {
		for i, name := range []string{"Idempotency_Key", "idempotency_key", "X_Ref", "X-Forwarded_For", "X_FORWARDED_HOST", "Authorization_", "Content_Length", "Transfer_Encoding",
			"Idempo_Outcome", "Idempotency_Status", "X_Account", "X_HTTP_Method_Override"} {
			res := send(t, fmt.Sprintf("Idempotency-Key: d%d\r\n%s: 1\r\nX_Own: 1", i, name))
			if res.StatusCode != 200 {
				t.Errorf("%s: %d", name, res.StatusCode)
			}
			r, _ := calls.last()
			if name != "Authorization_" && r.Header[http.CanonicalHeaderKey(name)] != nil {
				t.Errorf("%s reached the upstream", name)
			}
			if r.Header.Get("X_Own") != "1" {
				t.Errorf("%s: an innocent name was dropped", name)
			}
		}
		before := calls.count()
		if res := send(t, "Idempotency_Key: k"); res.StatusCode != 400 || calls.count() != before {
			t.Errorf("a misspelt key served as one: %d", res.StatusCode)
		}
		for _, name := range []string{"Idempotency-Status", "Idempotent-Replayed", "Idempo-Outcome", "Idempo-Anything"} {
			send(t, "Idempotency-Key: own-"+name+"\r\n"+name+": x")
			if r, _ := calls.last(); r.Header[name] != nil {
				t.Errorf("%s reached the upstream", name)
			}
		}
	})
	t.Run("[security/SEC58] method overrides are removed, unless allowed", func(t *testing.T) {
		allowing := config
		allowing.AllowMethodOverride = true
		for name, g := range map[string]*gate{"": g, "1": newWorld(t).gate(allowing, nil)} {
			for _, h := range []string{"X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method", "x-http-method"} {
				for _, path := range []string{"/any", "/v1/payments"} {
					g.do("POST", path, "", "X-Account: a", "Idempotency-Key: "+h+path[1:4], h+": 1")
					if r, _ := calls.last(); r.Header.Get(h) != name || r.RequestURI != path {
						t.Errorf("allowed %q, %s: got %q at %s", name, h, r.Header.Get(h), r.RequestURI)
					}
				}
			}
		}
	})
}

func TestPaths(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC57] no second spelling reaches a guarded route's upstream", func(t *testing.T) {
		up, calls := counting(t, nil)
		config := payTo(nil, up.URL)
		config.Routes = append(config.Routes, Route{Match: "POST /v1/accounts/{account}/payments", Upstream: "up", Operation: "pay2"})
		g := newWorld(t).gate(config, nil)
		send := func(target string) (*http.Response, string) {
			c := dialRaw(t, g.address)
			c.send("POST " + target + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
			return c.answer()
		}
		for _, path := range []string{
			"//v1/payments", "/v1//payments", "/v1/payments//", "/./v1/payments", "/v1/./payments", "/x/../v1/payments", "/v1/payments/.", "/v1/payments/..", "/..",
			"/%2e/v1/payments", "/x/%2E%2e/v1/payments", "/x/.%2e/v1/payments", "/v1/payments/%2e", `/v1\payments`, "/v1%5Cpayments", "/v1%5cpayments", "/v1/payments%00", "/%00/x",
			"/v1%2Fpayments", "/v1%2fpayments", "/%2Fv1/payments", "/v1/%2Fpayments", "/v1%2F%2Fpayments", "/x%2F..%2Fv1/payments", "/x%2f%2e%2e%2fv1/payments", "/v1/accounts/a%2Fpayments", "/v1/accounts%2Fa/payments",
			"/v1/payments%", "/v1/%zz", "/x/..;/v1/payments", "/x/..;a=b/v1/payments",
			"http://h//v1/payments", "http://h/x/../v1/payments",
		} {
			before := calls.count()
			res, body := send(path)
			if res == nil || res.StatusCode != 400 || !res.Close || calls.count() != before {
				t.Errorf("%s: %v %s, %d calls", path, res, body, calls.count()-before)
			}
		}
		for path, guarded := range map[string]bool{
			"/v1/payments": true, "/v1/%70ayments": true, "/v1/accounts/a%2Fb/payments": true, "/v1/accounts/a.b/payments": true, "/v1/accounts/...a/payments": true, "/v1/accounts/%2E%2E%2E/payments": true,
			"/x%2Fy": false, "/files/a%2Fb": false, "/": false, "/.well-known/x": false, "/a..b": false, "/v1/payments/": false, "/v1/Payments": false, "/v1/payments;x": false, "/x?a=//../%2e%5c": false,
		} {
			before := calls.count()
			res, body := send(path)
			if guarded {
				if res == nil || res.StatusCode != 400 || !strings.Contains(body, "key_missing") {
					t.Errorf("%s is not guarded: %v %s", path, res, body)
				}
				continue
			}
			if res == nil || res.StatusCode != 200 || calls.count() != before+1 {
				t.Errorf("%s: %v %s", path, res, body)
				continue
			}
			if r, _ := calls.last(); r.RequestURI != path {
				t.Errorf("%s was forwarded as %s", path, r.RequestURI)
			}
		}
	})
}

func TestRawPath(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"/a?b": "/a", "http://h/a%2F?b": "/a%2F", "http://h": "/", "http://h?x": "/", "*": "*", "/": "/"} {
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.RequestURI = target
		if got := rawPath(r); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
