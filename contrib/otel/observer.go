package idemotel

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenone "go.opentelemetry.io/otel/trace/noop"

	"github.com/idempo/idempo"
)

var (
	_ idempo.Observer = (*Observer)(nil)
	_ idempo.Tracer   = (*Observer)(nil)
)

// scope is the name of the instrumentation.
const scope = "github.com/idempo/idempo"

// Config of an Observer. What is nil is not made.
type Config struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// MaxOperations is how many operations get series of their own; the rest are counted as "_other". Default 200.
	MaxOperations int
}

// Observer makes spans and metrics of an engine's events. It is safe for concurrent use and never waits.
type Observer struct {
	tracer trace.Tracer
	counts *instruments // nil: no metrics
}

// New returns an Observer. The error is that of an instrument which could not be made.
func New(c Config) (*Observer, error) {
	o := &Observer{}
	if c.TracerProvider == nil {
		c.TracerProvider = tracenone.NewTracerProvider()
	}
	o.tracer = c.TracerProvider.Tracer(scope)
	if c.MeterProvider == nil {
		return o, nil
	}
	var err error
	o.counts, err = newInstruments(c.MeterProvider.Meter(scope), cmp.Or(c.MaxOperations, 200))
	return o, err
}

// executing is where the span of the work stands in its context.
type executing struct{}

// Trace implements idempo.Tracer: the trace context of a record is that of the caller's span, sampled or not, and the work of a sampled
// one runs under idempo.execute.
func (o *Observer) Trace(ctx context.Context, e idempo.Event) (context.Context, string) {
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case !parent.IsValid():
		return ctx, ""
	case e.Kind == "begin":
		return ctx, traceparent(parent)
	case e.Kind != "execute" || !parent.IsSampled():
		return ctx, ""
	}
	ctx, span := o.tracer.Start(ctx, "idempo.execute", trace.WithAttributes(attributes(e)...))
	return context.WithValue(ctx, executing{}, span), ""
}

func traceparent(c trace.SpanContext) string {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// Observe implements idempo.Observer.
func (o *Observer) Observe(ctx context.Context, e idempo.Event) {
	if o.counts != nil {
		o.counts.count(ctx, e)
	}
	parent := trace.SpanContextFromContext(ctx)
	switch e.Kind {
	case "execute":
		if span, ok := ctx.Value(executing{}).(trace.Span); ok {
			span.SetAttributes(attribute.Int64("idempo.attempt", e.Attempt), attribute.String("idempo.key_ref", e.KeyRef))
			span.End()
		}
	case "begin", "complete", "fenced", "lease_lost":
		if parent.IsSampled() {
			o.span(ctx, e)
		}
	case "waiting":
		if e.Count < 0 && parent.IsSampled() {
			e.At = time.Now().Add(-e.Took)
			o.span(ctx, e)
		}
	case "resolve":
		if parent.IsSampled() || !parent.IsValid() { // also by a probe that nobody called
			o.span(ctx, e)
		}
	}
}

// span makes one of what is over.
func (o *Observer) span(ctx context.Context, e idempo.Event) {
	begun := e.At
	if begun.IsZero() {
		begun = time.Now()
	}
	name := e.Kind
	if name == "waiting" {
		name = "wait"
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(begun), trace.WithAttributes(attributes(e)...)}
	if l, ok := link(e); ok {
		options = append(options, trace.WithLinks(l))
	}
	_, span := o.tracer.Start(ctx, "idempo."+name, options...)
	if why := failed(e); why != "" {
		span.SetStatus(codes.Error, why)
	}
	span.End(trace.WithTimestamp(begun.Add(e.Took)))
}

// link leads to the execution that made the result. A trace context that is none is dropped.
func link(e idempo.Event) (trace.Link, bool) {
	if e.Trace == "" {
		return trace.Link{}, false
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": e.Trace})
	to := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: to}, to.IsValid()
}

// failed says why a span has status error, "" if it has not. An answer is none: a replay, a key in progress, a mismatch.
func failed(e idempo.Event) string {
	switch {
	case e.Kind == "begin" && e.Verdict == idempo.VerdictInDoubt, e.Kind == "complete" && e.Outcome == "in_doubt":
		return "in doubt"
	case e.Kind == "complete" && e.Outcome == "lost", e.Kind == "lease_lost":
		return "lease lost"
	case e.Kind == "fenced":
		return "late write refused"
	case e.Kind == "begin" && e.Verdict == "":
		return cmp.Or(e.Class, "error")
	}
	return ""
}

func attributes(e idempo.Event) []attribute.KeyValue {
	a := make([]attribute.KeyValue, 0, 8)
	add := func(name, v string) {
		if v != "" {
			a = append(a, attribute.String(name, v))
		}
	}
	add("idempo.operation", e.Operation)
	add("idempo.surface", e.Surface)
	add("idempo.guard", string(e.Guard))
	add("idempo.verdict", string(e.Verdict))
	add("idempo.key_ref", e.KeyRef)
	add("idempo.outcome", e.Outcome)
	if e.Attempt > 0 {
		a = append(a, attribute.Int64("idempo.attempt", e.Attempt))
	}
	if e.Kind == "begin" && e.Verdict == idempo.VerdictReplay {
		a = append(a, attribute.Int64("idempo.replay_age_ms", e.Age.Milliseconds()))
	}
	return a
}
