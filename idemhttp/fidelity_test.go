package idemhttp

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// guarded wraps each handler into an operation of its own.
func guarded(t *testing.T, guard idempo.Guard) func(http.Handler) http.Handler {
	t.Helper()
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	must(t, err)
	m, err := New(engine, Config{GlobalTenant: true})
	must(t, err)
	n := 0
	return func(next http.Handler) http.Handler {
		n++
		h, err := m.Wrap(idempo.Operation{Name: "op-" + string(rune('a'+n/26)) + string(rune('a'+n%26)), Guard: guard}, Rules{}, next)
		must(t, err)
		return h
	}
}

// kept is what of an answer's headers a replay must repeat.
func keptOf(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		if !neverKept(name) {
			out[name] = values
		}
	}
	return out
}

func TestReplayFidelity(t *testing.T) {
	t.Parallel()
	t.Run("[http/R1, R2, R3, R4, R5, R9] the first answer is the bare one, and the replay is the first", func(t *testing.T) {
		for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
			wrap := guarded(t, guard)
			mux := http.NewServeMux()
			for _, c := range answerCases() {
				path := "/" + strings.ReplaceAll(c.name, " ", "-")
				mux.Handle("/bare"+path, c.serve)
				mux.Handle("/guarded"+path, wrap(c.serve))
			}
			for proto, client := range serveBoth(t, mux) {
				for _, c := range answerCases() {
					path := "/" + strings.ReplaceAll(c.name, " ", "-")
					ask := func(side string, headers ...string) wireAnswer {
						r, err := http.NewRequestWithContext(t.Context(), "POST", client.base+side+path, nil)
						must(t, err)
						r.Header.Set("Idempotency-Key", proto)
						for i := 0; i < len(headers); i += 2 {
							r.Header.Set(headers[i], headers[i+1])
						}
						return fetchAnswer(t, client.Client, r)
					}
					bare, first := ask("/bare"), ask("/guarded")
					again := ask("/guarded", "Range", "bytes=0-1", "If-None-Match", "*", "If-Modified-Since", "Sun, 06 Nov 2094 08:49:37 GMT")
					if first.Header.Get(headerStatus) != "executed" || again.Header.Get(headerStatus) != "replayed" {
						t.Errorf("%s, %s, %s: %q, then %q", c.name, proto, guard, first.Header.Get(headerStatus), again.Header.Get(headerStatus))
					}
					for _, own := range []string{headerStatus, headerExpires, headerReplayed} {
						first.Header.Del(own)
					}
					if !reflect.DeepEqual(bare, first) {
						t.Errorf("%s, %s, %s:\nbare  %.300v\nfirst %.300v", c.name, proto, guard, bare, first)
					}
					first.Header, again.Header = keptOf(first.Header), keptOf(again.Header)
					if !reflect.DeepEqual(first, again) {
						t.Errorf("%s, %s, %s:\nfirst  %.300v\nreplay %.300v", c.name, proto, guard, first, again)
					}
					if c.trailer && len(again.Trailer) == 0 {
						t.Errorf("%s, %s: no trailer on the replay", c.name, proto)
					}
				}
			}
		}
	})
	t.Run("[http/R12, R13] the first answer is never filtered; the replay drops the deny list, and headers of this request win", func(t *testing.T) {
		wrap := guarded(t, idempo.GuardAtomic)
		h := outerHeaders(wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Add("Set-Cookie", "a=1")
			h.Add("Set-Cookie", "b=2")
			h.Set("X-Request-Id", "r1")
			h.Set("Cache-Control", "max-age=60")
			h.Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
			h.Set("X-Outer-Changed", "by the handler")
			h.Del("X-Outer-Removed")
			h.Add("X-Outer-Added", "second")
			h.Set("X-Own", "1")
			h["x-lower"] = []string{"as written"}
			_, _ = w.Write([]byte("body"))
		})))
		client := serveBoth(t, h)["HTTP/1.1"]
		ask := func() wireAnswer {
			r, err := http.NewRequestWithContext(t.Context(), "POST", client.base, nil)
			must(t, err)
			r.Header.Set("Idempotency-Key", "k")
			res, err := client.Do(r)
			must(t, err)
			defer res.Body.Close()
			return wireAnswer{Status: res.StatusCode, Header: res.Header}
		}
		first, again := ask().Header, ask().Header
		want := func(got http.Header, name string, values ...string) {
			t.Helper()
			if !reflect.DeepEqual(got.Values(name), values) && len(got.Values(name))+len(values) > 0 {
				t.Errorf("%s: %q, want %q", name, got.Values(name), values)
			}
		}
		want(first, "Set-Cookie", "a=1", "b=2")
		want(first, "X-Request-Id", "r1")
		want(first, "Cache-Control", "max-age=60")
		want(first, "Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		want(first, "X-Outer-Changed", "by the handler")
		want(first, "X-Outer-Removed")
		want(first, "X-Outer-Added", "outer", "second")
		want(again, "Set-Cookie")
		want(again, "X-Request-Id")
		want(again, "Cache-Control", "no-store")
		want(again, "X-Outer-Changed", "outer")
		want(again, "X-Outer-Removed", "outer")
		want(again, "X-Outer-Added", "outer")
		want(again, "X-Outer-Kept", "outer")
		want(again, "X-Own", "1")
		want(again, "X-Lower", "as written")
		want(again, "Content-Length", "4")
		if again.Get("Date") == first.Get("Date") || again.Get("Date") == "" {
			t.Errorf("Date %q", again.Get("Date"))
		}
	})
}
