package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Acquire implements idempo.Store. A final answer is one plain read. A leased claim of a free key is two statements more,
// each by itself: is the row free, and the insert that decides. An atomic claim, and one that takes over, is made in a
// transaction, the row of the claim included, which nobody else sees before it is committed.
func (s *Store) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	t, err := s.enter(ctx, "acquire", p.Key)
	if err != nil {
		return idempo.Acquired{}, err
	}
	if p.Issue == 0 && p.Due.IsZero() && (p.Guard == idempo.GuardAtomic) != (t != nil) {
		return idempo.Acquired{}, misuse("acquire", p.Key, "an atomic claim needs a transaction in its context, a leased one must have none")
	}
	ids := sqlkit.Digests(p)
	until := time.Now().Add(p.Wait)
	for moved, passing, polls := 0, 0, 0; ; {
		var a idempo.Acquired
		var out outcome
		if t == nil {
			a, out, err = s.claimAlone(ctx, p, ids)
		} else {
			a, out, err = s.claimInside(ctx, t, p, ids)
		}
		if s.number(err) == lostClaims && t == nil {
			err, out = s.claimLost(ctx, p, ids), changed
		}
		switch {
		case err != nil:
			return idempo.Acquired{}, err
		case out == decided:
			return a, nil
		case out == changed:
			if moved++; moved == tries {
				return idempo.Acquired{}, &idempo.Error{Op: "acquire", Code: "unavailable", KeyRef: p.Key.Ref(), Hint: "the record kept changing"}
			}
			continue
		case out == locked && passing < 8:
			if passing++; pause(ctx, min(time.Duration(passing)*10*time.Millisecond, 30*time.Millisecond)) {
				continue
			}
		}
		wait := min(time.Until(until), time.Duration(min(polls+1, 10))*10*time.Millisecond)
		if polls++; wait <= 0 || !pause(ctx, wait) {
			return inUse(p, a.Record.Now), nil
		}
	}
}

// outcome is what one try at a key came to.
type outcome int

const (
	decided outcome = iota
	busy            // an open transaction has the key; nothing of it can be seen
	locked          // busy, and a row can be seen: mostly somebody who is about to commit a single statement
	changed         // the row changed under the try
)

// inUse is the verdict for a key that an open transaction has: its owner and age are unknown.
func inUse(p idempo.AcquireParams, now time.Time) idempo.Acquired {
	rec := idempo.Record{Key: p.Key, State: idempo.StatePending, Guard: p.Guard, Now: now}
	return idempo.Acquired{Verdict: idempo.VerdictInProgress, Record: rec, RetryAfter: time.Second}
}

// inTheWay is the outcome of a try at rows that somebody has locked. NOWAIT cannot tell an open transaction from another's
// completion, or a sweep, that is just being written.
func inTheWay(r rows) (idempo.Acquired, outcome) {
	a := idempo.Acquired{Record: idempo.Record{Now: r.now}}
	if len(r.rows) > 0 {
		return a, locked
	}
	return a, busy
}

// claimAlone is one try at a claim outside of any transaction.
func (s *Store) claimAlone(ctx context.Context, p idempo.AcquireParams, ids []string) (a idempo.Acquired, out outcome, err error) {
	seen, err := s.read(ctx, s.db, p.Key, ids, p.Now)
	if err != nil {
		return a, busy, s.failed("acquire", p.Key, err, reading)
	}
	a, _, write, err := sqlkit.JudgeAll(p, seen.records(), seen.now)
	if err != nil || !write {
		return a, decided, s.failed("acquire", p.Key, err, reading)
	}
	if len(seen.rows) > 0 || len(ids) > 1 {
		err = s.short(ctx, "acquire", p.Key, func(x *session) error {
			a, out, err = s.claimLocked(ctx, x, p, ids, seen)
			return err
		})
		return a, out, err
	}
	r, there, err := s.probe(ctx, nil, p.Key, p.Now)
	switch n := s.number(err); {
	case n == lockNowait || n == lockTimeout:
		a, out := inTheWay(seen)
		return a, out, nil
	case err != nil && !conflict(n):
		return a, busy, s.failed("acquire", p.Key, err, reading)
	case there, err != nil:
		return a, changed, nil
	}
	if a, _, err = p.Judge(idempo.Record{}, false, r.now); err != nil {
		return a, decided, err
	}
	sqlkit.Micros(&a.Record)
	won, err := s.insert(ctx, nil, a.Record, nil)
	switch {
	case s.number(err) == lockTimeout:
		return a, busy, nil
	case err != nil:
		return a, busy, s.failed("acquire", p.Key, err, alone)
	case !won:
		return a, changed, nil
	}
	return a, decided, nil
}

// claimInside is one try at a claim in t.
func (s *Store) claimInside(ctx context.Context, t *session, p idempo.AcquireParams, ids []string) (a idempo.Acquired, out outcome, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.find(p.Key, ids); c != nil {
		now := c.now(p.Now)
		a, write, err := p.Judge(c.seen(now), true, now)
		if err != nil || !write {
			return a, decided, err
		}
		return a, decided, misuse("acquire", p.Key, "the key is claimed in this transaction already")
	}
	on := t.on
	if on == nil { // what is final needs no transaction
		on = s.db
	}
	seen, err := s.read(ctx, on, p.Key, ids, p.Now)
	if err != nil {
		return a, busy, s.failed("acquire", p.Key, err, where(t))
	}
	a, _, write, err := sqlkit.JudgeAll(p, seen.records(), seen.now)
	if err != nil || !write && (t.own || final(a.Record)) { // a caller's own may show what was, not what is
		return a, decided, s.failed("acquire", p.Key, err, reading)
	}
	if t.on == nil {
		if err := t.begin(ctx); err != nil {
			return a, busy, s.failed("begin", p.Key, err, reading)
		}
	}
	a, out, err = s.claimLocked(ctx, t, p, ids, seen)
	if n := s.number(err); (n == deadlock || n == snapshotOld) && t.afresh(ctx) {
		return a, changed, nil
	}
	return a, out, s.failed("acquire", p.Key, err, inside)
}

// final reports whether nothing but the clock changes rec.
func final(r idempo.Record) bool {
	return r.State == idempo.StateCompleted || r.State == idempo.StateExpired
}

// claimLocked is the part of a try that locks and writes, in x.
func (s *Store) claimLocked(ctx context.Context, x *session, p idempo.AcquireParams, ids []string, seen rows) (a idempo.Acquired, out outcome, err error) {
	var r rows
	there := true
	if len(seen.rows) == 0 && len(ids) == 1 {
		r, there, err = s.probe(ctx, x, p.Key, p.Now)
	}
	if err == nil && there {
		r, err = s.lock(ctx, x, p.Key, ids, p.Now, nowait)
	}
	if n := s.number(err); n == lockNowait || n == lockTimeout {
		if s.server.rollsBack && (!x.own || x.lent && !x.afresh(ctx)) { // the time-out took the whole transaction
			return a, busy, err
		}
		a, out := inTheWay(seen)
		return a, out, nil
	}
	if err != nil {
		return a, busy, err
	}
	a, _, write, err := sqlkit.JudgeAll(p, r.records(), r.now)
	if err != nil || !write {
		return a, decided, err
	}
	sqlkit.Micros(&a.Record)
	old, over := r.pick(p)
	aliases, err := s.put(ctx, x, old, over, a.Record, ids)
	switch {
	case errors.Is(err, errTaken):
		return a, changed, nil
	case s.number(err) == lockTimeout && !s.server.rollsBack:
		return a, busy, nil
	case err != nil:
		return a, busy, err
	}
	if p.Guard == idempo.GuardAtomic && p.Issue == 0 && p.Due.IsZero() {
		held := append([]string{a.Record.Key.ID}, ids...)
		x.changes = append(x.changes, &change{ids: held, key: a.Record.Key, from: old, rec: a.Record.Clone(), aliases: aliases, claim: true, read: time.Now()})
	}
	return a, decided, nil
}
