package storetest

import (
	"context"
	"errors"
	"slices"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// Change passes through the sabotage of changes, where there is one.
func (s *saboteur) Change(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
	if s.change != nil {
		return s.change(ctx, p)
	}
	return s.Store.Change(ctx, p)
}

// Audit passes through the sabotage of the audit.
func (s *saboteur) Audit(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
	if s.audit != nil {
		return s.audit(ctx, p)
	}
	return s.Store.Audit(ctx, p)
}

// Attempts passes through the sabotage of the history.
func (s *saboteur) Attempts(ctx context.Context, key idempo.Key) ([]idempo.Record, error) {
	got, err := s.Store.Attempts(ctx, key)
	if s.history != nil {
		got = s.history(got)
	}
	return got, err
}

// Count passes through the sabotage of numbers.
func (s *saboteur) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	if s.count != nil {
		return s.count(ctx, p)
	}
	return s.Store.Count(ctx, p)
}

// List passes through the sabotage of lists.
func (s *saboteur) List(ctx context.Context, p operator.FindParams) (operator.Page, error) {
	page, err := s.Store.List(ctx, p)
	if s.page != nil && err == nil {
		s.page(p, &page)
	}
	return page, err
}

// Scan passes through the sabotage of scans.
func (s *saboteur) Scan(ctx context.Context, p operator.ScanParams) (operator.Scanned, error) {
	got, err := s.Store.Scan(ctx, p)
	if s.scan != nil {
		s.scan(&got)
	}
	return got, err
}

// changes breaks Change by changing what it is asked for.
func (s *saboteur) changes(broken func(c *operator.Change)) {
	s.change = func(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
		p.Changes = slices.Clone(p.Changes)
		for i := range p.Changes {
			broken(&p.Changes[i])
		}
		return s.Store.Change(ctx, p)
	}
}

func operatorSabotages() []sabotage {
	return append(changeSabotages(), lookSabotages()...)
}

func changeSabotages() []sabotage {
	return []sabotage{
		{"an operator's attempt is not compared", "transition: in doubt, hold · resolve to failed", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.Attempt = s.at(c.Key, idempo.Record{}.Now).Attempt })
		}},
		{"an operator's state is not compared", "transition: completed · forced run", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.State = "" })
		}},
		{"a success is retried without force", "transition: completed · retry", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.Force = true })
		}},
		{"doubts are purged unasked", "transition: in doubt, hold · purge with tombstones", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.InDoubt = true })
		}},
		{"tombstones are purged unasked", "transition: expired · purge with doubts", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.Tombstones = true })
		}},
		{"a release says that nothing happened", "a release and a late completion at once", func(s *saboteur, _ *Subject) {
			s.changes(func(c *operator.Change) { c.To = idempo.StateInDoubt })
		}},
		{"who comes second is told that it did it", "several operators settle one key at once", func(s *saboteur, _ *Subject) {
			s.change = func(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
				done, err := s.Store.Change(ctx, p)
				for i := range done {
					done[i].Err = nil
				}
				return done, err
			}
		}},
		{"one refusal fails all changes", "changes of one call commit together", func(s *saboteur, _ *Subject) {
			s.change = func(ctx context.Context, p operator.ChangeParams) ([]operator.Changed, error) {
				done, err := s.Store.Change(ctx, p)
				for _, d := range done {
					err = errors.Join(err, d.Err)
				}
				return done, err
			}
		}},
		{"the default retention takes the place of the record's own", "a failing result may be retried", func(s *saboteur, _ *Subject) {
			s.reads(func(r *idempo.Record) {
				if r.State == idempo.StateFailed {
					r.ExpiresAt = r.ChangedAt.Add(1e9)
				}
			})
		}},
	}
}

func lookSabotages() []sabotage {
	return []sabotage{
		{"refusals are not audited", "refusals that were decided before", func(s *saboteur, _ *Subject) {
			s.audit = func(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
				page, err := s.Store.Audit(ctx, p)
				page.Entries = slices.DeleteFunc(page.Entries, func(e operator.Entry) bool { return e.Outcome == operator.OutcomeRefused })
				return page, err
			}
		}},
		{"the newest audit rows come last", "the audit is in order, in pages", func(s *saboteur, _ *Subject) {
			s.audit = func(ctx context.Context, p operator.AuditParams) (operator.AuditPage, error) {
				p.Newest = false
				return s.Store.Audit(ctx, p)
			}
		}},
		{"earlier attempts are forgotten", "earlier attempts are kept when taken over", func(s *saboteur, _ *Subject) {
			s.history = func([]idempo.Record) []idempo.Record { return nil }
		}},
		{"earlier attempts come twice", "a failing result may be retried, the history stays", func(s *saboteur, _ *Subject) {
			s.history = func(rs []idempo.Record) []idempo.Record { return append(rs, rs...) }
		}},
		{"numbers are of all tenants", "counts by effective state", func(s *saboteur, _ *Subject) {
			s.count = func(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
				p.Tenant = ""
				return s.Store.Count(ctx, p)
			}
		}},
		{"a page leaves its last record out", "a list skips nothing", func(s *saboteur, _ *Subject) {
			s.page = func(_ operator.FindParams, page *operator.Page) {
				if page.Next != "" {
					page.Records = page.Records[:len(page.Records)-1]
				}
			}
		}},
		{"a list does not look at ages", "filters intersect", func(s *saboteur, _ *Subject) {
			s.page = func(p operator.FindParams, page *operator.Page) {
				if p.OlderThan > 0 {
					p.OlderThan = 0
					*page, _ = s.Store.List(context.Background(), p)
				}
			}
		}},
		{"an alias finds nothing", "a reference finds its record, also by an alias", func(s *saboteur, _ *Subject) {
			s.page = func(p operator.FindParams, page *operator.Page) {
				page.Records = slices.DeleteFunc(page.Records, func(r idempo.Record) bool { return p.Ref != "" && r.Ref() != p.Ref })
			}
		}},
		{"a scan begins with the oldest", "what was made, what was referred to", func(s *saboteur, _ *Subject) {
			s.scan = func(got *operator.Scanned) { slices.Reverse(got.Records) }
		}},
	}
}
