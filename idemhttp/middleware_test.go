package idemhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

func TestDeclaration(t *testing.T) {
	t.Parallel()
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: digestKeys()})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("[http/H1] nobody says whose keys they are", func(t *testing.T) {
		_, err := idemhttp.New(engine, idemhttp.Config{})
		if err == nil || !strings.Contains(err.Error(), "TenantFunc") || !strings.Contains(err.Error(), "GlobalTenant") {
			t.Errorf("error %v", err)
		}
		m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
		if err != nil {
			t.Fatal(err)
		}
		var tenant string
		h, err := m.Wrap(idempo.Operation{Name: "global", Guard: idempo.GuardLeased}, idemhttp.Rules{},
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { tenant = idempo.FromContext(r.Context()).Key().Tenant }))
		if err != nil {
			t.Fatal(err)
		}
		serve(t, h, post("a", "{}")).is(200, "executed")
		if tenant != "default" {
			t.Errorf("tenant %q", tenant)
		}
	})
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	t.Run("[http/H2] one error lists every mistake, each with what to write instead", func(t *testing.T) {
		_, err := m.Wrap(idempo.Operation{Name: "bad name", Guard: idempo.GuardAtomic, Lease: -1}, idemhttp.Rules{
			Methods: []string{"GET"}, Exclude: []string{"/a"}, Include: []string{"/b"}, Redact: []string{"c"}, KeyPattern: "(",
			MaxBody: -1, Stream: true, OnStoreDown: idemhttp.StoreDownRun, MismatchStatus: 418, UniqueBy: []string{"cookie:x"},
			Outcomes: map[int]idemhttp.Outcome{404: idemhttp.OutcomeInDoubt}, PointerStatus: 303,
		}, nothing)
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{"name must match", "Lease is negative", "GET is never guarded", "Exclude and Include", "Redact", "KeyPattern",
			"MaxBody is negative", "Stream lets", "StoreDownRun needs", "MismatchStatus 418", "UniqueBy", "Outcomes[404]", "PointerStatus 303"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not among\n%v", want, err)
			}
		}
		if slices.ContainsFunc(engine.Operations(), func(o idempo.Operation) bool { return o.Name == "bad name" }) {
			t.Error("declared all the same")
		}
		_, err = m.Wrap(idempo.Operation{Name: "op"}, idemhttp.Rules{}, nothing)
		if err == nil || !strings.Contains(err.Error(), "set Guard to idempo.GuardAtomic (effect in this database) or idempo.GuardLeased (effect anywhere)") {
			t.Errorf("no guard: %v", err)
		}
		_, err = m.Wrap(idempo.Operation{Name: "probe", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe}, idemhttp.Rules{}, nothing)
		if err == nil || !strings.Contains(err.Error(), "ProbeFunc") {
			t.Errorf("probe: %v", err)
		}
	})
	t.Run("[http/R8] a stream cannot be atomic", func(t *testing.T) {
		_, err := m.Wrap(idempo.Operation{Name: "stream", Guard: idempo.GuardAtomic}, idemhttp.Rules{Stream: true}, nothing)
		if err == nil || !strings.Contains(err.Error(), "GuardLeased") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("rules of Config fill what a route leaves out", func(t *testing.T) {
		m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true, Rules: idemhttp.Rules{KeyHeaders: []string{"X-Key"}, MaxBody: 3}})
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Wrap(idempo.Operation{Name: "filled", Guard: idempo.GuardAtomic}, idemhttp.Rules{MaxBody: 4}, nothing)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, h, post("", "1234", "X-Key", "a")).is(200, "executed")
		serve(t, h, post("", "12345", "X-Key", "b")).is(413, "body_too_large")
	})
}

func TestFirstCallAndRetry(t *testing.T) {
	t.Parallel()
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		s := build(t, created, func(u *tune) { u.op.Guard = guard; u.op.Retention = time.Hour })
		t.Run("[http/H5] first executed, then replayed, one run: "+string(guard), func(t *testing.T) {
			first, again := s.do(post("k1", `{"a":1}`)), s.do(post(`"k1"`, `{ "a": 1.0 }`))
			first.is(201, "executed")
			again.is(201, "replayed")
			if again.body != first.body || again.header.Get("Location") != "/payments/1" || again.header.Get("Idempotent-Replayed") != "true" ||
				again.header.Get("Cache-Control") != "no-store" {
				t.Errorf("replay %v %q", again.header, again.body)
			}
			if first.header.Get("Idempotent-Replayed") != "" || first.header.Get("Cache-Control") != "" {
				t.Errorf("first answer %v", first.header)
			}
			until, err := http.ParseTime(first.header.Get("Idempotency-Expires"))
			if err != nil || time.Until(until) > time.Hour || time.Until(until) < 50*time.Minute {
				t.Errorf("expires %q: %v", first.header.Get("Idempotency-Expires"), err)
			}
			if first.header.Get("Idempotency-Expires") != again.header.Get("Idempotency-Expires") {
				t.Errorf("expires %v, then %v", first.header, again.header)
			}
			s.counted(1, 1)
		})
	}
	t.Run("[http/H3] one operation on two routes is one key space; other operation, other tenant: none of it", func(t *testing.T) {
		s := build(t, created, nil)
		two, err := s.m.Wrap(idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, s.handler(created))
		if err != nil {
			t.Fatal(err)
		}
		other, err := s.m.Wrap(idempo.Operation{Name: "refund", Guard: idempo.GuardAtomic}, idemhttp.Rules{}, s.handler(created))
		if err != nil {
			t.Fatal(err)
		}
		s.do(post("k", "{}")).is(201, "executed")
		serve(t, two, post("k", "{}")).is(201, "replayed")
		elsewhere := post("k", "{}")
		elsewhere.URL.Path = "/v2/pay"
		serve(t, two, elsewhere).is(422, "mismatch")
		serve(t, other, post("k", "{}")).is(201, "executed")
		s.do(post("k", "{}", "X-Account", "acct_2")).is(201, "executed")
		s.counted(3, 3)

		values, err := s.m.Wrap(idempo.Operation{Name: "values", Guard: idempo.GuardAtomic}, idemhttp.Rules{PathValues: true}, s.handler(created))
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle("POST /a/{id}", values)
		mux.Handle("POST /b/{id}", values)
		for path, want := range map[string]string{"/a/7": "executed"} {
			serve(t, mux, httptest.NewRequest("POST", path, nil)).is(400, "key_missing")
			r := httptest.NewRequest("POST", path, nil)
			r.Header.Set("Idempotency-Key", "v")
			serve(t, mux, r).is(201, want)
			r = httptest.NewRequest("POST", "/b/7", nil)
			r.Header.Set("Idempotency-Key", "v")
			serve(t, mux, r).is(201, "replayed")
		}
	})
	t.Run("[http/H4] no tenant is 401, an unknown one 503, and nobody is anonymous", func(t *testing.T) {
		s := build(t, created, nil)
		for account, want := range map[string]string{"none": "tenant_missing", "down": "tenant_unavailable", "a\x01": "tenant_unavailable",
			"\xff": "tenant_unavailable", strings.Repeat("a", 256): "tenant_unavailable"} {
			status := 503
			if want == "tenant_missing" {
				status = 401
			}
			s.do(post("k", "{}", "X-Account", account)).is(status, want)
		}
		empty := build(t, created, func(u *tune) { u.config.TenantFunc = func(*http.Request) (string, error) { return "", nil } })
		empty.do(post("k", "{}")).is(401, "tenant_missing")
		if n := s.store.calls.Load() + empty.store.calls.Load(); n != 0 {
			t.Errorf("%d store calls", n)
		}
		s.counted(0, 0)
	})
	t.Run("[security/SEC3] a tenant that is no legal one is never cut or folded, and is an ERROR line", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("k", "{}", "X-Account", strings.Repeat("a", 256))).is(503, "tenant_unavailable")
		if log := s.log.String(); !strings.Contains(log, "level=ERROR") || strings.Contains(log, "aaaa") {
			t.Errorf("log %q", log)
		}
		for _, account := range []string{strings.Repeat("a", 255), "A", "a", "a "} {
			s.do(post("same", "{}", "X-Account", account)).is(201, "executed")
		}
		s.counted(4, 4)
	})
}

func TestWhatBecomesOfAnAnswer(t *testing.T) {
	t.Parallel()
	t.Run("[http/H8] not now: passed on, released, never replayed; another body where nothing was kept", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			for _, status := range []int{401, 403, 407, 408, 425, 429, 503} {
				s := build(t, answering(status, "later", "Retry-After", "9"), func(u *tune) { u.op.Guard = guard })
				a := s.do(post("k", "{}"))
				a.is(status, "released")
				if a.body != "later" || a.header.Get("Retry-After") != "9" {
					t.Errorf("%d: passed on as %q %v", status, a.body, a.header)
				}
				s.do(post("k", "{}")).is(status, "released")
				if guard == idempo.GuardAtomic {
					s.do(post("k", `{"other":1}`)).is(status, "released")
					s.counted(3, 0)
					continue
				}
				s.do(post("k", `{"other":1}`)).is(422, "mismatch")
				s.counted(2, 2)
			}
		}
	})
	t.Run("[http/H10] final: writes undone, the answer kept", func(t *testing.T) {
		for _, status := range []int{400, 402, 404, 409, 410, 422, 451} {
			s := build(t, answering(status, "no"), nil)
			s.do(post("k", "{}")).is(status, "executed")
			again := s.do(post("k", "{}"))
			again.is(status, "replayed")
			if again.body != "no" {
				t.Errorf("%d: %q", status, again.body)
			}
			s.counted(1, 0)
		}
		kept := build(t, answering(404, "no"), leased)
		kept.do(post("k", "{}")).is(404, "executed")
		kept.do(post("k", "{}")).is(404, "replayed")
		kept.counted(1, 1)
	})
	t.Run("[http/H11] failed: no row, nothing kept, the retry runs", func(t *testing.T) {
		for _, status := range []int{500, 502, 503, 504, 599} {
			s := build(t, answering(status, "oops"), nil)
			s.do(post("k", "{}")).is(status, "released")
			s.do(post("k", "{}")).is(status, "released")
			s.counted(2, 0)
			if n := s.records(); n != 0 {
				t.Errorf("%d: %d records", status, n)
			}
		}
		s := build(t, answering(500, "oops"), leased)
		s.do(post("k", "{}")).is(500, "in_doubt")
		s.do(post("k", "{}")).is(409, "in_doubt")
		s.counted(1, 1)
	})
	t.Run("an answer cut short is broken", func(t *testing.T) {
		s := build(t, answering(200, "ab", "Content-Length", "3"), nil)
		s.do(post("k", "{}")).is(200, "released")
		s.do(post("k", "{}")).is(200, "released")
		s.counted(2, 0)
		l := build(t, answering(200, "ab", "Content-Length", "3"), leased)
		l.do(post("k", "{}")).is(200, "in_doubt")
		l.do(post("k", "{}")).is(409, "in_doubt")
		l.counted(1, 1)
	})
	t.Run("SetOutcome goes before Rules.Outcomes, and that before the table", func(t *testing.T) {
		type rule struct {
			said, ruled idemhttp.Outcome
			guard       idempo.Guard
			status      int
			first       string
			second      string
			effects     int64
		}
		for _, c := range []rule{
			{"", idemhttp.OutcomeRelease, idempo.GuardAtomic, 404, "released", "released", 0},
			{idemhttp.OutcomeKeep, idemhttp.OutcomeRelease, idempo.GuardAtomic, 404, "executed", "replayed", 1},
			{idemhttp.OutcomeKeepFailure, "", idempo.GuardAtomic, 200, "executed", "replayed", 0},
			{idemhttp.OutcomeRelease, "", idempo.GuardLeased, 500, "released", "released", 2},
			{idemhttp.OutcomeInDoubt, "", idempo.GuardLeased, 200, "in_doubt", "in_doubt", 1},
			{"", idemhttp.OutcomeKeep, idempo.GuardLeased, 500, "executed", "replayed", 1},
		} {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if c.said != "" {
					if err := idemhttp.SetOutcome(r.Context(), c.said); err != nil {
						t.Error(err)
					}
				}
				answering(c.status, "x")(s, w, r)
			}, func(u *tune) {
				u.op.Guard = c.guard
				if c.ruled != "" {
					u.rules.Outcomes = map[int]idemhttp.Outcome{c.status: c.ruled}
				}
			})
			if a := s.do(post("k", "{}")); a.said() != c.first {
				t.Errorf("%+v: first %q", c, a.said())
			}
			if a := s.do(post("k", "{}")); a.said() != c.second {
				t.Errorf("%+v: then %q", c, a.said())
			}
			if n := s.effects.Load(); n != c.effects {
				t.Errorf("%+v: %d effects", c, n)
			}
		}
		s := build(t, func(_ *site, _ http.ResponseWriter, r *http.Request) {
			if err := idemhttp.SetOutcome(r.Context(), idemhttp.OutcomeInDoubt); err == nil {
				t.Error("in doubt in an atomic operation: no error")
			}
			if err := idemhttp.SetOutcome(r.Context(), "maybe"); err == nil {
				t.Error("unknown outcome: no error")
			}
		}, nil)
		s.do(post("k", "{}")).is(200, "executed")
		if err := idemhttp.SetOutcome(context.Background(), idemhttp.OutcomeKeep); err != nil {
			t.Error(err)
		}
	})
	t.Run("the resource is what SetResource says, else the Location", func(t *testing.T) {
		s := build(t, func(_ *site, w http.ResponseWriter, r *http.Request) {
			if err := idemhttp.SetResource(r.Context(), "payment", "p1"); err != nil {
				t.Error(err)
			}
			if err := idemhttp.SetResource(r.Context(), "payment", strings.Repeat("x", 256)); err == nil {
				t.Error("an id of 256 bytes: no error")
			}
			w.Header().Set("Location", "/payments/1")
		}, nil)
		s.do(post("k", "{}"))
		l := build(t, created, nil)
		l.do(post("k", "{}"))
		for site, want := range map[*site]idempo.Resource{s: {Type: "payment", ID: "p1"}, l: {Type: "location", ID: "/payments/1"}} {
			rec, err := site.engine.Lookup(t.Context(), idempo.Key{Tenant: "acct_1", Operation: "pay", ID: "k"})
			if err != nil || rec.Result.Resource != want {
				t.Errorf("resource %v, %v; want %v", rec.Result.Resource, err, want)
			}
		}
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	t.Run("[http/H12] a swallowed database error or a COMMIT that rolled back is 500 tx_aborted, and no byte of the answer", func(t *testing.T) {
		s := build(t, created, nil)
		s.store.inTx = func(ctx context.Context, fn func(context.Context) error) error {
			_ = s.store.Store.InTx(ctx, func(ctx context.Context) error { // the handler runs, and the database rolls back at COMMIT
				return errors.Join(fn(ctx), errors.New("rolled back"))
			})
			return &idempo.Error{Op: "commit", Code: "tx_aborted"}
		}
		a := s.do(post("k", "{}"))
		a.is(500, "tx_aborted")
		if a.header.Get("Location") != "" || strings.Contains(a.body, "run") {
			t.Errorf("something of the handler left: %v %q", a.header, a.body)
		}
		s.counted(1, 0)
		if n := s.records(); n != 0 {
			t.Errorf("%d records", n)
		}
	})
	t.Run("[http/H13] a serialization failure runs the whole handler again on the buffered request, then gives up with 503", func(t *testing.T) {
		var bodies []string
		conflicts := 2
		var earlier http.ResponseWriter
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if earlier != nil {
				earlier.WriteHeader(418)
				if _, err := earlier.Write([]byte("stray")); err == nil {
					t.Error("the writer of a lost attempt still writes")
				}
			}
			earlier = w
			b := make([]byte, 64)
			n, _ := r.Body.Read(b)
			bodies = append(bodies, string(b[:n])+r.Header.Get("X-Mark")+r.URL.Path)
			r.Header.Set("X-Mark", "changed")
			r.URL.Path = "/changed"
			w.Header().Set("X-Left-By-A-Lost-Attempt", "")
			if len(bodies) > 1 {
				w.Header().Del("X-Left-By-A-Lost-Attempt")
			}
			created(s, w, r)
		}, func(u *tune) { u.engine.TxRetries = 3 })
		s.store.complete = func(idempo.CompleteParams) error {
			if conflicts > 0 {
				conflicts--
				return &idempo.Error{Op: "complete", Code: "tx_conflict"}
			}
			return nil
		}
		a := s.do(post("k", `{"n":1}`))
		a.is(201, "executed")
		if want := []string{`{"n":1}/v1/pay`, `{"n":1}/v1/pay`, `{"n":1}/v1/pay`}; !slices.Equal(bodies, want) {
			t.Errorf("the handler saw %q", bodies)
		}
		if _, left := a.header["X-Left-By-A-Lost-Attempt"]; left {
			t.Error("a lost attempt left a header")
		}
		s.counted(3, 1)
		conflicts = 1000
		s.do(post("k2", "{}")).is(503, "store_unavailable")
		s.counted(7, 1)
		conflicts = 0
		s.do(post("k2", "{}")).is(201, "executed")
	})
	t.Run("[http/H13] a conflict that only the handler saw runs it again where it says so", func(t *testing.T) {
		conflict := &idempo.Error{Op: "insert", Code: "tx_conflict"}
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if s.runs.Load() < 3 {
				idemhttp.SetError(r.Context(), conflict)
				http.Error(w, "the database said no", 500)
				return
			}
			created(s, w, r)
		}, nil)
		s.do(post("k", "{}")).is(201, "executed")
		s.counted(3, 1)
		other := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			idemhttp.SetError(r.Context(), errors.New("a bug"))
			http.Error(w, "own words", 500)
		}, nil)
		if a := other.do(post("k", "{}")); a.status != 500 || a.said() != "released" || a.body != "own words\n" {
			t.Errorf("%d %q %q", a.status, a.said(), a.body)
		}
		other.counted(1, 0)
		idemhttp.SetError(context.Background(), conflict)
	})
	t.Run("[http/H13] what a lost attempt said of itself is forgotten", func(t *testing.T) {
		conflicts := 1
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if s.runs.Load() == 1 {
				must(t, idemhttp.SetOutcome(r.Context(), idemhttp.OutcomeKeepFailure))
				must(t, idemhttp.SetResult(r.Context(), idemhttp.ResultPointer))
				must(t, idemhttp.SetResource(r.Context(), "lost", "1"))
			}
			created(s, w, r)
		}, nil)
		s.store.complete = func(idempo.CompleteParams) error {
			if conflicts--; conflicts == 0 {
				return &idempo.Error{Op: "complete", Code: "tx_conflict"}
			}
			return nil
		}
		s.do(post("k", "{}")).is(201, "executed")
		s.do(post("k", "{}")).is(201, "replayed")
		s.counted(2, 1)
		rec, err := s.engine.Lookup(t.Context(), idempo.Key{Tenant: "acct_1", Operation: "pay", ID: "k"})
		if err != nil || rec.Result.Resource.Type != "location" {
			t.Errorf("resource %v, %v", rec.Result.Resource, err)
		}
	})
	t.Run("[http/H14] COMMIT done, reply lost: the original answer, one run; not settled: 503 outcome_unknown", func(t *testing.T) {
		s := build(t, created, func(u *tune) { u.engine.CompleteBudget = 50 * time.Millisecond })
		lost := 1
		s.store.inTx = func(ctx context.Context, fn func(context.Context) error) error {
			err := s.store.Store.InTx(ctx, fn)
			if lost > 0 && err == nil {
				lost--
				return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true}
			}
			return err
		}
		a := s.do(post("k", "{}"))
		a.is(201, "executed")
		if a.body != `{"run":1}` {
			t.Errorf("body %q", a.body)
		}
		s.counted(1, 1)
		down := false
		s.store.inTx = func(ctx context.Context, fn func(context.Context) error) error {
			if down {
				return &idempo.Error{Op: "begin", Code: "unavailable"}
			}
			if err := s.store.Store.InTx(ctx, fn); err != nil {
				return err
			}
			down = true
			return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true}
		}
		b := s.do(post("k2", "{}"))
		b.is(503, "outcome_unknown")
		if b.header.Get("Location") != "" || b.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", b.header)
		}
		s.store.inTx = nil
		s.do(post("k2", "{}")).is(201, "replayed")
		s.counted(2, 2)
	})
	t.Run("[http/H15] a handler that ends the transaction itself is 500 tx_ended, never a success", func(t *testing.T) {
		s := build(t, created, nil)
		s.store.complete = func(idempo.CompleteParams) error { return &idempo.Error{Op: "complete", Code: "tx_ended"} }
		a := s.do(post("k", "{}"))
		a.is(500, "tx_ended")
		if a.said() != "in_doubt" || a.header.Get("Location") != "" {
			t.Errorf("headers %v", a.header)
		}
	})
	t.Run("[http/R3] a hint that left early leaves no header on the problem that follows", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			created(s, w, r)
		}, nil)
		s.store.complete = func(idempo.CompleteParams) error { return &idempo.Error{Op: "complete", Code: "tx_aborted"} }
		w := &hintedWriter{ResponseRecorder: httptest.NewRecorder()}
		s.h.ServeHTTP(w, post("k", "{}"))
		if w.hints != 1 || w.Code != 500 || w.Header().Get("Link") != "" {
			t.Errorf("%d hints, then %d %v", w.hints, w.Code, w.Header())
		}
	})
	t.Run("[http/R16] save or commit fails: nothing of the handler's answer has left", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s := build(t, created, func(u *tune) {
				u.op.Guard = guard
				u.engine.CompleteBudget = 20 * time.Millisecond
				u.engine.TxRetries = 1
			})
			s.store.complete = func(idempo.CompleteParams) error { return &idempo.Error{Op: "complete", Code: "unavailable"} }
			a := s.do(post("k", "{}"))
			if a.status != 503 || a.header.Get("Location") != "" || strings.Contains(a.body, "run") {
				t.Errorf("%s: %d %v %q", guard, a.status, a.header, a.body)
			}
		}
	})
}

// hintedWriter is a connection that knows 1xx answers, which httptest's does not.
type hintedWriter struct {
	*httptest.ResponseRecorder
	hints int
}

func (h *hintedWriter) WriteHeader(status int) {
	if status < 200 {
		h.hints++
		return
	}
	h.ResponseRecorder.WriteHeader(status)
}
