package idemhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

func issued(u *tune) { u.op.Issued, u.op.IssuedFor = true, time.Hour }

type handedOut struct {
	Key       string    `json:"key"`
	Operation string    `json:"operation"`
	ExpiresAt time.Time `json:"expires_at"`
}

// issue asks for a one-time key.
func (s *site) issue(headers ...string) (answer, handedOut) {
	s.t.Helper()
	h, err := s.m.Issue("pay")
	if err != nil {
		s.t.Fatal(err)
	}
	a := serve(s.t, h, post("", "", headers...))
	var out handedOut
	if a.status == 201 {
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			s.t.Fatal(err)
		}
	}
	return a, out
}

func TestIssuedKeys(t *testing.T) {
	t.Parallel()
	t.Run("[http/H31] POST → 201 with a random key, no-store; the record is issued", func(t *testing.T) {
		s := build(t, created, issued)
		seen := map[string]bool{}
		for range 100 {
			a, k := s.issue()
			if a.status != 201 || a.header.Get("Cache-Control") != "no-store" || k.Operation != "pay" || time.Until(k.ExpiresAt) < 59*time.Minute {
				t.Fatalf("%d %v %s", a.status, a.header, a.body)
			}
			if seen[k.Key] || len(k.Key) > 45 || !regexp.MustCompile(`^[A-Za-z0-9_-]{22,}$`).MatchString(k.Key) {
				t.Fatalf("key %q", k.Key)
			}
			seen[k.Key] = true
			rec, err := s.engine.Lookup(t.Context(), idempo.Key{Tenant: "acct_1", Operation: "pay", ID: k.Key})
			if err != nil || rec.State != idempo.StateIssued {
				t.Fatalf("record %s, %v", rec.State, err)
			}
		}
		h, _ := s.m.Issue("pay")
		if a := serve(t, h, httptest.NewRequest("GET", "/", nil)); a.status != 405 || a.header.Get("Allow") != "POST" {
			t.Errorf("GET: %d %v", a.status, a.header)
		}
		serve(t, h, post("", "", "X-Account", "none")).is(401, "tenant_missing")
		if _, err := s.m.Issue("nothing"); err == nil {
			t.Error("an operation that is not declared: no error")
		}
		if _, err := build(t, created, nil).m.Issue("pay"); err == nil {
			t.Error("an operation without issued keys: no error")
		}
	})
	t.Run("[http/H32] never issued, lapsed, of another tenant or operation: the same 400, the same store calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, created, issued)
			_, lapsed := s.issue()
			_, foreign := s.issue("X-Account", "acct_2")
			other, err := s.m.Wrap(idempo.Operation{Name: "refund", Guard: idempo.GuardAtomic, Issued: true}, idemhttp.Rules{}, s.handler(created))
			if err != nil {
				t.Fatal(err)
			}
			_, elsewhere := s.issue()
			time.Sleep(time.Hour)
			var first answer
			var calls []int64
			for i, ask := range []func() answer{
				func() answer { return s.do(post("never-issued", "{}")) },
				func() answer { return s.do(post(lapsed.Key, "{}")) },
				func() answer { return s.do(post(foreign.Key, "{}")) },
				func() answer { return serve(t, other, post(elsewhere.Key, "{}")) },
			} {
				before := s.store.calls.Load()
				a := ask()
				calls = append(calls, s.store.calls.Load()-before)
				a.is(400, "key_not_issued")
				a.body = regexp.MustCompile(`k_[a-z2-7]+`).ReplaceAllString(a.body, "k_")
				if i == 0 {
					first = a
				}
				if a.body != first.body || len(a.header) != len(first.header) || calls[i] != calls[0] {
					t.Errorf("case %d: %q %v, %d calls; the first %q %v, %d", i, a.body, a.header, calls[i], first.body, first.header, calls[0])
				}
			}
			s.counted(0, 0)
		})
	})
	t.Run("[http/H33] two requests with one issued key: one run; the consumed key replays", func(t *testing.T) {
		s := build(t, created, issued)
		_, k := s.issue()
		var wg sync.WaitGroup
		words := make(chan string, 8)
		for range 8 {
			wg.Go(func() { words <- s.do(post(k.Key, "{}")).said() })
		}
		wg.Wait()
		close(words)
		executed := 0
		for w := range words {
			if w == "executed" {
				executed++
			} else if w != "replayed" && w != "in_progress" {
				t.Errorf("answered %q", w)
			}
		}
		if executed != 1 {
			t.Errorf("%d executed", executed)
		}
		s.do(post(k.Key, "{}")).is(201, "replayed")
		s.counted(1, 1)
	})
	t.Run("[http/H34] a kept answer brings the next key, the replay the same one; after a release the first stays usable", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if s.runs.Load() == 1 {
				w.WriteHeader(429)
				return
			}
			created(s, w, r)
		}, issued)
		_, k := s.issue()
		if a := s.do(post(k.Key, "{}")); a.said() != "released" || a.header.Get("Idempotency-Key-Next") != "" {
			t.Errorf("released: %v", a.header)
		}
		first, again := s.do(post(k.Key, "{}")), s.do(post(k.Key, "{}"))
		first.is(201, "executed")
		next := first.header.Get("Idempotency-Key-Next")
		if next == "" || next == k.Key || len(next) > 45 || again.header.Get("Idempotency-Key-Next") != next {
			t.Errorf("next %q, then %q", next, again.header.Get("Idempotency-Key-Next"))
		}
		s.do(post(next, `{"second":1}`)).is(201, "executed")
		s.counted(3, 2)
	})
	t.Run("[security/SEC24] issued keys are stored as digests", func(t *testing.T) {
		s := build(t, created, issued)
		_, k := s.issue()
		next := s.do(post(k.Key, "{}")).header.Get("Idempotency-Key-Next")
		for rec := range s.store.All() {
			if text := fmt.Sprintf("%+v %q %q", rec, rec.Key.ID, rec.Result.Header); strings.Contains(text, k.Key) || strings.Contains(text, next) {
				t.Error("a record holds an issued key")
			}
		}
	})
	t.Run("a form field carries a key that only its caller can use, once", func(t *testing.T) {
		formed := func(u *tune) {
			issued(u)
			u.rules.KeyPointer = "/idempotency_key"
			u.config.TenantFunc = func(r *http.Request) (string, error) {
				account, _ := r.Context().Value(outerKey{}).(string)
				return account, nil
			}
		}
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			s.effect(r.Context())
			http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
		}, formed)
		ctx := context.WithValue(t.Context(), outerKey{}, "shop")
		field, err := s.m.Field(ctx, "pay")
		m := regexp.MustCompile(`^<input type="hidden" name="idempotency_key" value="([A-Za-z0-9_-]+)">$`).FindStringSubmatch(field)
		if err != nil || m == nil {
			t.Fatalf("%q, %v", field, err)
		}
		submit := func(key string) answer {
			r := httptest.NewRequestWithContext(ctx, "POST", "/orders", strings.NewReader(url.Values{"idempotency_key": {key}, "item": {"7"}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return s.do(r)
		}
		for i, word := range []string{"executed", "replayed", "replayed"} {
			a := submit(m[1])
			a.is(303, word)
			if a.header.Get("Location") != "/orders/1" {
				t.Errorf("submit %d: %v", i, a.header)
			}
		}
		lapsed := submit("made-up")
		lapsed.is(400, "key_not_issued")
		if !strings.Contains(lapsed.problem().Detail, "open the form again") {
			t.Errorf("detail %q", lapsed.problem().Detail)
		}
		again, err := s.m.Field(ctx, "pay")
		if err != nil || again == field {
			t.Errorf("a page opened anew: %q, %v", again, err)
		}
		s.counted(1, 1)
		if _, err := s.m.Field(t.Context(), "pay"); !errors.Is(err, idemhttp.ErrNoTenant) {
			t.Errorf("without a caller: %v", err)
		}
		if _, err := build(t, created, issued).m.Field(ctx, "pay"); err == nil {
			t.Error("a key from a header: no error")
		}
	})
}

// keyState is what the status endpoint answers.
type keyState struct {
	State          string                    `json:"state"`
	KeyRef         string                    `json:"key_ref"`
	Since          time.Time                 `json:"since"`
	RetryAfter     int                       `json:"retry_after"`
	ExpiresAt      time.Time                 `json:"expires_at"`
	OriginalStatus int                       `json:"original_status"`
	Resource       *idemhttp.ProblemResource `json:"resource"`
}

// statusSite has a status endpoint. Key "slow" runs until release is closed, "doubt" fails, "again" is not now.
func statusSite(t *testing.T, release chan struct{}, allowed *bool) (*site, func(key string, headers ...string) answer) {
	t.Helper()
	s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Idempotency-Key") {
		case "slow":
			<-release
		case "doubt":
			w.WriteHeader(500)
			return
		case "again":
			w.WriteHeader(429)
			return
		}
		created(s, w, r)
	}, func(u *tune) {
		leased(u)
		u.op.Retention = time.Hour
		u.rules.StatusURL = "/v1/pay/status"
		u.rules.ReplayFunc = func(*http.Request, idempo.Record) error {
			if *allowed {
				return nil
			}
			return errors.New("no")
		}
	})
	h, err := s.m.Status("pay")
	if err != nil {
		t.Fatal(err)
	}
	return s, func(key string, headers ...string) answer {
		r := post(key, "", headers...)
		r.Method = "GET"
		return serve(t, h, r)
	}
}

func (a answer) state() (out keyState) {
	a.t.Helper()
	if a.status != 200 || a.header.Get("Cache-Control") != "no-store" || strings.Contains(a.body, "run") {
		a.t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		a.t.Error(err)
	}
	return out
}

func TestStatus(t *testing.T) {
	t.Parallel()
	t.Run("[http/H42] what is known of a key, never the answer, and nothing runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release, allowed := make(chan struct{}), true
			s, ask := statusSite(t, release, &allowed)
			s.do(post("k", "{}")).is(201, "executed")
			go func() { s.do(post("slow", "{}")) }()
			synctest.Wait()
			s.do(post("doubt", "{}")).is(500, "in_doubt")
			s.do(post("again", "{}")).is(429, "released")
			time.Sleep(10 * time.Second)
			if st := ask("k").state(); st.State != "completed" || st.OriginalStatus != 201 || st.Resource == nil || st.Resource.ID != "/payments/1" ||
				st.ExpiresAt.IsZero() || !strings.HasPrefix(st.KeyRef, "k_") || time.Since(st.Since) != 10*time.Second {
				t.Errorf("completed: %+v", st)
			}
			if st := ask("slow").state(); st.State != "pending" || st.RetryAfter != 5 || time.Since(st.Since) != 10*time.Second {
				t.Errorf("pending: %+v", st)
			}
			if st := ask("doubt").state(); st.State != "in_doubt" || st.RetryAfter != 0 {
				t.Errorf("in doubt: %+v", st)
			}
			if st := ask("again").state(); st.State != "failed" {
				t.Errorf("failed: %+v", st)
			}
			for _, key := range []string{"slow", "doubt"} {
				if a := s.do(post(key, "{}")); !slices.Contains(a.header.Values("Link"), `</v1/pay/status>; rel="status"`) {
					t.Errorf("%s: Link %q", key, a.header.Values("Link"))
				}
			}
			close(release)
			synctest.Wait()
			runs := s.runs.Load()
			time.Sleep(time.Hour)
			if st := ask("k").state(); st.State != "expired" || st.OriginalStatus != 201 {
				t.Errorf("expired: %+v", st)
			}
			if s.runs.Load() != runs {
				t.Error("asking ran something")
			}
		})
	})
	t.Run("[http/H42] unknown and foreign keys look alike; the checks of a first call apply", func(t *testing.T) {
		allowed := true
		s, ask := statusSite(t, nil, &allowed)
		s.do(post("k", "{}")).is(201, "executed")
		unknown, foreign := ask("unknown"), ask("k", "X-Account", "acct_2")
		unknown.is(404, "not_found")
		if foreign.status != 404 || foreign.body != unknown.body || len(foreign.header) != len(unknown.header) {
			t.Errorf("foreign %s, unknown %s", foreign.body, unknown.body)
		}
		ask("k", "X-Account", "none").is(401, "tenant_missing")
		ask("").is(400, "key_missing")
		ask(`"`).is(400, "key_malformed")
		allowed = false
		ask("k").is(403, "replay_forbidden")
		h, err := s.m.Status("pay")
		if err != nil {
			t.Fatal(err)
		}
		if a := serve(t, h, post("k", "")); a.status != 405 {
			t.Errorf("POST: %d", a.status)
		}
		if _, err := s.m.Status("nothing"); err == nil {
			t.Error("an operation that is not wrapped: no error")
		}
	})
}

func TestNestedGuards(t *testing.T) {
	t.Parallel()
	t.Run("[http/H35] the inner guard of the same key stands down; another kind is 500 nested and no run", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s := build(t, created, func(u *tune) { u.op.Guard = guard })
			outer, err := s.m.Wrap(idempo.Operation{Name: "outer", Guard: guard}, idemhttp.Rules{}, s.h)
			if err != nil {
				t.Fatal(err)
			}
			serve(t, outer, post("k", `{"a":1}`)).is(201, "executed")
			serve(t, outer, post("k", `{"a":1}`)).is(201, "replayed")
			if n := s.records(); n != 1 {
				t.Errorf("%d records", n)
			}
			same, err := s.m.Wrap(idempo.Operation{Name: "pay", Guard: guard}, idemhttp.Rules{}, s.h)
			if err != nil {
				t.Fatal(err)
			}
			serve(t, same, post("twice", "{}")).is(201, "executed")
			s.counted(2, 2)

			other := idempo.GuardAtomic
			if guard == other {
				other = idempo.GuardLeased
			}
			mixed, err := s.m.Wrap(idempo.Operation{Name: "mixed", Guard: other}, idemhttp.Rules{}, s.h)
			if err != nil {
				t.Fatal(err)
			}
			a := serve(t, mixed, post("m", "{}"))
			if a.status != 500 || a.code() != "nested" {
				t.Errorf("%s in %s: %d %q", guard, other, a.status, a.body)
			}
			s.counted(2, 2)
		}
	})
}

func TestUniqueBy(t *testing.T) {
	t.Parallel()
	t.Run("[http/H44] a known identity under a new key is 409 already_done, whatever the fingerprint; a release frees both", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			fail := false
			gate := make(chan struct{})
			entered := make(chan struct{}, 1)
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if fail {
					w.WriteHeader(429)
					return
				}
				if r.Header.Get("Idempotency-Key") == "slow" {
					entered <- struct{}{}
					<-gate
				}
				created(s, w, r)
			}, func(u *tune) { u.op.Guard = guard; u.rules.UniqueBy = []string{"body:/transaction_id"} })
			fail = true
			s.do(post("k0", `{"transaction_id":"t1"}`)).is(429, "released")
			fail = false
			s.do(post("k1", `{"transaction_id":"t1"}`)).is(201, "executed")
			s.do(post("k1", `{"transaction_id":"t1"}`)).is(201, "replayed")
			for _, body := range []string{`{"transaction_id":"t1"}`, `{"transaction_id":"t1","other":true}`} {
				a := s.do(post("k2", body))
				a.is(409, "already_done")
				if p := a.problem(); p.Resource == nil || p.Resource.ID != "/payments/1" || p.Retryable || p.SameKey || strings.Contains(a.body, "run") {
					t.Errorf("%s: %s", guard, a.body)
				}
			}
			s.do(post("k3", `{"transaction_id":"t2"}`)).is(201, "executed")
			s.do(post("k4", `{"none":true}`)).is(201, "executed")
			s.do(post("k5", `{"none":true}`)).is(201, "executed")
			s.do(post("k6", `{"transaction_id":["t1"]}`)).is(400, "key_malformed")
			done := make(chan answer)
			go func() { done <- s.do(post("slow", `{"transaction_id":"t9"}`)) }()
			<-entered
			s.do(post("k7", `{"transaction_id":"t9"}`)).is(409, "in_progress")
			close(gate)
			(<-done).is(201, "executed")
			s.do(post("k7", `{"transaction_id":"t9"}`)).is(409, "already_done")
			s.counted(6, 5)
		}
	})
}

func TestStoreDown(t *testing.T) {
	t.Parallel()
	down := func(idempo.AcquireParams) error { return &idempo.Error{Op: "acquire", Code: "unavailable"} }
	t.Run("[http/H37] store down: 503 and no run; StoreDownRun: unguarded, counted, announced", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s := build(t, created, func(u *tune) { u.op.Guard = guard })
			s.store.acquire = down
			a := s.do(post("k", "{}"))
			a.is(503, "store_unavailable")
			if p := a.problem(); !p.Retryable || !p.SameKey || p.RetryAfter < 1 || p.RetryAfter > 3 {
				t.Errorf("%+v", p)
			}
			s.counted(0, 0)
		}
		s := build(t, created, func(u *tune) { leased(u); u.rules.OnStoreDown = idemhttp.StoreDownRun })
		if !strings.Contains(s.log.String(), "OnStoreDown") {
			t.Error("not announced at start")
		}
		s.store.acquire = down
		a := s.do(post("k", `{"a":1}`))
		a.is(201, "unguarded")
		if a.header.Get("Idempotency-Expires") != "" || s.events.count("passthrough", "fail_open") != 1 {
			t.Errorf("%v, counted %d", a.header, s.events.count("passthrough", "fail_open"))
		}
		s.counted(1, 1)
	})
	t.Run("[security/SEC70] whatever is wrong with the store or the tenant source: 503, and no run", func(t *testing.T) {
		for _, e := range []*idempo.Error{
			{Code: "unavailable"}, {Code: "unavailable", Unknown: true}, {Code: "record_unreadable"}, {Code: "tx_conflict"},
		} {
			for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
				s := build(t, created, func(u *tune) {
					u.op.Guard = guard
					u.engine.TxRetries, u.engine.AcquireTimeout, u.engine.CompleteBudget = 1, 20*time.Millisecond, 20*time.Millisecond
				})
				s.store.acquire = func(idempo.AcquireParams) error { return e }
				if a := s.do(post("k", "{}")); a.status != 503 || a.code() == "" {
					t.Errorf("%+v: %d %q", e, a.status, a.body)
				}
				s.do(post("k", "{}", "X-Account", "down")).is(503, "tenant_unavailable")
				s.counted(0, 0)
			}
		}
	})
	t.Run("requests of one tenant beyond four times its quota are refused before their body", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-release }, func(u *tune) {
				leased(u)
				u.engine.Quota.InFlight = 1
				u.rules.Wait = time.Minute
			})
			done := make(chan answer, 4)
			for range 4 {
				go func() { done <- s.do(post("k", "{}")) }()
			}
			synctest.Wait()
			body := &failingBody{Reader: strings.NewReader("{}")}
			r := post("other", "")
			r.Body, r.ContentLength = body, -1
			a := s.do(r)
			a.is(429, "quota_exceeded")
			if body.read || a.header.Get("Retry-After") == "" {
				t.Errorf("read %v, %v", body.read, a.header)
			}
			close(release)
			for range 4 {
				<-done
			}
		})
	})
}

func TestWhatBrowsersAndOperatorsSee(t *testing.T) {
	t.Parallel()
	t.Run("[http/H38] CORS: the configured names; preflights untouched; a replay carries those of this request", func(t *testing.T) {
		s := build(t, created, func(u *tune) {
			u.rules.KeyHeaders = []string{"X-Payment-Key"}
			u.config.ReplayHeader = "X-Replayed"
		})
		if got := s.m.CORSAllowHeaders(); !slices.Equal(got, []string{"Idempotency-Key", "X-Payment-Key"}) {
			t.Errorf("allow %q", got)
		}
		want := []string{"X-Replayed", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Key-Next", "Retry-After"}
		if got := s.m.CORSExposeHeaders(); !slices.Equal(got, want) {
			t.Errorf("expose %q", got)
		}
		cors := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			s.h.ServeHTTP(w, r)
		})
		serve(t, cors, post("", "{}", "X-Payment-Key", "k", "Origin", "https://a.example")).is(201, "executed")
		for _, body := range []string{"{}", `{"x":1}`} {
			a := serve(t, cors, post("", body, "X-Payment-Key", "k", "Origin", "https://b.example"))
			if a.header.Get("Access-Control-Allow-Origin") != "https://b.example" {
				t.Errorf("%v", a.header)
			}
		}
		if a := serve(t, cors, post("", "{}", "X-Payment-Key", "k")); a.header.Get("X-Replayed") != "true" || a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%v", a.header)
		}
		preflight := httptest.NewRequest("OPTIONS", "/", nil)
		if a := serve(t, s.h, preflight); a.status != 201 || a.said() != "" {
			t.Errorf("preflight: %d %v", a.status, a.header)
		}
	})
	t.Run("[http/H40] ProblemFunc replaces body and type; status and headers stay", func(t *testing.T) {
		s := build(t, created, func(u *tune) {
			u.config.DocsURL = "https://docs.example/problems"
			u.config.ProblemFunc = func(_ *http.Request, p idemhttp.Problem) (string, []byte) {
				return "text/plain", []byte("own words for " + p.Code)
			}
		})
		a := s.do(post("", "{}"))
		if a.status != 400 || a.body != "own words for key_missing" || a.header.Get("Content-Type") != "text/plain" || a.header.Get("Cache-Control") != "no-store" ||
			a.header.Get("Link") != `<https://docs.example/problems#key_missing>; rel="describedby"` {
			t.Errorf("%d %v %q", a.status, a.header, a.body)
		}
	})
	t.Run("[security/SEC71] ProblemFunc, logger or observer panics: recovered, and the outcome is what it would have been", func(t *testing.T) {
		s := build(t, created, func(u *tune) {
			u.config.ProblemFunc = func(*http.Request, idemhttp.Problem) (string, []byte) { panic("problem") }
			u.engine.Observer = panicking{}
			u.config.Logger = slog.New(panicking{})
			u.rules.Fingerprint = idemhttp.FingerprintRaw
		})
		s.do(post("k", "{}")).is(201, "executed")
		s.do(post("k", "{}")).is(201, "replayed")
		s.do(post("k", `{"x":1}`)).is(422, "mismatch")
		s.do(post("k", "{}", "X-Account", "down")).is(503, "tenant_unavailable") // which is logged
		s.counted(1, 1)
	})
	t.Run("[http/H36] the derived key is the same on every attempt and in every process", func(t *testing.T) {
		var derived []string
		again := func(s *site, w http.ResponseWriter, r *http.Request) {
			derived = append(derived, idempo.FromContext(r.Context()).Derive("capture"))
			w.WriteHeader(429)
		}
		s := build(t, again, nil)
		other := s.another(again, nil)
		s.do(post("k", "{}"))
		s.do(post("k", "{}"))
		other.do(post("k", "{}"))
		if len(derived) != 3 || derived[0] != derived[1] || derived[1] != derived[2] || len(derived[0]) != 36 {
			t.Errorf("derived %q", derived)
		}
	})
	t.Run("[security/SEC20] canaries in key, principal, body, headers, credentials, cookies are in no record and no log", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Set-Cookie", "session=canary")
				created(s, w, r)
			}, func(u *tune) {
				u.op.Guard = guard
				u.config.PrincipalFunc = func(*http.Request) (string, error) { return "canary-principal", nil }
				u.rules.Headers = []string{"X-Counted"}
			})
			ask := func(body string) answer {
				return s.do(post("canary-key", body, "Authorization", "Bearer canary", "Cookie", "a=canary", "X-Counted", "canary"))
			}
			ask(`{"canary":"canary"}`).is(201, "executed")
			ask(`{"canary":"canary"}`).is(201, "replayed")
			a := ask(`{"canary":"other canary"}`)
			a.is(422, "mismatch")
			if strings.Contains(strings.ReplaceAll(a.body, `"/canary"`, ""), "canary") { // the pointer of the new request may be named
				t.Errorf("problem %s", a.body)
			}
			for rec := range s.store.All() {
				if text := fmt.Sprintf("%#v %q %q %q %q", rec, rec.Key.ID, rec.Result.Header, rec.Result.Body, rec.Detail); strings.Contains(text, "canary") {
					t.Errorf("record %s", text)
				}
			}
			if strings.Contains(s.log.String(), "canary") {
				t.Errorf("log %s", s.log)
			}
		}
	})
}

type panicking struct{}

func (panicking) Observe(context.Context, idempo.Event)     { panic("observer") }
func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("logger") }
func (p panicking) WithAttrs([]slog.Attr) slog.Handler      { return p }
func (p panicking) WithGroup(string) slog.Handler           { return p }

func TestIsolation(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC2, SEC10] another tenant gets its own run and its own answers", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "doubt" && r.Header.Get("X-Account") == "" {
				w.WriteHeader(500)
				return
			}
			created(s, w, r)
		}, leased)
		first := s.do(post("k", `{"a":1}`))
		first.is(201, "executed")
		s.do(post("doubt", "{}")).is(500, "in_doubt")
		s.do(post("k", `{"a":2}`)).is(422, "mismatch")
		other := s.do(post("k", `{"a":2}`, "X-Account", "acct_2"))
		other.is(201, "executed")
		if other.body == first.body {
			t.Error("the same answer")
		}
		s.do(post("doubt", "{}", "X-Account", "acct_2")).is(201, "executed")
		s.do(post("k", `{"a":1}`)).is(201, "replayed")
	})
	t.Run("[security/SEC4] principals never share a key; an error or none is 401", func(t *testing.T) {
		s := build(t, created, func(u *tune) {
			u.config.PrincipalFunc = func(r *http.Request) (string, error) {
				if p := r.Header.Get("X-User"); p != "broken" {
					return p, nil
				}
				return "", errors.New("no directory")
			}
		})
		s.do(post("k", "{}", "X-User", "ann")).is(201, "executed")
		s.do(post("k", "{}", "X-User", "bob")).is(201, "executed")
		s.do(post("k", "{}", "X-User", "ann")).is(201, "replayed")
		s.do(post("k", "{}", "X-User", "broken")).is(401, "tenant_missing")
		s.do(post("k", "{}")).is(401, "tenant_missing")
		s.counted(2, 2)
	})
	t.Run("[security/SEC5] a rotated credential of the same account replays", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("k", "{}", "Authorization", "Bearer old")).is(201, "executed")
		s.do(post("k", "{}", "Authorization", "Bearer new")).is(201, "replayed")
	})
	t.Run("[security/SEC6] a key that another tenant used and one that nobody used look alike", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("used", "{}")).is(201, "executed")
		var seen [2]answer
		var calls [2]int64
		for i, key := range []string{"used", "free"} {
			before := s.store.calls.Load()
			seen[i] = s.do(post(key, "{}", "X-Account", "acct_2"))
			calls[i] = s.store.calls.Load() - before
		}
		if seen[0].status != seen[1].status || len(seen[0].body) != len(seen[1].body) || len(seen[0].header) != len(seen[1].header) || calls[0] != calls[1] {
			t.Errorf("%v, %v; calls %v", seen[0], seen[1], calls)
		}
	})
	t.Run("[security/SEC1] characters shifted between tenant, principal and key are other identities", func(t *testing.T) {
		s := build(t, created, func(u *tune) {
			u.config.PrincipalFunc = func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
		})
		for _, id := range [][3]string{{"ab", "c", "d"}, {"a", "bc", "d"}, {"a", "b", "cd"}, {"abc", "d", "e"}, {"a/b", "c", "d"}, {"a", "b/c", "d"}, {"a", "b", "c/d"}} {
			s.do(post(id[2], "{}", "X-Account", id[0], "X-User", id[1])).is(201, "executed")
		}
		s.counted(7, 7)
	})
	t.Run("[security/SEC9] guessable keys are as safe as random ones between tenants", func(t *testing.T) {
		s := build(t, created, nil)
		for _, key := range []string{"1", "2", "test", "2026-01-01"} {
			s.do(post(key, "{}")).is(201, "executed")
			s.do(post(key, "{}", "X-Account", "acct_2")).is(201, "executed")
		}
		s.counted(8, 8)
	})
}
