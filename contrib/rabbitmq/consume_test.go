package idemrabbitmq_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idempo/idempo"
	idemrabbitmq "github.com/idempo/idempo/contrib/rabbitmq"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

// uri returns where the RabbitMQ of the tests is, or skips.
func uri(t *testing.T) string {
	t.Helper()
	uri := os.Getenv("IDEMPO_TEST_RABBITMQ")
	if uri == "" {
		uri = "amqp://guest:guest@127.0.0.1:5672/"
	}
	c, err := amqp.Dial(uri)
	if err != nil {
		text := "no RabbitMQ: set IDEMPO_TEST_RABBITMQ, or start one with: docker run -p 5672:5672 rabbitmq"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	_ = c.Close()
	return uri
}

// bench is a queue of the test's own, an inbox over a store that may be away, and a ledger outside.
type bench struct {
	t      *testing.T
	uri    string
	ch     *amqp.Channel
	queue  string
	store  *flaky
	ledger idempotest.Ledger
}

func newBench(t *testing.T, args amqp.Table) *bench {
	t.Helper()
	b := &bench{t: t, uri: uri(t), queue: "idempo-" + rand.Text()[:12], store: &flaky{Store: memstore.New(memstore.Options{})}}
	c, err := amqp.Dial(b.uri)
	if err != nil {
		t.Fatal(err)
	}
	if b.ch, err = c.Channel(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ch.QueueDeclare(b.queue, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = b.ch.QueueDelete(b.queue, false, false, false)
		_ = c.Close()
	})
	return b
}

func quorum(limit int) amqp.Table {
	return amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": limit}
}

// flaky is a memory store whose transactions may be refused.
type flaky struct {
	*memstore.Store
	away    atomic.Bool
	refused atomic.Int64
}

func (f *flaky) InTx(ctx context.Context, fn func(context.Context) error) error {
	if f.away.Load() {
		f.refused.Add(1)
		return &idempo.Error{Op: "begin", Code: "unavailable"}
	}
	return f.Store.InTx(ctx, fn)
}

func (b *bench) inbox(o inbox.Options) *inbox.Inbox {
	b.t.Helper()
	o.Subscriber, o.Poll = "billing", 5*time.Millisecond
	if o.BackoffBase == 0 {
		o.BackoffBase, o.BackoffMax = time.Millisecond, time.Millisecond
	}
	in, err := inbox.New(idempotest.EngineWith(b.t, b.store, idempo.Config{}), o)
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

func (b *bench) publish(p amqp.Publishing) {
	b.t.Helper()
	p.DeliveryMode = amqp.Persistent
	confirm, err := b.ch.PublishWithDeferredConfirmWithContext(b.t.Context(), "", b.queue, true, false, p)
	if err != nil {
		b.t.Fatal(err)
	}
	if confirm != nil {
		confirm.Wait()
	}
}

func (b *bench) ids(ids ...string) {
	b.t.Helper()
	if err := b.ch.Confirm(false); err != nil {
		b.t.Fatal(err)
	}
	for _, id := range ids {
		b.publish(amqp.Publishing{MessageId: id, Body: []byte("body of " + id)})
	}
}

// bill notes one effect per message.
func (b *bench) bill(ctx context.Context, m inbox.Message) error {
	b.ledger.AddOnCommit(ctx, m.ID)
	return nil
}

// consume runs Consume until done, asked again and again, says that it is over.
func (b *bench) consume(in *inbox.Inbox, dial idemrabbitmq.DialFunc, h inbox.Handler, done func() bool) error {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- idemrabbitmq.Consume(ctx, dial, in, h, idemrabbitmq.Options{Queue: b.queue}) }()
	limit := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-limit:
			b.t.Fatal("it takes too long")
		case <-tick.C:
			if done() {
				stop()
				return <-ended
			}
		}
	}
}

// ready is how many messages wait in the queue, given-back ones included.
func (b *bench) ready() int {
	b.t.Helper()
	q, err := b.ch.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return q.Messages
}

func TestConsume(t *testing.T) {
	t.Parallel()
	t.Run("[messages/I1, B22] repeats of a producer have one effect, and what the handler gets", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.ids("a", "b", "a", "a", "c")
		b.publish(amqp.Publishing{ContentType: "text/plain", Type: "own", Timestamp: time.Unix(1_800_000_000, 0), Body: []byte{0, 0xff},
			Headers: amqp.Table{"cloudEvents:id": "1", "cloudEvents:source": "/shop", "cloudEvents:partitionkey": "c-1", "n": int32(7), "bin": []byte{0xff}}})
		var got inbox.Message
		var mu sync.Mutex
		handled := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return got.ID != "" && b.ledger.Count("a") > 0 && b.ledger.Count("b") > 0 && b.ledger.Count("c") > 0
		}
		err := b.consume(b.inbox(inbox.Options{}), idemrabbitmq.Dial(b.uri), func(ctx context.Context, m inbox.Message) error {
			if m.ID == "1" {
				mu.Lock()
				got = m
				mu.Unlock()
			}
			return b.bill(ctx, m)
		}, handled)
		if err != nil {
			t.Error(err)
		}
		for _, id := range []string{"a", "b", "c", "1"} {
			b.ledger.Want(t, id, 1)
		}
		if got.Source != "/shop" || got.Type != "own" || got.Lane != "c-1" || got.Attempt != 1 || got.Time.Unix() != 1_800_000_000 || string(got.Body) != "\x00\xff" ||
			!slices.Contains(got.Headers, [2]string{"n", "7"}) || !slices.Contains(got.Headers, [2]string{"bin", "\xff"}) || !slices.Contains(got.Headers, [2]string{"content-type", "text/plain"}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("[messages/I2, B15] the link is lost between commit and acknowledgement: dialled again, redelivered, one effect", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, quorum(20))
		b.ids("a", "b", "end") // one unacknowledged at a time: when the last one runs the others are acknowledged
		var conn atomic.Pointer[amqp.Connection]
		dials := 0
		dial := func(ctx context.Context) (*amqp.Connection, error) {
			dials++
			c, err := idemrabbitmq.Dial(b.uri)(ctx)
			conn.Store(c)
			return c, err
		}
		once := make(chan struct{}, 1)
		once <- struct{}{}
		var attempts sync.Map
		err := b.consume(b.inbox(inbox.Options{Workers: 1, MaxInFlight: 1}), dial, func(ctx context.Context, m inbox.Message) error {
			attempts.Store(m.ID, m.Attempt)
			select {
			case <-once:
				if err := conn.Load().Close(); err != nil {
					return err
				}
			default:
			}
			return b.bill(ctx, m)
		}, func() bool { return b.ledger.Count("end") > 0 })
		if err != nil || dials < 2 {
			t.Errorf("%v, %d dials", err, dials)
		}
		b.ledger.Want(t, "a", 1)
		b.ledger.Want(t, "b", 1)
		b.ledger.Want(t, "end", 1)
		if n := b.ready(); n != 0 {
			t.Errorf("%d went back to the queue", n)
		}
	})
	t.Run("[messages/I19, B14] the store is away: nothing is requeued, so a delivery limit drops nothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, quorum(1))
		var ids []string
		for i := range 20 {
			ids = append(ids, fmt.Sprint("m", i))
		}
		b.ids(ids...)
		b.store.away.Store(true)
		in := b.inbox(inbox.Options{MaxInFlight: 8, Workers: 4, MaxAttempts: 2})
		err := b.consume(in, idemrabbitmq.Dial(b.uri), b.bill, func() bool {
			if n := b.ready(); b.store.away.Load() && b.store.refused.Load() > 0 && n < 12 {
				t.Errorf("%d are ready: more than MaxInFlight were taken", n)
			}
			if b.store.refused.Load() > 15 {
				b.store.away.Store(false)
			}
			for _, id := range ids {
				if b.ledger.Count(id) == 0 {
					return false
				}
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			b.ledger.Want(t, id, 1)
		}
		if rs, err := in.Find(t.Context(), inbox.Selection{}); err != nil || len(rs) != 0 {
			t.Errorf("dead or parked: %d, %v", len(rs), err)
		}
	})
	t.Run("[messages/I9] a producer without ids stops the consumer, and the rest stays in the queue", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, nil)
		b.ids("", "", "", "", "", "", "", "")
		err := b.consume(b.inbox(inbox.Options{ParkBreaker: 3, Workers: 1}), idemrabbitmq.Dial(b.uri), b.bill, func() bool { return false })
		if !errors.Is(err, inbox.ErrBreaker) {
			t.Error(err)
		}
		for n := b.ready(); n != 5; n = b.ready() {
			if n > 5 {
				t.Fatalf("%d are left", n)
			}
		}
	})
	t.Run("[messages/B16] an address that cannot be reached is not shown", func(t *testing.T) {
		t.Parallel()
		_, err := idemrabbitmq.Dial("amqp://canary:secret@127.0.0.1:1/")(t.Context())
		if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
		if err := idemrabbitmq.Consume(t.Context(), nil, nil, nil, idemrabbitmq.Options{}); err == nil {
			t.Error("no queue, and no error")
		}
	})
}
