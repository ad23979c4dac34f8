package idemotel

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

var _ sdktrace.SpanProcessor = (*Batch)(nil)

// BatchConfig of a Batch. The zero value works.
type BatchConfig struct {
	Queue   int                          // spans that wait at most; more are dropped. Default 2048
	Size    int                          // of one export. Default 512
	Every   time.Duration                // pause after which less than Size is exported. Default 5s
	Timeout time.Duration                // of one export. Default 10s
	Dropped func(reason string, n int64) // is told of every loss: queue (no room) or export (it failed). It must not block
}

// Batch hands spans to an exporter. Ending a span never waits for it: what finds no room, or could not be exported, is dropped and
// counted. It is a span processor; Shutdown ends it.
type Batch struct {
	config   BatchConfig
	exporter sdktrace.SpanExporter
	queue    chan sdktrace.ReadOnlySpan
	flush    chan chan struct{}
	quit     chan struct{}
	ended    chan struct{}
	once     sync.Once
	dropped  atomic.Int64
}

// NewBatch returns a Batch that has begun.
func NewBatch(exporter sdktrace.SpanExporter, c BatchConfig) *Batch {
	c.Queue, c.Size = cmp.Or(c.Queue, 2048), cmp.Or(c.Size, 512)
	c.Every, c.Timeout = cmp.Or(c.Every, 5*time.Second), cmp.Or(c.Timeout, 10*time.Second)
	b := &Batch{config: c, exporter: exporter, queue: make(chan sdktrace.ReadOnlySpan, c.Queue), flush: make(chan chan struct{}), quit: make(chan struct{}), ended: make(chan struct{})}
	go b.work()
	return b
}

// Dropped is how many spans were lost so far.
func (b *Batch) Dropped() int64 { return b.dropped.Load() }

// OnStart does nothing.
func (b *Batch) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd takes a sampled span, or drops it.
func (b *Batch) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	select {
	case b.queue <- s:
	default:
		b.drop("queue", 1)
	}
}

func (b *Batch) drop(reason string, n int) {
	b.dropped.Add(int64(n))
	if b.config.Dropped != nil {
		b.config.Dropped(reason, int64(n))
	}
}

func (b *Batch) work() {
	defer close(b.ended)
	tick := time.NewTicker(b.config.Every)
	defer tick.Stop()
	var all []sdktrace.ReadOnlySpan
	export := func() {
		if len(all) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout)
		defer cancel()
		if err := b.exporter.ExportSpans(ctx, all); err != nil {
			b.drop("export", len(all))
		}
		all = nil
	}
	drain := func() {
		for {
			select {
			case s := <-b.queue:
				if all = append(all, s); len(all) >= b.config.Size {
					export()
				}
			default:
				export()
				return
			}
		}
	}
	for {
		select {
		case s := <-b.queue:
			if all = append(all, s); len(all) >= b.config.Size {
				export()
			}
		case <-tick.C:
			export()
		case done := <-b.flush:
			drain()
			close(done)
		case <-b.quit:
			drain()
			return
		}
	}
}

// ForceFlush exports what waits, or returns the error of ctx.
func (b *Batch) ForceFlush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case b.flush <- done:
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shutdown exports what waits and ends the exporter, or returns the error of ctx; spans that end afterwards are dropped.
func (b *Batch) Shutdown(ctx context.Context) error {
	b.once.Do(func() { close(b.quit) })
	select {
	case <-b.ended:
		return b.exporter.Shutdown(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
