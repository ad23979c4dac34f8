package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// rows collects records that a statement returns, and the server's clock.
type rows struct {
	recs  []idempo.Record
	alias bool // a row that only points at a record was among them
	now   time.Time

	server time.Time // when the server started, where a claim read it
	listed bool      // one that cannot be read is no error
}

// collect is a Statement's Row: the columns of a record, then the clock, then more.
func (r *rows) collect(more ...any) func(func(...any) error) error {
	return func(scan func(...any) error) error {
		var row sqlkit.Row
		if err := scan(append(append(row.Dest(), &r.now), more...)...); err != nil {
			return err
		}
		return r.add(&row)
	}
}

func (r *rows) add(row *sqlkit.Row) error {
	r.now = r.now.UTC()
	if row.Alias() != "" {
		r.alias = true
		return nil
	}
	rec, err := row.Record()
	switch {
	case err != nil && !r.listed:
		return err
	case err != nil:
		rec = row.Listed()
	}
	rec.Now = r.now
	if !slices.ContainsFunc(r.recs, func(x idempo.Record) bool { return x.Key == rec.Key }) {
		r.recs = append(r.recs, rec)
	}
	return nil
}

// reading returns the statement that reads the records of ids, in their order. For one digest it is a plain read that
// does not follow an alias: then r.alias is set.
func (s *Store) reading(r *rows, key idempo.Key, ids []string, now time.Time) Statement {
	if len(ids) == 1 {
		st := s.q["read"].with(nil, "tenant_id", key.Tenant, "operation", key.Operation, "idempotency_key", []byte(ids[0]), "now", clock(now))
		st.Row = r.collect(&r.server)
		return st
	}
	st := s.q["read_many"].with(nil, "tenant_id", key.Tenant, "operation", key.Operation, "digests", digests(ids), "now", clock(now))
	st.Row = r.collect(&r.server)
	return st
}

// read returns the records of ids as they are stored, in the order of ids, at one moment of the server's clock, which is
// zero where there is none.
func (s *Store) read(ctx context.Context, t *session, key idempo.Key, ids []string, now time.Time) (rows, error) {
	var r rows
	err := s.run(ctx, t, s.reading(&r, key, ids, now))
	if err == nil {
		err = s.answered(ctx, t, r.server)
	}
	if err != nil {
		return rows{}, err
	}
	if r.alias {
		r = rows{}
		return r, s.run(ctx, t, s.reading(&r, key, append(ids, ids[0]), now))
	}
	return r, nil
}

// look reads what p's key stands for. A key's record is under its first digest but while digest keys are being changed, so
// that one is asked for alone at first.
func (s *Store) look(ctx context.Context, t *session, p idempo.LookupParams, ids []string) (rows, error) {
	var r rows
	st := s.reading(&r, p.Key, ids[:1], p.Now)
	if p.WithoutBody {
		st = s.q["lookup"].with(nil, "tenant_id", p.Key.Tenant, "operation", p.Key.Operation, "idempotency_key", []byte(p.Key.ID), "now", clock(p.Now))
		st.Row = r.collect(&r.server)
	}
	err := s.run(ctx, t, st)
	if err == nil {
		err = s.answered(ctx, t, r.server)
	}
	if err != nil {
		return rows{}, err
	}
	if len(r.recs) > 0 {
		if _, live := r.recs[0].Effective(r.now); live || len(ids) == 1 {
			return r, nil
		}
	} else if len(ids) == 1 && !r.alias {
		return r, nil
	}
	return s.read(ctx, t, p.Key, append(ids, ids[0]), p.Now)
}

// Lookup implements idempo.Store. In a transaction it sees what the transaction did.
func (s *Store) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	t, err := s.enter(ctx, "lookup", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	ids := append([]string{p.Key.ID}, p.Aliases...)
	r, err := s.look(ctx, t, p, ids)
	if err != nil {
		return idempo.Record{}, failed("lookup", p.Key, err, t != nil)
	}
	now := r.now
	if t != nil {
		t.mu.Lock()
		c := t.find(p.Key, ids)
		t.mu.Unlock()
		if c != nil {
			now = latest(now, p.Now, c.rec.ChangedAt, c.rec.Now)
			rec, _ := c.seen(now)
			r.recs = []idempo.Record{rec.Clone()}
		}
	}
	for _, rec := range r.recs {
		if eff, ok := rec.Effective(now); ok {
			if p.WithoutBody {
				eff.Result.Body = nil
			}
			return eff, nil
		}
	}
	return idempo.Record{Now: now}, nil
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}
