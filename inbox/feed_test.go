package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// broker hands messages to a feed and notes what is acknowledged and given back.
type broker struct {
	mu       sync.Mutex
	acked    []string
	back     []string
	extended int
}

func (b *broker) delivery(m inbox.Message) inbox.Delivery {
	return inbox.Delivery{
		Message: m,
		Ack: func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.acked = append(b.acked, m.ID)
			return nil
		},
		Again: func(context.Context, time.Duration) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.back = append(b.back, m.ID)
			return nil
		},
		Extend: func(context.Context) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.extended++
			return nil
		},
		ExtendEvery: 10 * time.Second,
	}
}

func (b *broker) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.acked)
}

func TestFeed(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I20] no more is taken than MaxInFlight, by number and by bytes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{MaxInFlight: 5, MaxInFlightBytes: 300, Workers: 2})
			ctx, stop := context.WithCancel(t.Context())
			open := make(chan struct{})
			f := d.Feed(ctx, func(ctx context.Context, m inbox.Message) error { <-open; d.effect(ctx, m); return nil })
			var b broker
			big := message("big")
			big.Body = make([]byte, 300)
			for _, m := range []inbox.Message{message("1"), message("2"), big} {
				if n, err := f.Room(); n < 1 || err != nil {
					t.Fatal(n, err)
				}
				f.Add(b.delivery(m))
			}
			room := make(chan int, 1)
			go func() { n, _ := f.Room(); room <- n }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(room) != 0 || f.InFlight() != 3 || len(b.list()) != 0 {
				t.Errorf("room at 300 bytes, %d in flight, acknowledged %q", f.InFlight(), b.list())
			}
			close(open)
			if n := <-room; n < 1 {
				t.Error(n)
			}
			synctest.Wait()
			if got := b.list(); len(got) != 3 || f.InFlight() != 0 {
				t.Errorf("acknowledged %q", got)
			}
			if n, err := f.Room(); n != 5 || err != nil {
				t.Error(n, err)
			}
			stop()
			if _, err := f.Room(); err == nil {
				t.Error("room after the end")
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("those of a lane run in the order in which they were added; a slow lane holds up no other", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 4})
			ctx, stop := context.WithCancel(t.Context())
			var mu sync.Mutex
			var ran []string
			f := d.Feed(ctx, func(_ context.Context, m inbox.Message) error {
				if m.Lane == "slow" {
					time.Sleep(time.Second)
				}
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, m.ID)
				return nil
			})
			var b broker
			for i := range 5 {
				for _, lane := range []string{"slow", "fast"} {
					m := message(fmt.Sprint(lane, i))
					m.Lane = lane
					f.Add(b.delivery(m))
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			want := []string{"fast0", "fast1", "fast2", "fast3", "fast4", "slow0", "slow1", "slow2", "slow3", "slow4"}
			if !slices.Equal(ran, want) || len(b.list()) != 10 {
				t.Errorf("%q, acknowledged %d", ran, len(b.list()))
			}
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("[messages/I35] the end: what runs ends and is acknowledged, what waits is not begun", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 2, DrainTimeout: 20 * time.Second})
			ctx, stop := context.WithCancel(t.Context())
			f := d.Feed(ctx, func(ctx context.Context, m inbox.Message) error {
				d.effect(ctx, m)
				wait := 15 * time.Second
				if m.ID == "endless" {
					wait = time.Hour
				}
				select {
				case <-time.After(wait):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			var b broker
			f.Add(b.delivery(message("endless")))
			f.Add(b.delivery(message("slow")))
			synctest.Wait()
			f.Add(b.delivery(message("waits")))
			synctest.Wait()
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if got := b.list(); !slices.Equal(got, []string{"slow"}) || b.extended == 0 {
				t.Errorf("acknowledged %q, extended %d times", got, b.extended)
			}
			d.ledger.Want(t, "slow", 1)
			d.ledger.Want(t, "endless", 0)
			d.ledger.Want(t, "waits", 0)
		})
	})
	t.Run("[messages/I9] a stopped inbox stops its feed, and acknowledges no more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{ParkBreaker: 2, Workers: 1})
			f := d.Feed(t.Context(), func(context.Context, inbox.Message) error { return nil })
			var b broker
			for range 6 {
				f.Add(b.delivery(inbox.Message{Attempt: 1}))
			}
			synctest.Wait()
			if _, err := f.Room(); !errors.Is(err, inbox.ErrBreaker) {
				t.Error(err)
			}
			if err := f.Close(); !errors.Is(err, inbox.ErrBreaker) || len(b.list()) != 2 {
				t.Errorf("%v, acknowledged %d", err, len(b.list()))
			}
		})
	})
	t.Run("[messages/I17] one that runs elsewhere is given back after a while", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{})
			ctx, stop := context.WithCancel(t.Context())
			in := make(chan struct{})
			open := make(chan struct{})
			var elsewhere sync.WaitGroup
			elsewhere.Go(func() {
				_, _ = d.Handle(ctx, message("m"), func(context.Context, inbox.Message) error { close(in); <-open; return nil })
			})
			<-in
			f := d.Feed(ctx, func(context.Context, inbox.Message) error { t.Error("it ran"); return nil })
			var b broker
			f.Add(b.delivery(message("m")))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if len(b.list()) != 0 || !slices.Equal(b.back, []string{"m"}) || f.InFlight() != 0 {
				t.Errorf("acknowledged %q, given back %q", b.list(), b.back)
			}
			close(open)
			elsewhere.Wait()
			stop()
			_ = f.Close()
		})
	})
	t.Run("[messages/I19] the store is away for ten minutes: kept, nothing acknowledged, then done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &gone{Store: memstore.New(memstore.Options{})}
			in, err := inbox.New(idempotest.EngineWith(t, s, idempo.Config{}), inbox.Options{Subscriber: "billing", MaxAttempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := 0
			f := in.Feed(ctx, func(context.Context, inbox.Message) error { ran++; return nil })
			s.set(true)
			var b broker
			for _, attempt := range []int{1, 0} {
				m := message(fmt.Sprint("m", attempt))
				m.Attempt = attempt
				f.Add(b.delivery(m))
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if n := s.count(); ran != 0 || len(b.list()) != 0 || f.InFlight() != 2 || n < 10 || n > 500 {
				t.Errorf("%d ran, %q acknowledged, asked %d times", ran, b.list(), n)
			}
			s.set(false)
			time.Sleep(time.Minute)
			synctest.Wait()
			if ran != 2 || len(b.list()) != 2 {
				t.Errorf("%d ran, %q acknowledged", ran, b.list())
			}
			stop()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

// gone is a memory store whose transactions may be refused.
type gone struct {
	*memstore.Store
	mu    sync.Mutex
	away  bool
	asked int
}

func (g *gone) set(away bool) { g.mu.Lock(); defer g.mu.Unlock(); g.away = away }
func (g *gone) count() int    { g.mu.Lock(); defer g.mu.Unlock(); return g.asked }

func (g *gone) InTx(ctx context.Context, fn func(context.Context) error) error {
	g.mu.Lock()
	away := g.away
	if away {
		g.asked++
	}
	g.mu.Unlock()
	if away {
		return &idempo.Error{Op: "begin", Code: "unavailable"}
	}
	return g.Store.InTx(ctx, fn)
}
