package mysql

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.CounterKeeper = (*Store)(nil)
	_ operator.Weigher       = (*Store)(nil)
)

// KeepCounters implements operator.CounterKeeper. Put and Forget are one transaction.
func (s *Store) KeepCounters(ctx context.Context, p operator.KeepCountersParams) (kept operator.KeptCounters, err error) {
	if len(p.Put)+len(p.Forget) > 0 {
		if err := s.short(ctx, "counters", idempo.Key{}, func(x *session) error { return s.putCounters(ctx, x, p) }); err != nil {
			return operator.KeptCounters{}, err
		}
	}
	if kept.Now, err = s.clock(ctx, time.Time{}); err != nil {
		return operator.KeptCounters{}, s.failed("counters", idempo.Key{}, err, reading)
	}
	for _, r := range p.Read {
		st := s.q["counters"].with(nil, "span", int64(r.Span/time.Second), "begin_at", r.Start.Unix())
		err = each(ctx, s.db, st, func(scan func(...any) error) error {
			c := operator.CounterSlot{Span: r.Span}
			var start int64
			if err := scan(&start, &c.Process, &c.Data); err != nil {
				return err
			}
			c.Start = time.Unix(start, 0).UTC()
			kept.Slots = append(kept.Slots, c)
			return nil
		})
		if err != nil {
			return operator.KeptCounters{}, s.failed("counters", idempo.Key{}, err, reading)
		}
	}
	return kept, nil
}

func (s *Store) putCounters(ctx context.Context, x *session, p operator.KeepCountersParams) error {
	for _, c := range p.Put {
		st := s.q["counters_put"].with(nil, "span", int64(c.Span/time.Second), "begin_at", c.Start.Unix(), "process", c.Process, "data", c.Data)
		if _, err := exec(ctx, x.on, st); err != nil {
			return err
		}
	}
	for _, f := range p.Forget {
		if _, err := exec(ctx, x.on, s.q["counters_forget"].with(nil, "span", int64(f.Span/time.Second), "begin_at", f.Start.Unix())); err != nil {
			return err
		}
	}
	return nil
}

// Weigh implements operator.Weigher.
func (s *Store) Weigh(ctx context.Context, p operator.WeighParams) (operator.Weight, error) {
	w, err := s.weigh(ctx, p)
	if err != nil {
		return operator.Weight{}, s.failed("weigh", idempo.Key{}, err, reading)
	}
	return w, nil
}

func (s *Store) weigh(ctx context.Context, p operator.WeighParams) (w operator.Weight, err error) {
	if w.Now, err = s.clock(ctx, p.Now); err != nil {
		return w, err
	}
	pre := s.names.Prefix
	size := s.q["weigh_tables"].with(nil, "records", pre+"records", "attempts", pre+"attempts", "audit", pre+"audit")
	if err := each(ctx, s.db, size, func(scan func(...any) error) error { return scan(&w.Bytes) }); err != nil {
		return w, err
	}
	err = each(ctx, s.db, s.q["weigh"].with(nil, "at", w.Now, "look", int64(looked)), func(scan func(...any) error) error {
		var due *int64
		err := scan(&due)
		w.OldestDue = utc(due)
		return err
	})
	return w, err
}

// clock reads the server's clock; given wins unless it is zero.
func (s *Store) clock(ctx context.Context, given time.Time) (time.Time, error) {
	var now int64
	err := each(ctx, s.db, cut("select $clock").with(nil, "clock", at(given)), func(scan func(...any) error) error { return scan(&now) })
	return time.UnixMicro(now).UTC(), err
}
