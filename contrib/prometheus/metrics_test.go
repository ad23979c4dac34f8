package idemprometheus_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/idempo/idempo"
	idemprometheus "github.com/idempo/idempo/contrib/prometheus"
	"github.com/idempo/idempo/gateway"
)

var update = flag.Bool("update", false, "rewrite golden files")

func scrape(t *testing.T, m http.Handler, accept string) string {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// value returns the sample of a series as the scrape shows it.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return rest
		}
	}
	return "absent"
}

func wantSamples(t *testing.T, m http.Handler, want map[string]string) {
	t.Helper()
	text := scrape(t, m, "")
	for series, v := range want {
		if got := value(t, text, series); got != v {
			t.Errorf("%s is %s, want %s", series, got, v)
		}
	}
}

// script causes every event once per entry.
func script(m *idemprometheus.Metrics) {
	ctx := context.Background()
	for _, surface := range []string{"http", "run"} {
		for n, v := range []idempo.Verdict{"run", "replay", "in_progress", "mismatch", "in_doubt", "expired", ""} {
			for range n + 1 {
				e := idempo.Event{Kind: "begin", Operation: "pay", Surface: surface, Verdict: v}
				switch v {
				case "replay":
					e.Age, e.Trace = 90*time.Second, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
				case "":
					e.Class = "unavailable"
				}
				m.Observe(ctx, e)
			}
		}
		for n, o := range []string{"completed", "completed_failing", "failed", "in_doubt", "lost"} {
			for range n + 1 {
				m.Observe(ctx, idempo.Event{Kind: "complete", Operation: "pay", Surface: surface, Outcome: o})
			}
		}
	}
	for _, e := range []idempo.Event{
		{Kind: "inflight", Operation: "pay", Count: 1}, {Kind: "inflight", Operation: "pay", Count: 1}, {Kind: "inflight", Operation: "pay", Count: -1},
		{Kind: "waiting", Operation: "pay", Count: 1}, {Kind: "waiting", Operation: "pay", Count: -1, Took: 2 * time.Second},
		{Kind: "execute", Operation: "pay", Took: 30 * time.Millisecond},
		{Kind: "renew_failed", Operation: "pay"}, {Kind: "lease_lost", Operation: "pay"}, {Kind: "fenced", Operation: "pay"},
		{Kind: "settled", Outcome: "committed"}, {Kind: "settled", Outcome: "rolled_back"}, {Kind: "settled", Outcome: "open"},
		{Kind: "resolve", Operation: "pay", Outcome: "completed"}, {Kind: "resolve", Operation: "pay", Outcome: "failed"}, {Kind: "resolve", Operation: "pay", Outcome: "in_doubt"},
		{Kind: "store", Op: "acquire", Took: time.Millisecond},
		{Kind: "store", Op: "acquire", Took: time.Second, Class: "unavailable", Err: errors.New("x")},
		{Kind: "store", Op: "acquire", Took: time.Second, Class: "unavailable", Err: context.DeadlineExceeded},
		{Kind: "store", Op: "renew", Took: time.Second, Class: "lease_lost"},
		{Kind: "store", Op: "complete", Took: time.Second, Class: "record_unreadable"},
		{Kind: "retry", Class: "tx_conflict", Err: sqlState("40P01")}, {Kind: "retry", Class: "tx_conflict", Err: sqlState("40001")},
		{Kind: "retry", Class: "tx_conflict", Err: errors.New("database is busy")},
		{Kind: "swept", Count: 7}, {Kind: "of a later release", Operation: "pay"},
		{Kind: "invalid_key", Operation: "pay", Class: "malformed"}, {Kind: "passthrough", Operation: "pay", Class: "fail_open"},
	} {
		m.Observe(ctx, e)
	}
	m.InvalidKey("pay", "missing")
	m.Passthrough("pay", "declared")
	for _, c := range []gateway.Class{gateway.ClassAnswered, gateway.ClassNotSent, gateway.ClassUnknown, gateway.ClassUnknown} {
		m.ObserveGateway(gateway.Event{Operation: "pay", Upstream: "bank", Class: c, Took: time.Second})
	}
	m.ObserveGateway(gateway.Event{Upstream: "bank", Breaker: "open"})
	m.ObserveGateway(gateway.Event{Upstream: "shop", Breaker: "open"})
	m.ObserveGateway(gateway.Event{Upstream: "shop", Breaker: "half_open"})
	m.CountReload("ok")
	m.CountReload("made up")
	more(m)
}

type sqlState string

func (s sqlState) Error() string    { return "gave up" }
func (s sqlState) SQLState() string { return string(s) }

func TestEveryEventIsCounted(t *testing.T) {
	t.Parallel()
	m := idemprometheus.New(idemprometheus.Config{Version: "v1", Revision: "abc"})
	script(m)
	t.Run("[operations/M1] each counter equals the scripted number; begin = run + replay + conflicts + errors", func(t *testing.T) {
		want := map[string]string{
			`idempo_inflight{operation="pay"}`:                                           "1",
			`idempo_waiting{operation="pay"}`:                                            "0",
			`idempo_wait_seconds_count{operation="pay"}`:                                 "1",
			`idempo_wait_seconds_sum{operation="pay"}`:                                   "2",
			`idempo_execution_seconds_bucket{operation="pay",le="0.025"}`:                "0",
			`idempo_execution_seconds_bucket{operation="pay",le="0.05"}`:                 "1",
			`idempo_replay_age_seconds_bucket{operation="pay",le="60"}`:                  "0",
			`idempo_replay_age_seconds_bucket{operation="pay",le="300"}`:                 "4",
			`idempo_lease_renew_failures_total{operation="pay"}`:                         "1",
			`idempo_lease_lost_total{operation="pay"}`:                                   "1",
			`idempo_fenced_writes_total{operation="pay"}`:                                "1",
			`idempo_commit_unanswered_total{settled="committed"}`:                        "1",
			`idempo_commit_unanswered_total{settled="rolled_back"}`:                      "1",
			`idempo_commit_unanswered_total{settled="open"}`:                             "1",
			`idempo_resolution_total{by="probe",operation="pay",outcome="completed"}`:    "1",
			`idempo_resolution_total{by="probe",operation="pay",outcome="failed"}`:       "1",
			`idempo_resolution_total{by="probe",operation="pay",outcome="in_doubt"}`:     "absent",
			`idempo_store_seconds_count{op="acquire"}`:                                   "3",
			`idempo_store_errors_total{class="unavailable",op="acquire"}`:                "1",
			`idempo_store_errors_total{class="timeout",op="acquire"}`:                    "1",
			`idempo_store_errors_total{class="other",op="complete"}`:                     "1",
			`idempo_store_errors_total{class="other",op="renew"}`:                        "absent",
			`idempo_store_retries_total{cause="deadlock",op="tx"}`:                       "1",
			`idempo_store_retries_total{cause="serialization",op="tx"}`:                  "1",
			`idempo_store_retries_total{cause="busy",op="tx"}`:                           "1",
			`idempo_invalid_key_total{operation="pay",reason="missing"}`:                 "1",
			`idempo_invalid_key_total{operation="pay",reason="malformed"}`:               "1",
			`idempo_passthrough_total{operation="pay",reason="declared"}`:                "1",
			`idempo_passthrough_total{operation="pay",reason="fail_open"}`:               "1",
			`idempo_gateway_upstream_total{class="answered",operation="pay"}`:            "1",
			`idempo_gateway_upstream_total{class="not_sent",operation="pay"}`:            "1",
			`idempo_gateway_upstream_total{class="sent_unknown",operation="pay"}`:        "2",
			`idempo_gateway_upstream_seconds_count{operation="pay"}`:                     "4",
			`idempo_breaker_open{client="bank"}`:                                         "1",
			`idempo_config_reload_total{outcome="ok"}`:                                   "1",
			`idempo_breaker_open{client="shop"}`:                                         "0",
			`idempo_swept_rows_total`:                                                    "7",
			`idempo_resolution_total{by="operator",operation="pay",outcome="completed"}`: "1",
			`idempo_fresh_key_repeat_total{operation="pay"}`:                             "2",
			`idempo_audit_total{action="resolve",outcome="done"}`:                        "1",
			`idempo_audit_total{action="purge",outcome="refused"}`:                       "1",
			`idempo_audit_total{action="_other",outcome="refused"}`:                      "1",
			`idempo_in_doubt{operation="pay"}`:                                           "3",
			`idempo_in_doubt_oldest_seconds{operation="pay"}`:                            "90",
			`idempo_pending_oldest_seconds{operation="pay"}`:                             "240",
			`idempo_in_doubt{operation="ship"}`:                                          "0",
			`idempo_records{state="in_doubt"}`:                                           "3",
			`idempo_stored_bytes`:                                                        "4096",
			`idempo_purge_lag_seconds`:                                                   "60",
			`idempo_retention_seconds{operation="pay"}`:                                  "86400",
			`idempo_dashboard_clients`:                                                   "4",
			`idempo_webhook_requests_total{outcome="stored",source="stripe"}`:            "2",
			`idempo_webhook_requests_total{outcome="refused",source="stripe"}`:           "1",
			`idempo_webhook_requests_total{outcome="refused",source="_other"}`:           "1",
			`idempo_webhook_refused_total{reason="signature",source="stripe"}`:           "1",
			`idempo_webhook_secret_used_total{secret="new",source="stripe"}`:             "2",
			`idempo_webhook_answer_seconds_count{source="stripe"}`:                       "3",
			`idempo_outbox_published_total{group="main",outcome="acked"}`:                "5",
			`idempo_outbox_published_total{group="main",outcome="_other"}`:               "1",
			`idempo_outbox_republished_total{group="main"}`:                              "2",
			`idempo_outbox_window_exceeded_total{group="main"}`:                          "1",
			`idempo_outbox_partitions_owned{group="main"}`:                               "8",
			`idempo_outbox_pending{group="main"}`:                                        "12",
			`idempo_outbox_dead{group="main"}`:                                           "1",
			`idempo_outbox_noroute{group="main"}`:                                        "2",
			`idempo_outbox_oldest_seconds{group="main"}`:                                 "30",
			`idempo_outbox_blocked_keys{group="main"}`:                                   "3",
			`idempo_outbox_horizon_seconds{group="main",holder="session"}`:               "700",
			`idempo_outbox_horizon_seconds{group="main",holder="slot"}`:                  "0",
			`idempo_outbox_retained_bytes`:                                               "8192",
			`idempo_outbox_commit_to_publish_seconds_count{group="main"}`:                "1",
		}
		for _, surface := range []string{"http", "run"} {
			for n, v := range []string{"run", "replay", "in_progress", "mismatch", "in_doubt", "expired", "error"} {
				count := fmt.Sprint(n + 1)
				want[fmt.Sprintf(`idempo_begin_total{operation="pay",surface=%q,verdict=%q}`, surface, v)] = count
				if n >= 2 && n <= 5 {
					want[fmt.Sprintf(`idempo_conflict_total{operation="pay",reason=%q,surface=%q}`, v, surface)] = count
				}
			}
			want[fmt.Sprintf(`idempo_replay_total{operation="pay",surface=%q}`, surface)] = "2"
			for n, o := range []string{"completed", "completed_failing", "failed", "in_doubt", "lost"} {
				want[fmt.Sprintf(`idempo_complete_total{operation="pay",outcome=%q,surface=%q}`, o, surface)] = fmt.Sprint(n + 1)
			}
		}
		wantSamples(t, m, want)
	})
	t.Run("[operations/M2] valid text format, base units, HELP and TYPE for each; OpenMetrics with exemplars", func(t *testing.T) {
		problems, err := promlint.New(strings.NewReader(scrape(t, m, ""))).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", err, problems)
		}
		open := scrape(t, m, "application/openmetrics-text")
		if !strings.HasSuffix(open, "# EOF\n") || !strings.Contains(open, `# {trace_id="0af7651916cd43dd8448eb211c80319c"} 1.0`) {
			t.Error("no OpenMetrics, or no exemplar:\n" + open)
		}
	})
	t.Run("names and labels are public", func(t *testing.T) {
		families, err := registry(m).Gather()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, f := range families {
			labels := map[string]bool{}
			for _, s := range f.Metric {
				for _, l := range s.Label {
					labels[l.GetName()] = true
				}
			}
			names := slices.Sorted(func(yield func(string) bool) {
				for n := range labels {
					if !yield(n) {
						return
					}
				}
			})
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s %s", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(names, " ")), " "))
		}
		got := strings.Join(lines, "\n") + "\n"
		const file = "testdata/metrics.golden"
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("%v\n%s", err, got)
		}
	})
}

func registry(m *idemprometheus.Metrics) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	return r
}

func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	t.Run("[operations/M3] [security/SEC49] names without end do not make series without end", func(t *testing.T) {
		t.Parallel()
		m := idemprometheus.New(idemprometheus.Config{MaxOperations: 3})
		flood := func(n int) {
			for i := range n {
				name := fmt.Sprintf("invented-%d", i)
				m.Observe(t.Context(), idempo.Event{Kind: "begin", Operation: name, Surface: name, Verdict: "run"})
				m.Observe(t.Context(), idempo.Event{Kind: "complete", Operation: name, Surface: name, Outcome: name})
				m.Observe(t.Context(), idempo.Event{Kind: "execute", Operation: name})
				m.Observe(t.Context(), idempo.Event{Kind: "store", Op: name, Class: name})
				m.Observe(t.Context(), idempo.Event{Kind: "settled", Outcome: name})
				m.Observe(t.Context(), idempo.Event{Kind: "resolve", Operation: name, Outcome: name})
				m.Observe(t.Context(), idempo.Event{Kind: "retry", Class: name, Err: sqlState(name)})
				m.Observe(t.Context(), idempo.Event{Kind: "invalid_key", Operation: name, Class: name})
				m.Passthrough(name, name)
				m.ObserveGateway(gateway.Event{Operation: name, Class: gateway.Class(name)})
			}
		}
		flood(10)
		few := testutil.CollectAndCount(m)
		flood(5000)
		if many := testutil.CollectAndCount(m); many != few {
			t.Errorf("%d series after 10 names, %d after 5,000", few, many)
		}
		text := scrape(t, m, "")
		if v := value(t, text, `idempo_begin_total{operation="_other",surface="_other",verdict="run"}`); v != "5004" {
			t.Errorf("_other counts %s: the three names that came first have series of their own", v)
		}
		if strings.Contains(text, "invented-3") {
			t.Error("a fourth name is a label")
		}
	})
}

func TestCountingIsCheap(t *testing.T) {
	m := idemprometheus.New(idemprometheus.Config{})
	events := []idempo.Event{
		{Kind: "begin", Operation: "pay", Surface: "http", Verdict: "run"}, {Kind: "begin", Operation: "pay", Surface: "http", Verdict: "replay", Age: time.Hour},
		{Kind: "inflight", Operation: "pay", Count: 1}, {Kind: "inflight", Operation: "pay", Count: -1}, {Kind: "execute", Operation: "pay", Took: time.Second},
		{Kind: "store", Op: "acquire", Took: time.Millisecond}, {Kind: "complete", Operation: "pay", Surface: "http", Outcome: "completed"},
	}
	ctx := context.Background()
	for _, e := range events {
		m.Observe(ctx, e)
		if n := testing.AllocsPerRun(100, func() { m.Observe(ctx, e) }); n > 0 {
			t.Errorf("%s %s allocates %v times", e.Kind, e.Verdict, n)
		}
	}
}

func TestScrape(t *testing.T) {
	t.Parallel()
	t.Run("over HTTP, with the metrics of the process", func(t *testing.T) {
		t.Parallel()
		m := idemprometheus.New(idemprometheus.Config{Process: true})
		script(m)
		srv := httptest.NewServer(m)
		defer srv.Close()
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(b), "go_goroutines") || !strings.Contains(string(b), "idempo_build_info") {
			t.Errorf("%v\n%s", err, b)
		}
	})
}

func ExampleNew() {
	m := idemprometheus.New(idemprometheus.Config{})
	m.Observe(context.Background(), idempo.Event{Kind: "begin", Operation: "create-payment", Surface: "http", Verdict: idempo.VerdictReplay})
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "idempo_replay_total") {
			fmt.Print(line)
		}
	}
	// Output: idempo_replay_total{operation="create-payment",surface="http"} 1
}
