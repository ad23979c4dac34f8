package sqlite

import (
	"context"

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

// Change implements operator.Changer. The changes share their commit with whoever else waits for one.
func (s *Store) Change(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
	if t, err := s.joined(ctx, "change", idempo.Key{}); t != nil || err != nil {
		return nil, misuse("change", idempo.Key{}, "an operator's change is a transaction of its own")
	}
	var done []operator.Changed
	err := s.share(ctx, "change", idempo.Key{}, nil, func(x *session) error {
		done = make([]operator.Changed, 0, len(p.Changes))
		if err := x.several(); err != nil {
			return failure("change", idempo.Key{}, err, false)
		}
		for _, c := range p.Changes {
			one, err := s.changeRow(x, c, p)
			if err != nil {
				return failure("change", c.Key, err, false)
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

// changeRow decides on the row under the write lock, writes, and adds the audit row.
func (s *Store) changeRow(x *session, c operator.Change, p operator.ChangeParams) (operator.Changed, error) {
	base, err := x.find(c.Key, []string{c.Key.ID})
	if err != nil {
		return operator.Changed{}, err
	}
	now := s.now(p.Now)
	r, found := first(base)
	before, _ := r.Effective(now)
	after, write, refusal := c.Judge(r, found, now)
	sqlkit.Micros(&after)
	if write && c.Archives(r) {
		if _, err := x.exec("archive", append(keyArgs(r.Key, r.Key.ID), now.UnixMicro())...); err != nil {
			return operator.Changed{}, err
		}
	}
	switch {
	case !write:
	case after.State == "":
		err = x.remove(r.Key)
	default:
		err = x.update(r, after)
	}
	if err != nil {
		return operator.Changed{}, err
	}
	after.Result.Body, after.Snapshot = nil, nil
	e := c.Record(before, after, refusal, now)
	if e.ID, err = x.audit(e); err != nil {
		return operator.Changed{}, err
	}
	return operator.Changed{Record: after, Entry: e, Err: refusal}, nil
}

// RecordAudit implements operator.Recorder.
func (s *Store) RecordAudit(ctx context.Context, e operator.Entry) (operator.Entry, error) {
	err := receipts{s}.write(ctx, "audit", func(x *session) (err error) {
		e.At = s.now(e.At)
		e.ID, err = x.audit(e)
		return err
	})
	return e, err
}

// audit adds a row to the audit and returns its id.
func (x *session) audit(e operator.Entry) (id int64, err error) {
	var key, tenant, operation any
	if e.Key.ID != "" {
		tenant, operation, key = []byte(e.Key.Tenant), []byte(e.Key.Operation), []byte(e.Key.ID)
	}
	_, err = x.exec("audit_add", e.At.UnixMicro(), e.Actor, string(e.Role), e.Channel, string(e.Action), e.Outcome, e.Code, tenant, operation, key,
		e.Attempt, string(e.Before), string(e.After), e.Reason, e.Evidence)
	if err != nil {
		return 0, err
	}
	rows, err := x.query("audit_last")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
	}
	return id, rows.Err()
}
