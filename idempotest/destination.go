package idempotest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/outbox"
)

// Destination is a place of one test's own where events go.
type Destination interface {
	// Publisher returns the adapter's publisher over a connection of its own, made by Link, and what ends both.
	Publisher(t testing.TB) (p outbox.Publisher, stop func())
	// Topic is one that the destination takes.
	Topic() string
	// Link is what publishers connect through.
	Link() *Link
	// Received lists what is stored, as a reader without idempo sees it: headers as on the wire, and those of one key in
	// their order. Source and ID are left empty.
	Received(t testing.TB) []inbox.Message
}

// RunPublisher runs what every adapter's publisher must hold against destinations that open makes, one for each case.
func RunPublisher(t *testing.T, open func(t *testing.T) Destination) {
	t.Helper()
	for name, run := range map[string]func(*stage){
		"[messages/B22] a reader without idempo finds a CloudEvent in binary mode, and the bytes":    (*stage).plain,
		"a repeat carries the same id, and is done":                                                  (*stage).again,
		"a thousand and more at once wait for room, and each is done once":                           (*stage).pressure,
		"the link is away: nothing is taken for sent; it comes back: all is done":                    (*stage).away,
		"the caller's end takes nothing back, and every event is told of once":                       (*stage).ended,
		"a relay publishes each event in the order of its key while the link is cut again and again": (*stage).cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(&stage{Destination: open(t), T: t})
		})
	}
}

// stage is a destination and what was told of it.
type stage struct {
	Destination
	*testing.T
}

// told collects what a publisher says of a batch.
type told struct {
	mu   sync.Mutex
	errs map[int][]error
	all  chan struct{}
	n    int
}

// publish hands events over and returns when each was told of; over a minute and a half fails.
func (s *stage) publish(p outbox.Publisher, ds ...outbox.Delivery) []error {
	s.Helper()
	return s.publishIn(s.Context(), p, ds...)
}

func (s *stage) publishIn(ctx context.Context, p outbox.Publisher, ds ...outbox.Delivery) []error {
	s.Helper()
	got := &told{errs: map[int][]error{}, all: make(chan struct{}), n: len(ds)}
	p.Publish(ctx, outbox.PublishParams{Events: ds, Done: got.done})
	select {
	case <-got.all:
	case <-time.After(90 * time.Second):
		s.Fatal("not every event was told of")
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	errs := make([]error, len(ds))
	for i := range ds {
		if len(got.errs[i]) != 1 {
			s.Errorf("event %d was told of %d times", i, len(got.errs[i]))
		}
		errs[i] = got.errs[i][0]
	}
	return errs
}

func (g *told) done(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errs[i] = append(g.errs[i], err)
	if g.n--; g.n == 0 {
		close(g.all)
	}
}

// event makes a delivery as a relay would.
func (s *stage) event(n int, key string, payload []byte) outbox.Delivery {
	id := outbox.IDFor(s.Name(), fmt.Sprint(n))
	return outbox.Delivery{Seq: int64(n + 1), BrokerID: id, Event: outbox.Event{
		ID: id, Source: "/shop", Topic: s.Topic(), Key: key, Type: "OrderPaid", Tenant: "acct_7", Payload: payload, Time: time.Unix(1_800_000_000, 500_000_000),
	}}
}

// Attribute returns a CloudEvents attribute of a message as it is on the wire, by any of the prefixes that bindings have.
func Attribute(m inbox.Message, name string) string {
	for _, prefix := range []string{"ce_", "ce-", "cloudEvents:", "cloudEvents_"} {
		if v, ok := m.Header(prefix + name); ok {
			return v
		}
	}
	return ""
}

// sent reads what is stored until n different ids are there, and returns all of it.
func (s *stage) sent(n int) (got []inbox.Message) {
	s.Helper()
	limit := time.Now().Add(90 * time.Second)
	for {
		got = s.Received(s)
		ids := map[string]bool{}
		for _, m := range got {
			ids[Attribute(m, "id")] = true
		}
		if len(ids) >= n {
			return got
		}
		if time.Now().After(limit) {
			s.Fatalf("%d of %d events are there", len(ids), n)
		}
		runtime.Gosched()
	}
}

func (s *stage) plain() {
	p, stop := s.Publisher(s)
	defer stop()
	full := s.event(1, "order-1", []byte{0, 0xff, '"', '\n'})
	full.ContentType, full.Headers = "application/x-own; v=1", [][2]string{{"X-Shop", "eu"}}
	full.Trace = outbox.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=b", Correlation: "c-9", KeyRef: "k_abc"}
	empty, none := s.event(2, "", []byte{}), s.event(3, "order-3", nil)
	for i, err := range s.publish(p, full, empty, none) {
		if err != nil {
			s.Errorf("event %d: %v", i, err)
		}
	}
	byID := map[string]inbox.Message{}
	for _, m := range s.sent(3) {
		byID[Attribute(m, "id")] = m
	}
	m := byID[full.ID]
	for name, want := range map[string]string{
		"source": "/shop", "specversion": "1.0", "type": "OrderPaid", "time": "2027-01-15T08:00:00.5Z", "subject": "order-1", "partitionkey": "order-1",
		"sequence": "00000000000000000002", "topic": s.Topic(), "tenant": "acct_7", "keyref": "k_abc",
	} {
		if got := Attribute(m, name); got != want {
			s.Errorf("attribute %s is %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"content-type": full.ContentType, "x-shop": "eu", "traceparent": full.Trace.Parent, "tracestate": "a=b", "correlation-id": "c-9"} {
		if got, _ := m.Header(name); got != want {
			s.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if string(m.Body) != string(full.Payload) || Attribute(m, "datacontenttype") != "" {
		s.Errorf("body %q, datacontenttype %q", m.Body, Attribute(m, "datacontenttype"))
	}
	if m := byID[empty.ID]; len(m.Body) != 0 || marked(m) || Attribute(m, "subject") != "" || Attribute(m, "partitionkey") != "" {
		s.Errorf("an empty payload became %+v", m)
	}
	if m := byID[none.ID]; len(m.Body) != 0 || !marked(m) && m.Body != nil {
		s.Errorf("a nil payload became %+v", m)
	}
}

// marked reports the header by which brokers without tombstones carry one.
func marked(m inbox.Message) bool {
	v, _ := m.Header("idempo-tombstone")
	return v == "1"
}

func (s *stage) again() {
	p, stop := s.Publisher(s)
	defer stop()
	e := s.event(1, "k", []byte("x"))
	for range 3 {
		if err := s.publish(p, e)[0]; err != nil && !errors.Is(err, outbox.ErrDuplicate) {
			s.Error(err)
		}
	}
	for _, m := range s.sent(1) {
		if Attribute(m, "id") != e.ID {
			s.Errorf("another id: %q", Attribute(m, "id"))
		}
	}
}

func (s *stage) pressure() {
	p, stop := s.Publisher(s)
	defer stop()
	const n = 3000
	ds := make([]outbox.Delivery, n)
	for i := range ds {
		ds[i] = s.event(i, "", []byte("x"))
	}
	for i, err := range s.publish(p, ds...) {
		if err != nil {
			s.Fatalf("event %d: %v", i, err)
		}
	}
	if got := s.sent(n); len(got) != n {
		s.Errorf("%d are stored, want %d", len(got), n)
	}
}

func (s *stage) away() {
	p, stop := s.Publisher(s)
	defer stop()
	if err := s.publish(p, s.event(0, "", []byte("x")))[0]; err != nil {
		s.Fatal(err)
	}
	s.Link().Away(true)
	ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
	defer cancel()
	errs := make(chan []error, 1)
	go func() { errs <- s.publishIn(ctx, p, s.event(1, "", []byte("x")), s.event(2, "", []byte("x"))) }()
	<-ctx.Done()
	s.Link().Away(false)
	for _, err := range <-errs {
		if c := outbox.ClassOf(err); err != nil && c != outbox.ClassUnavailable && c != outbox.ClassUnanswered {
			s.Errorf("%q: %v", c, err)
		}
	}
	for n := 1; n <= 2; n++ {
		for {
			if err := s.publish(p, s.event(n, "", []byte("x")))[0]; err == nil || errors.Is(err, outbox.ErrDuplicate) {
				break
			}
			if s.Failed() {
				return
			}
			<-time.After(time.Millisecond) // the client's own pause before it connects again
		}
	}
	s.sent(3)
}

func (s *stage) ended() {
	p, stop := s.Publisher(s)
	defer stop()
	ctx, cancel := context.WithCancel(s.Context())
	ds := make([]outbox.Delivery, 200)
	for i := range ds {
		ds[i] = s.event(i, "", []byte("x"))
	}
	got := &told{errs: map[int][]error{}, all: make(chan struct{}), n: len(ds)}
	first := sync.OnceFunc(cancel)
	p.Publish(ctx, outbox.PublishParams{Events: ds, Done: func(i int, err error) { first(); got.done(i, err) }})
	select {
	case <-got.all:
	case <-time.After(90 * time.Second):
		s.Fatal("not every event was told of")
	}
	done := 0
	for i := range ds {
		if len(got.errs[i]) != 1 {
			s.Errorf("event %d was told of %d times", i, len(got.errs[i]))
		} else if got.errs[i][0] == nil {
			done++
		}
	}
	if done == 0 {
		s.Error("none is done")
	}
	s.sent(done)
}

// relayed appends events of several keys and relays them until trouble is over and all are published; then it wants each
// id there, and first appearances in the order of their keys.
func (s *stage) relayed(keys, each int, trouble func(published func() int)) {
	s.Helper()
	store := memstore.New(memstore.Options{})
	box, err := outbox.New(store, outbox.Options{Source: "/shop"})
	if err != nil {
		s.Fatal(err)
	}
	p, stop := s.Publisher(s)
	defer stop()
	counted := &counting{Publisher: p}
	relay, err := outbox.NewRelay(store, counted.wrapped(), outbox.RelayOptions{BackoffBase: time.Millisecond, BackoffMax: 50 * time.Millisecond, MaxPoll: 10 * time.Millisecond, PublishTimeout: 10 * time.Second})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := relay.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	running.Go(func() {
		for n := range each {
			for k := range keys {
				if _, err := appendOne(ctx, box, outbox.Event{Topic: s.Topic(), Key: fmt.Sprint("k", k), Type: "T", Payload: fmt.Append(nil, n)}); err != nil && ctx.Err() == nil {
					s.Error(err)
				}
			}
		}
	})
	trouble(counted.count)
	got := s.sent(keys * each)
	cancel()
	running.Wait()
	next := map[string]int{}
	seen := map[string]bool{}
	for _, m := range got {
		id, key := Attribute(m, "id"), Attribute(m, "partitionkey")
		if seen[id] {
			continue
		}
		seen[id] = true
		if want := fmt.Sprint(next[key]); string(m.Body) != want {
			s.Fatalf("key %s: %s came where %s was next", key, m.Body, want)
		}
		next[key]++
	}
}

func appendOne(ctx context.Context, box *outbox.Outbox, e outbox.Event) (ids []string, err error) {
	err = box.Do(ctx, func(ctx context.Context) error {
		ids, err = box.Append(ctx, e)
		return err
	})
	return ids, err
}

// counting counts what is done.
type counting struct {
	outbox.Publisher
	mu sync.Mutex
	n  int
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wrapped is c with the abilities of what it wraps.
func (c *counting) wrapped() outbox.Publisher {
	if o, ok := c.Publisher.(outbox.Orderer); ok {
		return struct {
			outbox.Publisher
			outbox.Orderer
		}{c, o}
	}
	return c
}

// Publish counts the events that are done.
func (c *counting) Publish(ctx context.Context, b outbox.PublishParams) {
	c.Publisher.Publish(ctx, outbox.PublishParams{Events: b.Events, Done: func(i int, err error) {
		if err == nil || errors.Is(err, outbox.ErrDuplicate) {
			c.mu.Lock()
			c.n++
			c.mu.Unlock()
		}
		b.Done(i, err)
	}})
}

func (s *stage) cut() {
	const keys, each, cuts = 10, 60, 5
	s.relayed(keys, each, func(published func() int) {
		for n := range cuts {
			s.wait(func() bool { return published() > (n+1)*keys*each/(cuts+2) })
			s.Link().Cut()
		}
	})
}

func (s *stage) wait(done func() bool) {
	s.Helper()
	limit := time.After(90 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			s.Fatal("it takes too long")
		case <-tick.C:
		}
	}
}

// RunPublisherOutage has the link, or what away(true) stops, away for as long as IDEMPO_TEST_OUTAGE says (default 1s)
// under load, and wants every event there afterwards, in order per key, a bounded number of dials, and no goroutine more
// than before. Do not call it from a test that runs in parallel with others.
func RunPublisherOutage(t *testing.T, d Destination, away func(bool)) {
	t.Helper()
	s := &stage{Destination: d, T: t}
	if away == nil {
		away = d.Link().Away
	}
	NoLeak(t)
	const keys, each = 10, 100
	s.relayed(keys, each, func(published func() int) {
		s.wait(func() bool { return published() > keys*each/10 })
		outage(t, away)
	})
}

// outageTime is how long a broker is away.
func outageTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("IDEMPO_TEST_OUTAGE")
	if text == "" {
		return time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// outage is the time of a broken link.
func outage(t *testing.T, away func(bool)) {
	t.Helper()
	away(true)
	<-time.After(outageTime(t)) // the outage itself
	away(false)
}

// NoLeak fails the test if, at its end, more goroutines of idempo, or more connections of the clients it uses, are there
// than now, once those that are ending have had time to.
func NoLeak(t testing.TB) {
	t.Helper()
	before := len(own())
	t.Cleanup(func() {
		limit := time.Now().Add(20 * time.Second)
		for len(own()) > before {
			if time.Now().After(limit) {
				t.Errorf("%d goroutines before, and now:\n%s", before, strings.Join(own(), "\n\n"))
				return
			}
			runtime.Gosched()
		}
	})
}

// own lists the goroutines that are ours, and one for each connection or client.
func own() (stacks []string) {
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, mark := range []string{"github.com/idempo/idempo/", "kgo.(*Client).updateMetadataLoop", "nats.(*Conn).readLoop", "amqp091-go.(*Connection).reader"} {
			if strings.Contains(stack, mark) {
				stacks = append(stacks, stack)
				break
			}
		}
	}
	return stacks
}
