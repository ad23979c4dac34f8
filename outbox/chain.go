package outbox

import (
	"slices"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// item is one event on its way.
type item struct {
	d        Delivery
	part     *part
	chain    *chain // of its key; nil: it has none
	dest     *dest
	slot     *slot // its place in the order; nil: it was set aside before
	size     int
	attempts int    // that counted
	starts   int    // of one that was set aside, this one included; 0: it was taken behind its head
	class    Class  // of the last failure
	try      int    // the answer to an earlier one is late
	sends    int    // of this run
	repeat   bool   // it was sent before, by whatever relay
	sealed   string // see Row.Sealed; box is the payload then, until it is sent
	box      []byte
	queued   bool // in dest.ready
	flying   bool
	settled  bool // done, set aside or forgotten
	alone    bool // with nothing else in flight
	sentAt   time.Time
	first    time.Time // when it was first sent by this run
	failure  *Setting  // what became of it, while others of its chain are in flight
}

// chainKey is what order is kept within.
type chainKey struct{ tenant, key string }

// chain is the events of one key that are on their way, in order.
type chain struct {
	key    chainKey
	part   *part
	items  []*item
	flying int
	// aside: the key is set aside, or was taken from there: what comes from the log goes behind it in the store.
	aside bool
	// halted: something failed; nothing is sent until all that is in flight has its answer.
	halted  bool
	writing int // settings that are not written yet
}

// dest is one place where events go to.
type dest struct {
	ready    []*item
	flying   int
	failures int       // since the last acknowledgement, one for all that were sent before it
	failedAt time.Time // when it was last found away
	until    time.Time // nothing is sent before
	ackedAt  time.Time
}

func (x *run) destOf(topic string) *dest {
	name := x.dest(topic)
	d := x.dests[name]
	if d == nil {
		d = &dest{}
		x.dests[name] = d
	}
	return d
}

// intake puts a row of the log into its chain.
func (x *run) intake(p *part, row *Row, s *slot, it *item) {
	x.load(p, row, it)
	it.slot, s.item = s, it
	if row.Key == "" {
		if row.Blocked || p.careful || x.pausedTopic(row.Topic) {
			x.queue(it)
			return
		}
		x.push(it)
		return
	}
	k := chainKey{row.Tenant, row.Key}
	c := x.chains[k]
	if c == nil {
		c = &chain{key: k, part: p}
		x.chains[k] = c
		c.aside = row.Blocked || p.careful || x.pausedTopic(row.Topic)
	}
	it.chain = c
	if c.aside {
		x.queue(it)
		return
	}
	c.items = append(c.items, it)
	if !c.halted && (x.order || len(c.items) == 1) {
		x.push(it)
	}
}

// load makes it the item of a row.
func (x *run) load(p *part, row *Row, it *item) {
	*it = item{part: p, size: row.Event.size(), sealed: row.Sealed}
	it.d = Delivery{Event: row.Event, Trace: row.Trace, Seq: row.Seq, BrokerID: row.ID}
	if it.sealed != "" {
		it.box, it.d.Payload = row.Payload, nil
	}
	x.unsent++
	x.unsentBytes += it.size
}

func (x *run) pausedTopic(topic string) bool {
	return len(x.pausedTopics) > 0 && Match(x.pausedTopics, topic)
}

// push makes an item ready to be sent.
func (x *run) push(it *item) {
	if it.dest == nil {
		it.dest = x.destOf(it.d.Topic)
	}
	if !it.queued {
		it.queued = true
		it.dest.ready = append(it.dest.ready, it)
	}
}

// queue sets an event of the log aside behind its key.
func (x *run) queue(it *item) {
	x.write(it, Setting{State: StateQueued, Holds: it.d.Key != "", Attempts: it.attempts, Class: it.class})
}

// pending is a Setting that the next Move stores.
type pending struct {
	Setting
	part  *part
	chain *chain
	size  int
}

// write notes what became of an item; the next Move stores it.
func (x *run) write(it *item, s Setting) {
	s.Row = Row{Seq: it.d.Seq, Partition: it.part.id}
	if s.New = it.slot != nil; s.New {
		s.Row.Event, s.Row.Trace, s.Row.Sealed = it.d.Event, it.d.Trace, it.sealed
		if it.sealed != "" {
			s.Row.Payload = it.box
		}
		it.slot.done, it.slot.sent = true, true
	}
	x.settings = append(x.settings, pending{s, it.part, it.chain, it.size})
	x.settingsBytes += it.size
	x.dirty = true
	it.part.writing++
	if it.chain != nil {
		it.chain.writing++
	}
	x.settle(it)
}

// settle ends the work with an item.
func (x *run) settle(it *item) {
	if it.settled {
		return
	}
	it.settled = true
	if !it.flying {
		x.unsent--
		x.unsentBytes -= it.size
	}
	if it.slot != nil {
		it.slot.item = nil
	} else {
		delete(it.part.takes, it)
	}
	it.d.Payload, it.d.Headers, it.box = nil, nil, nil
}

// forget drops an item of which nothing is known.
func (x *run) forget(it *item) {
	it.unchain()
	if it.chain != nil {
		x.tidy(it.chain)
	}
	x.settle(it)
}

// unchain takes an item out of its chain's order.
func (it *item) unchain() {
	if c := it.chain; c != nil {
		if i := slices.Index(c.items, it); i >= 0 {
			c.items = slices.Delete(c.items, i, i+1)
		}
	}
}

// tidy removes a chain that has nothing to wait for.
func (x *run) tidy(c *chain) {
	if len(c.items) == 0 && c.writing == 0 && c.flying == 0 && x.chains[c.key] == c {
		delete(x.chains, c.key)
		x.drainedPart(c.part)
	}
}

// done ends an item that is published.
func (x *run) done(it *item) {
	if it.slot == nil {
		x.write(it, Setting{State: StatePublished})
	} else {
		it.slot.done = true
		x.dirty = true
		x.settle(it)
	}
	if len(x.noRoute) > 0 {
		delete(x.noRoute, it.d.Topic)
	}
	if c := it.chain; c != nil {
		i := slices.Index(c.items, it)
		if i == 0 {
			c.items[0] = nil
			c.items = c.items[1:]
		} else if i > 0 {
			c.items = slices.Delete(c.items, i, i+1)
		}
		x.advance(c)
	}
}

// advance goes on with a chain after an answer.
func (x *run) advance(c *chain) {
	switch {
	case c.part.gone:
	case c.halted && c.flying > 0:
	case c.halted:
		x.resolve(c)
	case len(c.items) == 0:
		x.tidy(c)
	case c.flying == 0 && (!x.order || c.aside): // those behind a head that was set aside were not handed over with it
		x.push(c.items[0])
	}
}

// resolve goes on with a chain whose failures are all known: it is sent again, or set aside.
func (x *run) resolve(c *chain) {
	c.halted = false
	at := slices.IndexFunc(c.items, func(it *item) bool { return it.failure != nil })
	if at < 0 { // its destination was away
		for i, it := range c.items {
			if i == 0 || x.order {
				x.push(it)
			}
		}
		return
	}
	items := c.items
	c.items, c.aside = nil, true
	for i, it := range items {
		switch {
		case i == at:
			x.write(it, *it.failure)
		case it.slot != nil:
			x.queue(it)
		default: // behind the head in the store already, and left there
			if it.sends > 0 {
				x.write(it, Setting{State: StateQueued, Holds: true, Attempts: it.attempts, Class: it.class})
				continue
			}
			x.settle(it)
		}
	}
	x.tidy(c)
}

// fail decides what follows from an error of the publisher.
func (x *run) fail(it *item, err error, now time.Time) {
	class, after := ClassOf(err), time.Duration(0)
	if f := failureOf(err); f != nil {
		after = min(f.After, time.Hour)
	}
	if class == ClassUnavailable || class == ClassUnanswered && !it.dest.ackedAt.After(it.sentAt) {
		x.destAway(it, after, now, err)
		return
	}
	s := Setting{State: StateWaiting, Class: class, Attempts: it.attempts, Holds: it.d.Key != "", Error: short255(err.Error())}
	switch class {
	case ClassNoRoute:
		s.Wait = max(after, backoff.Full(8, x.o.BackoffBase, x.o.BackoffMax))
		x.noted(it, now)
	case ClassLater:
		s.Wait = max(after, backoff.Full(max(it.sends, 1), x.o.BackoffBase, x.o.BackoffMax))
	case ClassRefused:
		s.State, s.Attempts = StateDead, it.attempts+1
	default:
		s.Attempts = it.attempts + 1
		s.Wait = max(after, backoff.Full(it.attempts+1, x.o.BackoffBase, x.o.BackoffMax))
		if s.Attempts >= x.o.MaxAttempts {
			s.State = StateDead
		}
	}
	if s.State == StateDead {
		s.Wait, s.Holds = 0, s.Holds && x.o.OnDead == OnDeadBlock
		x.o.Logger.Error("outbox: an event is dead", "group", x.o.Group, "id", it.d.ID, "topic", it.d.Topic, "attempts", s.Attempts, "class", string(class))
	}
	c := it.chain
	switch {
	case c == nil:
		x.write(it, s)
	case s.State == StateDead && !s.Holds: // its key goes on
		x.write(it, s)
		it.unchain()
		x.advance(c)
	default:
		it.failure, c.halted = &s, true
		x.advance(c)
	}
}

// destAway lets the destination of an item wait. Nothing is counted, and the log's events stay where they are.
func (x *run) destAway(it *item, after time.Duration, now time.Time, err error) {
	d := it.dest
	if !it.sentAt.Before(d.failedAt) { // else it was sent before that was known
		if d.failures == 0 {
			x.o.Logger.Warn("outbox: a destination is away; asking again", "group", x.o.Group, "error", short255(err.Error()))
		}
		d.failures++
		d.failedAt = now
		d.until = now.Add(max(after, backoff.Full(d.failures, x.o.BackoffBase, x.o.BackoffMax)))
	}
	c := it.chain
	switch {
	case it.slot == nil: // it goes back into the store, where its wait is not a start
		s := Setting{State: StateWaiting, Class: ClassUnavailable, Attempts: it.attempts, Holds: it.d.Key != "", Wait: max(d.until.Sub(now), time.Millisecond)}
		if c == nil {
			x.write(it, s)
			return
		}
		it.failure, c.halted = &s, true
		x.advance(c)
	case c == nil:
		x.push(it)
	default:
		c.halted = true
		x.advance(c)
	}
}

// noted warns of a topic that has had no route for a minute, once.
func (x *run) noted(it *item, now time.Time) {
	since, known := x.noRoute[it.d.Topic]
	switch {
	case !known && len(x.noRoute) < 1000:
		x.noRoute[it.d.Topic] = now
	case known && !since.IsZero() && now.Sub(since) > time.Minute:
		x.noRoute[it.d.Topic] = time.Time{}
		x.o.Logger.Error("outbox: nothing takes a topic; its events wait, and go out by themselves once something does", "group", x.o.Group, "topic", it.d.Topic)
	}
}

func short255(s string) string { return s[:min(len(s), 255)] }
