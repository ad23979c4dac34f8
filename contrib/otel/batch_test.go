package idemotel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	idemotel "github.com/idempo/idempo/contrib/otel"
)

// stuck is an exporter that never comes back before its context ends.
type stuck struct{ calls atomic.Int64 }

func (s *stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	s.calls.Add(1)
	<-ctx.Done()
	return ctx.Err()
}
func (*stuck) Shutdown(context.Context) error { return nil }

type broken struct{}

func (broken) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return errors.New("away") }
func (broken) Shutdown(context.Context) error                             { return nil }

func TestBatch(t *testing.T) {
	t.Parallel()
	spans := func(b *idemotel.Batch, n int) {
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b))
		for range n {
			_, s := tp.Tracer("test").Start(context.Background(), "x")
			s.End()
		}
	}
	t.Run("every span reaches an exporter that takes them", func(t *testing.T) {
		t.Parallel()
		mem := tracetest.NewInMemoryExporter()
		b := idemotel.NewBatch(mem, idemotel.BatchConfig{Size: 7})
		spans(b, 100)
		if err := b.ForceFlush(t.Context()); err != nil || len(mem.GetSpans()) != 100 || b.Dropped() != 0 {
			t.Errorf("%v: %d spans, %d dropped", err, len(mem.GetSpans()), b.Dropped())
		}
		if err := b.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("an exporter that hangs makes nobody wait; what finds no room is counted", func(t *testing.T) {
		t.Parallel()
		e := &stuck{}
		var told atomic.Int64
		b := idemotel.NewBatch(e, idemotel.BatchConfig{Queue: 10, Size: 1, Timeout: time.Hour, Dropped: func(reason string, n int64) {
			if reason == "queue" {
				told.Add(n)
			}
		}})
		spans(b, 1000) // comes back, though nothing is ever exported
		if d := b.Dropped(); d < 1000-10-1-1 || d != told.Load() {
			t.Errorf("%d dropped, %d told", d, told.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Shutdown(ctx) == nil || b.ForceFlush(ctx) == nil {
			t.Error("a hanging exporter was waited for")
		}
	})
	t.Run("an exporter that fails loses what it had, counted", func(t *testing.T) {
		t.Parallel()
		b := idemotel.NewBatch(broken{}, idemotel.BatchConfig{})
		spans(b, 20)
		if err := b.Shutdown(t.Context()); err != nil || b.Dropped() != 20 {
			t.Errorf("%v: %d dropped", err, b.Dropped())
		}
		if err := b.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
