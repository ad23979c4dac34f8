package idemrabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	idemrabbitmq "github.com/idempo/idempo/contrib/rabbitmq"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// exchange is one of the test's own that sends everything to the broker's queue.
type exchange struct {
	*broker
	name string
	got  []inbox.Message
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	return newExchangeAt(t, uri(t))
}

func newExchangeAt(t *testing.T, at string) *exchange {
	t.Helper()
	x := &exchange{broker: newBrokerAt(t, at, nil)}
	x.name = x.queue + "-x"
	x.declare(t)
	if err := x.ch.QueueBind(x.queue, "orders.#", x.name, false, nil); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *exchange) declare(t *testing.T) {
	t.Helper()
	if err := x.ch.ExchangeDeclare(x.name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.ch.ExchangeDelete(x.name, false, false) })
}

func (x *exchange) publisher(o idemrabbitmq.PublisherOptions) *idemrabbitmq.Publisher {
	o.Exchange = x.name
	return idemrabbitmq.NewPublisher(x.dial, o)
}

func (x *exchange) Publisher(testing.TB) (outbox.Publisher, func()) {
	p := x.publisher(idemrabbitmq.PublisherOptions{MaxPending: 100})
	return p, p.Close
}

func (x *exchange) Topic() string { return "orders.paid" }

func (x *exchange) Link() *idempotest.Link { return &x.link }

func (x *exchange) Received(t testing.TB) []inbox.Message {
	t.Helper()
	for {
		d, ok, err := x.channel().Get(x.queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return x.got
		}
		m := inbox.Message{Body: d.Body, Headers: [][2]string{{"content-type", d.ContentType}, {"message-id", d.MessageId}}}
		for name, v := range d.Headers {
			m.Headers = append(m.Headers, [2]string{name, fmt.Sprint(v)})
		}
		x.got = append(x.got, m)
	}
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	idempotest.RunPublisher(t, func(t *testing.T) idempotest.Destination { return newExchange(t) })
}

func event(id, topic string) outbox.Delivery {
	return outbox.Delivery{Seq: 1, BrokerID: id, Event: outbox.Event{ID: id, Source: "/shop", Topic: topic, Type: "T", Tenant: "default", Payload: []byte("x")}}
}

// tell publishes events and returns what was told of each.
func tell(t *testing.T, p outbox.Publisher, ds ...outbox.Delivery) []error {
	t.Helper()
	type told struct {
		i   int
		err error
	}
	c := make(chan told, len(ds))
	p.Publish(t.Context(), outbox.PublishParams{Events: ds, Done: func(i int, err error) { c <- told{i, err} }})
	errs := make([]error, len(ds))
	limit := time.After(time.Minute)
	for range ds {
		select {
		case one := <-c:
			errs[one.i] = one.err
		case <-limit:
			t.Fatal("not every event was told of")
		}
	}
	return errs
}

// until publishes d again and again until it is done.
func until(t *testing.T, p outbox.Publisher, d outbox.Delivery) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		err := tell(t, p, d)[0]
		if err == nil {
			return
		}
		select {
		case <-limit:
			t.Fatal(err)
		case <-time.After(time.Millisecond): // the publisher's pause before it dials again
		}
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B12] what no queue takes has no route although it is confirmed, and has one once a queue is bound", func(t *testing.T) {
		t.Parallel()
		x := newExchange(t)
		p, stop := x.Publisher(t)
		defer stop()
		errs := tell(t, p, event("1", "late"), event("2", "orders.paid"), event("3", "late"))
		if outbox.ClassOf(errs[0]) != outbox.ClassNoRoute || errs[1] != nil || outbox.ClassOf(errs[2]) != outbox.ClassNoRoute {
			t.Error(errs)
		}
		if err := x.ch.QueueBind(x.queue, "late", x.name, false, nil); err != nil {
			t.Fatal(err)
		}
		if errs := tell(t, p, event("1", "late"), event("3", "late")); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		if got := x.Received(t); len(got) != 3 {
			t.Errorf("%d are stored", len(got))
		}
	})
	t.Run("[messages/B12] persistent, with message-id, type and a list for a header that repeats", func(t *testing.T) {
		t.Parallel()
		x := newExchange(t)
		p, stop := x.Publisher(t)
		defer stop()
		e := event(outbox.IDFor("n", "1"), "orders.paid")
		e.Headers = [][2]string{{"x-a", "1"}, {"x-a", "2"}, {"x-a", "3"}}
		if err := tell(t, p, e)[0]; err != nil {
			t.Fatal(err)
		}
		got := make(chan inbox.Message, 1)
		d, ok, err := x.ch.Get(x.queue, false)
		if err != nil || !ok || d.DeliveryMode != amqp.Persistent || d.MessageId != e.ID || d.Type != "T" || d.Nack(false, true) != nil {
			t.Errorf("%+v, %v", d, err)
		}
		x.consume(inbox.Options{}, func(_ context.Context, m inbox.Message) error { got <- m; return nil }, func() bool { return len(got) > 0 })
		m := <-got
		for _, v := range []string{"1", "2", "3"} {
			if !slices.Contains(m.Headers, [2]string{"x-a", v}) {
				t.Errorf("x-a: %s is missing in %q", v, m.Headers)
			}
		}
		if m.ID != e.ID || m.Source != "/shop" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("[messages/B12] the channel is lost before the confirm: not known, and the same id goes out again", func(t *testing.T) {
		t.Parallel()
		x := newExchange(t)
		p := x.publisher(idemrabbitmq.PublisherOptions{MaxPending: 1000})
		defer p.Close()
		until(t, p, event("0", "orders.paid"))
		const n = 500
		unknown, told := 0, make(chan error, n)
		events := make([]outbox.Delivery, n)
		for i := range events {
			events[i] = event(fmt.Sprint(i+1), "orders.paid")
		}
		cut := 0
		for unknown == 0 && cut < 50 {
			cut++
			sent := make(chan struct{})
			go func() { // cut while they are on their way
				p.Publish(t.Context(), outbox.PublishParams{Events: events, Done: func(_ int, err error) { told <- err }})
				close(sent)
			}()
			<-told
			x.Cut(t)
			<-sent
			for range n - 1 {
				switch err := <-told; {
				case err == nil:
				case outbox.ClassOf(err) == outbox.ClassUnanswered:
					unknown++
				case outbox.ClassOf(err) != outbox.ClassUnavailable:
					t.Errorf("%q: %v", outbox.ClassOf(err), err)
				}
			}
			until(t, p, event("0", "orders.paid"))
		}
		if unknown == 0 {
			t.Fatal("void: no event was in flight at a cut")
		}
		for _, e := range events {
			until(t, p, e)
		}
		ids := map[string]bool{}
		for _, m := range x.Received(t) {
			ids[idempotest.Attribute(m, "id")] = true
		}
		if len(ids) != n+1 {
			t.Errorf("%d ids are stored, want %d", len(ids), n+1)
		}
	})
	t.Run("[messages/B13] there is no exchange: the server closes the channel, nothing is taken for sent; it heals", func(t *testing.T) {
		t.Parallel()
		x := &exchange{broker: newBroker(t, nil)}
		x.name = x.queue + "-x"
		p, stop := x.Publisher(t)
		defer stop()
		noRoute := 0
		for range 20 {
			for _, err := range tell(t, p, event("1", "orders.paid"), event("2", "orders.paid")) {
				switch c := outbox.ClassOf(err); {
				case err == nil:
					t.Fatal("taken for sent")
				case c == outbox.ClassNoRoute:
					noRoute++
				case c != outbox.ClassUnavailable && c != outbox.ClassUnanswered:
					t.Errorf("%q: %v", c, err)
				}
			}
		}
		if noRoute == 0 {
			t.Error("never said that there is no exchange")
		}
		x.declare(t)
		if err := x.ch.QueueBind(x.queue, "orders.#", x.name, false, nil); err != nil {
			t.Fatal(err)
		}
		until(t, p, event("1", "orders.paid"))
		until(t, p, event("2", "orders.paid"))
		if got := x.Received(t); len(got) != 2 {
			t.Errorf("%d are stored", len(got))
		}
	})
	t.Run("[messages/B13] ten thousand unconfirmed, half of them returned, and no deadlock", func(t *testing.T) {
		t.Parallel()
		x := newExchange(t)
		p := x.publisher(idemrabbitmq.PublisherOptions{MaxPending: 10_000})
		defer p.Close()
		const n = 10_000
		events := make([]outbox.Delivery, n)
		for i := range events {
			events[i] = event(fmt.Sprint(i), []string{"orders.paid", "nowhere"}[i%2])
		}
		for i, err := range tell(t, p, events...) {
			if i%2 == 0 && err != nil || i%2 == 1 && outbox.ClassOf(err) != outbox.ClassNoRoute {
				t.Fatalf("event %d: %v", i, err)
			}
		}
	})
	t.Run("a publisher that is closed, or cannot connect, takes nothing and shows no address", func(t *testing.T) {
		t.Parallel()
		p := idemrabbitmq.NewPublisher(idemrabbitmq.Dial("amqp://canary:secret@127.0.0.1:1/"), idemrabbitmq.PublisherOptions{})
		if err := tell(t, p, event("1", "a"))[0]; outbox.ClassOf(err) != outbox.ClassUnavailable || err.Error() != "cannot connect" {
			t.Error(err)
		}
		p.Close()
		if err := tell(t, p, event("1", "a"))[0]; outbox.ClassOf(err) != outbox.ClassUnavailable {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("over"))
		p.Publish(ctx, outbox.PublishParams{Events: []outbox.Delivery{event("1", "a")}, Done: func(_ int, err error) {
			if outbox.ClassOf(err) != outbox.ClassUnavailable {
				t.Error(err)
			}
		}})
	})
}

func TestOutage(t *testing.T) {
	t.Run("[messages/B3] the link is away under load, both directions", func(t *testing.T) {
		x := newExchange(t)
		idempotest.RunPublisherOutage(t, x, nil)
		b := newBroker(t, quorum(20))
		idempotest.RunConsumerOutage(t, b, b.link.Away)
	})
}

func TestServer(t *testing.T) {
	s := newServer(t)
	t.Run("[messages/B13] the server blocks the connection: it takes nothing, nothing is taken for sent, and no call hangs; then all goes out", func(t *testing.T) {
		x := newExchangeAt(t, s.uri)
		p := x.publisher(idemrabbitmq.PublisherOptions{MaxPending: 50, ConfirmTimeout: 2 * time.Second})
		defer p.Close()
		until(t, p, event("0", "orders.paid"))
		s.ctl("set_vm_memory_high_watermark", "0.000001")
		events := make([]outbox.Delivery, 200)
		for i := range events {
			events[i] = event(fmt.Sprint(i+1), "orders.paid")
			events[i].Payload = make([]byte, 64<<10) // more than any socket's buffers take
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		told := make(chan error, len(events))
		p.Publish(ctx, outbox.PublishParams{Events: events, Done: func(_ int, err error) { told <- err }})
		for range events {
			if err := <-told; outbox.ClassOf(err) != outbox.ClassUnavailable && outbox.ClassOf(err) != outbox.ClassUnanswered {
				t.Errorf("%q: %v", outbox.ClassOf(err), err)
			}
		}
		s.ctl("set_vm_memory_high_watermark", "0.6")
		for _, e := range events {
			until(t, p, e)
		}
		ids := map[string]bool{}
		for _, m := range x.Received(t) {
			ids[idempotest.Attribute(m, "id")] = true
		}
		if len(ids) != len(events)+1 {
			t.Errorf("%d ids are stored", len(ids))
		}
	})
	t.Run("[messages/B3] the server is killed and started again under load, both directions", func(t *testing.T) {
		idempotest.RunPublisherOutage(t, newExchangeAt(t, s.uri), s.away)
		idempotest.RunConsumerOutage(t, newBrokerAt(t, s.uri, nil), s.away)
	})
}
