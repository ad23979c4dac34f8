package postgres

import (
	"context"
	"errors"
	"strings"
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
		return r.recs, r.now, err
	})
}

// batch reads the rows after a key that may match.
func (s *Store) batch(ctx context.Context, p operator.FindParams, after idempo.Key, size int) (r rows, err error) {
	var st Statement
	if p.Ref != "" {
		ref, err := operator.ParseRef(p.Ref)
		if err != nil {
			return r, &idempo.Error{Op: "list", Code: "invalid", Err: err}
		}
		st = s.q["list_ref"].with(nil, "ref", ref, "now", clock(p.Now))
	} else {
		var states []string
		for _, word := range p.Stored() {
			states = append(states, string(word))
		}
		name := "list"
		if p.State == idempo.StatePending || p.State == idempo.StateInDoubt {
			name = "list_open"
		}
		st = s.q[name].with(nil, "after_tenant", after.Tenant, "after_operation", after.Operation, "after_key", []byte(after.ID),
			"tenant", p.Tenant, "operation", p.Operation, "surface", p.Surface, "states", strings.Join(states, ","), "limit", int64(size), "now", clock(p.Now))
	}
	r.listed = true
	st.Row = r.collect()
	if err := s.run(ctx, nil, st); err != nil {
		return rows{}, unread("list", idempo.Key{}, err)
	}
	return r, nil
}

// Attempts implements operator.Historian.
func (s *Store) Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error) {
	var out []idempo.Record
	st := s.q["attempts"].with(nil, "tenant_id", key.Tenant, "operation", key.Operation, "idempotency_key", []byte(key.ID))
	st.Row = func(scan func(...any) error) error {
		r := idempo.Record{Key: key}
		var state string
		var claimed, started, lease, completed, ended *time.Time
		var status int64
		if err := scan(&r.Attempt, &r.Generation, &state, &r.Surface, &r.Owner, &claimed, &started, &lease, &completed,
			&r.Result.Failing, &status, &r.Note, &r.Trace, &ended); err != nil {
			return err
		}
		r.State, r.Result.Status = idempo.State(state), int(status)
		r.ClaimedAt, r.StartedAt, r.LeaseUntil = utc(claimed), utc(started), utc(lease)
		r.CompletedAt, r.ChangedAt = utc(completed), utc(ended)
		out = append(out, r)
		return nil
	}
	if err := s.run(ctx, nil, st); err != nil {
		return nil, unread("attempts", key, err)
	}
	return out, nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// unread is failed for what only reads: whatever went wrong, nothing was done.
func unread(op string, key idempo.Key, err error) error {
	err = failed(op, key, err, false)
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		e.Unknown = false
	}
	return err
}
