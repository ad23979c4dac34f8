package idempo

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// Polling for another process's claim: from pollMin, growing by half, to pollMax.
const (
	pollMin = 25 * time.Millisecond
	pollMax = 250 * time.Millisecond
)

// turn is what a call finds at its key in this process. One caller per key leads: it asks the store, and the others share
// its answer or wait for it, without a connection. They wait before anything else is on their stacks, so that a crowd is
// cheap.
type turn int

const (
	leads   turn = iota // nobody here is at the key: this call asks the store
	shares              // the leader's answer is this call's as well
	differs             // another request has the key
	waits               // the leader is at work, longer than this call waits
	anew                // the leader has ended without an answer to share
)

// turn waits for this call's turn, if need be until deadline; f is its own flight where it leads, else the leader's.
func (e *Engine) turn(c *call) (t turn, f *flight, err error) {
	c.until = time.Now().Add(c.wait)
	for {
		f, leader := e.flights.join(c)
		if leader {
			return leads, f, nil
		}
		if t, err = e.follow(c, f, c.until); t != anew || err != nil {
			return t, f, err
		}
	}
}

// told is the answer to a call that does not lead f.
func (c *call) told(t turn, f *flight) Begun {
	rec := Record{Key: c.p.Key, State: StatePending, Guard: c.op.Guard, Owner: c.e.owner}
	switch t {
	case shares:
		return f.end.shared()
	case differs:
		rec.Hash, rec.Recipe, rec.Detail = f.hash, f.recipe, f.detail
		return Begun{Verdict: VerdictMismatch, Record: rec.Clone()}
	default:
		return Begun{Verdict: VerdictInProgress, Record: rec, RetryAfter: f.retryAfter()}
	}
}

// lead calls attempt for the leader of f; while it says "in progress" and the caller's wait is not over, again.
func (e *Engine) lead(ctx context.Context, c *call, f *flight, attempt func(context.Context, *flight) (Begun, error)) (b Begun, err error) {
	kept := false // the flight goes on with a claim that is still at work
	defer func() {
		if !kept { // also after a panic or Goexit of the work: exactly one duplicate asks anew
			e.flights.finish(f, b)
		}
	}()
	pause := pollMin
	waiting := false
	defer func() {
		if waiting {
			e.waited(c, c.until.Add(-c.wait))
		}
	}()
	for {
		b, err = attempt(ctx, f)
		if err != nil || b.Verdict != VerdictInProgress || c.wait == 0 {
			break
		}
		left := time.Until(c.until)
		if left <= 0 {
			break
		}
		if !waiting {
			waiting = true
			e.flights.run(f) // in another process
			c.observe(Event{Kind: "waiting", Count: 1})
		}
		if !sleep(ctx, min(left, backoff.Around(pause, 0.2))) {
			return Begun{}, context.Cause(ctx)
		}
		pause = min(pause*3/2, pollMax)
	}
	if err != nil {
		e.flights.finish(f, Begun{}) // whatever b says, duplicates ask for themselves
	}
	kept = b.Claim != nil
	return b, err
}

// follow is the turn of a duplicate of f, which is at work in this process. deadline zero: inside a transaction, which the
// leader may be waiting for.
func (e *Engine) follow(c *call, f *flight, deadline time.Time) (turn, error) {
	same, err := c.matches(f.hash, f.recipe)
	if err != nil || !same {
		return differs, err
	}
	for { // the leader may only be asking the store: then its answer is everybody's
		known, over := e.flights.ask(f)
		if over {
			return f.share(), nil
		}
		if known == nil {
			break
		}
		if deadline.IsZero() {
			return anew, nil
		}
		select {
		case <-known:
		case <-c.ctx.Done():
			return anew, context.Cause(c.ctx)
		}
	}
	left := time.Until(deadline)
	if deadline.IsZero() || left <= 0 {
		return waits, nil
	}
	if room, over := e.flights.wait(f); !room {
		if over {
			return anew, nil
		}
		return waits, nil
	}
	defer e.flights.leave(f)
	start := time.Now()
	c.observe(Event{Kind: "waiting", Count: 1})
	defer e.waited(c, start)
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-f.done:
		return f.share(), nil
	case <-t.C:
		return waits, nil
	case <-c.ctx.Done():
		return anew, context.Cause(c.ctx)
	}
}

func (e *Engine) waited(c *call, since time.Time) {
	c.observe(Event{Kind: "waiting", Count: -1, Took: time.Since(since)})
}

// unknown reports whether err says that something was sent whose outcome is open.
func unknown(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Unknown
}
