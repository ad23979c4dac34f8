package pubrec

import (
	"context"
	"slices"
	"sync"

	"github.com/idempo/idempo/outbox"
)

// Publisher is an outbox.Publisher that records what it is given, and can fail, delay or hold any event. The zero value
// takes everything. It is safe for concurrent use; set its fields before it is.
type Publisher struct {
	// Answer says what becomes of an event: nil, or an error marked by package outbox. It may block, which delays this
	// event alone. nil: nil.
	Answer func(ctx context.Context, d outbox.Delivery) error
	// Hold keeps the answers of events for which it returns true until Release, or for ever.
	Hold func(d outbox.Delivery) bool
	// Ordered makes it an outbox.Orderer that keeps order.
	Ordered bool

	mu      sync.Mutex
	changed chan struct{}
	sent    []outbox.Delivery
	done    []outbox.Delivery
	first   []outbox.Delivery
	seen    map[string]bool // ids in first
	held    []held
	calls   sync.WaitGroup
}

type held struct {
	d      outbox.Delivery
	answer func(error)
}

// KeepsOrder implements outbox.Orderer.
func (p *Publisher) KeepsOrder() bool { return p.Ordered }

// Publish implements outbox.Publisher.
func (p *Publisher) Publish(ctx context.Context, b outbox.PublishParams) {
	for i, d := range b.Events {
		d.Headers, d.Payload = slices.Clone(d.Headers), clone(d.Payload)
		answer := func(err error) {
			if err == nil {
				p.taken(d)
			}
			b.Done(i, err)
		}
		p.note(&p.sent, d)
		switch {
		case p.Hold != nil && p.Hold(d):
			p.mu.Lock()
			p.held = append(p.held, held{d, answer})
			p.signal()
			p.mu.Unlock()
		case p.Answer == nil:
			answer(nil)
		default:
			p.calls.Go(func() { answer(p.Answer(ctx, d)) })
		}
	}
}

func (p *Publisher) note(list *[]outbox.Delivery, d outbox.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, d)
	p.signal()
}

// signal wakes Wait. p.mu is held.
func (p *Publisher) signal() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Release answers what is held so far, each with the error that answer returns for it; nil: all are done.
func (p *Publisher) Release(answer func(d outbox.Delivery) error) {
	p.mu.Lock()
	list := p.held
	p.held = nil
	p.mu.Unlock()
	for _, h := range list {
		var err error
		if answer != nil {
			err = answer(h.d)
		}
		h.answer(err)
	}
}

// Sent are the events it was given, repeats included, in order.
func (p *Publisher) Sent() []outbox.Delivery { return p.copy(&p.sent) }

// Done are the events it has taken, repeats included, in order.
func (p *Publisher) Done() []outbox.Delivery { return p.copy(&p.done) }

// First are the events it has taken, each id once, in the order of its first appearance.
func (p *Publisher) First() []outbox.Delivery { return p.copy(&p.first) }

// Taken is how many different events it has taken.
func (p *Publisher) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.first)
}

func (p *Publisher) taken(d outbox.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.done = append(p.done, d)
	if !p.seen[d.ID] {
		p.seen[d.ID] = true
		p.first = append(p.first, d)
	}
	p.signal()
}

// Held are the events whose answer is held back.
func (p *Publisher) Held() (list []outbox.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.held {
		list = append(list, h.d)
	}
	return list
}

func (p *Publisher) copy(list *[]outbox.Delivery) []outbox.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(*list)
}

// Wait returns when ok, or with ctx's error. It looks again whenever something was given, taken or held.
func (p *Publisher) Wait(ctx context.Context, ok func() bool) error {
	for {
		p.mu.Lock()
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
