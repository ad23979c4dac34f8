package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// world is a store with a clock that a test moves, and what it takes to put gateways before it.
type world struct {
	t     *testing.T
	store idempo.Store
	ahead atomic.Int64 // of the real clock
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.store = memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }})
	return w
}

func (w *world) pass(d time.Duration) { w.ahead.Add(int64(d)) }

// gate serves a gateway of its own engine over store; nil is the world's.
func (w *world) gate(c Config, store idempo.Store) *gate {
	w.t.Helper()
	if store == nil {
		store = w.store
	}
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: bytes.Repeat([]byte("0123456789abcdef"), 2)}},
		ProbeEvery: time.Second, CompleteBudget: 2 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := New(engine, c)
	if err != nil {
		w.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &gate{t: w.t, g: g, engine: engine, address: serve(w.t, g), client: client}
}

// gate is a served gateway and a client for it.
type gate struct {
	t       *testing.T
	g       *Gateway
	engine  *idempo.Engine
	address string
	client  *http.Client
}

type got struct {
	*http.Response
	body    string
	problem struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
		SameKey   bool   `json:"same_key"`
		KeyRef    string `json:"key_ref"`
		After     int    `json:"retry_after"`
	}
}

// mark is the Idempotency-Status of an answer.
func (r got) mark() string { return r.Header.Get("Idempotency-Status") }

// do sends a request; headers are "Name: value".
func (g *gate) do(method, path, body string, headers ...string) got {
	g.t.Helper()
	r, err := g.try(method, path, body, headers...)
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (g *gate) try(method, path, body string, headers ...string) (got, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://"+g.address+path, reader)
	if err != nil {
		return got{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	res, err := g.client.Do(req)
	if err != nil {
		return got{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	out := got{Response: res, body: string(raw)}
	if res.Header.Get("Content-Type") == "application/problem+json" {
		if err := json.Unmarshal(raw, &out.problem); err != nil {
			return got{}, err
		}
	}
	return out, err
}

// pay sends the payment of most tests.
func (g *gate) pay(key string, headers ...string) got {
	g.t.Helper()
	return g.do("POST", "/v1/payments", `{"amount":1200}`, append(headers, "Idempotency-Key: "+key, "Content-Type: application/json")...)
}

func (g *gate) want(r got, status int, mark, code string) {
	g.t.Helper()
	if r.StatusCode != status || r.mark() != mark || r.problem.Code != code {
		g.t.Fatalf("got %d %q %q %s; want %d %q %q", r.StatusCode, r.mark(), r.problem.Code, r.body, status, mark, code)
	}
}

// payTo guards POST /v1/payments before urls.
func payTo(change func(*Route), urls ...string) Config {
	c := passTo(urls...)
	c.Routes = c.Routes[:2]
	if change != nil {
		change(&c.Routes[1])
	}
	return c
}

func created(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Location", "/v1/payments/7")
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, `{"id":7,"ref":"p_7"}`)
}

func TestGuarded(t *testing.T) {
	t.Parallel()
	t.Run("[http/P1] the most specific pattern wins, and none is 404", func(t *testing.T) {
		t.Parallel()
		up, _ := counting(t, nil)
		other, otherGot := counting(t, nil)
		c := payTo(nil, up.URL)
		c.Upstreams["other"] = Upstream{URLs: []string{other.URL}}
		c.Routes = []Route{{Match: "GET /a/", Upstream: "up"}, {Match: "GET /a/b", Upstream: "other"}, c.Routes[1], {Match: "GET /tree/", Upstream: "other"}, {Match: "GET /{any}", Upstream: "up"}}
		g := newWorld(t).gate(c, nil)
		if r := g.do("GET", "/a/b", ""); r.StatusCode != 200 || otherGot.count() != 1 {
			t.Errorf("the more specific route: %d, %d calls", r.StatusCode, otherGot.count())
		}
		if r := g.do("GET", "/tree", ""); r.StatusCode != 200 || otherGot.count() != 1 {
			t.Errorf("no redirect of our own: %d, %d calls", r.StatusCode, otherGot.count())
		}
		r := g.do("PUT", "/a/b", "")
		g.want(r, 404, "", "no_route")
		g.want(g.do("GET", "/x/y", ""), 404, "", "no_route")
	})
	t.Run("[http/P2] --upstream alone guards keyed POST and PATCH", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(created))
		g := newWorld(t).gate(ForUpstream(up.URL), nil)
		g.want(g.do("POST", "/x", "a", "Idempotency-Key: k1"), 201, "executed", "")
		g.want(g.do("POST", "/x", "a", "Idempotency-Key: k1"), 201, "replayed", "")
		g.want(g.do("PATCH", "/x", "a", "Idempotency-Key: k2"), 201, "executed", "")
		g.want(g.do("POST", "/x", "a"), 201, "", "")
		g.want(g.do("POST", "/x", "a"), 201, "", "")
		g.want(g.do("GET", "/x", "", "Idempotency-Key: k1"), 201, "", "")
		if got.count() != 5 {
			t.Errorf("%d calls", got.count())
		}
	})
	t.Run("[http/P7, P18] answers are kept by the table, and by outcomes", func(t *testing.T) {
		t.Parallel()
		status := atomic.Int32{}
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(int(status.Load()))
			fmt.Fprintf(w, "answer %s", r.Header.Get("X-N"))
		}))
		g := newWorld(t).gate(payTo(func(r *Route) { r.Outcomes = map[int]string{404: "release"} }, up.URL), nil)
		for i, c := range []struct {
			status int
			first  string
			second string
			code   string
		}{{200, "executed", "replayed", ""}, {302, "executed", "replayed", ""}, {422, "executed", "replayed", ""}, {404, "released", "released", ""},
			{429, "released", "released", ""}, {500, "in_doubt", "in_doubt", "in_doubt"}} {
			key := fmt.Sprintf("k%d", i)
			status.Store(int32(c.status))
			g.want(g.pay(key), c.status, c.first, "")
			before := got.count()
			second := g.pay(key)
			if second.mark() != c.second || second.problem.Code != c.code {
				t.Errorf("%d: second answer %d %q %q", c.status, second.StatusCode, second.mark(), second.problem.Code)
			}
			if calls := got.count() - before; calls != map[string]int{"released": 1}[c.second] {
				t.Errorf("%d: %d more calls", c.status, calls)
			}
		}
		names := g.engine.Operations()
		if len(names) != 1 || names[0].Name != "gateway.pay" {
			t.Errorf("operations %v", names)
		}
	})
	t.Run("[http/P15] what key the upstream gets", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, nil)
		w := newWorld(t)
		derived := idempo.DeriveKey("default", "gateway.pay", "k1", "", "forward", "1", "")
		for _, c := range []struct {
			change func(*Route)
			sent   string
			want   map[string]string
		}{
			{nil, `"k1"`, map[string]string{"Idempotency-Key": `"k1"`}},
			{func(r *Route) { r.UpstreamKeyHeader = "X-Ref" }, `"k1"`, map[string]string{"X-Ref": `"k1"`, "Idempotency-Key": ""}},
			{func(r *Route) { r.UpstreamKey = "derive" }, "k1", map[string]string{"Idempotency-Key": derived}},
			{func(r *Route) { r.UpstreamKey, r.UpstreamKeyHeader = "derive", "X-Ref" }, "k1", map[string]string{"X-Ref": derived, "Idempotency-Key": ""}},
			{func(r *Route) { r.UpstreamKey = "none" }, "k1", map[string]string{"Idempotency-Key": ""}},
		} {
			g := w.gate(payTo(c.change, up.URL), memstore.New(memstore.Options{}))
			g.want(g.pay(c.sent, "X-Ref: of the client"), 200, "executed", "")
			r, _ := got.last()
			for name, value := range c.want {
				if r.Header.Get(name) != value || len(r.Header.Values(name)) > 1 {
					t.Errorf("%s: got %q, want %q", name, r.Header.Values(name), value)
				}
			}
		}
	})
	t.Run("[http/P16] an upstream that guards itself gets key and freedom", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotency-Status", "replayed")
			w.Header().Set("Idempotent-Replayed", "true")
			io.WriteString(w, "mine")
		}))
		g := newWorld(t).gate(payTo(func(r *Route) { r.Guard = "upstream" }, up.URL), nil)
		for range 2 {
			r := g.pay("k1")
			g.want(r, 200, "replayed", "")
			if r.Header.Get("Idempotent-Replayed") != "true" || r.body != "mine" {
				t.Errorf("changed: %v %s", r.Header, r.body)
			}
		}
		r, _ := got.last()
		if got.count() != 2 || r.Header.Get("Idempotency-Key") != "k1" {
			t.Errorf("%d calls, key %q", got.count(), r.Header.Get("Idempotency-Key"))
		}
		g.want(g.do("POST", "/v1/payments", "x"), 400, "", "key_missing")
		g.want(g.pay("a b"), 400, "", "key_malformed")
		if got.count() != 2 || len(g.engine.Operations()) != 0 {
			t.Errorf("%d calls, operations %v", got.count(), g.engine.Operations())
		}
	})
	t.Run("[http/P17] the upstream's own marker stands alone, and its doubts are ours", func(t *testing.T) {
		t.Parallel()
		up, _ := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Idempotency-Status", "Idempotent-Replayed", "Idempotency-Hit"} {
				if v := r.Header.Get("X-Say-" + name); v != "" {
					w.Header().Set(name, v)
				}
			}
			if r.Header.Get("X-Say-Idempotency-Status") == "in_progress" {
				w.WriteHeader(409)
			}
		}))
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		r := g.pay("k1", "X-Say-Idempotent-Replayed: true")
		if r.mark() != "" || r.Header.Get("Idempotent-Replayed") != "true" || r.Header.Get("Idempotency-Expires") != "" {
			t.Errorf("got %v", r.Header)
		}
		g.want(g.pay("k1"), 200, "replayed", "")
		r = g.pay("k2", "X-Say-Idempotency-Hit: true")
		if r.mark() != "" || r.Header.Get("Idempotency-Hit") != "true" {
			t.Errorf("got %v", r.Header)
		}
		if r = g.pay("k2"); r.Header.Get("Idempotency-Hit") != "" || r.mark() != "replayed" {
			t.Errorf("a replay repeats the upstream's marker: %v", r.Header)
		}
		g.want(g.pay("k3", "X-Say-Idempotency-Status: in_progress"), 409, "in_progress", "")
		g.want(g.pay("k3"), 200, "executed", "")
		g.want(g.pay("k4", "X-Say-Idempotency-Status: in_doubt"), 200, "in_doubt", "")
		g.want(g.pay("k4"), 409, "in_doubt", "in_doubt")
	})
	t.Run("[http/P21] what the upstream says about its answer", func(t *testing.T) {
		t.Parallel()
		up, _ := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for name, values := range r.Header {
				if say, ok := strings.CutPrefix(name, "X-Say-"); ok {
					w.Header()[say] = values
				}
			}
			io.WriteString(w, `{"id":"p_1"}`)
		}))
		g := newWorld(t).gate(payTo(func(r *Route) { r.Resource = ResourceRule{Type: "payment", ID: "/id"} }, up.URL), nil)
		r := g.pay("k1", "X-Say-Idempo-Outcome: release")
		g.want(r, 200, "released", "")
		if r.Header.Get("Idempo-Outcome") != "" {
			t.Error("the instruction left")
		}
		g.want(g.pay("k2", "X-Say-Idempo-Result: pointer", "X-Say-Idempo-Resource: refund/r_9"), 200, "executed", "")
		r = g.pay("k2")
		g.want(r, 410, "not_kept", "result_not_kept")
		if !strings.Contains(r.body, `{"type":"refund","id":"r_9"}`) {
			t.Errorf("resource: %s", r.body)
		}
		r = g.pay("k3", "X-Say-Idempo-Retention: 60")
		until, err := http.ParseTime(r.Header.Get("Idempotency-Expires"))
		if err != nil || time.Until(until) > 2*time.Minute {
			t.Errorf("expires %v, %v", until, err)
		}
		for _, bad := range []string{"Outcome: maybe", "Retention: -1", "Retention: soon", "Resource: none", "Result: half"} {
			g.want(g.pay("bad-"+bad[:3]+bad[len(bad)-2:], "X-Say-Idempo-"+bad), 200, "executed", "")
		}
		if n := g.g.Status().Ignored; n != 5 {
			t.Errorf("%d ignored", n)
		}
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("[http/P19] a body over the limit, a slow one, a slow reader", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Big") != "" {
				w.Write(bytes.Repeat([]byte("x"), 900<<10))
			}
		}))
		c := payTo(func(r *Route) { r.MaxBody = 100 }, up.URL)
		c.Timeouts = Timeouts{ReadBody: 150 * time.Millisecond, ReadHeader: 150 * time.Millisecond, Write: 150 * time.Millisecond}
		g := newWorld(t).gate(c, nil)
		r := g.do("POST", "/v1/payments", strings.Repeat("x", 101), "Idempotency-Key: k1")
		g.want(r, 413, "refused", "body_too_large")
		slow := dialRaw(t, g.address)
		slow.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k2\r\nContent-Length: 10\r\n\r\nabc")
		if res, body := slow.answer(); res == nil || res.StatusCode != 408 || !strings.Contains(body, "request_timeout") {
			t.Errorf("slow body: %v %s", res, body)
		}
		if !slow.ended() {
			t.Error("slow body: the connection stays")
		}
		for _, unread := range []string{"POST /v1/payments", "PUT /v1/payments"} { // refused before the body, which never comes
			c := dialRaw(t, g.address)
			c.send(unread + " HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
			if c.answer(); !c.ended() {
				t.Errorf("%s: the connection stays", unread)
			}
		}
		head := dialRaw(t, g.address)
		head.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\n")
		if !head.ended() {
			t.Error("slow head: the connection stays")
		}
		got.mu.Lock()
		for _, r := range got.requests {
			if r.Method == "POST" {
				t.Error("a call")
			}
		}
		got.mu.Unlock()
		g.want(g.do("POST", "/v1/payments", "abc", "Idempotency-Key: k2"), 200, "executed", "")
		reader := dialRaw(t, g.address)
		reader.Conn.(*net.TCPConn).SetReadBuffer(1)
		before := got.count()
		reader.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k3\r\nX-Big: 1\r\nContent-Length: 3\r\n\r\nabc")
		eventually(t, "the call", func() bool { return got.count() == before+1 })
		eventually(t, "the kept result", func() bool {
			r, err := g.try("POST", "/v1/payments", "abc", "Idempotency-Key: k3", "X-Big: 1")
			return err == nil && r.mark() == "replayed" && len(r.body) == 900<<10
		})
		if got.count() != before+1 {
			t.Errorf("%d calls", got.count()-before)
		}
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC59] over the limit while reading, and a gzip bomb", func(t *testing.T) {
		t.Parallel()
		up, calls := counting(t, nil)
		g := newWorld(t).gate(payTo(func(r *Route) { r.MaxBody, r.MaxInflated = 10<<10, 100<<10 }, up.URL), nil)
		chunked := dialRaw(t, g.address)
		chunked.send("POST /v1/payments HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k1\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range 11 {
			chunked.send("400\r\n" + strings.Repeat("x", 1024) + "\r\n")
		}
		if res, body := chunked.answer(); res == nil || res.StatusCode != 413 || !strings.Contains(body, "body_too_large") {
			t.Errorf("chunked: %v %s", res, body)
		}
		zip := func(n int) string {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(bytes.Repeat([]byte(" "), n))
			io.WriteString(z, `{"amount":1}`)
			z.Close()
			return b.String()
		}
		g.want(g.do("POST", "/v1/payments", zip(1<<20), "Idempotency-Key: k1", "Content-Encoding: gzip", "Content-Type: application/json"), 413, "refused", "body_too_large")
		if calls.count() != 0 {
			t.Errorf("%d calls", calls.count())
		}
		small := zip(10)
		g.want(g.do("POST", "/v1/payments", small, "Idempotency-Key: k1", "Content-Encoding: gzip", "Content-Type: application/json"), 200, "executed", "")
		if r, body := calls.last(); body != small || r.Header.Get("Content-Encoding") != "gzip" {
			t.Error("the body was changed on its way")
		}
	})
}

// eventually waits, without a time of its own, until something outside has happened; the test's deadline ends it.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("never seen: %s", what)
		}
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
}

func TestCallers(t *testing.T) {
	t.Parallel()
	t.Run("[http/P9] a caller that leaves does not end the call", func(t *testing.T) {
		t.Parallel()
		arrived, goOn := make(chan struct{}, 4), make(chan struct{})
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			select {
			case <-goOn:
				created(w, r)
			case <-r.Context().Done():
			}
		}))
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		ctx, leave := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+g.address+"/v1/payments", strings.NewReader("abc"))
		req.Header.Set("Idempotency-Key", "k1")
		left := make(chan struct{})
		go func() { defer close(left); g.client.Do(req) }()
		<-arrived
		leave()
		<-left
		g.want(g.do("POST", "/v1/payments", "abc", "Idempotency-Key: k1"), 409, "in_progress", "in_progress")
		close(goOn)
		eventually(t, "the result", func() bool {
			r := g.do("POST", "/v1/payments", "abc", "Idempotency-Key: k1")
			return r.StatusCode == 201 && r.mark() == "replayed"
		})
		if got.count() != 1 {
			t.Errorf("%d calls", got.count())
		}
	})
	t.Run("[http/P10] answer_within", func(t *testing.T) {
		t.Parallel()
		goOn := make(chan struct{})
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				<-goOn
			}
			w.Header().Set("Trailer", "X-T")
			created(w, r)
			w.Header().Set("X-T", "t")
		}))
		g := newWorld(t).gate(payTo(func(r *Route) { r.AnswerWithin = 50 * time.Millisecond }, up.URL), nil)
		r := g.pay("k0")
		g.want(r, 201, "executed", "")
		if r.Trailer.Get("X-T") != "t" || r.Header.Get("Location") == "" {
			t.Errorf("a quick answer is not whole: %v %v", r.Header, r.Trailer)
		}
		r = g.pay("k1", "X-Slow: 1")
		g.want(r, 409, "in_progress", "in_progress")
		if r.problem.KeyRef == "" || r.Header.Get("Retry-After") == "" || !r.problem.SameKey {
			t.Errorf("problem %+v", r.problem)
		}
		close(goOn)
		eventually(t, "the result", func() bool { return g.pay("k1", "X-Slow: 1").mark() == "replayed" })
		if got.count() != 2 {
			t.Errorf("%d calls", got.count())
		}
	})
	t.Run("[http/P26] draining", func(t *testing.T) {
		t.Parallel()
		arrived, goOn := make(chan struct{}, 1), make(chan struct{})
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				arrived <- struct{}{}
				<-goOn
			}
		}))
		g := newWorld(t).gate(payTo(nil, up.URL), nil)
		running := make(chan got1, 1)
		go func() {
			r, err := g.try("POST", "/v1/payments", "abc", "Idempotency-Key: k1")
			running <- got1{r, err}
		}()
		<-arrived
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if left := g.g.Drain(ended); left != 1 {
			t.Errorf("%d left", left)
		}
		r := g.do("POST", "/v1/payments", "abc", "Idempotency-Key: k2")
		g.want(r, 503, "refused", "draining")
		if r.Header.Get("Retry-After") == "" || !r.Close {
			t.Errorf("headers %v, close %v", r.Header, r.Close)
		}
		if r := g.do("GET", "/x", ""); r.StatusCode != 200 {
			t.Errorf("unguarded: %d", r.StatusCode)
		}
		close(goOn)
		if left := g.g.Drain(t.Context()); left != 0 {
			t.Errorf("%d left", left)
		}
		if first := <-running; first.err != nil || first.r.mark() != "executed" {
			t.Errorf("the running one: %v %v", first.r, first.err)
		}
		if got.count() != 2 || !g.g.Status().Draining {
			t.Errorf("%d calls", got.count())
		}
	})
}

type got1 struct {
	r   got
	err error
}

func TestIssued(t *testing.T) {
	t.Parallel()
	t.Run("[http/P29] keys are issued, used once, and replayed", func(t *testing.T) {
		t.Parallel()
		up, got := counting(t, http.HandlerFunc(created))
		g := newWorld(t).gate(payTo(func(r *Route) {
			r.Issued, r.Issue, r.Status = true, "POST /v1/payments/keys", "GET /v1/payments/status"
		}, up.URL), nil)
		r := g.do("POST", "/v1/payments/keys", "")
		var issued struct{ Key, Operation string }
		if err := json.Unmarshal([]byte(r.body), &issued); err != nil || r.StatusCode != 201 || issued.Key == "" || r.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("issue: %d %s", r.StatusCode, r.body)
		}
		g.want(g.pay("not-issued"), 400, "refused", "key_not_issued")
		first := g.pay(issued.Key)
		g.want(first, 201, "executed", "")
		again := g.pay(issued.Key)
		g.want(again, 201, "replayed", "")
		if next := first.Header.Get("Idempotency-Key-Next"); next == "" || next != again.Header.Get("Idempotency-Key-Next") {
			t.Errorf("next keys %q, %q", next, again.Header.Get("Idempotency-Key-Next"))
		}
		if r := g.do("GET", "/v1/payments/status", "", "Idempotency-Key: "+issued.Key); r.StatusCode != 200 || !strings.Contains(r.body, `"completed"`) {
			t.Errorf("status: %d %s", r.StatusCode, r.body)
		}
		if got.count() != 1 {
			t.Errorf("%d calls", got.count())
		}
	})
}

func TestBreakerRoute(t *testing.T) {
	t.Parallel()
	t.Run("[http/P28] a failing upstream rests; records are still answered", func(t *testing.T) {
		t.Parallel()
		var fail atomic.Bool
		up, got := counting(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if fail.Load() {
				w.WriteHeader(503)
			}
		}))
		var mu sync.Mutex
		var moves []string
		c := payTo(func(r *Route) { r.Outcomes = map[int]string{503: "release"} }, up.URL)
		c.Observe = func(e Event) {
			if e.Breaker != "" {
				mu.Lock()
				defer mu.Unlock()
				moves = append(moves, e.Breaker)
			}
		}
		g := newWorld(t).gate(c, nil)
		g.want(g.pay("done"), 200, "executed", "")
		fail.Store(true)
		for i := range 5 {
			g.want(g.pay(fmt.Sprintf("bad%d", i)), 503, "released", "")
		}
		before := got.count()
		r := g.pay("new")
		g.want(r, 503, "refused", "upstream_resting")
		if r.problem.KeyRef == "" || !r.problem.Retryable || !r.problem.SameKey || r.problem.After < 1 || r.problem.After > 5 {
			t.Errorf("problem %+v", r.problem)
		}
		g.want(g.pay("bad0"), 503, "refused", "upstream_resting")
		g.want(g.pay("done"), 200, "replayed", "")
		g.want(g.do("POST", "/v1/payments", "other", "Idempotency-Key: done"), 422, "mismatch", "mismatch")
		if got.count() != before {
			t.Errorf("%d calls while it rests", got.count()-before)
		}
		if _, err := g.engine.Lookup(t.Context(), idempo.Key{Tenant: "default", Operation: "gateway.pay", ID: "new"}); err == nil {
			t.Error("a refused key has a record")
		}
		if s := g.g.Status().Upstreams[0]; s.Breaker != "open" {
			t.Errorf("status %+v", s)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(moves) != 1 || moves[0] != "open" {
			t.Errorf("moves %v", moves)
		}
	})
}
