package outbox

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// maxBatch is how many events one Publish gets at most.
const maxBatch = 256

// batch is one call of Publish.
type batch struct {
	refs   []sentRef
	events []Delivery
}

// sentRef is one send of an item.
type sentRef struct {
	it  *item
	try int
	at  time.Time
}

// answer is what a publisher said of a send.
type answer struct {
	sentRef
	err  error
	took time.Time
}

// answers takes what publishers say, from any goroutine.
type answers struct {
	mu     sync.Mutex
	list   []answer
	closed bool
	signal chan struct{}
}

func (a *answers) add(ref sentRef, err error) (kept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.list = append(a.list, answer{ref, err, time.Now()})
	select {
	case a.signal <- struct{}{}:
	default:
	}
	return true
}

func (a *answers) take() []answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	return list
}

func (a *answers) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// send is the goroutine that calls the publisher.
func (x *run) send() {
	for b := range x.batches {
		x.publish(b)
		x.freed <- struct{}{}
	}
}

var errPanicked = errors.New("the publisher panicked")

// publish is one call of Publish. A panic in it is a failure of what is not done yet.
func (x *run) publish(b batch) {
	var mu sync.Mutex
	said := make([]bool, len(b.refs))
	done := func(i int, err error) {
		if i < 0 || i >= len(said) {
			x.o.Logger.Error("outbox: the publisher told of an event that it did not get", "group", x.o.Group)
			return
		}
		mu.Lock()
		again := said[i]
		said[i] = true
		mu.Unlock()
		if again || !x.answers.add(b.refs[i], err) {
			x.o.Logger.Warn("outbox: the publisher told of an event twice, or after the relay had stopped; it changes nothing", "group", x.o.Group)
		}
	}
	defer func() {
		if p := recover(); p != nil {
			x.o.Logger.Error("outbox: the publisher panicked", "group", x.o.Group, "events", len(b.refs), "stack", string(debug.Stack()))
			for i := range said {
				mu.Lock()
				open := !said[i]
				mu.Unlock()
				if open {
					done(i, &panicked{events: len(b.refs)})
				}
			}
		}
	}()
	x.pub.Publish(x.sendCtx, PublishParams{Events: b.events, Done: done})
}

// panicked is the failure of a send whose publisher panicked. With other events in the batch it is not known which of
// them it was: then it does not count, and each is sent by itself from then on.
type panicked struct{ events int }

func (p *panicked) Error() string { return errPanicked.Error() }
func (p *panicked) Unwrap() error { return errPanicked }

// dispatch hands what is ready to the sender.
func (x *run) dispatch(now time.Time) {
	select {
	case <-x.freed:
		x.sender = false
	default:
	}
	if x.sender || x.paused || !x.maySend(now) {
		return
	}
	if len(x.solo) > 0 {
		if x.flying == 0 && !x.dirty && !now.Before(x.destOf(x.solo[0].d.Topic).until) {
			it := x.solo[0]
			x.solo = x.solo[1:]
			it.dest = x.destOf(it.d.Topic)
			x.hand([]*item{it}, now)
		}
		return
	}
	if x.flying > 0 && x.sent[0].it.alone && x.sent[0].it.flying { // it has no company
		return
	}
	var out []*item
	for _, d := range x.dests {
		out = x.ready(d, out, now)
		if len(out) > 0 && single(out[0]) {
			break
		}
	}
	if len(out) > 0 {
		x.hand(out, now)
	}
}

// single reports whether an item gets a Publish of its own: one that failed before must not take others down with it.
func single(it *item) bool { return it.slot == nil && it.repeat }

// ready moves what may be sent from d to out.
func (x *run) ready(d *dest, out []*item, now time.Time) []*item {
	if now.Before(d.until) {
		return out
	}
	i := 0
	for ; i < len(d.ready); i++ {
		it := d.ready[i]
		if it.settled || it.chain != nil && it.chain.halted {
			it.queued = false
			continue
		}
		if x.pausedTopic(it.d.Topic) {
			it.queued = false
			x.pauseItem(it)
			continue
		}
		if len(out) >= maxBatch || len(out) > 0 && single(it) || x.flying+len(out) >= x.o.MaxInFlight || x.flyingBytes > 0 && x.flyingBytes+sizes(out)+it.size > x.o.MaxInFlightBytes ||
			d.failures > 0 && d.flying+len(out) > 0 {
			break
		}
		it.queued = false
		out = append(out, it)
		if single(it) {
			i++
			break
		}
	}
	d.ready = d.ready[i:]
	if len(d.ready) == 0 {
		d.ready = nil
	}
	return out
}

func sizes(items []*item) (n int) {
	for _, it := range items {
		n += it.size
	}
	return n
}

// pauseItem puts one whose topic has been paused behind its key.
func (x *run) pauseItem(it *item) {
	s := Setting{State: StateQueued, Holds: it.d.Key != "", Attempts: it.attempts, Class: it.class}
	if it.chain == nil {
		x.write(it, s)
		return
	}
	it.failure, it.chain.halted = &s, true
	x.advance(it.chain)
}

// hand gives items to the sender, which is free.
func (x *run) hand(items []*item, now time.Time) {
	b := batch{refs: make([]sentRef, 0, len(items)), events: make([]Delivery, 0, len(items))}
	for _, it := range items {
		if !x.open(it, now) {
			continue
		}
		if it.sends > 0 || it.repeat {
			observe(x.ctx, x.o.Observer, Observation{Kind: "republished", Group: x.o.Group, Count: 1})
			x.checkWindow(it, now)
		}
		if it.sends++; it.first.IsZero() {
			it.first = now
		}
		it.try++
		it.sentAt, it.flying = now, true
		if it.slot != nil {
			it.slot.sent = true
		}
		if it.chain != nil {
			it.chain.flying++
		}
		it.dest.flying++
		x.unsent--
		x.unsentBytes -= it.size
		x.flying++
		x.flyingBytes += it.size
		ref := sentRef{it, it.try, now}
		x.sent = append(x.sent, ref)
		b.refs, b.events = append(b.refs, ref), append(b.events, it.d)
	}
	if len(b.refs) > 0 {
		x.sender = true
		x.batches <- b
	}
}

// open decrypts what is encrypted. Where that fails the event fails, before it is sent.
func (x *run) open(it *item, now time.Time) bool {
	if it.sealed == "" || it.d.Payload != nil {
		return true
	}
	err := errors.New("the payload is encrypted and this relay has no key for it")
	if x.o.DecryptFunc != nil {
		row := Row{Event: it.d.Event, Seq: it.d.Seq, Partition: it.part.id, Trace: it.d.Trace, Sealed: it.sealed}
		row.Payload = it.box
		if it.d.Payload, err = x.o.DecryptFunc(row); err == nil {
			return true
		}
	}
	x.fail(it, fmt.Errorf("decrypt: %w", err), now)
	return false
}

// checkWindow counts a repeat that the broker may not know any more.
func (x *run) checkWindow(it *item, now time.Time) {
	if x.window <= 0 || it.first.IsZero() || now.Sub(it.first) <= x.window {
		return
	}
	observe(x.ctx, x.o.Observer, Observation{Kind: "window_exceeded", Group: x.o.Group, Count: 1})
	if !x.warnedWindow {
		x.warnedWindow = true
		x.o.Logger.Warn("outbox: an event goes out again after the broker has forgotten its id; a consumer may see it twice", "group", x.o.Group, "window", x.window.String())
	}
}

// answered takes one send out of flight; false: it counts no more.
func (x *run) answered(ref sentRef) bool {
	it := ref.it
	if !it.flying || it.try != ref.try {
		return false
	}
	it.flying = false
	x.flying--
	x.flyingBytes -= it.size
	it.dest.flying--
	if it.chain != nil {
		it.chain.flying--
	}
	if it.settled { // its partition is gone
		return false
	}
	x.unsent++
	x.unsentBytes += it.size
	return true
}

// settleAnswers does what the publisher's answers ask for.
func (x *run) settleAnswers(now time.Time) {
	for _, a := range x.answers.take() {
		if a.it.try != a.try {
			x.o.Logger.Warn("outbox: an answer came after its time was over; the event went out again", "group", x.o.Group)
			continue
		}
		if !x.answered(a.sentRef) {
			continue
		}
		x.answer(a, now)
	}
	over := func(ref sentRef) bool { return !ref.it.flying || ref.it.try != ref.try }
	if len(x.sent) > 2*x.flying+1024 || len(x.sent) > 0 && over(x.sent[0]) {
		x.sent = slices.DeleteFunc(x.sent, over)
	}
}

// answer is what one send came to.
func (x *run) answer(a answer, now time.Time) {
	it, err := a.it, a.err
	o := Observation{Kind: "published", Group: x.o.Group, Outcome: outcome(err), Count: 1, Took: a.took.Sub(a.at)}
	if !it.d.Time.IsZero() {
		o.Age = max(a.took.Sub(it.d.Time), 0)
	}
	observe(x.ctx, x.o.Observer, o)
	if err == nil || errors.Is(err, ErrDuplicate) {
		d := it.dest
		d.failures, d.until, d.ackedAt = 0, time.Time{}, a.took
		x.progress, x.stalled = now, false
		it.part.careful = it.part.careful && it.slot != nil
		x.done(it)
		return
	}
	if p, ok := errors.AsType[*panicked](err); ok && p.events > 1 {
		it.repeat = true
		it.attempts--
	}
	x.fail(it, err, now)
}

// outcome is the word of metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "acked"
	case errors.Is(err, ErrDuplicate):
		return "duplicate_ack"
	}
	switch c := ClassOf(err); c {
	case ClassFailed:
		return "failed"
	case ClassUnanswered:
		return "unknown"
	default:
		return string(c)
	}
}

var errNoAnswer = Unanswered(errors.New("no answer within PublishTimeout; whether it was published is not known"))

// expire gives up waiting for answers whose time is over.
func (x *run) expire(now time.Time) {
	for len(x.sent) > 0 {
		ref := x.sent[0]
		if ref.it.flying && ref.it.try == ref.try {
			if now.Sub(ref.at) < x.o.PublishTimeout {
				return
			}
			if x.answered(ref) {
				ref.it.try++ // what is said of it from now on is late
				x.answer(answer{ref, errNoAnswer, now}, now)
			}
		}
		x.sent[0] = sentRef{}
		x.sent = x.sent[1:]
	}
}

// sendable reports whether something could be sent now.
func (x *run) sendable(now time.Time) bool {
	if x.paused || !x.maySend(now) {
		return false
	}
	for _, d := range x.dests {
		if !now.Before(d.until) {
			for _, it := range d.ready {
				if !it.settled && !(it.chain != nil && it.chain.halted) {
					return true
				}
			}
		}
	}
	return false
}

func failureOf(err error) *Failure {
	f, _ := errors.AsType[*Failure](err)
	return f
}
