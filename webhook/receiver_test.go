package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/around"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/webhook"
)

// counted is a memstore whose calls are counted, and fail while it is down.
type counted struct {
	idempo.Store
	tx    idempo.Transactor
	join  idempo.Joiner
	mem   *memstore.Store
	mu    sync.Mutex
	calls int
	down  bool
	ops   []string
	ahead atomic.Int64 // of the store's clock
	fault *around.Fault
}

func newCounted() *counted {
	c := &counted{fault: &around.Fault{}}
	c.mem = memstore.New(memstore.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }})
	s := around.Store(c.mem, c.through)
	c.Store, c.tx, c.join = s, s.(idempo.Transactor), s.(idempo.Joiner)
	return c
}

func (c *counted) through(op string, call func() error) error {
	c.mu.Lock()
	c.calls++
	c.ops = append(c.ops, op)
	down := c.down
	c.mu.Unlock()
	if down {
		return &idempo.Error{Op: "test", Code: "unavailable", Err: errors.New("the store is away")}
	}
	return c.fault.Through(op, call)
}

// shelf is the inbox of a counted store; what is put passes through, too.
type shelf struct {
	inbox.Store
	c *counted
}

func (s shelf) Put(ctx context.Context, p inbox.PutParams) (st inbox.Stored, err error) {
	err = s.c.through("put", func() (err error) { st, err = s.Store.Put(ctx, p); return err })
	return st, err
}

func (s shelf) Note(ctx context.Context, p inbox.NoteParams) error {
	return s.c.through("note", func() error { return s.Store.(inbox.Noter).Note(ctx, p) })
}

func (s shelf) Sweep(ctx context.Context, p inbox.SweepParams) (inbox.Swept, error) {
	return s.Store.(inbox.Sweeper).Sweep(ctx, p)
}

func (c *counted) InTx(ctx context.Context, fn func(context.Context) error) error {
	return c.tx.InTx(ctx, fn)
}
func (c *counted) Joined(ctx context.Context) (bool, bool, error) { return c.join.Joined(ctx) }
func (c *counted) Inbox() inbox.Store                             { return shelf{c.mem.Inbox(), c} }

func (c *counted) set(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// site is a receiver over a memstore, and what its handlers did: effects are counted at the commit.
type site struct {
	t       *testing.T
	store   *counted
	engine  *idempo.Engine
	rcv     *webhook.Receiver
	mu      sync.Mutex
	effects map[string]int
	seen    []webhook.Observation
}

func (s *site) Observe(_ context.Context, o webhook.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, o)
}

func engineOver(t *testing.T, store idempo.Store) *idempo.Engine {
	t.Helper()
	engine, err := idempo.New(store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 bytes that are no secret at all")}}})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

func newSite(t *testing.T, change func(*webhook.Config), sources ...webhook.Source) *site {
	t.Helper()
	s := &site{t: t, store: newCounted(), effects: map[string]int{}}
	s.engine = engineOver(t, s.store)
	c := webhook.Config{Engine: s.engine, Sources: sources, Observer: s, Now: at}
	if change != nil {
		change(&c)
	}
	rcv, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.rcv = rcv
	for _, source := range sources {
		rcv.Handle(source.Name, "*", s.effect)
	}
	return s
}

// effect counts an event by tenant, source, id and body, once it commits.
func (s *site) effect(ctx context.Context, ev *webhook.Event) error {
	memstore.OnCommit(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.effects[ev.Tenant+" "+ev.Source+" "+ev.IDs[0].Text+" "+string(ev.Body)]++
	})
	return nil
}

// send hands a request over and gives the status.
func (s *site) send(source string, req webhook.Request) *httptest.ResponseRecorder {
	r := httptest.NewRequest(req.Method, "/hooks/"+source+"?"+req.Query, bytes.NewReader(req.Body))
	r.Header = req.Header.Clone()
	w := httptest.NewRecorder()
	s.rcv.ServeHTTP(w, r)
	return w
}

func (s *site) want(status int, source string, req webhook.Request) {
	s.t.Helper()
	if w := s.send(source, req); w.Code != status {
		s.t.Errorf("status %d, want %d", w.Code, status)
	}
}

// work runs what is due for a source.
func (s *site) work(source string) int {
	s.t.Helper()
	n, err := webhook.Once(s.t.Context(), s.rcv, source)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *site) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.effects {
		n += k
	}
	return n
}

// waiting are the stored events of a source, in order, as "status reason body".
func (s *site) waiting(source string) []string {
	s.t.Helper()
	list := []string{}
	rs, err := s.rcv.Inbox(source).Find(s.t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusParked, inbox.StatusDead, inbox.StatusRetrying}})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range rs {
		list = append(list, strings.TrimSpace(string(r.Status)+" "+r.Reason))
	}
	return list
}

func (s *site) outcomes() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		list = append(list, strings.TrimSpace(o.Outcome+" "+string(o.Reason)))
	}
	return list
}

// gh is a signed request of GitHub.
func gh(tb testing.TB, id, body string) webhook.Request {
	tb.Helper()
	out, err := webhook.Sign(github(text("1", "k")), webhook.SignParams{Body: []byte(body), ID: id, Type: "push", At: at()})
	if err != nil {
		tb.Fatal(err)
	}
	return out.Request()
}

func TestReceived(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/W6] [webhooks/D6] 50 identical deliveries at once: 50 times success, one receipt, one effect", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { s.want(http.StatusOK, "gh", gh(t, "d1", "{}")) })
		}
		group.Wait()
		if got := s.waiting("gh"); !slices.Equal(got, []string{"stored"}) {
			t.Errorf("%v", got)
		}
		s.work("gh")
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}")) // and after it is handled
		s.work("gh")
		if s.total() != 1 || len(s.waiting("gh")) != 0 {
			t.Errorf("%v %v", s.effects, s.waiting("gh"))
		}
	})
	t.Run("[webhooks/W1] a refused request touches no store and is counted by its reason", func(t *testing.T) {
		var log strings.Builder
		s := newSite(t, func(c *webhook.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, github(text("1", "k")))
		before := s.store.count()
		bad := gh(t, "d1", "{}")
		bad.Body = []byte("{ }")
		s.want(http.StatusUnauthorized, "gh", bad)
		bad.Header.Del("X-Hub-Signature-256")
		s.want(http.StatusUnauthorized, "gh", bad)
		s.want(http.StatusNotFound, "nobody", gh(t, "d1", "{}"))
		s.want(http.StatusMethodNotAllowed, "gh", webhook.Request{Method: http.MethodPut, Header: http.Header{}})
		big := gh(t, "d1", "{}")
		big.Body = make([]byte, 25<<20+1)
		s.want(http.StatusRequestEntityTooLarge, "gh", big)
		zip := gh(t, "d1", "{}")
		zip.Header.Set("Content-Encoding", "br")
		s.want(http.StatusUnsupportedMediaType, "gh", zip)
		if n := s.store.count() - before; n != 0 || len(s.waiting("gh")) != 0 {
			t.Errorf("%d store calls, %v", n, s.waiting("gh"))
		}
		if got := log.String(); strings.Contains(got, "sha256=") || strings.Contains(got, "{ }") || !strings.Contains(got, "reason=mismatch") {
			t.Error(got)
		}
		if got := s.outcomes(); !slices.Equal(got, []string{"refused mismatch", "refused missing_header", "other", "other", "too_large", "other"}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("[webhooks/V18] all refusals look alike: one constant empty body", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		var first *httptest.ResponseRecorder
		for _, change := range []func(*webhook.Request){
			func(r *webhook.Request) { r.Body = []byte("x") },
			func(r *webhook.Request) { r.Header.Del("X-Hub-Signature-256") },
			func(r *webhook.Request) { r.Header.Set("X-Hub-Signature-256", "sha256=zz") },
			func(r *webhook.Request) { r.Header.Set("X-Hub-Signature-256", "sha1=00") },
		} {
			req := gh(t, "d1", "{}")
			change(&req)
			w := s.send("gh", req)
			if first == nil {
				first = w
			}
			if w.Code != first.Code || w.Body.Len() != 0 || fmt.Sprint(w.Header()) != fmt.Sprint(first.Header()) {
				t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
			}
		}
	})
	t.Run("[webhooks/W5] [webhooks/W3] the store is away: 503 and Retry-After, no handler; afterwards one effect", func(t *testing.T) {
		s := newSite(t, func(c *webhook.Config) { c.AnswerBudget = 50 * time.Millisecond }, github(text("1", "k")))
		s.store.set(true)
		for range 3 {
			w := s.send("gh", gh(t, "d1", "{}"))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		}
		s.store.set(false)
		if len(s.waiting("gh")) != 0 {
			t.Errorf("%v", s.waiting("gh"))
		}
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		if s.total() != 1 {
			t.Errorf("%v", s.effects)
		}
	})
	t.Run("[webhooks/W3] [webhooks/W4] whichever store call fails, before or after it took effect: the sender's retry is stored, one effect", func(t *testing.T) {
		hit := map[string]bool{}
		for n := 1; n < 30; n++ {
			for _, after := range []bool{false, true} {
				s := newSite(t, nil, github(text("1", "k")))
				s.store.fault.N, s.store.fault.After = n, after
				first := s.send("gh", gh(t, "d1", "{}")).Code
				s.store.fault.N = 0
				if first != http.StatusOK && first != http.StatusServiceUnavailable {
					t.Errorf("call %d: %d", n, first)
				}
				kept := len(s.waiting("gh"))
				if kept > 1 || first == http.StatusOK && kept != 1 {
					t.Errorf("call %d %s (after %v): %d, and %d receipts", n, s.store.fault.Op, after, first, kept)
				}
				s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
				s.work("gh")
				if s.total() != 1 {
					t.Errorf("call %d %s (after %v): %v", n, s.store.fault.Op, after, s.effects)
				}
				if s.store.fault.Op != "" {
					hit[fmt.Sprint(s.store.fault.Op, after)] = true
				}
			}
		}
		for _, op := range []string{"tx", "acquire", "complete", "put"} {
			if !hit[op+"false"] || !hit[op+"true"] {
				t.Errorf("%s never failed: %v", op, hit)
			}
		}
	})
	t.Run("[webhooks/W11] bodies are stored and handled byte for byte", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		bodies := []string{"", "a\x00b", "\xff\xfe", "{}\r\n", "{ \"a\" : \"\\u00e9\" }", "\n\n"}
		for i, body := range bodies {
			s.want(http.StatusOK, "gh", gh(t, fmt.Sprint("d", i), body))
		}
		s.work("gh")
		for i, body := range bodies {
			if s.effects[fmt.Sprintf("default gh d%d %s", i, body)] != 1 {
				t.Errorf("%q: %v", body, s.effects)
			}
		}
	})
	t.Run("[webhooks/W19] the same id on two sources and tenants is two events", func(t *testing.T) {
		a, b := github(text("1", "k")), github(text("1", "k"))
		a.Name, a.Tenant, b.Name, b.Tenant = "ab", "x", "a", "xab"
		s := newSite(t, nil, a, b)
		for range 2 {
			s.want(http.StatusOK, "ab", gh(t, "c", "{}"))
			s.want(http.StatusOK, "a", gh(t, "bc", "{}"))
			s.want(http.StatusOK, "a", gh(t, "c", "{}"))
		}
		s.work("ab")
		s.work("a")
		if s.effects["x ab c {}"] != 1 || s.effects["xab a bc {}"] != 1 || s.total() != 2 {
			t.Errorf("%v", s.effects) // the third has known bytes under a new id, see D3
		}
	})
	t.Run("[webhooks/W20] another type is stored and skipped; so is one without a handler, and a ping", func(t *testing.T) {
		src := github(text("1", "k"))
		src.Types = []string{"push", "ping"}
		s := newSite(t, nil, src)
		for _, kind := range []string{"issues", "ping", "push"} {
			out, err := webhook.Sign(src, webhook.SignParams{Body: []byte(`{"k":"` + kind + `"}`), ID: kind, Type: kind, At: at()})
			if err != nil {
				t.Fatal(err)
			}
			s.want(http.StatusOK, "gh", out.Request())
		}
		if n := s.work("gh"); n != 3 || s.total() != 1 || s.effects[`default gh push {"k":"push"}`] != 1 || len(s.waiting("gh")) != 0 {
			t.Errorf("%d %v", n, s.effects)
		}
		bare, err := webhook.New(webhook.Config{Engine: engineOver(t, memstore.New(memstore.Options{})), Sources: []webhook.Source{src}, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		s.rcv = bare
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		if n := s.work("gh"); n != 1 || len(s.waiting("gh")) != 0 {
			t.Errorf("%d", n)
		}
	})
	t.Run("[webhooks/W15] a handler that panics is rolled back and tried again", func(t *testing.T) {
		s := newSite(t, nil, webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{text("1", "k")}, Retry: webhook.Retry{First: 1, Max: 1}})
		panicked := false
		s.rcv.Handle("gh", "*", func(ctx context.Context, ev *webhook.Event) error {
			err := s.effect(ctx, ev)
			if !panicked {
				panicked = true
				panic("a bug")
			}
			return err
		})
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		if !panicked || s.total() != 1 {
			t.Errorf("%v", s.effects)
		}
	})
	t.Run("[webhooks/W13] credentials are redacted in what is stored and handled; other headers are there", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		var got *webhook.Event
		s.rcv.Handle("gh", "*", func(_ context.Context, ev *webhook.Event) error { got = ev; return nil })
		req := gh(t, "d1", "{}")
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Hub-Signature"} {
			req.Header.Set(name, "hidden text")
		}
		req.Header.Set("ce-id", "made up") // must not pass for the event's identity
		req.Header.Set("X-Other", "shown")
		s.want(http.StatusOK, "gh", req)
		s.work("gh")
		if got == nil || strings.Contains(fmt.Sprint(got.Header), "hidden text") || got.Header.Get("Cookie") != "[redacted]" || got.Header.Get("X-Hub-Signature-256") != "[redacted]" ||
			got.Header.Get("X-Other") != "shown" || got.IDs[0].Text != "d1" || got.IDs[0].Signed || len(got.Receipt) != 26 || got.Type != "push" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("[webhooks/W21] shutting down: what runs ends well, new requests are answered 503", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		ctx, cancel := context.WithCancel(t.Context())
		done, began := make(chan error), make(chan struct{})
		s.rcv.Handle("gh", "*", func(work context.Context, ev *webhook.Event) error {
			close(began)
			<-ctx.Done() // the signal comes while it runs
			return s.effect(work, ev)
		})
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		go func() { done <- s.rcv.Run(ctx) }()
		<-began
		cancel()
		if err := <-done; err != nil || s.total() != 1 {
			t.Error(err, s.effects)
		}
		w := s.send("gh", gh(t, "d1", "{}"))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d", w.Code)
		}
	})
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/D2] [webhooks/D3] a new id that nothing covers, over known bytes, is parked and never run; few are kept", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.work("gh")
		for i := range 300 {
			s.want(http.StatusOK, "gh", gh(t, fmt.Sprint("replay", i), "{}"))
		}
		s.work("gh")
		parked := s.waiting("gh")
		if s.total() != 1 || len(parked) > 100 || len(parked) < 50 || parked[0] != "parked suspect-replay" {
			t.Errorf("%v, %d parked", s.effects, len(parked))
		}
	})
	t.Run("[webhooks/D3] same_bytes: run where two hooks may send equal bytes", func(t *testing.T) {
		src := github(text("1", "k"))
		src.Profile = webhook.Profile{SameBytes: "run"}
		s := newSite(t, nil, src)
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		s.want(http.StatusOK, "gh", gh(t, "d2", "{}"))
		s.work("gh")
		if s.total() != 2 {
			t.Errorf("%v", s.effects)
		}
	})
	t.Run("[webhooks/D4] a known id with other bytes: the first stands, few of the others are kept and wait for a person", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
		for i := range 100 {
			s.want(http.StatusOK, "gh", gh(t, "d1", fmt.Sprint(i)))
		}
		s.work("gh")
		parked := s.waiting("gh")
		if s.total() != 1 || s.effects["default gh d1 {}"] != 1 || len(parked) > 10 || len(parked) < 5 || parked[0] != "parked conflict" {
			t.Errorf("%v %v", s.effects, parked)
		}
		c, err := s.rcv.Inbox("gh").Retry(t.Context(), inbox.Selection{Limit: 1}, true)
		if err != nil || c.OK != 1 {
			t.Fatalf("%+v %v", c, err)
		}
		s.work("gh")
		if s.total() != 2 {
			t.Errorf("a person let it run: %v", s.effects)
		}
	})
	t.Run("[webhooks/D5] without an id: 100 bodies are 100 receipts, none runs; refuse is 400", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		for i := range 100 {
			req := gh(t, "x", fmt.Sprint(i))
			req.Header.Del("X-GitHub-Delivery")
			s.want(http.StatusOK, "gh", req)
		}
		s.work("gh")
		if got := s.waiting("gh"); len(got) != 100 || got[0] != "parked no-id" || s.total() != 0 {
			t.Errorf("%d %v", len(got), s.effects)
		}
		src := github(text("1", "k"))
		src.MissingID = "refuse"
		s = newSite(t, nil, src)
		req := gh(t, "x", "{}")
		req.Header.Del("X-GitHub-Delivery")
		s.want(http.StatusBadRequest, "gh", req)
	})
	t.Run("[webhooks/D4] bytes that differ only inside the mask are a plain duplicate", func(t *testing.T) {
		a := ours("paddle")
		a.verify.Name, a.sign.Name = "p", "p"
		s := newSite(t, nil, a.verify)
		for _, n := range []string{"n1", "n2"} {
			a.body = `{"event_id":"e","notification_id":"` + n + `"}`
			s.want(http.StatusOK, "p", a.signed(t, at()))
		}
		s.work("p")
		if s.total() != 1 || len(s.waiting("p")) != 0 {
			t.Errorf("%v %v", s.effects, s.waiting("p"))
		}
	})
	t.Run("[webhooks/D10] a match on either of two ids is a duplicate", func(t *testing.T) {
		a := ours("mailgun")
		a.verify.Name = "m"
		s := newSite(t, nil, a.verify)
		for _, c := range [][2]string{{"t1", "ev1"}, {"t1", "ev1"}, {"t2", "ev1"}} {
			out, err := webhook.Sign(a.sign, webhook.SignParams{Body: []byte(`{"event-data":{"id":"` + c[1] + `"}}`), ID: c[0], At: at()})
			if err != nil {
				t.Fatal(err)
			}
			s.want(http.StatusOK, "m", out.Request())
		}
		s.work("m")
		if s.total() != 1 {
			t.Errorf("%v", s.effects)
		}
	})
	t.Run("[webhooks/D11] [webhooks/D12] a batch: one run for each item, also when it is cut differently; the bad one waits alone", func(t *testing.T) {
		a := ours("line")
		a.verify.Name = "l"
		s := newSite(t, nil, a.verify)
		for _, ids := range [][]string{{"A", "B", "A"}, {"B", "C"}, {"", "D"}, {"C", "D"}} {
			var items []string
			for _, id := range ids {
				items = append(items, `{"webhookEventId":"`+id+`"}`)
			}
			a.body = `{"events":[` + strings.Join(items, ",") + `]}`
			s.want(http.StatusOK, "l", a.signed(t, at()))
		}
		s.work("l")
		if s.total() != 4 || !slices.Equal(s.waiting("l"), []string{"parked no-id"}) {
			t.Errorf("%v %v", s.effects, s.waiting("l"))
		}
		a.body = `{"events":[]}`
		s.want(http.StatusOK, "l", a.signed(t, at()))
	})
	t.Run("[webhooks/D9] after the retention, while the tombstone lives: success, not run, counted as late; after both it is new", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, func(c *webhook.Config) { c.Now = nil }, github(text("1", "k")))
			s.t = t
			for _, wait := range []time.Duration{0, 36 * 24 * time.Hour, 340 * 24 * time.Hour} {
				time.Sleep(wait) // the bubble's clock
				s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
				s.work("gh")
				if s.total() != 1 {
					t.Errorf("after %v: %v", wait, s.effects)
				}
			}
			if got := s.outcomes(); !slices.Equal(got, []string{"stored", "late_duplicate", "late_duplicate"}) {
				t.Errorf("%v", got)
			}
			time.Sleep(30 * 24 * time.Hour)
			s.want(http.StatusOK, "gh", gh(t, "d1", "{}"))
			s.work("gh")
			if s.total() != 2 {
				t.Errorf("after retention and tombstone: %v", s.effects)
			}
		})
	})
	t.Run("[webhooks/D13] a batch that fails half-way is not stored at all", func(t *testing.T) {
		a := ours("line")
		a.verify.Name = "l"
		s := newSite(t, func(c *webhook.Config) { c.AnswerBudget = 50 * time.Millisecond }, a.verify)
		a.body = `{"events":[{"webhookEventId":"A"},{"webhookEventId":"B"}]}`
		s.store.set(true)
		s.want(http.StatusServiceUnavailable, "l", a.signed(t, at()))
		s.store.set(false)
		if len(s.waiting("l")) != 0 {
			t.Errorf("%v", s.waiting("l"))
		}
		s.want(http.StatusOK, "l", a.signed(t, at()))
		s.work("l")
		if s.total() != 2 {
			t.Errorf("%v", s.effects)
		}
	})
}

func TestReceiverStarts(t *testing.T) {
	t.Parallel()
	engine := engineOver(t, memstore.New(memstore.Options{}))
	t.Run("every fault of every source at once", func(t *testing.T) {
		_, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{
			{Name: "a", Provider: "githb"}, {Name: "b", Provider: "square", Secrets: []webhook.Secret{text("1", "k")}, RefuseStatus: 200},
			github(text("1", "k")), github(text("1", "k")),
		}})
		wants(t, fmt.Sprint(err), "webhooks.sources.a.provider:", "webhooks.sources.b.public_url:", "webhooks.sources.b.refuse_status:", "webhooks.sources.gh.name: is given twice")
		_, err = webhook.New(webhook.Config{MaxInFlight: -1})
		wants(t, fmt.Sprint(err), "Config.Engine is required", "a limit of Config is negative")
	})
	t.Run("[webhooks/OR6] latest over a version that no code covers does not start, unless that is written", func(t *testing.T) {
		for _, provider := range []string{"telegram", "adyen", "msgraph", "shopify", "slack"} {
			s := ours(provider).verify
			s.Name, s.Order.Mode = "o-"+provider, "latest"
			_, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{s}})
			if provider == "shopify" || provider == "slack" {
				if err != nil {
					t.Errorf("%s: %v", provider, err)
				}
				continue
			}
			wants(t, fmt.Sprint(err), "order.mode: latest goes by a version that the code of "+provider+" does not cover", "allow_unsigned_version: true")
			s.Order.AllowUnsignedVersion = true
			if _, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{s}}); err != nil {
				t.Errorf("%s: %v", provider, err)
			}
		}
	})
	t.Run("[webhooks/D15] a horizon above the retention is said, above the tombstones refused", func(t *testing.T) {
		s := webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("1", "k")}, Retention: 10 * 24 * time.Hour}
		wants(t, strings.Join(ready(t, s).Warnings(), ""), "keys are kept 240h0m0s, and stripe can still deliver after 720h0m0s")
		s.Retention = 2 * 24 * time.Hour
		wants(t, refused(t, s), "keys and tombstones are kept 528h0m0s, and stripe can still deliver after 720h0m0s", "allow_short_window: true")
		s.AllowShortWindow = true
		ready(t, s)
	})
	t.Run("a handler for a source that is none panics at once", func(t *testing.T) {
		s := newSite(t, nil, github(text("1", "k")))
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.rcv.Handle("nobody", "*", s.effect)
	})
}

// slow is a body that ends only when it is told to.
type slow struct{ release chan struct{} }

func (s slow) Read([]byte) (int, error) { <-s.release; return 0, io.EOF }

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("over the limit, declared or without end: 413; exactly the limit passes", func(t *testing.T) {
		src := github(text("1", "k"))
		src.MaxBody = 1000
		s := newSite(t, nil, src)
		server := httptest.NewServer(s.rcv)
		defer server.Close()
		post := func(body io.Reader, h http.Header) int {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/hooks/gh", body)
			if err != nil {
				t.Fatal(err)
			}
			if h != nil {
				r.Header = h
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			return res.StatusCode
		}
		exact := gh(t, "d1", strings.Repeat("x", 1000))
		if got := post(bytes.NewReader(exact.Body), exact.Header); got != http.StatusOK {
			t.Errorf("exactly the limit, declared: %d", got)
		}
		exact = gh(t, "d2", strings.Repeat("y", 1000))
		if got := post(io.MultiReader(bytes.NewReader(exact.Body)), exact.Header); got != http.StatusOK {
			t.Errorf("exactly the limit, chunked: %d", got)
		}
		if got := post(bytes.NewReader(make([]byte, 1001)), nil); got != http.StatusRequestEntityTooLarge {
			t.Errorf("declared: %d", got)
		}
		if got := post(io.LimitReader(endless{}, 1<<30), nil); got != http.StatusRequestEntityTooLarge {
			t.Errorf("without end: %d", got)
		}
	})
	t.Run("[webhooks/W10] more than max_in_flight or max_buffered: 503 and Retry-After, and room again afterwards", func(t *testing.T) {
		release, busy := make(chan struct{}), make(chan struct{}, 10)
		var held atomic.Bool
		held.Store(true)
		s := newSite(t, func(c *webhook.Config) {
			c.MaxInFlight, c.MaxBuffered = 2, 4<<20
			c.Now = func() time.Time {
				if held.Load() {
					busy <- struct{}{}
					<-release
				}
				return at()
			}
		}, github(text("1", "k")))
		var group sync.WaitGroup
		for i := range 2 {
			group.Go(func() { s.want(http.StatusOK, "gh", gh(t, fmt.Sprint("held", i), fmt.Sprint(i))) })
			<-busy
		}
		w := s.send("gh", gh(t, "d1", "{}"))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
			t.Errorf("%d", w.Code)
		}
		held.Store(false)
		close(release)
		group.Wait()
		s.want(http.StatusServiceUnavailable, "gh", gh(t, "big", strings.Repeat("x", 5<<20)))
		for i := range 5 {
			s.want(http.StatusOK, "gh", gh(t, fmt.Sprint("d", i), strings.Repeat("x", 2<<20)+fmt.Sprint(i)))
		}
	})
	t.Run("[webhooks/W8] 5,000 slow senders hold a few bytes each, and others are answered", func(t *testing.T) {
		s := newSite(t, func(c *webhook.Config) { c.MaxInFlight = 4 }, github(text("1", "k")))
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		release, began := make(chan struct{}), make(chan struct{})
		var group sync.WaitGroup
		for i := range 5000 {
			group.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/hooks/gh", struct{ io.Reader }{tell{began, slow{release}}})
				if i%2 == 0 {
					r.ContentLength = 20 << 20 // declared, and then nothing comes
				}
				s.rcv.ServeHTTP(httptest.NewRecorder(), r)
			})
			<-began
		}
		if grown := int64(heap()) - int64(before); grown > 200<<20 {
			t.Errorf("the heap grew by %d MiB", grown>>20) // 64 KiB each would be 312, what is declared 50,000
		}
		for i := range 20 {
			s.want(http.StatusOK, "gh", gh(t, fmt.Sprint("d", i), fmt.Sprint(i)))
		}
		close(release)
		group.Wait()
	})
	t.Run("[webhooks/W8] a body that does not come: 408 and the connection is closed", func(t *testing.T) {
		s := newSite(t, func(c *webhook.Config) { c.ReadTimeout = 20 * time.Millisecond }, github(text("1", "k")))
		server := httptest.NewServer(s.rcv)
		defer server.Close()
		pr, pw := io.Pipe()
		defer pw.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/hooks/gh", pr)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusRequestTimeout || !res.Close {
			t.Errorf("%d, close %v", res.StatusCode, res.Close)
		}
	})
	t.Run("[webhooks/HS9] an unsigned handshake more than ten times a second: 429, no store call", func(t *testing.T) {
		token := text("v", "tok")
		meta := webhook.Source{Name: "m", Provider: "meta", Secrets: []webhook.Secret{text("1", "k")}, VerifyToken: &token}
		s := newSite(t, nil, meta)
		before := s.store.count()
		ask := webhook.Request{Method: http.MethodGet, Query: query("hub.mode", "subscribe", "hub.verify_token", "tok", "hub.challenge", "c"), Header: http.Header{}}
		for range 10 {
			s.want(http.StatusOK, "m", ask)
		}
		s.want(http.StatusTooManyRequests, "m", ask)
		if s.store.count() != before {
			t.Error("a store call")
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// tell says that reading has begun.
type tell struct {
	began chan struct{}
	next  io.Reader
}

func (t tell) Read(p []byte) (int, error) {
	t.began <- struct{}{}
	return t.next.Read(p)
}
