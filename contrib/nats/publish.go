package idemnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idempo/idempo/outbox"
)

// PublisherOptions of a Publisher. The zero value works.
type PublisherOptions struct {
	// Prefix leads the topic in the subject, such as "shop.".
	Prefix string
	// AckTimeout is how long the server's answer to one event is waited for; then its outcome is not known. Default 20s.
	AckTimeout time.Duration
	// Window is how long the streams remember a Nats-Msg-Id, their Duplicates. Default 2m, as theirs.
	Window time.Duration
}

// Publisher publishes the events of an outbox to JetStream. It is safe for concurrent use.
type Publisher struct {
	js jetstream.JetStream
	o  PublisherOptions
}

// NewPublisher returns a publisher over js. How much is in flight is bounded by the relay and by
// jetstream.WithPublishAsyncMaxPending: at its limit a Publish waits. The connection should reconnect for ever
// (nats.MaxReconnects(-1)).
func NewPublisher(js jetstream.JetStream, o PublisherOptions) *Publisher {
	o.AckTimeout = cmp.Or(max(o.AckTimeout, 0), 20*time.Second)
	o.Window = cmp.Or(max(o.Window, 0), 2*time.Minute)
	return &Publisher{js, o}
}

// DedupWindow implements outbox.Windower.
func (p *Publisher) DedupWindow() time.Duration { return p.o.Window }

// Publish implements outbox.Publisher. An event is done when a stream has answered with its name and a sequence number
// above 0, outbox.ErrDuplicate where it had the id already. A subject that no stream covers is outbox.NoRoute; no answer,
// or a lost connection, is outbox.Unanswered. CloudEvents attributes are headers with ce-; Nats-Msg-Id is the event's id.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	sent := make(chan waiting, len(b.Events))
	defer close(sent)
	go collect(sent, b.Done, p.o.AckTimeout) // ends when every answer is there, or its time is over
	for i := range b.Events {
		future, err := p.send(ctx, &b.Events[i])
		if err != nil {
			b.Done(i, err)
			continue
		}
		sent <- waiting{i, future, time.Now().Add(p.o.AckTimeout)}
	}
}

// waiting is an event whose answer is not there yet.
type waiting struct {
	i      int
	future jetstream.PubAckFuture
	until  time.Time
}

// send hands one event over, and waits while the client takes no more.
func (p *Publisher) send(ctx context.Context, d *outbox.Delivery) (jetstream.PubAckFuture, error) {
	m := p.message(d)
	for {
		if !p.js.Conn().IsConnected() { // else the client would keep it and send it at some time
			return nil, outbox.Unavailable(errors.New("idemnats: not connected"))
		}
		future, err := p.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		switch {
		case errors.Is(err, jetstream.ErrTooManyStalledMsgs) && ctx.Err() == nil:
			continue
		case err != nil:
			return nil, classify(err)
		}
		return future, nil
	}
}

// collect tells what became of the events, in the order in which they were sent.
func collect(sent <-chan waiting, done func(int, error), patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for w := range sent {
		t.Reset(time.Until(w.until))
		select {
		case ack := <-w.future.Ok():
			done(w.i, acknowledged(ack))
		case err := <-w.future.Err():
			done(w.i, classify(err))
		case <-t.C:
			done(w.i, outbox.Unanswered(errors.New("idemnats: no answer within AckTimeout; the event may be stored")))
		}
	}
}

// acknowledged accepts an answer that proves a place in a stream, and no other [nats-server#6486].
func acknowledged(ack *jetstream.PubAck) error {
	switch {
	case ack == nil || ack.Stream == "" || ack.Sequence == 0:
		return outbox.Unanswered(errors.New("idemnats: the answer names no stream and sequence; the event may not be stored"))
	case ack.Duplicate:
		return outbox.ErrDuplicate
	}
	return nil
}

// classify says what is known of a failure.
func classify(err error) error {
	api, isAPI := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return outbox.NoRoute(fmt.Errorf("idemnats: no stream takes the subject: %w", err))
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), isAPI && api.ErrorCode == 10054: // message size exceeds the stream's
		return outbox.Refused(fmt.Errorf("idemnats: %w", err))
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, jetstream.ErrTooManyStalledMsgs), isAPI && api.Code == 503:
		return outbox.Unavailable(fmt.Errorf("idemnats: %w", err))
	case isAPI:
		return fmt.Errorf("idemnats: %w", err)
	}
	return outbox.Unanswered(fmt.Errorf("idemnats: %w; the event may be stored", err))
}

// message is an event as a CloudEvent in binary mode.
func (p *Publisher) message(d *outbox.Delivery) *nats.Msg {
	m := &nats.Msg{Subject: p.o.Prefix + d.Topic, Data: d.Payload, Header: nats.Header{jetstream.MsgIDHeader: {d.BrokerID}}}
	for _, a := range d.Attributes() {
		name := "ce-" + a[0]
		if a[0] == "datacontenttype" {
			name = "content-type"
		}
		m.Header[name] = []string{a[1]}
	}
	for _, h := range d.Extra() {
		m.Header[h[0]] = append(m.Header[h[0]], h[1])
	}
	if d.Payload == nil {
		m.Header["idempo-tombstone"] = []string{"1"}
	}
	return m
}
