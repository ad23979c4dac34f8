package idemnats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// ErrUnsafeConsumer says that the server could drop or forget messages of this consumer; its text names the setting.
var ErrUnsafeConsumer = errors.New("idemnats: unsafe consumer")

// Options of Consume. The zero value works.
type Options struct {
	// Stream is asked for its MaxAge, which must not be longer than the inbox remembers. Nil: it is not known.
	Stream jetstream.Stream
	// FetchWait is how long one request for messages waits at the server. Default 5s.
	FetchWait time.Duration
	// LagEvery is how often the server is asked how far the consumer is behind; see inbox.Inbox.Lag. Default 10s.
	LagEvery time.Duration
}

// ackBudget bounds how long the server's answer to an acknowledgement is waited for.
const ackBudget = 10 * time.Second

// Consume handles the messages of consumer, and what the inbox has stored for later, until ctx ends; then it lets what
// runs end (inbox.Options.DrainTimeout), acknowledges exactly what was committed, and returns nil. It returns
// ErrUnsafeConsumer, before a message is taken, where the consumer has a finite MaxDeliver or no explicit
// acknowledgement, inbox.ErrWindow where the stream keeps messages for longer than the inbox remembers, and
// inbox.ErrBreaker where too many messages in a row could not be identified.
//
// While the server or the store is away it goes on by itself, with jitter; nothing is acknowledged then. Of one lane the
// messages run in the order of the stream as long as one process consumes. A handler longer than AckWait is reported to
// the server at a third of it.
func Consume(ctx context.Context, consumer jetstream.Consumer, in *inbox.Inbox, h inbox.Handler, o Options) error {
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("idemnats: consumer: %w", err)
	}
	if err := safe(info); err != nil {
		return err
	}
	if o.Stream != nil {
		stream, err := o.Stream.Info(ctx)
		if err != nil {
			return fmt.Errorf("idemnats: stream: %w", err)
		}
		age := stream.Config.MaxAge
		if age == 0 {
			age = idempo.Forever
		}
		if err := in.CheckHorizon("stream "+info.Stream, age); err != nil {
			return err
		}
	}
	if o.FetchWait <= 0 {
		o.FetchWait = 5 * time.Second
	}
	feed := in.Feed(ctx, h)
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var asking sync.WaitGroup
	asking.Go(func() { lag(beside, consumer, in, cmp.Or(max(o.LagEvery, 0), 10*time.Second)) })
	defer asking.Wait()
	defer cancel()
	for {
		n, err := feed.Room()
		if err != nil {
			break
		}
		err = fetch(ctx, consumer, feed, n, o.FetchWait, info)
		if gone(err) {
			return errors.Join(fmt.Errorf("idemnats: consumer %s/%s: %w", info.Stream, info.Name, err), feed.Close())
		}
		if err != nil && ctx.Err() == nil {
			in.Options().Logger.Warn("idemnats: cannot fetch; asking again", "stream", info.Stream, "consumer", info.Name, "error", err)
			select {
			case <-time.After(time.Duration(rand.Int64N(int64(2 * time.Second)))):
			case <-ctx.Done():
			}
		}
	}
	return feed.Close()
}

// lag asks, every now and then until ctx ends, how much the consumer has not acknowledged.
func lag(ctx context.Context, consumer jetstream.Consumer, in *inbox.Inbox, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if info, err := consumer.Info(ctx); err == nil {
			in.SetLag(info.Stream+"/"+info.Name, int64(info.NumPending)+int64(info.NumAckPending)) //nolint:gosec // far below 2^63
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// gone reports that there is nothing to consume from any more.
func gone(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// safe refuses settings by which the server gives a message up without anybody knowing.
func safe(info *jetstream.ConsumerInfo) error {
	name := info.Stream + "/" + info.Name
	if c := info.Config; c.AckPolicy != jetstream.AckExplicitPolicy {
		return fmt.Errorf("%w: consumer %s has acknowledgement policy %s: set it to explicit", ErrUnsafeConsumer, name, c.AckPolicy)
	} else if c.MaxDeliver > 0 {
		return fmt.Errorf("%w: consumer %s has MaxDeliver %d: the server would drop messages; set -1", ErrUnsafeConsumer, name, c.MaxDeliver)
	}
	return nil
}

// fetch asks for up to n messages and hands them to feed as they come.
func fetch(ctx context.Context, consumer jetstream.Consumer, feed *inbox.Feed, n int, wait time.Duration, info *jetstream.ConsumerInfo) error {
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	batch, err := consumer.Fetch(n, jetstream.FetchContext(limit))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		feed.Add(delivery(m, info))
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return nil
}

// delivery is m as the inbox takes it.
func delivery(m jetstream.Msg, info *jetstream.ConsumerInfo) inbox.Delivery {
	d := inbox.Delivery{
		Message: inbox.Message{Source: info.Stream, ID: m.Headers().Get(jetstream.MsgIDHeader), Headers: headers(m.Headers()), Body: m.Data()},
		Ack: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, ackBudget)
			defer cancel()
			return m.DoubleAck(ctx)
		},
		Again:       func(_ context.Context, wait time.Duration) error { return m.NakWithDelay(wait) },
		Extend:      func(context.Context) error { return m.InProgress() },
		ExtendEvery: info.Config.AckWait / 3,
	}
	if d.Message.Body == nil {
		d.Message.Body = []byte{}
	}
	if meta, err := m.Metadata(); err == nil {
		d.Message.Attempt = int(min(meta.NumDelivered, 1<<30)) //nolint:gosec // bounded
		d.Message.Time = meta.Timestamp
		d.Message.Position = fmt.Sprintf("%s/%d", meta.Stream, meta.Sequence.Stream)
	}
	return d
}

// headers lists h by name, the values of one name in their order; NATS keeps no order of names.
func headers(h nats.Header) (out [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			out = append(out, [2]string{name, v})
		}
	}
	return out
}
