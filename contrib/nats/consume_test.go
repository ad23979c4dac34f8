package idemnats_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idempo/idempo"
	idemnats "github.com/idempo/idempo/contrib/nats"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// connect returns a connection to the NATS of the tests, or skips.
func connect(t *testing.T) *nats.Conn {
	t.Helper()
	url := os.Getenv("IDEMPO_TEST_NATS")
	if url == "" {
		url = nats.DefaultURL
	}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		text := "no NATS: set IDEMPO_TEST_NATS, or start one with: docker run -p 4222:4222 nats -js"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	t.Cleanup(nc.Close)
	return nc
}

// bench is a stream of the test's own, an inbox over a store that may be away, and a ledger outside.
type bench struct {
	t      *testing.T
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string
	store  *flaky
	ledger idempotest.Ledger
}

func newBench(t *testing.T, c jetstream.StreamConfig) *bench {
	t.Helper()
	js, err := jetstream.New(connect(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, js: js, name: "T" + rand.Text()[:12], store: &flaky{Store: memstore.New(memstore.Options{})}}
	c.Name, c.Subjects, c.Storage = b.name, []string{b.name + ".>"}, jetstream.MemoryStorage
	if b.stream, err = js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), b.name) })
	return b
}

// flaky is a memory store whose transactions may be refused.
type flaky struct {
	*memstore.Store
	away    atomic.Bool
	refused atomic.Int64
}

func (f *flaky) InTx(ctx context.Context, fn func(context.Context) error) error {
	if f.away.Load() {
		f.refused.Add(1)
		return &idempo.Error{Op: "begin", Code: "unavailable"}
	}
	return f.Store.InTx(ctx, fn)
}

func (b *bench) inbox(o inbox.Options) *inbox.Inbox {
	b.t.Helper()
	if o.Subscriber == "" {
		o.Subscriber = "billing"
	}
	if o.BackoffBase == 0 {
		o.BackoffBase, o.BackoffMax = time.Millisecond, time.Millisecond
	}
	o.Poll = 5 * time.Millisecond
	in, err := inbox.New(idempotest.EngineWith(b.t, b.store, idempo.Config{}), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

func (b *bench) consumer(c jetstream.ConsumerConfig) jetstream.Consumer {
	b.t.Helper()
	c.Durable = "billing"
	if c.AckPolicy == 0 {
		c.AckPolicy = jetstream.AckExplicitPolicy
	}
	con, err := b.stream.CreateOrUpdateConsumer(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return con
}

func (b *bench) publish(id string, headers ...string) {
	b.t.Helper()
	m := &nats.Msg{Subject: b.name + ".paid", Data: []byte("body of " + id), Header: nats.Header{}}
	if id != "" {
		m.Header.Set(jetstream.MsgIDHeader, id)
	}
	for i := 0; i < len(headers); i += 2 {
		m.Header.Add(headers[i], headers[i+1])
	}
	if _, err := b.js.PublishMsg(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// bill notes one effect per message.
func (b *bench) bill(ctx context.Context, m inbox.Message) error {
	b.ledger.AddOnCommit(ctx, m.ID)
	return nil
}

// consume runs Consume until done says that it is over, asked after every change of the consumer's state.
func (b *bench) consume(con jetstream.Consumer, in *inbox.Inbox, h inbox.Handler, done func(*jetstream.ConsumerInfo) bool) error {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- idemnats.Consume(ctx, con, in, h, idemnats.Options{FetchWait: time.Second}) }()
	limit, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case err := <-ended:
			return err
		default:
		}
		info, err := con.Info(limit)
		if err != nil {
			b.t.Fatal(err)
		}
		if done(info) {
			stop()
			return <-ended
		}
	}
}

// drained says that everything was delivered and acknowledged.
func drained(info *jetstream.ConsumerInfo) bool {
	return info.NumPending == 0 && info.NumAckPending == 0
}

func TestConsume(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I1, B9] a producer's repeat beyond the broker's window is stored twice and has one effect", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
		for _, id := range []string{"a", "b", "a", "c"} {
			b.publish(id)
		}
		info, err := b.stream.Info(t.Context())
		if err != nil || info.State.Msgs != 3 {
			t.Fatal(info.State.Msgs, err)
		}
		for info.State.Msgs < 4 { // until the server has forgotten the id
			b.publish("a")
			if info, err = b.stream.Info(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.consume(b.consumer(jetstream.ConsumerConfig{}), b.inbox(inbox.Options{}), b.bill, drained); err != nil {
			t.Error(err)
		}
		for _, id := range []string{"a", "b", "c"} {
			b.ledger.Want(t, id, 1)
		}
	})
	t.Run("[messages/B15, B22] what the handler gets: CloudEvents of any producer, headers, position, time, attempt", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		b.publish("", "ce-id", "1", "ce-source", "/shop", "ce-specversion", "1.0", "ce-type", "paid", "ce-partitionkey", "c-1", "x-a", "1", "x-a", "2")
		var got []inbox.Message
		var mu sync.Mutex
		err := b.consume(b.consumer(jetstream.ConsumerConfig{}), b.inbox(inbox.Options{}), func(_ context.Context, m inbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m)
			return nil
		}, drained)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		m := got[0]
		repeated := slices.Contains(m.Headers, [2]string{"x-a", "1"}) && slices.Contains(m.Headers, [2]string{"x-a", "2"})
		if m.ID != "1" || m.Source != "/shop" || m.Type != "paid" || m.Lane != "c-1" || m.Attempt != 1 || m.Time.IsZero() ||
			m.Position != b.name+"/1" || string(m.Body) != "body of " || !repeated {
			t.Errorf("%+v", m)
		}
	})
	t.Run("[messages/I2] the link is lost between commit and acknowledgement: redelivered, one effect", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{AckWait: time.Second})
		b.publish("a")
		lost := connect(t)
		js, err := jetstream.New(lost)
		if err != nil {
			t.Fatal(err)
		}
		own, err := js.Consumer(t.Context(), b.name, "billing")
		if err != nil {
			t.Fatal(err)
		}
		committed := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- idemnats.Consume(ctx, own, b.inbox(inbox.Options{}), func(ctx context.Context, m inbox.Message) error {
				memstore.OnCommit(ctx, func() { b.ledger.Add(m.ID); lost.Close(); close(committed) })
				return nil
			}, idemnats.Options{})
		}()
		<-committed
		stop()
		<-ended
		info, err := con.Info(t.Context())
		if err != nil || info.NumAckPending != 1 {
			t.Fatalf("%d are not acknowledged, %v", info.NumAckPending, err)
		}
		if err := b.consume(con, b.inbox(inbox.Options{}), b.bill, drained); err != nil {
			t.Error(err)
		}
		b.ledger.Want(t, "a", 1)
	})
	t.Run("[messages/I18, B11] a handler longer than AckWait is not delivered again", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		const wait = 600 * time.Millisecond
		con := b.consumer(jetstream.ConsumerConfig{AckWait: wait})
		b.publish("a")
		err := b.consume(con, b.inbox(inbox.Options{}), func(ctx context.Context, m inbox.Message) error {
			<-time.After(4 * wait) // the work itself: what is under test is what the server thinks of it meanwhile
			return b.bill(ctx, m)
		}, func(info *jetstream.ConsumerInfo) bool {
			if info.NumRedelivered > 0 {
				t.Error("it was delivered again")
				return true
			}
			return drained(info)
		})
		if err != nil {
			t.Error(err)
		}
		b.ledger.Want(t, "a", 1)
	})
	t.Run("[messages/I19] the store is away: nothing is acknowledged, prefetch is bounded, then each effect once", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{AckWait: 500 * time.Millisecond, MaxDeliver: -1})
		for i := range 40 {
			b.publish(fmt.Sprint(i))
		}
		b.store.away.Store(true)
		in := b.inbox(inbox.Options{MaxInFlight: 10, Workers: 4, MaxAttempts: 2})
		most := 0
		err := b.consume(con, in, b.bill, func(info *jetstream.ConsumerInfo) bool {
			most = max(most, info.NumAckPending)
			if b.store.away.Load() && info.AckFloor.Consumer > 0 {
				t.Error("acknowledged while the store is away")
			}
			if b.store.refused.Load() > 15 {
				b.store.away.Store(false)
			}
			return drained(info)
		})
		if err != nil || most > 10 || most < 4 {
			t.Errorf("%v, %d in flight at most", err, most)
		}
		for i := range 40 {
			b.ledger.Want(t, fmt.Sprint(i), 1)
		}
		if rs, err := in.Find(t.Context(), inbox.Selection{}); err != nil || len(rs) != 0 {
			t.Errorf("dead or parked: %d, %v", len(rs), err)
		}
	})
	t.Run("[messages/I21] a lane keeps its order over failures, and others go on", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{})
		for i := range 10 {
			b.publish(fmt.Sprint("a", i), "ce-partitionkey", "a")
			b.publish(fmt.Sprint("b", i), "ce-partitionkey", "b")
		}
		var mu sync.Mutex
		order := map[string][]string{}
		tries := map[string]int{}
		in := b.inbox(inbox.Options{})
		err := b.consume(con, in, func(ctx context.Context, m inbox.Message) error {
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
				b.ledger.Add(m.ID)
				order[m.Lane] = append(order[m.Lane], m.ID)
			})
			return nil
		}, func(info *jetstream.ConsumerInfo) bool {
			mu.Lock()
			defer mu.Unlock()
			return drained(info) && len(order["a"]) == 10 && len(order["b"]) == 10
		})
		if err != nil {
			t.Error(err)
		}
		for lane, ids := range order {
			for i, id := range ids {
				b.ledger.Want(t, id, 1)
				if id != fmt.Sprint(lane, i) {
					t.Fatalf("lane %s: %q", lane, ids)
				}
			}
		}
	})
	t.Run("[messages/I9] a producer without ids stops the consumer, not the topic", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{})
		for range 20 {
			b.publish("")
		}
		err := b.consume(con, b.inbox(inbox.Options{ParkBreaker: 5, Workers: 1}), b.bill, func(*jetstream.ConsumerInfo) bool { return false })
		if !errors.Is(err, inbox.ErrBreaker) {
			t.Error(err)
		}
		if info, err := con.Info(t.Context()); err != nil || info.NumAckPending+int(info.NumPending) != 15 { //nolint:gosec // twenty
			t.Errorf("%d and %d are left, %v", info.NumAckPending, info.NumPending, err)
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B11] a consumer whose messages the server would drop", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		in := b.inbox(inbox.Options{})
		for _, c := range []struct {
			config jetstream.ConsumerConfig
			say    string
		}{{jetstream.ConsumerConfig{MaxDeliver: 5}, "MaxDeliver 5"}} {
			err := idemnats.Consume(t.Context(), b.consumer(c.config), in, b.bill, idemnats.Options{})
			if !errors.Is(err, idemnats.ErrUnsafeConsumer) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), b.name+"/billing") {
				t.Error(err)
			}
		}
		all, err := b.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckAllPolicy})
		if err != nil {
			t.Fatal(err)
		}
		if err := idemnats.Consume(t.Context(), all, in, b.bill, idemnats.Options{}); !errors.Is(err, idemnats.ErrUnsafeConsumer) {
			t.Error(err)
		}
	})
	t.Run("[messages/I29] a stream that keeps messages for longer than the inbox remembers", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{MaxAge: 30 * 24 * time.Hour})
		err := idemnats.Consume(t.Context(), b.consumer(jetstream.ConsumerConfig{}), b.inbox(inbox.Options{}), b.bill, idemnats.Options{Stream: b.stream})
		if !errors.Is(err, inbox.ErrWindow) || !strings.Contains(err.Error(), b.name) {
			t.Error(err)
		}
	})
	t.Run("a consumer that is gone ends Consume", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{})
		ended := make(chan error, 1)
		in := b.inbox(inbox.Options{})
		b.publish("a")
		go func() {
			ended <- idemnats.Consume(t.Context(), con, in, func(ctx context.Context, m inbox.Message) error {
				return errors.Join(b.bill(ctx, m), b.stream.DeleteConsumer(ctx, "billing"))
			}, idemnats.Options{FetchWait: time.Second})
		}()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}
