package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// row is a record as it is stored. The zero row is none.
type row struct {
	rec     idempo.Record
	aliases []string
	rev     int64
}

// rows are records that a statement returned, and the server's clock.
type rows struct {
	rows  []row
	alias bool // a row that only points at a record was among them
	now   time.Time

	listed bool // one that cannot be read is no error
}

// records are the rows' records.
func (r rows) records() []idempo.Record {
	out := make([]idempo.Record, len(r.rows))
	for i, x := range r.rows {
		out[i] = x.rec
	}
	return out
}

// pick returns the row that p is written over, the zero row if none, and the rows of other keys that are gone and leave
// for it.
func (r rows) pick(p idempo.AcquireParams) (old row, over []row) {
	for _, x := range r.rows {
		_, live := x.rec.Effective(r.now)
		switch {
		case !live && p.Foreign(x.rec):
			over = append(over, x)
		case old.rec.State == "":
			old = x
		}
	}
	return old, over
}

// add scans the columns of a record, its aliases, its rev, the clock, and more.
func (r *rows) add(scan func(...any) error, more ...any) error {
	k := sqlkit.Row{Micros: true}
	var aliases []byte
	var rev *int64
	var now int64
	if err := scan(append(append(k.Dest(), &aliases, &rev, &now), more...)...); err != nil {
		return err
	}
	r.now = time.UnixMicro(now).UTC()
	switch {
	case rev == nil: // the clock alone
		return nil
	case k.Alias() != "":
		r.alias = true
		return nil
	}
	rec, err := k.Record()
	switch {
	case err != nil && !r.listed:
		return err
	case err != nil:
		rec = k.Listed()
	}
	rec.Now = r.now
	if !slices.ContainsFunc(r.rows, func(x row) bool { return x.rec.Key == rec.Key }) {
		r.rows = append(r.rows, row{rec, split(aliases), *rev})
	}
	return nil
}

// split takes a column of digests apart.
func split(b []byte) []string {
	var out []string
	for len(b) >= 32 {
		out = append(out, string(b[:32]))
		b = b[32:]
	}
	return out
}

// keyArgs are the arguments by which statements name a key.
func keyArgs(key idempo.Key, more ...any) []any {
	return append([]any{"tenant_id", key.Tenant, "operation", key.Operation, "idempotency_key", key.ID}, more...)
}

// at is the clock argument: given, or the server's.
func at(given time.Time) any {
	if given.IsZero() {
		return raw(clock)
	}
	return given.UnixMicro()
}

// read returns the records of ids as they are stored, in the order of ids. No lock is taken.
func (s *Store) read(ctx context.Context, on queryer, key idempo.Key, ids []string, now time.Time) (rows, error) {
	if len(ids) > 1 {
		return s.many(ctx, on, s.q["read_many"], key, ids, "clock", at(now))
	}
	key.ID = ids[0]
	st := s.q["read"].with(nil, keyArgs(key, "clock", at(now))...)
	for try := 1; ; try++ {
		var r rows
		err := each(ctx, on, st, func(scan func(...any) error) error { return r.add(scan) })
		if on != queryer(s.db) || !conflict(s.number(err)) || try > 3 || !pause(ctx, time.Duration(try)*5*time.Millisecond) {
			return r, err
		}
	}
}

// patience says whether a locking read waits for a row.
type patience raw

const (
	nowait patience = "nowait"
	wait   patience = "" // up to the session's lock wait time-out
)

// lock is read of the rows as they are now, whatever the transaction saw before, locked until it ends. It runs in x, or
// where x is nil by itself, to learn whether the rows are free.
func (s *Store) lock(ctx context.Context, x *session, key idempo.Key, ids []string, now time.Time, p patience) (rows, error) {
	var on queryer = s.db
	if x != nil {
		on = x.on
	}
	if len(ids) == 1 {
		var r rows
		key.ID = ids[0]
		err := each(ctx, on, s.q["lock"].with(nil, keyArgs(key, "clock", at(now), "nowait", raw(p))...), func(scan func(...any) error) error { return r.add(scan) })
		if err != nil || !r.alias {
			return r, err
		}
	}
	return s.many(ctx, on, s.q["lock_many"], key, ids, "clock", at(now), "nowait", raw(p))
}

// probe is lock, without waiting, of a key that is expected to be new: a row that is there is said to be, not read.
func (s *Store) probe(ctx context.Context, x *session, key idempo.Key, now time.Time) (r rows, there bool, err error) {
	var on queryer = s.db
	if x != nil {
		on = x.on
	}
	err = each(ctx, on, s.q["probe"].with(nil, keyArgs(key, "clock", at(now))...), func(scan func(...any) error) error {
		var rev *int64
		var now int64
		err := scan(&rev, &now)
		r.now, there = time.UnixMicro(now).UTC(), rev != nil
		return err
	})
	return r, there, err
}

// many runs a query of several digests and brings its rows into their order.
func (s *Store) many(ctx context.Context, on queryer, q query, key idempo.Key, ids []string, args ...any) (rows, error) {
	type found struct {
		place int
		rows
	}
	var all []found
	st := q.with(nil, append(args, "tenant_id", key.Tenant, "operation", key.Operation, "digests", ids)...)
	err := each(ctx, on, st, func(scan func(...any) error) error {
		var f found
		var digest []byte
		err := f.add(scan, &digest)
		f.place = slices.Index(ids, string(digest))
		all = append(all, f)
		return err
	})
	slices.SortStableFunc(all, func(a, b found) int { return a.place - b.place })
	var r rows
	for _, f := range all {
		r.now = f.now
		for _, one := range f.rows.rows {
			if !slices.ContainsFunc(r.rows, func(x row) bool { return x.rec.Key == one.rec.Key }) {
				r.rows = append(r.rows, one)
			}
		}
	}
	return r, err
}

// Lookup implements idempo.Store. In a transaction it sees what the transaction did, and what its isolation shows it of
// others.
func (s *Store) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	t, err := s.enter(ctx, "lookup", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	ids := append([]string{p.Key.ID}, p.Aliases...)
	var on queryer = s.db
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if c := t.find(p.Key, ids); c != nil {
			now := c.now(p.Now)
			rec, _ := c.seen(now).Effective(now)
			if p.WithoutBody {
				rec.Result.Body = nil
			}
			return rec, nil
		}
		if t.on != nil {
			on = t.on
		}
	}
	var r rows
	if p.WithoutBody && len(ids) == 1 {
		err = each(ctx, on, s.q["read_bodiless"].with(nil, keyArgs(p.Key, "clock", at(p.Now))...), func(scan func(...any) error) error { return r.add(scan) })
	} else {
		r, err = s.read(ctx, on, p.Key, ids, p.Now)
	}
	if err != nil {
		return idempo.Record{}, s.failed("lookup", p.Key, err, where(t))
	}
	for _, x := range r.rows {
		if eff, ok := x.rec.Effective(r.now); ok {
			if p.WithoutBody {
				eff.Result.Body = nil
			}
			return eff, nil
		}
	}
	return idempo.Record{Now: r.now}, nil
}
