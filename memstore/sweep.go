package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Sweep implements idempo.Sweeper. Keys that an open transaction holds are left for the next batch.
func (s *Store) Sweep(ctx context.Context, batch int) (done int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, unavailable("sweep", idempo.Key{}, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweep(batch, s.now(time.Time{})), nil
}

// sweep makes up to batch rows what the clock says they are, the oldest end first.
func (s *Store) sweep(batch int, now time.Time) (done int) {
	var busy []*row
	for done < batch && len(s.due) > 0 && s.due[0].due <= micros(now) {
		r := s.due[0]
		if s.held[r.key()] != nil {
			s.due.remove(r)
			busy = append(busy, r)
			continue
		}
		rec, _ := r.record()
		if eff, ok := rec.Effective(now); ok {
			eff.ChangedAt = now
			s.put(s.row(r.keys(), eff))
		} else {
			s.remove(r)
		}
		done++
	}
	for _, r := range busy {
		s.due.add(r)
	}
	return done
}

// Take implements idempo.Taker. Records that an open transaction holds are passed over.
func (s *Store) Take(ctx context.Context, p idempo.TakeParams) ([]idempo.Record, error) {
	if _, err := s.enter(ctx, "take", idempo.Key{}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	var due []idempo.Record
	for k, r := range s.rows {
		if r.key() != k || !slices.Contains(p.Operations, k.Operation) || s.held[k] != nil {
			continue // an alias, not asked for, or busy
		}
		rec, _ := r.record()
		if _, ok := p.Judge(rec, now); ok {
			due = append(due, rec)
		}
	}
	slices.SortFunc(due, func(a, b idempo.Record) int { return since(a).Compare(since(b)) })
	due = due[:min(len(due), max(p.Limit, 0))]
	for i, rec := range due {
		due[i], _ = p.Judge(rec, now)
		s.replaced(s.rows[rec.Key], due[i])
		s.put(s.row(s.rows[rec.Key].keys(), due[i]))
	}
	return due, nil
}

// since is when r became due.
func since(r idempo.Record) time.Time {
	if r.DueAt.IsZero() {
		return r.LeaseUntil
	}
	return r.DueAt
}
