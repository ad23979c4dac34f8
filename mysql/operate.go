package mysql

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.Changer = (*Store)(nil)
	_ operator.Auditor = (*Store)(nil)
	_ operator.Counter = (*Store)(nil)

	_ operator.Recorder = (*Store)(nil)
)

// Change implements operator.Changer: one short transaction, begun again where the server gives it up.
func (s *Store) Change(ctx context.Context, p operator.ChangeParams) (done []operator.Changed, err error) {
	if t, err := s.enter(ctx, "change", idempo.Key{}); err != nil {
		return nil, err
	} else if t != nil {
		return nil, misuse("change", idempo.Key{}, "an operator's change is a transaction of its own")
	}
	err = s.short(ctx, "change", idempo.Key{}, func(x *session) error {
		done = make([]operator.Changed, 0, len(p.Changes))
		for _, c := range p.Changes {
			one, err := s.changeRow(ctx, x, c, p.Now)
			if err != nil {
				return err
			}
			done = append(done, one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// changeRow locks the row, judges, writes, and adds the audit row.
func (s *Store) changeRow(ctx context.Context, x *session, c operator.Change, now time.Time) (operator.Changed, error) {
	r, err := s.lock(ctx, x, c.Key, []string{c.Key.ID}, now, wait)
	if err != nil {
		return operator.Changed{}, err
	}
	old, _ := r.pick(idempo.AcquireParams{})
	before, _ := old.rec.Effective(r.now)
	after, write, refusal := c.Judge(old.rec, old.rec.State != "", r.now)
	if _, ok := errors.AsType[*operator.Error](refusal); refusal != nil && !ok {
		return operator.Changed{}, refusal
	}
	sqlkit.Micros(&after)
	if write && c.Archives(old.rec) {
		ended := old.rec
		ended.ChangedAt = r.now
		if _, err := exec(ctx, x.on, s.q["archive"].with(&ended)); err != nil {
			return operator.Changed{}, err
		}
	}
	switch {
	case !write:
	case after.State == "":
		err = s.remove(ctx, x, old)
	default:
		_, err = s.update(ctx, x, old, after, old.aliases, time.Time{})
	}
	if err != nil {
		return operator.Changed{}, err
	}
	after.Result.Body, after.Snapshot = nil, nil
	e, err := s.audit(ctx, x, c.Record(before, after, refusal, r.now))
	return operator.Changed{Record: after, Entry: e, Err: refusal}, err
}

// RecordAudit implements operator.Recorder.
func (s *Store) RecordAudit(ctx context.Context, e operator.Entry) (operator.Entry, error) {
	err := receipts{s}.write(ctx, "audit", func(x *session) error {
		row := e
		if row.At.IsZero() {
			var now int64
			err := each(ctx, x.on, statement{sql: "select " + clock}, func(scan func(...any) error) error { return scan(&now) })
			if err != nil {
				return err
			}
			row.At = time.UnixMicro(now).UTC()
		}
		row, err := s.audit(ctx, x, row)
		if err == nil {
			e = row
		}
		return err
	})
	return e, err
}

// audit adds e to the audit.
func (s *Store) audit(ctx context.Context, x *session, e operator.Entry) (operator.Entry, error) {
	key := e.Key
	if key.ID == "" {
		key = idempo.Key{}
	}
	var err error
	e.ID, err = exec(ctx, x.on, s.q["audit_add"].with(nil, keyArgs(key, "at", e.At, "actor", e.Actor, "role", string(e.Role), "channel", e.Channel,
		"action", string(e.Action), "outcome", e.Outcome, "code", e.Code, "attempt", e.Attempt, "state_before", string(e.Before),
		"state_after", string(e.After), "reason", e.Reason, "evidence", e.Evidence)...))
	return e, err
}

// Audit implements operator.Auditor.
func (s *Store) Audit(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.AuditPage{}, &idempo.Error{Op: "audit", Code: "invalid", Hint: err.Error(), Err: err}
	}
	from, _ := p.From()
	span, direction := raw("id > "+strconv.FormatInt(from, 10)), raw("asc")
	if p.Newest {
		direction = "desc"
		span = raw("id < " + strconv.FormatInt(from, 10))
		if from == 0 {
			span = "true"
		}
	}
	args := []any{"span", span, "direction", direction, "tenant", p.Key.Tenant, "operation", p.Key.Operation, "actor", p.Actor, "action", string(p.Action),
		"outcome", p.Outcome, "any_tenant", p.Tenants == nil, "tenants", p.Tenants, "limit", int64(p.Limit + 1)}
	if p.Ref != nil {
		args = append(args, "ref", p.Ref)
	} else if p.Key.ID != "" {
		args = append(args, "ref", p.Key.ID)
	}
	if !p.Since.IsZero() {
		args = append(args, "since", p.Since)
	}
	if !p.Until.IsZero() {
		args = append(args, "until", p.Until)
	}
	var entries []operator.Entry
	err = each(ctx, s.db, s.q["audit"].with(nil, args...), func(scan func(...any) error) error {
		var e operator.Entry
		var at int64
		err := scan(&e.ID, &at, &e.Actor, &e.Role, &e.Channel, &e.Action, &e.Outcome, &e.Code, &e.Key.Tenant, &e.Key.Operation, &e.Key.ID, &e.Attempt,
			&e.Before, &e.After, &e.Reason, &e.Evidence)
		e.At = time.UnixMicro(at).UTC()
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return operator.AuditPage{}, s.failed("audit", idempo.Key{}, err, reading)
	}
	return p.Page(entries), nil
}
