package around

import (
	"context"

	"github.com/idempo/idempo"
)

// Store returns s with through around every call: op is acquire, renew, complete, release, forget (a Release to
// idempo.StateIssued), lookup, or tx for a whole transaction, which contains the calls in it. through does the call, or
// not, and returns what the caller is told. The result has transactions exactly if s has; it neither sweeps nor takes.
func Store(s idempo.Store, through func(op string, call func() error) error) idempo.Store {
	p := passing{s, through}
	tx, transacts := s.(idempo.Transactor)
	if j, joins := s.(idempo.Joiner); transacts && joins {
		return passingTx{p, tx, j}
	}
	return p
}

type passing struct {
	idempo.Store
	through func(op string, call func() error) error
}

type passingTx struct {
	passing
	tx     idempo.Transactor
	joiner idempo.Joiner
}

// Acquire passes through "acquire".
func (s passing) Acquire(ctx context.Context, p idempo.AcquireParams) (a idempo.Acquired, err error) {
	err = s.through("acquire", func() (err error) { a, err = s.Store.Acquire(ctx, p); return err })
	return a, err
}

// Renew passes through "renew".
func (s passing) Renew(ctx context.Context, p idempo.RenewParams) (r idempo.Record, err error) {
	err = s.through("renew", func() (err error) { r, err = s.Store.Renew(ctx, p); return err })
	return r, err
}

// Complete passes through "complete".
func (s passing) Complete(ctx context.Context, p idempo.CompleteParams) (r idempo.Record, err error) {
	err = s.through("complete", func() (err error) { r, err = s.Store.Complete(ctx, p); return err })
	return r, err
}

// Release passes through "release" or "forget".
func (s passing) Release(ctx context.Context, p idempo.ReleaseParams) (r idempo.Record, err error) {
	op := "release"
	if p.To == idempo.StateIssued {
		op = "forget"
	}
	err = s.through(op, func() (err error) { r, err = s.Store.Release(ctx, p); return err })
	return r, err
}

// Lookup passes through "lookup".
func (s passing) Lookup(ctx context.Context, p idempo.LookupParams) (r idempo.Record, err error) {
	err = s.through("lookup", func() (err error) { r, err = s.Store.Lookup(ctx, p); return err })
	return r, err
}

// InTx passes through "tx".
func (s passingTx) InTx(ctx context.Context, fn func(context.Context) error) error {
	return s.through("tx", func() error { return s.tx.InTx(ctx, fn) })
}

// Joined does not pass through: it sends nothing.
func (s passingTx) Joined(ctx context.Context) (tx, own bool, err error) { return s.joiner.Joined(ctx) }
