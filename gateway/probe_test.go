package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// mortal is a store that a process loses when it dies: after the moment that die names, no call of it reaches the store.
type mortal struct {
	idempo.Store
	dead  atomic.Bool
	after string // die right after this call went through
}

var errDead = errors.New("the process is dead")

func (m *mortal) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	if m.dead.Load() {
		return idempo.Acquired{}, errDead
	}
	a, err := m.Store.Acquire(ctx, p)
	if m.after == "acquire" && err == nil && a.Verdict == idempo.VerdictRun {
		m.dead.Store(true)
		return idempo.Acquired{}, errDead
	}
	return a, err
}

func (m *mortal) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	if m.dead.Load() {
		return idempo.Record{}, errDead
	}
	return m.Store.Renew(ctx, p)
}

func (m *mortal) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if m.dead.Load() {
		return idempo.Record{}, errDead
	}
	return m.Store.Complete(ctx, p)
}

func (m *mortal) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	if m.dead.Load() {
		return idempo.Record{}, errDead
	}
	return m.Store.Release(ctx, p)
}

// Without these embedded abilities a mortal is a plain Store: no engine of it sweeps or takes.

// ledger is an upstream that makes payments: one per key it is sent, and counts calls and effects.
type ledger struct {
	mu      sync.Mutex
	effects map[string]int // by the key it got
	calls   int
	probes  []string // targets
	act     func(w http.ResponseWriter, r *http.Request)
	probe   func(w http.ResponseWriter, r *http.Request)
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == "GET" {
		l.mu.Lock()
		l.probes = append(l.probes, r.RequestURI)
		l.mu.Unlock()
		l.probe(w, r)
		return
	}
	l.mu.Lock()
	l.calls++
	l.effects[r.Header.Get("Idempotency-Key")]++
	l.mu.Unlock()
	l.act(w, r)
}

func (l *ledger) numbers() (calls, keys, probes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls, len(l.effects), len(l.probes)
}

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"hold", "rerun"} {
		for _, point := range []string{"after the claim", "after forwarding", "after the reply"} {
			t.Run("[http/P11] "+policy+", "+point, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				first := &mortal{Store: w.store}
				book := &ledger{effects: map[string]int{}}
				book.act = func(rw http.ResponseWriter, r *http.Request) {
					if point == "after forwarding" && !first.dead.Swap(true) {
						panic(http.ErrAbortHandler)
					}
					if point == "after the reply" {
						first.dead.Store(true)
					}
					created(rw, r)
				}
				if point == "after the claim" {
					first.after = "acquire"
				}
				up, _ := counting(t, book)
				c := payTo(func(r *Route) {
					r.OnCrash = policy
					if policy == "rerun" {
						r.UpstreamHonoursKey, r.UpstreamKey = true, "derive"
					}
				}, up.URL)
				g := w.gate(c, first)
				if r := g.pay("k1"); r.StatusCode < 500 {
					t.Fatalf("the dying process answered %d", r.StatusCode)
				}
				other := w.gate(c, nil)
				other.want(other.pay("k1"), 409, "in_progress", "in_progress")
				w.pass(31 * time.Second)
				if policy == "hold" {
					r := other.pay("k1")
					other.want(r, 409, "in_doubt", "in_doubt")
					if r.problem.Retryable {
						t.Error("hold says that a retry will help")
					}
				} else {
					other.want(other.pay("k1"), 201, "executed", "")
					other.want(other.pay("k1"), 201, "replayed", "")
				}
				calls, keys, _ := book.numbers()
				most := map[string]int{"hold": 1, "rerun": 2}[policy]
				if point == "after the claim" {
					most--
				}
				if calls != most || keys > 1 {
					t.Errorf("%d calls with %d keys, want %d calls", calls, keys, most)
				}
			})
		}
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	type setup struct {
		w     *world
		book  *ledger
		g     *gate // a second process; the first has died after forwarding
		found atomic.Value
	}
	start := func(t *testing.T, change func(*Route)) *setup {
		s := &setup{w: newWorld(t), book: &ledger{effects: map[string]int{}}}
		first := &mortal{Store: s.w.store}
		s.found.Store(`{"count":0}`)
		s.book.act = func(rw http.ResponseWriter, r *http.Request) {
			if !first.dead.Swap(true) {
				panic(http.ErrAbortHandler)
			}
			created(rw, r)
		}
		s.book.probe = func(rw http.ResponseWriter, r *http.Request) {
			found := s.found.Load().(string)
			if status, rest, ok := strings.Cut(found, "|"); ok {
				var n int
				fmt.Sscan(status, &n)
				if n == 302 {
					rw.Header().Set("Location", "/elsewhere")
				}
				rw.WriteHeader(n)
				found = rest
			}
			io.WriteString(rw, found)
		}
		up, _ := counting(t, s.book)
		c := payTo(func(r *Route) {
			r.Match = "POST /v1/accounts/{account}/payments"
			r.OnCrash, r.UpstreamKey = "probe", "derive"
			r.Resource = ResourceRule{Type: "payment", ID: "/id"}
			r.Probe = &Probe{Request: "GET /v1/payments?ref={derived_key}&acct={path.account}&op={operation}&t={tenant}",
				Happened:    ProbeMatch{Status: []int{200}, JSON: map[string]any{"/count": 1}},
				NotHappened: ProbeMatch{Status: []int{200}, JSON: map[string]any{"/count": 0}},
				Result:      &ProbeResult{Status: 201, Body: "/items/0"}, Settle: 60 * time.Second, Every: 5 * time.Second, Attempts: 20}
			change(r)
		}, up.URL)
		if r := s.w.gate(c, first).do("POST", "/v1/accounts/a%2Fb%3F/payments", "abc", "Idempotency-Key: k1"); r.StatusCode < 500 {
			t.Fatalf("the dying process answered %d", r.StatusCode)
		}
		s.g = s.w.gate(c, nil)
		return s
	}
	ask := func(s *setup) got {
		return s.g.do("POST", "/v1/accounts/a%2Fb%3F/payments", "abc", "Idempotency-Key: k1")
	}
	keep := func(*Route) {}
	t.Run("[http/P13] another process asks, with the values of the first", func(t *testing.T) {
		t.Parallel()
		s := start(t, keep)
		s.found.Store(`{"count":1,"items":[{"id":"p_7"}]}`)
		s.g.want(ask(s), 409, "in_progress", "in_progress")
		if _, _, probes := s.book.numbers(); probes != 0 {
			t.Errorf("%d probes while the first may run", probes)
		}
		s.w.pass(31 * time.Second)
		r := ask(s)
		s.g.want(r, 201, "replayed", "")
		if r.body != `{"id":"p_7"}` || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v %s", r.Header, r.body)
		}
		derived := idempo.DeriveKey("default", "gateway.pay", "k1", "", "forward", "1", "")
		if want := "/v1/payments?ref=" + derived + "&acct=a%2Fb%3F&op=pay&t=default"; len(s.book.probes) != 1 || s.book.probes[0] != want {
			t.Errorf("probes %q, want %q", s.book.probes, want)
		}
		if calls, _, _ := s.book.numbers(); calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
	t.Run("[http/P14] happened, without a result", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(r *Route) { r.Probe.Result = nil })
		s.found.Store(`{"count":1}`)
		s.w.pass(31 * time.Second)
		r := ask(s)
		s.g.want(r, 410, "not_kept", "result_not_kept")
		if strings.Contains(r.body, "original_status") {
			t.Errorf("it claims to know: %s", r.body)
		}
		s.g.want(ask(s), 410, "not_kept", "result_not_kept")
	})
	t.Run("[http/P14] not happened is believed after settle, however often a caller asks", func(t *testing.T) {
		t.Parallel()
		s := start(t, keep)
		s.w.pass(31 * time.Second)
		s.g.want(ask(s), 409, "in_doubt", "in_doubt")
		var last got
		for range 12 { // up to 151 s: too few for settle to pass between two questions, which are a minute apart at most
			s.w.pass(10 * time.Second)
			if last = ask(s); last.StatusCode == 201 {
				break
			}
			s.g.want(last, 409, "in_doubt", "in_doubt")
		}
		s.g.want(last, 201, "executed", "")
		if calls, keys, _ := s.book.numbers(); calls != 2 || keys != 1 {
			t.Errorf("%d calls with %d keys", calls, keys)
		}
	})
	t.Run("[http/P14] both, neither, an error, a redirect stay in doubt", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(r *Route) { r.Probe.NotHappened.JSON = map[string]any{"/none": true} })
		s.w.pass(2 * time.Minute)
		for _, found := range []string{`{"count":1,"none":true}`, `{"count":2}`, `not JSON`, `{"count":1} {}`, `500|{"count":1}`, `302|{"count":1}`, `404|`, `{"count":"1"}`} {
			s.found.Store(found)
			s.w.pass(2 * time.Minute)
			r := ask(s)
			s.g.want(r, 409, "in_doubt", "in_doubt")
			if !r.problem.Retryable || r.problem.After < 1 {
				t.Errorf("%s: problem %+v", found, r.problem)
			}
		}
		if calls, _, probes := s.book.numbers(); calls != 1 || probes != 8 {
			t.Errorf("%d calls, %d probes", calls, probes)
		}
	})
	t.Run("[http/P14] asked again after every, doubling to a minute", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(r *Route) { r.Probe.Every = 8 * time.Second })
		s.found.Store(`?`)
		s.w.pass(31 * time.Second)
		for i, wait := range []time.Duration{16, 32, 60, 60} { // the first attempt was the call
			s.g.want(ask(s), 409, "in_doubt", "in_doubt")
			s.w.pass((wait - 1) * time.Second)
			s.g.want(ask(s), 409, "in_doubt", "in_doubt")
			if _, _, probes := s.book.numbers(); probes != i+1 {
				t.Fatalf("%d probes after %d pauses", probes, i)
			}
			s.w.pass(time.Second)
		}
	})
	t.Run("[http/P14] after attempts tries nobody asks any more", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(r *Route) { r.Probe.Attempts = 3 })
		s.found.Store(`?`)
		for range 6 {
			s.w.pass(2 * time.Minute)
			s.g.want(ask(s), 409, "in_doubt", "in_doubt")
		}
		s.found.Store(`{"count":1}`)
		s.w.pass(2 * time.Minute)
		s.g.want(ask(s), 409, "in_doubt", "in_doubt")
		if _, _, probes := s.book.numbers(); probes != 3 {
			t.Errorf("%d probes", probes)
		}
	})
	t.Run("[http/P14] a not happened of before does not speak of a second send", func(t *testing.T) {
		t.Parallel()
		s := start(t, func(r *Route) { r.Probe.Every = time.Second })
		s.w.pass(31 * time.Second)
		s.g.want(ask(s), 409, "in_doubt", "in_doubt") // heard at 31 s
		s.w.pass(70 * time.Second)
		s.book.act = func(rw http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }
		s.g.want(ask(s), 502, "in_doubt", "outcome_unknown") // believed, sent again, and lost again
		s.w.pass(10 * time.Second)
		s.g.want(ask(s), 409, "in_doubt", "in_doubt") // 10 s after the second send
		s.w.pass(61 * time.Second)
		s.book.act = created
		s.g.want(ask(s), 201, "executed", "")
		if calls, _, _ := s.book.numbers(); calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
	t.Run("[security/SEC62] a value that would move the path is refused before a claim", func(t *testing.T) {
		t.Parallel()
		up, calls := counting(t, nil)
		g := newWorld(t).gate(payTo(func(r *Route) {
			r.OnCrash = "probe"
			r.Probe = &Probe{Request: "GET /p/{key}", Happened: ProbeMatch{Status: []int{200}}, NotHappened: ProbeMatch{Status: []int{404}}}
		}, up.URL), nil)
		g.want(g.pay(".."), 400, "refused", "malformed_request")
		g.want(g.pay("a/../b"), 200, "executed", "")
		if calls.count() != 1 {
			t.Errorf("%d calls", calls.count())
		}
	})
}
