package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo"
)

// swapping is what a swap does besides writing the record.
type swapping struct {
	ids   []string // digests to occupy where they are missing
	locks string   // advisory locks that must be free; "": not asked
	free  []string // aliases to give back
	must  bool     // fail rather than write nothing
	wait  any      // the lock_timeout, nil: the transaction's own
	start any      // of the transaction in which it must run
	moves bool     // the attempt that ends moves to table attempts although no other begins
}

// swapStatement writes rec in the place of old if old is still what is there.
func (s *Store) swapStatement(old, rec idempo.Record, o swapping) Statement {
	rec.Key.ID = old.Key.ID
	return s.q["swap"].with(values(rec, time.Time{}), append(s.old(old),
		"watch_at", watch(rec, time.Time{}), "digests", digests(o.ids), "free", digests(o.free), "must", o.must,
		"archive", o.moves, "start", o.start, "locks", optional(o.locks), "timeout", o.wait)...)
}

// old is the condition that a row is still the one that was read.
func (s *Store) old(r idempo.Record) []any {
	v := values(r, time.Time{})
	return []any{"old_attempt", r.Attempt, "old_state", string(r.State), "old_token", v[column("token")],
		"old_changed_at", clock(r.ChangedAt), "old_refs", v[column("refs")]}
}

// swap does swapStatement at once and reports whether it wrote.
func (s *Store) swap(ctx context.Context, t *session, old, rec idempo.Record, o swapping) (bool, error) {
	o.wait = timeout(t)
	st := s.swapStatement(old, rec, o)
	var n int
	st.Row = counted(&n)
	err := s.run(ctx, t, st)
	return n == 1, err
}

// counted is the Row of a write: the clock, and how many rows it wrote.
func counted(n *int) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		var now time.Time
		return scan(&now, n)
	}
}

// putStatements insert rec where nothing was, under all of ids; they fail rather than write nothing.
func (s *Store) putStatements(rec idempo.Record, ids []string, start, timeout any) []Statement {
	v := values(rec, time.Time{})
	if rec.State != idempo.StateCompleted {
		return []Statement{s.q["put_many"].with(v, "start", start, "timeout", timeout, "digests", digests(ids), "watch_at", watch(rec, time.Time{}))}
	}
	put := []Statement{s.q["finish"].with(v, "start", start)}
	if len(ids) > 1 {
		put = append(put, s.q["alias"].with(v, "digests", digests(ids[1:])))
	}
	return put
}

// replacing writes rec in the place of what c was read from, or fails.
func (s *Store) replacing(t *session, c *change, rec idempo.Record, start any) []Statement {
	if c.from.State == "" {
		return s.putStatements(rec, c.ids, start, timeout(t))
	}
	st := s.swapStatement(c.from, rec, swapping{ids: c.ids, must: true, start: start, wait: timeout(t)})
	st.Row = counted(new(int))
	return []Statement{st}
}

// removeStatement deletes the row of old with its aliases and earlier attempts, if it is still there.
func (s *Store) removeStatement(t *session, old idempo.Record, n *int) Statement {
	st := s.q["remove"].with(values(old, time.Time{}), append(s.old(old), "timeout", timeout(t))...)
	st.Row = counted(n)
	return st
}

// remove does removeStatement at once and reports whether the row was still there.
func (s *Store) remove(ctx context.Context, t *session, old idempo.Record) (bool, error) {
	var n int
	err := s.run(ctx, t, s.removeStatement(t, old, &n))
	return n == 1, err
}

// removals are removeStatements of records that leave when another takes their digest.
func (s *Store) removals(t *session, old []idempo.Record) []Statement {
	statements := make([]Statement, 0, len(old)+2)
	for _, rec := range old {
		statements = append(statements, s.removeStatement(t, rec, new(int)))
	}
	return statements
}

// judge is the Judge method of a write.
type judge func(r idempo.Record, found bool, now time.Time) (rec idempo.Record, write bool, err error)

// writing is one write of a key that a claim has won.
type writing struct {
	op     string
	key    idempo.Key
	now    time.Time
	judge  judge
	free   []string                                 // aliases that go with it
	moves  bool                                     // see swapping
	commit func(old, rec idempo.Record) []Statement // what is written together with the record, instead of a swap
}

// update reads the record of w.key, judges, and writes what was judged if the row is still the same; again, up to five
// times, where it is not.
func (s *Store) update(ctx context.Context, t *session, w writing) (idempo.Record, error) {
	if t != nil {
		t.mu.Lock()
		c := t.find(w.key, []string{w.key.ID})
		t.mu.Unlock()
		if c != nil {
			return s.updateChange(ctx, t, c, w)
		}
	}
	for range tries {
		r, err := s.read(ctx, t, w.key, []string{w.key.ID}, w.now)
		if err != nil {
			return idempo.Record{}, failed(w.op, w.key, err, t != nil)
		}
		var old idempo.Record
		if len(r.recs) > 0 {
			old = r.recs[0]
		}
		rec, write, err := w.judge(old, len(r.recs) > 0, r.now)
		if err != nil || !write {
			return rec, err
		}
		ok, err := s.write(ctx, t, w, old, rec)
		if err != nil && (t != nil || sqlState(err) != "22P02") {
			return idempo.Record{}, failed(w.op, w.key, err, t != nil)
		}
		if ok {
			return rec, nil
		}
	}
	return idempo.Record{}, &idempo.Error{Op: w.op, Code: "unavailable", KeyRef: w.key.Ref(), Hint: "the record kept changing, or is locked"}
}

// write writes rec in the place of old and reports whether old was still there.
func (s *Store) write(ctx context.Context, t *session, w writing, old, rec idempo.Record) (bool, error) {
	switch {
	case rec.State == "":
		return s.remove(ctx, t, old)
	case w.commit != nil:
		return true, s.run(ctx, t, w.commit(old, rec)...)
	}
	return s.swap(ctx, t, old, rec, swapping{free: w.free, moves: w.moves})
}

// Renew implements idempo.Store.
func (s *Store) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	t, err := s.enter(ctx, "renew", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	if t == nil && p.Refer.IsZero() && !p.Token.IsZero() {
		if rec, ok, err := s.renewFast(ctx, p); err != nil || ok {
			return rec, err
		}
	}
	return s.update(ctx, t, writing{op: "renew", key: p.Key, now: p.Now,
		judge: func(r idempo.Record, found bool, now time.Time) (idempo.Record, bool, error) {
			rec, err := p.Judge(r, found, now)
			return rec, err == nil, err
		}})
}

// renewFast renews in one statement that repeats the rule as its condition. Where it changes nothing, the row is read
// and judged.
func (s *Store) renewFast(ctx context.Context, p idempo.RenewParams) (idempo.Record, bool, error) {
	var r rows
	st := s.q["renew"].with(nil, "tenant_id", p.Key.Tenant, "operation", p.Key.Operation, "idempotency_key", []byte(p.Key.ID),
		"token", p.Token[:], "lease_until", after+p.Lease.Microseconds(), "begin", p.Start, "derived_key", optional(p.DerivedKey),
		"now", clock(p.Now), "timeout", lockTimeout)
	st.Row = r.collect(&r.server)
	if err := s.run(ctx, nil, st); err != nil {
		return idempo.Record{}, false, failed("renew", p.Key, err, false)
	}
	if len(r.recs) == 0 {
		return idempo.Record{}, false, nil
	}
	if err := s.answered(ctx, nil, r.server); err != nil {
		return idempo.Record{}, false, failed("renew", p.Key, err, false)
	}
	return r.recs[0], true, nil
}

// Release implements idempo.Store.
func (s *Store) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	t, err := s.enter(ctx, "release", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	w := writing{op: "release", key: p.Key, now: p.Now, judge: p.Judge}
	if p.To == idempo.StateFailed {
		w.free = p.Free
	}
	return s.update(ctx, t, w)
}

func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}
