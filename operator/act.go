package operator

import (
	"context"
	"errors"
	"strings"

	"github.com/idempo/idempo"
)

// Seen is the record as it was when somebody decided. If it is another by the time the action is done, nothing is done: code
// moved.
type Seen struct {
	Attempt int64
	State   idempo.State // required
}

// SeenOf is what was decided on when r was read.
func SeenOf(r idempo.Record) Seen { return Seen{Attempt: r.Attempt, State: r.State} }

// Why is who does something to one key, and the reason.
type Why struct {
	By       Principal
	Target   Target
	On       Seen
	Reason   string // required
	Evidence string // a URL, maybe
	Confirm  string // of a severe action: the key's reference once more
	DryRun   bool   // says what would be done, and does nothing
}

// ResolveParams settle a key that is in doubt.
type ResolveParams struct {
	Why
	To     idempo.State  // idempo.StateCompleted: it happened; idempo.StateFailed: nothing did
	Probe  bool          // instead of To: asks the declared probe and applies its answer
	Result idempo.Result // of StateCompleted: what calls with this key are answered from now on
}

// ReleaseParams take a running key from its owner.
type ReleaseParams struct {
	Why
	NothingHappened bool // asserted: the key is failed then and the next call runs; else it is in doubt, if it has started
}

// RetryParams make the next call with a finished key run again, as the next generation.
type RetryParams struct {
	Why
	Force bool // also where the key was completed with a success: severe
}

// PurgeParams remove what is kept of a finished key.
type PurgeParams struct {
	Why
	Tombstones bool // also the fact that it happened: a late call then runs; severe
	InDoubt    bool // also where it is in doubt; severe
}

// Resolve settles a key that is in doubt. Of two who settle one key at once, one does; the other gets code moved, with the
// present state and who did it.
func (s *Service) Resolve(ctx context.Context, p ResolveParams) (Changed, error) {
	c := Change{Action: ActionResolve, To: p.To}
	return s.act(ctx, p.Why, c, func(ctx context.Context, r idempo.Record, c *Change) error {
		result := p.Result
		if p.Probe {
			state, found, err := s.probe(ctx, r)
			if err != nil {
				return err
			}
			c.To, result = state, found
		}
		switch c.To {
		case idempo.StateCompleted:
			return s.settle(r, result, c)
		case idempo.StateFailed:
			return nil
		}
		return invalid(ActionResolve, "say whether it happened: completed, failed, or ask the probe")
	})
}

// probe asks what became of r.
func (s *Service) probe(ctx context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
	if s.config.Engine == nil {
		return "", idempo.Result{}, &Error{Action: ActionResolve, Code: CodeUnsupported, KeyRef: r.Ref(), Hint: "no probe is configured here"}
	}
	full, err := s.store.Lookup(ctx, idempo.LookupParams{Key: r.Key, WithoutBody: true})
	if err != nil {
		return "", idempo.Result{}, err
	}
	state, result, err := s.config.Engine.Probe(ctx, full)
	if err != nil || state != idempo.StateCompleted && state != idempo.StateFailed {
		hint := "the probe could not tell"
		if err != nil {
			hint += ": " + err.Error()
		}
		return "", idempo.Result{}, &Error{Action: ActionResolve, Code: CodeWrongState, KeyRef: r.Ref(), State: r.State, Attempt: r.Attempt, Hint: hint, Allowed: Next(r)}
	}
	return state, result, nil
}

// settle makes the completion of c.
func (s *Service) settle(r idempo.Record, result idempo.Result, c *Change) (err error) {
	if s.config.Engine != nil {
		c.Done, err = s.config.Engine.Settlement(r, result)
		c.Retention = c.Done.Retention
		return err
	}
	c.Done = idempo.CompleteParams{Key: r.Key, Result: result, Size: int64(len(result.Body)), Kept: true, Tombstone: s.config.Tombstone}
	return nil
}

// Release takes a running key from its owner, whose later writes get idempo.ErrLeaseLost.
func (s *Service) Release(ctx context.Context, p ReleaseParams) (Changed, error) {
	c := Change{Action: ActionRelease, To: idempo.StateInDoubt}
	if p.NothingHappened {
		c.To = idempo.StateFailed
	}
	return s.act(ctx, p.Why, c, nil)
}

// Retry makes the next call with a finished key run again, with the same request, as the next generation. The attempts so far
// stay in the history.
func (s *Service) Retry(ctx context.Context, p RetryParams) (Changed, error) {
	return s.act(ctx, p.Why, Change{Action: ActionRetry, Force: p.Force}, nil)
}

// Purge removes the result of a finished key, and with Tombstones all of it.
func (s *Service) Purge(ctx context.Context, p PurgeParams) (Changed, error) {
	return s.act(ctx, p.Why, Change{Action: ActionPurge, Tombstones: p.Tombstones, InDoubt: p.InDoubt}, nil)
}

// RevealParams ask for a stored answer.
type RevealParams struct {
	Why
}

// Reveal returns the record with its stored answer in clear, and writes down who has seen it and why. Without an Engine an
// encrypted answer stays encrypted: Record.Sealed says so.
func (s *Service) Reveal(ctx context.Context, p RevealParams) (idempo.Record, error) {
	done, err := s.act(ctx, p.Why, Change{Action: ActionReveal}, nil)
	if err != nil {
		return idempo.Record{}, err
	}
	r, err := s.store.Lookup(ctx, idempo.LookupParams{Key: done.Record.Key})
	switch {
	case err != nil:
		return idempo.Record{}, err
	case r.State == "":
		return idempo.Record{}, &Error{Code: CodeNotFound}
	case s.config.Engine != nil && r.Sealed != "":
		return s.config.Engine.Open(r)
	}
	return r, nil
}

// act does one action on one key; fill completes the change once the record is known. A refusal is the error, and stands in
// the audit.
func (s *Service) act(ctx context.Context, w Why, c Change, fill func(context.Context, idempo.Record, *Change) error) (Changed, error) {
	changer, ok := s.store.(Changer)
	if !ok {
		return Changed{}, unsupported(c.Action, "change a key")
	}
	c.Actor, c.Role, c.Channel, c.Reason, c.Evidence = w.By.Actor, w.By.Role, w.By.Channel, strings.TrimSpace(w.Reason), w.Evidence
	c.Attempt, c.State, c.Retention = w.On.Attempt, w.On.State, s.config.Retention
	r, err := s.find(ctx, w.Target)
	if err != nil {
		return Changed{}, err
	}
	c.Key = r.Key
	why := s.admit(w, c, r)
	if why == nil && fill != nil {
		why = fill(ctx, r, &c)
	}
	if bad, ok := errors.AsType[*Error](why); ok {
		return s.refused(ctx, changer, w, c, bad)
	} else if why != nil {
		return Changed{}, why
	}
	if w.DryRun {
		after, _, err := c.Judge(r, true, r.Now)
		return Changed{Record: after, Entry: c.Record(r, after, err, r.Now), Err: err}, s.explain(ctx, r.Key, err)
	}
	done, err := s.change(ctx, changer, []Change{c})
	if err != nil {
		return Changed{}, err
	}
	return done[0], s.explain(ctx, r.Key, done[0].Err)
}

// admit says why an action is refused before the store is asked; nil: it is not.
func (s *Service) admit(w Why, c Change, r idempo.Record) error {
	fail := func(code, format string) *Error {
		return &Error{Action: c.Action, Code: code, KeyRef: r.Ref(), State: r.State, Attempt: r.Attempt, Hint: format}
	}
	severe := Severe(c, r)
	switch {
	case r.State == "":
		return fail(CodeNotFound, "")
	case !w.By.reads(), !w.By.sees(r.Key.Tenant), !w.By.may(c.Action):
		return fail(CodeForbidden, "")
	case w.By.Actor == "":
		return fail(CodeInvalid, "nobody says who does it")
	case c.Reason == "" && !w.DryRun:
		return fail(CodeInvalid, "a reason is required")
	case len(c.Reason) > maxReason || len(c.Evidence) > maxReason:
		return fail(CodeInvalid, "reason and evidence have at most 4,096 bytes each")
	case w.On.State == "":
		return fail(CodeInvalid, "the attempt and state that the decision was made on are required")
	case severe != "" && w.Confirm != r.Ref() && !w.DryRun:
		e := fail(CodeConfirmNeeded, severe)
		e.Flag = "--confirm " + r.Ref()
		return e
	}
	return nil
}

const maxReason = 4096

// Severe says what is severe about c done to r, "" if nothing is: it may do again what has succeeded, or forget that nobody
// knows.
func Severe(c Change, r idempo.Record) string {
	switch {
	case c.Action == ActionRetry && (r.State == idempo.StateCompleted && c.Force || r.State == idempo.StateExpired) && !r.Result.Failing:
		return "the next call does again what has succeeded"
	case c.Action == ActionPurge && c.InDoubt && r.State == idempo.StateInDoubt:
		return "nobody knows whether it happened, and a late call runs"
	case c.Action == ActionPurge && c.Tombstones && (r.State == idempo.StateCompleted || r.State == idempo.StateExpired):
		return "nothing remembers that it happened, and a late call runs"
	}
	return ""
}

// refused writes a refusal down and returns it. Who may not know that the key exists is told that there is none.
func (s *Service) refused(ctx context.Context, changer Changer, w Why, c Change, why *Error) (Changed, error) {
	c.Refused = why.Code
	if len(c.Reason) > maxReason || len(c.Evidence) > maxReason { // what was too long is not kept
		c.Reason, c.Evidence = "", ""
	}
	if !w.DryRun && w.By.reads() {
		if _, err := s.change(ctx, changer, []Change{c}); err != nil {
			return Changed{}, err
		}
	}
	if why.Code == CodeForbidden || why.Code == CodeNotFound {
		return Changed{}, &Error{Code: CodeNotFound}
	}
	return Changed{}, why
}

// change has the store do it, and tells who counts.
func (s *Service) change(ctx context.Context, changer Changer, all []Change) ([]Changed, error) {
	done, err := changer.Change(ctx, ChangeParams{Changes: all})
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		s.resolved(ctx, d)
	}
	if s.config.ObserveFunc != nil {
		for _, d := range done {
			s.config.ObserveFunc(d.Entry.Action, d.Entry.Outcome)
		}
	}
	return done, nil
}

// resolved tells the engine's observer of a doubt that an operator settled.
func (s *Service) resolved(ctx context.Context, d Changed) {
	if s.config.Engine == nil || d.Err != nil || d.Entry.Action != ActionResolve || d.Entry.Outcome != OutcomeDone {
		return
	}
	s.config.Engine.Report(ctx, idempo.Event{Kind: "resolve", Class: "operator", Outcome: string(d.Record.State), Operation: d.Record.Key.Operation,
		KeyRef: d.Record.Ref(), Attempt: d.Record.Attempt, Guard: d.Record.Guard, Trace: d.Record.Trace})
}

// explain adds to a refusal who changed the key last.
func (s *Service) explain(ctx context.Context, key idempo.Key, refusal error) error {
	e, ok := errors.AsType[*Error](refusal)
	a, can := s.store.(Auditor)
	if !ok || !can || e.Code != CodeMoved {
		return refusal
	}
	page, err := a.Audit(ctx, AuditParams{Key: key, Outcome: OutcomeDone, Newest: true, Limit: 1})
	if err == nil && len(page.Entries) == 1 && page.Entries[0].Attempt == e.Attempt && page.Entries[0].Action != ActionReveal {
		e.By, e.At = page.Entries[0].Actor, page.Entries[0].At
	}
	return e
}
