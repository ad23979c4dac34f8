package idemnats_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// url is where the NATS of the tests is.
func url() string { return cmp.Or(os.Getenv("IDEMPO_TEST_NATS"), nats.DefaultURL) }

// connect returns a connection to the NATS of the tests, or skips.
func connect(t *testing.T, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return connectTo(t, url(), opts...)
}

func connectTo(t *testing.T, at string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(at, append(opts, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(10*time.Millisecond, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
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

// broker is a stream of the test's own with a consumer "billing" over a link that can be cut.
type broker struct {
	t      *testing.T
	url    string
	js     jetstream.JetStream // of the test
	own    jetstream.JetStream // of the consumer
	link   idempotest.Link
	stream jetstream.Stream
	name   string
}

func newBroker(t *testing.T, c jetstream.StreamConfig) *broker {
	t.Helper()
	c.Storage = jetstream.MemoryStorage
	return newBrokerAt(t, url(), c)
}

func newBrokerAt(t *testing.T, at string, c jetstream.StreamConfig) *broker {
	t.Helper()
	b := &broker{t: t, url: at, name: "T" + rand.Text()[:12]}
	var err error
	if b.js, err = jetstream.New(connectTo(t, at)); err != nil {
		t.Fatal(err)
	}
	if b.own, err = jetstream.New(connectTo(t, at, nats.SetCustomDialer(&b.link))); err != nil {
		t.Fatal(err)
	}
	c.Name, c.Subjects = b.name, []string{b.name + ".>"}
	if b.stream, err = b.js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.js.DeleteStream(context.WithoutCancel(t.Context()), b.name) })
	return b
}

func (b *broker) inbox(o inbox.Options) *inbox.Inbox {
	b.t.Helper()
	o.Subscriber, o.BackoffBase, o.BackoffMax, o.Poll = "billing", time.Millisecond, time.Millisecond, 5*time.Millisecond
	in, err := inbox.New(idempotest.EngineWith(b.t, memstore.New(memstore.Options{}), idempo.Config{}), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

// consumer returns the consumer of the test's stream, as the broker's own connection sees it.
func (b *broker) consumer(c jetstream.ConsumerConfig) jetstream.Consumer {
	b.t.Helper()
	c.Durable = "billing"
	if _, err := b.js.CreateOrUpdateConsumer(b.t.Context(), b.name, c); err != nil {
		b.t.Fatal(err)
	}
	con, err := b.own.Consumer(b.t.Context(), b.name, c.Durable)
	if err != nil {
		b.t.Fatal(err)
	}
	return con
}

func (b *broker) info() *jetstream.ConsumerInfo {
	b.t.Helper()
	con, err := b.js.Consumer(b.t.Context(), b.name, "billing")
	if err != nil {
		b.t.Fatal(err)
	}
	return con.CachedInfo()
}

func (b *broker) publish(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		b.Publish(b.t, inbox.Message{ID: id, Body: []byte("body of " + id)})
	}
}

func (b *broker) Publish(t testing.TB, m inbox.Message) {
	t.Helper()
	msg := &nats.Msg{Subject: b.name + ".paid", Data: m.Body, Header: nats.Header{}}
	if m.ID != "" {
		msg.Header.Set(jetstream.MsgIDHeader, m.ID)
	}
	if m.Lane != "" {
		msg.Header.Set("ce-partitionkey", m.Lane)
	}
	for _, h := range m.Headers {
		msg.Header.Add(h[0], h[1])
	}
	if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) Consume(ctx context.Context, in *inbox.Inbox, h inbox.Handler) error {
	con := b.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond})
	return idemnats.Consume(ctx, con, in, h, idemnats.Options{FetchWait: time.Second, LagEvery: 20 * time.Millisecond})
}

func (b *broker) Waiting(testing.TB) int {
	info := b.info()
	return int(info.NumPending) + info.NumAckPending //nolint:gosec // a few
}

func (b *broker) Taken(testing.TB) int { return b.info().NumAckPending }

func (b *broker) Cut(testing.TB) { b.link.Cut() }

func TestConsumer(t *testing.T) {
	t.Parallel()
	idempotest.RunConsumer(t, func(t *testing.T) idempotest.Broker {
		b := newBroker(t, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
		b.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond})
		return b
	})
}

func TestConsume(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B9] a producer's repeat beyond the broker's window is stored twice and has one effect", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
		b.publish("a", "a")
		info, err := b.stream.Info(t.Context())
		if err != nil || info.State.Msgs != 1 {
			t.Fatal(info.State.Msgs, err)
		}
		for info.State.Msgs < 2 { // until the server has forgotten the id
			b.publish("a")
			if info, err = b.stream.Info(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var ledger idempotest.Ledger
		b.consume(func(ctx context.Context, m inbox.Message) error { ledger.AddOnCommit(ctx, m.ID); return nil })
		ledger.Want(t, "a", 1)
	})
	t.Run("[messages/B15, B21] what the handler gets: position, time, repeated headers, which delivery it is", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		b.Publish(t, inbox.Message{ID: "1", Headers: [][2]string{{"x-a", "1"}, {"x-a", "2"}}})
		con := b.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
		first, err := con.Next()
		if err != nil || first.Nak() != nil { // somebody took it before
			t.Fatal(err)
		}
		b.Publish(t, inbox.Message{ID: "2"})
		var mu sync.Mutex
		got := map[string]inbox.Message{}
		b.consume(func(_ context.Context, m inbox.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[m.ID] = m
			return nil
		})
		m := got["1"]
		repeated := slices.Contains(m.Headers, [2]string{"x-a", "1"}) && slices.Contains(m.Headers, [2]string{"x-a", "2"})
		if m.Source != b.name || m.Attempt != 2 || m.Time.IsZero() || m.Position != b.name+"/1" || m.Body == nil || !repeated || got["2"].Attempt != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("[messages/I18, B11] a handler longer than AckWait is not delivered again", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		const wait = 500 * time.Millisecond // as Consume of the test's broker sets it
		b.publish("a")
		var ledger idempotest.Ledger
		b.consume(func(ctx context.Context, m inbox.Message) error {
			<-time.After(4 * wait) // the work itself: what is under test is what the server thinks of it meanwhile
			if n := b.info().NumRedelivered; n > 0 {
				t.Errorf("delivered again: %d", n)
			}
			ledger.AddOnCommit(ctx, m.ID)
			return nil
		})
		ledger.Want(t, "a", 1)
	})
}

// consume runs Consume until nothing is waiting.
func (b *broker) consume(h inbox.Handler) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.t.Context(), time.Minute)
	defer stop()
	b.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond})
	ended := make(chan error, 1)
	go func() { ended <- b.Consume(ctx, b.inbox(inbox.Options{}), h) }()
	for ctx.Err() == nil && b.Waiting(b.t) > 0 {
		runtime.Gosched()
	}
	if ctx.Err() != nil {
		b.t.Error("it takes too long")
	}
	stop()
	if err := <-ended; err != nil {
		b.t.Error(err)
	}
}

func none(context.Context, inbox.Message) error { return nil }

func TestRefused(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B11] a consumer whose messages the server would drop", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		in := b.inbox(inbox.Options{})
		for _, c := range []struct {
			config jetstream.ConsumerConfig
			say    string
		}{{jetstream.ConsumerConfig{MaxDeliver: 5}, "MaxDeliver 5"}} {
			err := idemnats.Consume(t.Context(), b.consumer(c.config), in, none, idemnats.Options{})
			if !errors.Is(err, idemnats.ErrUnsafeConsumer) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), b.name+"/billing") {
				t.Error(err)
			}
		}
		all, err := b.stream.CreateOrUpdateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckAllPolicy})
		if err != nil {
			t.Fatal(err)
		}
		if err := idemnats.Consume(t.Context(), all, in, none, idemnats.Options{}); !errors.Is(err, idemnats.ErrUnsafeConsumer) {
			t.Error(err)
		}
	})
	t.Run("[messages/I29] a stream that keeps messages for longer than the inbox remembers", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{MaxAge: 30 * 24 * time.Hour})
		err := idemnats.Consume(t.Context(), b.consumer(jetstream.ConsumerConfig{}), b.inbox(inbox.Options{}), none, idemnats.Options{Stream: b.stream})
		if !errors.Is(err, inbox.ErrWindow) || !strings.Contains(err.Error(), b.name) {
			t.Error(err)
		}
	})
	t.Run("a consumer that is gone ends Consume", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		con := b.consumer(jetstream.ConsumerConfig{})
		ended := make(chan error, 1)
		in := b.inbox(inbox.Options{})
		b.publish("a")
		go func() {
			ended <- idemnats.Consume(t.Context(), con, in, func(ctx context.Context, _ inbox.Message) error {
				return b.stream.DeleteConsumer(ctx, "billing")
			}, idemnats.Options{FetchWait: time.Second})
		}()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}
