package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

func TestHeadersThatAreNeverKept(t *testing.T) {
	t.Parallel()
	rules := newHeaderRules([]string{"x-internal"}, nil, "X-Again")
	never := []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Date", "Age", "Via", "Server", "Set-Cookie", "Set-Cookie2", "Cookie", "Authorization",
		"WWW-Authenticate", "Authentication-Info", "Clear-Site-Data", "Access-Control-Allow-Origin", "Vary", "Alt-Svc",
		"Server-Timing", "Strict-Transport-Security", "RateLimit", "RateLimit-Remaining", "X-RateLimit-Limit", "Traceparent",
		"Tracestate", "Baggage", "X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "X-B3-TraceId", "Idempo-Outcome",
		"Idempotent-Replayed", "X-Again", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Key-Next",
		"Cache-Control", "X-Internal", "X-Hop"}
	for _, name := range never {
		answer := http.Header{}
		answer[name] = []string{"one", "two"}
		answer.Set("X-Kept", "yes")
		answer["connection"] = []string{"close, x-hop"}
		pairs, _, _ := rules.kept(answer, nil, nil)
		if !slices.Equal(pairs, [][2]string{{"X-Kept", "yes"}}) {
			t.Errorf("%s: kept %v", name, pairs)
		}
		if name == "X-Hop" {
			continue // only by name of the answer's own Connection
		}
		dst := http.Header{}
		rules.replayInto(dst, [][2]string{{name, "from a changed row"}, {"X-Kept", "yes"}})
		if len(dst) != 1 || dst.Get("X-Kept") != "yes" {
			t.Errorf("%s: replayed %v", name, dst)
		}
	}
}

func TestKeepHeadersKeepsOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	rules := newHeaderRules(nil, []string{"location", "set-cookie"}, headerReplayed)
	answer := http.Header{"Location": {"/1"}, "Set-Cookie": {"a=b"}, "X-Other": {"x"}}
	if pairs, _, _ := rules.kept(answer, nil, nil); !slices.Equal(pairs, [][2]string{{"Location", "/1"}}) {
		t.Errorf("kept %v", pairs)
	}
}

func TestHeaderLinesThatCouldSplit(t *testing.T) {
	t.Parallel()
	rules := newHeaderRules(nil, nil, headerReplayed)
	bad := [][2]string{{"X-A", "a\r\nSet-Cookie: x"}, {"X-B", "a\nb"}, {"X-C", "a\x00b"}, {"X D", "v"}, {"X:E", "v"}, {"", "v"}}
	for _, pair := range bad {
		pairs, _, refused := rules.kept(http.Header{pair[0]: {pair[1]}}, nil, nil)
		if len(pairs) != 0 || refused != 1 {
			t.Errorf("%q: kept %v, refused %d", pair, pairs, refused)
		}
		dst := http.Header{}
		rules.replayInto(dst, [][2]string{pair})
		if len(dst) != 0 {
			t.Errorf("%q: replayed %v", pair, dst)
		}
	}
}

func TestReplayedHeadersYieldToThoseOfThisRequest(t *testing.T) {
	t.Parallel()
	rules := newHeaderRules(nil, nil, headerReplayed)
	outer := http.Header{"X-Frame-Options": {"DENY"}}
	answer := http.Header{"X-Frame-Options": {"SAMEORIGIN"}, "Link": {"<a>", "<b>, <c>"}}
	pairs, size, _ := rules.kept(answer, outer, http.Header{"Grpc-Status": {"0"}})
	want := [][2]string{{"Link", "<a>"}, {"Link", "<b>, <c>"}, {"X-Frame-Options", "SAMEORIGIN"}, {http.TrailerPrefix + "Grpc-Status", "0"}}
	if !slices.Equal(pairs, want) || size == 0 {
		t.Fatalf("kept %v, %d bytes", pairs, size)
	}
	dst := outer.Clone()
	trailer := rules.replayInto(dst, pairs)
	if !slices.Equal(dst["X-Frame-Options"], []string{"DENY"}) || !slices.Equal(dst["Link"], []string{"<a>", "<b>, <c>"}) {
		t.Errorf("replayed %v", dst)
	}
	if trailer.Get("Grpc-Status") != "0" || dst.Get("Grpc-Status") != "" {
		t.Errorf("trailer %v, header %v", trailer, dst)
	}
	unchanged, _, _ := rules.kept(outer.Clone(), outer, nil)
	if len(unchanged) != 0 {
		t.Errorf("kept what was set outside: %v", unchanged)
	}
}

func TestOwnRequestHeadersAreRemovedFromACopy(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/", nil)
	r.Header["idempo-outcome"] = []string{"keep"}
	r.Header.Set("Idempotency-Status", "executed")
	r.Header.Set("X-Again", "true")
	r.Header.Set("Idempotency-Key", "a")
	got := withoutOwnHeaders(r, "X-Again")
	if len(got.Header) != 1 || got.Header.Get("Idempotency-Key") != "a" {
		t.Errorf("left %v", got.Header)
	}
	if len(r.Header) != 4 {
		t.Errorf("the caller's request was changed: %v", r.Header)
	}
	if again := withoutOwnHeaders(got, "X-Again"); again != got {
		t.Error("a clean request was copied")
	}
}
