package pagecheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// stage is a dashboard over a store with a day of a payments service in it.
type stage struct {
	t      *testing.T
	store  *house
	engine *idempo.Engine
	ops    *operator.Service
	meter  *operator.Meter
	ui     *dashboard.Handler
	prefix string
	server *httptest.Server
	by     dashboard.Principal // who looks; see be

	mu    sync.Mutex
	clock time.Time // zero: real
}

// house is the store, under owners with names of their own.
type house struct {
	*memstore.Store
	owner string
}

func (h *house) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	if h.owner != "" {
		p.Owner = h.owner
	}
	return h.Store.Acquire(ctx, p)
}

func (s *stage) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.IsZero() {
		return time.Now()
	}
	return s.clock
}

// at sets the clock to a moment before the present; 0: the present, which goes on.
func (s *stage) at(before time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = time.Time{}
	if before > 0 {
		s.clock = time.Now().Add(-before)
	}
}

func ann() dashboard.Principal { return dashboard.Principal{Actor: "ann", Role: operator.RoleAdmin} }

// newStage serves an empty dashboard under prefix.
func newStage(t *testing.T, prefix string) *stage {
	t.Helper()
	s := &stage{t: t, prefix: prefix, by: ann()}
	s.store = &house{Store: memstore.New(memstore.Options{Clock: s.now})}
	s.at(3 * time.Hour)
	s.meter = operator.NewMeter(operator.MeterConfig{Store: s.store, Clock: s.now})
	s.at(0)
	var err error
	s.engine, err = idempo.New(s.store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte(strings.Repeat("k1", 20))}}, Observer: s.meter,
		Retention: 48 * time.Hour, Operations: []idempo.Operation{
			{Name: "create-payment", Guard: idempo.GuardLeased},
			{Name: "refund", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe, ProbeFunc: func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
				return idempo.StateCompleted, idempo.Result{Status: 200, Resource: idempo.Resource{Type: "refund", ID: "re_7"}}, nil
			}},
			{Name: "ship-order", Guard: idempo.GuardLeased}, {Name: "book-ledger", Guard: idempo.GuardAtomic, Tombstone: idempo.Forever}}})
	if err != nil {
		t.Fatal(err)
	}
	if s.ops, err = operator.New(s.store, operator.Config{Engine: s.engine}); err != nil {
		t.Fatal(err)
	}
	s.ui, err = dashboard.New(dashboard.Config{Operator: s.ops, Prefix: prefix, Meter: s.meter, Operations: s.engine.Operations, Product: "0.1.0", PollEvery: 50 * time.Millisecond,
		Settings: func() []dashboard.Setting {
			return []dashboard.Setting{{Path: "store.postgres", Value: "postgres://pay:***@db/pay", Origin: "idempo.yaml:3"},
				{Path: "listen.admin", Value: "127.0.0.1:7070", Origin: "default"}, {Path: "retention.result", Value: "48h", Origin: "idempo.yaml:9"}}
		},
		Authorize: func(*http.Request) (dashboard.Principal, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.by.Actor == "" {
				return s.by, errors.New("nobody")
			}
			return s.by, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", s.ui)
	s.server = httptest.NewServer(mux)
	t.Cleanup(func() { s.ui.Close(); s.server.CloseClientConnections(); s.server.Close() })
	return s
}

// be lets somebody else look.
func (s *stage) be(by dashboard.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = by
}

func (s *stage) url(path string) string { return s.server.URL + s.prefix + path }

// claim wins a key.
func (s *stage) claim(tenant, operation, id, owner string) *idempo.Claim {
	s.t.Helper()
	s.store.owner = owner
	b, err := s.engine.Begin(context.Background(), idempo.Request{Key: idempo.Key{Tenant: tenant, Operation: operation, ID: id}, Input: [][]byte{[]byte(id)}, Surface: "http"})
	if err != nil || b.Verdict != idempo.VerdictRun {
		s.t.Fatal(id, b.Verdict, err)
	}
	return b.Claim
}

// pay runs a call through to its answer.
func (s *stage) pay(tenant, operation, id string, status int, took time.Duration) string {
	s.t.Helper()
	began := time.Since(s.now())
	c := s.claim(tenant, operation, id, "pay-2/4711 0.1.0")
	s.at(began - took)
	s.meter.Observe(context.Background(), idempo.Event{Kind: "execute", Operation: operation, Took: took})
	r := idempo.Result{Status: status, Failing: status >= 400, Header: [][2]string{{"Content-Type", "application/json"}},
		Body: fmt.Appendf(nil, `{"id":"ch_%s","amount":1200,"currency":"EUR","status":"succeeded"}`, id)}
	if status < 400 {
		r.Resource = idempo.Resource{Type: "charge", ID: "ch_" + id}
	}
	if err := c.Complete(context.Background(), r); err != nil {
		s.t.Fatal(err)
	}
	return c.Ref()
}

// doubt leaves a key in doubt.
func (s *stage) doubt(tenant, operation, id, note string) string {
	s.t.Helper()
	began := time.Since(s.now())
	c := s.claim(tenant, operation, id, "pay-1/3177 0.1.0")
	s.at(began - 2*time.Second)
	if err := c.Doubt(context.Background(), note); err != nil {
		s.t.Fatal(err)
	}
	return c.Ref()
}

// again sends a call that was there already.
func (s *stage) again(tenant, operation, id string) {
	if _, err := s.engine.Begin(context.Background(), idempo.Request{Key: idempo.Key{Tenant: tenant, Operation: operation, ID: id}, Input: [][]byte{[]byte(id)}, Surface: "http"}); err != nil {
		s.t.Fatal(err)
	}
}

// day fills the store. It returns the reference of the payment that is stuck: order-8123 of acme.
func (s *stage) day() string {
	s.t.Helper()
	r := rand.New(rand.NewPCG(7, 9))
	tenants, operations := []string{"acme", "globex", "initech"}, []string{"create-payment", "create-payment", "create-payment", "refund", "ship-order"}
	for i := range 140 {
		before := 3*time.Hour - time.Duration(i)*3*time.Hour/140
		if i >= 100 {
			before = time.Hour - time.Duration(i-100)*90*time.Second
		}
		s.at(before)
		tenant, operation, id := tenants[r.IntN(3)], operations[r.IntN(5)], fmt.Sprintf("order-%d", 8000+i)
		if i == 123 {
			continue // the story's own
		}
		status := 201
		if r.IntN(11) == 0 {
			status = 402
		}
		s.pay(tenant, operation, id, status, time.Duration(40+r.IntN(400))*time.Millisecond)
		for range r.IntN(4) * r.IntN(3) {
			s.again(tenant, operation, id)
		}
	}
	s.at(134 * time.Minute)
	stuck := s.doubt("acme", "create-payment", "order-8123", "the upstream closed the connection after the request was sent")
	s.at(71 * time.Minute)
	s.doubt("globex", "refund", "refund-311", "timeout: the probe could not tell yet")
	s.at(26 * time.Minute)
	s.doubt("initech", "ship-order", "parcel-77", "the process was killed while the carrier was asked")
	s.at(50 * time.Minute)
	ref := s.doubt("globex", "create-payment", "order-7990", "the upstream closed the connection")
	s.at(44 * time.Minute)
	_, err := s.ops.Resolve(context.Background(), operator.ResolveParams{To: idempo.StateFailed, Why: operator.Why{By: operator.Principal{Actor: "bob", Role: operator.RoleOperator, Channel: "cli"},
		Target: operator.Target{Ref: ref}, On: operator.Seen{Attempt: 1, State: idempo.StateInDoubt}, Reason: "not in the bank portal, ticket 4711", Evidence: "https://tickets.example/4711"}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.at(5 * time.Second)
	s.claim("acme", "ship-order", "parcel-80", "pay-2/4711 0.1.0")
	s.store.owner = ""
	s.at(0)
	return stuck
}

// month lets the counters tell of thirty days: weekdays are busier than weekends, and once a client came back late.
func (s *stage) month() {
	s.t.Helper()
	ctx, r := context.Background(), rand.New(rand.NewPCG(7, 7))
	members := [][]string{{"body", "/amount"}, {"body", "/amount", "/currency"}, {"body", "/items/0/quantity"}, nil}
	for before := 30 * 24 * time.Hour; before > 0; before -= 6 * time.Hour {
		s.at(before)
		weekday := s.now().Weekday()
		busy := 40 + r.IntN(30)
		if weekday == time.Saturday || weekday == time.Sunday {
			busy /= 3
		}
		for range busy {
			op := []string{"create-payment", "create-payment", "create-payment", "refund", "ship-order", "book-ledger"}[r.IntN(6)]
			e := idempo.Event{Kind: "begin", Operation: op, Verdict: "run", Tenant: "acme"}
			switch n := r.IntN(100); {
			case n < 14:
				e.Verdict, e.Age = "replay", time.Duration(r.Int64N(int64(5*time.Hour)))
			case n == 14 && op == "ship-order":
				e.Verdict, e.Age = "replay", 46*time.Hour
			case n == 15:
				e.Verdict, e.KeyRef = "mismatch", fmt.Sprintf("k_%026x", r.Int64())
			}
			s.meter.Observe(ctx, e)
			if names := members[r.IntN(len(members))]; e.Verdict == "mismatch" && names != nil {
				s.meter.Observe(ctx, idempo.Event{Kind: "differs", Operation: op, KeyRef: e.KeyRef, Members: names})
			}
		}
	}
	s.at(0)
}
