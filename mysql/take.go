package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Take implements idempo.Taker. Records that somebody has locked are passed over.
func (s *Store) Take(ctx context.Context, p idempo.TakeParams) (taken []idempo.Record, err error) {
	t, err := s.enter(ctx, "take", idempo.Key{})
	switch {
	case err != nil:
		return nil, err
	case t != nil:
		return nil, misuse("take", idempo.Key{}, "due records are taken outside of transactions")
	case p.Limit <= 0 || len(p.Operations) == 0:
		return nil, nil
	}
	err = s.short(ctx, "take", idempo.Key{}, func(x *session) error {
		taken, err = s.take(ctx, x, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

func (s *Store) take(ctx context.Context, x *session, p idempo.TakeParams) ([]idempo.Record, error) {
	var r rows
	args := []any{"operations", p.Operations, "limit", int64(2*p.Limit + 16), "clock", at(p.Now)}
	if !p.Now.IsZero() {
		args = append(args, "now", p.Now)
	}
	if err := each(ctx, x.on, s.q["due"].with(nil, args...), func(scan func(...any) error) error { return r.add(scan) }); err != nil {
		return nil, err
	}
	type candidate struct {
		old row
		rec idempo.Record
	}
	var due []candidate
	for _, old := range r.rows {
		if rec, ok := p.Judge(old.rec, r.now); ok {
			due = append(due, candidate{old, rec})
		}
	}
	slices.SortStableFunc(due, func(a, b candidate) int { return sqlkit.Since(a.old.rec).Compare(sqlkit.Since(b.old.rec)) })
	var taken []idempo.Record
	for _, c := range due[:min(len(due), p.Limit)] {
		sqlkit.Micros(&c.rec)
		if c.old.rec.Attempt > 0 {
			if _, err := exec(ctx, x.on, s.q["archive"].with(&c.rec)); err != nil {
				return nil, err
			}
		}
		if _, err := s.update(ctx, x, c.old, c.rec, c.old.aliases, time.Time{}); err != nil {
			return nil, err
		}
		taken = append(taken, c.rec)
	}
	return taken, nil
}
