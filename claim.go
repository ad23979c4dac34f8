package idempo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// Claim is a won key. Settle it once: Complete, Release, Forget or Doubt. Its methods are safe for concurrent use; all
// writes are fenced by the claim's token, and none is cancelled by the end of the caller's context.
type Claim struct {
	e          *Engine
	op         *Operation
	key        Key // as the caller gave it
	principal  string
	surface    string
	stored     Key // the record's: its ID is the digest the record stands under
	token      Token
	attempt    int64
	generation int64
	onCrash    OnCrash  // the record's
	unique     []string // digests, given back with a failure
	snapshot   []byte   // as stored
	rederived  string   // the derived key of the generation, where the record has another
	lapsed     bool
	inTx       bool // atomic: lives and dies with the transaction
	own        bool // the engine opened that transaction
	parent     *Claim
	flight     *flight
	born       time.Time

	ctx   limited // Context
	work  limited // what the work of Do gets: ctx, and the caller's end
	lease leaseState

	mu         sync.Mutex
	settled    string // "" completed released forgotten doubted
	started    bool
	counted    bool      // a place in the quota is held
	final      *claimEnd // of an atomic or lapsed claim at once, else made by Complete
	retention  time.Duration
	next       *AcquireParams
	references []Resource
	omitted    *omission
}

// claimEnd is what the end of a claim needs: most of what a claim is made of, so that a leased one runs without it.
type claimEnd struct {
	rec        Record // as won, then as completed
	result     Result
	completing CompleteParams // one at a time: Claim.mu is held while it is stored. Its Won is that of an atomic claim
	saving     limited        // of the first settling write
}

// omission is what is known of a body that is not kept.
type omission struct {
	size int64
	sum  [sha256.Size]byte
}

type claimKey struct{}

// FromContext returns the innermost claim whose work ctx belongs to, nil outside of any.
func FromContext(ctx context.Context) *Claim {
	c, _ := ctx.Value((*claimKey)(nil)).(*Claim)
	return c
}

func (e *Engine) newClaim(ctx context.Context, c *call, a Acquired, f *flight) *Claim {
	cl := c.room()
	*cl = Claim{e: e, op: c.op, key: c.key, principal: c.req.Principal, surface: c.req.Surface, stored: a.Record.Key, token: c.p.Token, attempt: a.Record.Attempt,
		generation: a.Record.Generation, onCrash: a.Record.OnCrash, unique: c.p.Unique, snapshot: a.Record.Snapshot, lapsed: a.Lapsed, inTx: c.inTx, own: c.own,
		parent: FromContext(ctx), flight: f, started: !c.op.StartMark, born: time.Now(), counted: c.counted, retention: c.op.Retention, final: cl.final}
	if a.Record.Generation > 1 {
		if d := deriveFor(c.key, a.Record.Generation, ""); d != a.Record.DerivedKey {
			cl.rederived, a.Record.DerivedKey = d, d
		}
	}
	if c.inTx || a.Lapsed {
		final := cl.ending()
		final.rec, final.completing.Won = a.Record, c.p
		final.completing.Won.Key, final.completing.Won.DerivedKey = a.Record.Key, cmp.Or(cl.rederived, c.p.DerivedKey)
	}
	cl.ctx.parent, cl.ctx.detached, cl.ctx.deadline, cl.ctx.claim = ctx, true, cl.born.Add(c.op.MaxRun), cl
	e.running.add(cl)
	e.flights.run(c.leads)
	c.decided = cl.born
	cl.observe(ctx, Event{Kind: "inflight", Count: 1})
	if s := scopeOf(ctx); s != nil && c.own {
		s.add(cl)
	}
	if !cl.own {
		cl.keep(c.sent) // the end of a caller's transaction cannot be seen, so such a claim has its time too
	}
	return cl
}

// room is where a claim of this call may stand.
func (c *call) room() *Claim {
	a := c.atomic
	if a == nil || a.used {
		return &Claim{}
	}
	a.used = true
	a.claim.final = &a.final
	return &a.claim
}

// ending returns what the end of the claim needs. The caller holds c.mu, or is alone.
func (c *Claim) ending() *claimEnd {
	if c.final == nil {
		c.final = &claimEnd{}
	}
	return c.final
}

// observe observes ev as of this claim.
func (c *Claim) observe(ctx context.Context, ev Event) {
	if c.e.cfg.Observer == nil {
		return
	}
	ev.Operation, ev.Surface, ev.Guard, ev.KeyRef, ev.Attempt = c.op.Name, c.surface, c.op.Guard, c.Ref(), c.attempt
	ev.TenantRef = c.e.ring.tenantRef(c.key.Tenant)
	c.e.observe(ctx, ev)
}

// Context belongs to the work: it carries the values of the caller's context but not its end, the claim itself, and
// ends with cause ErrLeaseLost before the key could be given to another, at Operation.MaxRun, or when the claim is
// settled.
func (c *Claim) Context() context.Context { return &c.ctx }

// Key returns the key as the caller gave it.
func (c *Claim) Key() Key { return c.key }

// Ref returns the key's reference.
func (c *Claim) Ref() string { return c.stored.Ref() }

// Guard returns the operation's guard.
func (c *Claim) Guard() Guard { return c.op.Guard }

// Attempt counts the claims won on this key, from 1.
func (c *Claim) Attempt() int64 { return c.attempt }

// Lapsed reports whether an earlier owner vanished and its effect may have happened.
func (c *Claim) Lapsed() bool { return c.lapsed }

// Snapshot returns the input kept with the key by its first attempt; nil: none. The caller must not change it.
func (c *Claim) Snapshot() ([]byte, error) {
	return c.e.openSnapshot(Record{Key: c.stored, Attempt: c.attempt, Snapshot: c.snapshot})
}

// Derive returns the idempotency key for the downstream call that label names ("" if there is one): the same on every
// attempt, process and release. See DeriveKey.
func (c *Claim) Derive(label string) string { return deriveFor(c.key, c.generation, label) }

// Retain sets how long this one result is answered again, instead of Operation.Retention; zero is that default. It
// counts if called before Complete. Negative and Forever are code invalid.
func (c *Claim) Retain(d time.Duration) error {
	if d < 0 || d == Forever {
		return c.fail("retain", "invalid", "retention must be positive and finite; only tombstones last forever")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retention = d; d == 0 {
		c.retention = c.op.Retention
	}
	return nil
}

// IssueNext makes id, random and made by the caller, the next one-time key of this operation, in the completing commit.
func (c *Claim) IssueNext(id string) error {
	next, err := c.e.keyCall(&c.ctx, Key{c.key.Tenant, c.key.Operation, id}, c.principal)
	if err != nil {
		return err
	}
	next.p.Issue, next.p.RequireIssued, next.p.Guard = c.op.IssuedFor, false, GuardLeased
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = &next.p
	return nil
}

// Omit completes this claim without the result's body, whatever Complete is given: the record says that it was not kept,
// how long the whole was and its SHA-256. It counts if called before Complete.
func (c *Claim) Omit(size int64, sum [sha256.Size]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.omitted = &omission{size, sum}
}

func (c *Claim) fail(op, code, hint string) *Error {
	return &Error{Op: op, Code: code, KeyRef: c.Ref(), Attempt: c.attempt, Hint: hint}
}

// state is how the claim was settled; "": not yet.
func (c *Claim) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled
}

func (c *Claim) hasStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// Complete stores the result, and returns nil once every later caller will get it. Completing again with an equal
// result is nil, with another one code wrong_state. A result that comes late is accepted while the claim's token still
// stands; ErrLeaseLost says that another attempt, an operator or the clock has settled the key, and nothing changed.
//
// In a transaction the result commits with it. Otherwise storing is tried for Config.CompleteBudget; after that the
// error matches ErrInDoubt, and saving goes on in the background: until it succeeds the key is in doubt.
func (c *Claim) Complete(ctx context.Context, r Result) error {
	if why := checkResult(r); why != "" {
		return c.fail("complete", "invalid", why)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.settled == "completed" && c.final.result.Equal(r):
		return nil
	case c.settled != "":
		return c.fail("complete", "wrong_state", "the claim is "+c.settled)
	}
	r, began := r.clone(), time.Now()
	final := c.ending()
	p := &final.completing
	if err := c.completion(p, r); err != nil {
		return err
	}
	rec, err := c.write(ctx, lateWrite{op: c.op.Name, complete: p})
	switch {
	case errors.Is(err, ErrLeaseLost):
		c.observe(ctx, Event{Kind: "fenced", Trace: rec.Trace})
		c.outcome(ctx, "lost", began)
		c.end(Begun{})
		return err
	case errors.Is(err, ErrInDoubt): // saving goes on without this claim
		c.settled, final.result = "completed", r
		c.outcome(ctx, "in_doubt", began)
		c.end(Begun{})
		return err
	case err != nil:
		return err
	}
	c.settled, final.result = "completed", r
	outcome := "completed"
	if r.Failing {
		outcome = "completed_failing"
	}
	c.outcome(ctx, outcome, began)
	if rec.State != StateCompleted { // decided at commit
		rec = p.completed(final.rec, time.Time{})
	}
	rec.Result = r // in clear; of the caller from here on
	if !p.Kept {
		rec.Result.Body = nil
	}
	final.rec = rec
	switch {
	case !c.inTx:
		c.end(Begun{Verdict: VerdictReplay, Record: rec})
	case !c.own:
		c.end(Begun{}) // the end of a caller's transaction cannot be seen
	}
	return nil
}

// outcome observes how the claim ended, by a write that began at began.
func (c *Claim) outcome(ctx context.Context, outcome string, began time.Time) {
	if c.e.cfg.Observer != nil {
		c.observe(ctx, Event{Kind: "complete", Outcome: outcome, At: began, Took: time.Since(began)})
	}
}

// record is the record as Complete left it, else rec.
func (c *Claim) record(rec Record) Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled == "completed" && c.final.rec.State == StateCompleted {
		return c.final.rec
	}
	return rec
}

func checkResult(r Result) string {
	if len(r.Resource.Type) > 255 || len(r.Resource.ID) > 255 {
		return "resource type and id: at most 255 bytes each"
	}
	return ""
}

// completion is what the store keeps of r.
func (c *Claim) completion(p *CompleteParams, r Result) error {
	*p = CompleteParams{Key: c.stored, Token: c.token, Won: p.Won, Attempt: c.attempt, Result: r, Size: int64(len(r.Body)),
		Kept: true, References: c.references, Retention: c.retention, Tombstone: c.op.Tombstone, Issue: c.next}
	if !c.inTx {
		p.Won, p.References = AcquireParams{Guard: GuardLeased}, nil
	}
	if o := c.omitted; o != nil {
		p.Kept, p.Size, p.SHA256, p.Result.Body = false, o.size, o.sum[:], nil
	} else {
		keepBody(p, c.op.MaxResult)
	}
	return c.e.seal(p)
}

// keepBody drops a body over most from p and keeps its size and digest: never a cut body.
func keepBody(p *CompleteParams, most int64) {
	if p.Size <= most {
		return
	}
	sum := sha256.Sum256(p.Result.Body)
	p.Kept, p.SHA256, p.Result.Body = false, sum[:], nil
}

// Release gives the key back because it is known that nothing happened: the record is failed, keeps its fingerprint and
// may run again. A second Release does nothing. ErrLeaseLost: a newer attempt holds the key, nothing changed. In a
// transaction nothing was written yet: roll it back (Engine.Do does when its fn returns).
func (c *Claim) Release(ctx context.Context, why string) error {
	return c.giveBack(ctx, StateFailed, "released", why)
}

// Forget is Release that leaves nothing behind: the key is as new, or issued again where it was an issued one.
func (c *Claim) Forget(ctx context.Context) error {
	return c.giveBack(ctx, StateIssued, "forgotten", "")
}

// Doubt puts the key in doubt: an effect may have happened and nobody here can tell. OnCrash decides what follows. It is
// code misuse in a transaction, whose end decides.
func (c *Claim) Doubt(ctx context.Context, why string) error {
	if c.inTx {
		return c.fail("doubt", "misuse", "an atomic effect is never in doubt: roll the transaction back")
	}
	return c.giveBack(ctx, StateInDoubt, "doubted", why)
}

func (c *Claim) giveBack(ctx context.Context, to State, settled, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.settled == settled:
		return nil
	case c.settled != "":
		return c.fail("release", "wrong_state", "the claim is "+c.settled)
	}
	outcome, began := "failed", time.Now()
	if to == StateInDoubt {
		outcome = "in_doubt"
	}
	if !c.inTx {
		p := ReleaseParams{Key: c.stored, Token: c.token, To: to, Note: cut(why, 4096), Retention: c.op.Retention}
		if to == StateInDoubt && c.onCrash == OnCrashProbe {
			p.Due = c.op.probePause(c.attempt)
		}
		if to == StateFailed {
			p.Free = c.unique
		}
		if _, err := c.write(ctx, lateWrite{op: c.op.Name, release: &p}); err != nil {
			switch {
			case errors.Is(err, ErrLeaseLost):
				c.outcome(ctx, "lost", began)
				c.end(Begun{})
			case errors.Is(err, ErrInDoubt): // saving goes on without this claim
				c.settled = settled
				c.end(Begun{})
			}
			return err
		}
	}
	c.settled = settled
	c.outcome(ctx, outcome, began)
	c.end(Begun{})
	return nil
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// Start sets the mark of an operation declared StartMark: from here on the effect may have happened. On error do not
// begin; the key stays free. Without StartMark it does nothing.
func (c *Claim) Start(ctx context.Context) error {
	if c.hasStarted() || c.inTx {
		return nil
	}
	if err := c.touch(ctx, RenewParams{Start: true}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	return nil
}

// Renew extends the lease from now; the engine does so by itself until the claim is settled.
func (c *Claim) Renew(ctx context.Context) error {
	if c.inTx {
		return nil
	}
	return c.touch(ctx, RenewParams{})
}

// maxReferences is how many Refer calls one claim may make.
const maxReferences = 8

// Refer records a pointer to what the work has made so far, at most 8 a claim, 255 bytes each part. A leased claim's is
// committed at once, fenced, so that it is there after a crash; an atomic one's is written with the result.
func (c *Claim) Refer(ctx context.Context, kind, id string) error {
	if kind == "" || len(kind) > 255 || len(id) > 255 {
		return c.fail("refer", "invalid", "kind and id: at most 255 bytes each, kind not empty")
	}
	c.mu.Lock()
	full := len(c.references) >= maxReferences
	if !full && c.inTx {
		c.references = append(c.references, Resource{kind, id})
	}
	c.mu.Unlock()
	switch {
	case full:
		return c.fail("refer", "invalid", "at most 8 references a claim")
	case c.inTx:
		return nil
	}
	if err := c.touch(ctx, RenewParams{Refer: Resource{kind, id}}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.references = append(c.references, Resource{kind, id})
	return nil
}

func (c *Claim) touch(ctx context.Context, p RenewParams) error {
	limit := detachedFor(ctx, c.e.cfg.CompleteBudget)
	defer limit.end(context.Canceled)
	p.Key, p.Token, p.Lease = c.stored, c.token, c.op.Lease
	sent := time.Now()
	err := c.e.timed(ctx, "renew", c.op.Name, func() error {
		_, err := c.e.store.Renew(limit, p)
		return err
	})
	switch {
	case err == nil:
		c.renewed(sent)
	case errors.Is(err, ErrLeaseLost):
		c.lose(ctx)
	}
	return err
}

// end stops everything the claim keeps going and tells duplicates in this process how it ended.
func (c *Claim) end(b Begun) {
	c.stopKeeping()
	c.finish(b)
	c.ctx.end(context.Canceled)
}

// finish ends what this process keeps of the claim: its flight, its place among the running ones and in the quota. It may be
// called by several at once, as at the end of MaxRun; whoever returns from it finds the flight ended.
func (c *Claim) finish(b Begun) {
	if b.Verdict == VerdictReplay {
		c.e.recent.add(c.stored.ID)
	}
	c.e.flights.finish(c.flight, b)
	if !c.e.running.remove(c) {
		return
	}
	c.observe(c.ctx.parent, Event{Kind: "inflight", Count: -1})
	if c.counted {
		c.counted = false
		c.e.quota.back(c.key.Tenant, false)
	}
}
