package idemnats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	idemnats "github.com/idempo/idempo/contrib/nats"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// Publisher returns one over a connection of its own.
func (b *broker) Publisher(t testing.TB) (outbox.Publisher, func()) {
	t.Helper()
	nc := connectTo(b.t, b.url, nats.SetCustomDialer(&b.link))
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(100))
	if err != nil {
		t.Fatal(err)
	}
	return idemnats.NewPublisher(js, idemnats.PublisherOptions{Prefix: b.name + ".", AckTimeout: 5 * time.Second}), nc.Close
}

func (b *broker) Topic() string { return "orders.paid" }

func (b *broker) Link() *idempotest.Link { return &b.link }

func (b *broker) Received(t testing.TB) (got []inbox.Message) {
	t.Helper()
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	con, err := b.js.OrderedConsumer(t.Context(), b.name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	batch, err := con.Fetch(int(info.State.Msgs), jetstream.FetchMaxWait(5*time.Second)) //nolint:gosec // a few thousand
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		got = append(got, wire(m))
	}
	return got
}

func wire(m jetstream.Msg) inbox.Message {
	out := inbox.Message{Body: m.Data()}
	for name, vs := range m.Headers() {
		for _, v := range vs {
			out.Headers = append(out.Headers, [2]string{name, v})
		}
	}
	return out
}

func TestPublisher(t *testing.T) {
	t.Parallel()
	idempotest.RunPublisher(t, func(t *testing.T) idempotest.Destination {
		return newBroker(t, jetstream.StreamConfig{Duplicates: 100 * time.Millisecond})
	})
}

// one publishes a single event and returns what was told of it.
func one(t *testing.T, p outbox.Publisher, d outbox.Delivery) error {
	t.Helper()
	told := make(chan error, 1)
	p.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{d}, Done: func(_ int, err error) { told <- err }})
	select {
	case err := <-told:
		return err
	case <-time.After(time.Minute):
		t.Fatal("nothing was told")
		return nil
	}
}

func event(id, topic string, payload []byte) outbox.Delivery {
	return outbox.Delivery{Seq: 1, BrokerID: id, Event: outbox.Event{ID: id, Source: "/shop", Topic: topic, Type: "T", Tenant: "default", Payload: payload}}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B8] a subject that no stream covers has no route, and has one once it is covered", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		js, err := jetstream.New(connect(t))
		if err != nil {
			t.Fatal(err)
		}
		p := idemnats.NewPublisher(js, idemnats.PublisherOptions{Prefix: b.name + "x."})
		err = one(t, p, event("1", "late", []byte("x")))
		if outbox.ClassOf(err) != outbox.ClassNoRoute {
			t.Error(err)
		}
		if _, err := b.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: b.name, Subjects: []string{b.name + ".>", b.name + "x.>"}, Storage: jetstream.MemoryStorage}); err != nil {
			t.Fatal(err)
		}
		if err := one(t, p, event("1", "late", []byte("x"))); err != nil {
			t.Error(err)
		}
	})
	t.Run("[messages/B8] an answer without stream or sequence is none; a duplicate answer counts only with both", func(t *testing.T) {
		t.Parallel()
		nc := connect(t)
		prefix := "P" + nats.NewInbox()[7:] + "."
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		answers := map[string]string{
			"no-stream": `{"stream":"","seq":7}`, "no-seq": `{"stream":"S","seq":0}`, "dup-no-seq": `{"stream":"S","seq":0,"duplicate":true}`,
			"dup": `{"stream":"S","seq":7,"duplicate":true}`, "good": `{"stream":"S","seq":7}`, "full": `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`,
			"large": `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`, "other": `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}`,
		}
		sub, err := nc.Subscribe(prefix+">", func(m *nats.Msg) { _ = m.Respond([]byte(answers[strings.TrimPrefix(m.Subject, prefix)])) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		p := idemnats.NewPublisher(js, idemnats.PublisherOptions{Prefix: prefix, AckTimeout: 5 * time.Second})
		for topic, want := range map[string]outbox.Class{"no-stream": outbox.ClassUnanswered, "no-seq": outbox.ClassUnanswered, "dup-no-seq": outbox.ClassUnanswered,
			"full": outbox.ClassUnavailable, "large": outbox.ClassRefused, "other": outbox.ClassFailed} {
			if err := one(t, p, event("1", topic, []byte("x"))); err == nil || errors.Is(err, outbox.ErrDuplicate) || outbox.ClassOf(err) != want {
				t.Errorf("%s: %q, %v", topic, outbox.ClassOf(err), err)
			}
		}
		if err := one(t, p, event("1", "dup", nil)); !errors.Is(err, outbox.ErrDuplicate) {
			t.Error(err)
		}
		if err := one(t, p, event("1", "good", nil)); err != nil {
			t.Error(err)
		}
	})
	t.Run("[messages/B9] inside the window a resend is stored once; after it twice, with one id and one effect; a replay is not swallowed", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{Duplicates: 200 * time.Millisecond})
		p, stop := b.Publisher(t)
		defer stop()
		e := event(outbox.IDFor("n", "1"), b.Topic(), []byte("x"))
		if err := one(t, p, e); err != nil {
			t.Fatal(err)
		}
		duplicates := 0
		for {
			err := one(t, p, e)
			if err == nil {
				break
			}
			if !errors.Is(err, outbox.ErrDuplicate) {
				t.Fatal(err)
			}
			duplicates++
		}
		again := e
		again.BrokerID, again.Replay = outbox.IDFor("n", "replay"), "r1"
		if err := one(t, p, again); err != nil {
			t.Error(err)
		}
		got := b.Received(t)
		if len(got) != 3 || duplicates == 0 {
			t.Errorf("%d stored, %d duplicates", len(got), duplicates)
		}
		for _, m := range got {
			if idempotest.Attribute(m, "id") != e.ID {
				t.Errorf("another id: %+v", m.Headers)
			}
		}
		var ledger idempotest.Ledger
		b.consume(func(ctx context.Context, m inbox.Message) error { ledger.AddOnCommit(ctx, m.Source+m.ID); return nil })
		ledger.Want(t, "/shop"+e.ID, 1)
	})
	t.Run("[messages/B10] the client's limit is one and the server is slow: each waits its turn, none fails", func(t *testing.T) {
		t.Parallel()
		nc := connect(t)
		prefix := "P" + nats.NewInbox()[7:] + "."
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1))
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		sub, err := nc.Subscribe(prefix+">", func(m *nats.Msg) {
			if answered++; answered == 1 {
				<-time.After(time.Second) // longer than the client's own patience of 200 ms: what is under test
			}
			_ = m.Respond([]byte(`{"stream":"S","seq":7}`))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		p := idemnats.NewPublisher(js, idemnats.PublisherOptions{Prefix: prefix})
		told, events := make(chan error, 20), make([]outbox.Delivery, 20)
		for i := range events {
			events[i] = event(fmt.Sprint(i), "slow", nil)
		}
		p.Publish(t.Context(), outbox.PublishParams{Events: events, Done: func(_ int, err error) { told <- err }})
		for range 20 {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("too large for the connection is refused", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t, jetstream.StreamConfig{})
		p, stop := b.Publisher(t)
		defer stop()
		if err := one(t, p, event("1", b.Topic(), make([]byte, 2<<20))); outbox.ClassOf(err) != outbox.ClassRefused {
			t.Error(err)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Run("[messages/B3] the link is away under load, both directions", func(t *testing.T) {
		b := newBroker(t, jetstream.StreamConfig{})
		idempotest.RunPublisherOutage(t, b, nil)
		c := newBroker(t, jetstream.StreamConfig{})
		c.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond})
		idempotest.RunConsumerOutage(t, c, c.link.Away)
	})
	t.Run("[messages/B3] the server is killed and started again under load, both directions", func(t *testing.T) {
		s := newServer(t)
		b := newBrokerAt(t, s.url, jetstream.StreamConfig{Storage: jetstream.FileStorage})
		idempotest.RunPublisherOutage(t, b, s.away)
		c := newBrokerAt(t, s.url, jetstream.StreamConfig{Storage: jetstream.FileStorage})
		c.consumer(jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond})
		idempotest.RunConsumerOutage(t, c, s.away)
	})
}
