package httppublish_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/httppublish"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/webhook"
)

// target is an HTTP service of the test's own, behind a link that can be cut.
type target struct {
	link   idempotest.Link
	server *httptest.Server
	front  net.Listener
	answer func(w http.ResponseWriter, r *http.Request) // nil: 204
	all    sync.WaitGroup

	mu  sync.Mutex
	got []inbox.Message
}

func newTarget(t *testing.T) *target {
	t.Helper()
	x := &target{}
	x.server = httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(x.server.Close)
	var err error
	if x.front, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.front.Close(); x.link.Cut(); x.all.Wait() })
	x.all.Go(x.forward)
	return x
}

// forward carries connections over the link.
func (x *target) forward() {
	for {
		c, err := x.front.Accept()
		if err != nil {
			return
		}
		x.all.Go(func() {
			defer func() { _ = c.Close() }()
			up, err := x.link.Dial("tcp", x.server.Listener.Addr().String())
			if err != nil {
				return
			}
			x.all.Go(func() { _, _ = io.Copy(up, c); _ = up.Close() })
			_, _ = io.Copy(c, up)
		})
	}
}

func (x *target) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m := inbox.Message{Body: body, Headers: [][2]string{{"method", r.Method}}}
	for name, vs := range r.Header {
		for _, v := range vs {
			m.Headers = append(m.Headers, [2]string{name, v})
		}
	}
	x.mu.Lock()
	x.got = append(x.got, m)
	x.mu.Unlock()
	if x.answer != nil {
		x.answer(w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (x *target) url() string { return "http://" + x.front.Addr().String() + "/in" }

// options reach the target.
func (x *target) options() httppublish.Options {
	port := x.front.Addr().(*net.TCPAddr).Port
	return httppublish.Options{URL: x.url(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Ports: []int{port}, Timeout: 5 * time.Second}
}

func publisher(t testing.TB, o httppublish.Options) *httppublish.Publisher {
	t.Helper()
	p, err := httppublish.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (x *target) Publisher(t testing.TB) (outbox.Publisher, func()) {
	p := publisher(t, x.options())
	return p, p.Close
}

func (x *target) Topic() string { return "orders.paid" }

func (x *target) Link() *idempotest.Link { return &x.link }

func (x *target) Received(testing.TB) []inbox.Message {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.got)
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	idempotest.RunPublisher(t, func(t *testing.T) idempotest.Destination { return newTarget(t) })
}

func TestOutage(t *testing.T) {
	t.Run("[messages/B3] the link is away under load", func(t *testing.T) {
		x := newTarget(t)
		idempotest.RunPublisherOutage(t, x, nil)
		x.server.CloseClientConnections()
		x.link.Cut()
	})
}

func event(id string) outbox.Delivery {
	return outbox.Delivery{Seq: 1, BrokerID: id, Event: outbox.Event{ID: id, Source: "/shop", Topic: "orders.paid", Type: "T", Tenant: "default", Payload: []byte(`{"n":1}`)}}
}

// one publishes a single event and returns what was told of it.
func one(t *testing.T, p outbox.Publisher, d outbox.Delivery) error {
	t.Helper()
	told := make(chan error, 1)
	p.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{d}, Done: func(_ int, err error) { told <- err }})
	select {
	case err := <-told:
		return err
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return nil
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B17] POST, percent-encoded attributes, the id as idempotency key each time, a fresh signature that verifies", func(t *testing.T) {
		t.Parallel()
		x := newTarget(t)
		tries := 0
		x.answer = func(w http.ResponseWriter, _ *http.Request) {
			if tries++; tries < 3 {
				w.WriteHeader(http.StatusBadGateway)
			}
		}
		raw := make([]byte, 32)
		_, _ = rand.Read(raw)
		secret := webhook.FromText("s1", "whsec_"+base64.StdEncoding.EncodeToString(raw))
		o := x.options()
		o.Signing, o.Header = []webhook.Secret{secret}, http.Header{"Authorization": {"Bearer t"}, "Idempotency-Key": {"mine"}}
		p := publisher(t, o)
		e := event(outbox.IDFor("n", "1"))
		e.Key, e.Source, e.ContentType = `Müller & "Söhne" 100%`, "/shop/a", "application/json"
		e.Headers = [][2]string{{"X-A", "1"}, {"X-A", "2"}, {"Host", "evil"}, {"Transfer-Encoding", "x"}, {"X-Bell", "a\ab"}}
		for n := range 3 {
			if err := one(t, p, e); (err == nil) != (n == 2) || err != nil && outbox.ClassOf(err) != outbox.ClassUnanswered {
				t.Errorf("try %d: %v", n, err)
			}
		}
		verify, err := webhook.NewVerifier(webhook.Source{Name: "shop", Provider: "standard-webhooks", Secrets: []webhook.Secret{secret}})
		if err != nil {
			t.Fatal(err)
		}
		got := x.Received(t)
		if len(got) != 3 {
			t.Fatalf("%d requests", len(got))
		}
		for _, m := range got {
			header := http.Header{}
			for _, h := range m.Headers {
				header.Add(h[0], h[1])
			}
			for name, want := range map[string]string{
				"method": "POST", "idempotency-key": e.ID, "webhook-id": e.ID, "ce-id": e.ID, "ce-source": "/shop/a", "content-type": "application/json",
				"ce-partitionkey": "M%C3%BCller%20&%20%22S%C3%B6hne%22%20100%25", "authorization": "Bearer t", "x-bell": "a%07b", "user-agent": "idempo",
			} {
				if got := header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if len(header.Values("X-A")) != 2 || len(header.Values("Idempotency-Key")) != 1 || string(m.Body) != `{"n":1}` {
				t.Errorf("%q %q", header, m.Body)
			}
			if _, err := webhook.Verify(verify, webhook.Request{Method: "POST", Header: header, Body: m.Body}, time.Now()); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("[messages/B17] the client never sends again by itself, not even an empty body with an idempotency key", func(t *testing.T) {
		t.Parallel()
		var requests atomic.Int64
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() { // reads a request and hangs up, first on a fresh connection, then on one that was used
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				buf := make([]byte, 1<<16)
				for k := 0; ; k++ {
					if n, err := c.Read(buf); err != nil || n == 0 {
						break
					}
					if requests.Add(1); k > 0 {
						break
					}
					_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				}
				_ = c.Close()
			}
		}()
		port := l.Addr().(*net.TCPAddr).Port
		p := publisher(t, httppublish.Options{URL: fmt.Sprintf("http://127.0.0.1:%d/", port), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Ports: []int{port}, Concurrency: 1})
		e := event("1")
		e.Payload = []byte{}
		if err := one(t, p, e); err != nil {
			t.Fatal(err)
		}
		if err := one(t, p, e); outbox.ClassOf(err) != outbox.ClassUnanswered {
			t.Error(err)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%d requests for two events", n)
		}
	})
	t.Run("[messages/B18] what answers mean", func(t *testing.T) {
		t.Parallel()
		x := newTarget(t)
		x.answer = func(w http.ResponseWriter, r *http.Request) {
			var status int
			_, _ = fmt.Sscan(r.Header.Get("X-Status"), &status)
			if after := r.Header.Get("X-After"); after != "" {
				w.Header().Set("Retry-After", after)
			}
			if status/100 == 3 {
				w.Header().Set("Location", "/elsewhere")
			}
			if status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(status)
		}
		p := publisher(t, x.options())
		answer := func(status int, after string) error {
			e := event("1")
			e.Headers = [][2]string{{"X-Status", fmt.Sprint(status)}, {"X-After", after}}
			return one(t, p, e)
		}
		for status, want := range map[int]outbox.Class{
			409: outbox.ClassLater, 429: outbox.ClassUnavailable, 408: outbox.ClassUnanswered, 425: outbox.ClassUnanswered, 500: outbox.ClassUnanswered,
			502: outbox.ClassUnanswered, 503: outbox.ClassUnanswered, 504: outbox.ClassUnanswered, 0: outbox.ClassUnanswered, 410: outbox.ClassRefused,
			301: outbox.ClassRefused, 302: outbox.ClassRefused, 307: outbox.ClassRefused, 308: outbox.ClassRefused,
			400: outbox.ClassFailed, 401: outbox.ClassFailed, 404: outbox.ClassFailed, 413: outbox.ClassFailed, 422: outbox.ClassFailed,
		} {
			if err := answer(status, ""); err == nil || outbox.ClassOf(err) != want || strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("%d: %q, want %q: %v", status, outbox.ClassOf(err), want, err)
			}
		}
		for _, status := range []int{200, 201, 202, 204, 299} {
			if err := answer(status, ""); err != nil {
				t.Errorf("%d: %v", status, err)
			}
		}
		after := func(status int, text string, want time.Duration, class outbox.Class) {
			t.Helper()
			err := answer(status, text)
			f, ok := errors.AsType[*outbox.Failure](err)
			if !ok || f.After != want || outbox.ClassOf(err) != class {
				t.Errorf("%d with %q: %+v", status, text, f)
			}
		}
		after(429, "7", 7*time.Second, outbox.ClassUnavailable)
		after(503, "999999", time.Hour, outbox.ClassUnanswered)
		after(409, "1", time.Second, outbox.ClassLater)
		after(422, "5", 5*time.Second, outbox.ClassFailed)
		after(503, "99999999999999999999999", time.Hour, outbox.ClassUnanswered)
		after(503, time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), 0, outbox.ClassUnanswered)
		after(503, "soon", 0, outbox.ClassUnanswered)
		for _, m := range x.Received(t) {
			if _, ok := m.Header("X-Status"); !ok {
				t.Error("a redirect was followed")
			}
		}
	})
	t.Run("topics have URLs of their own, each a destination; one without has no route", func(t *testing.T) {
		t.Parallel()
		x := newTarget(t)
		o := x.options()
		o.URL, o.Topics = "", map[string]string{"orders.paid": x.url()}
		p := publisher(t, o)
		other := event("1")
		other.Topic = "other"
		if err := one(t, p, other); outbox.ClassOf(err) != outbox.ClassNoRoute {
			t.Error(err)
		}
		if err := one(t, p, event("1")); err != nil {
			t.Error(err)
		}
		if p.Destination("orders.paid") != x.url() || p.Destination("other") != "" {
			t.Error(p.Destination("orders.paid"))
		}
	})
	t.Run("settings that cannot work are refused, without what is secret in them", func(t *testing.T) {
		t.Parallel()
		for say, o := range map[string]httppublish.Options{
			"a URL per topic, is required": {}, "URL is no http": {URL: "ftp://x"}, "has credentials": {URL: "https://canary:secret@x/"},
			`Topics["a"] is no`: {Topics: map[string]string{"a": "x"}}, "whsec_ and base64": {URL: "https://x", Signing: []webhook.Secret{webhook.FromText("s", "whsec_canary!")}},
			"negative": {URL: "https://x", Timeout: -1},
		} {
			_, err := httppublish.New(o)
			if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "secret@") {
				t.Errorf("%v; want %s", err, say)
			}
		}
	})
}

func TestGuard(t *testing.T) { // not parallel: it sets the environment
	t.Run("[messages/B19] addresses that are not public are refused at each dial, unless allowed; the environment's proxy is ignored", func(t *testing.T) {
		x := newTarget(t)
		t.Setenv("HTTP_PROXY", x.url())
		t.Setenv("http_proxy", x.url())
		port := x.front.Addr().(*net.TCPAddr).Port
		for _, host := range []string{"127.0.0.1", "[::1]", "10.1.2.3", "192.168.1.1", "172.16.0.1", "169.254.1.1", "169.254.169.254", "100.64.0.1", "[::ffff:127.0.0.1]",
			"[64:ff9b::7f00:1]", "[fe80::1]", "[fd00::1]", "0.0.0.0", "localhost"} {
			p := publisher(t, httppublish.Options{URL: fmt.Sprintf("http://%s:%d/", host, port), Ports: []int{port}})
			for range 2 {
				if err := one(t, p, event("1")); outbox.ClassOf(err) != outbox.ClassUnavailable || !strings.Contains(err.Error(), "not allowed") {
					t.Errorf("%s: %v", host, err)
				}
			}
		}
		if n := len(x.Received(t)); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
		if err := one(t, publisher(t, x.options()), event("1")); err != nil {
			t.Error(err)
		}
	})
	t.Run("[messages/B19] of an endless answer at most 64 KiB are read, and a slow one ends", func(t *testing.T) {
		x := newTarget(t)
		var wrote atomic.Int64
		gone := make(chan struct{})
		x.answer = func(w http.ResponseWriter, _ *http.Request) {
			defer close(gone)
			for {
				n, err := w.Write(make([]byte, 32<<10))
				if wrote.Add(int64(n)); err != nil {
					return
				}
			}
		}
		if err := one(t, publisher(t, x.options()), event("1")); err != nil {
			t.Error(err)
		}
		<-gone                             // the connection is not kept for the rest
		if n := wrote.Load(); n > 16<<20 { // what sockets and the test's own proxy hold
			t.Errorf("%d bytes were taken", n)
		}
	})
	t.Run("a target that does not answer, and the end of ctx", func(t *testing.T) {
		x := newTarget(t)
		ctx, cancel := context.WithCancel(t.Context())
		x.answer = func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
		p := publisher(t, x.options())
		told := make(chan error, 1)
		p.Publish(ctx, outbox.PublishParams{Events: []outbox.Delivery{event("1")}, Done: func(_ int, err error) { told <- err }})
		if err := <-told; outbox.ClassOf(err) != outbox.ClassUnanswered {
			t.Error(err)
		}
	})
}
