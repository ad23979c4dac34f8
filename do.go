package idempo

import (
	"context"
	"errors"
	"time"
)

// Do runs fn at most once for the intent of req and answers every other call from the record: Begun with VerdictRun
// (this call ran it) or VerdictReplay, and nil; for every other verdict Begun and an error of the same word.
//
// Atomic: fn runs in a new transaction, found by the store's accessor in its context; effect, claim and result commit
// together before Do returns. On error, panic, Goexit or MaxRun nothing of the attempt remains (the error is marked
// NothingHappened, the panic goes on). A failing result undoes the effects and is kept. After a serialization failure,
// deadlock or lock time-out the whole fn runs again, up to Config.TxRetries times, so fn must be repeatable until it
// returns. Where ctx carries a transaction already, Do joins it and neither commits nor rolls back.
//
// Leased: the claim commits, fn runs under its lease, the result commits, fenced. An error marked NothingHappened (or
// any, before Claim.Start of an operation declared StartMark) releases the key; every other error, a panic, Goexit or
// the end of time puts it in doubt, and the error then matches ErrInDoubt too.
//
// fn's context ends with ctx, at MaxRun, and when the lease is lost. After fn has returned the end of ctx changes
// nothing.
func (e *Engine) Do(ctx context.Context, req Request, fn func(context.Context, *Claim) (Result, error)) (b Begun, err error) {
	c, err := e.prepare(ctx, &req)
	if err != nil {
		return Begun{}, err
	}
	t, f := leads, (*flight)(nil)
	if !c.inTx {
		t, f, err = e.turn(c)
	}
	if err == nil {
		err = e.do(c, t, f, fn, &b)
	}
	c.verdict(&b, err)
	if err == nil {
		err = b.err(c)
	}
	return b, err
}

// do is Do when it is this call's turn.
func (e *Engine) do(c *call, t turn, f *flight, fn func(context.Context, *Claim) (Result, error), b *Begun) (err error) {
	switch {
	case c.inTx:
		*b, err = e.doInTx(c.ctx, c, fn)
	case t != leads:
		*b = c.told(t, f)
	case c.op.Guard == GuardAtomic:
		*b, err = e.lead(c.ctx, c, f, func(ctx context.Context, _ *flight) (Begun, error) { return e.doAtomic(ctx, c, fn) })
	default:
		*b, err = e.doLeased(c.ctx, c, f, fn)
	}
	return err
}

// doInTx runs in the transaction that ctx carries.
func (e *Engine) doInTx(ctx context.Context, c *call, fn func(context.Context, *Claim) (Result, error)) (b Begun, err error) {
	if err = c.placed(); err == nil {
		b, err = e.beginInTx(ctx, c)
	}
	if err != nil || b.Claim == nil {
		return b, err
	}
	cl := b.Claim
	b.Claim = nil
	res, err := cl.run(ctx, fn)
	if err == nil {
		err = cl.Complete(ctx, res)
	}
	if err != nil && !cl.own {
		cl.end(Begun{})
	}
	b.Record = cl.record(b.Record)
	return b, err
}

// run calls fn under the claim's limits; observed.
func (c *Claim) run(ctx context.Context, fn func(context.Context, *Claim) (Result, error)) (Result, error) {
	work := &c.work
	ctx, _ = c.e.trace(ctx, Event{Kind: "execute", Operation: c.op.Name, Surface: c.surface, Guard: c.op.Guard})
	work.parent, work.tied, work.claim = ctx, &c.ctx, c
	start := time.Now()
	defer func() {
		work.end(context.Canceled)
		c.observe(ctx, Event{Kind: "execute", At: start, Took: time.Since(start)})
	}()
	res, err := fn(work, c)
	if err == nil && c.state() == "" && errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
		err = c.ctx.Err()
	}
	return res, err
}

// doAtomic runs claim, work and result in one transaction; again after a conflict, and to find out what became of a
// COMMIT without an answer.
func (e *Engine) doAtomic(ctx context.Context, c *call, fn func(context.Context, *Claim) (Result, error)) (Begun, error) {
	if e.recent.has(c.p.Key.ID) {
		if b, done, err := c.answered(ctx); done || err != nil {
			return b, err
		}
	}
	t := &c.atomic.tries
	t.e, t.ctx = e, ctx
	c.own, c.inTx = true, true
	for {
		t.begun = Begun{}
		err := t.once(func(ctx context.Context) (err error) {
			t.begun, err = c.workInTx(ctx, t, fn)
			return err
		})
		switch t.next(err) {
		case again:
			continue
		case committed: // by an earlier try, found out now
			t.begun.Verdict = VerdictRun
		}
		if err == nil {
			e.recent.add(c.p.Key.ID)
		}
		return t.begun, t.err(err)
	}
}

// workInTx is one try of an atomic operation, inside its transaction.
func (c *call) workInTx(ctx context.Context, t *transaction, fn func(context.Context, *Claim) (Result, error)) (Begun, error) {
	b, err := c.e.claimAtomic(ctx, c, nil)
	if err != nil {
		return Begun{}, err
	}
	if b.Claim == nil {
		return b, t.notRun(b, c.p.Token)
	}
	t.won()
	cl := b.Claim
	b.Claim = nil
	res, err := cl.run(ctx, fn)
	if err != nil {
		return b, &workError{err}
	}
	if cl.state() == "" {
		err = cl.Complete(ctx, res)
	}
	switch {
	case err != nil:
		return b, err
	case cl.state() != "completed":
		return b, &workError{errors.New("the claim was given back")}
	}
	b.Record = cl.record(b.Record)
	return b, nil
}

// doLeased claims, runs fn under the lease and stores what came of it.
func (e *Engine) doLeased(ctx context.Context, c *call, f *flight, fn func(context.Context, *Claim) (Result, error)) (b Begun, err error) {
	if err = e.begin(c, leads, f, &b); err != nil || b.Claim == nil {
		return b, err
	}
	cl := b.Claim
	b.Claim = nil
	returned := false
	defer func() {
		if !returned { // panic or Goexit: it goes on when the record is settled
			_ = cl.failed(ctx, errors.New("the work panicked or ended its goroutine"))
		}
	}()
	res, err := cl.run(ctx, fn)
	returned = true
	switch {
	case cl.state() != "":
	case err == nil:
		err = cl.Complete(ctx, res)
	default:
		return b, cl.failed(ctx, err)
	}
	b.Record = cl.record(b.Record)
	return b, err
}

// failed settles a leased claim whose work ended with err, and returns what the caller learns.
func (c *Claim) failed(ctx context.Context, err error) error {
	if c.state() != "" {
		return err
	}
	if knownNothing(err) || !c.hasStarted() {
		if bad := c.Release(ctx, cause(err)); bad != nil {
			return errors.Join(err, bad)
		}
		return NothingHappened(err)
	}
	doubt := &Error{Op: "do", Code: "in_doubt", KeyRef: c.Ref(), Attempt: c.attempt, Hint: "idempo keys show " + c.Ref()}
	switch c.onCrash {
	case OnCrashRerun:
		doubt.RetryAfter = time.Second
	case OnCrashProbe:
		doubt.RetryAfter = c.op.probePause(c.attempt)
	}
	if bad := c.Doubt(ctx, cause(err)); bad != nil && !errors.Is(bad, ErrInDoubt) {
		return errors.Join(err, bad)
	}
	return errors.Join(err, doubt)
}

// cause is the note kept of an error: its class, never its text, which may hold payload.
func cause(err error) string {
	switch code := codeOf(err); {
	case code != "":
		return code
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline exceeded"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "the work returned an error"
}
