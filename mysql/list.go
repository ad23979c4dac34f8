package mysql

import (
	"context"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.Lister    = (*Store)(nil)
	_ operator.Historian = (*Store)(nil)
)

// List implements operator.Lister. Each page is one or more short statements; nothing is locked.
func (s *Store) List(ctx context.Context, p operator.FindParams) (operator.Page, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.Page{}, &idempo.Error{Op: "list", Code: "invalid", Hint: err.Error(), Err: err}
	}
	return sqlkit.List(p, func(after idempo.Key, size int) ([]idempo.Record, time.Time, error) {
		r, err := s.batch(ctx, p, after, size)
		return r.records(), r.now, err
	})
}

// batch reads the rows after a key that may match.
func (s *Store) batch(ctx context.Context, p operator.FindParams, after idempo.Key, size int) (r rows, err error) {
	var st statement
	if p.Ref != "" {
		ref, err := operator.ParseRef(p.Ref)
		if err != nil {
			return r, &idempo.Error{Op: "list", Code: "invalid", Err: err}
		}
		st = s.q["list_ref"].with(nil, "ref", ref, "clock", at(p.Now))
	} else {
		var states []string
		for _, word := range p.Stored() {
			states = append(states, string(word))
		}
		st = s.q["list"].with(nil, "after_tenant", after.Tenant, "after_operation", after.Operation, "after_key", after.ID,
			"tenant", p.Tenant, "operation", p.Operation, "surface", p.Surface, "any_state", len(states) == 0, "states", states,
			"limit", int64(size), "clock", at(p.Now))
	}
	r.listed = true
	err = each(ctx, s.db, st, func(scan func(...any) error) error { return r.add(scan) })
	return r, s.failed("list", idempo.Key{}, err, reading)
}

// Attempts implements operator.Historian.
func (s *Store) Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error) {
	var out []idempo.Record
	err := each(ctx, s.db, s.q["attempts"].with(nil, keyArgs(key)...), func(scan func(...any) error) error {
		r := idempo.Record{Key: key}
		var state string
		var claimed, started, lease, completed, ended *int64
		if err := scan(&r.Attempt, &r.Generation, &state, &r.Surface, &r.Owner, &claimed, &started, &lease, &completed,
			&r.Result.Failing, &r.Result.Status, &r.Note, &r.Trace, &ended); err != nil {
			return err
		}
		r.State = idempo.State(state)
		r.ClaimedAt, r.StartedAt, r.LeaseUntil, r.CompletedAt, r.ChangedAt = utc(claimed), utc(started), utc(lease), utc(completed), utc(ended)
		out = append(out, r)
		return nil
	})
	return out, s.failed("attempts", key, err, reading)
}

func utc(micros *int64) time.Time {
	if micros == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micros).UTC()
}
