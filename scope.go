package idempo

import (
	"context"
	"errors"
	"sync"
)

// scope is one transaction that the engine opened, and the claims begun in it.
type scope struct {
	mu     sync.Mutex
	claims []*Claim
	one    [1]*Claim // most transactions have one
}

type scopeKey struct{}

func withScope(ctx context.Context, s *scope) context.Context {
	return context.WithValue(ctx, (*scopeKey)(nil), s)
}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value((*scopeKey)(nil)).(*scope)
	return s
}

func (s *scope) add(c *Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = append(s.claims, c)
}

// close ends every claim of the transaction; which of them committed is told by commit.
func (s *scope) close() {
	for _, c := range s.claims {
		c.end(Begun{})
	}
}

// InTx runs fn in one transaction in which several keys may be begun and completed; either all of it commits or
// nothing. fn finds the transaction by the store's accessor, runs again as a whole after a serialization failure, and
// so must be repeatable until it returns. A claim that fn leaves unsettled, or whose Complete failed, makes InTx roll
// back. Begin keys in a sorted order where you can: a key in use elsewhere is VerdictInProgress, never a wait.
//
// Errors: fn's own, marked NothingHappened; those of Transactor.InTx; unavailable with Unknown true where a COMMIT was
// never answered.
func (e *Engine) InTx(ctx context.Context, fn func(context.Context) error) error {
	if e.tx == nil {
		return &Error{Op: "in_tx", Code: "misuse", Hint: "the store has no transactions"}
	}
	if tx, _, err := e.joiner.Joined(ctx); err != nil || tx {
		if err == nil {
			err = &Error{Op: "in_tx", Code: "misuse", Hint: "the context carries a transaction already"}
		}
		return err
	}
	t := &transaction{e: e, ctx: ctx}
	var first *Claim // of the try whose COMMIT is open: its record tells about all of them
	for {
		err := t.once(func(ctx context.Context) error {
			s := scopeOf(ctx)
			if t.open != nil && first != nil {
				if err := t.ask(ctx, first); err != nil {
					return err
				}
			}
			if err := fn(ctx); err != nil {
				return &workError{err}
			}
			for _, c := range s.claims {
				if c.state() != "completed" {
					return c.fail("in_tx", "misuse", "a claim was left open; complete it, or return an error to roll back")
				}
			}
			if len(s.claims) > 0 {
				first = s.claims[0]
			}
			return nil
		})
		if t.next(err) == again {
			continue
		}
		return t.err(err)
	}
}

// foreseer is a Transactor that can look at many keys at once. Foresee takes the locks of atomic claims that will follow in the
// transaction of ctx, and reads what stands in their way, in one round trip. It is a hint: whoever begins a key in the same
// transaction afterwards gets the same answer as without it; outside of a transaction it does nothing.
type foreseer interface {
	Foresee(ctx context.Context, ps []AcquireParams) error
}

// Foresee tells a store that the keys of these requests will be begun in the transaction of ctx. A store that has a method
// Foresee(context.Context, []AcquireParams) error looks at all of them in one round trip; with every other nothing happens. It
// is a hint, so a request that is not legal is passed over. An error is to be returned: the transaction must be rolled back.
func (e *Engine) Foresee(ctx context.Context, requests []Request) error {
	s, ok := e.store.(foreseer)
	if !ok || len(requests) < 2 {
		return nil
	}
	var here call
	if e.place(ctx, &here) != nil || !here.inTx {
		return nil // Begin says so
	}
	ps := make([]AcquireParams, 0, len(requests))
	for _, r := range requests {
		r.Snapshot = nil // is not looked for
		c := &call{e: e, ctx: ctx, req: r, key: r.Key, op: e.operation(r.Key.Operation)}
		if c.check() == nil && c.op.Guard == GuardAtomic && c.digest() == nil {
			ps = append(ps, c.p)
		}
	}
	limit := within(ctx, e.cfg.AcquireTimeout)
	defer limit.end(context.Canceled)
	return e.timed(limit, "acquire", "", func() error { return s.Foresee(limit, ps) })
}

// ask looks for the record of a try whose COMMIT had no answer. nil: it did not happen, and the key is ours again.
func (t *transaction) ask(ctx context.Context, c *Claim) error {
	a, err := t.e.store.Acquire(ctx, c.final.completing.Won)
	if err != nil {
		return err
	}
	if a.Verdict == VerdictRun {
		t.won()
		return errTryAgain
	}
	return t.notRun(Begun{Verdict: a.Verdict, Record: a.Record}, c.token)
}

// errTryAgain rolls the asking transaction back, so that the work runs in a fresh one.
var errTryAgain = error(&Error{Op: "in_tx", Code: "tx_conflict", Err: errors.New("an unanswered commit did not happen")})
