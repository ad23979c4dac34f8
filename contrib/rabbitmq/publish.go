package idemrabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idempo/idempo/outbox"
)

// PublisherOptions of a Publisher. The zero value publishes to the default exchange: a topic is the name of its queue.
type PublisherOptions struct {
	// Exchange that events go to; the topic is the routing key. It must exist. "": the default exchange.
	Exchange string
	// MaxPending is how many events may be unconfirmed; at the limit a Publish waits. Default 1,000.
	MaxPending int
	// ConfirmTimeout is how long one confirm is waited for; then the channel is given up, and the outcome of all that is
	// pending is not known. Default 20s.
	ConfirmTimeout time.Duration
}

// Publisher publishes the events of an outbox to an exchange. It is safe for concurrent use. Close ends it.
type Publisher struct {
	dial  DialFunc
	o     PublisherOptions
	room  chan struct{} // a place for each unconfirmed event
	owned sync.WaitGroup

	mu     sync.Mutex
	s      *channel
	closed bool
	failed int       // dials in a row
	next   time.Time // when the next dial may be
}

// NewPublisher returns a publisher that dials when there is something to publish, and again, with jitter, when its
// connection or channel is gone.
func NewPublisher(dial DialFunc, o PublisherOptions) *Publisher {
	o.MaxPending = cmp.Or(max(o.MaxPending, 0), 1000)
	o.ConfirmTimeout = cmp.Or(max(o.ConfirmTimeout, 0), 20*time.Second)
	return &Publisher{dial: dial, o: o, room: make(chan struct{}, o.MaxPending)}
}

// Close closes the connection and returns when nothing of the publisher runs any more. What is pending is told to be
// outbox.Unanswered, and every later event outbox.Unavailable.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	s := p.s
	p.mu.Unlock()
	if s != nil {
		s.end()
	}
	p.owned.Wait()
}

// Publish implements outbox.Publisher. An event is done when the server has confirmed it and not returned it: it is
// mandatory and persistent. One that no queue is bound for is outbox.NoRoute, and so are all pending ones where there is no
// exchange; what was pending on a channel that is gone is outbox.Unanswered. CloudEvents attributes are headers with
// "cloudEvents:"; the message-id is the event's id.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	for i := range b.Events {
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			b.Done(i, outbox.Unavailable(context.Cause(ctx)))
			continue
		}
		done := sync.OnceFunc(func() { <-p.room })
		tell := func(err error) { done(); b.Done(i, err) }
		s, err := p.open(ctx)
		if err != nil {
			tell(outbox.Unavailable(err))
			continue
		}
		s.publish(ctx, p.o.Exchange, &b.Events[i], tell)
	}
}

// open returns the channel that is open, or a new one.
func (p *Publisher) open(ctx context.Context) (*channel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errors.New("idemrabbitmq: the publisher is closed")
	case p.s != nil && !p.s.over():
		return p.s, nil
	case time.Now().Before(p.next):
		return nil, errors.New("idemrabbitmq: not connected")
	}
	conn, err := p.dial(ctx)
	var s *channel
	if err == nil {
		s, err = newChannel(conn, p.o)
	}
	if err != nil {
		p.failed = min(p.failed+1, 6)
		p.next = time.Now().Add(time.Duration(rand.Int64N(int64(50*time.Millisecond) << p.failed)))
		return nil, err
	}
	p.s, p.failed = s, 0
	p.owned.Go(s.listen)
	return s, nil
}

// channel is one in confirm mode on a connection of its own.
type channel struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	timeout time.Duration

	returns  chan amqp.Return
	confirms chan amqp.Confirmation
	gone     chan *amqp.Error
	blocked  chan amqp.Blocking
	ended    chan struct{}
	end      func()

	sending sync.Mutex // a number and its event go together. Never held by listen: the server may read us only as fast as we read it

	mu      sync.Mutex
	pending map[uint64]pending
	stopped bool // by the server: it takes nothing more for now
	left    bool // listen has told of everything
}

// pending is an event that is not confirmed.
type pending struct {
	id   string
	at   time.Time
	back error // it was returned
	tell func(error)
}

func newChannel(conn *amqp.Connection, o PublisherOptions) (*channel, error) {
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		_ = conn.Close()
		return nil, shown("cannot open a channel in confirm mode", err)
	}
	s := &channel{conn: conn, ch: ch, timeout: o.ConfirmTimeout, pending: map[uint64]pending{}, ended: make(chan struct{})}
	// The client's one reader hands these over and would stop reading, and so deadlock, if nobody took them: listen does,
	// and does nothing else [amqp091-go#10, #122].
	s.returns = ch.NotifyReturn(make(chan amqp.Return, o.MaxPending))
	s.confirms = ch.NotifyPublish(make(chan amqp.Confirmation, o.MaxPending))
	s.gone = ch.NotifyClose(make(chan *amqp.Error, 1))
	s.blocked = conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	s.end = sync.OnceFunc(func() { close(s.ended) })
	return s, nil
}

func (s *channel) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return s.ch.IsClosed()
	}
}

// publish hands one event over; tell is called when its end is known.
func (s *channel) publish(ctx context.Context, exchange string, d *outbox.Delivery, tell func(error)) {
	s.sending.Lock()
	defer s.sending.Unlock()
	tag, m := s.ch.GetNextPublishSeqNo(), message(d)
	if !s.expect(tag, pending{id: m.MessageId, at: time.Now(), tell: tell}) { // before it is sent: listen may be faster
		tell(outbox.Unavailable(errors.New("idemrabbitmq: the server takes nothing now")))
		return
	}
	unhook := context.AfterFunc(ctx, func() { _ = s.conn.CloseDeadline(time.Now()) }) // a server that reads no more would hold us
	defer unhook()
	if err := s.ch.PublishWithContext(ctx, exchange, d.Topic, true, false, m); err != nil {
		s.end() // listen tells what is pending, this event included
	}
}

// expect notes an event that is about to be sent; false: nothing is sent any more, or for now.
func (s *channel) expect(tag uint64, p pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.left || s.over() {
		return false
	}
	s.pending[tag] = p
	return true
}

// listen tells what the server says until the channel is gone, and then what is left.
func (s *channel) listen() {
	defer func() { _ = s.conn.CloseDeadline(time.Now().Add(time.Second)) }()
	check := time.NewTicker(max(s.timeout/4, time.Millisecond))
	defer check.Stop()
	var why *amqp.Error
	for open := true; open; {
		select {
		case r, ok := <-s.returns:
			if ok {
				s.returned(r)
			}
			open = ok
		case c, ok := <-s.confirms:
			if ok {
				s.confirmed(c)
			}
			open = ok
		case b, ok := <-s.blocked:
			s.mu.Lock()
			s.stopped = ok && b.Active
			s.mu.Unlock()
			open = ok
		case why = <-s.gone:
			open = false
		case <-check.C:
			open = !s.late()
		case <-s.ended:
			open = false
		}
	}
	s.end()
	if why == nil {
		select {
		case why = <-s.gone:
		default:
		}
	}
	s.leave(why)
}

// returned notes an event that no queue took. Its confirm follows.
func (s *channel) returned(r amqp.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, p := range s.pending {
		if p.id == r.MessageId {
			p.back = outbox.NoRoute(fmt.Errorf("idemrabbitmq: no queue is bound for the topic: AMQP %d", r.ReplyCode))
			s.pending[tag] = p
		}
	}
}

func (s *channel) confirmed(c amqp.Confirmation) {
	for more := true; more; { // what was returned was so before it was confirmed
		select {
		case r, ok := <-s.returns:
			if more = ok; ok {
				s.returned(r)
			}
		default:
			more = false
		}
	}
	s.mu.Lock()
	p, ok := s.pending[c.DeliveryTag]
	delete(s.pending, c.DeliveryTag)
	s.mu.Unlock()
	switch {
	case !ok:
	case !c.Ack:
		p.tell(errors.New("idemrabbitmq: the server refused the event (nack)"))
	default:
		p.tell(p.back)
	}
}

// late reports that a confirm is overdue.
func (s *channel) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pending {
		if time.Since(p.at) > s.timeout {
			return true
		}
	}
	return false
}

// leave tells what is still pending when the channel is gone: it may be stored.
func (s *channel) leave(why *amqp.Error) {
	s.mu.Lock()
	left := s.pending
	s.pending, s.left = nil, true
	s.mu.Unlock()
	for _, p := range left {
		switch {
		case p.back != nil:
			p.tell(p.back)
		case why != nil && why.Code == amqp.NotFound:
			p.tell(outbox.NoRoute(errors.New("idemrabbitmq: there is no such exchange: AMQP 404")))
		default:
			p.tell(outbox.Unanswered(errors.New("idemrabbitmq: the channel is gone; the event may be stored")))
		}
	}
}

// message is an event as a CloudEvent in binary mode. Names that repeat are one header with a list.
func message(d *outbox.Delivery) amqp.Publishing {
	m := amqp.Publishing{MessageId: d.ID, DeliveryMode: amqp.Persistent, Timestamp: d.Time, Type: d.Type, Body: d.Payload, Headers: amqp.Table{"x-deduplication-header": d.BrokerID}}
	for _, a := range d.Attributes() {
		if a[0] == "datacontenttype" {
			m.ContentType = a[1]
			continue
		}
		m.Headers["cloudEvents:"+a[0]] = a[1]
	}
	for _, h := range d.Extra() {
		switch old := m.Headers[h[0]].(type) {
		case nil:
			m.Headers[h[0]] = h[1]
		case string:
			m.Headers[h[0]] = []any{old, h[1]}
		case []any:
			m.Headers[h[0]] = append(old, h[1])
		}
	}
	if d.Payload == nil {
		m.Headers["idempo-tombstone"] = "1"
	}
	return m
}
