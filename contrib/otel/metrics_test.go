package idemotel_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/idempo/idempo"
	idemotel "github.com/idempo/idempo/contrib/otel"
)

func meter(t *testing.T, most int) (*idemotel.Observer, func() map[string]metricdata.Metrics) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	o, err := idemotel.New(idemotel.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), MaxOperations: most})
	if err != nil {
		t.Fatal(err)
	}
	return o, func() map[string]metricdata.Metrics {
		t.Helper()
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		all := map[string]metricdata.Metrics{}
		for _, s := range rm.ScopeMetrics {
			for _, m := range s.Metrics {
				all[m.Name] = m
			}
		}
		return all
	}
}

// sum adds the points of a counter that have all these attributes.
func sum(t *testing.T, m metricdata.Metrics, labels ...string) (n int64) {
	t.Helper()
	s, ok := m.Data.(metricdata.Sum[int64])
	if !ok {
		t.Fatalf("%s is %T", m.Name, m.Data)
	}
	for _, p := range s.DataPoints {
		all := true
		for i := 0; i < len(labels); i += 2 {
			v, has := p.Attributes.Value(attribute.Key(labels[i]))
			all = all && has && v.AsString() == labels[i+1]
		}
		if all {
			n += p.Value
		}
	}
	return n
}

func script(o *idemotel.Observer) {
	ctx := context.Background()
	for n, v := range []idempo.Verdict{"run", "replay", "in_progress", "mismatch", "in_doubt", "expired", ""} {
		for range n + 1 {
			o.Observe(ctx, idempo.Event{Kind: "begin", Operation: "pay", Surface: "http", Verdict: v, Age: time.Hour})
		}
	}
	for _, e := range []idempo.Event{
		{Kind: "complete", Operation: "pay", Surface: "http", Outcome: "completed"}, {Kind: "inflight", Operation: "pay", Count: 1}, {Kind: "waiting", Operation: "pay", Count: 1},
		{Kind: "waiting", Operation: "pay", Count: -1, Took: time.Second}, {Kind: "execute", Operation: "pay", Took: time.Second}, {Kind: "store", Op: "acquire", Took: time.Millisecond},
		{Kind: "store", Op: "acquire", Class: "unavailable"}, {Kind: "store", Op: "acquire", Class: "unavailable", Err: context.DeadlineExceeded}, {Kind: "store", Op: "acquire", Class: "lease_lost"},
		{Kind: "retry"}, {Kind: "renew_failed", Operation: "pay"}, {Kind: "lease_lost", Operation: "pay"}, {Kind: "fenced", Operation: "pay"}, {Kind: "settled", Outcome: "open"},
		{Kind: "resolve", Operation: "pay", Outcome: "completed"}, {Kind: "resolve", Operation: "pay", Outcome: "failed", Class: "operator"}, {Kind: "invalid_key", Operation: "pay", Class: "missing"},
		{Kind: "passthrough", Operation: "pay", Class: "fail_open"}, {Kind: "swept", Count: 7}, {Kind: "fresh_key", Operation: "pay", Count: 3}, {Kind: "of a later release"},
	} {
		o.Observe(ctx, e)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("each counter equals the scripted number", func(t *testing.T) {
		t.Parallel()
		o, collect := meter(t, 0)
		script(o)
		got := collect()
		want := func(n int64, name string, labels ...string) {
			t.Helper()
			if v := sum(t, got[name], labels...); v != n {
				t.Errorf("%s%v is %d, want %d", name, labels, v, n)
			}
		}
		want(28, "idempo.begin.total", "operation", "pay", "surface", "http")
		for n, v := range []string{"run", "replay", "in_progress", "mismatch", "in_doubt", "expired", "error"} {
			want(int64(n+1), "idempo.begin.total", "verdict", v)
		}
		want(2, "idempo.replay.total")
		want(18, "idempo.conflict.total")
		want(4, "idempo.conflict.total", "reason", "mismatch")
		want(1, "idempo.complete.total", "outcome", "completed")
		want(1, "idempo.inflight", "operation", "pay")
		want(0, "idempo.waiting", "operation", "pay")
		want(1, "idempo.store.errors.total", "op", "acquire", "class", "timeout")
		want(2, "idempo.store.errors.total")
		want(1, "idempo.resolution.total", "by", "operator", "outcome", "failed")
		want(1, "idempo.resolution.total", "by", "probe")
		want(7, "idempo.swept.rows.total")
		want(1, "idempo.fresh.key.repeat.total")
		h, ok := got["idempo.replay.age.seconds"].Data.(metricdata.Histogram[float64])
		if !ok || h.DataPoints[0].Count != 2 || h.DataPoints[0].Sum != 7200 || got["idempo.replay.age.seconds"].Unit != "s" {
			t.Errorf("%+v", got["idempo.replay.age.seconds"])
		}
	})
	t.Run("names are those of contrib/prometheus with dots, for all that an engine causes", func(t *testing.T) {
		t.Parallel()
		o, collect := meter(t, 0)
		script(o)
		golden, err := os.ReadFile("../prometheus/testdata/metrics.golden")
		if err != nil {
			t.Fatal(err)
		}
		var theirs []string
		for line := range strings.Lines(string(golden)) {
			theirs = append(theirs, strings.ReplaceAll(strings.Fields(line)[0], "_", "."))
		}
		got := collect()
		if len(got) != 21 {
			t.Errorf("%d metrics", len(got))
		}
		for name, m := range got {
			if !slices.Contains(theirs, name) || m.Description == "" {
				t.Errorf("%s: %q", name, m.Description)
			}
		}
	})
	t.Run("names without end do not make series without end", func(t *testing.T) {
		t.Parallel()
		o, collect := meter(t, 3)
		for i := range 1000 {
			name := fmt.Sprint("invented-", i)
			o.Observe(t.Context(), idempo.Event{Kind: "begin", Operation: name, Surface: name, Verdict: "run"})
			o.Observe(t.Context(), idempo.Event{Kind: "store", Op: name, Class: name})
			o.Observe(t.Context(), idempo.Event{Kind: "complete", Operation: name, Surface: name, Outcome: name})
		}
		for name, m := range collect() {
			if s, ok := m.Data.(metricdata.Sum[int64]); ok && len(s.DataPoints) > 4 {
				t.Errorf("%s has %d series", name, len(s.DataPoints))
			}
		}
	})
}

func TestCountingIsCheap(t *testing.T) {
	o, _ := meter(t, 0)
	ctx := context.Background()
	for _, e := range []idempo.Event{{Kind: "begin", Operation: "pay", Surface: "http", Verdict: "run"}, {Kind: "execute", Operation: "pay", Took: time.Second}, {Kind: "store", Op: "acquire", Took: time.Millisecond}} {
		o.Observe(ctx, e)
		if n := testing.AllocsPerRun(100, func() { o.Observe(ctx, e) }); n > 3 {
			t.Errorf("%s allocates %v times", e.Kind, n)
		}
	}
}
