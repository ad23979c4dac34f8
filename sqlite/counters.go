package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.CounterKeeper = (*Store)(nil)
	_ operator.Weigher       = (*Store)(nil)
)

// KeepCounters implements operator.CounterKeeper. Only Put and Forget write.
func (s *Store) KeepCounters(ctx context.Context, p operator.KeepCountersParams) (operator.KeptCounters, error) {
	if len(p.Put)+len(p.Forget) > 0 {
		if err := s.share(ctx, "counters", idempo.Key{}, nil, func(x *session) error { return x.putCounters(p) }); err != nil {
			return operator.KeptCounters{}, err
		}
	}
	kept := operator.KeptCounters{Now: s.now(time.Time{})}
	for _, r := range p.Read {
		slots, err := s.counters(ctx, r)
		if err != nil {
			return operator.KeptCounters{}, failure("counters", idempo.Key{}, err, false)
		}
		kept.Slots = append(kept.Slots, slots...)
	}
	return kept, nil
}

func (x *session) putCounters(p operator.KeepCountersParams) error {
	if err := x.several(); err != nil {
		return err
	}
	for _, c := range p.Put {
		if _, err := x.exec("counters_put", int64(c.Span/time.Second), c.Start.Unix(), c.Process, c.Data); err != nil {
			return err
		}
	}
	for _, f := range p.Forget {
		if _, err := x.exec("counters_forget", int64(f.Span/time.Second), f.Start.Unix()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) counters(ctx context.Context, r operator.CounterRange) (out []operator.CounterSlot, err error) {
	rows, err := s.readRows(ctx, "counters", int64(r.Span/time.Second), r.Start.Unix())
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		c := operator.CounterSlot{Span: r.Span}
		var start int64
		if err := rows.Scan(&start, &c.Process, blob{&c.Data}); err != nil {
			return nil, err
		}
		c.Start = time.Unix(start, 0).UTC()
		out = append(out, c)
	}
	return out, rows.Err()
}

// Weigh implements operator.Weigher.
func (s *Store) Weigh(ctx context.Context, p operator.WeighParams) (operator.Weight, error) {
	w := operator.Weight{Now: s.now(p.Now)}
	fail := func(err error) (operator.Weight, error) {
		return operator.Weight{}, failure("weigh", idempo.Key{}, err, false)
	}
	rows, err := s.readRows(ctx, "weigh", w.Now.UnixMicro(), rowFormat)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var due sql.NullInt64
		if err := rows.Scan(&w.Bytes, &due); err != nil {
			return fail(err)
		}
		if due.Valid {
			w.OldestDue = time.UnixMicro(due.Int64).UTC()
		}
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return w, nil
}
