package mysql

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// looked is how many rows at each end of the index of watches are looked at for running and doubtful records.
const looked = 2 * operator.ExactCounts

// Count implements operator.Counter. Running and doubtful records stand at the two ends of the index of watches; the others are
// counted up to operator.ExactCounts in all, in key order. Beyond, those stand for all, by the server's own idea of how many
// rows the table has; of one tenant or operation they are the least there are.
func (s *Store) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	stats, err := s.count(ctx, p)
	return stats, s.failed("count", idempo.Key{}, err, reading)
}

func (s *Store) count(ctx context.Context, p operator.CountParams) (stats operator.Stats, err error) {
	if stats.Now, err = s.clock(ctx, p.Now); err != nil {
		return stats, err
	}
	part := []any{"at", stats.Now, "tenant", p.Tenant, "operation", p.Operation}
	open, err := s.countOpen(ctx, &stats, part)
	if err != nil {
		return stats, err
	}
	n, total := map[idempo.State]int64{}, int64(0)
	err = each(ctx, s.db, s.q["count"].with(nil, append(part, "limit", int64(operator.ExactCounts+1))...), func(scan func(...any) error) error {
		var what idempo.State
		var some int64
		err := scan(&what, &some)
		n[what] += some
		total += some
		return err
	})
	scale, estimate := 1.0, total > operator.ExactCounts
	if err == nil && estimate && p.Tenant == "" && p.Operation == "" {
		var rows int64
		err = each(ctx, s.db, s.q["count_rows"].with(nil, "table", s.names.Prefix+"records"), func(scan func(...any) error) error { return scan(&rows) })
		scale = max(1, float64(rows)/float64(total))
	}
	for _, state := range operator.States() {
		c := operator.Count{State: state, Records: int64(float64(n[state]) * scale), Estimate: estimate}
		if state == idempo.StatePending || state == idempo.StateInDoubt {
			c.Records, c.Estimate = open[state], open[state] > operator.ExactCounts
		}
		stats.Counts = append(stats.Counts, c)
	}
	return stats, err
}

// countOpen counts the running and the doubtful and notes the oldest of them. No lease is longer than an hour.
func (s *Store) countOpen(ctx context.Context, stats *operator.Stats, part []any) (map[idempo.State]int64, error) {
	open := map[idempo.State]int64{}
	st := s.q["count_open"].with(nil, append(part, "soon", stats.Now.Add(time.Hour), "endless", endless, "look", int64(looked))...)
	err := each(ctx, s.db, st, func(scan func(...any) error) error {
		var what idempo.State
		var since *int64
		var key idempo.Key
		if err := scan(&what, &since, &key.Tenant, &key.Operation, &key.ID); err != nil {
			return err
		}
		open[what]++
		oldest := &stats.OldestPending
		if what == idempo.StateInDoubt {
			oldest = &stats.OldestInDoubt
		}
		if t := utc(since); oldest.Since.IsZero() || t.Before(oldest.Since) {
			*oldest = operator.Oldest{Key: key, Since: t}
		}
		return nil
	})
	return open, err
}
