package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// region: sqs

// SQSMessage is what ReceiveMessage returns, with its system attributes and message attributes in one map.
type SQSMessage struct {
	ID, ReceiptHandle string
	Body              string
	Attributes        map[string]string // MessageDeduplicationId, MessageGroupId, ApproximateReceiveCount, SentTimestamp, ce-id, …
}

// SQSQueue is one queue: the calls of the client that consuming needs.
type SQSQueue interface {
	// Attributes asks for RedrivePolicy, MessageRetentionPeriod and VisibilityTimeout.
	Attributes(ctx context.Context) (map[string]string, error)
	// Receive waits for up to ten messages, all attributes included.
	Receive(ctx context.Context, most int) ([]SQSMessage, error)
	// Extend is ChangeMessageVisibility.
	Extend(ctx context.Context, receiptHandle string, visible time.Duration) error
	// Delete returns an error also where the handle is not that of the last delivery, as FIFO queues say it.
	Delete(ctx context.Context, receiptHandle string) error
}

// ErrRedrive says that the queue would move messages away by itself after some deliveries.
var ErrRedrive = errors.New("the queue has a redrive policy: it would take messages away that idempo still counts; remove it")

// ConsumeSQS handles the messages of a queue until ctx ends. A message is deleted after its commit.
func ConsumeSQS(ctx context.Context, name string, q SQSQueue, in *inbox.Inbox, h inbox.Handler) error {
	settings, err := q.Attributes(ctx)
	if err != nil {
		return err
	}
	if settings["RedrivePolicy"] != "" {
		return ErrRedrive
	}
	if err := in.CheckHorizon("queue "+name, seconds(settings["MessageRetentionPeriod"])); err != nil {
		return err // the queue keeps messages for longer than the inbox remembers
	}
	visible := cmp.Or(seconds(settings["VisibilityTimeout"]), 30*time.Second)
	feed := in.Feed(ctx, h)
	for {
		n, err := feed.Room()
		if err != nil {
			return feed.Close()
		}
		ms, err := q.Receive(ctx, min(n, 10))
		for _, m := range ms {
			feed.Add(inbox.Delivery{
				Message:     sqsMessage(name, m),
				Ack:         func(ctx context.Context) error { return q.Delete(ctx, m.ReceiptHandle) }, // an error: it comes again, as a duplicate
				Again:       func(ctx context.Context, d time.Duration) error { return q.Extend(ctx, m.ReceiptHandle, d) },
				Extend:      func(ctx context.Context) error { return q.Extend(ctx, m.ReceiptHandle, visible) },
				ExtendEvery: visible / 3,
			})
		}
		if err != nil {
			pause(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
		}
	}
}

// sqsMessage takes the deduplication id of a FIFO queue for the identity, else the MessageId, which is new for every send.
// CloudEvents attributes in the message's attributes count before both.
func sqsMessage(queue string, m SQSMessage) inbox.Message {
	out := inbox.Message{Source: queue, ID: cmp.Or(m.Attributes["MessageDeduplicationId"], m.ID), Lane: m.Attributes["MessageGroupId"], Body: []byte(m.Body)}
	out.Attempt, _ = strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	if ms, err := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64); err == nil {
		out.Time = time.UnixMilli(ms)
	}
	out.Headers = sorted(m.Attributes)
	return out
}

func seconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Second
}

// SQSSender is SendMessage to a FIFO queue: it returns the sequence number.
type SQSSender interface {
	Send(ctx context.Context, m SQSMessage) (sequence string, err error)
}

// SQSPublisher publishes an outbox to a FIFO queue, which drops repeats of an id for five minutes; the relay counts, and
// warns of, what it sends again after that.
type SQSPublisher struct{ Queue SQSSender }

// DedupWindow implements outbox.Windower.
func (SQSPublisher) DedupWindow() time.Duration { return 5 * time.Minute }

// Publish implements outbox.Publisher.
func (p SQSPublisher) Publish(ctx context.Context, b outbox.PublishParams) {
	for i := range b.Events {
		d := &b.Events[i]
		m := SQSMessage{Body: string(d.Payload), Attributes: map[string]string{"MessageDeduplicationId": d.BrokerID, "MessageGroupId": cmp.Or(d.Key, d.ID)}}
		for _, a := range d.Attributes() {
			m.Attributes["ce-"+a[0]] = a[1]
		}
		for _, h := range d.Extra() {
			m.Attributes[h[0]] = h[1]
		}
		sequence, err := p.Queue.Send(ctx, m)
		switch {
		case err != nil:
			err = outbox.Unanswered(fmt.Errorf("sqs: %w", err))
		case sequence == "":
			err = outbox.Unanswered(errors.New("sqs: the answer names no sequence number"))
		}
		b.Done(i, err)
	}
}

// end: sqs

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
