package idempo

import (
	"context"
	"errors"
)

// Settlement returns what a store is given when somebody other than its owner proves that r is the result of rec: a probe, an
// operator. The body is kept or not, encrypted or not, and for how long, as for a completion by the owner; an operation that
// is not declared here has the defaults of Config. It stores nothing, and keeps no reference to r's slices where it encrypts.
func (e *Engine) Settlement(rec Record, r Result) (CompleteParams, error) {
	op := e.operation(rec.Key.Operation)
	if op == nil {
		o := Operation{Name: rec.Key.Operation}.withDefaults(e.cfg)
		op = &o
	}
	p := CompleteParams{Key: rec.Key, Token: rec.Token, Attempt: rec.Attempt, Won: AcquireParams{Guard: GuardLeased}, Result: r,
		Size: int64(len(r.Body)), Kept: true, Retention: op.Retention, Tombstone: op.Tombstone}
	keepBody(&p, op.MaxResult)
	return p, e.seal(&p)
}

// Open returns rec, as a store has it, with its result in clear; code result_unreadable where the key is not at hand.
func (e *Engine) Open(rec Record) (Record, error) { return e.open(rec) }

// Probe asks the probe of rec's operation what became of it, for at most 30 s, and stores nothing. A panic of the probe is an
// error, and so is an operation without a probe.
func (e *Engine) Probe(ctx context.Context, rec Record) (State, Result, error) {
	op := e.operation(rec.Key.Operation)
	if op == nil {
		return "", Result{}, errors.New("the operation is not declared here")
	}
	return e.askProbe(ctx, op, rec)
}
