package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// failingBody tells whether a body was read at all, and fails after what it has.
type failingBody struct {
	io.Reader
	read bool
	err  error
}

func (b *failingBody) Read(p []byte) (int, error) {
	b.read = true
	if b.Reader == nil {
		return 0, b.err
	}
	n, err := b.Reader.Read(p)
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

func (b *failingBody) Close() error { return nil }

func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	t.Run("[http/H6] each check comes before the ones after it", func(t *testing.T) {
		s := build(t, created, func(u *tune) { u.rules.MaxBody = 10; u.op.Issued = true })
		// Each request fails its own check and all that come after it.
		steps := []struct {
			code   string
			status int
			spoil  func(*http.Request)
		}{
			{"upgrade_not_guarded", 400, func(r *http.Request) { r.Header.Set("Connection", "x, Upgrade"); r.Header.Set("Upgrade", "websocket") }},
			{"tenant_missing", 401, func(r *http.Request) { r.Header.Set("X-Account", "none") }},
			{"key_malformed", 400, func(r *http.Request) { r.Header.Set("Idempotency-Key", `"open`) }},
			{"body_too_large", 413, func(r *http.Request) {}}, // by its length
			{"key_not_issued", 400, func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2 }},
		}
		for i := range steps {
			r := post("k", "{}")
			body := &failingBody{Reader: strings.NewReader(strings.Repeat("x", 11))}
			r.Body, r.ContentLength = body, 11
			for j := len(steps) - 1; j >= i; j-- {
				if j == len(steps)-1 && i < j {
					continue // a good body would hide a bad one
				}
				steps[j].spoil(r)
			}
			s.do(r).is(steps[i].status, steps[i].code)
			if body.read {
				t.Errorf("%s: the body was read", steps[i].code)
			}
		}
		s.counted(0, 0)
		if n := s.records(); n != 0 {
			t.Errorf("%d records", n)
		}
	})
	t.Run("[security/SEC7] what is refused before the claim writes nothing, and failed authentication asks nothing", func(t *testing.T) {
		s := build(t, created, func(u *tune) { u.rules.MaxBody = 10 })
		s.do(post("k", "{}", "X-Account", "none")).is(401, "tenant_missing")
		s.do(post(`"`, "{}")).is(400, "key_malformed")
		s.do(post("", "{}")).is(400, "key_missing")
		s.do(post("k", "12345678901")).is(413, "body_too_large")
		if n := s.store.calls.Load(); n != 0 {
			t.Errorf("%d store calls", n)
		}
	})
	t.Run("[http/K13] required and absent", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("", "{}")).is(400, "key_missing")
		s.do(post("made-by-a-proxy-7f3a", "{}")).is(201, "executed")
	})
	t.Run("a request without key passes where the key is optional, and nothing of idempo shows", func(t *testing.T) {
		asked := 0
		s := build(t, created, func(u *tune) {
			u.rules.Key = idemhttp.KeyOptional
			u.op.Guard = idempo.GuardLeased
			u.config.TenantFunc = func(*http.Request) (string, error) { asked++; return "t", nil }
		})
		a := s.do(post("", "{}"))
		if a.status != 201 || a.said() != "" || asked != 0 || s.store.calls.Load() != 0 {
			t.Errorf("%d %v, TenantFunc called %d times, %d store calls", a.status, a.header, asked, s.store.calls.Load())
		}
		s.do(post(`""`, "{}")).is(400, "key_empty")
		s.counted(1, 1)
	})
	t.Run("idempo's own headers from a client do not reach the handler", func(t *testing.T) {
		var seen http.Header
		s := build(t, func(_ *site, _ http.ResponseWriter, r *http.Request) { seen = r.Header }, nil)
		s.do(post("k", "{}", "Idempo-Outcome", "keep", "Idempotency-Status", "executed", "Idempotent-Replayed", "true", "X-Mine", "1"))
		if seen.Get("X-Mine") != "1" || seen.Get("Idempo-Outcome")+seen.Get("Idempotency-Status")+seen.Get("Idempotent-Replayed") != "" {
			t.Errorf("the handler saw %v", seen)
		}
	})
	t.Run("[http/H7] a grant withdrawn before the retry: refused, the key still bound", func(t *testing.T) {
		withdrawn := false
		s := build(t, created, func(u *tune) {
			u.rules.ReplayFunc = func(*http.Request, idempo.Record) error {
				if withdrawn {
					return errors.New("not yours any more")
				}
				return nil
			}
		})
		outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Token") == "revoked" {
				http.Error(w, "no", 401)
				return
			}
			s.h.ServeHTTP(w, r)
		})
		serve(t, outer, post("k", "{}")).is(201, "executed")
		if a := serve(t, outer, post("k", "{}", "X-Token", "revoked")); a.status != 401 || strings.Contains(a.body, "run") {
			t.Errorf("outer refusal: %d %q", a.status, a.body)
		}
		withdrawn = true
		a := serve(t, outer, post("k", "{}"))
		a.is(403, "replay_forbidden")
		if strings.Contains(a.body, "run") || a.header.Get("Location") != "" {
			t.Errorf("a stored byte left: %v %q", a.header, a.body)
		}
		serve(t, outer, post("k", `{"x":1}`)).is(422, "mismatch")
		withdrawn = false
		serve(t, outer, post("k", "{}")).is(201, "replayed")
		s.counted(1, 1)
	})
	t.Run("[security/SEC8] a right withdrawn between call and replay", func(t *testing.T) {
		allowed := true
		s := build(t, created, func(u *tune) {
			u.config.TenantFunc = func(*http.Request) (string, error) {
				if !allowed {
					return "", idemhttp.ErrNoTenant
				}
				return "t", nil
			}
		})
		s.do(post("k", "{}")).is(201, "executed")
		allowed = false
		if a := s.do(post("k", "{}")); a.status != 401 || strings.Contains(a.body, "run") {
			t.Errorf("%d %q", a.status, a.body)
		}
	})
}

func TestOrderOfVerdicts(t *testing.T) {
	t.Parallel()
	t.Run("[http/H6] expired and other body is 410 without resource; other body while running or in doubt is 422", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, created, func(u *tune) { u.op.Retention = time.Hour })
			s.do(post("k", "{}")).is(201, "executed")
			time.Sleep(time.Hour + 1)
			same, other := s.do(post("k", "{}")), s.do(post("k", `{"x":1}`))
			same.is(410, "expired")
			other.is(410, "expired")
			if p := same.problem(); p.Resource == nil || p.Resource.ID != "/payments/1" || p.ExpiredAt == nil || same.header.Get("Location") != "/payments/1" {
				t.Errorf("same request: %+v %v", p, same.header)
			}
			if p := other.problem(); p.Resource != nil || other.header.Get("Location") != "" {
				t.Errorf("other request: %+v %v", p, other.header)
			}

			d := build(t, answering(500, ""), leased)
			d.do(post("k", "{}")).is(500, "in_doubt")
			d.do(post("k", `{"x":1}`)).is(422, "mismatch")
			d.do(post("k", "{}")).is(409, "in_doubt")

			gate := make(chan struct{})
			running := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { <-gate; created(s, w, r) }, leased)
			done := make(chan answer)
			go func() { done <- running.do(post("k", "{}")) }()
			synctest.Wait()
			running.do(post("k", `{"x":1}`)).is(422, "mismatch")
			running.do(post("k", "{}")).is(409, "in_progress")
			elsewhere := running.another(created, leased)
			elsewhere.do(post("k", `{"x":1}`)).is(422, "mismatch")
			close(gate)
			(<-done).is(201, "executed")
		})
	})
	t.Run("[http/H30] after the retention 410, after the tombstone as new", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				if d := r.Header.Get("X-Retention"); d != "" {
					keep, _ := time.ParseDuration(d)
					if err := idemhttp.SetRetention(r.Context(), keep); err != nil {
						w.Header().Set("X-Refused", "yes")
					}
				}
				created(s, w, r)
			}, func(u *tune) { u.op.Retention, u.op.Tombstone = time.Hour, 2*time.Hour })
			s.do(post("k", "{}")).is(201, "executed")
			s.do(post("short", "{}", "X-Retention", "1m")).is(201, "executed")
			if a := s.do(post("neg", "{}", "X-Retention", "-1s")); a.header.Get("X-Refused") == "" {
				t.Error("negative retention: no error")
			}
			if a := s.do(post("forever", "{}", "X-Retention", idempo.Forever.String())); a.header.Get("X-Refused") == "" {
				t.Error("retention for ever: no error")
			}
			time.Sleep(time.Minute + 1)
			s.do(post("short", "{}")).is(410, "expired")
			s.do(post("k", "{}")).is(201, "replayed")
			time.Sleep(time.Hour)
			s.do(post("k", "{}")).is(410, "expired")
			if _, err := s.store.Sweep(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			s.do(post("k", "{}")).is(410, "expired")
			time.Sleep(2 * time.Hour)
			s.do(post("k", "{}")).is(201, "executed")
		})
	})
	t.Run("[http/FP17, FP18] a recipe that this binary does not know is 503, never a match and never 422", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("k", "{}")).is(201, "executed")
		later := s.another(created, func(u *tune) {
			u.engine.DigestKeys = []idempo.Secret{digestKeys()[0]}
		})
		later.store.acquired = func(a idempo.Acquired) idempo.Acquired {
			if a.Record.Recipe != "" {
				a.Verdict, a.Record.Recipe = idempo.VerdictMismatch, "http9;k=d1;x"
			}
			return a
		}
		later.do(post("k", "{}")).is(503, "record_unreadable")
		later.store.acquired = func(a idempo.Acquired) idempo.Acquired {
			if a.Record.Recipe != "" {
				a.Verdict, a.Record.Recipe = idempo.VerdictMismatch, strings.Replace(a.Record.Recipe, "k=d1", "k=d0", 1)
			}
			return a
		}
		later.do(post("k", "{}")).is(503, "record_unreadable")
		later.counted(0, 0)
	})
	t.Run("a changed selection turns no live key into a mismatch", func(t *testing.T) {
		s := build(t, created, func(u *tune) { u.rules.Exclude = []string{"/at"} })
		s.do(post("k", `{"a":1,"at":1}`)).is(201, "executed")
		newer := s.another(created, nil)
		newer.do(post("k", `{"a":1,"at":2}`)).is(201, "replayed")
		newer.do(post("k", `{"a":2,"at":1}`)).is(422, "mismatch")
		newer.counted(0, 0)
	})
	t.Run("a mismatch names members and holds no value", func(t *testing.T) {
		s := build(t, created, nil)
		s.do(post("k", `{"amount":1200,"gone":1}`)).is(201, "executed")
		a := s.do(post("k", `{"amount":"canary","note":1}`))
		a.is(422, "mismatch")
		m := a.problem().Mismatch
		if m == nil || !slices.Equal(m.Parts, []string{"body"}) || !slices.Equal(m.Changed, []string{"/amount"}) ||
			!slices.Equal(m.Added, []string{"/note"}) || m.Removed != 1 {
			t.Errorf("mismatch %+v", m)
		}
		if strings.Contains(a.body, "canary") || strings.Contains(a.body, "1200") {
			t.Errorf("a value left: %s", a.body)
		}
		for status := range map[int]bool{400: true, 409: true} {
			other := s.another(created, func(u *tune) { u.rules.MismatchStatus = status; u.rules.MismatchDetail = idemhttp.DetailNone })
			b := other.do(post("k", `{}`))
			b.is(status, "mismatch")
			if b.problem().Mismatch != nil || b.problem().Status != status {
				t.Errorf("%s", b.body)
			}
		}
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC59] over the limit is 413 before or while reading; a gzip bomb at MaxInflated", func(t *testing.T) {
		s := build(t, created, func(u *tune) { u.rules.MaxBody = 1000 })
		body := &failingBody{Reader: strings.NewReader(strings.Repeat("x", 1001))}
		declared := post("k", "")
		declared.Body, declared.ContentLength = body, 1001
		s.do(declared).is(413, "body_too_large")
		if body.read {
			t.Error("a body that is too long by its own word was read")
		}
		chunked := post("k", "")
		chunked.Body, chunked.ContentLength = &failingBody{Reader: strings.NewReader(strings.Repeat("x", 1001))}, -1
		s.do(chunked).is(413, "body_too_large")
		var bomb bytes.Buffer
		z := gzip.NewWriter(&bomb)
		_, _ = z.Write(bytes.Repeat([]byte(" "), 4001))
		_ = z.Close()
		s.do(post("k", bomb.String(), "Content-Encoding", "gzip")).is(413, "body_too_large")
		s.counted(0, 0)
		exact := post("k", strings.Repeat("x", 1000), "Content-Type", "text/plain")
		s.do(exact).is(201, "executed")
	})
	t.Run("[http/H23] a client that leaves before its body is complete has spent no key", func(t *testing.T) {
		s := build(t, created, nil)
		for _, broken := range []struct {
			err    error
			length int64
			status int
			code   string
		}{
			{io.ErrUnexpectedEOF, 10, 400, "body_incomplete"},
			{nil, 10, 400, "body_incomplete"},
			{errors.New("stream reset"), -1, 400, "body_incomplete"},
			{http.ErrBodyReadAfterClose, -1, 400, "body_incomplete"},
			{timeoutError{}, -1, 408, "request_timeout"},
			{&http.MaxBytesError{Limit: 3}, -1, 413, "body_too_large"},
		} {
			r := post("k", "")
			r.Body, r.ContentLength = &failingBody{Reader: strings.NewReader("{}"), err: broken.err}, broken.length
			a := s.do(r)
			a.is(broken.status, broken.code)
			if p := a.problem(); !p.SameKey {
				t.Errorf("%s: the key is said to be spent", broken.code)
			}
		}
		if n := s.store.calls.Load(); n != 0 {
			t.Errorf("%d store calls", n)
		}
		s.do(post("k", `{"other":true}`)).is(201, "executed")
		s.counted(1, 1)
	})
	t.Run("[http/K14] what a handler does to its request changes neither key nor fingerprint", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Header.Set("Idempotency-Key", "other")
			r.URL.Path, r.URL.RawQuery, r.Method = "/elsewhere", "y=2", "PUT"
			r.Body = io.NopCloser(strings.NewReader("changed"))
			created(s, w, r)
		}, func(u *tune) { u.rules.Headers = []string{"X-Version"} })
		r := post("k", "{}", "X-Version", "1")
		s.do(r).is(201, "executed")
		s.do(post("k", "{}", "X-Version", "1")).is(201, "replayed")
		s.do(post("other", "{}", "X-Version", "1")).is(201, "executed")
		if r.Header.Get("Idempotency-Key") != "k" || r.URL.Path != "/v1/pay" || r.Method != "POST" {
			t.Error("the outer request was changed")
		}
	})
	t.Run("a body kept beyond the handler's return reads nothing", func(t *testing.T) {
		var kept io.Reader
		s := build(t, func(_ *site, _ http.ResponseWriter, r *http.Request) { kept = r.Body }, nil)
		s.do(post("k", "{}")).is(200, "executed")
		if n, err := kept.Read(make([]byte, 1)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func TestMethodsThatAreNotGuarded(t *testing.T) {
	t.Parallel()
	s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) { w.WriteHeader(202) }, leased)
	keyed := func(method string) *http.Request {
		r := httptest.NewRequest(method, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		return r
	}
	t.Run("[http/H41] a keyed PUT or DELETE runs, says unguarded, is counted, and advises once", func(t *testing.T) {
		for range 3 {
			for _, method := range []string{"PUT", "DELETE"} {
				s.do(keyed(method)).is(202, "unguarded")
			}
		}
		if n := s.events.count("passthrough", "declared"); n != 6 {
			t.Errorf("counted %d", n)
		}
		if n := strings.Count(s.log.String(), "Methods"); n != 1 {
			t.Errorf("%d log lines: %s", n, s.log)
		}
		if n := s.store.calls.Load(); n != 0 {
			t.Errorf("%d store calls", n)
		}
	})
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"} {
		if a := s.do(keyed(method)); a.status != 202 || a.said() != "" {
			t.Errorf("%s: %d %q", method, a.status, a.said())
		}
	}
	plain := httptest.NewRequest("PUT", "/", nil)
	if a := s.do(plain); a.status != 202 || a.said() != "" {
		t.Errorf("PUT without key: %d %q", a.status, a.said())
	}
	put := build(t, created, func(u *tune) { u.rules.Methods = []string{"PUT"} })
	put.do(keyed("PUT")).is(201, "executed")
	put.do(keyed("PUT")).is(201, "replayed")
	put.do(keyed("DELETE")).is(201, "unguarded")
}
