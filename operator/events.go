package operator

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
)

// FindEvents say which events of an outbox are wanted. Every field that is set must match.
type FindEvents struct {
	Group        string // whose states are told; required
	Tenant       string
	IDs          []string
	Topics       []string // globs
	Types        []string
	Key          string
	KeyRef       string // of the claim an event was appended in
	State        outbox.State
	Since, Until time.Time
	Limit        int    // of one page; 0: 100, at most 1,000
	After        string // EventPage.Next of the page before
}

// EventStates are the words of FindEvents.State.
func EventStates() []outbox.State {
	return []outbox.State{outbox.StatePending, outbox.StatePublished, outbox.StateWaiting, outbox.StateDead, outbox.StateSkipped}
}

// EventPage is a part of a list.
type EventPage struct {
	Events []outbox.Aside // without payloads, unless they were asked for
	Next   string         // "": this was the last page
	Kept   time.Time      // the oldest event that is kept
	Now    time.Time
}

// EventKey is what the audit calls an event of a group.
func EventKey(group string, e outbox.Aside) idempo.Key {
	sum := sha256.Sum256([]byte(e.ID))
	return idempo.Key{Tenant: e.Tenant, Operation: "outbox:" + group, ID: string(sum[:])}
}

func eventCursor(e outbox.Aside) string { return strconv.FormatInt(e.Seq, 36) }

// outboxOf returns what operators see of the store's outbox.
func (s *Service) outboxOf(a Action) (outbox.Desk, error) {
	o, ok := s.store.(outbox.Opener)
	if !ok {
		return nil, unsupported(a, "keep an outbox")
	}
	_, desk := o.Outbox()
	return desk, nil
}

// whole reports whether the principal sees all tenants: how an outbox stands is told to those alone.
func (p Principal) whole() bool { return p.reads() && p.Tenants == nil }

// OutboxStatusParams ask how an outbox stands.
type OutboxStatusParams struct {
	By    Principal
	Group string // "": all
}

// OutboxStatus tells how each group stands, and what holds it up. It works with a role that may only read.
func (s *Service) OutboxStatus(ctx context.Context, p OutboxStatusParams) (outbox.Status, error) {
	desk, err := s.outboxOf("")
	if err != nil {
		return outbox.Status{}, err
	}
	if !p.By.whole() {
		return outbox.Status{}, &Error{Code: CodeNotFound, Of: "outbox"}
	}
	got, err := desk.Status(ctx, outbox.StatusParams{Group: p.Group})
	if err == nil && p.Group != "" && len(got.Groups) == 0 {
		return outbox.Status{}, &Error{Code: CodeNotFound, Of: "group"}
	}
	return got, err
}

// ListEventsParams ask for a part of the list.
type ListEventsParams struct {
	By      Principal
	Find    FindEvents
	Payload bool // with payloads, as they are stored
}

// Events lists events in the order of their numbers, each with its state in a group: what is in the log, and what was set
// aside. outbox.ErrKept: Since is older than what is kept.
func (s *Service) Events(ctx context.Context, p ListEventsParams) (EventPage, error) {
	desk, err := s.outboxOf("")
	if err != nil {
		return EventPage{}, err
	}
	find := p.Find
	var after int64
	if find.After != "" {
		if after, err = strconv.ParseInt(find.After, 36, 64); err != nil || after < 1 {
			return EventPage{}, invalid("", "%v", ErrCursor)
		}
	}
	switch {
	case find.State != "" && !slices.Contains(EventStates(), find.State):
		return EventPage{}, invalid("", "unknown status %q", find.State)
	case !p.By.reads(), find.Tenant != "" && !p.By.sees(find.Tenant):
		return EventPage{}, &Error{Code: CodeNotFound, Of: "event"}
	}
	ask := outbox.ListParams{Group: find.Group, Tenant: find.Tenant, IDs: find.IDs, Topics: find.Topics, Types: find.Types, Key: find.Key, KeyRef: find.KeyRef,
		Since: find.Since, Until: find.Until, After: after, Limit: min(orDefault(find.Limit, 100), 1000), WithoutPayload: !p.Payload}
	if find.State != "" {
		ask.States = []outbox.State{find.State}
	}
	var page EventPage
	for {
		got, err := desk.List(ctx, ask)
		if err != nil {
			return EventPage{Kept: got.Kept, Now: got.Now}, err
		}
		page.Kept, page.Now = got.Kept, got.Now
		for _, e := range got.Events {
			ask.After = e.Seq
			if p.By.sees(e.Tenant) {
				page.Events = append(page.Events, e)
			}
		}
		if !got.More || len(got.Events) == 0 {
			return page, nil
		}
		if len(page.Events) > 0 { // else a page of other tenants
			page.Next = strconv.FormatInt(ask.After, 36)
			return page, nil
		}
	}
}

// EventsParams do one action to every event of a group that a filter finds, be it one.
type EventsParams struct {
	By     Principal
	Find   FindEvents
	Action Action // ActionRetry, ActionSkip, ActionDiscard
	One    bool   // exactly one is meant: that there is none, or that its state does not allow it, is an error

	Reason   string // required
	Evidence string
	Limit    int // of events that are changed; 0: 1,000
	Rate     int // events a second at most; 0: 5,000
	DryRun   bool
	// ProgressFunc is told after every batch. It must not block.
	ProgressFunc func(Handled[outbox.Aside])
	// Stop, once closed, ends it after the batch that runs. The end of the context ends it at once.
	Stop <-chan struct{}
}

// ActEvents does one action to events that are set aside, in batches, each committed with its audit rows.
func (s *Service) ActEvents(ctx context.Context, p EventsParams) (Handled[outbox.Aside], error) {
	desk, err := s.outboxOf(p.Action)
	if err != nil {
		return Handled[outbox.Aside]{}, err
	}
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: p.Action, Reason: strings.TrimSpace(p.Reason), Evidence: p.Evidence,
		Key: idempo.Key{Operation: "outbox:" + p.Find.Group}}
	if err := s.admitted(ctx, p.By, e, p.DryRun, "event"); err != nil {
		return Handled[outbox.Aside]{}, err
	}
	m := &events{s: s, p: p, desk: desk, entry: e}
	find := p.Find
	find.Limit = 500
	w := walk[outbox.Aside]{dry: p.DryRun, limit: orDefault(p.Limit, 1000), rate: orDefault(p.Rate, 5000), stop: p.Stop, cursor: eventCursor, do: m.flush,
		take: func(x outbox.Aside) (bool, error) { return m.take(ctx, x) },
		page: func(ctx context.Context, after string) ([]outbox.Aside, string, error) {
			find.After = after
			page, err := s.Events(ctx, ListEventsParams{By: p.By, Find: find})
			return page.Events, page.Next, err
		}}
	m.got.Next, m.got.Stopped, err = w.run(ctx, p.Find.After)
	if err == nil && p.One && m.got.Looked == 0 {
		err = s.refuse(ctx, e, &Error{Action: p.Action, Of: "event", Code: CodeNotFound}, p.DryRun)
	}
	return m.got, err
}

// events is one ActEvents at work.
type events struct {
	s     *Service
	p     EventsParams
	entry Entry
	desk  outbox.Desk
	got   Handled[outbox.Aside]
	batch []outbox.Aside
}

// why is the refusal of an action on e that is in state now.
func (m *events) why(e outbox.Aside, code string, now outbox.State) *Error {
	return &Error{Action: m.p.Action, Of: "event", Code: code, KeyRef: EventKey(m.p.Find.Group, e).Ref(), State: idempo.State(now), Attempt: int64(e.Attempts)}
}

// take puts e into the batch if the action is for it.
func (m *events) take(ctx context.Context, e outbox.Aside) (bool, error) {
	m.got.Looked++
	aside := e.State != outbox.StatePublished && (e.State != outbox.StatePending || !e.FirstAt.IsZero())
	code := CodeWrongState
	if aside {
		code = outbox.ChangeParams{Action: string(m.p.Action)}.Judge(e, outbox.Target{Seq: e.Seq, State: e.State, Attempts: e.Attempts})
	}
	switch {
	case code != "" && m.p.One:
		why := m.why(e, code, e.State)
		if !aside {
			why.Hint = "only what is set aside is changed"
		}
		return false, m.refused(ctx, e, why)
	case code != "":
		m.got.Skipped++
		return false, nil
	case m.p.DryRun:
		if m.got.OK++; len(m.got.Sample) < maxSample {
			m.got.Sample = append(m.got.Sample, e)
		}
		return true, nil
	}
	m.batch = append(m.batch, e)
	return true, nil
}

func (m *events) refused(ctx context.Context, e outbox.Aside, why *Error) error {
	row := m.entry
	row.Key, row.Attempt, row.Before, row.After = EventKey(m.p.Find.Group, e), int64(e.Attempts), idempo.State(e.State), why.State
	return m.s.refuse(ctx, row, why, m.p.DryRun)
}

// flush does the batch.
func (m *events) flush(ctx context.Context) error {
	if len(m.batch) == 0 {
		return nil
	}
	p := outbox.ChangeParams{Group: m.p.Find.Group, Action: string(m.p.Action),
		Audit: outbox.Audit{Actor: m.p.By.Actor, Role: string(m.p.By.Role), Channel: m.p.By.Channel, Reason: m.entry.Reason}}
	for _, e := range m.batch {
		p.Targets = append(p.Targets, outbox.Target{Seq: e.Seq, State: e.State, Attempts: e.Attempts})
	}
	done, err := m.desk.Change(ctx, p)
	if err != nil {
		return err
	}
	var first error
	for i, out := range done.Outcomes {
		if out.Code == "" {
			m.got.OK++
			if m.s.config.ObserveFunc != nil {
				m.s.config.ObserveFunc(m.p.Action, OutcomeDone)
			}
			continue
		}
		why := m.why(m.batch[i], out.Code, out.State)
		err := m.refused(ctx, m.batch[i], why)
		if e, ok := errors.AsType[*Error](err); !ok || e != why {
			return err
		}
		if m.got.Failed++; len(m.got.Failures) < maxFailures {
			m.got.Failures = append(m.got.Failures, Refused[outbox.Aside]{m.batch[i], why})
		}
		first = err
	}
	m.batch = nil
	if m.p.ProgressFunc != nil {
		m.p.ProgressFunc(m.got)
	}
	if m.p.One {
		return first
	}
	return nil
}

// ChangeGroupParams change a group of an outbox, or let go of topics that no group matches.
type ChangeGroupParams struct {
	By     Principal
	Group  outbox.GroupParams // its Audit is filled in
	DryRun bool
}

// ChangeGroup makes, pauses, resumes, removes or adopts a group. It needs the right to act, and to remove or adopt one that
// of an administrator; both on all tenants.
func (s *Service) ChangeGroup(ctx context.Context, p ChangeGroupParams, reason string) (outbox.GroupStatus, error) {
	action := Action("group_" + p.Group.Action)
	desk, err := s.outboxOf(action)
	if err != nil {
		return outbox.GroupStatus{}, err
	}
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: action, Reason: strings.TrimSpace(reason), Key: idempo.Key{Operation: "outbox:" + p.Group.Group}}
	if err := s.admitted(ctx, p.By, e, p.DryRun, "group"); err != nil {
		return outbox.GroupStatus{}, err
	}
	if !p.By.whole() {
		return outbox.GroupStatus{}, s.refuse(ctx, e, &Error{Action: action, Of: "group", Code: CodeForbidden}, p.DryRun)
	}
	if p.DryRun {
		got, err := desk.Status(ctx, outbox.StatusParams{Group: p.Group.Group})
		if err != nil || action == ActionCreate {
			return outbox.GroupStatus{Name: p.Group.Group, Topics: p.Group.Topics}, err
		}
		if len(got.Groups) == 0 {
			return outbox.GroupStatus{}, &Error{Action: action, Of: "group", Code: CodeNotFound}
		}
		return got.Groups[0], nil
	}
	p.Group.Audit = outbox.Audit{Actor: e.Actor, Role: string(e.Role), Channel: e.Channel, Reason: e.Reason}
	got, err := desk.SetGroup(ctx, p.Group)
	if err != nil {
		if errors.Is(err, outbox.ErrGroup) {
			_ = s.refuse(ctx, e, &Error{Action: action, Of: "group", Code: CodeWrongState}, false)
		}
		return got, err
	}
	if s.config.ObserveFunc != nil {
		s.config.ObserveFunc(action, OutcomeDone)
	}
	return got, nil
}

// DiscardTopics lets go of the events of topics that no group matches.
func (s *Service) DiscardTopics(ctx context.Context, by Principal, group string, topics []string, reason string) error {
	desk, err := s.outboxOf(ActionDiscard)
	if err != nil {
		return err
	}
	e := Entry{Actor: by.Actor, Role: by.Role, Channel: by.Channel, Action: ActionDiscard, Reason: strings.TrimSpace(reason), Key: idempo.Key{Operation: "outbox:" + group}}
	if err := s.admitted(ctx, by, e, false, "topic"); err != nil {
		return err
	}
	if !by.whole() {
		return s.refuse(ctx, e, &Error{Action: ActionDiscard, Of: "topic", Code: CodeForbidden}, false)
	}
	_, err = desk.Change(ctx, outbox.ChangeParams{Group: group, Action: outbox.ActionDiscard, Topics: topics,
		Audit: outbox.Audit{Actor: e.Actor, Role: string(e.Role), Channel: e.Channel, Reason: e.Reason}})
	return err
}

// AppendParams append one event by hand.
type AppendParams struct {
	By     Principal
	Event  outbox.Event // its Source is required
	Reason string
}

// Append appends an event in a transaction of its own, with its audit row, and returns its id.
func (s *Service) Append(ctx context.Context, p AppendParams) (id string, err error) {
	box, err := outbox.New(s.store, outbox.Options{Source: p.Event.Source, MaxPayload: 64 << 20})
	if err != nil {
		return "", invalid(ActionAppend, "%v", err)
	}
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: ActionAppend, Reason: strings.TrimSpace(p.Reason)}
	if err := s.admitted(ctx, p.By, e, false, "event"); err != nil {
		return "", err
	}
	if p.Event.Tenant == "" {
		p.Event.Tenant = "default"
	}
	if !p.By.sees(p.Event.Tenant) {
		return "", s.refuse(ctx, e, &Error{Action: ActionAppend, Of: "event", Code: CodeForbidden}, false)
	}
	err = box.Do(ctx, func(ctx context.Context) error {
		ids, err := box.Append(ctx, p.Event)
		if err != nil {
			return err
		}
		id = ids[0]
		e.Key, e.Outcome, e.After = EventKey("", outbox.Aside{Row: outbox.Row{Event: outbox.Event{ID: id, Tenant: p.Event.Tenant}}}), OutcomeDone, idempo.State(outbox.StatePending)
		e.Key.Operation = "outbox:" + p.Event.Topic
		return s.record(ctx, e)
	})
	return id, err
}

// ShowEventParams ask for one event.
type ShowEventParams struct {
	By      Principal
	Group   string
	ID      string
	Payload bool
}

// ShownEvent is what is known of an event.
type ShownEvent struct {
	Group string
	Event outbox.Aside
	Audit []Entry // the newest 1,000, the oldest first
	Next  []NextStep
}

// Event explains one event. Of several with the same id it is the newest.
func (s *Service) Event(ctx context.Context, p ShowEventParams) (ShownEvent, error) {
	var found *outbox.Aside
	ask := ListEventsParams{By: p.By, Find: FindEvents{Group: p.Group, IDs: []string{p.ID}}, Payload: p.Payload}
	for {
		page, err := s.Events(ctx, ask)
		if err != nil {
			return ShownEvent{}, err
		}
		if n := len(page.Events); n > 0 {
			found = &page.Events[n-1]
		}
		if ask.Find.After = page.Next; page.Next == "" {
			break
		}
	}
	if found == nil {
		return ShownEvent{}, &Error{Code: CodeNotFound, Of: "event"}
	}
	shown := ShownEvent{Group: p.Group, Event: *found, Next: NextOfEvent(p.Group, *found)}
	if a, ok := s.store.(Auditor); ok {
		page, err := a.Audit(ctx, AuditParams{Ref: []byte(EventKey(p.Group, *found).ID)[:16], Newest: true, Limit: 1000})
		if err != nil {
			return ShownEvent{}, err
		}
		shown.Audit = page.Entries
		slices.Reverse(shown.Audit)
	}
	return shown, nil
}

// NextOfEvent says what can become of an event in a group, what comes by itself first.
func NextOfEvent(group string, e outbox.Aside) []NextStep {
	self := func(text string) NextStep { return NextStep{Text: text} }
	act := func(a Action, text string) NextStep {
		return NextStep{Action: a, Text: text, Command: "idempo outbox " + string(a) + " " + e.ID + " --group " + group + ` --reason "…"`}
	}
	retry := act(ActionRetry, "is published at once, with the same id")
	skip := act(ActionSkip, "is given up; later events of its key go on")
	discard := act(ActionDiscard, "is removed for good")
	switch e.State {
	case outbox.StatePublished:
		return []NextStep{{Action: ActionReplay, Text: "is published once more, with the same id", Command: "idempo outbox replay --id " + e.ID + " --group " + group + ` --to … --reason "…"`}}
	case outbox.StateWaiting:
		return []NextStep{self("it is tried again when its time comes"), retry, skip, discard}
	case outbox.StateQueued:
		return []NextStep{self("it is published when the earlier ones of its key are"), skip, discard}
	case outbox.StateDead:
		return []NextStep{retry, skip, discard}
	case outbox.StateSkipped:
		return []NextStep{retry, discard}
	}
	return []NextStep{self("a relay of the group publishes it")}
}
