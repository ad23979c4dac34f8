package idemrabbitmq

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

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idempo/idempo/inbox"
)

// DialFunc opens a connection. Consume calls it again, with jitter, when a connection is lost. Its error may be shown: it
// must hold no password.
type DialFunc func(ctx context.Context) (*amqp.Connection, error)

// Dial returns a DialFunc for an AMQP URI. Its errors do not show the address.
func Dial(uri string) DialFunc {
	return func(context.Context) (*amqp.Connection, error) {
		c, err := amqp.Dial(uri)
		if err != nil {
			return nil, shown("cannot connect", err)
		}
		return c, nil
	}
}

// shown words an error without what a driver may put into it, such as an address with a password.
func shown(what string, err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return fmt.Errorf("%s: AMQP %d", what, e.Code)
	}
	return errors.New(what)
}

// Options of Consume.
type Options struct {
	// Queue to consume; required. It must exist.
	Queue string
	// Args of the consumer, such as x-stream-offset. May be nil.
	Args amqp.Table
	// LagEvery is how often the server is asked how many messages wait; see inbox.Inbox.Lag. Default 10s.
	LagEvery time.Duration
}

// Consume handles the messages of a queue, and what the inbox has stored for later, until ctx ends; then it lets what
// runs end (inbox.Options.DrainTimeout), acknowledges exactly what was committed, gives the rest back to the queue, and
// returns nil. It returns inbox.ErrBreaker where too many messages in a row could not be identified.
//
// While the server is away it dials again with jitter. At most inbox.Options.MaxInFlight messages are unacknowledged.
// Of one lane they run in the order of the queue as long as one process consumes.
func Consume(ctx context.Context, dial DialFunc, in *inbox.Inbox, h inbox.Handler, o Options) error {
	if o.Queue == "" || dial == nil {
		return errors.New("idemrabbitmq: a queue and a way to connect are required")
	}
	feed := in.Feed(ctx, h)
	var open *amqp.Connection
	defer func() {
		if open != nil {
			_ = open.Close() // what is not acknowledged goes back to the queue
		}
	}()
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err == nil {
			if open != nil {
				_ = open.Close()
			}
			open = conn
			err = session(ctx, conn, in, feed, o)
		}
		if errors.Is(err, errStopped) {
			break
		}
		if ctx.Err() == nil {
			in.Options().Logger.Warn("idemrabbitmq: not consuming; trying again", "queue", o.Queue, "error", err)
			rest(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
		}
	}
	return feed.Close() // acknowledges on the connection that is still open
}

const setupBudget = 10 * time.Second // for the server to begin to deliver

// errStopped says that the feed takes no more.
var errStopped = errors.New("idemrabbitmq: stopped")

// session consumes on one connection until it, or ctx, ends. It leaves the connection open.
func session(ctx context.Context, conn *amqp.Connection, in *inbox.Inbox, feed *inbox.Feed, o Options) error {
	// A server that is just starting may take a consumer and not answer, while it keeps the connection alive.
	impatient := time.AfterFunc(setupBudget, func() { _ = conn.CloseDeadline(time.Now()) })
	defer impatient.Stop()
	ch, err := conn.Channel()
	if err != nil {
		return shown("cannot open a channel", err)
	}
	if err := ch.Qos(in.Options().MaxInFlight, 0, false); err != nil {
		return shown("cannot set the prefetch", err)
	}
	const tag = "idempo"
	deliveries, err := ch.Consume(o.Queue, tag, false, false, false, false, o.Args)
	if err != nil {
		return shown("cannot consume", err)
	}
	impatient.Stop()
	beside, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() { lag(beside, conn, in, feed, o) })
	for {
		if _, err := feed.Room(); err != nil {
			_ = ch.Cancel(tag, true)
			return errStopped
		}
		select {
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the server closed the channel")
			}
			feed.Add(delivery(d, o.Queue))
		case <-ctx.Done():
			_ = ch.Cancel(tag, true)
			return errStopped
		case <-feed.Stopped():
			_ = ch.Cancel(tag, true)
			return errStopped
		}
	}
}

// lag asks, every now and then until ctx ends, how many messages wait in the queue; those that this process has taken
// come on top.
func lag(ctx context.Context, conn *amqp.Connection, in *inbox.Inbox, feed *inbox.Feed, o Options) {
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	defer func() { _ = ch.Close() }()
	for ctx.Err() == nil {
		q, err := ch.QueueDeclarePassive(o.Queue, false, false, false, false, nil)
		if err != nil {
			return
		}
		in.SetLag(o.Queue, int64(q.Messages+feed.InFlight()))
		rest(ctx, cmp.Or(max(o.LagEvery, 0), 10*time.Second))
	}
}

// delivery is d as the inbox takes it. It is never given back while the connection lives: a requeue would count against
// the queue's delivery limit.
func delivery(d amqp.Delivery, queue string) inbox.Delivery {
	m := inbox.Message{Source: queue, ID: d.MessageId, Type: d.Type, Headers: headers(d), Body: d.Body, Attempt: attempt(d), Time: d.Timestamp}
	if m.Body == nil {
		m.Body = []byte{}
	}
	return inbox.Delivery{Message: m, Ack: func(context.Context) error {
		if err := d.Ack(false); err != nil {
			return shown("cannot acknowledge", err)
		}
		return nil
	}}
}

// attempt is which delivery d is. A message without the redelivered flag has certainly not been delivered before.
func attempt(d amqp.Delivery) int {
	n := 1
	if d.Redelivered {
		n = 2
	}
	switch count := d.Headers["x-delivery-count"].(type) { // of quorum queues
	case int64:
		n = max(n, int(min(count, 1<<30))+1)
	case int32:
		n = max(n, int(count)+1)
	}
	return n
}

// headers lists d's headers by name, and its content type; AMQP keeps no order of names.
func headers(d amqp.Delivery) (out [][2]string) {
	if d.ContentType != "" {
		out = append(out, [2]string{"content-type", d.ContentType})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		switch v := d.Headers[name].(type) {
		case string:
			out = append(out, [2]string{name, v})
		case []byte:
			out = append(out, [2]string{name, string(v)})
		case []any: // a name that repeats
			for _, one := range v {
				out = append(out, [2]string{name, fmt.Sprint(one)})
			}
		case time.Time:
			out = append(out, [2]string{name, v.UTC().Format(time.RFC3339)})
		default:
			out = append(out, [2]string{name, fmt.Sprint(v)})
		}
	}
	return out
}

// rest waits for d or the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
