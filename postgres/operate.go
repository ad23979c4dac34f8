package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

var (
	_ operator.Changer = (*Store)(nil)
	_ operator.Auditor = (*Store)(nil)
	_ operator.Counter = (*Store)(nil)

	_ operator.Recorder = (*Store)(nil)
)

// Change implements operator.Changer: one transaction, begun again where the server gives it up.
func (s *Store) Change(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
	if carried(ctx) != nil {
		return nil, misuse("change", idempo.Key{}, "an operator's change is a transaction of its own")
	}
	for try := 0; ; try++ {
		done := make([]operator.Changed, 0, len(p.Changes))
		err := s.InTx(ctx, func(ctx context.Context) error {
			t, err := s.enter(ctx, "change", idempo.Key{})
			for i := 0; err == nil && i < len(p.Changes); i++ {
				var one operator.Changed
				one, err = s.changeOne(ctx, t, p.Changes[i], p.Now)
				done = append(done, one)
			}
			return err
		})
		if err == nil {
			return done, nil
		}
		e, ok := errors.AsType[*idempo.Error](err)
		if !ok || e.Code != "tx_conflict" || try == 3 || !pause(ctx, time.Duration(try+1)*5*time.Millisecond) {
			return nil, failed("change", idempo.Key{}, err, false)
		}
	}
}

// changeOne does one change and adds its audit row. What is no refusal ends the transaction.
func (s *Store) changeOne(ctx context.Context, t *session, c operator.Change, now time.Time) (operator.Changed, error) {
	var before idempo.Record
	w := writing{op: "change", key: c.Key, now: now, moves: c.Archives(idempo.Record{Attempt: 1})}
	w.judge = func(r idempo.Record, found bool, now time.Time) (idempo.Record, bool, error) {
		before, _ = r.Effective(now)
		return c.Judge(r, found, now)
	}
	after, refusal := s.update(ctx, t, w)
	if _, ok := errors.AsType[*operator.Error](refusal); refusal != nil && !ok {
		return operator.Changed{}, refusal
	}
	after.Result.Body, after.Snapshot = nil, nil
	e := c.Record(before, after, refusal, before.Now)
	st := s.auditing(e, now)
	st.Row = func(scan func(...any) error) error { return scan(&e.ID, &e.At) }
	if err := s.run(ctx, t, st); err != nil {
		return operator.Changed{}, failed("audit", c.Key, err, true)
	}
	e.At = e.At.UTC()
	return operator.Changed{Record: after, Entry: e, Err: refusal}, nil
}

// RecordAudit implements operator.Recorder.
func (s *Store) RecordAudit(ctx context.Context, e operator.Entry) (operator.Entry, error) {
	t, err := s.enter(ctx, "audit", e.Key)
	if err != nil {
		return e, err
	}
	st := s.auditing(e, e.At)
	st.Row = func(scan func(...any) error) error { return scan(&e.ID, &e.At) }
	if err := s.run(ctx, t, st); err != nil {
		return e, failed("audit", e.Key, err, t != nil)
	}
	e.At = e.At.UTC()
	return e, nil
}

// auditing returns the statement that adds e.
func (s *Store) auditing(e operator.Entry, now time.Time) Statement {
	var tenant, operation, key any
	if e.Key.ID != "" {
		tenant, operation, key = e.Key.Tenant, e.Key.Operation, []byte(e.Key.ID)
	}
	return s.q["audit_add"].with(nil, "now", clock(now), "actor", e.Actor, "role", string(e.Role), "channel", e.Channel, "action", string(e.Action),
		"outcome", e.Outcome, "code", e.Code, "tenant_id", tenant, "operation", operation, "idempotency_key", key, "attempt", e.Attempt,
		"state_before", string(e.Before), "state_after", string(e.After), "reason", e.Reason, "evidence", e.Evidence)
}

// Audit implements operator.Auditor.
func (s *Store) Audit(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
	p, err := p.WithDefaults()
	if err != nil {
		return operator.AuditPage{}, &idempo.Error{Op: "audit", Code: "invalid", Hint: err.Error(), Err: err}
	}
	from, _ := p.From()
	args := []any{"after_id", from, "tenant", p.Key.Tenant, "operation", p.Key.Operation, "actor", p.Actor, "action", string(p.Action),
		"outcome", p.Outcome, "since", clock(p.Since), "until", clock(p.Until), "limit", int64(p.Limit + 1)}
	if p.Tenants != nil {
		args = append(args, "tenants", digests(p.Tenants))
	}
	name := "audit"
	switch {
	case p.Ref != nil || p.Key.ID != "":
		ref := p.Ref
		if ref == nil {
			ref = []byte(p.Key.ID)[:min(16, len(p.Key.ID))]
		}
		name, args = "audit_key", append(args, "ref", ref, "newest", p.Newest)
	case p.Newest:
		name = "audit_newest"
	}
	var entries []operator.Entry
	st := s.q[name].with(nil, args...)
	st.Row = func(scan func(...any) error) error {
		var e operator.Entry
		var role, action, before, after string
		var id []byte
		err := scan(&e.ID, &e.At, &e.Actor, &role, &e.Channel, &action, &e.Outcome, &e.Code, &e.Key.Tenant, &e.Key.Operation, &id, &e.Attempt,
			&before, &after, &e.Reason, &e.Evidence)
		e.At, e.Role, e.Action, e.Key.ID = e.At.UTC(), operator.Role(role), operator.Action(action), string(id)
		e.Before, e.After = idempo.State(before), idempo.State(after)
		entries = append(entries, e)
		return err
	}
	if err := s.run(ctx, nil, st); err != nil {
		return operator.AuditPage{}, unread("audit", idempo.Key{}, err)
	}
	return p.Page(entries), nil
}
