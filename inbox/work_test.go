package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// desk is an inbox over a memory store, and a ledger outside of it.
type desk struct {
	*inbox.Inbox
	t      *testing.T
	store  *memstore.Store
	ledger idempotest.Ledger
}

func newDesk(t *testing.T, o inbox.Options) *desk {
	t.Helper()
	d := &desk{t: t, store: memstore.New(memstore.Options{})}
	if o.Subscriber == "" {
		o.Subscriber = "billing"
	}
	var err error
	d.Inbox, err = inbox.New(idempotest.EngineWith(t, d.store, idempo.Config{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// effect notes the effect of m at the commit.
func (d *desk) effect(ctx context.Context, m inbox.Message) {
	d.ledger.AddOnCommit(ctx, m.ID)
}

func (d *desk) put(n int) {
	d.t.Helper()
	for i := range n {
		if out, err := d.Put(d.t.Context(), message(fmt.Sprint("m", i))); err != nil || !out.Ack {
			d.t.Fatal(out, err)
		}
	}
}

func (d *desk) receipts() []inbox.Receipt {
	d.t.Helper()
	rs, err := d.Find(d.t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusRetrying, inbox.StatusDead, inbox.StatusStarted}, Limit: 20_000})
	if err != nil {
		d.t.Fatal(err)
	}
	return rs
}

func message(id string) inbox.Message {
	return inbox.Message{Source: "orders", ID: id, Body: []byte(id), Attempt: 1}
}

func TestWork(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I20] stalled handlers: no more is taken than there are workers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 3})
			d.put(100)
			ctx, stop := context.WithCancel(t.Context())
			var in atomic.Int64
			open := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- d.Work(ctx, func(ctx context.Context, m inbox.Message) error {
					in.Add(1)
					<-open
					d.effect(ctx, m)
					return nil
				})
			}()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			taken := 0
			for _, r := range d.receipts() {
				if r.Attempts > 0 {
					taken++
				}
			}
			if in.Load() != 3 || taken != 3 {
				t.Errorf("%d handlers run, %d are taken", in.Load(), taken)
			}
			close(open)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := len(d.receipts()); n != 0 {
				t.Errorf("%d are left", n)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for i := range 100 {
				d.ledger.Want(t, fmt.Sprint("m", i), 1)
			}
		})
	})
	t.Run("retries come with full jitter, doubling up to the limit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{MaxAttempts: 8, BackoffBase: time.Second, BackoffMax: 20 * time.Second})
			var at []time.Time
			fail := func(context.Context, inbox.Message) error { at = append(at, time.Now()); return errors.New("no") }
			if out, err := d.Handle(t.Context(), message("m"), fail); err != nil || out.Status != inbox.StatusRetrying {
				t.Fatal(out, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { _ = d.Work(ctx, fail) }()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if len(at) != 8 {
				t.Fatalf("%d starts", len(at))
			}
			limit := time.Second
			for i := 1; i < len(at); i++ {
				if wait := at[i].Sub(at[i-1]); wait > limit+time.Second {
					t.Errorf("wait %d is %v, over %v", i, wait, limit)
				}
				limit = min(2*limit, 20*time.Second)
			}
			if rs := d.receipts(); len(rs) != 1 || rs[0].Status != inbox.StatusDead || !rs[0].Failures[7].At.Equal(at[7].Truncate(time.Microsecond)) {
				t.Errorf("%+v", rs)
			}
			stop()
			synctest.Wait()
		})
	})
	t.Run("a store that is away is asked again, and nothing is lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &absent{Store: memstore.New(memstore.Options{})}
			in, err := inbox.New(idempotest.EngineWith(t, s, idempo.Config{}), inbox.Options{Subscriber: "billing"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.Put(t.Context(), message("m")); err != nil {
				t.Fatal(err)
			}
			s.away.Store(true)
			ctx, stop := context.WithCancel(t.Context())
			ran := 0
			ended := make(chan error, 1)
			go func() {
				ended <- in.Work(ctx, func(context.Context, inbox.Message) error { ran++; return nil })
			}()
			time.Sleep(10 * time.Minute)
			if n := s.asked.Load(); ran != 0 || n < 10 || n > 300 {
				t.Errorf("%d ran, asked %d times in ten minutes", ran, n)
			}
			s.away.Store(false)
			time.Sleep(time.Minute)
			stop()
			if err := <-ended; err != nil || ran != 1 {
				t.Errorf("%d ran, %v", ran, err)
			}
		})
	})
	t.Run("no handler is a mistake", func(t *testing.T) {
		t.Parallel()
		if err := newDesk(t, inbox.Options{}).Work(t.Context(), nil); err == nil {
			t.Error("it began")
		}
	})
}

// absent is a memory store whose receipts may be away.
type absent struct {
	*memstore.Store
	away  atomic.Bool
	asked atomic.Int64
}

func (a *absent) Inbox() inbox.Store { return absentShelf{a.Store.Inbox(), a} }

type absentShelf struct {
	inbox.Store
	a *absent
}

func (s absentShelf) Take(ctx context.Context, p inbox.TakeParams) ([]inbox.Receipt, error) {
	if s.a.away.Load() {
		s.a.asked.Add(1)
		return nil, &idempo.Error{Op: "take", Code: "unavailable"}
	}
	return s.Store.Take(ctx, p)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I35] told to stop: nothing new, what runs may end, the rest rolls back and is not used up", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{Workers: 2, DrainTimeout: 20 * time.Second})
			d.put(4)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- d.Work(ctx, func(ctx context.Context, m inbox.Message) error {
					d.effect(ctx, m)
					wait := 10 * time.Second
					if m.ID == "m1" {
						wait = time.Hour
					}
					select {
					case <-time.After(wait):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
			}()
			synctest.Wait()
			stop()
			begun := time.Now()
			if err := <-ended; err != nil || time.Since(begun) != 20*time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			d.ledger.Want(t, "m0", 1)
			d.ledger.Want(t, "m1", 0)
			rs := d.receipts()
			var left []string
			for _, r := range rs {
				left = append(left, r.Message.ID)
				if r.Attempts != 0 || len(r.Failures) != 0 || r.Status != inbox.StatusStored {
					t.Errorf("%+v", r)
				}
			}
			if slices.Sort(left); !slices.Equal(left, []string{"m1", "m2", "m3"}) {
				t.Errorf("left: %q", left)
			}
		})
	})
	t.Run("[messages/I35] the caller of Handle stops: rolled back, not counted, not acknowledged", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, inbox.Options{MaxAttempts: 2})
		for range 5 {
			ctx, stop := context.WithCancelCause(t.Context())
			m := message("m")
			m.Attempt = 2
			out, err := d.Handle(ctx, m, func(ctx context.Context, m inbox.Message) error {
				d.effect(ctx, m)
				stop(errors.New("SIGTERM"))
				<-ctx.Done()
				return ctx.Err()
			})
			if err == nil || out.Ack {
				t.Fatal(out, err)
			}
		}
		d.ledger.Want(t, "m", 0)
		out, err := d.Handle(t.Context(), message("m"), func(ctx context.Context, m inbox.Message) error { d.effect(ctx, m); return nil })
		if err != nil || out.Status != inbox.StatusDone {
			t.Error(out, err)
		}
		d.ledger.Want(t, "m", 1)
		ended, stop := context.WithCancel(t.Context())
		stop()
		if out, err := d.Handle(ended, message("n"), nil); err == nil || out.Ack {
			t.Error(out, err)
		}
	})
	t.Run("a handler has HandlerTimeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, inbox.Options{HandlerTimeout: time.Minute})
			begun := time.Now()
			out, err := d.Handle(t.Context(), message("m"), func(ctx context.Context, _ inbox.Message) error { <-ctx.Done(); return ctx.Err() })
			if err != nil || out.Status != inbox.StatusRetrying || time.Since(begun) != time.Minute || !errors.Is(out.Err, context.DeadlineExceeded) {
				t.Error(out, err, time.Since(begun))
			}
		})
	})
}

func TestManyLanes(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I21] ten thousand waiting lanes occupy no worker", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, inbox.Options{Workers: 1})
		shelf := d.store.Inbox()
		for i := range 10_000 {
			m := message(fmt.Sprint(i))
			m.Tenant, m.Lane = "default", fmt.Sprint("lane ", i)
			r := inbox.Receipt{Subscriber: "billing", Key: fmt.Sprintf("%032d", i), Message: m, Status: inbox.StatusRetrying, Holds: true, Attempts: 1}
			if _, err := shelf.Put(t.Context(), inbox.PutParams{Receipt: r, Due: true, Delay: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		ran := 0
		work := func(context.Context, inbox.Message) error { ran++; return nil }
		m := message("free")
		m.Lane = "another"
		if out, err := d.Handle(t.Context(), m, work); err != nil || out.Status != inbox.StatusDone {
			t.Error(out, err)
		}
		m = message("behind")
		m.Lane = "lane 77"
		if out, err := d.Handle(t.Context(), m, work); err != nil || out.Status != inbox.StatusStored {
			t.Error(out, err)
		}
		if n, err := d.Once(t.Context(), work); n != 0 || err != nil || ran != 1 {
			t.Error(n, err, ran)
		}
	})
}

func TestWindow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	logged := func(o inbox.Options) (func() string, inbox.Options) {
		var text bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &text}, nil))
		return func() string { mu.Lock(); defer mu.Unlock(); return text.String() }, o
	}
	t.Run("[messages/I29] a short window is warned of at the start, and hourly while messages come", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			text, o := logged(inbox.Options{Horizon: 30 * 24 * time.Hour, AllowShortWindow: true})
			d := newDesk(t, o)
			for i := range 5 * 60 {
				time.Sleep(time.Minute)
				if _, err := d.Handle(t.Context(), message(fmt.Sprint(i)), func(context.Context, inbox.Message) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if n := strings.Count(text(), "window is shorter"); n != 6 {
				t.Errorf("%d warnings in five hours:\n%s", n, text())
			}
		})
	})
	t.Run("[messages/I30] a horizon that is unlimited, or not stated: one warning", func(t *testing.T) {
		t.Parallel()
		for _, h := range []time.Duration{0, idempo.Forever} {
			text, o := logged(inbox.Options{Horizon: h})
			d := newDesk(t, o)
			if _, ok := d.Headroom(); ok || strings.Count(text(), "not known") != 1 {
				t.Errorf("%v: %s", h, text())
			}
		}
		text, o := logged(inbox.Options{Tombstone: idempo.Forever, Horizon: idempo.Forever})
		if d := newDesk(t, o); d.Window() != idempo.Forever || text() != "" {
			t.Errorf("for ever: %s", text())
		}
		text, o = logged(inbox.Options{Horizon: 7 * 24 * time.Hour})
		d := newDesk(t, o)
		if err := d.CheckHorizon("stream ORDERS", 9*24*time.Hour); !errors.Is(err, inbox.ErrWindow) || !strings.Contains(err.Error(), "stream ORDERS") {
			t.Error(err)
		}
		if err := d.CheckHorizon("stream ORDERS", 8*24*time.Hour); err != nil || text() != "" {
			t.Error(err, text())
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	engine := idempotest.EngineWith(t, memstore.New(memstore.Options{}), idempo.Config{})
	bad := func(o inbox.Options, say ...string) {
		t.Helper()
		_, err := inbox.New(engine, o)
		for _, s := range say {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%v; want %q in it", err, s)
			}
		}
	}
	bad(inbox.Options{}, "Subscriber is required")
	bad(inbox.Options{Subscriber: strings.Repeat("x", 191)}, "longer than 190")
	bad(inbox.Options{Subscriber: "a b"}, "name must match")
	bad(inbox.Options{Subscriber: "x", Workers: -1, MaxAttempts: -1, Order: "random", OnDead: "x", Tie: "x", MissingID: "x", TooOld: "x", Fingerprint: "x"},
		"Workers is negative", "MaxAttempts is negative", `Order "random"`, "OnDead", "Tie", "MissingID", "TooOld", "Fingerprint")
	bad(inbox.Options{Subscriber: "x", BackoffBase: time.Minute, BackoffMax: time.Second}, "BackoffMax")
	bad(inbox.Options{Subscriber: "x", Guard: idempo.GuardLeased, Order: inbox.OrderLatest}, "atomic guard")
	bad(inbox.Options{Subscriber: "x", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe}, "ProbeFunc")
	bare := idempotest.EngineWith(t, bareStore{memstore.New(memstore.Options{})}, idempo.Config{})
	if _, err := inbox.New(bare, inbox.Options{Subscriber: "x"}); err == nil || !strings.Contains(err.Error(), "keeps no receipts") || !strings.Contains(err.Error(), "no transactions") {
		t.Error(err)
	}
	atomic, err := inbox.New(engine, inbox.Options{Subscriber: "atomic"})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := atomic.HandleLeased(t.Context(), message("m"), nil); err == nil || out.Ack {
		t.Error(out, err)
	}
	leased, err := inbox.New(engine, inbox.Options{Subscriber: "leased", Guard: idempo.GuardLeased})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := leased.Handle(t.Context(), message("m"), nil); err == nil || out.Ack {
		t.Error(out, err)
	}
	if outs, err := leased.HandleBatch(t.Context(), []inbox.Message{message("m")}, nil); err == nil || outs[0].Ack {
		t.Error(outs, err)
	}
	if _, err := atomic.Release(t.Context(), "", "a"); err == nil {
		t.Error("a serial lane was released")
	}
	if o := atomic.Options(); o.MaxAttempts != 10 || o.Workers != 8 || o.ParkBreaker != 100 || o.BatchSize != 100 || o.MaxInFlightBytes != 16<<20 || o.Tombstone != 7*24*time.Hour {
		t.Errorf("%+v", o)
	}
}

// bareStore has records only.
type bareStore struct{ idempo.Store }

// TestSecrets: neither bodies nor ids nor header values appear in logs or errors.
func TestSecrets(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var text bytes.Buffer
	d := newDesk(t, inbox.Options{ParkBreaker: 2, MaxAttempts: 1, Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &text}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	canary := inbox.Message{Source: "canary-source", ID: "canary-id", Body: []byte("canary-body"), Headers: [][2]string{{"x", "canary-header"}}, Attempt: 1}
	var errs []error
	give := func(m inbox.Message, h inbox.Handler) {
		out, err := d.Handle(t.Context(), m, h)
		if out.Ack == (err != nil) {
			t.Error(out, err)
		}
		errs = append(errs, err)
	}
	give(canary, func(context.Context, inbox.Message) error { return errors.New("no") })
	other := canary
	other.ID = "canary-other"
	give(other, func(context.Context, inbox.Message) error { return nil })
	other.Body = []byte("canary-other-body")
	give(other, nil)
	canary.ID = "canary\x00"
	for range 3 {
		give(canary, nil)
	}
	said := text.String() + fmt.Sprint(errs)
	if strings.Contains(said, "canary") || !strings.Contains(said, "dead") || !errors.Is(errors.Join(errs...), inbox.ErrBreaker) {
		t.Error(said)
	}
}
