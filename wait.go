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

// lead makes one caller per key and process ask the store; the others share its answer or wait for it without a
// connection. attempt is called by the leader; while it says "in progress" and the caller's wait is not over, it is
// called again.
func (e *Engine) lead(ctx context.Context, c *call, attempt func(context.Context, *flight) (Begun, error)) (Begun, error) {
	deadline := time.Now().Add(c.wait)
	for {
		f, leader := e.flights.join(c)
		if leader {
			return e.leadOne(ctx, c, f, deadline, attempt)
		}
		b, again, err := e.follow(ctx, c, f, deadline)
		if !again || err != nil {
			return b, err
		}
	}
}

func (e *Engine) leadOne(ctx context.Context, c *call, f *flight, deadline time.Time, attempt func(context.Context, *flight) (Begun, error)) (b Begun, err error) {
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
			e.waited(c, deadline.Add(-c.wait))
		}
	}()
	for {
		b, err = attempt(ctx, f)
		if err != nil || b.Verdict != VerdictInProgress || c.wait == 0 {
			break
		}
		left := time.Until(deadline)
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

// follow answers a duplicate of a key at work in this process. again: the leader ended without an answer to share, or
// the caller should ask anew.
func (e *Engine) follow(ctx context.Context, c *call, f *flight, deadline time.Time) (b Begun, again bool, err error) {
	same, err := c.matches(f.hash, f.recipe)
	if err != nil {
		return Begun{}, false, err
	}
	rec := Record{Key: c.p.Key, State: StatePending, Guard: c.op.Guard, Owner: e.owner}
	if !same {
		rec.Hash, rec.Recipe, rec.Detail = f.hash, f.recipe, f.detail
		return Begun{Verdict: VerdictMismatch, Record: rec.Clone()}, false, nil
	}
	for { // the leader may only be asking the store: then its answer is everybody's
		known, over := e.flights.ask(f)
		if over {
			b, again := f.answer()
			return b, again, nil
		}
		if known == nil {
			break
		}
		if deadline.IsZero() { // inside a transaction, which the leader may be waiting for
			return Begun{}, true, nil
		}
		select {
		case <-known:
		case <-ctx.Done():
			return Begun{}, false, context.Cause(ctx)
		}
	}
	busy := Begun{Verdict: VerdictInProgress, Record: rec, RetryAfter: f.retryAfter()}
	left := time.Until(deadline)
	if deadline.IsZero() || left <= 0 {
		return busy, false, nil
	}
	if room, over := e.flights.wait(f); !room {
		return busy, over, nil
	}
	defer e.flights.leave(f)
	start := time.Now()
	c.observe(Event{Kind: "waiting", Count: 1})
	defer e.waited(c, start)
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-f.done:
	case <-t.C:
		busy.RetryAfter = f.retryAfter()
		return busy, false, nil
	case <-ctx.Done():
		return Begun{}, false, context.Cause(ctx)
	}
	b, again = f.answer()
	return b, again, nil
}

func (e *Engine) waited(c *call, since time.Time) {
	c.observe(Event{Kind: "waiting", Count: -1, Took: time.Since(since)})
}

// unknown reports whether err says that something was sent whose outcome is open.
func unknown(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Unknown
}
