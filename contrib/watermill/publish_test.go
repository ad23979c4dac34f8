package idemwatermill_test

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	idemwatermill "github.com/idempo/idempo/contrib/watermill"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// bus is a Watermill publisher that stores what it is given, as long as its link is there.
type bus struct {
	link   idempotest.Link
	server net.Listener
	panics bool

	mu  sync.Mutex
	got []inbox.Message
}

func newBus(t *testing.T) *bus {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &bus{server: l}
}

func (b *bus) Publish(topic string, msgs ...*message.Message) error {
	if b.panics {
		panic("broken")
	}
	c, err := b.link.Dial("tcp", b.server.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range msgs {
		m := inbox.Message{Body: msg.Payload, Headers: [][2]string{{"topic", topic}, {"uuid", msg.UUID}}}
		for name, v := range msg.Metadata {
			m.Headers = append(m.Headers, [2]string{name, v})
		}
		b.got = append(b.got, m)
	}
	return nil
}

func (b *bus) Close() error { return nil }

func (b *bus) Publisher(testing.TB) (outbox.Publisher, func()) {
	return idemwatermill.NewPublisher(b), func() {}
}

func (b *bus) Topic() string { return "orders.paid" }

func (b *bus) Link() *idempotest.Link { return &b.link }

func (b *bus) Received(testing.TB) []inbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	idempotest.RunPublisher(t, func(t *testing.T) idempotest.Destination { return newBus(t) })
	t.Run("[messages/B20] done only if Publish returned nil; the UUID is the event's id", func(t *testing.T) {
		t.Parallel()
		b := newBus(t)
		p, _ := b.Publisher(t)
		id := outbox.IDFor("n", "1")
		publish := func() (err error) {
			p.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{{BrokerID: id, Event: outbox.Event{ID: id, Topic: "orders.paid", Payload: []byte("x")}}},
				Done: func(_ int, told error) { err = told }})
			return err
		}
		b.link.Away(true)
		if err := publish(); outbox.ClassOf(err) != outbox.ClassUnanswered {
			t.Error(err)
		}
		b.link.Away(false)
		b.panics = true
		if err := publish(); outbox.ClassOf(err) != outbox.ClassUnanswered || errors.Is(err, outbox.ErrDuplicate) {
			t.Error(err)
		}
		b.panics = false
		if err := publish(); err != nil {
			t.Error(err)
		}
		got := b.Received(t)
		if len(got) != 1 || !slices.Contains(got[0].Headers, [2]string{"uuid", id}) || !slices.Contains(got[0].Headers, [2]string{"topic", "orders.paid"}) {
			t.Errorf("%+v", got)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Run("[messages/B3] the link is away under load", func(t *testing.T) {
		idempotest.RunPublisherOutage(t, newBus(t), nil)
	})
}
