package idemwatermill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idempo/idempo/inbox"
)

// ErrNotDecided is in the error that a message gets which runs elsewhere, or about which nothing could be decided: it is
// not acknowledged, and whether it has had its effect shows when it is delivered again.
var ErrNotDecided = errors.New("idemwatermill: nothing is decided about the message")

// ErrProduced says that a handler which Work calls returned messages to publish; nobody would. Use an outbox.
var ErrProduced = errors.New("idemwatermill: a stored message's handler produced messages, which nothing publishes")

// Middleware runs a handler once for each message: claim, effect and completion are one transaction, which the message's
// context carries. The identity is that of the CloudEvents metadata, else inbox.Options.Source, or the topic, and the
// UUID.
//
// A duplicate, and a message that is parked, waits for its lane or is dead, returns nil without the handler. The
// handler's error goes to the router, which redelivers, with everything rolled back; attempts are counted over all
// processes, and the last one makes the message dead and returns nil. What could not be decided is ErrNotDecided.
//
// Messages that a handler returns are published by the router after the commit and may be lost in between: append them
// to an outbox instead.
func Middleware(in *inbox.Inbox) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (produced []*message.Message, err error) {
			ctx := msg.Context()
			defer msg.SetContext(ctx)
			out, err := in.HandleInPlace(ctx, Message(msg), func(ctx context.Context, _ inbox.Message) (err error) {
				msg.SetContext(ctx)
				produced, err = next(msg)
				return err
			})
			switch {
			case err != nil:
				return nil, fmt.Errorf("%w: %w", ErrNotDecided, err)
			case out.Status == inbox.StatusDone:
				return produced, nil
			case out.Ack:
				return nil, nil
			case out.Err != nil:
				return nil, out.Err
			}
			return nil, fmt.Errorf("%w: it is %s elsewhere", ErrNotDecided, out.Status)
		}
	}
}

// Message is msg as an inbox takes it. Watermill does not say which delivery it is.
func Message(msg *message.Message) inbox.Message {
	m := inbox.Message{ID: msg.UUID, Source: message.SubscribeTopicFromCtx(msg.Context()), Body: msg.Payload}
	for _, name := range slices.Sorted(maps.Keys(msg.Metadata)) {
		m.Headers = append(m.Headers, [2]string{name, msg.Metadata[name]})
	}
	return m
}

// Handler is next for inbox.Inbox.Work, which runs what waited for its lane or its time, or what a person retries:
//
//	go in.Work(ctx, idemwatermill.Handler(next))
func Handler(next message.HandlerFunc) inbox.Handler {
	return func(ctx context.Context, m inbox.Message) error {
		msg := message.NewMessageWithContext(ctx, m.ID, m.Body)
		for _, h := range m.Headers {
			msg.Metadata.Set(h[0], h[1])
		}
		produced, err := next(msg)
		if err == nil && len(produced) > 0 {
			return inbox.Permanent(ErrProduced)
		}
		return err
	}
}
