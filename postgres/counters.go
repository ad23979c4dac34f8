package postgres

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

// KeepCounters implements operator.CounterKeeper, in one transaction.
func (s *Store) KeepCounters(ctx context.Context, p operator.KeepCountersParams) (kept operator.KeptCounters, err error) {
	now := s.q["counters_now"].with(nil)
	now.Row = func(scan func(...any) error) error { return scan(&kept.Now) }
	all := []Statement{now}
	for _, c := range p.Put {
		all = append(all, s.q["counters_put"].with(nil, "span", int64(c.Span/time.Second), "begin_at", c.Start.Unix(), "process", c.Process, "data", c.Data))
	}
	for _, f := range p.Forget {
		all = append(all, s.q["counters_forget"].with(nil, "span", int64(f.Span/time.Second), "begin_at", f.Start.Unix()))
	}
	for _, r := range p.Read {
		read := s.q["counters"].with(nil, "span", int64(r.Span/time.Second), "begin_at", r.Start.Unix())
		read.Row = func(scan func(...any) error) error {
			c := operator.CounterSlot{Span: r.Span}
			var start int64
			if err := scan(&start, &c.Process, &c.Data); err != nil {
				return err
			}
			c.Start = time.Unix(start, 0).UTC()
			kept.Slots = append(kept.Slots, c)
			return nil
		}
		all = append(all, read)
	}
	if err := s.port.Run(ctx, nil, all...); err != nil { // not again by itself: rows would be read twice
		return operator.KeptCounters{}, unread("counters", idempo.Key{}, err)
	}
	kept.Now = kept.Now.UTC()
	return kept, nil
}

// Weigh implements operator.Weigher.
func (s *Store) Weigh(ctx context.Context, p operator.WeighParams) (w operator.Weight, err error) {
	permille, err := s.share(ctx)
	if err != nil {
		return w, unread("weigh", idempo.Key{}, err)
	}
	st := s.q["weigh"].with(nil, "now", clock(p.Now), "permille", permille, "records_table", s.names.Table("records"),
		"attempts_table", s.names.Table("attempts"), "audit", s.names.Table("audit"), "receipts", s.names.Table("receipts"))
	st.Row = func(scan func(...any) error) error {
		var due *time.Time
		err := scan(&w.Now, &w.Bytes, &due)
		w.Now, w.OldestDue = w.Now.UTC(), utc(due)
		return err
	}
	if err := s.port.Run(ctx, nil, st); err != nil {
		return operator.Weight{}, unread("weigh", idempo.Key{}, err)
	}
	return w, nil
}
