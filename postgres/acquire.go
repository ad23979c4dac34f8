package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// tries bounds the loops that meet a row that others keep changing.
const tries = 5

// Acquire implements idempo.Store. A leased claim is one statement; where it meets a row that may be taken over, a
// second one takes it over if it is still the same. An atomic claim reads and takes an advisory lock, in the flight of
// BEGIN where InTx has not begun yet; nothing is written before Complete.
func (s *Store) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	t, err := s.enter(ctx, "acquire", p.Key)
	if err != nil {
		return idempo.Acquired{}, err
	}
	once := s.claimLeased
	if p.Issue == 0 && p.Due.IsZero() {
		if (p.Guard == idempo.GuardAtomic) != (t != nil) {
			return idempo.Acquired{}, misuse("acquire", p.Key, "an atomic claim needs a transaction in its context, a leased one must have none")
		}
		if t != nil {
			once = s.claimAtomic
		}
	}
	ids := sqlkit.Digests(p)
	until := time.Now().Add(p.Wait)
	for moved, polls := 0, 0; ; {
		a, out, err := once(ctx, t, p, ids)
		switch {
		case err != nil:
			return idempo.Acquired{}, failed("acquire", p.Key, err, t != nil)
		case out == decided:
			return a, nil
		case out == changed:
			if moved++; moved == tries {
				return idempo.Acquired{}, &idempo.Error{Op: "acquire", Code: "unavailable", KeyRef: p.Key.Ref(), Hint: "the record kept changing"}
			}
			continue
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
	changed         // the row changed under the try
)

// inUse is the verdict for a key that an open transaction has: its owner and age are unknown.
func inUse(p idempo.AcquireParams, now time.Time) idempo.Acquired {
	rec := idempo.Record{Key: p.Key, State: idempo.StatePending, Guard: p.Guard, Now: now}
	return idempo.Acquired{Verdict: idempo.VerdictInProgress, Record: rec, RetryAfter: time.Second}
}

// claimLeased is one try at a leased claim, an issued or an enqueued key.
func (s *Store) claimLeased(ctx context.Context, t *session, p idempo.AcquireParams, ids []string) (idempo.Acquired, outcome, error) {
	if t != nil {
		t.mu.Lock()
		c := t.find(p.Key, ids)
		t.mu.Unlock()
		if c != nil {
			now := latest(p.Now, c.now())
			r, found := c.seen(now)
			a, write, err := p.Judge(r, found, now)
			if err != nil || !write {
				return a, decided, err
			}
			return a, decided, s.writeChange(ctx, t, c, a.Record)
		}
	}
	r, won, err := s.claimOrRead(ctx, t, p, ids)
	switch {
	case err != nil:
		if sqlState(err) == "22P02" || sqlState(err) == "55P03" && t == nil {
			return idempo.Acquired{}, busy, nil // another took one of the digests, or holds it open
		}
		return idempo.Acquired{}, busy, err
	case won:
		a, _, err := p.Judge(idempo.Record{}, false, r.now)
		return a, decided, err
	case len(r.recs) == 0:
		// The further statement: it sees what the winner wrote, if it is committed.
		if r, err = s.read(ctx, t, p.Key, ids, p.Now); err != nil {
			return idempo.Acquired{}, busy, err
		}
		if len(r.recs) == 0 {
			return idempo.Acquired{}, busy, nil
		}
	}
	a, over, write, err := sqlkit.JudgeAll(p, r.recs, r.now)
	if err != nil || !write {
		return a, decided, err
	}
	if len(over) > 0 {
		for _, rec := range over {
			if _, err := s.remove(ctx, t, rec); err != nil {
				return a, busy, err
			}
		}
		return a, changed, nil
	}
	ok, err := s.swap(ctx, t, r.recs[0], a.Record, swapping{ids: ids, locks: s.locks(p.Key, ids)})
	switch {
	case sqlState(err) == "22P02":
		return a, changed, nil // a digest that was free is another record's by now
	case sqlState(err) == "55P03" && t == nil:
		return a, busy, nil
	}
	if err != nil || ok {
		return a, decided, err
	}
	again, err := s.read(ctx, t, p.Key, ids, p.Now)
	if err != nil {
		return a, busy, err
	}
	if len(again.recs) > 0 && same(again.recs[0], r.recs[0]) {
		return a, busy, nil // untouched, so somebody has its lock
	}
	return a, changed, nil
}

// claimOrRead inserts the row of p where none of ids has one, and returns the records that are there otherwise.
func (s *Store) claimOrRead(ctx context.Context, t *session, p idempo.AcquireParams, ids []string) (r rows, won bool, err error) {
	now := p.Now
	if now.IsZero() {
		now = time.Now()
	}
	fresh, _, refused := p.Judge(idempo.Record{}, false, now)
	if refused != nil {
		if r, err = s.read(ctx, t, p.Key, ids, p.Now); err == nil && len(r.recs) == 0 {
			err = refused
		}
		return r, false, err
	}
	rec := fresh.Record
	extra := []any{"now", clock(p.Now), "watch_at", watch(rec, now), "timeout", timeout(t)}
	name := "claim"
	if len(ids) > 1 {
		name = "claim_many"
		extra = append(extra, "digests", digests(ids), "locks", s.locks(p.Key, ids))
	} else {
		extra = append(extra, "lock", s.lock(p.Key, ids[0]))
	}
	st := s.q[name].with(values(rec, now), extra...)
	st.Row = claimRow(&r, &won, len(ids) > 1)
	if err = s.run(ctx, t, st); err == nil {
		err = s.answered(ctx, t, r.server)
	}
	if err != nil || !r.alias {
		return r, won, err
	}
	r, err = s.read(ctx, t, p.Key, ids, p.Now)
	return r, false, err
}

// same reports whether a and b are one row in one state.
func same(a, b idempo.Record) bool {
	return a.Key == b.Key && a.Attempt == b.Attempt && a.State == b.State && a.Token.Equal(b.Token) && a.ChangedAt.Equal(b.ChangedAt)
}

// claimAtomic is one try at an atomic claim in t.
func (s *Store) claimAtomic(ctx context.Context, t *session, p idempo.AcquireParams, ids []string) (idempo.Acquired, outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.find(p.Key, ids); c != nil {
		now := latest(p.Now, c.now())
		r, found := c.seen(now)
		a, write, err := p.Judge(r, found, now)
		if write && err == nil {
			c.won(a.Record)
		}
		return a, decided, err
	}
	var r rows
	var l locking
	var err error
	if f := t.taken(p.Key, ids); f != nil {
		l, r = f.l, f.r
	} else if l, err = s.lockAndRead(ctx, t, p, ids, &r); err != nil {
		return idempo.Acquired{}, busy, err
	}
	if r.alias {
		r = rows{}
		if err := s.runLocked(ctx, t, s.reading(&r, p.Key, append(ids, ids[0]), p.Now)); err != nil {
			return idempo.Acquired{}, busy, err
		}
	}
	c := &change{ids: ids}
	var a idempo.Acquired
	if len(r.recs) > 0 {
		var over []idempo.Record
		var write bool
		if a, over, write, err = sqlkit.JudgeAll(p, r.recs, r.now); err != nil || !write {
			return a, decided, err
		}
		c.over = over
		for _, rec := range r.recs {
			if rec.Key == a.Record.Key && !p.Foreign(rec) {
				c.from = rec
			}
		}
		if c.from.State != "" && !contains(c.ids, c.from.Key.ID) {
			c.ids = append(c.ids, c.from.Key.ID)
		}
	} else if a, _, err = p.Judge(idempo.Record{}, false, l.now); err != nil {
		return a, decided, err
	}
	switch {
	case l.locked == nil: // final a moment ago, and gone by now
		return a, changed, nil
	case !*l.locked:
		return a, busy, nil
	}
	c.key = a.Record.Key
	c.won(a.Record)
	t.changes = append(t.changes, c)
	return a, decided, nil
}

// locking is what the lock statement answers.
type locking struct {
	locked *bool // nil: not needed
	now    time.Time
	server time.Time // when it started
	start  int64     // of the transaction
}

// lockAndRead sends the lock statement and, behind it, the read that counts; both in the flight of BEGIN where t is not
// begun yet. t is locked.
func (s *Store) lockAndRead(ctx context.Context, t *session, p idempo.AcquireParams, ids []string, r *rows) (l locking, err error) {
	statements := []Statement{s.locking(t, p, ids, &l, t.tx == nil), s.reading(r, p.Key, ids, p.Now)}
	if err = s.inSession(ctx, t, &l, statements...); err == nil {
		err = s.servers.check(l.server, func(st Statement) error { return s.port.Run(ctx, t.tx, st) }, s.q)
	}
	return l, err
}

// inSession runs statements in t, and begins t with them where it is not begun yet; then l is what the first one answers.
func (s *Store) inSession(ctx context.Context, t *session, l *locking, statements ...Statement) error {
	if t.tx != nil {
		return s.port.Run(ctx, t.tx, statements...)
	}
	tx, err := s.port.Begin(ctx, statements...)
	if err == nil {
		t.tx, t.start = tx, l.start
	}
	return err
}

// locking is the lock statement of p, whose answer goes to l. first: the transaction begins with it.
func (s *Store) locking(t *session, p idempo.AcquireParams, ids []string, l *locking, first bool) (st Statement) {
	extra := []any{"tenant_id", p.Key.Tenant, "operation", p.Key.Operation, "now", clock(p.Now)}
	if first {
		extra = append(extra, "idle", s.o.idle())
	}
	if len(ids) == 1 {
		st = s.q["lock"].with(nil, append(extra, "idempotency_key", []byte(ids[0]), "lock", s.lock(p.Key, ids[0]))...)
	} else {
		st = s.q["lock_many"].with(nil, append(extra, "digests", digests(ids), "locks", s.locks(p.Key, ids))...)
	}
	st.Row = func(scan func(...any) error) error {
		var set string
		err := scan(&set, &l.start, &l.locked, &l.now, &l.server)
		l.now = l.now.UTC()
		return err
	}
	return st
}

// claimRow is the Row of the claim statements: whether the row was won, a record that was there, the clock, and for
// several digests the place.
func claimRow(r *rows, won *bool, many bool) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		var row sqlkit.Row
		var mine *bool
		var place *int64
		dest := append(append([]any{&mine}, row.Dest()...), &r.now, &r.server)
		if many {
			dest = append(dest, &place)
		}
		if err := scan(dest...); err != nil {
			return err
		}
		r.now = r.now.UTC()
		if mine != nil {
			*won = true
			return nil
		}
		return r.add(&row)
	}
}
