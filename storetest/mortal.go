package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/pubrec"
	"github.com/idempo/idempo/outbox"
)

// A mortal is a store whose process can be killed: from then on nothing of it reaches the database.
type mortal struct {
	idempo.Store
	dead *atomic.Bool
}

type mortalLog struct {
	outbox.Store
	dead *atomic.Bool
}

// Outbox implements outbox.Opener.
func (m mortal) Outbox() (outbox.Store, outbox.Desk) {
	s, d := m.Store.(outbox.Opener).Outbox()
	return mortalLog{s, m.dead}, d
}

var errKilled = errors.New("killed")

func (m mortalLog) alive() error {
	if m.dead.Load() {
		return errKilled
	}
	return nil
}

// Hold does not outlive its process.
func (m mortalLog) Hold(ctx context.Context, p outbox.HoldParams) (outbox.Held, error) {
	if err := m.alive(); err != nil {
		return outbox.Held{}, err
	}
	return m.Store.Hold(ctx, p)
}

// Read does not outlive its process.
func (m mortalLog) Read(ctx context.Context, p outbox.ReadParams) (outbox.Page, error) {
	if err := m.alive(); err != nil {
		return outbox.Page{}, err
	}
	return m.Store.Read(ctx, p)
}

// Move does not outlive its process.
func (m mortalLog) Move(ctx context.Context, p outbox.MoveParams) (outbox.Moved, error) {
	if err := m.alive(); err != nil {
		return outbox.Moved{}, err
	}
	return m.Store.Move(ctx, p)
}

// Take does not outlive its process.
func (m mortalLog) Take(ctx context.Context, p outbox.TakeParams) (outbox.Taken, error) {
	if err := m.alive(); err != nil {
		return outbox.Taken{}, err
	}
	return m.Store.Take(ctx, p)
}

// doomed runs a relay that kill ends as a SIGKILL would: without a last word to the store.
func (p *post) doomed(pub outbox.Publisher, o outbox.RelayOptions) (kill func()) {
	p.Helper()
	m := mortal{p.Store, &atomic.Bool{}}
	o.DrainTimeout = time.Millisecond
	r := p.relay(m, pub, o)
	return func() { m.dead.Store(true); r.stop() }
}

// A killer ends its relay's process when it meets the event.
type killer struct {
	*pubrec.Publisher
	kill func()
}

// Publish implements outbox.Publisher.
func (f *killer) Publish(ctx context.Context, b outbox.PublishParams) {
	for _, d := range b.Events {
		if string(d.Payload) == "poison" {
			f.kill()
			return
		}
	}
	f.Publisher.Publish(ctx, b)
}

// A rude publisher breaks the rules of outbox.Publisher for some events.
type rude struct {
	*pubrec.Publisher
	mu    sync.Mutex
	tries map[string]int
	late  []func()
}

// Publish implements outbox.Publisher.
func (r *rude) Publish(ctx context.Context, b outbox.PublishParams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := b.Done
	for i, d := range b.Events {
		name := string(d.Payload)
		if r.tries[name]++; name == "panics" && r.tries[name] <= 3 {
			panic("at the disco")
		}
		if name == "never" && r.tries[name] == 1 {
			r.late = append(r.late, func() { done(i, nil) })
			continue
		}
		one := b
		one.Events = b.Events[i : i+1]
		one.Done = func(_ int, err error) {
			done(i, err)
			if name == "twice" {
				done(i, errors.New("no, it failed"))
				done(i, nil)
			}
		}
		r.Publisher.Publish(ctx, one)
	}
}
