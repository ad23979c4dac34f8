package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Take implements idempo.Taker. Records that somebody has locked, or that change meanwhile, are passed over.
func (s *Store) Take(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
	if _, err := s.enter(ctx, "take", idempo.Key{}); err != nil {
		return nil, err
	}
	if p.Limit <= 0 || len(p.Operations) == 0 {
		return nil, nil
	}
	var r rows
	st := s.q["due"].with(nil, "operations", strings.Join(p.Operations, ","), "limit", int64(2*p.Limit+16), "now", clock(p.Now))
	st.Row = r.collect()
	if err := s.run(ctx, nil, st); err != nil {
		return nil, failed("take", idempo.Key{}, err, false)
	}
	type candidate struct{ old, rec idempo.Record }
	var due []candidate
	for _, old := range r.recs {
		if rec, ok := p.Judge(old, r.now); ok {
			due = append(due, candidate{old, rec})
		}
	}
	slices.SortStableFunc(due, func(a, b candidate) int { return sqlkit.Since(a.old).Compare(sqlkit.Since(b.old)) })
	var taken []idempo.Record
	for len(due) > 0 && len(taken) < p.Limit {
		n := min(len(due), p.Limit-len(taken))
		won := make([]int, n)
		statements := make([]Statement, n)
		for i, c := range due[:n] {
			statements[i] = s.swapStatement(c.old, c.rec, swapping{locks: s.locks(c.old.Key, []string{c.old.Key.ID}), wait: lockTimeout})
			statements[i].Row = counted(&won[i])
		}
		if err := s.run(ctx, nil, statements...); err != nil {
			return nil, failed("take", idempo.Key{}, err, false)
		}
		for i, c := range due[:n] {
			if won[i] == 1 {
				taken = append(taken, c.rec)
			}
		}
		due = due[n:]
	}
	return taken, nil
}
