package idempo

import (
	"context"
	"time"

	"github.com/idempo/idempo/internal/backoff"
	"github.com/idempo/idempo/internal/fingerprint"
)

// Begin asks whether the intent may run. With VerdictRun the caller does the work and then calls Claim.Complete,
// Release or Doubt; every other verdict is an answer, not an error.
//
// An atomic operation must be begun in a transaction (Engine.InTx, or the store's WithTx), a leased one outside of
// any: code misuse, without a store call. A key begun again inside its own claim is code nested. Other errors: invalid,
// not_issued, quota_exceeded, record_unreadable, unavailable. A leased claim that is never settled stops renewing after
// Operation.MaxRun.
func (e *Engine) Begin(ctx context.Context, req Request) (b Begun, err error) {
	c, err := e.prepare(ctx, &req)
	if err != nil {
		return Begun{}, err
	}
	t, f := leads, (*flight)(nil)
	if err = c.placed(); err == nil && !c.inTx {
		t, f, err = e.turn(c)
	}
	if err == nil {
		err = e.begin(c, t, f, &b)
	}
	c.verdict(&b, err)
	return b, err
}

// Known is Begin for who wants to hear what is finished already, and nothing else: it reads, without lock, transaction or
// wait. done false: as far as a read can tell, the intent has not been answered; Begin decides. Errors: those of Begin.
func (e *Engine) Known(ctx context.Context, req Request) (b Begun, done bool, err error) {
	c, err := e.prepare(ctx, &req)
	if err != nil {
		return Begun{}, false, err
	}
	if b, done, err = c.answered(ctx); done {
		c.verdict(&b, nil)
	}
	return b, done, err
}

// begin is Begin when it is this call's turn.
func (e *Engine) begin(c *call, t turn, f *flight, b *Begun) (err error) {
	switch {
	case c.inTx:
		*b, err = e.beginInTx(c.ctx, c)
	case t == leads:
		*b, err = e.lead(c.ctx, c, f, func(ctx context.Context, f *flight) (Begun, error) { return e.beginLeased(ctx, c, f) })
	default:
		*b = c.told(t, f)
	}
	return err
}

// placed refuses a guard that does not fit the context.
func (c *call) placed() error {
	switch {
	case c.op.Guard == GuardAtomic && !c.inTx:
		return c.fail("misuse", "an atomic operation needs a transaction in the context: Engine.Do, Engine.InTx or the store's WithTx")
	case c.op.Guard == GuardLeased && c.inTx:
		return c.fail("misuse", "a leased claim inside a transaction would vanish with its rollback; begin it outside")
	}
	return nil
}

// verdict observes how a Begin ended.
func (c *call) verdict(b *Begun, err error) {
	if c.e.cfg.Observer == nil {
		return
	}
	ev := Event{Kind: "begin", Verdict: b.Verdict, Attempt: b.Record.Attempt, At: c.since, Tenant: c.key.Tenant}
	if ev.Took = c.decided.Sub(c.since); c.decided.IsZero() {
		ev.Took = time.Since(c.since)
	}
	switch {
	case err != nil && b.Verdict == "":
		ev.Class, ev.Err = codeOf(err), err
	case b.Verdict == VerdictReplay:
		ev.Age, ev.Trace = b.Record.Now.Sub(b.Record.CompletedAt), b.Record.Trace
	case b.Verdict == VerdictRun && b.Record.Attempt == 1 && b.Record.Generation <= 1:
		c.fresh()
	}
	c.observe(ev)
}

// fresh notes a new key, and tells where the same request has come under several.
func (c *call) fresh() {
	if n := c.e.fresh.seen(c.p.Hash, c.since); n >= freshLimit {
		c.observe(Event{Kind: "fresh_key", Count: n})
	}
}

// beginInTx claims an atomic key in the transaction of ctx. It never waits: a waiter would hold a connection.
func (e *Engine) beginInTx(ctx context.Context, c *call) (Begun, error) {
	var f *flight
	if c.own {
		var leader bool
		if f, leader = e.flights.join(c); !leader {
			if t, err := e.follow(c, f, time.Time{}); err != nil {
				return Begun{}, err
			} else if t != anew {
				return c.told(t, f), nil
			}
			f = nil // the store decides
		}
	}
	b, err := e.claimAtomic(ctx, c, f)
	if b.Claim == nil {
		e.flights.finish(f, b)
	}
	return b, err
}

// claimAtomic makes the claim of an atomic key in the transaction of ctx.
func (e *Engine) claimAtomic(ctx context.Context, c *call, f *flight) (Begun, error) {
	a, err := c.acquire(ctx)
	if err != nil || a.Verdict != VerdictRun {
		if err != nil {
			return Begun{}, err
		}
		return e.begun(c, a)
	}
	return Begun{Verdict: VerdictRun, Record: a.Record, Claim: e.newClaim(ctx, c, a, f)}, nil
}

// beginLeased wins a leased key, or says why not. A take-over asks the probe first.
func (e *Engine) beginLeased(ctx context.Context, c *call, f *flight) (Begun, error) {
	if e.recent.has(c.p.Key.ID) {
		if b, done, err := c.answered(ctx); done || err != nil {
			return b, err
		}
	}
	a, err := c.acquire(ctx)
	if err != nil {
		return Begun{}, err
	}
	if a.Verdict != VerdictRun {
		return e.begun(c, a)
	}
	claim := e.newClaim(ctx, c, a, f)
	if a.Lapsed && a.Record.OnCrash == OnCrashProbe {
		if b, done, err := claim.probe(ctx); done || err != nil {
			return b, err
		}
	}
	return Begun{Verdict: VerdictRun, Record: a.Record, Claim: claim}, nil
}

// answered reads the record of a key that was seen finished, without lock or transaction. done is false where it has
// to be claimed after all.
func (c *call) answered(ctx context.Context) (b Begun, done bool, err error) {
	rec, err := c.lookup(ctx)
	if err != nil || rec.State != StateCompleted && rec.State != StateExpired {
		return Begun{}, false, err
	}
	p := c.p
	if rec.Recipe != p.Recipe {
		if p.Hash, p.Recipe, err = c.fingerprint(rec.Recipe); err != nil {
			return Begun{}, false, err
		}
	}
	a, _, err := p.Judge(rec, true, rec.Now)
	if err != nil || a.Verdict == VerdictRun {
		return Begun{}, false, err
	}
	b, err = c.e.begun(c, a)
	return b, err == nil, err
}

// acquire is acquireOnce under the recipe of the record: a record made by an older recipe or digest key is compared by
// its own. The quota of new keys is taken before anything is written; over it, only what is there is answered.
func (c *call) acquire(ctx context.Context) (a Acquired, err error) {
	if !c.counted {
		wait, ok := c.e.quota.take(c.key.Tenant)
		if !ok {
			return c.answerOnly(ctx, wait)
		}
		c.counted = true
	}
	defer func() {
		if err != nil || a.Verdict != VerdictRun || !c.p.Due.IsZero() {
			c.e.quota.back(c.key.Tenant, true)
			c.counted = false
		}
	}()
	if c.p.DerivedKey == "" {
		c.p.DerivedKey = deriveFor(c.key, 1, "")
	}
	for range 3 {
		a, err = c.acquireOnce(ctx)
		if err != nil || a.Record.Recipe == "" || a.Record.Recipe == c.p.Recipe ||
			a.Verdict != VerdictMismatch && a.Verdict != VerdictExpired {
			return a, err
		}
		sum, recipe, err := c.fingerprint(a.Record.Recipe)
		if err != nil {
			return Acquired{}, err
		}
		c.p.Hash, c.p.Recipe = sum, recipe
	}
	return a, nil
}

// answerOnly serves a tenant that is over its quota: a key with a record is answered, a new one is refused.
func (c *call) answerOnly(ctx context.Context, wait time.Duration) (Acquired, error) {
	over := &Error{Op: "begin", Code: "quota_exceeded", KeyRef: c.ref(), RetryAfter: wait}
	rec, err := c.lookup(ctx)
	if err != nil {
		return Acquired{}, err
	}
	p := c.p
	if rec.State != "" && rec.State != StateIssued && rec.Recipe != p.Recipe {
		if p.Hash, p.Recipe, err = c.fingerprint(rec.Recipe); err != nil {
			return Acquired{}, err
		}
	}
	a, _, err := p.Judge(rec, rec.State != "", rec.Now)
	if err == nil && a.Verdict == VerdictRun {
		err = over
	}
	if err != nil {
		return Acquired{}, err
	}
	return a, nil
}

// acquireOnce is one Acquire of the store, asked again with its token while its answer is open. A leased claim that stays
// open, that may be what an open transaction holds, or whose answer came when its lease may be over, is given back when the
// store answers again: nothing was begun.
func (c *call) acquireOnce(ctx context.Context) (a Acquired, err error) {
	e := c.e
	c.sent = time.Now()
	busy := false
	for try, open := 0, false; ; try++ {
		limit := &c.first
		if limit.parent != nil {
			limit = &limited{}
		}
		limit.parent, limit.deadline = ctx, time.Now().Add(e.cfg.AcquireTimeout)
		err = e.timed(limit, "acquire", c.op.Name, func() error {
			a, err = e.store.Acquire(limit, c.p)
			return err
		})
		limit.end(context.Canceled)
		// An open transaction of nobody known has the key: maybe this claim, sent before, and maybe by the driver, which
		// sends again by itself what it takes for lost with its connection.
		busy = err == nil && a.Verdict == VerdictInProgress && a.Record.Token.IsZero()
		open = open || unknown(err)
		again := busy || open && err != nil // also where the last try is known to have failed: an earlier one is not
		if !again || c.inTx || try == 3 || !sleep(c.ctx, backoff.Full(try, 20*time.Millisecond, 200*time.Millisecond)) {
			if again && open && !c.inTx && !unknown(err) {
				a, err = Acquired{}, c.unconfirmed("a claim without an answer may still have the key")
			}
			break
		}
	}
	if err == nil {
		e.late.hurry() // the store answers
	}
	leased := c.p.Guard == GuardLeased && c.p.Due.IsZero() && c.p.Issue == 0
	if leased && err == nil && a.Verdict == VerdictRun && time.Since(c.sent) >= c.op.patience() {
		a, err = Acquired{}, c.unconfirmed("the answer to the claim came when its lease may be over")
	}
	if leased && (unknown(err) || busy) { // what is not this claim's is not touched
		e.late.add(&lateWrite{op: c.op.Name, release: &ReleaseParams{Key: c.p.Key, Token: c.p.Token, To: StateFailed,
			Note: "claim not confirmed; nothing was begun", Retention: c.op.Retention, Free: c.p.Unique}})
		c.p.Token = newToken() // the next claim of this call must not be given back with this one
	}
	return a, err
}

// unconfirmed is the error for a claim whose outcome nobody knows.
func (c *call) unconfirmed(hint string) error {
	err := c.fail("unavailable", hint)
	err.Unknown = true
	return err
}

func sqlDigest(k Key) string {
	s := fingerprint.Sum("idempo-sql-1", k.Tenant, k.Operation, k.ID)
	return string(s[:])
}

// sleep waits for d, or less if ctx ends: then it returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
