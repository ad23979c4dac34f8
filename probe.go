package idempo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// probeTime is how long a ProbeFunc may take.
const probeTime = 30 * time.Second

// probePause is how long after a doubt the next probe is due: ProbeEvery, doubling with each attempt to 1 min.
func (o *Operation) probePause(attempt int64) time.Duration {
	return min(o.ProbeEvery<<min(max(attempt-1, 0), 6), max(time.Minute, o.ProbeEvery))
}

// probe asks, under the new lease, what became of the effect of the owner that vanished. done: the claim is settled, b
// is the answer; else it did not happen and the work may run under this claim.
func (c *Claim) probe(ctx context.Context) (b Begun, done bool, err error) {
	state, res, perr := c.e.askProbe(&c.ctx, c.op, c.final.rec)
	switch {
	case perr == nil && state == StateCompleted:
		if err := c.Complete(ctx, res); err != nil {
			return Begun{}, true, err
		}
		c.resolved(ctx, "completed")
		return Begun{Verdict: VerdictReplay, Record: c.final.rec}, true, nil
	case perr == nil && state == StateFailed:
		c.resolved(ctx, "failed")
		return Begun{}, false, nil
	}
	c.resolved(ctx, "in_doubt")
	pause := c.op.probePause(c.attempt)
	if err := c.Doubt(ctx, "the probe could not tell"); err != nil {
		return Begun{}, true, err
	}
	rec := c.final.rec
	rec.State = StateInDoubt
	return Begun{Verdict: VerdictInDoubt, Record: rec, RetryAfter: pause}, true, nil
}

func (c *Claim) resolved(ctx context.Context, outcome string) {
	c.observe(ctx, Event{Kind: "resolve", Outcome: outcome})
}

// askProbe calls the operation's probe; its panic and Goexit are errors.
func (e *Engine) askProbe(ctx context.Context, op *Operation, rec Record) (state State, res Result, err error) {
	if op.ProbeFunc == nil {
		return "", Result{}, errors.New("no probe is declared")
	}
	snap, err := e.openSnapshot(rec)
	if err != nil {
		return "", Result{}, err
	}
	rec = rec.Clone()
	rec.Snapshot = snap
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	type answer struct {
		state State
		res   Result
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		a := answer{err: errors.New("the probe ended its goroutine")}
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: fmt.Errorf("the probe panicked: %T", p)}
			}
			got <- a
		}()
		s, r, err := op.ProbeFunc(ctx, rec)
		a = answer{s, r, err}
	}()
	select {
	case a := <-got:
		return a.state, a.res, a.err
	case <-ctx.Done():
		return "", Result{}, context.Cause(ctx)
	}
}
