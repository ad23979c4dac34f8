package mysql

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// writing is one Renew, Complete or Release.
type writing struct {
	op    string
	key   idempo.Key
	now   time.Time // given
	judge func(r idempo.Record, found bool, now time.Time) (rec idempo.Record, write bool, err error)
	free  []string              // identities given back
	issue *idempo.AcquireParams // the next one-time key
	alive bool                  // only while the lease is alive, also where the write had to wait
}

// Renew implements idempo.Store.
func (s *Store) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	return s.settle(ctx, writing{op: "renew", key: p.Key, now: p.Now, alive: true,
		judge: func(r idempo.Record, found bool, now time.Time) (idempo.Record, bool, error) {
			rec, err := p.Judge(r, found, now)
			return rec, err == nil, err
		}})
}

// Complete implements idempo.Store. Everything but a failing result of InTx is written at once; that one when the rest has
// been rolled back.
func (s *Store) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	if p.Won.Guard != idempo.GuardAtomic {
		return s.settle(ctx, writing{op: "complete", key: p.Key, now: p.Now, judge: p.Judge, issue: p.Issue})
	}
	t, err := s.enter(ctx, "complete", p.Key)
	switch {
	case err != nil:
		return idempo.Record{}, err
	case t == nil:
		return idempo.Record{}, misuse("complete", p.Key, "an atomic claim is completed in the transaction that won it")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, err := s.completeAtomic(ctx, t, p)
	if errors.Is(err, idempo.ErrLeaseLost) && t.broken == nil {
		t.broken = err
	}
	return rec, s.failed("complete", p.Key, err, inside)
}

// Release implements idempo.Store.
func (s *Store) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	w := writing{op: "release", key: p.Key, now: p.Now, judge: p.Judge}
	if p.To == idempo.StateFailed {
		w.free = p.Free
	}
	return s.settle(ctx, w)
}

func (s *Store) settle(ctx context.Context, w writing) (idempo.Record, error) {
	t, err := s.enter(ctx, w.op, w.key)
	if err != nil {
		return idempo.Record{}, err
	}
	if t == nil {
		return s.settleAlone(ctx, w)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on == nil {
		if err := t.begin(ctx); err != nil {
			return idempo.Record{}, s.failed("begin", w.key, err, reading)
		}
	}
	rec, err := s.settleInside(ctx, t, w)
	if errors.Is(err, idempo.ErrLeaseLost) && w.op == "complete" && t.broken == nil {
		t.broken = err
	}
	return rec, s.failed(w.op, w.key, err, inside)
}

// settleAlone reads, judges, and writes what was judged if the row is still the same; again, up to five times, where it is
// not. What is more than one statement is a short transaction.
func (s *Store) settleAlone(ctx context.Context, w writing) (idempo.Record, error) {
	for range tries {
		r, err := s.read(ctx, s.db, w.key, []string{w.key.ID}, w.now)
		if err != nil {
			return idempo.Record{}, s.failed(w.op, w.key, err, reading)
		}
		old, _ := r.pick(idempo.AcquireParams{})
		rec, write, err := w.judge(old.rec, old.rec.State != "", r.now)
		if err != nil || !write {
			return rec, err
		}
		if rec.State == "" || len(w.free) > 0 || w.issue != nil {
			err := s.short(ctx, w.op, w.key, func(x *session) (err error) {
				rec, err = s.settleInside(ctx, x, w)
				return err
			})
			return rec, err
		}
		sqlkit.Micros(&rec)
		var alive time.Time
		if w.alive {
			alive = r.now
		}
		ok, err := s.update(ctx, nil, old, rec, old.aliases, alive)
		if err != nil {
			return idempo.Record{}, s.failed(w.op, w.key, err, alone)
		}
		if ok {
			return rec, nil
		}
	}
	return idempo.Record{}, &idempo.Error{Op: w.op, Code: "unavailable", KeyRef: w.key.Ref(), Hint: "the record kept changing"}
}

// settleInside locks the row, judges and writes, in x, which is locked.
func (s *Store) settleInside(ctx context.Context, x *session, w writing) (idempo.Record, error) {
	c := x.find(w.key, []string{w.key.ID})
	var old row
	var now time.Time
	if c != nil {
		now = c.now(w.now)
		old = row{rec: c.seen(now)}
	} else {
		r, err := s.lock(ctx, x, w.key, []string{w.key.ID}, w.now, wait)
		if err != nil {
			return idempo.Record{}, err
		}
		old, _ = r.pick(idempo.AcquireParams{})
		now = r.now
	}
	rec, write, err := w.judge(old.rec, old.rec.State != "", now)
	if err != nil || !write {
		return rec, err
	}
	sqlkit.Micros(&rec)
	if c != nil {
		if rec.State == idempo.StatePending && c.claim { // renewed: still to be completed
			c.rec, c.read = rec.Clone(), time.Now()
			return rec, nil
		}
		r, err := s.lock(ctx, x, w.key, []string{c.key.ID}, w.now, wait)
		if err != nil {
			return idempo.Record{}, err
		}
		if old, _ = r.pick(idempo.AcquireParams{}); !old.rec.Token.Equal(c.rec.Token) {
			return idempo.Record{}, gone(w.op, w.key)
		}
		x.drop(c)
	}
	if rec.State == "" {
		return rec, s.remove(ctx, x, old)
	}
	aliases := slices.DeleteFunc(slices.Clone(old.aliases), func(id string) bool { return slices.Contains(w.free, id) })
	if err := s.free(ctx, x, old.rec.Key, w.free); err != nil {
		return rec, err
	}
	if _, err := s.update(ctx, x, old, rec, aliases, time.Time{}); err != nil {
		return rec, err
	}
	return rec, s.issueNext(ctx, x, w.issue)
}

// gone is the error for a claim of a transaction that the server has rolled back under it.
func gone(op string, key idempo.Key) error {
	return &idempo.Error{Op: op, Code: "lease_lost", KeyRef: key.Ref(), Hint: "the server rolled the transaction back: begin the whole transaction again"}
}

// completeAtomic completes a claim that was won in t, which is locked.
func (s *Store) completeAtomic(ctx context.Context, t *session, p idempo.CompleteParams) (idempo.Record, error) {
	c := t.find(p.Key, []string{p.Key.ID})
	if t.own && (c == nil || !c.rec.Token.Equal(p.Token)) {
		return idempo.Record{}, &idempo.Error{Op: "complete", Code: "lease_lost", KeyRef: p.Key.Ref()}
	}
	if !t.own || !c.claim {
		if c != nil && !c.claim { // completed above
			p.Won.Guard = idempo.GuardLeased
			rec, _, err := p.Judge(c.rec, true, c.now(p.Now))
			return rec, err
		}
		return s.completeOwn(ctx, t, c, p)
	}
	rec, write, err := p.Judge(c.from.rec, c.from.rec.State != "", c.now(p.Now))
	if err != nil || !write {
		return rec, err
	}
	s.completed(c, &rec)
	if p.Result.Failing {
		c.alone = &p
	} else {
		if _, err := exec(ctx, t.on, s.q["complete"].with(&rec)); err != nil { // the row is locked; commit finds out if it is not
			return rec, err
		}
		if err := s.issueNext(ctx, t, p.Issue); err != nil {
			return rec, err
		}
	}
	c.rec, c.claim, c.read = rec.Clone(), false, time.Now()
	return rec, nil
}

// completed makes rec the completion of c: the claim was made then, not now.
func (s *Store) completed(c *change, rec *idempo.Record) {
	rec.Key = c.key
	rec.ClaimedAt, rec.LeaseUntil, rec.CreatedAt = c.rec.ClaimedAt, c.rec.LeaseUntil, c.rec.CreatedAt
	if !rec.StartedAt.IsZero() {
		rec.StartedAt = c.rec.StartedAt
	}
	sqlkit.Micros(rec)
}

// completeOwn is completeAtomic in a caller's own transaction, whose end the store does not see: it makes sure that the
// claim is still there. c is nil where the claim was won in another context of the same transaction.
func (s *Store) completeOwn(ctx context.Context, t *session, c *change, p idempo.CompleteParams) (idempo.Record, error) {
	r, err := s.lock(ctx, t, p.Key, []string{p.Key.ID}, p.Now, wait)
	if err != nil {
		return idempo.Record{}, err
	}
	old, _ := r.pick(idempo.AcquireParams{})
	if !old.rec.Token.Equal(p.Token) || p.Token.IsZero() {
		return idempo.Record{}, gone("complete", p.Key)
	}
	if old.rec.State == idempo.StatePending && old.rec.Attempt == p.Attempt { // alive as long as its transaction
		old.rec.LeaseUntil = r.now.Add(time.Second)
	}
	issue := p.Issue
	p.Won.Guard = idempo.GuardLeased
	rec, write, err := p.Judge(old.rec, true, r.now)
	if err != nil || !write {
		return rec, err
	}
	if c != nil {
		s.completed(c, &rec)
		t.drop(c) // from now on the row says it
	}
	sqlkit.Micros(&rec)
	if _, err := s.update(ctx, t, old, rec, old.aliases, time.Time{}); err != nil {
		return rec, err
	}
	return rec, s.issueNext(ctx, t, issue)
}
