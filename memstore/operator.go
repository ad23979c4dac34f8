package memstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.Lister    = (*Store)(nil)
	_ operator.Historian = (*Store)(nil)
	_ operator.Changer   = (*Store)(nil)
	_ operator.Auditor   = (*Store)(nil)
	_ operator.Counter   = (*Store)(nil)
	_ operator.Scanner   = (*Store)(nil)

	_ operator.CounterKeeper = (*Store)(nil)
	_ operator.Weigher       = (*Store)(nil)
	_ operator.Recorder      = (*Store)(nil)
)

// List implements operator.Lister. Every page looks at all keys.
func (s *Store) List(ctx context.Context, p operator.FindParams) (operator.Page, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.Page{}, &idempo.Error{Op: "list", Code: "invalid", Hint: err.Error(), Err: err}
	}
	var after idempo.Key
	if p.After != "" {
		if after, err = operator.ParseCursor(p.After); err != nil {
			return operator.Page{}, &idempo.Error{Op: "list", Code: "invalid", Err: err}
		}
	}
	if _, err := s.enter(ctx, "list", idempo.Key{}); err != nil {
		return operator.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	ref := p.Ref
	p.Ref = "" // the reference may be that of an alias
	var found []idempo.Record
	for k, r := range s.rows {
		own := r.key()
		if ref == "" && own != k || ref != "" && k.Ref() != ref || p.After != "" && byKey(own, after) <= 0 {
			continue
		}
		rec, _ := r.record()
		if eff, ok := p.Match(rec, now); ok {
			eff.Result.Body, eff.Snapshot = nil, nil
			found = append(found, eff)
		}
	}
	slices.SortFunc(found, func(a, b idempo.Record) int { return byKey(a.Key, b.Key) })
	page := operator.Page{Records: found}
	if len(found) > p.Limit {
		page.Records = found[:p.Limit]
		page.Next = operator.Cursor(found[p.Limit-1].Key)
	}
	return page, nil
}

func byKey(a, b idempo.Key) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Operation, b.Operation), strings.Compare(a.ID, b.ID))
}

// Attempts implements operator.Historian.
func (s *Store) Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error) {
	if _, err := s.enter(ctx, "attempts", key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[key]; r != nil {
		key = r.key()
	}
	return slices.Clone(s.earlier[key]), nil
}

// archive keeps the attempt that ends with old, unless it is kept already. The store is locked.
func (s *Store) archive(old idempo.Record, now time.Time) {
	if old.Attempt == 0 || slices.ContainsFunc(s.earlier[old.Key], func(r idempo.Record) bool { return r.Attempt == old.Attempt }) {
		return
	}
	r := idempo.Record{Key: old.Key, Attempt: old.Attempt, Generation: old.Generation, State: old.State, Guard: old.Guard, Surface: old.Surface, Owner: old.Owner,
		Note: old.Note, Trace: old.Trace, ClaimedAt: old.ClaimedAt, StartedAt: old.StartedAt, LeaseUntil: old.LeaseUntil, CompletedAt: old.CompletedAt, ChangedAt: now}
	r.Result.Status, r.Result.Failing = old.Result.Status, old.Result.Failing
	s.earlier[old.Key] = append(s.earlier[old.Key], r)
}

// Change implements operator.Changer.
func (s *Store) Change(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
	tx, err := s.enter(ctx, "change", idempo.Key{})
	if err != nil {
		return nil, err
	}
	if tx != nil {
		return nil, misuse("change", idempo.Key{}, "an operator's change is a transaction of its own")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	done := make([]operator.Changed, len(p.Changes))
	for i, c := range p.Changes {
		base := s.rows[c.Key]
		r, found := base.record()
		before, _ := r.Effective(now)
		after, write, err := c.Judge(r, found, now)
		if write && c.Archives(r) {
			s.archive(r, now)
		}
		switch {
		case !write:
		case after.State == "":
			s.remove(base)
		default:
			s.put(s.row(base.keys(), after))
		}
		e := c.Record(before, after, err, now)
		e.ID = int64(len(s.audit)) + 1
		s.audit = append(s.audit, e)
		after.Result.Body, after.Snapshot = nil, nil
		done[i] = operator.Changed{Record: after.Clone(), Entry: e, Err: err}
	}
	return done, nil
}

// RecordAudit implements operator.Recorder. Within a transaction the row has no ID yet.
func (s *Store) RecordAudit(ctx context.Context, e operator.Entry) (operator.Entry, error) {
	tx, err := s.enter(ctx, "audit", e.Key)
	if err != nil {
		return e, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = s.now(e.At)
	add := func() {
		e.ID = int64(len(s.audit)) + 1
		s.audit = append(s.audit, e)
	}
	switch {
	case tx == nil:
		add()
	case tx.ended:
		return e, ended("audit", e.Key)
	default:
		tx.effects = append(tx.effects, add)
	}
	return e, nil
}

// Audit implements operator.Auditor.
func (s *Store) Audit(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.AuditPage{}, &idempo.Error{Op: "audit", Code: "invalid", Hint: err.Error(), Err: err}
	}
	from, _ := p.From()
	if _, err := s.enter(ctx, "audit", idempo.Key{}); err != nil {
		return operator.AuditPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []operator.Entry
	for i := range s.audit {
		e := s.audit[i]
		if p.Newest {
			e = s.audit[len(s.audit)-1-i]
		}
		passed := from != 0 && (!p.Newest && e.ID <= from || p.Newest && e.ID >= from)
		if !passed && p.Match(e) {
			if found = append(found, e); len(found) > p.Limit {
				break
			}
		}
	}
	return p.Page(found), nil
}

// Count implements operator.Counter. It counts all of them, exactly.
func (s *Store) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	if _, err := s.enter(ctx, "count", idempo.Key{}); err != nil {
		return operator.Stats{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	find := operator.FindParams{Tenant: p.Tenant, Operation: p.Operation}
	stats := operator.Stats{Now: now}
	n := map[idempo.State]int64{}
	for k, r := range s.rows {
		if r.key() != k {
			continue
		}
		rec, _ := r.record()
		eff, ok := find.Match(rec, now)
		if !ok {
			continue
		}
		n[eff.State]++
		switch eff.State {
		case idempo.StateInDoubt:
			stats.OldestInDoubt = older(stats.OldestInDoubt, eff.Key, operator.DoubtfulSince(eff))
		case idempo.StatePending:
			stats.OldestPending = older(stats.OldestPending, eff.Key, eff.ClaimedAt)
		}
	}
	for _, state := range operator.States() {
		stats.Counts = append(stats.Counts, operator.Count{State: state, Records: n[state]})
	}
	return stats, nil
}

func older(o operator.Oldest, key idempo.Key, since time.Time) operator.Oldest {
	if o.Since.IsZero() || since.Before(o.Since) || since.Equal(o.Since) && bytes.Compare([]byte(key.ID), []byte(o.Key.ID)) < 0 {
		return operator.Oldest{Key: key, Since: since}
	}
	return o
}

// Scan implements operator.Scanner: one stretch holds everything.
func (s *Store) Scan(ctx context.Context, p operator.ScanParams) (operator.Scanned, error) {
	if _, err := s.enter(ctx, "scan", idempo.Key{}); err != nil {
		return operator.Scanned{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(p.Now)
	var got operator.Scanned
	for k, r := range s.rows {
		rec, _ := r.record()
		if eff, ok := p.Match(rec, now); ok && r.key() == k {
			got.Records = append(got.Records, eff)
		}
	}
	slices.SortFunc(got.Records, func(a, b idempo.Record) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), byKey(a.Key, b.Key)) })
	return got, nil
}

// KeepCounters implements operator.CounterKeeper.
func (s *Store) KeepCounters(ctx context.Context, p operator.KeepCountersParams) (operator.KeptCounters, error) {
	if err := ctx.Err(); err != nil {
		return operator.KeptCounters{}, unavailable("counters", idempo.Key{}, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := func(a operator.CounterSlot, span time.Duration, start time.Time, process string) int {
		return cmp.Or(cmp.Compare(a.Span, span), a.Start.Compare(start), strings.Compare(a.Process, process))
	}
	for _, slot := range p.Put {
		slot.Data, slot.Start = bytes.Clone(slot.Data), slot.Start.UTC()
		at, found := slices.BinarySearchFunc(s.counters, slot, func(a, b operator.CounterSlot) int { return place(a, b.Span, b.Start, b.Process) })
		if found {
			s.counters[at] = slot
		} else {
			s.counters = slices.Insert(s.counters, at, slot)
		}
	}
	for _, f := range p.Forget {
		s.counters = slices.DeleteFunc(s.counters, func(a operator.CounterSlot) bool { return a.Span == f.Span && a.Start.Before(f.Start) })
	}
	kept := operator.KeptCounters{Now: s.now(time.Time{})}
	for _, r := range p.Read {
		for _, a := range s.counters {
			if a.Span == r.Span && !a.Start.Before(r.Start) {
				a.Data = bytes.Clone(a.Data)
				kept.Slots = append(kept.Slots, a)
			}
		}
	}
	return kept, nil
}

// Weigh implements operator.Weigher: the packed rows, without what the map around them takes.
func (s *Store) Weigh(ctx context.Context, p operator.WeighParams) (operator.Weight, error) {
	if err := ctx.Err(); err != nil {
		return operator.Weight{}, unavailable("weigh", idempo.Key{}, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := operator.Weight{Now: s.now(p.Now)}
	for k, r := range s.rows {
		if r.key() == k {
			w.Bytes += int64(len(r.data))
		}
	}
	if len(s.due) > 0 && s.due[0].due <= micros(w.Now) {
		w.OldestDue = time.UnixMicro(s.due[0].due + yearOne).UTC()
	}
	return w, nil
}
