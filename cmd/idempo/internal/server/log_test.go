package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/gateway"
)

func TestEqualErrorsAreHeldBack(t *testing.T) {
	t.Parallel()
	t.Run("[operations/M11] equal errors at most once a second, with a count of the suppressed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			log := slog.New(newQuiet(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}})))
			for range 5 {
				log.Error("store call failed", "op", "acquire", "key_ref", "k_1")
			}
			log.Error("store call failed", "op", "renew")
			log.With("op", "renew").Error("store call failed")
			log.Warn("not an error")
			log.Warn("not an error")
			time.Sleep(time.Second)
			log.Error("store call failed", "op", "acquire", "key_ref", "k_2")
			log.Error("store call failed", "op", "acquire")
			want := `level=ERROR msg="store call failed" op=acquire key_ref=k_1
level=ERROR msg="store call failed" op=renew
level=ERROR msg="store call failed" op=renew
level=WARN msg="not an error"
level=WARN msg="not an error"
level=ERROR msg="store call failed" op=acquire key_ref=k_2 suppressed=4
`
			if got := b.String(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	})
	t.Run("what is remembered is bounded", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(slog.DiscardHandler)
		for i := range 5 * maxHeld {
			q.state.pass(string(rune(i)), time.Now())
		}
		if n := len(q.state.seen); n > maxHeld {
			t.Errorf("%d entries", n)
		}
	})
}

func TestEventLog(t *testing.T) {
	t.Parallel()
	lines := func(ctx context.Context, events ...idempo.Event) (out []map[string]any) {
		var b bytes.Buffer
		l := eventLog{slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		for _, e := range events {
			l.Observe(ctx, e)
		}
		for line := range strings.Lines(b.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Error(err)
			}
			out = append(out, m)
		}
		return out
	}
	t.Run("[operations/M11] the level of each event", func(t *testing.T) {
		t.Parallel()
		level := func(want string, e idempo.Event) {
			t.Helper()
			got := lines(context.Background(), e)
			switch {
			case want == "" && len(got) == 0:
			case len(got) != 1 || got[0]["level"] != want:
				t.Errorf("%+v is logged as %v, want %s", e, got, want)
			}
		}
		for _, v := range []idempo.Verdict{"run", "replay", "in_progress"} {
			level("DEBUG", idempo.Event{Kind: "begin", Verdict: v})
		}
		level("INFO", idempo.Event{Kind: "begin", Verdict: idempo.VerdictMismatch})
		level("WARN", idempo.Event{Kind: "begin", Verdict: idempo.VerdictInDoubt})
		level("ERROR", idempo.Event{Kind: "begin", Class: "unavailable"})
		level("INFO", idempo.Event{Kind: "begin", Class: "quota_exceeded"})
		level("DEBUG", idempo.Event{Kind: "complete", Outcome: "completed"})
		level("WARN", idempo.Event{Kind: "complete", Outcome: "in_doubt"})
		level("INFO", idempo.Event{Kind: "resolve", Outcome: "completed"})
		level("WARN", idempo.Event{Kind: "renew_failed"})
		level("ERROR", idempo.Event{Kind: "lease_lost"})
		level("ERROR", idempo.Event{Kind: "fenced"})
		level("ERROR", idempo.Event{Kind: "store", Op: "acquire", Class: "unavailable"})
		level("WARN", idempo.Event{Kind: "passthrough", Class: "fail_open"})
		level("INFO", idempo.Event{Kind: "fresh_key", Count: 3})
		level("", idempo.Event{Kind: "fresh_key", Count: 4})
		level("", idempo.Event{Kind: "store", Op: "acquire"})
		level("", idempo.Event{Kind: "store", Op: "renew", Class: "lease_lost"})
		level("", idempo.Event{Kind: "inflight", Count: 1})
	})
	t.Run("[operations/M10] the fields", func(t *testing.T) {
		t.Parallel()
		ctx := context.WithValue(context.Background(), identityKey{}, identity{"req-1", "corr-1"})
		got := lines(ctx, idempo.Event{Kind: "complete", Operation: "pay", Surface: "http", KeyRef: "k_x", TenantRef: "t_x", Guard: idempo.GuardLeased, Outcome: "in_doubt", Attempt: 2,
			Took: 1500 * time.Microsecond, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Class: "unavailable",
			Err: &idempo.Error{Op: "complete", Code: "unavailable", KeyRef: "k_x"}})
		want := map[string]any{"key_ref": "k_x", "request_id": "req-1", "correlation_id": "corr-1", "operation": "pay", "tenant_ref": "t_x", "surface": "http", "guard": "leased", "state": "in_doubt",
			"attempt": 2.0, "duration_ms": 1.5, "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "error_code": "unavailable", "error": "complete k_x: the store is unavailable"}
		for name, v := range want {
			if got[0][name] != v {
				t.Errorf("%s is %v, want %v", name, got[0][name], v)
			}
		}
		if v := lines(ctx, idempo.Event{Kind: "begin", Verdict: "replay"})[0]["verdict"]; v != "replay" {
			t.Errorf("verdict %v", v)
		}
	})
	t.Run("[security/SEC74] the text of a foreign error is not logged", func(t *testing.T) {
		t.Parallel()
		got := lines(context.Background(), idempo.Event{Kind: "store", Op: "acquire", Class: "other", Err: errors.New("duplicate key value (canary)")})
		if got[0]["error"] != nil || got[0]["error_code"] != "other" {
			t.Error(got)
		}
	})
	t.Run("what a gateway met", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		log := slog.New(slog.NewTextHandler(&b, nil))
		gatewayLog(log, gateway.Event{Class: gateway.ClassAnswered})
		gatewayLog(log, gateway.Event{Class: gateway.ClassUnknown, Operation: "pay"})
		gatewayLog(log, gateway.Event{Upstream: "bank", Breaker: "open"})
		if strings.Count(b.String(), "\n") != 2 || !strings.Contains(b.String(), "upstream=bank state=open") || strings.Count(b.String(), "level=WARN") != 2 {
			t.Error(b.String())
		}
	})
}

func TestIdentified(t *testing.T) {
	t.Parallel()
	t.Run("[operations/M10] request and correlation ids: kept if valid, else made; sent up and back", func(t *testing.T) {
		t.Parallel()
		try := func(request, correlation string) (up, back [2]string) {
			r := httptest.NewRequest("POST", "/", nil)
			if request != "" {
				r.Header.Set("X-Request-Id", request)
			}
			if correlation != "" {
				r.Header.Set("X-Correlation-Id", correlation)
			}
			w := httptest.NewRecorder()
			identified(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				up = [2]string{r.Header.Get("X-Request-Id"), r.Header.Get("X-Correlation-Id")}
				if id, _ := r.Context().Value(identityKey{}).(identity); id != (identity{up[0], up[1]}) {
					t.Errorf("logged as %v", id)
				}
			})).ServeHTTP(w, r)
			return up, [2]string{w.Header().Get("X-Request-Id"), w.Header().Get("X-Correlation-Id")}
		}
		if up, back := try("req-1", "corr-1"); up != [2]string{"req-1", "corr-1"} || back != up {
			t.Error(up, back)
		}
		if up, back := try("req-1", ""); up != [2]string{"req-1", "req-1"} || back != up {
			t.Error(up, back)
		}
		for _, bad := range []string{"", "with space", "ünï", strings.Repeat("x", 129), "a\x7f"} {
			up, back := try(bad, bad)
			if up[0] == bad || len(up[0]) < 20 || up[1] != up[0] || back != up {
				t.Errorf("%q becomes %v %v", bad, up, back)
			}
		}
		if up, _ := try(strings.Repeat("x", 128), ""); up[0] != strings.Repeat("x", 128) {
			t.Error(up)
		}
	})
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 48210: "48,210", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
