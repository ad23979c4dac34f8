package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// operatorStore is what an operator asks of a store, lists apart.
type operatorStore struct {
	operator.Changer
	operator.Auditor
	operator.Counter
	operator.Historian
}

// ops is the store as an operator sees it.
func (k *K) ops() operatorStore { o, _ := opsOf(k.Store); return o }

func opsOf(s idempo.Store) (o operatorStore, ok bool) {
	var has [4]bool
	o.Changer, has[0] = s.(operator.Changer)
	o.Auditor, has[1] = s.(operator.Auditor)
	o.Counter, has[2] = s.(operator.Counter)
	o.Historian, has[3] = s.(operator.Historian)
	return o, has == [4]bool{true, true, true, true}
}

func operated(s idempo.Store) bool { _, ok := opsOf(s); return ok }

func scanned(s idempo.Store) bool { _, ok := s.(operator.Scanner); return ok }

func listed(s idempo.Store) bool { _, ok := s.(operator.Lister); return ok }

// An operation of the column operator: how it is asked, and what the table says.
type operatorCell struct {
	name   string
	change operator.Change
	want   func(s situation) string // the state after it, "" for removed, or a code
}

func (s situation) doubtful() bool {
	return s.state == idempo.StateInDoubt || s.state == idempo.StatePending && s.lapsed && s.started
}

func resolveTo(to idempo.State) operator.Change {
	c := operator.Change{Action: operator.ActionResolve, To: to, Retention: retention}
	if to == idempo.StateCompleted {
		r := answer()
		r.Status, r.Header = 200, nil
		c.Done = idempo.CompleteParams{Result: r, Size: int64(len(r.Body)), Kept: true, Tombstone: tombstone}
	}
	return c
}

// operatorColumn is the column operator of the transition table, by hand.
func operatorColumn() []operatorCell {
	resolve := func(to idempo.State) operatorCell {
		return operatorCell{"resolve to " + string(to), resolveTo(to), func(s situation) string {
			if s.doubtful() {
				return string(to)
			}
			return "wrong_state"
		}}
	}
	release := func(name string, to idempo.State) operatorCell {
		return operatorCell{name, operator.Change{Action: operator.ActionRelease, To: to, Retention: retention}, func(s situation) string {
			switch {
			case s.state != idempo.StatePending || s.doubtful():
				return "wrong_state"
			case !s.started:
				return string(idempo.StateFailed)
			}
			return string(to)
		}}
	}
	retry := func(name string, force bool) operatorCell {
		return operatorCell{name, operator.Change{Action: operator.ActionRetry, Force: force, Retention: retention}, func(s situation) string {
			if s.state == idempo.StateExpired || s.state == idempo.StateCompleted && force {
				return string(idempo.StateFailed)
			}
			return "wrong_state"
		}}
	}
	purge := func(name string, tombstones, doubts bool) operatorCell {
		return operatorCell{name, operator.Change{Action: operator.ActionPurge, Tombstones: tombstones, InDoubt: doubts}, func(s situation) string {
			switch {
			case s.doubtful() && doubts, s.state == idempo.StateIssued, s.state == idempo.StateFailed,
				tombstones && (s.state == idempo.StateCompleted || s.state == idempo.StateExpired):
				return ""
			case s.state == idempo.StateCompleted:
				return string(idempo.StateExpired)
			case s.name == "expired":
				return string(idempo.StateExpired) // by the clock alone: what is over leaves now
			}
			return "wrong_state"
		}}
	}
	return []operatorCell{
		resolve(idempo.StateCompleted), resolve(idempo.StateFailed),
		release("release, nothing happened", idempo.StateFailed), release("release", idempo.StateInDoubt),
		retry("retry", false), retry("forced run", true),
		purge("purge", false, false), purge("purge with tombstones", true, false), purge("purge with doubts", false, true),
	}
}

// operatorCells returns a case for each situation and operator's action.
func operatorCells() (all []testCase) {
	for _, s := range situations() {
		for _, cell := range operatorColumn() {
			all = append(all, testCase{name: "[stores/T10] [operations/OP27] transition: " + s.name + " · " + cell.name, needs: needOperator,
				run: func(k *K) { s.operatorCell(k, cell) }})
		}
	}
	return all
}

// asked completes a change: on which key, seen how, by whom.
func (k *K) asked(c operator.Change, r idempo.Record, key idempo.Key) operator.Change {
	c.Key, c.Attempt, c.State = key, r.Attempt, r.State
	c.Actor, c.Role, c.Channel, c.Reason, c.Evidence = "ann@host", operator.RoleAdmin, "cli", "found in the bank portal", "https://bank.example/91"
	return c
}

// change does one change at the time at.
func (k *K) change(c operator.Change, at time.Time) operator.Changed {
	k.Helper()
	done, err := k.ops().Change(k.ctx, operator.ChangeParams{Changes: []operator.Change{c}, Now: at})
	k.ok(err)
	if len(done) != 1 {
		k.Fatalf("%d answers to one change", len(done))
	}
	return done[0]
}

func (s situation) operatorCell(k *K, cell operatorCell) {
	want := cell.want(s)
	if s.state == "" {
		want = "not_found"
	}
	refused := want == "wrong_state" || want == "not_found"
	p, at, before := s.begin(k)
	for _, stale := range []operator.Change{{Attempt: before.Attempt + 1, State: before.State}, {Attempt: before.Attempt, State: otherState(before.State)}} {
		if s.state == "" {
			break
		}
		c := k.asked(cell.change, before, p.Key)
		c.Attempt, c.State = stale.Attempt, stale.State
		got := k.change(c, at)
		k.refusal(got, c, operator.CodeMoved, before)
		k.same("the row of a change that came too late", k.look(p.Key, at), before)
	}
	c := k.asked(cell.change, before, p.Key)
	got := k.change(c, at)
	after := k.look(p.Key, at)
	k.audited(p.Key, got.Entry)
	if refused {
		k.refusal(got, c, want, before)
		k.same("the refused change's row", after, before)
		return
	}
	if got.Err != nil || string(after.State) != want || got.Record.State != after.State {
		k.Fatalf("%v: state %q, returned %q; want %q", got.Err, after.State, got.Record.State, want)
	}
	e := got.Entry
	if e.Outcome != operator.OutcomeDone || e.Before != before.State || string(e.After) != want || e.Attempt != before.Attempt || !e.At.Equal(at) ||
		e.Actor != c.Actor || e.Reason != c.Reason || e.Evidence != c.Evidence || e.Role != c.Role || e.Channel != c.Channel || e.Action != c.Action {
		k.Errorf("audit row %+v", e)
	}
	s.checkChanged(k, cell, p, at, before, after)
}

func otherState(s idempo.State) idempo.State {
	if s == idempo.StateFailed {
		return idempo.StateIssued
	}
	return idempo.StateFailed
}

// checkChanged looks at the row that a change left, at the history, and at who is fenced.
func (s situation) checkChanged(k *K, cell operatorCell, p idempo.AcquireParams, at time.Time, before, after idempo.Record) {
	k.Helper()
	if after.State != "" && (!after.Token.IsZero() || !after.ChangedAt.Equal(at) || after.Attempt != before.Attempt || string(after.Hash) != string(before.Hash) ||
		!after.CreatedAt.Equal(before.CreatedAt)) {
		k.Errorf("changed to %+v", after)
	}
	generation := before.Generation
	if cell.change.Action == operator.ActionRetry {
		generation++
	}
	switch after.State {
	case idempo.StateFailed:
		if after.Generation != generation || !after.ExpiresAt.Equal(at.Add(retention)) || !after.Result.Equal(idempo.Result{}) || !after.GoneAt.IsZero() || !after.CompletedAt.IsZero() {
			k.Errorf("failed as %+v", after)
		}
	case idempo.StateCompleted:
		if !after.Result.Equal(cell.change.Done.Result) || !after.CompletedAt.Equal(at) || !after.ExpiresAt.Equal(at.Add(retention)) || !after.GoneAt.Equal(at.Add(retention+tombstone)) {
			k.Errorf("completed as %+v", after)
		}
	case idempo.StateExpired:
		if after.Result.Body != nil || after.Result.Header != nil || after.Detail != nil || after.Snapshot != nil || after.Trace != "" || after.Note != "" ||
			after.Result.Resource != answer().Resource || after.Result.Status != answer().Status {
			k.Errorf("a tombstone of %+v", after)
		}
	}
	attempts, err := k.ops().Attempts(k.ctx, p.Key)
	k.ok(err)
	kept := after.State != "" && before.Attempt > 0 && cell.change.Action != operator.ActionPurge
	if kept != (len(attempts) == 1) {
		k.Errorf("%d earlier attempts", len(attempts))
	} else if kept && (attempts[0].Attempt != before.Attempt || attempts[0].Owner != before.Owner || !attempts[0].ClaimedAt.Equal(before.ClaimedAt) || attempts[0].Generation != before.Generation) {
		k.Errorf("the earlier attempt is %+v", attempts[0])
	}
	if before.Attempt > 0 {
		_, err := k.Store.Complete(k.ctx, k.done(p, before.Attempt, at))
		k.code(err, "lease_lost")
		if after.State != "" {
			k.same("the row after its old owner's late result", k.look(p.Key, at), after)
		}
	}
	if after.State != idempo.StateFailed && after.State != "" {
		return
	}
	if other := k.again(p, at); after.State == idempo.StateFailed {
		other.Hash = digest("another request")
		k.verdict(other, idempo.VerdictMismatch)
	}
	r := k.won(k.again(p, at))
	if after.State == idempo.StateFailed && (r.Attempt != before.Attempt+1 || r.Generation != generation) {
		k.Errorf("then attempt %d, generation %d", r.Attempt, r.Generation)
	}
	if after.State == "" && (r.Attempt != 1 || r.Generation != 1) {
		k.Errorf("after a removal attempt %d, generation %d", r.Attempt, r.Generation)
	}
}

// refusal wants a change to be refused with code on the record as it stands, and an audit row that says so.
func (k *K) refusal(got operator.Changed, c operator.Change, code string, stands idempo.Record) {
	k.Helper()
	e := got.Entry
	if operator.CodeOf(got.Err) != code || e.Outcome != operator.OutcomeRefused || e.Code != code || e.Before != stands.State || e.After != stands.State || e.Attempt != c.Attempt {
		k.Errorf("%v, audit row %+v; want %s", got.Err, e, code)
	}
	if stands.State != "" && (got.Record.State != stands.State || got.Record.Attempt != stands.Attempt) {
		k.Errorf("the refusal shows %s, attempt %d", got.Record.State, got.Record.Attempt)
	}
}

// audited wants the newest audit row of key to be e.
func (k *K) audited(key idempo.Key, e operator.Entry) {
	k.Helper()
	page, err := k.ops().Audit(k.ctx, operator.AuditParams{Key: key, Newest: true, Limit: 1})
	k.ok(err)
	if len(page.Entries) != 1 {
		k.Fatalf("%d audit rows", len(page.Entries))
	}
	if got := page.Entries[0]; fmt.Sprint(got) != fmt.Sprint(e) || got.Key.ID != key.ID {
		k.Errorf("the audit says %+v, the change said %+v", got, e)
	}
	if strings.Contains(fmt.Sprint(e.Key), key.ID) {
		k.Error("an audit row prints its key")
	}
}
