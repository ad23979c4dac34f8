package idempotest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// Broker is a queue of one test's own, and the adapter that consumes it.
type Broker interface {
	// Publish stores a message, as a producer without idempo would: ID is the broker's own id, or a CloudEvents id where
	// the broker has none; "" is no id at all. Lane is the CloudEvents partitionkey.
	Publish(t testing.TB, m inbox.Message)
	// Consume is the adapter's.
	Consume(ctx context.Context, in *inbox.Inbox, h inbox.Handler) error
	// Waiting is how many messages are not acknowledged. It is asked while nobody consumes.
	Waiting(t testing.TB) int
	// Taken is how many were delivered and are not acknowledged, asked while somebody consumes; -1: it cannot be told.
	Taken(t testing.TB) int
	// Cut breaks every connection of Consume, once. They may come back.
	Cut(t testing.TB)
}

// RunConsumer runs what every adapter's Consume must hold against brokers that open makes, one for each case.
func RunConsumer(t *testing.T, open func(t *testing.T) Broker) {
	t.Helper()
	for name, run := range map[string]func(*desk){
		"[messages/I1, B22] a producer's repeat has one effect":                                                      (*desk).repeats,
		"[messages/B21, B22] headers, CloudEvents of any producer and any bytes reach the handler unchanged":         (*desk).unchanged,
		"[messages/I2] the link is lost between commit and acknowledgement: redelivered, one effect":                 (*desk).lostLink,
		"[messages/I19, B14] the store is away: nothing is acknowledged, prefetch is bounded, then each effect once": (*desk).storeAway,
		"[messages/I21] a lane keeps its order over failures, and others go on":                                      (*desk).lanes,
		"[messages/I9] messages without identity stop the consumer and stay in the broker":                           (*desk).breaker,
		"[messages/I35] told to stop under load: exactly what was committed is acknowledged":                         (*desk).stopped,
		"[messages/I20, B21] handlers stall: no more is taken, and the lag is told":                                  (*desk).stalled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newDesk(t, open(t)))
		})
	}
}

// desk is a broker with inboxes over a store that may be away, and a ledger outside.
type desk struct {
	Broker
	*testing.T
	store    *flaky
	ledger   Ledger
	patience time.Duration
}

func newDesk(t *testing.T, b Broker) *desk {
	return &desk{Broker: b, T: t, patience: 90 * time.Second, store: &flaky{Store: memstore.New(memstore.Options{})}}
}

// flaky is a memory store whose transactions may be refused.
type flaky struct {
	*memstore.Store
	away    atomic.Bool
	refused atomic.Int64
}

// InTx refuses while the store is away.
func (f *flaky) InTx(ctx context.Context, fn func(context.Context) error) error {
	if f.away.Load() {
		f.refused.Add(1)
		return &idempo.Error{Op: "begin", Code: "unavailable"}
	}
	return f.Store.InTx(ctx, fn)
}

func (d *desk) inbox(o inbox.Options) *inbox.Inbox {
	d.Helper()
	o.Subscriber, o.BackoffBase, o.BackoffMax, o.Poll = "billing", time.Millisecond, time.Millisecond, 5*time.Millisecond
	in, err := inbox.New(EngineWith(d, d.store, idempo.Config{}), o)
	if err != nil {
		d.Fatal(err)
	}
	return in
}

// ids publishes a message for each id.
func (d *desk) ids(ids ...string) {
	d.Helper()
	for _, id := range ids {
		d.Publish(d, inbox.Message{ID: id, Body: []byte("body of " + id)})
	}
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(prefix, i))
	}
	return ids
}

// bill notes one effect per message.
func (d *desk) bill(ctx context.Context, m inbox.Message) error {
	d.ledger.AddOnCommit(ctx, m.ID)
	return nil
}

// consume runs Consume until done, asked again and again, says that it is over.
func (d *desk) consume(in *inbox.Inbox, h inbox.Handler, done func() bool) error {
	d.Helper()
	ctx, stop := context.WithCancel(d.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.Consume(ctx, in, h) }()
	var err error
	over := d.until(func() bool {
		select {
		case err = <-ended:
			ended <- err
			return true
		default:
			return done()
		}
	})
	var stuck []string
	if !over {
		stuck = own()
	}
	stop()
	if err = <-ended; !over {
		d.Fatalf("it takes too long:\n%s", strings.Join(stuck, "\n\n"))
	}
	return err
}

// until asks done again and again, and gives up when its patience is over.
func (d *desk) until(done func() bool) bool {
	d.Helper()
	limit := time.After(d.patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			return false
		case <-tick.C:
		}
	}
	return true
}

// handled says that every id had its effect.
func (d *desk) handled(ids ...string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return d.ledger.Count(id) == 0 })
	}
}

// once wants one effect for each id, and nothing dead or parked.
func (d *desk) once(in *inbox.Inbox, ids ...string) {
	d.Helper()
	for _, id := range ids {
		d.ledger.Want(d, id, 1)
	}
	if rs, err := in.Find(d.Context(), inbox.Selection{}); err != nil || len(rs) != 0 {
		d.Errorf("%d dead or parked, %v", len(rs), err)
	}
}

// kept wants at least n messages that are not acknowledged: a broker that acknowledges in order may have more.
func (d *desk) kept(n int) {
	d.Helper()
	if got := -1; !d.until(func() bool { got = d.Waiting(d); return got >= n }) {
		d.Errorf("%d messages are not acknowledged, want %d or more", got, n)
	}
}

// left wants n messages that are not acknowledged.
func (d *desk) left(n int) {
	d.Helper()
	if got := -1; !d.until(func() bool { got = d.Waiting(d); return got == n }) {
		d.Errorf("%d messages are not acknowledged, want %d", got, n)
	}
}

func (d *desk) repeats() {
	d.ids("a", "b", "a", "a", "c", "end")
	in := d.inbox(inbox.Options{})
	if err := d.consume(in, d.bill, d.handled("a", "b", "c", "end")); err != nil {
		d.Error(err)
	}
	// What is left of the repeats is taken by another process.
	d.ids("later")
	if err := d.consume(in, d.bill, d.handled("later")); err != nil {
		d.Error(err)
	}
	d.once(in, "a", "b", "c", "end", "later")
}

func (d *desk) unchanged() {
	body := []byte{0, 0xff, '{', '\n'}
	d.Publish(d, inbox.Message{Body: body, Headers: [][2]string{
		{"ce-id", "1"}, {"ce-source", "/shop"}, {"ce-specversion", "1.0"}, {"ce-type", "paid"}, {"ce-partitionkey", "c-1"}, {"content-type", "application/x-own"},
		{"x-a", "1"}, {"x-bytes", "\x01\xff"},
	}})
	var mu sync.Mutex
	var got []inbox.Message
	err := d.consume(d.inbox(inbox.Options{}), func(ctx context.Context, m inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
		return d.bill(ctx, m)
	}, d.handled("1"))
	if err != nil || len(got) != 1 {
		d.Fatal(len(got), err)
	}
	m := got[0]
	if m.ID != "1" || m.Source != "/shop" || m.Type != "paid" || m.Lane != "c-1" || string(m.Body) != string(body) || m.Attempt != 1 {
		d.Errorf("%+v", m)
	}
	for name, want := range map[string]string{"x-a": "1", "x-bytes": "\x01\xff", "content-type": "application/x-own"} {
		if v, ok := m.Header(name); !ok || v != want {
			d.Errorf("header %s is %q", name, v)
		}
	}
}

func (d *desk) lostLink() {
	d.ids("a", "b", "end")
	in := d.inbox(inbox.Options{Workers: 1, MaxInFlight: 1})
	var cuts atomic.Int64
	err := d.consume(in, func(ctx context.Context, m inbox.Message) error {
		if m.ID != "end" && cuts.Add(1) <= 2 {
			memstore.OnCommit(ctx, func() { d.Cut(d) })
		}
		return d.bill(ctx, m)
	}, d.handled("a", "b", "end"))
	if err != nil || cuts.Load() < 2 {
		d.Errorf("%v, %d cuts", err, cuts.Load())
	}
	d.once(in, "a", "b", "end")
	d.ids("later") // what was not acknowledged comes before, as duplicates
	if err := d.consume(in, d.bill, func() bool { return d.ledger.Count("later") > 0 }); err != nil {
		d.Error(err)
	}
	d.once(in, "a", "b", "end", "later")
}

func (d *desk) storeAway() {
	ids := numbered("m", 40)
	d.ids(ids...)
	d.store.away.Store(true)
	in := d.inbox(inbox.Options{MaxInFlight: 10, Workers: 4, MaxAttempts: 2})
	most := -1
	if err := d.consume(in, d.bill, func() bool { most = max(most, d.Taken(d)); return d.store.refused.Load() > 3 }); err != nil || most > 10 {
		d.Errorf("%v, %d were taken at once", err, most)
	}
	d.left(40)
	err := d.consume(in, d.bill, func() bool {
		if d.store.refused.Load() > 6 {
			d.store.away.Store(false)
		}
		return d.handled(ids...)()
	})
	if err != nil {
		d.Error(err)
	}
	d.once(in, ids...)
}

func (d *desk) lanes() {
	for i := range 10 {
		for _, lane := range []string{"a", "b"} {
			d.Publish(d, inbox.Message{ID: fmt.Sprint(lane, i), Lane: lane, Body: []byte("x")})
		}
	}
	var mu sync.Mutex
	order, tries := map[string][]string{}, map[string]int{}
	in := d.inbox(inbox.Options{})
	err := d.consume(in, func(ctx context.Context, m inbox.Message) error {
		mu.Lock()
		tries[m.ID]++
		n := tries[m.ID]
		mu.Unlock()
		if m.ID == "a3" && n < 4 || m.ID == "b7" && n < 2 {
			return errors.New("not yet")
		}
		memstore.OnCommit(ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			order[m.Lane] = append(order[m.Lane], m.ID)
		})
		return d.bill(ctx, m)
	}, d.handled(append(numbered("a", 10), numbered("b", 10)...)...))
	if err != nil || !slices.Equal(order["a"], numbered("a", 10)) || !slices.Equal(order["b"], numbered("b", 10)) {
		d.Errorf("%q, %v", order, err)
	}
	d.once(in, append(numbered("a", 10), numbered("b", 10)...)...)
}

func (d *desk) breaker() {
	d.ids(make([]string, 20)...)
	if err := d.consume(d.inbox(inbox.Options{ParkBreaker: 5, Workers: 1}), d.bill, func() bool { return false }); !errors.Is(err, inbox.ErrBreaker) {
		d.Error(err)
	}
	d.kept(15)
}

func (d *desk) stopped() {
	ids := numbered("m", 60)
	for _, id := range ids {
		d.Publish(d, inbox.Message{ID: id, Lane: "one", Body: []byte("x")})
	}
	in := d.inbox(inbox.Options{Workers: 4, MaxInFlight: 8})
	committed := func() (n int) {
		for _, id := range ids {
			n += d.ledger.Count(id)
		}
		return n
	}
	if err := d.consume(in, d.bill, func() bool { return committed() >= 20 }); err != nil {
		d.Error(err)
	}
	n := committed()
	d.left(len(ids) - n)
	if err := d.consume(in, d.bill, d.handled(ids...)); err != nil {
		d.Error(err)
	}
	d.once(in, ids...)
	d.left(0)
}

func (d *desk) stalled() {
	ids := numbered("m", 50)
	d.ids(ids...)
	in := d.inbox(inbox.Options{Workers: 2, MaxInFlight: 5})
	open := make(chan struct{})
	var most atomic.Int64
	err := d.consume(in, func(ctx context.Context, m inbox.Message) error {
		<-open
		return d.bill(ctx, m)
	}, func() bool {
		most.Store(max(most.Load(), int64(d.Taken(d))))
		total := int64(0)
		for _, n := range in.Lag() {
			total += n
		}
		select {
		case <-open:
			return d.handled(ids...)() && total < 50
		default:
		}
		if total == 50 {
			close(open)
		}
		return false
	})
	if err != nil || most.Load() > 5 {
		d.Errorf("%v, %d were taken at once", err, most.Load())
	}
	d.once(in, ids...)
}

// RunConsumerOutage has the broker away, as away(true) makes it, for as long as IDEMPO_TEST_OUTAGE says (default 1s) under
// load, and wants each effect once afterwards, in order per lane, and no goroutine more than before. Do not call it from a
// test that runs in parallel with others.
func RunConsumerOutage(t *testing.T, b Broker, away func(bool)) {
	t.Helper()
	d := newDesk(t, b)
	d.patience += 2 * outageTime(t) // a server that was killed has to start, too
	NoLeak(t)
	var ids []string
	for n := range 20 {
		for lane := range 10 {
			id := fmt.Sprintf("%d/%d", lane, n)
			ids = append(ids, id)
			d.Publish(d, inbox.Message{ID: id, Lane: fmt.Sprint("lane ", lane), Body: []byte("x")})
		}
	}
	var mu sync.Mutex
	order := map[string][]string{}
	began := make(chan struct{}, len(ids)*2)
	in := d.inbox(inbox.Options{Workers: 4, MaxInFlight: 16})
	var outages sync.WaitGroup
	outages.Go(func() {
		for range 40 {
			<-began
		}
		outage(t, away)
	})
	err := d.consume(in, func(ctx context.Context, m inbox.Message) error {
		began <- struct{}{}
		memstore.OnCommit(ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			order[m.Lane] = append(order[m.Lane], m.ID)
		})
		return d.bill(ctx, m)
	}, d.handled(ids...))
	outages.Wait()
	if err != nil {
		d.Error(err)
	}
	d.once(in, ids...)
	for lane, got := range order {
		for n, id := range got {
			if want := fmt.Sprintf("%s/%d", lane[len("lane "):], n); id != want {
				d.Fatalf("%s: %s came where %s was next", lane, id, want)
			}
		}
	}
}
