package webhook_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/webhook"
)

// target is an HTTP service that notes what it gets.
type target struct {
	*httptest.Server
	mu   sync.Mutex
	got  []*http.Request
	body [][]byte
	say  http.HandlerFunc
}

func newTarget(t *testing.T, say http.HandlerFunc) *target {
	t.Helper()
	x := &target{say: say}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		x.got, x.body = append(x.got, r), append(x.body, body)
		say := x.say
		x.mu.Unlock()
		if say != nil {
			say(w, r)
		}
	}))
	t.Cleanup(x.Close)
	return x
}

func (x *target) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.got)
}

func (x *target) port() int {
	u, _ := url.Parse(x.URL)
	n, _ := strconv.Atoi(u.Port())
	return n
}

const outSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// forwarding is a source that sends to x.
func forwarding(x *target, dedups bool, change ...func(*webhook.Forward)) webhook.Source {
	s := github(text("1", "k"))
	s.Order.Mode = "none"
	s.Retry = webhook.Retry{Attempts: 3, First: 1, Max: time.Hour} // what is in doubt is looked at again after Max
	s.Forward = &webhook.Forward{URL: x.URL + "/in?a=1", TargetDedups: &dedups, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Ports: []int{x.port()},
		Signing: []webhook.Secret{text("s1", outSecret), text("s2", "whsec_"+base64.StdEncoding.EncodeToString([]byte("another secret of 32 bytes, no use")))}}
	for _, f := range change {
		f(s.Forward)
	}
	return s
}

func forwardSite(t *testing.T, s webhook.Source) *site {
	t.Helper()
	return forwardSiteOn(t, newCounted(), s)
}

// forwardSiteOn is another process on a store.
func forwardSiteOn(t *testing.T, store *counted, sources ...webhook.Source) *site {
	t.Helper()
	x := &site{t: t, store: store, effects: map[string]int{}}
	rcv, err := webhook.New(webhook.Config{Engine: engineOver(t, x.store), Sources: sources, Now: at, Observer: x})
	if err != nil {
		t.Fatal(err)
	}
	x.rcv = rcv
	return x
}

func TestForward(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W30] exact bytes, the derived key, a fresh signature, the original headers without credentials", func(t *testing.T) {
		tries := 0
		x := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
			if tries++; tries == 1 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		s := forwardSite(t, forwarding(x, true))
		req := gh(t, "d1", "{ \"a\":\r\n\"\\u00e9\" }\n")
		req.Header.Set("Content-Type", "application/json; charset=x")
		for _, name := range []string{"Authorization", "Cookie", "Connection", "Te"} {
			req.Header.Set(name, "hidden")
		}
		req.Header.Set("X-Other", "shown")
		s.want(http.StatusOK, "gh", req)
		s.work("gh")
		if x.count() != 2 || !bytes.Equal(x.body[0], req.Body) || !bytes.Equal(x.body[1], req.Body) {
			t.Fatalf("%d requests, %q", x.count(), x.body)
		}
		first, second := x.got[0], x.got[1]
		key := first.Header.Get("Idempotency-Key")
		if first.Method != http.MethodPost || first.URL.RequestURI() != "/in?a=1" || len(key) != 36 || strings.Contains(key, ".") || first.Header.Get("Webhook-Id") != key ||
			second.Header.Get("Idempotency-Key") != key || first.Header.Get("Idempo-Attempt") != "1" || second.Header.Get("Idempo-Attempt") != "2" ||
			first.Header.Get("Idempo-Source") != "gh" || len(first.Header.Get("Idempo-Receipt")) != 26 || first.Header.Get("Content-Type") != "application/json; charset=x" ||
			first.Header.Get("Idempo-Original-X-Other") != "shown" || first.Header.Get("Idempo-Original-X-Github-Delivery") != "d1" {
			t.Errorf("%v", first.Header)
		}
		if strings.Contains(fmt.Sprint(first.Header), "hidden") || strings.Contains(fmt.Sprint(first.Header), "sha256=") || first.Header.Get("Idempo-Original-Host") != "" {
			t.Errorf("a credential, a code or a header of the hop went along: %v", first.Header)
		}
		verify := webhook.Source{Name: "v", Provider: "standard-webhooks", Secrets: []webhook.Secret{text("x", outSecret)}}
		if _, err := webhook.Verify(ready(t, verify), webhook.RequestOf(first, x.body[0]), at()); err != nil {
			t.Error(err)
		}
		if n := len(strings.Fields(first.Header.Get("Webhook-Signature"))); n != 2 {
			t.Errorf("%d entries for two secrets", n)
		}
		s.want(http.StatusOK, "gh", req)
		s.work("gh")
		if x.count() != 2 {
			t.Error("sent again after success")
		}
	})
	t.Run("[webhooks/W30] an item goes alone; a body that is empty goes empty", func(t *testing.T) {
		x := newTarget(t, nil)
		src := forwarding(x, false)
		a := ours("line")
		src.Name, src.Provider, src.Secrets = "l", "line", a.verify.Secrets
		s := forwardSite(t, src)
		a.body = `{"events":[{"webhookEventId":"A"}, {"webhookEventId":"B", "x" : 1}]}`
		s.want(http.StatusOK, "l", a.signed(t, at()))
		s.work("l")
		if x.count() != 2 || string(x.body[0]) != `{"webhookEventId":"A"}` || string(x.body[1]) != `{"webhookEventId":"B", "x" : 1}` ||
			x.got[0].Header.Get("Idempotency-Key") == x.got[1].Header.Get("Idempotency-Key") {
			t.Errorf("%q", x.body)
		}
		x = newTarget(t, nil)
		s = forwardSite(t, forwarding(x, false))
		s.want(http.StatusOK, "gh", gh(t, "d1", ""))
		s.work("gh")
		if x.count() != 1 || len(x.body[0]) != 0 {
			t.Errorf("%q", x.body)
		}
	})
}

func TestForwardAnswers(t *testing.T) {
	t.Parallel()
	status := func(code int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
		}
	}
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, c := range []struct {
		name   string
		say    http.HandlerFunc
		dedups bool
		want   []string // what waits afterwards
		sent   int
	}{
		{"[webhooks/W32] 204", status(204), false, nil, 1},
		{"[webhooks/W32] 410 is dead", status(410), false, []string{"dead gone"}, 1},
		{"[webhooks/W32] a redirect is not followed, and a failed attempt", status(302, "Location", "/in"), false, []string{"dead attempts"}, 3},
		{"[webhooks/W33] 422 is tried again", status(422), false, []string{"dead attempts"}, 3},
		{"[webhooks/W33] 503 is tried again", status(503), false, []string{"dead attempts"}, 3},
		{"[webhooks/W33] 500 from a target that does not deduplicate is in doubt", status(500), false, []string{"in_doubt"}, 1},
		{"[webhooks/W33] 500 from one that does is tried again", status(500), true, []string{"dead attempts"}, 3},
		{"[webhooks/W33] no answer is in doubt", abort, false, []string{"in_doubt"}, 1},
		{"[webhooks/W33] [webhooks/W34] no answer from one that deduplicates: one request for each attempt", abort, true, []string{"dead attempts"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTarget(t, c.say)
			x.Config.ErrorLog = nil
			s := forwardSite(t, forwarding(x, c.dedups))
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			s.work("gh")
			rs, err := s.rcv.Inbox("gh").Find(t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusParked, inbox.StatusDead,
				inbox.StatusRetrying, inbox.StatusInDoubt}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rs {
				got = append(got, strings.TrimSpace(string(r.Status)+" "+r.Reason))
			}
			if !slices.Equal(got, c.want) || x.count() != c.sent {
				t.Errorf("%v after %d requests", got, x.count())
			}
		})
	}
	t.Run("[webhooks/W32] Retry-After is obeyed, up to an hour, in seconds or as a date", func(t *testing.T) {
		for text, want := range map[string]time.Duration{"7": 7 * time.Second, "99999": time.Hour, at().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
			at().Add(-time.Hour).UTC().Format(http.TimeFormat): 0} {
			x := newTarget(t, status(429, "Retry-After", text))
			s := forwardSite(t, forwarding(x, false))
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			if want == 0 {
				continue // due at once, without end
			}
			s.work("gh")
			rs, err := s.rcv.Inbox("gh").Find(t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusRetrying}})
			if err != nil || len(rs) != 1 {
				t.Fatalf("%v %v", rs, err)
			}
			if d := rs[0].NextAt.Sub(rs[0].ChangedAt); d < want-time.Second || d > want+time.Second || x.count() != 1 {
				t.Errorf("%s: %v", text, d)
			}
		}
	})
	t.Run("[webhooks/W32] after a 410 nothing more is sent, after a restart either, until a person has dealt with it", func(t *testing.T) {
		var gone atomic.Bool
		gone.Store(true)
		x := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
			if gone.Load() {
				w.WriteHeader(http.StatusGone)
			}
		})
		s := forwardSite(t, forwarding(x, false))
		s.want(http.StatusOK, "gh", gh(t, "d1", "1"))
		s.work("gh")
		s.want(http.StatusOK, "gh", gh(t, "d2", "2"))
		s.work("gh")
		if x.count() != 1 || !slices.Equal(s.waiting("gh"), []string{"dead gone", "retrying target gone"}) {
			t.Errorf("%d %v", x.count(), s.waiting("gh"))
		}
		again := forwardSiteOn(t, s.store, forwarding(x, false))
		again.want(http.StatusOK, "gh", gh(t, "d3", "3"))
		again.work("gh")
		if x.count() != 1 || !slices.Equal(again.waiting("gh"), []string{"dead gone", "retrying target gone", "retrying target gone"}) {
			t.Errorf("after a restart: %d %v", x.count(), again.waiting("gh"))
		}
		gone.Store(false)
		for _, sel := range []inbox.Selection{{}, {Statuses: []inbox.Status{inbox.StatusRetrying}}} {
			if c, err := again.rcv.Inbox("gh").Retry(t.Context(), sel, false); err != nil || c.OK == 0 {
				t.Fatal(c, err)
			}
		}
		again.work("gh")
		if x.count() != 4 || len(again.waiting("gh")) != 0 {
			t.Errorf("once it was replayed: %d %v", x.count(), again.waiting("gh"))
		}
	})
	t.Run("[webhooks/W32] a target that says 429 and Retry-After for ever: dead at last", func(t *testing.T) {
		x := newTarget(t, status(429, "Retry-After", "0"))
		s := forwardSite(t, forwarding(x, false))
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		if x.count() != 3 || !slices.Equal(s.waiting("gh"), []string{"dead attempts"}) {
			t.Errorf("%d %v", x.count(), s.waiting("gh"))
		}
	})
	t.Run("[webhooks/W33] what did not reach the target is tried again, whatever it deduplicates", func(t *testing.T) {
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := closed.Addr().(*net.TCPAddr).Port
		closed.Close()
		for _, u := range []string{fmt.Sprintf("http://127.0.0.1:%d/", port), fmt.Sprintf("https://127.0.0.1:%d/", newTarget(t, nil).port()), "http://no-such-name.invalid/"} {
			x := newTarget(t, nil)
			p, _ := url.Parse(u)
			n, _ := strconv.Atoi(p.Port())
			s := forwardSite(t, forwarding(x, false, func(f *webhook.Forward) { f.URL, f.Ports = u, append(f.Ports, 80, n) }))
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			s.work("gh")
			if got := s.waiting("gh"); !slices.Equal(got, []string{"dead attempts"}) {
				t.Errorf("%s: %v", u, got)
			}
		}
	})
}

func TestForwardGuard(t *testing.T) {
	t.Parallel()
	dedups := true
	fault := func(want string, f webhook.Forward) {
		t.Helper()
		f.TargetDedups = &dedups
		s := github(text("1", "k"))
		s.Forward = &f
		wants(t, refused(t, s), want)
	}
	t.Run("[webhooks/W33] target_dedups has no default, and missing it explains both", func(t *testing.T) {
		s := github(text("1", "k"))
		s.Forward = &webhook.Forward{URL: "https://a.example/"}
		wants(t, refused(t, s), "forward.target_dedups: is missing", "write true where", "or false (it is in doubt")
	})
	t.Run("[webhooks/W35] [webhooks/W36] a literal address that the guard refuses does not start; the error says what opens it, or that nothing does", func(t *testing.T) {
		for u, want := range map[string]string{
			"http://127.0.0.1/":               `loopback address is not allowed; write allow: ["127.0.0.1/32"]`,
			"http://10.1.2.3/":                `private address is not allowed; write allow: ["10.1.2.3/32"]`,
			"http://[::1]/":                   `loopback address is not allowed; write allow: ["::1/128"]`,
			"http://100.64.0.1/":              "carrier-grade NAT address",
			"http://0.0.0.0/":                 "unspecified address",
			"http://169.254.169.254/":         "no setting opens it",
			"http://[::ffff:169.254.169.254]": "no setting opens it",
			"http://[64:ff9b::a9fe:a9fe]/":    "no setting opens it",
			"http://8.8.8.8:9000/":            "its port 9000 is not allowed; write ports: [9000]",
			"ftp://a.example/":                "is no http or https URL",
			"http://user@a.example/":          "is no http or https URL",
		} {
			fault(want, webhook.Forward{URL: u})
		}
		fault("no setting opens it", webhook.Forward{URL: "http://169.254.169.254/", Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	})
	t.Run("[webhooks/W35] a name that leads to a private address is refused when it is dialled, at every attempt", func(t *testing.T) {
		x := newTarget(t, nil)
		src := forwarding(x, false, func(f *webhook.Forward) {
			f.URL, f.Allow = fmt.Sprintf("http://localhost:%d/", x.port()), nil
		})
		s := forwardSite(t, src)
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		rs, err := s.rcv.Inbox("gh").Find(t.Context(), inbox.Selection{})
		if err != nil || len(rs) != 1 || x.count() != 0 || len(rs[0].Failures) != 3 {
			t.Fatalf("%v %v, %d requests", rs, err, x.count())
		}
		for _, f := range rs[0].Failures {
			wants(t, f.Error, "target not allowed", "loopback address")
		}
	})
	t.Run("signing secrets are those of Standard Webhooks", func(t *testing.T) {
		x := newTarget(t, nil)
		src := forwarding(x, true, func(f *webhook.Forward) {
			f.Signing = []webhook.Secret{text("bad", "whpk_AAAA"), text("ok", outSecret)}
		})
		_, err := webhook.New(webhook.Config{Engine: engineOver(t, newCounted()), Sources: []webhook.Source{src}})
		wants(t, fmt.Sprint(err), "forward.signing[0] bad:", "give whsec_ and base64")
	})
	t.Run("a source that forwards takes no handler, and no order that the database keeps", func(t *testing.T) {
		x := newTarget(t, nil)
		src := forwarding(x, true)
		s := forwardSite(t, src)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			s.rcv.Handle("gh", "*", s.effect)
		}()
		src.Order.Mode, src.Order.AllowUnsignedVersion = "latest", true
		wants(t, refused(t, src), "order.mode: latest needs the version to commit with the effect")
	})
	t.Run("[webhooks/W37] a target that hangs: the attempt ends, others are not delayed", func(t *testing.T) {
		release := make(chan struct{})
		hangs := newTarget(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-release:
			}
		})
		defer close(release)
		good := newTarget(t, nil)
		a := forwarding(hangs, false, func(f *webhook.Forward) { f.Timeout = 20 * time.Millisecond })
		b := forwarding(good, false)
		b.Name = "good"
		s := &site{t: t, store: newCounted(), effects: map[string]int{}}
		rcv, err := webhook.New(webhook.Config{Engine: engineOver(t, s.store), Sources: []webhook.Source{a, b}, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		s.rcv = rcv
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.want(http.StatusOK, "good", gh(t, "d1", "{}"))
		s.work("gh")
		s.work("good")
		if good.count() != 1 || len(s.waiting("good")) != 0 || hangs.count() != 1 {
			t.Errorf("%d %d", good.count(), hangs.count())
		}
	})
	t.Run("[webhooks/W37] concurrency bounds the attempts at once", func(t *testing.T) {
		var now, most atomic.Int32
		x := newTarget(t, func(http.ResponseWriter, *http.Request) {
			n := now.Add(1)
			for range 1000 {
				runtime.Gosched() // room for another one to come in, if it may
			}
			most.Store(max(most.Load(), n))
			now.Add(-1)
		})
		s := forwardSite(t, forwarding(x, false, func(f *webhook.Forward) { f.Concurrency = 1 }))
		for i := range 30 {
			s.want(http.StatusOK, "gh", gh(t, fmt.Sprint(i), fmt.Sprint(i)))
		}
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() { s.work("gh") })
		}
		group.Wait()
		if x.count() != 30 || most.Load() != 1 {
			t.Errorf("%d requests, %d at once", x.count(), most.Load())
		}
	})
}
