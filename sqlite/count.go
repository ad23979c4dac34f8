package sqlite

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// drawn is how many rows an estimate looks at.
const drawn = 5000

// Count implements operator.Counter. Running and doubtful records have indexes of their own; the others are counted up to
// operator.ExactCounts in all, and estimated from rows drawn at random beyond.
func (s *Store) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	now := s.now(p.Now)
	stats := operator.Stats{Now: now}
	lower, upper := []byte(p.Tenant), []byte(p.Tenant)
	if p.Tenant == "" {
		upper = []byte{0xff} // no tenant is as high: they are UTF-8
	}
	part := []any{now.UnixMicro(), lower, upper, p.Operation}
	open, err := s.countOpen(ctx, &stats, append(part, operator.ExactCounts+1))
	if err != nil {
		return operator.Stats{}, failure("count", idempo.Key{}, err, false)
	}
	n, total, err := s.countRows(ctx, "count", append(part, operator.ExactCounts+1))
	if err != nil {
		return operator.Stats{}, failure("count", idempo.Key{}, err, false)
	}
	scale := 1.0
	estimate := total > operator.ExactCounts
	if estimate {
		rows, err := s.countPlaces(ctx)
		if err != nil {
			return operator.Stats{}, failure("count", idempo.Key{}, err, false)
		}
		if n, _, err = s.countRows(ctx, "count_sample", append(part, rows, drawn)); err != nil {
			return operator.Stats{}, failure("count", idempo.Key{}, err, false)
		}
		scale = float64(rows) / drawn
	}
	for _, state := range operator.States() {
		c := operator.Count{State: state, Records: int64(float64(n[state]) * scale), Estimate: estimate}
		if state == idempo.StatePending || state == idempo.StateInDoubt {
			c.Records, c.Estimate = open[state], open[state] > operator.ExactCounts
		}
		stats.Counts = append(stats.Counts, c)
	}
	return stats, nil
}

// countRows returns how many records count as each state, and how many rows were looked at.
func (s *Store) countRows(ctx context.Context, name string, args []any) (n map[idempo.State]int64, total int64, err error) {
	rows, err := s.readRows(ctx, name, args...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	n = map[idempo.State]int64{}
	for rows.Next() {
		var what string
		var count int64
		if err := rows.Scan(&what, &count); err != nil {
			return nil, 0, err
		}
		n[idempo.State(what)] += count
		total += count
	}
	return n, total, rows.Err()
}

func (s *Store) countPlaces(ctx context.Context) (n int64, err error) {
	rows, err := s.readRows(ctx, "count_rows")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return max(n, 1), rows.Err()
}

// countOpen counts the running and the doubtful and notes the oldest of them.
func (s *Store) countOpen(ctx context.Context, stats *operator.Stats, args []any) (map[idempo.State]int64, error) {
	rows, err := s.readRows(ctx, "count_open", args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	open := map[idempo.State]int64{}
	for rows.Next() {
		var what string
		var n, since int64
		var tenant, operation, id []byte
		if err := rows.Scan(&what, &n, &since, &tenant, &operation, &id); err != nil {
			return nil, err
		}
		open[idempo.State(what)] = n
		oldest := operator.Oldest{Key: idempo.Key{Tenant: string(tenant), Operation: string(operation), ID: string(id)}, Since: time.UnixMicro(since).UTC()}
		if idempo.State(what) == idempo.StateInDoubt {
			stats.OldestInDoubt = oldest
		} else {
			stats.OldestPending = oldest
		}
	}
	return open, rows.Err()
}
