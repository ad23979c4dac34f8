package idemhttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"
)

// answerCase is a handler whose answer must look the same bare, recorded and, later, replayed.
type answerCase struct {
	name    string
	serve   http.HandlerFunc
	trailer bool
}

// answerCases are the shapes of answers that row after row of section 6 asks for.
func answerCases() []answerCase {
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	typed := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			text(status, body)(w, r)
		}
	}
	cases := []answerCase{
		{name: "nothing written", serve: func(http.ResponseWriter, *http.Request) {}},
		{name: "implicit 200", serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }},
		{name: "201 with Location", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/v1/payments/1")
			w.WriteHeader(201)
			_, _ = w.Write([]byte(`{"id":1}`))
		}},
		{name: "202", serve: text(202, "later")},
		{name: "204", serve: text(204, "")},
		{name: "204 with a refused body", serve: text(204, "lost")},
		{name: "303", serve: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/done", 303) }},
		{name: "304", serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"1"`); w.WriteHeader(304) }},
		{name: "empty body", serve: typed(200, "application/json", "")},
		{name: "JSON null", serve: typed(200, "application/json", "null")},
		{name: "JSON false", serve: typed(200, "application/json", "false")},
		{name: "JSON zero", serve: typed(200, "application/json", "0")},
		{name: "NUL and invalid UTF-8", serve: typed(200, "application/octet-stream", "a\x00b\xff\xfe")},
		{name: "no Content-Type: HTML", serve: text(200, "<html><body>x")},
		{name: "no Content-Type: PNG", serve: text(200, "\x89PNG\x0D\x0A\x1A\x0A")},
		{name: "no Content-Type: in small writes", serve: func(w http.ResponseWriter, _ *http.Request) {
			for _, b := range []byte("<!DOCTYPE html><p>") {
				_, _ = w.Write([]byte{b})
			}
		}},
		{name: "no Content-Type on purpose", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte("<html>"))
		}},
		{name: "no Content-Type: encoded", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("<html>"))
		}},
		{name: "second WriteHeader and late headers", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(201)
			w.WriteHeader(500)
			w.Header().Set("X-Late", "1")
			_, _ = w.Write([]byte("ok"))
		}},
		{name: "repeated lines", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Link", "</a>; rel=a")
			w.Header().Add("Link", "</b>; rel=b, </c>; rel=c")
			w.Header().Add("X-Empty", "")
			w.WriteHeader(200)
		}},
	}
	return append(cases, copyCases()...)
}

// copyCases are those of large bodies, lengths and trailers.
func copyCases() []answerCase {
	big := bytes.Repeat([]byte("0123456789abcdef"), 10_000) // 160,000 bytes: over what stays in memory
	return []answerCase{
		{name: "io.Copy", serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, bytes.NewReader(big)) }},
		{name: "ReadFrom", serve: func(w http.ResponseWriter, _ *http.Request) {
			src := io.LimitReader(bytes.NewReader(big), 70_000)
			if rf, ok := w.(io.ReaderFrom); ok { // not over bare HTTP/2
				_, _ = rf.ReadFrom(src)
				return
			}
			_, _ = io.Copy(w, src)
		}},
		{name: "many writes", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(203)
			for b := big; len(b) > 0; b = b[1600:] {
				_, _ = w.Write(b[:1600])
			}
		}},
		{name: "ServeContent", serve: func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Unix(1e9, 0), bytes.NewReader(big))
		}},
		{name: "declared length", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = w.Write([]byte("ok"))
		}},
		{name: "declared trailer", trailer: true, serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write([]byte("body"))
			w.Header().Set("X-Sum", "42")
		}},
		{name: "undeclared trailer", trailer: true, serve: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(big[:5000])
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}},
		{name: "outer header changed and removed", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Outer-Changed", "by the handler")
			w.Header().Del("X-Outer-Removed")
			w.Header().Add("X-Outer-Added", "second")
			_, _ = w.Write([]byte("ok"))
		}},
	}
}

// outerHeaders stands for a middleware around the guard.
func outerHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Outer-Kept", "X-Outer-Changed", "X-Outer-Removed", "X-Outer-Added"} {
			w.Header().Set(name, "outer")
		}
		next.ServeHTTP(w, r)
	})
}

// recorded runs a handler on a recorder as the guard does, without anything else.
func recorded(next http.Handler) http.Handler {
	spools := newSpools()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{outer: w, spools: spools, limit: 64 << 20}
		defer rec.free()
		rec.begin()
		next.ServeHTTP(rec, r)
		rec.end()
		rec.deliver(&marks{})
	})
}

type wireAnswer struct {
	Status          int
	Header, Trailer http.Header
	Body            string
}

func fetchAnswer(t *testing.T, c *http.Client, r *http.Request) wireAnswer {
	t.Helper()
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Header.Del("Date")
	res.Header.Del("Content-Length") // net/http leaves it out of long answers, we know it
	trailer := res.Trailer
	if len(trailer) == 0 {
		trailer = nil
	}
	return wireAnswer{res.StatusCode, res.Header, trailer, string(body)}
}

// speaker is a client of a server of one protocol, without redirects or gzip of its own.
type speaker struct {
	base string
	*http.Client
}

// serveBoth serves h over HTTP/1.1 and HTTP/2 and gives a client for each.
func serveBoth(t *testing.T, h http.Handler) map[string]speaker {
	t.Helper()
	out := map[string]speaker{}
	for _, name := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := httptest.NewUnstartedServer(h)
		if s.EnableHTTP2 = name == "HTTP/2.0"; s.EnableHTTP2 {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		c := s.Client()
		tr := c.Transport.(*http.Transport)
		tr.DisableCompression = true
		tr.DisableKeepAlives = name == "HTTP/1.1" // net/http closes, unannounced, after an answer that breaks its own length
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		out[name] = speaker{s.URL, c}
	}
	return out
}

func TestRecordedAnswerIsTheBareOne(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for _, c := range answerCases() {
		path := "/" + strings.ReplaceAll(c.name, " ", "-")
		mux.Handle("/bare"+path, outerHeaders(c.serve))
		mux.Handle("/recorded"+path, outerHeaders(recorded(c.serve)))
	}
	for proto, client := range serveBoth(t, mux) {
		for _, c := range answerCases() {
			path := "/" + strings.ReplaceAll(c.name, " ", "-")
			var got [2]wireAnswer
			for i, side := range []string{"/bare", "/recorded"} {
				r, err := http.NewRequestWithContext(t.Context(), "POST", client.base+side+path, nil)
				must(t, err)
				got[i] = fetchAnswer(t, client.Client, r)
			}
			if !reflect.DeepEqual(got[0], got[1]) {
				t.Errorf("%s, %s:\nbare     %.300v\nrecorded %.300v", c.name, proto, got[0], got[1])
			}
			if c.trailer && len(got[1].Trailer) == 0 {
				t.Errorf("%s, %s: no trailer", c.name, proto)
			}
		}
	}
}

func TestRecorderHoldsBackEverythingButInformation(t *testing.T) {
	t.Parallel()
	t.Run("[http/R3] 1xx leave at once, do not fix the status and leave no header behind", func(t *testing.T) {
		hints := make(chan string, 1)
		clients := serveBoth(t, recorded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(103)
			w.Header().Del("Link")
			select {
			case got := <-hints: // the client has them while the handler still runs
				w.Header().Set("X-Seen", got)
			case <-r.Context().Done():
			}
			w.WriteHeader(201)
		})))
		for proto, client := range clients {
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints <- h.Get("Link")
				return nil
			}}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", client.base, nil)
			must(t, err)
			got := fetchAnswer(t, client.Client, r)
			if got.Status != 201 || got.Header.Get("X-Seen") != "</style.css>; rel=preload" || got.Header.Get("Link") != "" {
				t.Errorf("%s: %v", proto, got)
			}
		}
	})
	t.Run("[http/R6] flush succeeds and sends nothing, hijack is refused, deadlines and full duplex reach the connection", func(t *testing.T) {
		outer := &countingWriter{ResponseRecorder: httptest.NewRecorder()}
		rec := &recorder{outer: outer, spools: newSpools(), limit: 1 << 20}
		defer rec.free()
		rec.begin()
		ctl := http.NewResponseController(rec)
		_, _ = rec.WriteString("held")
		rec.Flush()
		if err := ctl.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		if _, _, err := ctl.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		_, _, err := http.Hijacker(rec).Hijack()
		if !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		if _, ok := any(rec).(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("the recorder can be unwrapped")
		}
		if outer.wrote != 0 || outer.flushed != 0 {
			t.Errorf("left early: %d writes, %d flushes", outer.wrote, outer.flushed)
		}
		for _, err := range []error{ctl.SetReadDeadline(time.Time{}), ctl.SetWriteDeadline(time.Time{}), ctl.EnableFullDuplex()} {
			if err != nil {
				t.Error(err)
			}
		}
		if outer.control != 3 {
			t.Errorf("%d of 3 controls reached the connection", outer.control)
		}
	})
	t.Run("[http/R15] shorter than declared is broken, longer is refused", func(t *testing.T) {
		rec := &recorder{outer: httptest.NewRecorder(), spools: newSpools(), limit: 1 << 20}
		defer rec.free()
		rec.begin()
		rec.Header().Set("Content-Length", "3")
		write(t, rec, []byte("ab"))
		if _, err := rec.Write([]byte("cd")); !errors.Is(err, http.ErrContentLength) {
			t.Errorf("over the declared length: %v", err)
		}
		if rec.end() {
			t.Error("two of three bytes count as whole")
		}
	})
	t.Run("[http/H15] a writer used after its handler has no effect", func(t *testing.T) {
		rec := &recorder{outer: httptest.NewRecorder(), spools: newSpools(), limit: 1 << 20}
		rec.begin()
		rec.end()
		rec.WriteHeader(500)
		if _, err := rec.Write([]byte("stray")); err == nil {
			t.Error("no error")
		}
		if err := rec.FlushError(); err == nil {
			t.Error("no error of Flush")
		}
		rec.free()
		if _, err := rec.Write([]byte("stray")); err == nil || rec.status != 200 {
			t.Errorf("after free: %v, status %d", err, rec.status)
		}
	})
}

// countingWriter counts what reaches the connection.
type countingWriter struct {
	*httptest.ResponseRecorder
	wrote, flushed, control int
}

func (c *countingWriter) WriteHeader(status int)      { c.wrote++; c.ResponseRecorder.WriteHeader(status) }
func (c *countingWriter) Write(p []byte) (int, error) { c.wrote++; return c.ResponseRecorder.Write(p) }
func (c *countingWriter) Flush()                      { c.flushed++; c.ResponseRecorder.Flush() }
func (c *countingWriter) SetReadDeadline(time.Time) error {
	c.control++
	return nil
}
func (c *countingWriter) SetWriteDeadline(time.Time) error {
	c.control++
	return nil
}
func (c *countingWriter) EnableFullDuplex() error {
	c.control++
	return nil
}

func TestRecorderOverItsLimit(t *testing.T) {
	t.Parallel()
	outer := httptest.NewRecorder()
	atomic := &recorder{outer: outer, spools: newSpools(), limit: 10}
	defer atomic.free()
	atomic.begin()
	write(t, atomic, []byte("0123456789"))
	if _, err := atomic.Write([]byte("x")); err == nil || !atomic.tooLarge {
		t.Errorf("atomic: %v, %v", err, atomic.tooLarge)
	}
	if outer.Body.Len() != 0 {
		t.Errorf("atomic: %q left", outer.Body)
	}

	outer = httptest.NewRecorder()
	leased := &recorder{outer: outer, spools: newSpools(), limit: 10, leased: true}
	defer leased.free()
	leased.begin()
	leased.WriteHeader(201)
	write(t, leased, []byte("0123456789"))
	if outer.Body.Len() != 0 {
		t.Errorf("leased: %q left before the limit", outer.Body)
	}
	write(t, leased, []byte("x"))
	if outer.Code != 201 || outer.Body.String() != "0123456789x" || outer.Header().Get(headerStatus) != "executed" {
		t.Errorf("leased: %d %q %v", outer.Code, outer.Body, outer.Header())
	}
}
