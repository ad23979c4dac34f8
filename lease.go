package idempo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// leaseState renews one leased claim. It holds timers, not a goroutine: renewing thousands of claims costs a goroutine
// only while a store call runs.
type leaseState struct {
	mu      sync.Mutex
	next    *time.Timer // the next renewal
	dead    *time.Timer // when authority is lost if no renewal succeeds
	stopped bool
}

// keep starts renewing; c is a leased claim.
func (c *Claim) keep() {
	c.lease.mu.Lock()
	c.lease.next = time.AfterFunc(c.renewEvery(), c.renew)
	c.lease.dead = time.AfterFunc(c.patience(), func() { c.lose(c.ctx) })
	c.lease.mu.Unlock()
	context.AfterFunc(c.ctx, c.expire)
	if c.acq.DerivedKey != "" && c.rec.Generation > 1 {
		_ = c.touch(c.ctx, RenewParams{DerivedKey: c.acq.DerivedKey})
	}
}

// patience is how long after sending the last good renewal the claim still counts on its lease, on the monotonic clock.
func (c *Claim) patience() time.Duration { return c.op.Lease - min(c.op.Lease/5, 5*time.Second) }

func (c *Claim) renewEvery() time.Duration {
	every := c.op.Lease / 3
	if c.e.cfg.Renew > 0 && c.op.Lease == c.e.cfg.Lease {
		every = c.e.cfg.Renew
	}
	return backoff.Around(every, 0.1)
}

// renew is one timed renewal; a failed one is tried again until dead fires.
func (c *Claim) renew() {
	if c.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.patience())
	defer cancel()
	p := RenewParams{Key: c.acq.Key, Token: c.acq.Token, Lease: c.op.Lease}
	sent := time.Now()
	err := c.e.timed(ctx, "renew", c.op.Name, func() error {
		_, err := c.e.store.Renew(ctx, p)
		return err
	})
	switch {
	case err == nil:
		c.lease.renewed(c, sent)
	case errors.Is(err, ErrLeaseLost):
		c.lose(ctx)
	default:
		c.e.observe(ctx, Event{Kind: "renew_failed", Operation: c.op.Name, KeyRef: c.Ref(), Attempt: c.rec.Attempt, Class: codeOf(err), Err: err})
		c.lease.again(backoff.Full(2, c.op.Lease/100, c.op.Lease/10) + c.op.Lease/100)
	}
}

func (l *leaseState) renewed(c *Claim, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.next.Reset(c.renewEvery())
	l.dead.Reset(c.patience() - time.Since(sent))
}

func (l *leaseState) again(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.next.Reset(d)
	}
}

func (l *leaseState) stop() (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || l.next == nil {
		return false
	}
	l.stopped = true
	l.next.Stop()
	l.dead.Stop()
	return true
}

// lose ends the claim's context with cause ErrLeaseLost, once. A late result may still be stored while the token stands.
func (c *Claim) lose(ctx context.Context) {
	if !c.lease.stop() {
		return
	}
	c.e.observe(ctx, Event{Kind: "lease_lost", Operation: c.op.Name, KeyRef: c.Ref(), Attempt: c.rec.Attempt})
	c.cancel(ErrLeaseLost)
}

// expire runs when the claim's context ends: at MaxRun, by a lost lease, or settled. Renewing stops, and duplicates
// here ask the store; OnCrash decides what follows.
func (c *Claim) expire() {
	c.lease.stop()
	c.finish(Begun{})
}
