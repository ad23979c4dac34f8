package idemotel_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idempo/idempo"
	idemotel "github.com/idempo/idempo/contrib/otel"
	"github.com/idempo/idempo/memstore"
)

// bed is an engine whose spans are looked at.
type bed struct {
	*testing.T
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	engine *idempo.Engine
	store  *memstore.Store
	waits  atomic.Pointer[chan struct{}] // closed when a duplicate begins to wait
}

// listener passes everything on, and tells when a duplicate waits.
type listener struct {
	*idemotel.Observer
	b *bed
}

func (l listener) Observe(ctx context.Context, e idempo.Event) {
	l.Observer.Observe(ctx, e)
	if c := l.b.waits.Load(); c != nil && e.Kind == "waiting" && e.Count > 0 {
		close(*c)
	}
}

func newBed(t *testing.T, sampler sdktrace.Sampler) *bed {
	t.Helper()
	b := &bed{T: t, spans: tracetest.NewSpanRecorder(), store: memstore.New(memstore.Options{})}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sampler)), sdktrace.WithSpanProcessor(b.spans))
	b.tracer = tp.Tracer("test")
	o, err := idemotel.New(idemotel.Config{TracerProvider: tp})
	if err != nil {
		t.Fatal(err)
	}
	b.engine, err = idempo.New(b.store, idempo.Config{Observer: listener{o, b}, DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "pay", Guard: idempo.GuardAtomic}, {Name: "send", Guard: idempo.GuardLeased}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type work func(context.Context, *idempo.Claim) (idempo.Result, error)

func fine(context.Context, *idempo.Claim) (idempo.Result, error) {
	return idempo.Result{Status: 201}, nil
}

// call makes one call under a span of the caller's own, and returns the caller's span.
func (b *bed) call(operation, id, input string, do work) trace.SpanContext {
	b.Helper()
	ctx, span := b.tracer.Start(b.Context(), "caller")
	defer span.End()
	_, _ = b.engine.Do(ctx, idempo.Request{Key: idempo.Key{Tenant: "canary-tenant", Operation: operation, ID: "canary-key-" + id}, Input: [][]byte{[]byte("canary-body" + input)}, Surface: "http"}, do)
	return span.SpanContext()
}

// under are the spans of one trace, by name.
func (b *bed) under(c trace.SpanContext) map[string]sdktrace.ReadOnlySpan {
	all := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range b.spans.Ended() {
		if s.SpanContext().TraceID() == c.TraceID() {
			all[s.Name()] = s
		}
	}
	return all
}

func has(s sdktrace.ReadOnlySpan, name string) string {
	for _, a := range s.Attributes() {
		if a.Key == attribute.Key(name) {
			return a.Value.String()
		}
	}
	return ""
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"pay", "send"} {
		t.Run("[operations/M6] spans are children of the caller's, with what may be known: "+operation, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, sdktrace.AlwaysSample())
			var inside trace.SpanContext
			first := b.call(operation, "1", "", func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				inside = trace.SpanContextFromContext(ctx)
				return idempo.Result{Status: 201}, nil
			})
			got := b.under(first)
			for _, name := range []string{"idempo.begin", "idempo.execute", "idempo.complete"} {
				s := got[name]
				if s == nil {
					t.Fatalf("no %s", name)
				}
				if s.Parent().SpanID() != first.SpanID() {
					t.Errorf("%s is a child of %s", name, s.Parent().SpanID())
				}
				if has(s, "idempo.operation") != operation || has(s, "idempo.surface") != "http" || has(s, "idempo.guard") == "" || has(s, "idempo.attempt") != "1" || !strings.HasPrefix(has(s, "idempo.key_ref"), "k_") {
					t.Errorf("%s has %v", name, s.Attributes())
				}
				if s.EndTime().Before(s.StartTime()) || s.Status().Code != codes.Unset {
					t.Errorf("%s: %v to %v, %v", name, s.StartTime(), s.EndTime(), s.Status())
				}
			}
			if !inside.Equal(got["idempo.execute"].SpanContext()) || has(got["idempo.begin"], "idempo.verdict") != "run" {
				t.Errorf("the work runs under %v", inside)
			}
			replay := b.under(b.call(operation, "1", "", fine))["idempo.begin"]
			if has(replay, "idempo.verdict") != "replay" || has(replay, "idempo.replay_age_ms") == "" {
				t.Errorf("the replay has %v", replay.Attributes())
			}
		})
	}
	t.Run("[operations/M6] a duplicate that waits has a span of its wait", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, sdktrace.AlwaysSample())
		running, proceed, waiting, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			b.call("send", "1", "", func(context.Context, *idempo.Claim) (idempo.Result, error) {
				close(running)
				<-proceed
				return idempo.Result{Status: 201}, nil
			})
		}()
		<-running
		b.waits.Store(&waiting)
		ctx, span := b.tracer.Start(t.Context(), "caller")
		answered := make(chan idempo.Begun)
		go func() {
			got, _ := b.engine.Do(ctx, idempo.Request{Key: idempo.Key{Tenant: "canary-tenant", Operation: "send", ID: "canary-key-1"}, Input: [][]byte{[]byte("canary-body")}, Surface: "http", Wait: time.Minute}, fine)
			answered <- got
		}()
		<-waiting
		close(proceed)
		got := <-answered
		<-ended
		span.End()
		if s := b.under(span.SpanContext())["idempo.wait"]; got.Verdict != idempo.VerdictReplay || s == nil || s.Parent().SpanID() != span.SpanContext().SpanID() {
			t.Errorf("%v: %v", got.Verdict, s)
		}
	})
	t.Run("a replay has a link to the run that made the result, and a trace of its own", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, sdktrace.AlwaysSample())
		first := b.call("pay", "1", "", fine)
		second := b.call("pay", "1", "", fine)
		if first.TraceID() == second.TraceID() {
			t.Fatal("one trace")
		}
		links := b.under(second)["idempo.begin"].Links()
		if len(links) != 1 || links[0].SpanContext.TraceID() != first.TraceID() || links[0].SpanContext.SpanID() != first.SpanID() {
			t.Errorf("%v, want %v", links, first)
		}
		if n := len(b.under(first)["idempo.begin"].Links()); n != 0 {
			t.Errorf("the run has %d links", n)
		}
	})
	t.Run("a trace context that is none is dropped", func(t *testing.T) {
		t.Parallel()
		spans := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		o, err := idemotel.New(idemotel.Config{TracerProvider: tp})
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := tp.Tracer("test").Start(t.Context(), "caller")
		defer span.End()
		for _, bad := range []string{"x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-zzf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", strings.Repeat("0", 5000)} {
			o.Observe(ctx, idempo.Event{Kind: "begin", Verdict: "replay", Trace: bad})
		}
		for _, s := range spans.Ended() {
			if len(s.Links()) != 0 {
				t.Errorf("%v", s.Links())
			}
		}
		if len(spans.Ended()) != 4 {
			t.Errorf("%d spans", len(spans.Ended()))
		}
	})
	t.Run("[operations/M8] an answer is no error; a doubt, a lost lease and a store error are", func(t *testing.T) {
		t.Parallel()
		spans := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		o, err := idemotel.New(idemotel.Config{TracerProvider: tp})
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := tp.Tracer("test").Start(t.Context(), "caller")
		defer span.End()
		status := func(want codes.Code, e idempo.Event) {
			t.Helper()
			before := len(spans.Ended())
			o.Observe(ctx, e)
			all := spans.Ended()
			if len(all) != before+1 || all[before].Status().Code != want {
				t.Errorf("%+v: %d spans", e, len(all)-before)
			}
		}
		for _, v := range []idempo.Verdict{"run", "replay", "in_progress", "mismatch", "expired"} {
			status(codes.Unset, idempo.Event{Kind: "begin", Verdict: v})
		}
		status(codes.Error, idempo.Event{Kind: "begin", Verdict: "in_doubt"})
		status(codes.Error, idempo.Event{Kind: "begin", Class: "unavailable", Err: errors.New("canary")})
		status(codes.Error, idempo.Event{Kind: "lease_lost"})
		status(codes.Error, idempo.Event{Kind: "complete", Outcome: "lost"})
		status(codes.Error, idempo.Event{Kind: "complete", Outcome: "in_doubt"})
		status(codes.Error, idempo.Event{Kind: "fenced"})
		status(codes.Unset, idempo.Event{Kind: "complete", Outcome: "completed_failing"})
		// The first call is not sampled, and its baggage is nobody's business: the link is there, and nothing else.
		b := newBed(t, sdktrace.NeverSample())
		first := b.call("send", "1", "", fine)
		rec, err := b.engine.Lookup(t.Context(), idempo.Key{Tenant: "canary-tenant", Operation: "send", ID: "canary-key-1"})
		if err != nil || rec.Trace != "00-"+first.TraceID().String()+"-"+first.SpanID().String()+"-00" || len(b.spans.Ended()) != 0 {
			t.Errorf("%v: trace %q, of %v; %d spans", err, rec.Trace, first, len(b.spans.Ended()))
		}
	})
	t.Run("nothing that a caller sent is in a span", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, sdktrace.AlwaysSample())
		b.call("send", "1", "", fine)
		b.call("send", "1", "other", fine)
		b.call("send", "2", "", func(context.Context, *idempo.Claim) (idempo.Result, error) {
			return idempo.Result{}, errors.New("canary-error")
		})
		for _, s := range b.spans.Ended() {
			for _, a := range s.Attributes() {
				if strings.Contains(a.Value.String(), "canary") {
					t.Errorf("%s: %v", s.Name(), a)
				}
			}
			if strings.Contains(s.Status().Description+s.Name(), "canary") || len(s.Events()) > 0 {
				t.Errorf("%s: %v %v", s.Name(), s.Status(), s.Events())
			}
		}
	})
}
