package sqlite

import (
	"bytes"
	"context"
	"database/sql"
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

// List implements operator.Lister on the reading connections: writers are not disturbed.
func (s *Store) List(ctx context.Context, p operator.FindParams) (operator.Page, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.Page{}, &idempo.Error{Op: "list", Code: "invalid", Hint: err.Error(), Err: err}
	}
	page, err := sqlkit.List(p, func(after idempo.Key, size int) ([]idempo.Record, time.Time, error) {
		records, err := s.batch(ctx, p, after, size)
		return records, s.now(p.Now), err
	})
	return page, failure("list", idempo.Key{}, err, false)
}

// batch reads the rows after a key that may match.
func (s *Store) batch(ctx context.Context, p operator.FindParams, after idempo.Key, size int) ([]idempo.Record, error) {
	if p.Ref != "" {
		lower, err := operator.ParseRef(p.Ref)
		if err != nil {
			return nil, err
		}
		return s.listed(ctx, "list_ref", lower, append(bytes.Clone(lower), bytes.Repeat([]byte{0xff}, 17)...))
	}
	last := []byte{0xff} // no tenant is as high: they are UTF-8
	if p.Tenant != "" {
		last = []byte(p.Tenant)
	}
	args := []any{[]byte(after.Tenant), []byte(after.Operation), []byte(after.ID), last, p.Operation, p.Surface}
	if p.State == idempo.StatePending || p.State == idempo.StateInDoubt {
		return s.listed(ctx, "list_open", append(args, size)...)
	}
	var words strings.Builder
	for _, st := range p.Stored() {
		words.WriteString(" " + string(st) + " ")
	}
	return s.listed(ctx, "list", append(args, words.String(), size)...)
}

func (s *Store) listed(ctx context.Context, name string, args ...any) ([]idempo.Record, error) {
	rows, err := s.readRows(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	return scan(rows, true)
}

// Attempts implements operator.Historian.
func (s *Store) Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error) {
	rows, err := s.readRows(ctx, "attempts", keyArgs(key, key.ID)...)
	if err != nil {
		return nil, failure("attempts", key, err, false)
	}
	defer func() { _ = rows.Close() }()
	var out []idempo.Record
	for rows.Next() {
		r := idempo.Record{Key: key}
		var state, guard string
		var surface, owner, note, trace sql.NullString
		var claimed, started, lease, completed, moved sql.NullInt64
		var failing sql.NullBool
		var status sql.NullInt64
		if err := rows.Scan(&r.Attempt, &r.Generation, &state, &guard, &surface, &owner, &claimed, &started, &lease, &completed,
			&failing, &status, &note, &trace, &moved); err != nil {
			return nil, failure("attempts", key, err, false)
		}
		r.State, r.Guard = idempo.State(state), idempo.Guard(guard)
		r.Surface, r.Owner, r.Note, r.Trace = surface.String, owner.String, note.String, trace.String
		r.ClaimedAt, r.StartedAt, r.LeaseUntil = fromMicros(claimed), fromMicros(started), fromMicros(lease)
		r.CompletedAt, r.ChangedAt = fromMicros(completed), fromMicros(moved)
		r.Result.Failing, r.Result.Status = failing.Bool, int(status.Int64)
		out = append(out, r)
	}
	return out, failure("attempts", key, rows.Err(), false)
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
