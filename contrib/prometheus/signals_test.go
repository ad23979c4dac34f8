package idemprometheus_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/idempo/idempo"
	idemprometheus "github.com/idempo/idempo/contrib/prometheus"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/webhook"
)

// found is a store of which a survey is known.
type found struct {
	survey operator.Survey
	known  bool
	runs   map[string]time.Duration
}

func (f found) Survey() (operator.Survey, bool)     { return f.survey, f.known }
func (f found) OldestRun() map[string]time.Duration { return f.runs }

func someStore() found {
	return found{known: true, runs: map[string]time.Duration{"pay": 4 * time.Minute}, survey: operator.Survey{
		States:     []operator.SurveyedState{{State: "in_doubt", Records: 3}, {State: "of a later release", Records: 1}},
		Operations: []operator.SurveyedOperation{{Name: "pay", InDoubt: 3, Doubt: 90 * time.Second, Pending: time.Minute}},
		Weighed:    true, Bytes: 4096, Overdue: time.Minute}}
}

// more is what happens beside the engine.
func more(m *idemprometheus.Metrics) {
	ctx := context.Background()
	m.Observe(ctx, idempo.Event{Kind: "resolve", Operation: "pay", Outcome: "completed", Class: "operator"})
	m.Observe(ctx, idempo.Event{Kind: "fresh_key", Operation: "pay", Count: 3})
	m.Observe(ctx, idempo.Event{Kind: "fresh_key", Operation: "pay", Count: 4})
	m.Observe(ctx, idempo.Event{Kind: "execute", Operation: "ship"})
	m.CountAction(operator.ActionResolve, operator.OutcomeDone)
	m.CountAction(operator.ActionPurge, operator.OutcomeRefused)
	m.CountAction("made up", "made up")
	m.ShowStore(someStore(), func() int { return 4 })
	m.ShowOperations(func() []idempo.Operation { return []idempo.Operation{{Name: "pay", Retention: 24 * time.Hour}} })
	hooks := m.Webhooks()
	hooks.Observe(ctx, webhook.Observation{Source: "stripe", Outcome: "stored", Secret: "new", Took: time.Millisecond})
	hooks.Observe(ctx, webhook.Observation{Source: "stripe", Outcome: "stored", Secret: "new", Took: time.Millisecond})
	hooks.Observe(ctx, webhook.Observation{Source: "stripe", Outcome: "refused", Reason: "signature", Took: time.Millisecond})
	hooks.Observe(ctx, webhook.Observation{Outcome: "refused", Reason: "source"})
	var box outbox.Observer = m
	for _, o := range []outbox.Observation{
		{Kind: "published", Outcome: "acked", Count: 5, Took: time.Millisecond, Age: time.Second}, {Kind: "published", Outcome: "made up", Count: 1},
		{Kind: "republished", Count: 2}, {Kind: "window_exceeded", Count: 1}, {Kind: "owned", Count: 8}, {Kind: "blocked", Count: 4}, {Kind: "of a later release"},
		{Kind: "status", Status: &outbox.GroupStatus{Pending: 12, Dead: 1, NoRoute: 2, BlockedKeys: 3, Oldest: 30 * time.Second},
			Log: &outbox.Status{Bytes: 8192, Holders: []outbox.Holder{{Kind: "session", Age: 700 * time.Second}}}},
	} {
		o.Group = "main"
		box.ObserveOutbox(ctx, o)
	}
}

func TestStoreGauges(t *testing.T) {
	t.Parallel()
	t.Run("[operations/M4] two processes over one store show the same, and counters their own", func(t *testing.T) {
		t.Parallel()
		s := memstore.New(memstore.Options{})
		var shown []string
		for i := range 2 {
			meter := operator.NewMeter(operator.MeterConfig{Store: s})
			m := idemprometheus.New(idemprometheus.Config{})
			m.ShowStore(meter, nil)
			p := idempo.AcquireParams{Key: idempo.Key{Tenant: "acme", Operation: "pay", ID: strings.Repeat(string(rune('a'+i)), 32)}, Hash: []byte("h"), Recipe: "r",
				Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashHold, Token: idempo.Token{byte(i + 1)}, Lease: time.Minute, Surface: "http"}
			if _, err := s.Acquire(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Release(t.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt}); err != nil {
				t.Fatal(err)
			}
			m.Observe(t.Context(), idempo.Event{Kind: "begin", Operation: "pay", Surface: "http", Verdict: "run"})
			if err := meter.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(scrape(t, m, "")) {
				if strings.HasPrefix(line, "idempo_in_doubt") || strings.HasPrefix(line, "idempo_records") || strings.HasPrefix(line, "idempo_stored") || strings.HasPrefix(line, "idempo_purge_lag") {
					lines = append(lines, line)
				}
			}
			shown = append(shown, strings.Join(lines, ""))
			wantSamples(t, m, map[string]string{`idempo_begin_total{operation="pay",surface="http",verdict="run"}`: "1", `idempo_in_doubt{operation="pay"}`: "1"})
		}
		if shown[0] != shown[1] || strings.Count(shown[0], "\n") != 10 {
			t.Errorf("one shows\n%s\nthe other\n%s", shown[0], shown[1])
		}
	})
	t.Run("[operations/M5] a store that is not known shows no gauges, and a scrape answers", func(t *testing.T) {
		t.Parallel()
		m := idemprometheus.New(idemprometheus.Config{})
		f := someStore()
		f.known = false
		m.ShowStore(f, nil)
		wantSamples(t, m, map[string]string{`idempo_in_doubt{operation="pay"}`: "absent", `idempo_stored_bytes`: "absent", `idempo_purge_lag_seconds`: "absent",
			`idempo_pending_oldest_seconds{operation="pay"}`: "240", `idempo_dashboard_clients`: "absent"})
	})
	t.Run("a survey of names without end does not make series without end", func(t *testing.T) {
		t.Parallel()
		m := idemprometheus.New(idemprometheus.Config{MaxOperations: 2})
		f := someStore()
		f.survey.Operations = nil
		for i := range 100 {
			f.survey.Operations = append(f.survey.Operations, operator.SurveyedOperation{Name: "op" + strings.Repeat("x", i), InDoubt: 1})
		}
		m.ShowStore(f, nil)
		text := scrape(t, m, "")
		if n := strings.Count(text, "idempo_in_doubt{"); n != 3 || value(t, text, `idempo_in_doubt{operation="_other"}`) != "98" {
			t.Errorf("%d series\n%s", n, text)
		}
		if n := testutil.CollectAndCount(m); n > 40 {
			t.Errorf("%d series", n)
		}
	})
}
