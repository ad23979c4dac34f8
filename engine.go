package idempo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Engine decides, for every surface alike, whether an intent runs, is answered from its record, or has to wait. It is
// safe for concurrent use; two engines share nothing but their store.
type Engine struct {
	store   Store
	tx      Transactor // nil: no atomic guard
	joiner  Joiner
	sweeper Sweeper
	taker   Taker
	cfg     Config
	ring    *keyring
	owner   string

	mu      sync.RWMutex
	ops     map[string]*Operation
	flights flights
	recent  recent
	fresh   freshKeys
	tracer  Tracer // nil: none
	quota   quotas
	late    late

	draining atomic.Bool
	running  running
}

// Begun is the answer to Begin and Do.
type Begun struct {
	Verdict    Verdict
	Record     Record        // with replay: Result as first stored; with mismatch: no result
	Claim      *Claim        // with run, from Begin only
	RetryAfter time.Duration // with in_progress, and in_doubt while a probe or rerun will settle it
	// Identity is true where the record was found by Request.Unique: another key has done this already (replay), or is
	// at it (in_progress). Record shows its resource pointer and no result.
	Identity bool
}

// call is one Begin on its way: the request, checked, with its digests made.
type call struct {
	e       *Engine
	ctx     context.Context
	op      *Operation
	req     Request
	key     Key // as the caller gave it
	p       AcquireParams
	wait    time.Duration
	inTx    bool // a transaction is in ctx
	own     bool // and the engine opened it
	counted bool // a place in the quota is held
	sum     [digestSize]byte
	leads   *flight   // what this call leads, once it does
	first   limited   // of the first Acquire
	since   time.Time // when the call came; zero: nobody observes
	decided time.Time // when its claim was won; zero: it was not
	sent    time.Time // when Acquire was first sent: a lease won may run from then on
	until   time.Time // how long this call waits for another
	atomic  *atomicCall
}

// atomicCall is a call with what an atomic run keeps besides, all of it until the transaction's end. A leased one lives as
// long as its work, which may be long, and keeps its Claim alone.
type atomicCall struct {
	call
	tries transaction // of Do
	claim Claim       // of the first try, with its end
	final claimEnd
	used  bool // claim is in use
}

//go:noinline // its frame is large, and what follows is deep
func newCall(e *Engine, ctx context.Context, req *Request, op *Operation) (c *call) {
	if op == nil || op.Guard != GuardAtomic {
		c = &call{}
	} else {
		a := &atomicCall{}
		a.atomic, c = a, &a.call
	}
	c.e, c.ctx, c.op, c.req, c.key = e, ctx, op, *req, req.Key
	return c
}

func (c *call) ref() string { return c.p.Key.Ref() }

func (c *call) fail(code, hint string) *Error {
	return &Error{Op: "begin", Code: code, KeyRef: c.ref(), Hint: hint}
}

// prepare checks everything that needs no store and makes the digests. Its parts come one after the other, so that the stack
// of a call that only waits stays small.
func (e *Engine) prepare(ctx context.Context, req *Request) (*call, error) {
	c := newCall(e, ctx, req, e.operation(req.Key.Operation))
	err := c.check()
	if err == nil {
		err = e.place(ctx, c)
	}
	if err == nil {
		err = c.digest()
	}
	if err == nil {
		err = c.free()
	}
	if err == nil && e.cfg.Observer != nil {
		c.came()
	}
	if err == nil {
		c.p.Hash, c.p.Recipe, err = c.fingerprint("")
	}
	if err != nil {
		return nil, err
	}
	c.p.Detail = bytes.Clone(req.Detail)
	c.wait = req.Wait
	if c.wait == 0 {
		c.wait = e.cfg.Wait
	}
	c.wait = min(max(c.wait, 0), time.Minute)
	return c, nil
}

// check refuses a request that is not legal.
func (c *call) check() error {
	req := &c.req
	if c.op == nil {
		return c.fail("misuse", fmt.Sprintf("operation %q is not declared; name it in Config.Operations or Engine.Declare", req.Key))
	}
	if why := req.Key.check(); why != "" {
		return c.fail("invalid", why)
	}
	if c.op.SQL && (len(req.Input) != 1 || req.DigestFunc != nil || req.Principal != "") {
		return c.fail("invalid", "an operation with SQL takes exactly one Input field, no DigestFunc and no Principal")
	}
	if len(req.Recipe) > 2048 || len(req.Detail) > 2048 {
		return c.fail("invalid", "Recipe and Detail: at most 2 KiB each")
	}
	return nil
}

// came notes when an observed call came, and the trace that its Tracer gives it.
func (c *call) came() {
	c.since = time.Now()
	if _, trace := c.e.trace(c.ctx, Event{Kind: "begin", Operation: c.op.Name, Surface: c.req.Surface, Guard: c.op.Guard}); trace != "" {
		c.p.Trace = trace
	}
}

// free refuses a key that is begun in this context already, and new work while the process drains.
func (c *call) free() error {
	inner := FromContext(c.ctx)
	for outer := inner; outer != nil; outer = outer.parent {
		if outer.e == c.e && outer.stored == c.p.Key {
			return c.fail("nested", "the key is begun already in this context; complete that claim")
		}
	}
	if inner == nil && c.e.draining.Load() {
		return c.fail("unavailable", "the process is draining")
	}
	return nil
}

// place says whether the guard fits the context: atomic work needs a transaction, leased work must not have one.
func (e *Engine) place(ctx context.Context, c *call) (err error) {
	if e.joiner == nil {
		return nil
	}
	c.inTx, c.own, err = e.joiner.Joined(ctx)
	if err != nil {
		return err
	}
	if c.own && scopeOf(ctx) == nil {
		c.own = false // the store's InTx without the engine: its end cannot be seen
	}
	return nil
}

// digest fills the parameters of Acquire that do not depend on the record.
func (c *call) digest() (err error) {
	c.p.Guard, c.p.OnCrash, c.p.Lease = c.op.Guard, c.op.OnCrash, c.op.Lease
	c.p.RequireIssued, c.p.StartMark = c.op.Issued, c.op.StartMark
	c.p.Token, c.p.Owner, c.p.Surface, c.p.Trace = newToken(), c.e.owner, c.req.Surface, c.req.Trace
	c.p.Key = Key{Tenant: c.key.Tenant, Operation: c.key.Operation}
	if c.op.SQL {
		c.p.Key.ID = sqlDigest(c.key)
	} else {
		c.p.Key.ID, c.p.Aliases, err = c.e.ring.digests(&c.key, c.req.Principal, "id")
	}
	if err == nil && (len(c.req.Unique) > 0 || c.req.Snapshot != nil) {
		err = c.digestMore()
	}
	return err
}

// digestMore is digest for business identities and a snapshot.
func (c *call) digestMore() error {
	for _, u := range c.req.Unique {
		main, others, err := c.e.ring.digests(&Key{c.key.Tenant, c.key.Operation, u}, c.req.Principal, "identity")
		if err != nil {
			return err
		}
		c.p.Unique = append(append(c.p.Unique, main), others...)
	}
	if c.req.Snapshot == nil {
		return nil
	}
	sealed, err := c.e.sealSnapshot(c.p.Key, c.req.Snapshot)
	c.p.Snapshot = sealed
	return err
}

func deriveFor(k Key, generation int64, label string) string {
	return DeriveKey(k.Tenant, k.Operation, k.ID, "", "forward", strconv.FormatInt(max(generation, 1), 10), label)
}

// Lookup reads the record of a key without lock or write; code not_found where there is none.
func (e *Engine) Lookup(ctx context.Context, k Key) (Record, error) { return e.LookupFor(ctx, k, "") }

// LookupFor is Lookup for a key of one principal, see Request.Principal.
func (e *Engine) LookupFor(ctx context.Context, k Key, principal string) (Record, error) {
	c, err := e.keyCall(ctx, k, principal)
	if err != nil {
		return Record{}, err
	}
	rec, err := c.lookup(ctx)
	if err != nil {
		return Record{}, err
	}
	if rec.State == "" {
		return Record{}, &Error{Op: "lookup", Code: "not_found", KeyRef: c.ref()}
	}
	return e.open(rec)
}

// Ref returns the reference of a key under the newest digest key, "" if the key is not legal.
func (e *Engine) Ref(k Key, principal string) string {
	c, err := e.keyCall(context.Background(), k, principal)
	if err != nil {
		return ""
	}
	return c.ref()
}

// Stored returns k as stores have it: with its digest under each digest key, the newest first. None if k is not legal.
func (e *Engine) Stored(k Key, principal string) []Key {
	c, err := e.keyCall(context.Background(), k, principal)
	if err != nil {
		return nil
	}
	keys := []Key{c.p.Key}
	for _, id := range c.p.Aliases {
		keys = append(keys, Key{Tenant: k.Tenant, Operation: k.Operation, ID: id})
	}
	return keys
}

func (e *Engine) keyCall(ctx context.Context, k Key, principal string) (*call, error) {
	c := &call{e: e, ctx: ctx, key: k, req: Request{Key: k, Principal: principal}, op: e.operation(k.Operation)}
	if c.op == nil {
		return nil, c.fail("misuse", fmt.Sprintf("operation %q is not declared", k))
	}
	if why := k.check(); why != "" {
		return nil, c.fail("invalid", why)
	}
	return c, c.digest()
}

func (c *call) lookup(ctx context.Context) (rec Record, err error) {
	limit := within(ctx, c.e.cfg.AcquireTimeout)
	defer limit.end(context.Canceled)
	err = c.e.timed(limit, "lookup", c.op.Name, func() error {
		rec, err = c.e.store.Lookup(limit, LookupParams{Key: c.p.Key, Aliases: c.p.Aliases})
		return err
	})
	return rec, err
}

// Issue hands out k, whose ID the caller made at random, for Operation.IssuedFor; its operation must be declared
// Issued. Issuing it again changes nothing. It counts against the tenant's quota of new keys.
func (e *Engine) Issue(ctx context.Context, k Key) (Record, error) { return e.IssueFor(ctx, k, "") }

// IssueFor is Issue for one principal, see Request.Principal.
func (e *Engine) IssueFor(ctx context.Context, k Key, principal string) (Record, error) {
	c, err := e.keyCall(ctx, k, principal)
	if err != nil {
		return Record{}, err
	}
	if !c.op.Issued {
		return Record{}, c.fail("misuse", fmt.Sprintf("operation %q is not declared Issued", k))
	}
	if e.draining.Load() {
		return Record{}, c.fail("unavailable", "the process is draining")
	}
	wait, ok := e.quota.take(k.Tenant)
	if !ok {
		return Record{}, &Error{Op: "issue", Code: "quota_exceeded", KeyRef: c.ref(), RetryAfter: wait}
	}
	e.quota.back(k.Tenant, false)
	c.p.Issue, c.p.RequireIssued, c.p.Guard = c.op.IssuedFor, false, GuardLeased
	a, err := c.acquireOnce(ctx)
	if err == nil && a.Verdict != VerdictRun {
		err = &Error{Op: "issue", Code: "wrong_state", KeyRef: c.ref(), Hint: "the key is used already"}
	}
	return a.Record, err
}

// Enqueue records an intent that is due later, without running it: pending, lapsed, not started. It joins the
// transaction of ctx where there is one. A key that has a record already is not touched; the verdict says what it is.
// Engine.Run and Taker users pick it up.
func (e *Engine) Enqueue(ctx context.Context, req Request, due time.Time) (Begun, error) {
	c, err := e.prepare(ctx, &req)
	if err != nil {
		return Begun{}, err
	}
	if c.p.Due = due; due.IsZero() {
		c.p.Due = time.Unix(1, 0).UTC()
	}
	c.p.Guard, c.p.StartMark = GuardLeased, true
	a, err := c.acquire(ctx)
	if err != nil {
		return Begun{}, err
	}
	return e.begun(c, a)
}

// ownerName is host, pid and version.
func ownerName() string {
	host, _ := os.Hostname()
	version := "devel"
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		version = b.Main.Version
	}
	return fmt.Sprintf("%.100s/%d %.60s", host, os.Getpid(), version)
}

// begun turns a verdict other than run into the engine's answer.
func (e *Engine) begun(c *call, a Acquired) (Begun, error) {
	b := Begun{Verdict: a.Verdict, Record: a.Record, RetryAfter: a.RetryAfter, Identity: c.p.Foreign(a.Record)}
	switch a.Verdict {
	case VerdictReplay, VerdictExpired:
		e.recent.add(c.p.Key.ID)
		if !b.Identity {
			rec, err := e.open(a.Record)
			if err != nil {
				return Begun{}, err
			}
			b.Record = rec
		}
	case VerdictInProgress:
		b.RetryAfter = max(a.RetryAfter, time.Second)
	case VerdictInDoubt:
		b.RetryAfter = a.RetryAfter
	}
	return b, nil
}

// err is what Do returns for a verdict other than run and replay.
func (b *Begun) err(c *call) error {
	if b.Verdict == VerdictRun || b.Verdict == VerdictReplay && !b.Identity {
		return nil
	}
	e := &Error{Op: "begin", KeyRef: c.ref(), Attempt: b.Record.Attempt, RetryAfter: b.RetryAfter}
	switch b.Verdict {
	case VerdictReplay:
		e.Code, e.Resource, e.Hint = "wrong_state", b.Record.Result.Resource, "the same business identity is done under another key"
	case VerdictInProgress:
		e.Code = "in_progress"
	case VerdictMismatch:
		e.Code, e.RetryAfter = "mismatch", 0
	case VerdictInDoubt:
		e.Code, e.Hint = "in_doubt", "idempo keys show "+c.ref()
	case VerdictExpired:
		e.Code, e.Resource = "expired", b.Record.Result.Resource
	}
	return e
}

// shared is what duplicates in this process get of b: the answer, as their own copy; nothing where they have to ask.
func (b Begun) shared() Begun {
	switch {
	case b.Verdict == VerdictRun && b.Record.State == StateCompleted:
		b.Verdict = VerdictReplay
	case b.Verdict == VerdictRun, b.Verdict == VerdictInProgress:
		return Begun{}
	}
	b.Record, b.Claim = b.Record.Clone(), nil
	return b
}

// running counts claims at work, for Drain.
type running struct {
	mu    sync.Mutex
	set   map[*Claim]struct{}
	empty chan struct{} // closed and replaced when set becomes empty; nil until somebody waits
}

func (r *running) add(c *Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil {
		r.set = map[*Claim]struct{}{}
	}
	r.set[c] = struct{}{}
}

func (r *running) remove(c *Claim) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was = r.set[c]
	delete(r.set, c)
	if len(r.set) == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
	return was
}

func (r *running) wait(ctx context.Context) []*Claim {
	r.mu.Lock()
	if len(r.set) == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	empty := r.empty
	r.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left := make([]*Claim, 0, len(r.set))
	for c := range r.set {
		left = append(left, c)
	}
	return left
}

// Drain refuses new work with code unavailable and waits until what runs is settled and late results are stored, or
// ctx ends; then claims that never started are given back. left is the number of claims that are not settled.
func (e *Engine) Drain(ctx context.Context) (left int) {
	e.draining.Store(true)
	rest := e.running.wait(ctx)
	rest = slices.DeleteFunc(rest, func(c *Claim) bool {
		if !c.op.StartMark || c.hasStarted() {
			return false
		}
		return c.Release(context.WithoutCancel(ctx), "drained before it started") == nil
	})
	return len(rest) + e.late.wait(ctx)
}

// Store returns the store that the engine was made over, for packages that ask it for further abilities.
func (e *Engine) Store() Store { return e.store }
