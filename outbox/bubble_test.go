package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/outbox"
)

// A gate is a store whose calls of relays pass before, which may count, delay or refuse them.
type gate struct {
	idempo.Store
	before func(ctx context.Context, op string) error
}

type gatedLog struct {
	outbox.Store
	before func(ctx context.Context, op string) error
}

// Outbox implements outbox.Opener.
func (g gate) Outbox() (outbox.Store, outbox.Desk) {
	s, d := g.Store.(outbox.Opener).Outbox()
	return gatedLog{s, g.before}, d
}

// Hold passes before.
func (g gatedLog) Hold(ctx context.Context, p outbox.HoldParams) (outbox.Held, error) {
	if err := g.before(ctx, "hold"); err != nil {
		return outbox.Held{}, err
	}
	return g.Store.Hold(ctx, p)
}

// Read passes before.
func (g gatedLog) Read(ctx context.Context, p outbox.ReadParams) (outbox.Page, error) {
	if err := g.before(ctx, "read"); err != nil {
		return outbox.Page{}, err
	}
	return g.Store.Read(ctx, p)
}

// Move passes before.
func (g gatedLog) Move(ctx context.Context, p outbox.MoveParams) (outbox.Moved, error) {
	if err := g.before(ctx, "move"); err != nil {
		return outbox.Moved{}, err
	}
	return g.Store.Move(ctx, p)
}

// Take passes before.
func (g gatedLog) Take(ctx context.Context, p outbox.TakeParams) (outbox.Taken, error) {
	if err := g.before(ctx, "take"); err != nil {
		return outbox.Taken{}, err
	}
	return g.Store.Take(ctx, p)
}

// A shop appends events and has a publisher that records.
type shop struct {
	t     *testing.T
	store *memstore.Store
	box   *outbox.Outbox
	pub   *idempotest.Publisher
	n     int
}

// bubble runs f in a bubble of its own clock.
func bubble(t *testing.T, f func(s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{t: t, store: memstore.New(memstore.Options{}), pub: &idempotest.Publisher{}}
		var err error
		if s.box, err = outbox.New(s.store, outbox.Options{Source: "/shop"}); err != nil {
			t.Fatal(err)
		}
		f(s)
	})
}

// sell appends n events of so many keys, one transaction each, without waking anybody.
func (s *shop) sell(n, keys int) {
	s.t.Helper()
	for range n {
		err := s.store.InTx(s.t.Context(), func(ctx context.Context) error {
			_, err := s.box.Append(ctx, outbox.Event{Topic: "orders.paid", Key: fmt.Sprint("k", s.n%keys), Type: "Paid", Payload: fmt.Append(nil, s.n)})
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.n++
	}
}

// relay starts one; stop ends it and waits.
func (s *shop) relay(store idempo.Store, pub outbox.Publisher, o outbox.RelayOptions) (r *outbox.Relay, stop func()) {
	s.t.Helper()
	r, err := outbox.NewRelay(store, pub, o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	end := make(chan error, 1)
	go func() { end <- r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-end; err != nil {
				s.t.Errorf("Run: %v", err)
			}
		})
	}
	return r, stop
}

// wait is for n first appearances, at most for limit on the bubble's clock.
func (s *shop) wait(n int, limit time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	if s.pub.Wait(ctx, func() bool { return s.pub.Taken() >= n }) != nil {
		s.t.Fatalf("%d of %d events within %v", len(s.pub.First()), n, limit)
	}
}

// ordered wants every key's first appearances to rise, and n of them.
func (s *shop) ordered(n int) {
	s.t.Helper()
	last := map[string]int64{}
	first := s.pub.First()
	for _, d := range first {
		if d.Seq <= last[d.Key] {
			s.t.Errorf("key %s: %d after %d", d.Key, d.Seq, last[d.Key])
		}
		last[d.Key] = d.Seq
	}
	if len(first) != n {
		s.t.Errorf("%d events, want %d", len(first), n)
	}
}

func (s *shop) status() outbox.GroupStatus {
	s.t.Helper()
	_, d := s.store.Outbox()
	st, err := d.Status(s.t.Context(), outbox.StatusParams{Group: "main"})
	if err != nil || len(st.Groups) != 1 {
		s.t.Fatalf("status %+v, %v", st, err)
	}
	return st.Groups[0]
}

// A watch is an outbox.Observer that counts.
type watch struct {
	mu   sync.Mutex
	seen []outbox.Observation
}

// ObserveOutbox implements outbox.Observer.
func (w *watch) ObserveOutbox(_ context.Context, o outbox.Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, o)
}

func (w *watch) count(kind, outcome string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.seen {
		if o.Kind == kind && (outcome == "" || o.Outcome == outcome) {
			n += o.Count
		}
	}
	return n
}

// spread is the least and the most partitions of relays that share all of them.
func spread(relays []*outbox.Relay) (least, most, all int) {
	var n []int
	for _, r := range relays {
		n = append(n, r.Status().Partitions)
		all += n[len(n)-1]
	}
	return slices.Min(n), slices.Max(n), all
}
