package operator

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo"
)

// Kind is how a record and the outside compare.
type Kind string

const (
	// KindAgree: both say that it happened, or both that it did not.
	KindAgree Kind = "agree"
	// KindMissing: the record says that it happened, or that nobody knows, and the outside has nothing.
	KindMissing Kind = "missing_outside"
	// KindExtra: the outside has it, and the record says that nothing happened, or that nobody knows, or there is none.
	KindExtra Kind = "extra_outside"
	// KindDiffers: both have it, and it is not the same.
	KindDiffers Kind = "differs"
	// KindUnknown: the outside cannot tell.
	KindUnknown Kind = "unknown"
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{KindAgree, KindMissing, KindExtra, KindDiffers, KindUnknown} }

// Compared is a record beside what the outside says of it.
type Compared struct {
	Kind   Kind
	Record idempo.Record // zero: the outside has something of which there is no record
	State  idempo.State  // the outside: idempo.StateCompleted, StateFailed; "": it cannot tell
	Result idempo.Result // the outside's, where it has one
	Why    string        // why it cannot tell
}

// ReconcileParams compare records with the outside.
type ReconcileParams struct {
	By        Principal
	Operation string    // required
	Since     time.Time // changed at or after; zero: from the beginning
	Until     time.Time // changed before; zero: to the end
	// AskFunc says what the outside knows of a record; nil: the operation's probe is asked.
	AskFunc func(ctx context.Context, r idempo.Record) (idempo.State, idempo.Result, error)
	// ReportFunc gets every comparison, in the order of the list. Its error ends the work.
	ReportFunc func(Compared) error
}

// Reconcile compares the completed, failed and doubtful records of an operation with the outside and counts the kinds. A tombstone
// is compared as the result that it was. It writes nothing. Records that run are not compared.
func (s *Service) Reconcile(ctx context.Context, p ReconcileParams) (map[Kind]int, error) {
	ask := p.AskFunc
	switch {
	case p.Operation == "":
		return nil, invalid("", "name the operation")
	case ask == nil && s.config.Engine == nil:
		return nil, unsupported("", "ask a probe: none is configured here")
	case ask == nil:
		ask = s.askProbe
	}
	counts := map[Kind]int{}
	list := ListParams{By: p.By, Find: FindParams{Operation: p.Operation, Limit: 500}}
	for {
		page, err := s.List(ctx, list)
		if err != nil {
			return counts, err
		}
		for _, r := range page.Records {
			if !settled(r) || !p.Since.IsZero() && r.ChangedAt.Before(p.Since) || !p.Until.IsZero() && !r.ChangedAt.Before(p.Until) {
				continue
			}
			c := Compared{Record: r}
			if c.State, c.Result, err = ask(ctx, r); err != nil {
				if ctx.Err() != nil {
					return counts, ctx.Err()
				}
				c.State, c.Why = "", err.Error()
			}
			c.Kind = compare(c)
			counts[c.Kind]++
			if err := p.ReportFunc(c); err != nil {
				return counts, err
			}
		}
		if page.Next == "" {
			return counts, nil
		}
		list.Find.After = page.Next
	}
}

// askProbe asks the declared probe, which needs the snapshot.
func (s *Service) askProbe(ctx context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
	full, err := s.store.Lookup(ctx, idempo.LookupParams{Key: r.Key, WithoutBody: true})
	if err != nil {
		return "", idempo.Result{}, err
	}
	state, result, err := s.config.Engine.Probe(ctx, full)
	if err == nil && state != idempo.StateCompleted && state != idempo.StateFailed {
		err = errors.New("the probe could not tell")
	}
	return state, result, err
}

func settled(r idempo.Record) bool {
	return r.State == idempo.StateCompleted || r.State == idempo.StateExpired || r.State == idempo.StateFailed || r.State == idempo.StateInDoubt
}

// compare is the kind of c. A failing result is one of which nothing happened outside.
func compare(c Compared) Kind {
	happened := (c.Record.State == idempo.StateCompleted || c.Record.State == idempo.StateExpired) && !c.Record.Result.Failing
	outside := c.State == idempo.StateCompleted && !c.Result.Failing
	theirs, ours := c.Result.Resource, c.Record.Result.Resource
	switch {
	case c.State == "":
		return KindUnknown
	case outside && !happened:
		return KindExtra
	case !outside && (happened || c.Record.State == idempo.StateInDoubt):
		return KindMissing
	case outside && !theirs.IsZero() && !ours.IsZero() && theirs != ours:
		return KindDiffers
	}
	return KindAgree
}
