package operator

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// MessagesParams do one action to every message that a filter finds, be it one.
type MessagesParams struct {
	By     Principal
	Find   FindMessages // Find.Limit does not count; Find.After goes on where another ended
	Action Action       // ActionRetry, ActionSkip, ActionDiscard
	Accept bool         // of a retry: also what is parked since another body was handled under its id
	// Hooks, where it is set, says which ones in place of Find: they are events of webhooks.
	Hooks *FindHooks
	// Again lets a retry run finished events once more, as the next generation: severe. IgnoreOrder lets it run whatever the
	// version of its lane is. Both are for events.
	Again, IgnoreOrder bool
	Confirm            string // of Again: what was typed
	On                 int64  // of one message: the revision that it was decided on; 0: whichever there is
	One                bool   // exactly one is meant: that there is none, or that its status does not allow it, is an error

	Reason   string // required
	Evidence string
	Limit    int // of messages that are changed; 0: 1,000
	Rate     int // messages a second at most; 0: 5,000
	DryRun   bool
	// ProgressFunc is told after every batch. It must not block.
	ProgressFunc func(Handled[inbox.Receipt])
	// Stop, once closed, ends it after the batch that runs. The end of the context ends it at once.
	Stop <-chan struct{}
}

// Handled is what a bulk over messages or events has done so far.
type Handled[T any] struct {
	Looked   int // that the filter has found
	OK       int
	Failed   int // refused when it came to them: they had moved
	Skipped  int // their state does not allow the action
	Failures []Refused[T]
	Sample   []T    // of a dry run: the first that would be changed, at most 5
	Next     string // cursor that goes on: the limit was reached, or it was stopped; "": done
	Stopped  bool
}

// Refused is one that was not changed, and why.
type Refused[T any] struct {
	Item T
	Err  *Error
}

// ActMessages does one action to messages, in batches, each committed with its audit rows. Retried ones run as soon as a
// worker of the subscriber comes to them, skipped ones are completed by it; discarded ones are gone at once.
func (s *Service) ActMessages(ctx context.Context, p MessagesParams) (Handled[inbox.Receipt], error) {
	shelf, _, err := s.inboxes(p.Action)
	if err != nil {
		return Handled[inbox.Receipt]{}, err
	}
	m := &messages{s: s, p: p, shelf: shelf}
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: p.Action, Reason: strings.TrimSpace(p.Reason), Evidence: p.Evidence}
	if err := s.admitted(ctx, p.By, e, p.DryRun, "message"); err != nil {
		return m.got, err
	}
	if p.Again && !p.DryRun && p.Confirm == "" {
		return m.got, s.refuse(ctx, e, &Error{Action: p.Action, Of: "message", Code: CodeConfirmNeeded, Hint: "what was handled runs again", Flag: "--confirm"}, false)
	}
	m.entry = e
	m.p.Limit, m.p.Rate = orDefault(p.Limit, 1000), orDefault(p.Rate, 5000)
	find := p.Find
	find.Limit = 500
	w := walk[inbox.Receipt]{dry: p.DryRun, limit: m.p.Limit, rate: m.p.Rate, stop: p.Stop, cursor: p.cursor(), do: m.flush,
		take: func(r inbox.Receipt) (bool, error) { return m.take(ctx, r) },
		page: func(ctx context.Context, after string) ([]inbox.Receipt, string, error) {
			if p.Hooks != nil {
				return s.hooksAfter(ctx, p, after)
			}
			find.After = after
			page, err := s.Messages(ctx, ListMessagesParams{By: p.By, Find: find})
			return page.Messages, page.Next, err
		}}
	from := p.Find.After
	if p.Hooks != nil {
		from = p.Hooks.After
	}
	m.got.Next, m.got.Stopped, err = w.run(ctx, from)
	if err == nil && p.One && m.got.Looked == 0 {
		err = s.refuse(ctx, e, &Error{Action: p.Action, Of: "message", Code: CodeNotFound}, p.DryRun)
	}
	return m.got, err
}

// admitted says why an action is refused before anything is looked at, having written that down.
func (s *Service) admitted(ctx context.Context, by Principal, e Entry, dry bool, of string) error {
	fail := func(code, hint string) error {
		why := &Error{Action: e.Action, Of: of, Code: code, Hint: hint}
		if len(e.Reason) > maxReason || len(e.Evidence) > maxReason {
			e.Reason, e.Evidence = "", ""
		}
		return s.refuse(ctx, e, why, dry || !by.reads())
	}
	switch {
	case !by.may(e.Action):
		return fail(CodeForbidden, "")
	case dry:
	case e.Reason == "" || e.Actor == "":
		return fail(CodeInvalid, "a reason is required, and who does it")
	case len(e.Reason) > maxReason || len(e.Evidence) > maxReason:
		return fail(CodeInvalid, "reason and evidence have at most 4,096 bytes each")
	}
	return nil
}

// refuse writes a refusal down, unless quiet, and returns it. Who may not is told that there is nothing.
func (s *Service) refuse(ctx context.Context, e Entry, why *Error, quiet bool) error {
	if e.Outcome, e.Code = OutcomeRefused, why.Code; !quiet {
		if err := s.record(ctx, e); err != nil {
			return err
		}
	}
	if why.Code == CodeForbidden {
		return &Error{Code: CodeNotFound, Of: why.Of}
	}
	return why
}

// record adds an audit row, in the transaction of ctx if there is one.
func (s *Service) record(ctx context.Context, e Entry) error {
	r, ok := s.store.(Recorder)
	if !ok {
		return unsupported(e.Action, "keep an audit")
	}
	e, err := r.RecordAudit(ctx, e)
	if err == nil && s.config.ObserveFunc != nil {
		s.config.ObserveFunc(e.Action, e.Outcome)
	}
	return err
}

// inTx runs fn in a transaction of the store, again where the store gave it up.
func (s *Service) inTx(ctx context.Context, a Action, fn func(context.Context) error) error {
	tx, ok := s.store.(idempo.Transactor)
	if !ok {
		return unsupported(a, "change its messages")
	}
	for try := 1; ; try++ {
		err := tx.InTx(ctx, fn)
		if CodeOf(err) != "tx_conflict" || try > 5 {
			return err
		}
		timer := time.NewTimer(time.Duration(try) * 5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// messages is one ActMessages at work.
type messages struct {
	s     *Service
	p     MessagesParams
	entry Entry
	shelf inbox.Store
	got   Handled[inbox.Receipt]
	batch []inbox.Receipt
}

// judge says what r becomes; gone: it goes. A refusal has no audit row yet.
func (m *messages) judge(r inbox.Receipt) (next inbox.Receipt, gone bool, why *Error) {
	refuse := func(hint string) (inbox.Receipt, bool, *Error) {
		return r, false, &Error{Action: m.p.Action, Of: "message", Code: CodeWrongState, KeyRef: MessageKey(r).Ref(), State: idempo.State(r.Status), Attempt: int64(r.Attempts),
			Hint: hint, Allowed: NextOfMessage(r)}
	}
	if m.p.Hooks != nil {
		if next, done, why := m.judgeHook(r, refuse); done {
			return next, false, why
		}
	}
	next = r
	lies := r.Status == inbox.StatusDead || r.Status == inbox.StatusParked || r.Status == inbox.StatusRetrying
	switch {
	case m.p.On != 0 && m.p.On != r.Rev:
		_, _, why := refuse("")
		why.Code = CodeMoved
		return r, false, why
	case r.Status == inbox.StatusInDoubt:
		return refuse("somebody has to find out what happened, and settle its key")
	case r.Status == inbox.StatusDone, r.Status == inbox.StatusSkipped, r.Status == inbox.StatusDuplicate:
		return refuse("it is finished")
	case r.Status == inbox.StatusStarted:
		return refuse("it is still the broker's")
	case m.p.Action == ActionDiscard:
		return r, true, nil
	case m.p.Action == ActionRetry && !lies:
		return refuse("it runs when its turn comes")
	case m.p.Action == ActionRetry && r.Reason == inbox.ReasonConflict && !m.p.Accept:
		_, _, why := refuse("another body was handled under its id")
		why.Flag = "--accept"
		return r, false, why
	case m.p.Action == ActionRetry:
		next.Attempts, next.Failures = 0, nil
		if r.Reason = ""; next.Reason == inbox.ReasonConflict || next.Reason == inbox.ReasonAccepted {
			r.Reason = inbox.ReasonAccepted
		}
		if next.Reason = r.Reason; m.p.IgnoreOrder && next.Reason == "" {
			next.Reason = inbox.ReasonUnordered
		}
	case r.Reason == inbox.ReasonConflict, r.Reason == inbox.ReasonMissingID, r.Reason == inbox.ReasonBadID, r.Reason == inbox.ReasonUnparsable:
		return refuse("it has no identity of its own to be remembered by")
	case r.Reason == inbox.ReasonSkip:
		return refuse("it is to be skipped already")
	default:
		next.Reason = inbox.ReasonSkip
	}
	next.Status, next.Holds = inbox.StatusStored, r.Message.Lane != ""
	return next, false, nil
}

// take puts r into the batch if the action is for it.
func (m *messages) take(ctx context.Context, r inbox.Receipt) (bool, error) {
	m.got.Looked++
	_, _, why := m.judge(r)
	switch {
	case why != nil && m.p.One:
		return false, m.s.refuse(ctx, m.audited(r, "", why), why, m.p.DryRun)
	case why != nil:
		m.got.Skipped++
		return false, nil
	case m.p.DryRun:
		if m.got.OK++; len(m.got.Sample) < maxSample {
			m.got.Sample = append(m.got.Sample, r)
		}
		return true, nil
	}
	m.batch = append(m.batch, r)
	return true, nil
}

// audited is the audit row about r.
func (m *messages) audited(r inbox.Receipt, after inbox.Status, why *Error) Entry {
	e := m.entry
	e.Key, e.Attempt, e.Before, e.After, e.Outcome = MessageKey(r), int64(r.Attempts), idempo.State(r.Status), idempo.State(after), OutcomeDone
	if why != nil {
		e.Outcome, e.Code, e.After = OutcomeRefused, why.Code, e.Before
	}
	return e
}

// flush does the batch in one transaction.
func (m *messages) flush(ctx context.Context) error {
	if len(m.batch) == 0 {
		return nil
	}
	var failed []Refused[inbox.Receipt]
	if err := m.renew(ctx); err != nil {
		return err
	}
	err := m.s.inTx(ctx, m.p.Action, func(ctx context.Context) error {
		failed = nil
		for _, r := range m.batch {
			why, err := m.change(ctx, r)
			if err != nil {
				return err
			}
			if why != nil {
				failed = append(failed, Refused[inbox.Receipt]{r, why})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.got.OK += len(m.batch) - len(failed)
	m.got.Failed += len(failed)
	m.got.Failures = append(m.got.Failures, failed[:min(len(failed), maxFailures-len(m.got.Failures))]...)
	m.batch = nil
	if m.p.ProgressFunc != nil {
		m.p.ProgressFunc(m.got)
	}
	if m.p.One && len(failed) == 1 {
		return failed[0].Err
	}
	return nil
}

// change changes one message as it was seen, and adds the audit row, in the transaction of ctx.
func (m *messages) change(ctx context.Context, r inbox.Receipt) (*Error, error) {
	next, gone, why := m.judge(r)
	if why != nil {
		return why, m.s.record(ctx, m.audited(r, "", why))
	}
	key := MessageKey(r)
	if !gone {
		put := inbox.PutParams{Receipt: next, Rev: r.Rev, Due: true}
		if next.Status == inbox.StatusSkipped { // there is nothing for a worker to do
			put.Due, put.BodyFor, put.KeepFor = false, skippedFor, skippedFor
		}
		st, err := m.shelf.Put(ctx, put)
		if err != nil {
			return nil, err
		}
		if st.Lost {
			why = moved(m.p.Action, key, st.Receipt)
			return why, m.s.record(ctx, m.audited(r, "", why))
		}
		return nil, m.s.record(ctx, m.audited(r, next.Status, nil))
	}
	// A change of the same revision locks the row, so that it is known that it goes.
	st, err := m.shelf.Put(ctx, inbox.PutParams{Receipt: r, Rev: r.Rev})
	if err != nil {
		return nil, err
	}
	if st.Lost {
		why = moved(m.p.Action, key, st.Receipt)
		return why, m.s.record(ctx, m.audited(r, "", why))
	}
	p := inbox.LeaveParams{Tenant: r.Message.Tenant, Subscriber: r.Subscriber, Key: r.Key, Rev: st.Receipt.Rev}
	if r.Holds {
		p.Lane = r.Message.Lane
	}
	if err := m.shelf.Leave(ctx, p); err != nil {
		return nil, err
	}
	return nil, m.s.record(ctx, m.audited(r, "", nil))
}

func moved(a Action, key idempo.Key, now inbox.Receipt) *Error {
	e := &Error{Action: a, Of: "message", Code: CodeMoved, KeyRef: key.Ref(), State: idempo.State(now.Status), Attempt: int64(now.Attempts)}
	if now.Status == "" {
		e.State = "done or gone"
	}
	return e
}

// ReleaseLaneParams let a lane go on.
type ReleaseLaneParams struct {
	By         Principal
	Subscriber string
	Tenant     string
	Lane       string
	Reason     string // required
	DryRun     bool
}

// ReleaseLane lets a lane of an inbox under inbox.OrderContiguous go on from the lowest version that is held in it, whatever
// is missing before. It returns that version. CodeNotFound: nothing with a version is held there.
func (s *Service) ReleaseLane(ctx context.Context, p ReleaseLaneParams) (from string, err error) {
	shelf, _, err := s.inboxes(ActionRelease)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte("lane " + p.Lane))
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: ActionRelease, Reason: strings.TrimSpace(p.Reason),
		Key: idempo.Key{Tenant: p.Tenant, Operation: "inbox:" + p.Subscriber, ID: string(sum[:])}}
	if err := s.admitted(ctx, p.By, e, p.DryRun, "lane"); err != nil {
		return "", err
	}
	if !p.By.sees(p.Tenant) {
		return "", s.refuse(ctx, e, &Error{Action: ActionRelease, Of: "lane", Code: CodeForbidden}, p.DryRun)
	}
	err = s.inTx(ctx, ActionRelease, func(ctx context.Context) error {
		var held []inbox.Receipt
		ask := inbox.ListParams{Tenant: p.Tenant, Subscriber: p.Subscriber, Lane: p.Lane, Limit: 500, WithoutBody: true,
			Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusParked, inbox.StatusRetrying}}
		for {
			rs, err := shelf.List(ctx, ask)
			if err != nil {
				return err
			}
			held = append(held, rs...)
			if len(rs) < ask.Limit {
				break
			}
			ask.After = rs[len(rs)-1].Seq
			first, _ := inbox.FirstHeld(held) // keep what counts, not all
			held = keepVersion(held, first)
		}
		first, before := inbox.FirstHeld(held)
		if first == "" {
			return &Error{Action: ActionRelease, Of: "lane", Code: CodeNotFound}
		}
		if from = first; p.DryRun {
			return nil
		}
		if err := shelf.Leave(ctx, inbox.LeaveParams{Tenant: p.Tenant, Subscriber: p.Subscriber, Lane: p.Lane, Version: before, Wanted: first}); err != nil {
			return err
		}
		e.Outcome = OutcomeDone
		return s.record(ctx, e)
	})
	if why, ok := errors.AsType[*Error](err); ok && why.Code == CodeNotFound {
		return "", s.refuse(ctx, e, why, p.DryRun)
	}
	return from, err
}

// keepVersion returns the receipts of one version.
func keepVersion(rs []inbox.Receipt, version string) (kept []inbox.Receipt) {
	for _, r := range rs {
		if r.Message.Version == version {
			kept = append(kept, r)
		}
	}
	return kept
}
