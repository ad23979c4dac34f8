package main

import (
	"context"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/idempo/idempo"
	idemotel "github.com/idempo/idempo/contrib/otel"
	idemprometheus "github.com/idempo/idempo/contrib/prometheus"
)

// unsampled puts each call under a caller's span that is not sampled.
type unsampled struct {
	*idemotel.Observer
	parent trace.SpanContext
}

// Trace implements idempo.Tracer.
func (u unsampled) Trace(ctx context.Context, e idempo.Event) (context.Context, string) {
	return u.Observer.Trace(trace.ContextWithSpanContext(ctx, u.parent), e)
}

// Observe implements idempo.Observer.
func (u unsampled) Observe(ctx context.Context, e idempo.Event) {
	u.Observer.Observe(trace.ContextWithSpanContext(ctx, u.parent), e)
}

// signals measures what metrics, and tracing whose caller is not sampled, take from a guarded call.
func signals(ctx context.Context, s settings) ([]result, error) {
	tracing, err := idemotel.New(idemotel.Config{TracerProvider: sdktrace.NewTracerProvider()})
	if err != nil {
		return nil, err
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	out, err := besidePlain(ctx, s,
		variant{"M9", "with metrics", func(c *idempo.Config) { c.Observer = idemprometheus.New(idemprometheus.Config{}) }, 1 / 1.05, 1 / 1.05, "≥ 0.95: cost ≤ 1.05", "≥ 0.95: cost ≤ 1.05"},
		variant{"M9", "with tracing, unsampled", func(c *idempo.Config) { c.Observer = unsampled{tracing, parent} }, 1 / 1.10, 1 / 1.10, "≥ 0.91: cost ≤ 1.10", "≥ 0.91: cost ≤ 1.10"})
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(r result) bool { return r.id != "M9" }) // besides, it counts what quotas allocate
	m := idemprometheus.New(idemprometheus.Config{})
	events := []idempo.Event{{Kind: "begin", Operation: "pay", Surface: "http", Verdict: "run"}, {Kind: "begin", Operation: "pay", Surface: "http", Verdict: "replay", Age: time.Hour},
		{Kind: "execute", Operation: "pay", Took: time.Second}, {Kind: "store", Op: "acquire", Took: time.Millisecond}, {Kind: "complete", Operation: "pay", Surface: "http", Outcome: "completed"}}
	count := func() {
		for _, e := range events {
			m.Observe(ctx, e)
		}
	}
	count()
	n := testing.AllocsPerRun(1000, count)
	return append(out, result{"M9", "allocations of counting one call", n, "allocations", "0", n == 0, ""}), nil
}
