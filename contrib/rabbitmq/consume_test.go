package idemrabbitmq_test

import (
	"context"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idempo/idempo"
	idemrabbitmq "github.com/idempo/idempo/contrib/rabbitmq"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// uri returns where the RabbitMQ of the tests is, or skips.
func uri(t *testing.T) string {
	t.Helper()
	uri := os.Getenv("IDEMPO_TEST_RABBITMQ")
	if uri == "" {
		uri = "amqp://guest:guest@127.0.0.1:5672/"
	}
	c, err := amqp.Dial(uri)
	if err != nil {
		text := "no RabbitMQ: set IDEMPO_TEST_RABBITMQ, or start one with: docker run -p 5672:5672 rabbitmq"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	_ = c.Close()
	return uri
}

// broker is a queue of the test's own, and a link to it that can be cut.
type broker struct {
	t     *testing.T
	uri   string
	conn  *amqp.Connection
	ch    *amqp.Channel
	link  idempotest.Link
	queue string
}

func newBroker(t *testing.T, args amqp.Table) *broker {
	t.Helper()
	return newBrokerAt(t, uri(t), args)
}

func newBrokerAt(t *testing.T, at string, args amqp.Table) *broker {
	t.Helper()
	b := &broker{t: t, uri: at, queue: "idempo-" + rand.Text()[:12]}
	if _, err := b.channel().QueueDeclare(b.queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !b.ch.IsClosed() {
			_, _ = b.ch.QueueDelete(b.queue, false, false, false)
		}
		_ = b.conn.Close()
	})
	return b
}

// channel is the test's own, opened again where the server was away.
func (b *broker) channel() *amqp.Channel {
	b.t.Helper()
	if b.ch != nil && !b.ch.IsClosed() {
		return b.ch
	}
	var err error
	if b.conn, err = amqp.Dial(b.uri); err != nil {
		b.t.Fatal(err)
	}
	if b.ch, err = b.conn.Channel(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.ch.Confirm(false); err != nil {
		b.t.Fatal(err)
	}
	return b.ch
}

func quorum(limit int) amqp.Table {
	return amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": limit}
}

// dial connects over the link.
func (b *broker) dial(context.Context) (*amqp.Connection, error) {
	return amqp.DialConfig(b.uri, amqp.Config{Dial: b.link.Dial, Heartbeat: time.Second})
}

func (b *broker) Publish(t testing.TB, m inbox.Message) {
	t.Helper()
	p := amqp.Publishing{MessageId: m.ID, Body: m.Body, Headers: amqp.Table{}}
	if m.Lane != "" {
		p.Headers["cloudEvents:partitionkey"] = m.Lane
	}
	for _, h := range m.Headers {
		if h[0] == "content-type" {
			p.ContentType = h[1]
			continue
		}
		p.Headers[h[0]] = h[1]
	}
	b.publish(t, p)
}

func (b *broker) publish(t testing.TB, p amqp.Publishing) {
	t.Helper()
	p.DeliveryMode = amqp.Persistent
	confirm, err := b.ch.PublishWithDeferredConfirmWithContext(t.Context(), "", b.queue, true, false, p)
	if err != nil {
		t.Fatal(err)
	}
	if !confirm.Wait() {
		t.Fatal("not confirmed")
	}
}

func (b *broker) Consume(ctx context.Context, in *inbox.Inbox, h inbox.Handler) error {
	return idemrabbitmq.Consume(ctx, b.dial, in, h, idemrabbitmq.Options{Queue: b.queue, LagEvery: 20 * time.Millisecond})
}

// Waiting is what waits in the queue; what a consumer had comes back when its connection is gone.
func (b *broker) Waiting(t testing.TB) int {
	t.Helper()
	q, err := b.channel().QueueDeclarePassive(b.queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
}

func (b *broker) Taken(testing.TB) int { return -1 }

func (b *broker) Cut(testing.TB) { b.link.Cut() }

func TestConsumer(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]amqp.Table{"classic": nil, "quorum": quorum(3)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idempotest.RunConsumer(t, func(t *testing.T) idempotest.Broker { return newBroker(t, args) })
		})
	}
}

// consume runs Consume over a store of its own until done.
func (b *broker) consume(o inbox.Options, h inbox.Handler, done func() bool) {
	b.t.Helper()
	o.Subscriber = "billing"
	in, err := inbox.New(idempotest.EngineWith(b.t, memstore.New(memstore.Options{}), idempo.Config{}), o)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(b.t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- b.Consume(ctx, in, h) }()
	for ctx.Err() == nil && !done() {
		b.Waiting(b.t) // a round trip
	}
	if ctx.Err() != nil {
		b.t.Error("it takes too long")
	}
	stop()
	if err := <-ended; err != nil {
		b.t.Error(err)
	}
}

func TestConsume(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B21] what the handler gets: AMQP's own headers as text, type, time", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, nil)
		b.publish(t, amqp.Publishing{ContentType: "text/plain", Type: "own", Timestamp: time.Unix(1_800_000_000, 0), MessageId: "1",
			Headers: amqp.Table{"n": int32(7), "bin": []byte{0xff}, "at": time.Unix(0, 0)}})
		got := make(chan inbox.Message, 1)
		b.consume(inbox.Options{}, func(_ context.Context, m inbox.Message) error { got <- m; return nil }, func() bool { return len(got) > 0 })
		m := <-got
		if m.ID != "1" || m.Source != b.queue || m.Type != "own" || m.Attempt != 1 || m.Time.Unix() != 1_800_000_000 || m.Body == nil {
			t.Errorf("%+v", m)
		}
		for _, want := range [][2]string{{"n", "7"}, {"bin", "\xff"}, {"at", "1970-01-01T00:00:00Z"}, {"content-type", "text/plain"}} {
			if !slices.Contains(m.Headers, want) {
				t.Errorf("%q is missing in %q", want, m.Headers)
			}
		}
	})
	t.Run("[messages/B15] which delivery it is: certainly the first, or one more", func(t *testing.T) {
		t.Parallel()
		for name, args := range map[string]amqp.Table{"classic": nil, "quorum": quorum(5)} {
			b := newBroker(t, args)
			b.Publish(t, inbox.Message{ID: "a"})
			d, ok, err := b.ch.Get(b.queue, false)
			if err != nil || !ok || d.Nack(false, true) != nil { // somebody had it before
				t.Fatal(name, ok, err)
			}
			b.Publish(t, inbox.Message{ID: "b"})
			got := make(chan inbox.Message, 2)
			b.consume(inbox.Options{}, func(_ context.Context, m inbox.Message) error { got <- m; return nil }, func() bool { return len(got) == 2 })
			for range 2 {
				if m := <-got; m.Attempt != map[string]int{"a": 2, "b": 1}[m.ID] {
					t.Errorf("%s: %s is delivery %d", name, m.ID, m.Attempt)
				}
			}
		}
	})
	t.Run("[messages/B16] an address that cannot be reached is not shown", func(t *testing.T) {
		t.Parallel()
		_, err := idemrabbitmq.Dial("amqp://canary:secret@127.0.0.1:1/")(t.Context())
		if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
		if err := idemrabbitmq.Consume(t.Context(), nil, nil, nil, idemrabbitmq.Options{}); err == nil {
			t.Error("no queue, and no error")
		}
	})
}
