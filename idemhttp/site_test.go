package idemhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// site is a service with one guarded handler on memstore. Effects are counted outside of it, as a database would hold them.
type site struct {
	t       *testing.T
	store   *faultyStore
	engine  *idempo.Engine
	m       *idemhttp.Middleware
	h       http.Handler
	log     *logBuffer
	events  *eventLog
	runs    atomic.Int64 // calls of the handler
	effects atomic.Int64 // committed, or done outside
}

// tune changes a site before it is built.
type tune struct {
	engine idempo.Config
	config idemhttp.Config
	op     idempo.Operation
	rules  idemhttp.Rules
}

func digestKeys() []idempo.Secret {
	return []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}
}

// fromHeader is the tenant of tests: what X-Account says.
func fromHeader(r *http.Request) (string, error) {
	switch a := r.Header.Get("X-Account"); a {
	case "down":
		return "", io.ErrUnexpectedEOF
	case "none":
		return "", idemhttp.ErrNoTenant
	case "":
		return "acct_1", nil
	default:
		return a, nil
	}
}

// build makes a site. Without a change: atomic operation "pay", tenants from X-Account.
func build(t *testing.T, serve func(*site, http.ResponseWriter, *http.Request), change func(*tune)) *site {
	t.Helper()
	s := &site{t: t, store: &faultyStore{Store: memstore.New(memstore.Options{})}, log: &logBuffer{}, events: &eventLog{}}
	u := tune{
		engine: idempo.Config{DigestKeys: digestKeys(), Observer: s.events},
		config: idemhttp.Config{TenantFunc: fromHeader, Logger: slog.New(slog.NewTextHandler(s.log, nil))},
		op:     idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic},
	}
	if change != nil {
		change(&u)
	}
	var err error
	if s.engine, err = idempo.New(s.store, u.engine); err != nil {
		t.Fatal(err)
	}
	if s.m, err = idemhttp.New(s.engine, u.config); err != nil {
		t.Fatal(err)
	}
	if s.h, err = s.m.Wrap(u.op, u.rules, s.handler(serve)); err != nil {
		t.Fatal(err)
	}
	return s
}

// another is a second process on the same store.
func (s *site) another(serve func(*site, http.ResponseWriter, *http.Request), change func(*tune)) *site {
	s.t.Helper()
	o := build(s.t, serve, change)
	o.store.Store = s.store.Store
	return o
}

func (s *site) handler(serve func(*site, http.ResponseWriter, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		serve(s, w, r)
	})
}

// effect does what the business wants done: in the transaction where there is one, else at once.
func (s *site) effect(ctx context.Context) {
	if c := idempo.FromContext(ctx); c != nil && c.Guard() == idempo.GuardAtomic {
		memstore.OnCommit(ctx, func() { s.effects.Add(1) })
		return
	}
	s.effects.Add(1)
}

// created is the usual handler: one effect, 201, a body that tells runs apart.
func created(s *site, w http.ResponseWriter, r *http.Request) {
	s.effect(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/payments/1")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"run":%d}`, s.runs.Load())
}

// answering is a handler with one effect and a fixed answer.
func answering(status int, body string, headers ...string) func(*site, http.ResponseWriter, *http.Request) {
	return func(s *site, w http.ResponseWriter, r *http.Request) {
		s.effect(r.Context())
		for i := 0; i < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func leased(u *tune) { u.op.Guard = idempo.GuardLeased }

// post makes a request; headers come in pairs.
func post(key, body string, headers ...string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/pay?x=1", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// answer is what a caller sees.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

func (s *site) do(r *http.Request) answer { return serve(s.t, s.h, r) }

func serve(t *testing.T, h http.Handler, r *http.Request) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{t, w.Code, w.Result().Header, w.Body.String()}
}

// code is the code of a problem, "" of any other answer.
func (a answer) code() string {
	if a.header.Get("Content-Type") != "application/problem+json" {
		return ""
	}
	return a.problem().Code
}

func (a answer) problem() (p idemhttp.Problem) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		a.t.Fatalf("no problem document: %v in %q", err, a.body)
	}
	return p
}

func (a answer) said() string { return a.header.Get("Idempotency-Status") }

// is checks status and the code of a problem or Idempotency-Status.
func (a answer) is(status int, word string) {
	a.t.Helper()
	got := a.code()
	if got == "" {
		got = a.said()
	}
	if a.status != status || got != word {
		a.t.Errorf("answered %d %q (%.200s), want %d %q", a.status, got, a.body, status, word)
	}
}

// counted checks how often the handler ran and how many effects there are.
func (s *site) counted(runs, effects int64) {
	s.t.Helper()
	if s.runs.Load() != runs || s.effects.Load() != effects {
		s.t.Errorf("%d runs and %d effects, want %d and %d", s.runs.Load(), s.effects.Load(), runs, effects)
	}
}

// records is how many there are in the store.
func (s *site) records() (n int) {
	for range s.store.All() {
		n++
	}
	return n
}

// faultyStore is memstore with failures on demand, and a count of its calls.
type faultyStore struct {
	*memstore.Store
	calls    atomic.Int64
	acquire  func(idempo.AcquireParams) error                         // before
	acquired func(idempo.Acquired) idempo.Acquired                    // after
	renew    func() error                                             // before
	complete func(idempo.CompleteParams) error                        // before
	inTx     func(context.Context, func(context.Context) error) error // instead
	lookup   func(idempo.Record, error) (idempo.Record, error)        // after
}

func (f *faultyStore) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	f.calls.Add(1)
	if f.acquire != nil {
		if err := f.acquire(p); err != nil {
			return idempo.Acquired{}, err
		}
	}
	a, err := f.Store.Acquire(ctx, p)
	if err == nil && f.acquired != nil {
		a = f.acquired(a)
	}
	return a, err
}

func (f *faultyStore) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	f.calls.Add(1)
	if f.complete != nil {
		if err := f.complete(p); err != nil {
			return idempo.Record{}, err
		}
	}
	return f.Store.Complete(ctx, p)
}

func (f *faultyStore) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	f.calls.Add(1)
	r, err := f.Store.Lookup(ctx, p)
	if f.lookup != nil {
		return f.lookup(r, err)
	}
	return r, err
}

func (f *faultyStore) InTx(ctx context.Context, fn func(context.Context) error) error {
	if f.inTx != nil {
		return f.inTx(ctx, fn)
	}
	return f.Store.InTx(ctx, fn)
}

func (f *faultyStore) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	f.calls.Add(1)
	if f.renew != nil {
		if err := f.renew(); err != nil {
			return idempo.Record{}, err
		}
	}
	return f.Store.Renew(ctx, p)
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eventLog counts events by kind and class.
type eventLog struct {
	mu   sync.Mutex
	seen map[string]int
}

func (e *eventLog) Observe(_ context.Context, ev idempo.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[string]int{}
	}
	e.seen[ev.Kind+" "+ev.Class]++
}

func (e *eventLog) count(kind, class string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[kind+" "+class]
}

// noFiles checks that a folder for temporary files holds none, whatever empty folders there are.
func noFiles(t *testing.T, temp string) {
	t.Helper()
	err := filepath.WalkDir(temp, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left behind: %s", d.Name())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
