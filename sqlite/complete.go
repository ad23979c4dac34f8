package sqlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// judge is the Judge method of a write.
type judge func(r idempo.Record, found bool, now time.Time) (rec idempo.Record, write bool, err error)

// settle is one Renew, Complete or Release.
type settle struct {
	op    string
	key   idempo.Key
	now   time.Time // given
	judge judge
	done  *idempo.CompleteParams // of a Complete
	free  []string               // identities given back
}

// Renew implements idempo.Store.
func (s *Store) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	return s.settle(ctx, settle{op: "renew", key: p.Key, now: p.Now, judge: func(r idempo.Record, found bool, now time.Time) (idempo.Record, bool, error) {
		rec, err := p.Judge(r, found, now)
		return rec, err == nil, err
	}})
}

// Complete implements idempo.Store. In a transaction that InTx opened it is decided at once and written just before
// COMMIT; in a caller's own it is written at once.
func (s *Store) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if t, err := s.joined(ctx, "complete", p.Key); err == nil && t == nil && p.Won.Guard == idempo.GuardAtomic {
		return idempo.Record{}, misuse("complete", p.Key, "an atomic claim is completed in the transaction that won it")
	}
	return s.settle(ctx, settle{op: "complete", key: p.Key, now: p.Now, judge: p.Judge, done: &p})
}

// Release implements idempo.Store.
func (s *Store) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	w := settle{op: "release", key: p.Key, now: p.Now, judge: p.Judge}
	if p.To == idempo.StateFailed {
		w.free = p.Free
	}
	return s.settle(ctx, w)
}

func (s *Store) settle(ctx context.Context, w settle) (rec idempo.Record, err error) {
	t, err := s.joined(ctx, w.op, w.key)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case t != nil:
		rec, err = s.settleInside(ctx, t, w)
	default:
		err = s.share(ctx, w.op, w.key, nil, func(x *session) (err error) {
			rec, err = s.settleRow(x, w)
			return failure(w.op, w.key, err, false)
		})
	}
	if err != nil {
		return idempo.Record{}, failure(w.op, w.key, err, false)
	}
	return rec, nil
}

// settleRow decides on the row under the write lock and writes.
func (s *Store) settleRow(x *session, w settle) (idempo.Record, error) {
	base, err := x.find(w.key, []string{w.key.ID})
	if err != nil {
		return idempo.Record{}, err
	}
	now := s.now(w.now)
	r, found := first(base)
	rec, write, err := w.judge(r, found, now)
	if err != nil || !write {
		return rec, err
	}
	sqlkit.Micros(&rec)
	if rec.State == "" {
		return rec, x.remove(r.Key)
	}
	if len(w.free) > 0 || w.done != nil && w.done.Issue != nil {
		if err := x.several(); err != nil {
			return rec, err
		}
	}
	if err := x.update(r, rec); err != nil {
		return rec, err
	}
	if err := x.free(rec.Key, w.free); err != nil {
		return rec, err
	}
	if w.done != nil && w.done.Issue != nil {
		_, err = s.issue(x, *w.done.Issue, now)
	}
	return rec, err
}

// free gives identities of the record k back.
func (x *session) free(k idempo.Key, ids []string) error {
	for _, id := range ids {
		if _, err := x.exec("free", append(keyArgs(k, id), []byte(k.ID))...); err != nil {
			return err
		}
	}
	return nil
}

// issue hands out the next one-time key of a completion. One that is there is left as it is.
func (s *Store) issue(x *session, p idempo.AcquireParams, now time.Time) (bool, error) {
	names := names32(p)
	base, err := x.find(p.Key, names)
	if err != nil || slices.ContainsFunc(base, func(r idempo.Record) bool { _, live := r.Effective(now); return live }) {
		return false, err
	}
	r, found := first(base)
	a, write, err := p.Judge(r, found, now)
	if err != nil || !write {
		return false, err
	}
	sqlkit.Micros(&a.Record)
	return true, x.put(base, a.Record, names)
}

// settleInside decides in the transaction t.
func (s *Store) settleInside(ctx context.Context, t *txn, w settle) (idempo.Record, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.own {
		if err := t.enter(s, w.op, w.key); err != nil {
			return idempo.Record{}, err
		}
	} else if err := t.begin(ctx, nil); err != nil {
		return idempo.Record{}, err
	}
	names := []string{w.key.ID}
	c := t.change(w.key, names)
	if c == nil { // a leased claim whose write joins this transaction, or a claim of another context of it
		base, err := t.x.find(w.key, names)
		if err != nil {
			return idempo.Record{}, err
		}
		c = &change{names: names, key: w.key, base: base}
		c.from, c.found = first(base)
		c.next = c.from
		if w.done != nil && w.done.Won.Guard == idempo.GuardAtomic {
			c.names = names32(w.done.Won)
		}
	}
	rec, write, err := t.decide(c, w)
	if err != nil || !write {
		if w.done != nil && errors.Is(err, idempo.ErrLeaseLost) {
			t.lost = err
		}
		return rec, err
	}
	if !slices.Contains(t.changes, c) {
		t.changes = append(t.changes, c)
	}
	sqlkit.Micros(&rec)
	c.names = slices.DeleteFunc(slices.Clone(c.names), func(id string) bool { return slices.Contains(w.free, id) })
	c.next = rec.Clone()
	c.claim = c.claim && rec.State == idempo.StatePending // a renewed claim is still to be completed
	c.keep, c.alone = !c.claim, nil
	if w.done != nil && w.done.Result.Failing && t.own {
		p := *w.done
		p.Result = rec.Clone().Result
		c.alone = &p
	}
	c.free = w.free
	if w.done != nil && c.alone == nil {
		c.issue = w.done.Issue
	}
	return rec, t.written(c)
}

// decide judges w on c as the transaction sees it.
func (t *txn) decide(c *change, w settle) (idempo.Record, bool, error) {
	now := t.store.now(w.now)
	r, found := c.seen(now)
	if w.done == nil || w.done.Won.Guard != idempo.GuardAtomic {
		return w.judge(r, found, now)
	}
	p := *w.done
	switch own := found && r.Token.Equal(p.Token); {
	case own && c.claim:
		r, found = c.from, c.found // the completion is written over what was there before
	case own && r.State != idempo.StatePending:
		p.Won.Guard = idempo.GuardLeased // settled above: by the rules of a row
	case t.own:
		return idempo.Record{}, false, &idempo.Error{Op: "complete", Code: "lease_lost", KeyRef: w.key.Ref(), Attempt: r.Attempt}
	}
	return p.Judge(r, found, now)
}
