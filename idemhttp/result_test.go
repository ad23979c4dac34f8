package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
)

// digestOf is Content-Digest as RFC 9530 spells it.
func digestOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// notKept checks an answer to a retry whose first answer was not kept whole.
func (a answer) notKept(status int, resource, digest string) {
	a.t.Helper()
	a.is(410, "result_not_kept")
	p := a.problem()
	if a.said() != "not_kept" || p.OriginalStatus != status || p.Resource == nil || p.Resource.ID != resource ||
		a.header.Get("Content-Digest") != digest || a.header.Get("Location") == "" {
		a.t.Errorf("%+v %+v %v", p, p.Resource, a.header)
	}
}

func TestAnswersThatAreNotKept(t *testing.T) {
	t.Parallel()
	t.Run("[http/R10] over MaxResult, and headers over 16 KiB: the first caller gets all, retries 410", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			long := strings.Repeat("x", 101)
			s := build(t, answering(201, long, "Location", "/p/1"), func(u *tune) { u.op.Guard, u.op.MaxResult = guard, 100 })
			if a := s.do(post("k", "{}")); a.said() != "executed" || a.body != long {
				t.Errorf("first: %q, %d bytes", a.said(), len(a.body))
			}
			s.do(post("k", "{}")).notKept(201, "/p/1", digestOf(long))
			s.counted(1, 1)
			huge := strings.Repeat("y", 100_000) // in a file by then
			f := build(t, answering(201, huge, "Location", "/p/1"), func(u *tune) { u.op.Guard, u.op.MaxResult = guard, 100 })
			if a := f.do(post("k", "{}")); a.body != huge {
				t.Errorf("first: %d bytes", len(a.body))
			}
			f.do(post("k", "{}")).notKept(201, "/p/1", digestOf(huge))

			h := build(t, answering(201, "body", "Location", "/p/1", "X-Long", strings.Repeat("h", 16<<10)), func(u *tune) { u.op.Guard = guard })
			if a := h.do(post("k", "{}")); a.said() != "executed" || len(a.header.Get("X-Long")) != 16<<10 || a.body != "body" {
				t.Errorf("first: %q", a.said())
			}
			b := h.do(post("k", "{}"))
			b.notKept(201, "/p/1", digestOf("body"))
			if b.header.Get("X-Long") != "" {
				t.Error("a header beyond the limit was kept")
			}
			h.counted(1, 1)
		}
	})
	t.Run("[http/R11] over MaxSpool: atomic fails and is undone; leased streams on, then 410", func(t *testing.T) {
		var failed error
		big := func(s *site, w http.ResponseWriter, r *http.Request) {
			s.effect(r.Context())
			w.Header().Set("Location", "/p/1")
			for range 11 {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
					failed = err
				}
			}
		}
		s := build(t, big, func(u *tune) { u.rules.MaxSpool = 1000 })
		a := s.do(post("k", "{}"))
		a.is(500, "response_too_large")
		if failed == nil || a.said() != "released" || a.header.Get("Location") != "" {
			t.Errorf("Write: %v; %v", failed, a.header)
		}
		s.counted(1, 0)
		l := build(t, big, func(u *tune) { leased(u); u.rules.MaxSpool = 1000 })
		whole := strings.Repeat("x", 1100)
		if b := l.do(post("k", "{}")); b.status != 200 || b.body != whole || b.said() != "executed" {
			t.Errorf("leased: %d, %d bytes, %q", b.status, len(b.body), b.said())
		}
		l.do(post("k", "{}")).notKept(200, "/p/1", digestOf(whole))
		l.counted(1, 1)
	})
	t.Run("[http/R17] ResultPointer keeps status, headers, resource; Redact stores null", func(t *testing.T) {
		body := `{"id":1,"card":"4242"}`
		p := build(t, answering(201, body, "Location", "/p/1"), func(u *tune) { u.rules.Result = idemhttp.ResultPointer })
		if a := p.do(post("k", "{}")); a.body != body {
			t.Errorf("first %q", a.body)
		}
		p.do(post("k", "{}")).notKept(201, "/p/1", digestOf(body))
		said := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			if err := idemhttp.SetResult(r.Context(), idemhttp.ResultPointer); err != nil {
				t.Error(err)
			}
			if err := idemhttp.SetResult(r.Context(), "half"); err == nil {
				t.Error("an unknown mode: no error")
			}
			answering(201, body, "Location", "/p/1")(s, w, r)
		}, nil)
		said.do(post("k", "{}")).is(201, "executed")
		said.do(post("k", "{}")).notKept(201, "/p/1", digestOf(body))

		redacted := func(u *tune) { u.rules.Redact = []string{"/card"} }
		r := build(t, answering(200, body), redacted)
		if a := r.do(post("k", "{}")); a.body != body {
			t.Errorf("first %q", a.body)
		}
		if a := r.do(post("k", "{}")); a.said() != "replayed" || a.body != `{"id":1,"card":null}` {
			t.Errorf("replay %q %q", a.said(), a.body)
		}
		n := build(t, answering(201, "4242, no JSON", "Location", "/p/1"), redacted)
		n.do(post("k", "{}")).is(201, "executed")
		n.do(post("k", "{}")).notKept(201, "/p/1", digestOf("4242, no JSON"))
	})
	t.Run("[security/SEC23] what Redact and ResultPointer remove never reaches the store", func(t *testing.T) {
		for _, change := range []func(*tune){
			func(u *tune) { u.rules.Redact = []string{"/card"} },
			func(u *tune) { u.rules.Result = idemhttp.ResultPointer },
			func(u *tune) { leased(u); u.rules.Redact = []string{"/card"} },
			func(u *tune) { leased(u); u.rules.Result = idemhttp.ResultPointer },
		} {
			s := build(t, answering(200, `{"card":"canary"}`), change)
			s.store.complete = func(p idempo.CompleteParams) error {
				if bytes.Contains(p.Result.Body, []byte("canary")) {
					t.Error("the store got the removed bytes")
				}
				return nil
			}
			if a := s.do(post("k", "{}")); a.said() != "executed" || !strings.Contains(a.body, "canary") {
				t.Errorf("first %q %q", a.said(), a.body)
			}
		}
	})
	t.Run("[http/R19] RenderFunc makes the body of a replay from the resource as it is now", func(t *testing.T) {
		calls := 0
		var fail error
		s := build(t, answering(201, `{"state":"new"}`, "Location", "/p/1"), func(u *tune) {
			u.rules.RenderFunc = func(_ context.Context, rec idempo.Record) (idempo.Result, error) {
				calls++
				return idempo.Result{Status: 200, Body: []byte(`{"state":"paid","of":"` + rec.Result.Resource.ID + `"}`)}, fail
			}
		})
		if a := s.do(post("k", "{}")); a.body != `{"state":"new"}` || calls != 0 {
			t.Errorf("first %q after %d calls", a.body, calls)
		}
		a := s.do(post("k", "{}"))
		a.is(201, "replayed")
		if a.body != `{"state":"paid","of":"/p/1"}` || a.header.Get("Idempotent-Replayed") != "true" || a.header.Get("Location") != "/p/1" {
			t.Errorf("replay %q %v", a.body, a.header)
		}
		fail = errors.New("gone")
		if a := s.do(post("k", "{}")); a.said() != "replayed" || a.body != `{"state":"new"}` {
			t.Errorf("RenderFunc fails: %q", a.body)
		}
		p := build(t, answering(201, `{"state":"new"}`, "Location", "/p/1"), func(u *tune) {
			u.rules.Result = idemhttp.ResultPointer
			u.rules.RenderFunc = func(context.Context, idempo.Record) (idempo.Result, error) {
				return idempo.Result{Body: []byte("now")}, fail
			}
		})
		p.do(post("k", "{}")).is(201, "executed")
		p.do(post("k", "{}")).notKept(201, "/p/1", digestOf(`{"state":"new"}`))
		fail = nil
		if a := p.do(post("k", "{}")); a.said() != "replayed" || a.body != "now" {
			t.Errorf("rendered over a pointer: %q %q", a.said(), a.body)
		}
	})
	t.Run("[http/R20] ResultPointer with PointerStatus 303 sends the client to the resource", func(t *testing.T) {
		pointer := func(u *tune) { u.rules.Result, u.rules.PointerStatus = idemhttp.ResultPointer, http.StatusSeeOther }
		s := build(t, answering(201, "body", "Location", "/p/1"), pointer)
		s.do(post("k", "{}")).is(201, "executed")
		a := s.do(post("k", "{}"))
		a.is(303, "replayed")
		if a.header.Get("Location") != "/p/1" || a.header.Get("Idempotent-Replayed") != "true" || a.body != "" {
			t.Errorf("%v %q", a.header, a.body)
		}
		none := build(t, answering(200, "body"), pointer)
		none.do(post("k", "{}")).is(200, "executed")
		none.do(post("k", "{}")).is(410, "result_not_kept")
		bad := build(t, answering(404, "body", "Location", "/p/1"), pointer)
		bad.do(post("k", "{}")).is(404, "executed")
		bad.do(post("k", "{}")).is(410, "result_not_kept")
	})
	t.Run("[http/R14] the handler sees no Accept-Encoding; an answer it encodes all the same is decoded where it must be", func(t *testing.T) {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, _ = io.WriteString(w, "plain text")
		_ = w.Close()
		var seen []string
		encode := func(coding, body string) func(*site, http.ResponseWriter, *http.Request) {
			return func(_ *site, w http.ResponseWriter, r *http.Request) {
				seen = r.Header["Accept-Encoding"]
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Encoding", coding)
				_, _ = io.WriteString(w, body)
			}
		}
		s := build(t, encode("gzip", z.String()), nil)
		first := s.do(post("k", "{}", "Accept-Encoding", "gzip, br"))
		if seen != nil || first.body != z.String() {
			t.Errorf("the handler saw %q; first answer %q", seen, first.body)
		}
		stored := s.do(post("k", "{}", "Accept-Encoding", "br;q=1, gzip;q=0.2"))
		if stored.body != z.String() || stored.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("as stored: %v %q", stored.header, stored.body)
		}
		for _, accept := range []string{"identity", "br", "gzip;q=0", ""} {
			plain := s.do(post("k", "{}", "Accept-Encoding", accept))
			plain.is(200, "replayed")
			if plain.body != "plain text" || plain.header.Get("Content-Encoding") != "" || plain.header.Get("Content-Length") != "10" {
				t.Errorf("%q: %v %q", accept, plain.header, plain.body)
			}
		}
		for coding, body := range map[string]string{"br": "xx", "gzip": "no gzip at all"} {
			b := build(t, encode(coding, body), nil)
			b.do(post("k", "{}")).is(200, "executed")
			a := b.do(post("k", "{}", "Accept-Encoding", "identity"))
			a.is(410, "result_not_kept")
			if a.header.Get("Content-Encoding") != "" {
				t.Error("the problem is said to be encoded")
			}
			b.do(post("k", "{}", "Accept-Encoding", coding)).is(200, "replayed")
		}
	})
	t.Run("[security/SEC27] a stored result that no answer can be is 500 result_unreadable", func(t *testing.T) {
		for _, status := range []int{0, 99, 100, 199, 600, -1, 1 << 30} {
			s := build(t, created, nil)
			s.do(post("k", "{}")).is(201, "executed")
			s.store.acquired = func(a idempo.Acquired) idempo.Acquired { a.Record.Result.Status = status; return a }
			s.store.lookup = func(r idempo.Record, err error) (idempo.Record, error) { r.Result.Status = status; return r, err }
			a := s.do(post("k", "{}"))
			a.is(500, "result_unreadable")
			if !strings.Contains(s.log.String(), "level=ERROR") {
				t.Error("no ERROR line")
			}
		}
	})
	t.Run("[security/SEC21, SEC22] denied headers and lines that split are not in the record, nor on a replay from a changed row", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			w.Header()["set-cookie"] = []string{"a=canary", "b=canary"}
			w.Header().Set("X-Kept", "1")
			w.Header()["X-Split"] = []string{"a\r\nSet-Cookie: canary"}
			w.WriteHeader(200)
		}, func(u *tune) { u.rules.DenyHeaders = []string{"x-secret"} })
		a := s.do(post("k", "{}"))
		//lint:ignore SA1008 the letter case is the point
		if strings.Join(a.header["set-cookie"], ";") != "a=canary;b=canary" {
			t.Errorf("first answer %v", a.header)
		}
		rec, err := s.engine.Lookup(t.Context(), idempo.Key{Tenant: "acct_1", Operation: "pay", ID: "k"})
		if err != nil || len(rec.Result.Header) != 1 || rec.Result.Header[0] != [2]string{"X-Kept", "1"} {
			t.Errorf("record %v, %v", rec.Result.Header, err)
		}
		if !strings.Contains(s.log.String(), "count=1") {
			t.Errorf("not counted: %s", s.log)
		}
		forge := func(rec *idempo.Record) {
			rec.Result.Header = [][2]string{{"Set-Cookie", "canary"}, {"X-A", "a\r\nX-B: canary"}, {"X-Secret", "canary"}, {"Bad Name", "canary"}, {"Idempotency-Status", "canary"}, {"X-Ok", "1"}}
		}
		s.store.acquired = func(a idempo.Acquired) idempo.Acquired { forge(&a.Record); return a }
		s.store.lookup = func(r idempo.Record, err error) (idempo.Record, error) { forge(&r); return r, err }
		b := s.do(post("k", "{}"))
		b.is(200, "replayed")
		for name, values := range b.header {
			if strings.Contains(strings.Join(values, ""), "canary") {
				t.Errorf("replayed %s", name)
			}
		}
		if b.header.Get("X-Ok") != "1" {
			t.Errorf("replay %v", b.header)
		}
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"Stream", "text/event-stream"} {
		change := func(u *tune) { leased(u); u.rules.Stream = how == "Stream" }
		kind := "text/plain"
		if how != "Stream" {
			kind = how
		}
		t.Run("[http/R7] "+how+": each flush leaves at once; meanwhile 409; complete: retries 410", func(t *testing.T) {
			step := make(chan struct{})
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				s.effect(r.Context())
				w.Header().Set("Content-Type", kind)
				w.Header().Set("Location", "/p/1")
				_, _ = io.WriteString(w, "one ")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-step
				_, _ = io.WriteString(w, "two")
			}, change)
			server := httptest.NewServer(s.h)
			defer server.Close()
			r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/pay?x=1", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", "k")
			res, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			part := make([]byte, 4)
			if _, err := io.ReadFull(res.Body, part); err != nil || string(part) != "one " || res.Header.Get("Idempotency-Status") != "executed" {
				t.Fatalf("%q, %v, %v", part, err, res.Header)
			}
			s.do(post("k", "{}")).is(409, "in_progress")
			close(step)
			if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "two" {
				t.Errorf("%q, %v", rest, err)
			}
			server.Close() // waits for the handler, whose client heard the end before the store did
			s.do(post("k", "{}")).notKept(200, "/p/1", digestOf("one two"))
			s.counted(1, 1)
		})
		t.Run("[http/R7] "+how+": cut by the handler: in doubt", func(t *testing.T) {
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				s.effect(r.Context())
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, "one ")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, change)
			if v := panicOf(func() { s.do(post("k", "{}")) }); v != http.ErrAbortHandler {
				t.Errorf("panic %v", v)
			}
			s.do(post("k", "{}")).is(409, "in_doubt")
			s.counted(1, 1)
		})
		t.Run("[http/R7] "+how+": the client is gone: the handler finishes", func(t *testing.T) {
			var last error
			s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
				s.effect(r.Context())
				w.Header().Set("Content-Type", kind)
				w.Header().Set("Location", "/p/1")
				for range 3 {
					_, last = io.WriteString(w, "part")
					w.(http.Flusher).Flush()
				}
			}, change)
			s.h.ServeHTTP(&goneWriter{h: http.Header{}}, post("k", "{}"))
			if last != nil {
				t.Errorf("the handler was disturbed: %v", last)
			}
			s.do(post("k", "{}")).notKept(200, "/p/1", digestOf("partpartpart"))
			s.counted(1, 1)
		})
	}
	t.Run("of a stream only the handler's own headers are kept", func(t *testing.T) {
		s := build(t, func(s *site, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Own", "1")
			_, _ = io.WriteString(w, "part")
			w.(http.Flusher).Flush()
		}, func(u *tune) { leased(u); u.rules.Stream = true })
		w := httptest.NewRecorder()
		w.Header().Set("X-Outside", "canary")
		s.h.ServeHTTP(w, post("k", "{}"))
		rec, err := s.engine.Lookup(t.Context(), idempo.Key{Tenant: "acct_1", Operation: "pay", ID: "k"})
		if err != nil || rec.BodyKept || stored(rec, "X-Own") != "1" || stored(rec, "X-Outside") != "" {
			t.Errorf("%v, %v", rec.Result.Header, err)
		}
	})
	t.Run("a stream that is never flushed is an answer like others", func(t *testing.T) {
		s := build(t, answering(400, "no"), func(u *tune) { leased(u); u.rules.Stream = true })
		s.do(post("k", "{}")).is(400, "executed")
		s.do(post("k", "{}")).is(400, "replayed")
	})
	t.Run("[http/R8] text/event-stream in an atomic operation is buffered and leaves after the commit", func(t *testing.T) {
		committed := false
		var early int
		w := httptest.NewRecorder()
		s := build(t, func(s *site, rw http.ResponseWriter, r *http.Request) {
			s.effect(r.Context())
			rw.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(rw, "data: 1\n\n")
			rw.(http.Flusher).Flush()
			early = w.Body.Len()
		}, nil)
		s.store.complete = func(idempo.CompleteParams) error { committed = true; early += w.Body.Len(); return nil }
		s.h.ServeHTTP(w, post("k", "{}"))
		if early != 0 || !committed || w.Body.String() != "data: 1\n\n" {
			t.Errorf("%d bytes left early, body %q", early, w.Body)
		}
		if a := s.do(post("k", "{}")); a.said() != "replayed" || a.body != "data: 1\n\n" || a.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%q %q", a.said(), a.body)
		}
	})
}

// goneWriter is a client that left.
type goneWriter struct{ h http.Header }

func (g *goneWriter) Header() http.Header       { return g.h }
func (g *goneWriter) WriteHeader(int)           {}
func (g *goneWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// stored is a header that a record keeps.
func stored(rec idempo.Record, name string) string {
	for _, pair := range rec.Result.Header {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}
