package operator

import (
	"context"
	"time"

	"github.com/idempo/idempo"
)

// Changer is a store in which an operator may settle, release, retry and purge. Without it a key can only be looked at.
type Changer interface {
	// Change does every change of p and writes an audit row for each, also for one that is refused: all of it in one
	// transaction, or nothing. What each became stands in the place of its change. Change.Judge decides on the row as it
	// is under the store's lock; the attempt that a settling or a retry ends moves to the earlier attempts, and a record
	// that is removed leaves with its aliases and earlier attempts. The token of a changed record is cleared: whatever its
	// owner still writes gets idempo.ErrLeaseLost.
	//
	// A refusal is no error of Change. On error it is not known whether anything was done; the same call again is safe,
	// since each change names the attempt and the state it was decided on. Code misuse within a transaction.
	Change(ctx context.Context, p ChangeParams) ([]Changed, error)
}

// ChangeParams are changes that are done together. A key must not come twice. At most 1,000.
type ChangeParams struct {
	Changes []Change
	Now     time.Time // zero outside tests: the store's clock
}

// Changed is what a change came to.
type Changed struct {
	Record idempo.Record // after it, State "": removed. Where Err is set: as it stands
	Entry  Entry         // its audit row
	Err    error         // nil, or *Error: it was refused, and nothing changed
}

// Action is what an operator does to a key.
type Action string

const (
	// ActionResolve settles a key that is in doubt: it happened, or nothing did.
	ActionResolve Action = "resolve"
	// ActionRelease takes a running key from its owner.
	ActionRelease Action = "release"
	// ActionRetry makes the next call with a finished key run again.
	ActionRetry Action = "retry"
	// ActionPurge removes what is kept.
	ActionPurge Action = "purge"
	// ActionSkip completes a message, or gives up an event, without its effect.
	ActionSkip Action = "skip"
	// ActionDiscard forgets a message or an event.
	ActionDiscard Action = "discard"
	// ActionAppend appends an event by hand.
	ActionAppend Action = "append"
	// ActionReplay publishes events once more.
	ActionReplay Action = "replay"
	// ActionPause stops a group of an outbox, or topics of it.
	ActionPause Action = "group_pause"
	// ActionResume ends a pause.
	ActionResume Action = "group_resume"
	// ActionCreate makes a group.
	ActionCreate Action = "group_create"
	// ActionRemove removes a group with its place in the log.
	ActionRemove Action = "group_remove"
	// ActionAdopt publishes from another database than before.
	ActionAdopt Action = "group_adopt"
	// ActionReveal shows a stored answer.
	ActionReveal Action = "reveal"
)

// Actions are all of them.
func Actions() []Action {
	return []Action{ActionResolve, ActionRelease, ActionRetry, ActionSkip, ActionDiscard, ActionPurge, ActionReveal, ActionAppend, ActionReplay,
		ActionPause, ActionResume, ActionCreate, ActionRemove, ActionAdopt}
}

// Change is one action on one key. Which fields count depends on the action.
type Change struct {
	Action  Action
	Key     idempo.Key   // as the store has it: its ID is the digest
	Attempt int64        // the one that the decision was made on
	State   idempo.State // the effective state that the decision was made on; "": whichever allows the action

	// To is, of a resolve, idempo.StateCompleted or idempo.StateFailed; of a release idempo.StateFailed, which says that
	// nothing happened, or idempo.StateInDoubt.
	To idempo.State
	// Done is the result of a resolve to completed; its Result, Size, SHA256, Kept, Sealed and Tombstone count.
	Done idempo.CompleteParams
	// Retention is how long a settled result, or a failure, is kept. A retry keeps that of its record where that is known.
	Retention time.Duration
	// Force lets a retry run a success again.
	Force bool
	// Tombstones lets a purge remove the fact that it happened as well: a late call then runs.
	Tombstones bool
	// InDoubt lets a purge remove keys that are in doubt.
	InDoubt bool

	Actor    string // who decided it
	Role     Role
	Channel  string // cli, api, dashboard
	Reason   string
	Evidence string // a URL, maybe
	// Refused is the code of a refusal that was decided before the store was asked; nothing changes then, and the audit
	// row says so.
	Refused string
}

// Judge decides c on the stored record r (found false: there is none) at now. write says that the returned record is to
// be written in r's place; one whose State is "" says that the row is to be removed, with its aliases and earlier
// attempts. An error is *Error: not_found, moved, wrong_state, or code record_unreadable. Judge does no I/O and shares
// nothing with r.
func (c Change) Judge(r idempo.Record, found bool, now time.Time) (rec idempo.Record, write bool, err error) {
	eff, live := r.Effective(now)
	switch {
	case c.Refused != "":
		return eff, false, c.refuse(c.Refused, eff)
	case !found || !live:
		return idempo.Record{Key: c.Key, Now: now}, false, c.refuse(CodeNotFound, idempo.Record{Key: c.Key})
	case !r.Readable():
		return eff, false, c.refuse(CodeUnreadable, eff)
	case r.Attempt != c.Attempt, c.State != "" && c.State != eff.State:
		return eff, false, c.refuse(CodeMoved, eff)
	}
	switch c.Action {
	case ActionReveal:
		return eff, false, nil
	case ActionResolve:
		if !doubtful(r, eff) || c.To != idempo.StateCompleted && c.To != idempo.StateFailed {
			return eff, false, c.refuse(CodeWrongState, eff)
		}
		return c.settled(r, now), true, nil
	case ActionRelease:
		if eff.State != idempo.StatePending || doubtful(r, eff) {
			return eff, false, c.refuse(CodeWrongState, eff)
		}
		return c.released(r, now), true, nil
	case ActionRetry:
		again := eff.State == idempo.StateExpired || eff.State == idempo.StateCompleted && (eff.Result.Failing || c.Force)
		if !again {
			return eff, false, c.refuse(CodeWrongState, eff)
		}
		return c.renewed(r, now), true, nil
	case ActionPurge:
		return c.purged(r, eff, now)
	}
	return eff, false, c.refuse(CodeWrongState, eff)
}

// doubtful reports whether nobody knows what became of r: it is in doubt, or its started owner vanished.
func doubtful(r, eff idempo.Record) bool {
	return eff.State == idempo.StateInDoubt || r.Lapsed(eff.Now) && !r.StartedAt.IsZero()
}

// change returns r as every action begins to change it.
func (c Change) change(r idempo.Record, state idempo.State, now time.Time) idempo.Record {
	n := r.Clone()
	n.State, n.Token, n.ChangedAt, n.Now, n.DueAt = state, idempo.Token{}, now, now, time.Time{}
	return n
}

func (c Change) settled(r idempo.Record, now time.Time) idempo.Record {
	n := c.change(r, c.To, now)
	n.ExpiresAt = now.Add(c.Retention)
	if c.To == idempo.StateFailed {
		return n
	}
	n.CompletedAt, n.Note = now, ""
	done := idempo.Record{Result: c.Done.Result, BodySHA256: c.Done.SHA256}.Clone()
	n.Result, n.BodySHA256 = done.Result, done.BodySHA256
	n.BodySize, n.BodyKept, n.Sealed = c.Done.Size, c.Done.Kept, c.Done.Sealed
	if c.Done.Tombstone != idempo.Forever {
		n.GoneAt = n.ExpiresAt.Add(c.Done.Tombstone)
	}
	return n
}

func (c Change) released(r idempo.Record, now time.Time) idempo.Record {
	if r.StartedAt.IsZero() || c.To == idempo.StateFailed { // what never started did not happen
		n := c.change(r, idempo.StateFailed, now)
		n.ExpiresAt = now.Add(c.Retention)
		return n
	}
	return c.change(r, idempo.StateInDoubt, now)
}

func (c Change) renewed(r idempo.Record, now time.Time) idempo.Record {
	keep := c.Retention
	if kept := r.ExpiresAt.Sub(r.CompletedAt); !r.CompletedAt.IsZero() && !r.ExpiresAt.IsZero() && kept > 0 {
		keep = kept
	}
	n := c.change(r, idempo.StateFailed, now)
	n.Generation = max(r.Generation, 1) + 1
	n.Result, n.BodySize, n.BodySHA256, n.BodyKept, n.Sealed = idempo.Result{}, 0, nil, false, ""
	n.CompletedAt, n.GoneAt, n.ExpiresAt = time.Time{}, time.Time{}, now.Add(keep)
	return n
}

// purged is Judge for a purge.
func (c Change) purged(r, eff idempo.Record, now time.Time) (idempo.Record, bool, error) {
	gone := idempo.Record{Key: r.Key, Now: now}
	switch {
	case doubtful(r, eff) && c.InDoubt:
		return gone, true, nil
	case doubtful(r, eff), eff.State == idempo.StatePending:
		return eff, false, c.refuse(CodeWrongState, eff)
	case eff.State == idempo.StateIssued, eff.State == idempo.StateFailed, c.Tombstones:
		return gone, true, nil
	case eff.State == idempo.StateExpired && r.State == idempo.StateExpired:
		return eff, false, c.refuse(CodeWrongState, eff) // only a tombstone is left, and it stays
	}
	n := c.change(r, idempo.StateCompleted, now)
	if n.ExpiresAt.After(now) {
		n.ExpiresAt = now
	}
	n, _ = n.Effective(now)
	n.Token = idempo.Token{}
	return n, true, nil
}

// Archives reports whether the attempt that c ends moves to the earlier attempts.
func (c Change) Archives(r idempo.Record) bool {
	return r.Attempt > 0 && c.Action != ActionPurge && c.Action != ActionReveal
}

// Record returns the audit row of c at now: before is the effective record that was met (State "": none), after what
// became of it, err the refusal.
func (c Change) Record(before, after idempo.Record, err error, now time.Time) Entry {
	e := Entry{At: now, Actor: c.Actor, Role: c.Role, Channel: c.Channel, Action: c.Action, Outcome: OutcomeDone, Key: c.Key,
		Attempt: before.Attempt, Before: before.State, After: after.State, Reason: c.Reason, Evidence: c.Evidence}
	if before.Key.ID != "" {
		e.Key = before.Key
	}
	if err != nil {
		e.Outcome, e.Code, e.Attempt, e.After = OutcomeRefused, CodeOf(err), c.Attempt, before.State
	}
	return e
}

func (c Change) refuse(code string, r idempo.Record) *Error {
	e := &Error{Action: c.Action, Code: code, KeyRef: r.Key.Ref(), State: r.State, Attempt: r.Attempt, Generation: r.Generation}
	if code != CodeNotFound {
		e.Allowed = Next(r)
	}
	if code == CodeWrongState && r.State == idempo.StateInDoubt && c.Action == ActionPurge {
		e.Flag = "--include-in-doubt"
	}
	if code == CodeWrongState && r.State == idempo.StateExpired && c.Action == ActionPurge {
		e.Flag = "--with-tombstones"
	}
	if code == CodeWrongState && r.State == idempo.StateCompleted && c.Action == ActionRetry {
		e.Flag = "--force"
	}
	return e
}
