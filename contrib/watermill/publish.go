package idemwatermill

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idempo/idempo/outbox"
)

// Publisher publishes the events of an outbox through a Watermill publisher. It is safe for concurrent use.
type Publisher struct {
	pub  message.Publisher
	room chan struct{}
}

// publishers is how many calls of the Watermill publisher run at once.
const publishers = 16

// NewPublisher returns a publisher over pub, which stays its maker's to close.
func NewPublisher(pub message.Publisher) *Publisher {
	return &Publisher{pub, make(chan struct{}, publishers)}
}

// Publish implements outbox.Publisher. An event is done if pub.Publish returned nil; any error, and a panic, is
// outbox.Unanswered, since a Watermill publisher does not say what it knows. pub must not return nil before its broker has
// confirmed: some do so when they are asynchronous. The UUID is the event's id, CloudEvents attributes are metadata with
// ce_; of a header that repeats the first value goes along, because metadata holds one.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range b.Events {
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			b.Done(i, outbox.Unavailable(context.Cause(ctx)))
			continue
		}
		all.Go(func() {
			defer func() { <-p.room }()
			b.Done(i, p.one(ctx, &b.Events[i]))
		})
	}
}

func (p *Publisher) one(ctx context.Context, d *outbox.Delivery) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = outbox.Unanswered(fmt.Errorf("idemwatermill: the publisher panicked: %v", r))
		}
	}()
	if err := p.pub.Publish(d.Topic, event(ctx, d)); err != nil {
		return outbox.Unanswered(fmt.Errorf("idemwatermill: %w; the event may be published", err))
	}
	return nil
}

// event is d as a CloudEvent in metadata.
func event(ctx context.Context, d *outbox.Delivery) *message.Message {
	msg := message.NewMessageWithContext(ctx, d.ID, d.Payload)
	for _, a := range d.Attributes() {
		name := "ce_" + a[0]
		if a[0] == "datacontenttype" {
			name = "content-type"
		}
		msg.Metadata.Set(name, a[1])
	}
	for _, h := range d.Extra() {
		if _, there := msg.Metadata[h[0]]; !there {
			msg.Metadata.Set(h[0], h[1])
		}
	}
	if d.Payload == nil {
		msg.Metadata.Set("idempo-tombstone", "1")
	}
	return msg
}
