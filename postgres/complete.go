package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Complete implements idempo.Store. A leased claim's result is one statement, or one transaction where it makes the next
// one-time key. An atomic claim's is written once: with the COMMIT of InTx, at once in a caller's own transaction.
func (s *Store) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	t, err := s.enter(ctx, "complete", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	if p.Won.Guard == idempo.GuardAtomic {
		if t == nil {
			return idempo.Record{}, misuse("complete", p.Key, "an atomic claim is completed in the transaction that won it")
		}
		return s.completeAtomic(ctx, t, p)
	}
	if t == nil && p.Issue == nil && len(p.References) == 0 && !p.Token.IsZero() {
		if rec, ok, err := s.completeFast(ctx, p); err != nil || ok {
			return rec, err
		}
	}
	w := writing{op: "complete", key: p.Key, now: p.Now, judge: p.Judge}
	if p.Issue != nil {
		next, err := s.next(ctx, t, p)
		if err != nil {
			return idempo.Record{}, err
		}
		w.commit = func(old, rec idempo.Record) []Statement {
			st := s.swapStatement(old, rec, swapping{must: true, wait: timeout(t)})
			st.Row = counted(new(int))
			return append([]Statement{st}, next...)
		}
	}
	rec, err := s.update(ctx, t, w)
	if t != nil && errors.Is(err, idempo.ErrLeaseLost) {
		t.fail(err)
	}
	return rec, err
}

// completeFast supposes that the row is still what the claim left: pending, with its token and attempt. What is to be
// written follows from the rule for such a row. Where the row is another, it is read and judged.
func (s *Store) completeFast(ctx context.Context, p idempo.CompleteParams) (idempo.Record, bool, error) {
	now := p.Now
	if now.IsZero() {
		now = time.Now()
	}
	supposed := idempo.Record{Key: p.Key, State: idempo.StatePending, Token: p.Token, Attempt: p.Attempt, Format: 1,
		Guard: idempo.GuardLeased, LeaseUntil: now.Add(time.Hour)}
	rec, write, err := p.Judge(supposed, true, now)
	if err != nil || !write {
		return idempo.Record{}, false, nil
	}
	st := s.q["complete"].with(values(rec, now), "now", clock(p.Now), "timeout", lockTimeout)
	rec = supposed
	var server time.Time
	st.Row = func(scan func(...any) error) error { return kept(&rec, &server, scan) }
	if err := s.run(ctx, nil, st); err != nil {
		return idempo.Record{}, false, failed("complete", p.Key, err, false)
	}
	if rec.Now.IsZero() {
		return idempo.Record{}, false, nil
	}
	if err := s.answered(ctx, nil, server); err != nil {
		return idempo.Record{}, false, failed("complete", p.Key, err, false)
	}
	rec, _, err = p.Judge(rec, true, rec.Now)
	return rec, err == nil, err
}

// kept reads what completing leaves as it is into the record that was supposed.
func kept(rec *idempo.Record, server *time.Time, scan func(...any) error) error {
	var recipe, guard, onCrash, surface, owner, derived, trace *string
	var claimed, started, lease, created, issued *time.Time
	var generation *int64
	var refs []byte
	err := scan(&rec.Now, server, &rec.Hash, &recipe, &rec.Detail, &guard, &onCrash, &surface, &generation, &owner,
		&claimed, &started, &lease, &refs, &derived, &rec.Snapshot, &trace, &created, &issued)
	if err != nil {
		return err
	}
	rec.Now = rec.Now.UTC()
	rec.Recipe, rec.Guard, rec.OnCrash = word(recipe), idempo.Guard(word(guard)), idempo.OnCrash(word(onCrash))
	rec.Surface, rec.Owner, rec.DerivedKey, rec.Trace = word(surface), word(owner), word(derived), word(trace)
	rec.ClaimedAt, rec.StartedAt, rec.LeaseUntil = utc(claimed), utc(started), utc(lease)
	rec.CreatedAt, rec.IssuedUntil = utc(created), utc(issued)
	if generation != nil {
		rec.Generation = *generation
	}
	if rec.References, err = sqlkit.ParseReferences(refs); err != nil {
		return &idempo.Error{Op: "complete", Code: "record_unreadable", KeyRef: rec.Ref(), Err: err}
	}
	return nil
}

func word(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// next returns what makes the next one-time key of p, if any, together with the completion. One that is there and not over
// is left as it is.
func (s *Store) next(ctx context.Context, t *session, p idempo.CompleteParams) ([]Statement, error) {
	if p.Issue == nil {
		return nil, nil
	}
	issue := *p.Issue
	ids := sqlkit.Digests(issue)
	r, err := s.read(ctx, t, issue.Key, ids, issue.Now)
	if err != nil {
		return nil, failed("issue", issue.Key, err, t != nil)
	}
	now := issue.Now
	if now.IsZero() {
		now = time.Now()
	}
	if len(r.recs) > 0 {
		a, write, err := issue.Judge(r.recs[0], true, r.now)
		if err != nil || !write {
			return nil, err
		}
		st := s.swapStatement(r.recs[0], a.Record, swapping{ids: ids, wait: timeout(t)})
		st.Row = counted(new(int))
		return []Statement{st}, nil
	}
	a, _, err := issue.Judge(idempo.Record{}, false, now)
	if err != nil {
		return nil, err
	}
	name, extra := "claim", []any{"now", clock(issue.Now), "watch_at", watch(a.Record, now), "timeout", timeout(t)}
	if len(ids) == 1 {
		extra = append(extra, "lock", s.lock(issue.Key, ids[0]))
	} else {
		name, extra = "claim_many", append(extra, "digests", digests(ids), "locks", s.locks(issue.Key, ids))
	}
	st := s.q[name].with(values(a.Record, now), extra...)
	st.Row = claimRow(new(rows), new(bool), len(ids) > 1)
	return []Statement{st}, nil
}

// completeAtomic completes a claim that was won in t.
func (s *Store) completeAtomic(ctx context.Context, t *session, p idempo.CompleteParams) (idempo.Record, error) {
	next, err := s.next(ctx, t, p)
	if err != nil {
		return idempo.Record{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.find(p.Key, []string{p.Key.ID})
	switch {
	case c != nil && c.queued && c.rec.Token.Equal(p.Token): // settled above: by the rules of a row
		p.Won.Guard = idempo.GuardLeased
		rec, _, err := p.Judge(c.rec, true, latest(p.Now, c.now()))
		return rec, err
	case c != nil && (!c.claim || !c.rec.Token.Equal(p.Token)), c == nil && t.own:
		err := &idempo.Error{Op: "complete", Code: "lease_lost", KeyRef: p.Key.Ref()}
		t.failLocked(err)
		return idempo.Record{}, err
	case c == nil: // the caller's transaction, in another context than that of the claim
		var r rows
		ids := sqlkit.Digests(p.Won)
		if err := s.runLocked(ctx, t, s.reading(&r, p.Key, append(ids, ids[0]), p.Now)); err != nil {
			return idempo.Record{}, failed("complete", p.Key, err, true)
		}
		c = &change{ids: ids, key: p.Key}
		c.rec.Now, c.read = latest(p.Now, r.now, time.Now()), time.Now()
		if len(r.recs) > 0 {
			c.from, c.key = r.recs[0], r.recs[0].Key
		}
	}
	now := latest(p.Now, c.now())
	if !p.Now.IsZero() {
		now = p.Now
	}
	rec, write, err := p.Judge(c.from, c.from.State != "", now)
	if err != nil {
		t.failLocked(err)
		return idempo.Record{}, err
	}
	if !write {
		return rec, nil
	}
	if c.claim { // the claim was made then, not now
		rec.ClaimedAt, rec.LeaseUntil, rec.CreatedAt = c.rec.ClaimedAt, c.rec.LeaseUntil, c.rec.CreatedAt
		if !rec.StartedAt.IsZero() {
			rec.StartedAt = c.rec.StartedAt
		}
	}
	rec.Key = c.key
	return rec, s.finish(ctx, t, c, rec, p.Result.Failing, next)
}

// finish writes rec in the place of c.from, at once in a caller's transaction, else with COMMIT. t is locked.
func (s *Store) finish(ctx context.Context, t *session, c *change, rec idempo.Record, failing bool, next []Statement) error {
	statements := func(start any) []Statement {
		put := s.replacing(t, c, rec, start)
		return append(append(s.removals(t, c.over), put...), next...)
	}
	if !t.own {
		if err := s.port.Run(ctx, t.tx, statements(nil)...); err != nil {
			return failed("complete", rec.Key, err, true)
		}
		t.drop(c) // from now on the row says it
		return nil
	}
	if failing {
		c.fail = statements(nil)
	} else {
		t.queue = append(t.queue, statements(t.start)...)
	}
	c.rec, c.claim, c.queued = rec.Clone(), false, true
	return nil
}
