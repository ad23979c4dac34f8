package storetest

import (
	"context"
	"errors"

	"github.com/idempo/idempo"
)

// A tx is an open transaction of a store.
type tx struct {
	k   *K
	s   idempo.Store
	ctx context.Context
}

// inTx runs f in a transaction of k.Store.
func (k *K) inTx(f func(in tx) error) error { return k.inTxOf(k.Store, f) }

func (k *K) inTxOf(s idempo.Store, f func(in tx) error) error {
	return s.(idempo.Transactor).InTx(k.ctx, func(ctx context.Context) error { return f(tx{k, s, ctx}) })
}

// run acquires p in the transaction and wants it to run.
func (in tx) run(p idempo.AcquireParams) idempo.Record {
	in.k.Helper()
	a, err := in.s.Acquire(in.ctx, p)
	if err != nil || a.Verdict != idempo.VerdictRun {
		in.k.Fatalf("acquire in a transaction: %q, %v; want run", a.Verdict, err)
	}
	return a.Record
}

// complete completes p in the transaction.
func (in tx) complete(p idempo.AcquireParams, attempt int64) error {
	_, err := in.s.Complete(in.ctx, in.k.done(p, attempt, p.Now))
	return err
}

// atomic returns the params of a first atomic claim of a fresh key.
func (k *K) atomic() idempo.AcquireParams {
	p := k.claim(k.key())
	p.Guard = idempo.GuardAtomic
	return p
}

// commit claims p, has the effect and completes, in one transaction.
func (k *K) commit(p idempo.AcquireParams, effect func(ctx context.Context) error) error {
	return k.inTx(func(in tx) error {
		r := in.run(p)
		if effect != nil {
			if err := effect(in.ctx); err != nil {
				return err
			}
		}
		return in.complete(p, r.Attempt)
	})
}

var errUndo = errors.New("roll back")

// verdictInTx acquires p in a transaction that is rolled back, and wants v.
func (k *K) verdictInTx(p idempo.AcquireParams, v idempo.Verdict) (a idempo.Acquired) {
	k.Helper()
	err := k.inTx(func(in tx) (err error) {
		if a, err = k.Store.Acquire(in.ctx, p); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) || a.Verdict != v {
		k.Fatalf("acquire in a transaction: %q, %v; want %s", a.Verdict, err, v)
	}
	return a
}

// effect returns one effect of the name of key.
func (k *K) effect(key idempo.Key) func(ctx context.Context) error {
	return func(ctx context.Context) error { return k.Effect(ctx, key.Ref()) }
}

// effects wants n committed effects of key, counted outside.
func (k *K) effects(key idempo.Key, n int) {
	k.Helper()
	if got, err := k.Count(k.ctx, key.Ref()); err != nil || got != n {
		k.Errorf("%d effects, %v; want %d", got, err, n)
	}
}
