package queues_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/examples/queues"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/outbox"
)

// visibility is for how long a delivered message is hidden from others.
const visibility = 30 * time.Second

// queue is a queue in memory: a message that is delivered is hidden for a while, and comes again unless it is deleted.
type queue struct {
	mu       sync.Mutex
	held     []*held
	settings map[string]string
	pubsub   queues.PubSubSettings
	refuse   int // acknowledgements that fail
	extended int
	sent     []queues.SQSMessage
	sequence string
	lost     error
}

type held struct {
	queues.SQSMessage
	count   int
	visible time.Time
	handle  string
}

func (q *queue) put(id string, attributes ...string) {
	m := queues.SQSMessage{ID: id, Body: "body of " + id, Attributes: map[string]string{}}
	for i := 0; i < len(attributes); i += 2 {
		m.Attributes[attributes[i]] = attributes[i+1]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = append(q.held, &held{SQSMessage: m})
}

// next delivers what is visible.
func (q *queue) next(most int) (out []held) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range q.held {
		if len(out) < most && !time.Now().Before(h.visible) {
			h.count++
			h.visible, h.handle = time.Now().Add(visibility), fmt.Sprintf("%s/%d", h.ID, h.count)
			out = append(out, *h)
		}
	}
	return out
}

func (q *queue) Attributes(context.Context) (map[string]string, error) { return q.settings, nil }

func (q *queue) Receive(ctx context.Context, most int) (out []queues.SQSMessage, _ error) {
	for ctx.Err() == nil {
		for _, h := range q.next(most) {
			m := queues.SQSMessage{ID: h.ID, ReceiptHandle: h.handle, Body: h.Body, Attributes: map[string]string{"ApproximateReceiveCount": fmt.Sprint(h.count)}}
			maps.Copy(m.Attributes, h.SQSMessage.Attributes)
			out = append(out, m)
		}
		if len(out) > 0 {
			return out, nil
		}
		time.Sleep(time.Second) // of the bubble
	}
	return nil, ctx.Err()
}

func (q *queue) Extend(_ context.Context, handle string, d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.extended++
	for _, h := range q.held {
		if h.handle == handle {
			h.visible = time.Now().Add(d)
			return nil
		}
	}
	return errors.New("an old handle")
}

func (q *queue) Delete(_ context.Context, handle string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refuse > 0 {
		q.refuse--
		return errors.New("an old handle")
	}
	for i, h := range q.held {
		if h.handle == handle {
			q.held = append(q.held[:i:i], q.held[i+1:]...)
			return nil
		}
	}
	return errors.New("an old handle")
}

func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)
}

func (q *queue) Send(_ context.Context, m queues.SQSMessage) (string, error) {
	q.sent = append(q.sent, m)
	return q.sequence, q.lost
}

// subscription is the queue as Pub/Sub shows it.
type subscription struct{ *queue }

func (s subscription) Settings(context.Context) (queues.PubSubSettings, error) { return s.pubsub, nil }

func (s subscription) Receive(ctx context.Context, most int, f func(queues.PubSubMessage)) error {
	for ctx.Err() == nil {
		for _, h := range s.next(most) {
			f(queues.PubSubMessage{
				ID: h.ID, Data: []byte(h.Body), Attributes: h.SQSMessage.Attributes, OrderingKey: h.SQSMessage.Attributes["lane"], Attempt: h.count, PublishTime: time.Now(),
				Ack:    func(ctx context.Context) error { return s.Delete(ctx, h.handle) },
				Extend: func(ctx context.Context, d time.Duration) error { return s.Extend(ctx, h.handle, d) },
			})
		}
		time.Sleep(time.Second)
	}
	return ctx.Err()
}

// away is a memory store whose transactions may be refused.
type away struct {
	*memstore.Store
	mu sync.Mutex
	on bool
}

func (a *away) set(on bool) { a.mu.Lock(); a.on = on; a.mu.Unlock() }

func (a *away) InTx(ctx context.Context, f func(context.Context) error) error {
	a.mu.Lock()
	on := a.on
	a.mu.Unlock()
	if on {
		return &idempo.Error{Op: "begin", Code: "unavailable"}
	}
	return a.Store.InTx(ctx, f)
}

// desk is an inbox, and what its handler was given.
type desk struct {
	*inbox.Inbox
	store  *away
	ledger idempotest.Ledger
	mu     sync.Mutex
	got    []inbox.Message
	slow   time.Duration
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{store: &away{Store: memstore.New(memstore.Options{})}}
	var err error
	if d.Inbox, err = inbox.New(idempotest.EngineWith(t, d.store, idempo.Config{}), inbox.Options{Subscriber: "billing"}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) handle(ctx context.Context, m inbox.Message) error {
	time.Sleep(d.slow)
	memstore.OnCommit(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.got = append(d.got, m)
	})
	d.ledger.AddOnCommit(ctx, m.Source+" "+m.ID)
	return nil
}

// run consumes for a time of the bubble.
func (d *desk) run(t *testing.T, for_ time.Duration, consume func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx) }()
	time.Sleep(for_)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// both runs a case on either queue.
func both(t *testing.T, name string, f func(t *testing.T, q *queue, d *desk, consume func(context.Context) error)) {
	t.Run("[messages/B24] SQS: "+name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q, d := &queue{settings: map[string]string{"VisibilityTimeout": "30", "MessageRetentionPeriod": "345600"}}, newDesk(t)
			f(t, q, d, func(ctx context.Context) error { return queues.ConsumeSQS(ctx, "orders", q, d.Inbox, d.handle) })
		})
	})
	t.Run("[messages/B25] Pub/Sub: "+name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q, d := &queue{pubsub: queues.PubSubSettings{Retention: 7 * 24 * time.Hour, AckDeadline: visibility}}, newDesk(t)
			f(t, q, d, func(ctx context.Context) error {
				return queues.ConsumePubSub(ctx, "orders", subscription{q}, d.Inbox, d.handle, queues.PubSubOptions{})
			})
		})
	})
}

func TestQueues(t *testing.T) {
	t.Parallel()
	both(t, "the server's id, lane and receive count; acknowledged after the commit", func(t *testing.T, q *queue, d *desk, consume func(context.Context) error) {
		q.put("a", "lane", "k", "MessageGroupId", "k")
		q.put("b")
		d.run(t, time.Minute, consume)
		d.ledger.Want(t, "orders a", 1)
		d.ledger.Want(t, "orders b", 1)
		for _, m := range d.got {
			if m.Attempt != 1 || string(m.Body) != "body of "+m.ID || m.ID == "a" && m.Lane != "k" {
				t.Errorf("%+v", m)
			}
		}
		if q.left() != 0 {
			t.Errorf("%d are left", q.left())
		}
	})
	both(t, "CloudEvents id and source count first: a message that is sent twice has one effect", func(t *testing.T, q *queue, d *desk, consume func(context.Context) error) {
		q.put("a", "ce-id", "1", "ce-source", "/shop")
		q.put("b", "ce-id", "1", "ce-source", "/shop")
		q.held[1].Body = q.held[0].Body
		d.run(t, time.Minute, consume)
		d.ledger.Want(t, "/shop 1", 1)
		if q.left() != 0 {
			t.Errorf("%d are left", q.left())
		}
	})
	both(t, "a handler longer than the deadline: extended at a third, delivered once", func(t *testing.T, q *queue, d *desk, consume func(context.Context) error) {
		q.put("a")
		d.slow = 5 * visibility
		d.run(t, 10*visibility, consume)
		d.ledger.Want(t, "orders a", 1)
		if q.left() != 0 || q.extended < 12 || d.got[0].Attempt != 1 {
			t.Errorf("%d left, extended %d times, delivery %d", q.left(), q.extended, d.got[0].Attempt)
		}
	})
	both(t, "an acknowledgement that the server does not take is none: the redelivery is a duplicate", func(t *testing.T, q *queue, d *desk, consume func(context.Context) error) {
		q.put("a")
		q.refuse = 2
		d.run(t, 5*visibility, consume)
		d.ledger.Want(t, "orders a", 1)
		if q.left() != 0 || q.refuse != 0 {
			t.Errorf("%d left, %d refusals were not asked for", q.left(), q.refuse)
		}
	})
	both(t, "the store is away: nothing is acknowledged and nothing is given back; then one effect", func(t *testing.T, q *queue, d *desk, consume func(context.Context) error) {
		q.put("a")
		d.store.set(true)
		go func() { time.Sleep(10 * time.Minute); d.store.set(false) }()
		d.run(t, 15*time.Minute, func(ctx context.Context) error {
			go func() {
				time.Sleep(9 * time.Minute)
				if q.left() != 1 || q.held[0].count != 1 {
					t.Errorf("%d left, delivered %d times", q.left(), q.held[0].count)
				}
			}()
			return consume(ctx)
		})
		d.ledger.Want(t, "orders a", 1)
		if q.left() != 0 {
			t.Errorf("%d are left", q.left())
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	sqs := func(name, v string) error {
		return queues.ConsumeSQS(t.Context(), "orders", &queue{settings: map[string]string{name: v}}, d.Inbox, d.handle)
	}
	t.Run("[messages/B24] SQS: a redrive policy, and a retention beyond the window", func(t *testing.T) {
		if err := sqs("RedrivePolicy", `{"maxReceiveCount":5}`); !errors.Is(err, queues.ErrRedrive) {
			t.Error(err)
		}
		if err := sqs("MessageRetentionPeriod", "1209600"); !errors.Is(err, inbox.ErrWindow) {
			t.Error(err)
		}
	})
	t.Run("[messages/B25] Pub/Sub: a dead-letter policy, and a retention beyond the window", func(t *testing.T) {
		for want, s := range map[error]queues.PubSubSettings{queues.ErrDeadLetter: {DeadLetterTopic: "dead"}, inbox.ErrWindow: {Retention: 31 * 24 * time.Hour}} {
			if err := queues.ConsumePubSub(t.Context(), "orders", subscription{&queue{pubsub: s}}, d.Inbox, d.handle, queues.PubSubOptions{}); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
	})
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B24] SQS: the deduplication id of a FIFO queue stands before the MessageId", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q, d := &queue{}, newDesk(t)
			q.put("m-1", "MessageDeduplicationId", "own")
			q.put("m-2", "MessageDeduplicationId", "own") // sent again after five minutes
			q.held[1].Body = q.held[0].Body
			d.run(t, time.Minute, func(ctx context.Context) error { return queues.ConsumeSQS(ctx, "orders", q, d.Inbox, d.handle) })
			d.ledger.Want(t, "orders own", 1)
			if q.left() != 0 {
				t.Errorf("%d are left", q.left())
			}
		})
	})
	t.Run("[messages/B25] Pub/Sub: a named attribute stands for the server's id; where it is missing the message is parked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q, d := &queue{}, newDesk(t)
			q.put("1", "order", "81")
			q.put("2", "order", "81")
			q.put("3")
			q.held[1].Body = q.held[0].Body
			d.run(t, time.Minute, func(ctx context.Context) error {
				return queues.ConsumePubSub(ctx, "orders", subscription{q}, d.Inbox, d.handle, queues.PubSubOptions{IDAttribute: "order"})
			})
			d.ledger.Want(t, "orders 81", 1)
			parked, err := d.Find(t.Context(), inbox.Selection{Reason: inbox.ReasonMissingID})
			if err != nil || len(parked) != 1 || q.left() != 0 {
				t.Errorf("%d parked, %d left, %v", len(parked), q.left(), err)
			}
		})
	})
}

func TestSQSPublisher(t *testing.T) {
	t.Parallel()
	t.Run("[messages/B24] SQS: the deduplication id is the event's; done with a sequence number only; the window is told to the relay", func(t *testing.T) {
		q := &queue{sequence: "1"}
		p := queues.SQSPublisher{Queue: q}
		var told error
		publish := func() error {
			d := outbox.Delivery{Seq: 1, BrokerID: "id-1", Event: outbox.Event{ID: "id-1", Source: "/shop", Topic: "orders", Key: "k", Type: "T", Tenant: "default", Payload: []byte("x")}}
			p.Publish(t.Context(), outbox.PublishParams{Events: []outbox.Delivery{d}, Done: func(_ int, err error) { told = err }})
			return told
		}
		if err := publish(); err != nil {
			t.Error(err)
		}
		m := q.sent[0]
		if m.Attributes["MessageDeduplicationId"] != "id-1" || m.Attributes["MessageGroupId"] != "k" || m.Attributes["ce-id"] != "id-1" || m.Body != "x" {
			t.Errorf("%+v", m)
		}
		q.sequence = ""
		if err := publish(); outbox.ClassOf(err) != outbox.ClassUnanswered {
			t.Error(err)
		}
		q.lost = errors.New("no answer")
		if err := publish(); outbox.ClassOf(err) != outbox.ClassUnanswered {
			t.Error(err)
		}
		if w, ok := outbox.Publisher(p).(outbox.Windower); !ok || w.DedupWindow() != 5*time.Minute {
			t.Error("the relay does not learn of the window")
		}
	})
}
