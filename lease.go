package idempo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// leaseState keeps one claim alive. It is one timer, not a goroutine: thousands of running claims cost goroutines only
// while their store calls run.
type leaseState struct {
	mu      sync.Mutex
	timer   *time.Timer // fires at the earliest of what is due next
	dead    time.Time   // authority is lost if no renewal succeeds before
	renews  bool        // a renewal is on its way
	stopped bool
}

// keep starts the time of a claim that was sent then: a leased one, or one in a caller's own transaction, which has no lease.
func (c *Claim) keep(sent time.Time) {
	c.lease.mu.Lock()
	c.lease.dead = sent.Add(c.op.patience())
	first := min(c.renewEvery(), c.op.MaxRun)
	if !c.inTx {
		first = min(first, time.Until(c.lease.dead))
	}
	c.lease.timer = time.AfterFunc(first, c.tick)
	c.lease.mu.Unlock()
	if !c.inTx && c.rederived != "" {
		_ = c.touch(&c.ctx, RenewParams{DerivedKey: c.rederived})
	}
}

// patience is how long after sending its claim, or the last good renewal, an owner still counts on its lease, on the
// monotonic clock.
func (o *Operation) patience() time.Duration { return o.Lease - min(o.Lease/5, 5*time.Second) }

func (c *Claim) renewEvery() time.Duration {
	if c.inTx {
		return c.op.MaxRun
	}
	every := c.op.Lease / 3
	if c.e.cfg.Renew > 0 && c.op.Lease == c.e.cfg.Lease {
		every = c.e.cfg.Renew
	}
	return backoff.Around(every, 0.1)
}

// tick does what is due: the end of the run, the loss of a lease that could not be renewed, or a renewal. While a
// renewal is on its way the timer stands at the loss, so that one that hangs keeps no authority.
func (c *Claim) tick() {
	now := time.Now()
	l := &c.lease
	l.mu.Lock()
	switch {
	case l.stopped:
		l.mu.Unlock()
	case !now.Before(c.born.Add(c.op.MaxRun)):
		l.mu.Unlock()
		c.stopKeeping()
		c.finish(Begun{}) // duplicates here ask the store; OnCrash decides what follows
	case !c.inTx && !now.Before(l.dead):
		l.mu.Unlock()
		c.lose(&c.ctx)
	case l.renews:
		l.mu.Unlock()
	default:
		l.renews = true
		l.timer.Reset(min(l.dead.Sub(now), c.rest(now)))
		l.mu.Unlock()
		c.renew(now)
	}
}

// rest is what is left of the run.
func (c *Claim) rest(now time.Time) time.Duration {
	return max(c.born.Add(c.op.MaxRun).Sub(now), 0)
}

// renew is one timed renewal; a failed one is tried again until the lease counts as lost.
func (c *Claim) renew(sent time.Time) {
	limit := within(&c.ctx, c.op.patience())
	defer limit.end(context.Canceled)
	p := RenewParams{Key: c.stored, Token: c.token, Lease: c.op.Lease}
	err := c.e.timed(limit, "renew", c.op.Name, func() error {
		_, err := c.e.store.Renew(limit, p)
		return err
	})
	switch {
	case err == nil:
		c.renewed(sent)
	case errors.Is(err, ErrLeaseLost):
		c.lose(&c.ctx)
	default:
		c.observe(&c.ctx, Event{Kind: "renew_failed", Class: codeOf(err), Err: err})
		c.schedule(backoff.Full(2, c.op.Lease/100, c.op.Lease/10) + c.op.Lease/100)
	}
}

// renewed counts the lease from sent on.
func (c *Claim) renewed(sent time.Time) {
	c.lease.mu.Lock()
	c.lease.dead = sent.Add(c.op.patience())
	c.lease.mu.Unlock()
	c.schedule(c.renewEvery())
}

// schedule sets the timer to the next renewal, in d, or to what comes before it.
func (c *Claim) schedule(d time.Duration) {
	now := time.Now()
	l := &c.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renews = false
	if !l.stopped && l.timer != nil {
		l.timer.Reset(min(d, max(l.dead.Sub(now), 0), c.rest(now)))
	}
}

// stopKeeping stops the timer; was is false if it was stopped already or never ran.
func (c *Claim) stopKeeping() (was bool) {
	l := &c.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.timer == nil {
		return false
	}
	l.stopped = true
	l.timer.Stop()
	return true
}

// lose ends the claim's context with cause ErrLeaseLost, once. A late result may still be stored while the token stands.
func (c *Claim) lose(ctx context.Context) {
	if !c.stopKeeping() {
		return
	}
	c.observe(ctx, Event{Kind: "lease_lost"})
	c.ctx.end(ErrLeaseLost)
	c.finish(Begun{})
}
