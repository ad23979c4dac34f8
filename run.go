package idempo

import (
	"context"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// Run does the engine's background work until ctx ends, and then returns nil when it has stopped: it sweeps what is
// over, and probes what crashed owners of OnCrashProbe operations left, whichever process claimed it. Any number of
// processes may run it; verdicts never wait for it.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if e.sweeper != nil {
		wg.Go(func() { e.every(ctx, e.cfg.SweepEvery, 0.2, e.sweep) })
	}
	if e.taker != nil {
		wg.Go(func() { e.every(ctx, min(e.cfg.SweepEvery, 3*e.cfg.ProbeEvery), 0.2, e.probeDue) })
	}
	wg.Wait()
	return nil
}

func (e *Engine) every(ctx context.Context, d time.Duration, spread float64, fn func(context.Context)) {
	for sleep(ctx, backoff.Around(d, spread)) {
		fn(ctx)
	}
}

// sweep makes batches until nothing is left, resting as long as each batch took.
func (e *Engine) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		var n int
		err := e.timed(ctx, "sweep", "", func() (err error) {
			n, err = e.sweeper.Sweep(ctx, e.cfg.SweepBatch)
			return err
		})
		if err != nil {
			e.warn("sweep failed", "error", err)
			return
		}
		if n > 0 {
			e.observe(ctx, Event{Kind: "swept", Count: n})
		}
		if n < e.cfg.SweepBatch || !sleep(ctx, time.Since(start)) {
			return
		}
	}
}

// probeDue takes what is due of the operations with a probe and settles it.
func (e *Engine) probeDue(ctx context.Context) {
	var names []string
	lease := probeTime + 15*time.Second
	for _, op := range e.Operations() {
		if op.OnCrash == OnCrashProbe {
			names = append(names, op.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	token := newToken()
	var recs []Record
	err := e.timed(ctx, "take", "", func() (err error) {
		recs, err = e.taker.Take(ctx, TakeParams{Operations: names, Limit: 16, Token: token, Lease: lease, Owner: e.owner})
		return err
	})
	if err != nil {
		e.warn("taking what is to be probed failed", "error", err)
		return
	}
	var wg sync.WaitGroup
	for _, rec := range recs {
		wg.Go(func() { e.settleTaken(ctx, rec) })
	}
	wg.Wait()
}

// settleTaken asks the probe of a record that this process has leased and stores the finding.
func (e *Engine) settleTaken(ctx context.Context, rec Record) {
	op := e.operation(rec.Key.Operation)
	if op == nil {
		return
	}
	state, res, err := e.askProbe(ctx, op, rec)
	w := lateWrite{op: op.Name}
	outcome := "in_doubt"
	switch {
	case err == nil && state == StateCompleted:
		outcome = "completed"
		p, err := e.Settlement(rec, res)
		if err != nil {
			return
		}
		w.complete = &p
	case err == nil && state == StateFailed:
		outcome = "failed"
		w.release = &ReleaseParams{Key: rec.Key, Token: rec.Token, To: StateFailed, Note: "the probe says that it did not happen", Retention: op.Retention}
	default:
		w.release = &ReleaseParams{Key: rec.Key, Token: rec.Token, To: StateInDoubt, Note: "the probe could not tell", Due: op.probePause(rec.Attempt)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.CompleteBudget)
	defer cancel()
	if _, err := w.do(ctx, e); err != nil {
		e.warn("storing what a probe found failed", "key_ref", rec.Ref(), "error", err)
		return
	}
	e.observe(ctx, Event{Kind: "resolve", Outcome: outcome, Operation: op.Name, KeyRef: rec.Ref(), Attempt: rec.Attempt, Trace: rec.Trace,
		TenantRef: e.ring.tenantRef(rec.Key.Tenant)})
}
