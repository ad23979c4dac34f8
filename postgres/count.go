package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// drawn is about how many rows an estimate looks at.
const drawn = 30_000

// counting is what the statements of one Count have found.
type counting struct {
	n     map[idempo.State]int64
	total int64
}

// Count implements operator.Counter. Running and doubtful records are found without reading the rest; the others are counted
// up to operator.ExactCounts in all, and estimated from a sample of the table's blocks beyond.
func (s *Store) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	stats, open, err := s.countOpen(ctx, p)
	if err != nil {
		return operator.Stats{}, unread("count", idempo.Key{}, err)
	}
	got, err := s.counted(ctx, "count", p, "limit", int64(operator.ExactCounts+1))
	if err != nil {
		return operator.Stats{}, unread("count", idempo.Key{}, err)
	}
	scale, estimate := 1.0, got.total > operator.ExactCounts
	if estimate {
		if got, scale, err = s.sampled(ctx, p); err != nil {
			return operator.Stats{}, unread("count", idempo.Key{}, err)
		}
	}
	for _, state := range operator.States() {
		c := operator.Count{State: state, Records: int64(float64(got.n[state]) * scale), Estimate: estimate}
		if state == idempo.StatePending || state == idempo.StateInDoubt {
			c.Records, c.Estimate = open[state], open[state] > operator.ExactCounts
		}
		stats.Counts = append(stats.Counts, c)
	}
	return stats, nil
}

func (s *Store) counted(ctx context.Context, name string, p operator.CountParams, more ...any) (counting, error) {
	got := counting{n: map[idempo.State]int64{}}
	st := s.q[name].with(nil, append([]any{"tenant", p.Tenant, "operation", p.Operation, "now", clock(p.Now)}, more...)...)
	st.Row = func(scan func(...any) error) error {
		var what string
		var n int64
		if err := scan(&what, &n); err != nil {
			return err
		}
		got.n[idempo.State(what)] += n
		got.total += n
		return nil
	}
	return got, s.run(ctx, nil, st)
}

// sampled looks at a share of the table and returns by how much to multiply what was found.
func (s *Store) sampled(ctx context.Context, p operator.CountParams) (counting, float64, error) {
	permille, err := s.share(ctx)
	if err != nil {
		return counting{}, 0, err
	}
	got, err := s.counted(ctx, "count_sample", p, "permille", permille)
	return got, 1000 / float64(permille), err
}

// share is how much of the table a sample looks at, in thousandths. A table that was never analysed is read as a whole.
func (s *Store) share(ctx context.Context) (permille int64, err error) {
	var rows float64
	size := s.q["count_rows"].with(nil, "records", s.names.Table("records"))
	size.Row = func(scan func(...any) error) error { return scan(&rows) }
	err = s.run(ctx, nil, size)
	return max(1, int64(1000*drawn/max(rows, drawn))), err
}

// countOpen counts the running and the doubtful and notes the oldest of them.
func (s *Store) countOpen(ctx context.Context, p operator.CountParams) (stats operator.Stats, open map[idempo.State]int64, err error) {
	open = map[idempo.State]int64{}
	st := s.q["count_open"].with(nil, "tenant", p.Tenant, "operation", p.Operation, "now", clock(p.Now), "limit", int64(operator.ExactCounts+1))
	st.Row = func(scan func(...any) error) error {
		var what, tenant, operation *string
		var id []byte
		var since *time.Time
		var n int64
		if err := scan(&stats.Now, &what, &n, &since, &tenant, &operation, &id); err != nil || what == nil {
			return err
		}
		open[idempo.State(*what)] = n
		oldest := operator.Oldest{Key: idempo.Key{Tenant: word(tenant), Operation: word(operation), ID: string(id)}, Since: utc(since)}
		if idempo.State(*what) == idempo.StateInDoubt {
			stats.OldestInDoubt = oldest
		} else {
			stats.OldestPending = oldest
		}
		return nil
	}
	err = s.run(ctx, nil, st)
	stats.Now = stats.Now.UTC()
	return stats, open, err
}
