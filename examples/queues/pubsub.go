package queues

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// region: pubsub

// PubSubMessage is what a subscription delivers.
type PubSubMessage struct {
	ID          string // the server's: a message that is published twice has two
	Data        []byte
	Attributes  map[string]string
	OrderingKey string
	PublishTime time.Time
	Attempt     int // DeliveryAttempt; 0 where the subscription does not count
	// Ack acknowledges and waits for the server's answer, as AckWithResult does.
	Ack func(ctx context.Context) error
	// Extend is ModifyAckDeadline.
	Extend func(ctx context.Context, d time.Duration) error
}

// PubSubSettings are those of the subscription.
type PubSubSettings struct {
	DeadLetterTopic string        // of its dead-letter policy
	Retention       time.Duration // of messages that are not acknowledged
	AckDeadline     time.Duration
}

// PubSub is one pull subscription.
type PubSub interface {
	// Settings asks the server for them.
	Settings(ctx context.Context) (PubSubSettings, error)
	// Receive calls f for each delivery until ctx ends; at most most are out at once.
	Receive(ctx context.Context, most int, f func(PubSubMessage)) error
}

// ErrDeadLetter says that the subscription would give messages up by itself.
var ErrDeadLetter = errors.New("the subscription has a dead-letter policy: it would take messages away that idempo still counts; remove it")

// PubSubOptions name the attribute that holds a producer's own id, where it sends no CloudEvents. "": the server's id is
// the identity, and a producer's repeat is another message.
type PubSubOptions struct{ IDAttribute string }

// ConsumePubSub handles the messages of a pull subscription until ctx ends. A message is acknowledged after its commit; an
// acknowledgement that the server does not confirm is none, and the redelivery is a duplicate.
func ConsumePubSub(ctx context.Context, name string, sub PubSub, in *inbox.Inbox, h inbox.Handler, o PubSubOptions) error {
	s, err := sub.Settings(ctx)
	if err != nil {
		return err
	}
	if s.DeadLetterTopic != "" {
		return ErrDeadLetter
	}
	if err := in.CheckHorizon("subscription "+name, cmp.Or(s.Retention, idempo.Forever)); err != nil {
		return err
	}
	deadline := cmp.Or(s.AckDeadline, 10*time.Second)
	feed := in.Feed(ctx, h)
	receiving, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { // a feed that stops by itself stops receiving
		select {
		case <-feed.Stopped():
			cancel()
		case <-receiving.Done():
		}
	})
	err = sub.Receive(receiving, in.Options().MaxInFlight, func(m PubSubMessage) {
		if _, err := feed.Room(); err != nil {
			return // not acknowledged: it is delivered again
		}
		feed.Add(inbox.Delivery{
			Message:     pubSubMessage(name, m, o),
			Ack:         m.Ack,
			Extend:      func(ctx context.Context) error { return m.Extend(ctx, deadline) },
			ExtendEvery: deadline / 3,
		})
	})
	if ctx.Err() != nil || receiving.Err() != nil {
		err = nil
	}
	return errors.Join(err, feed.Close())
}

func pubSubMessage(subscription string, m PubSubMessage, o PubSubOptions) inbox.Message {
	id := m.ID
	if o.IDAttribute != "" {
		id = m.Attributes[o.IDAttribute] // missing: parked, by inbox.Options.MissingID
	}
	return inbox.Message{Source: subscription, ID: id, Lane: m.OrderingKey, Headers: sorted(m.Attributes), Body: m.Data, Attempt: m.Attempt, Time: m.PublishTime}
}

// end: pubsub

func sorted(attributes map[string]string) (out [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		out = append(out, [2]string{name, attributes[name]})
	}
	return out
}
