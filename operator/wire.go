package operator

import (
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// Row is a record in a list, as JSON: one form for command line, API and export.
type Row struct {
	Schema     int          `json:"schema"`
	KeyRef     string       `json:"key_ref"`
	Tenant     string       `json:"tenant"`
	Operation  string       `json:"operation"`
	State      string       `json:"state"`
	Guard      string       `json:"guard"`
	OnCrash    string       `json:"on_crash"`
	Surface    string       `json:"surface,omitempty"`
	Attempt    int64        `json:"attempt"`
	Generation int64        `json:"generation"`
	Owner      string       `json:"owner,omitempty"`
	Result     *RowResult   `json:"result,omitempty"`
	Resource   *RowResource `json:"resource,omitempty"`
	CreatedAt  *time.Time   `json:"created_at"`
	ChangedAt  *time.Time   `json:"changed_at"`
	LeaseUntil *time.Time   `json:"lease_until,omitempty"`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty"`
	GoneAt     *time.Time   `json:"gone_at,omitempty"`
}

// RowResult is the stored answer of a Row, without its body.
type RowResult struct {
	Status   int    `json:"status"`
	Failing  bool   `json:"failing"`
	BodySize int64  `json:"body_size"`
	BodyKept bool   `json:"body_kept"`
	Sealed   string `json:"sealed,omitempty"` // id of the encryption key; without it the answer is stored in clear
}

// RowResource is a resource pointer, as JSON.
type RowResource struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Detail is a record with its history, as JSON.
type Detail struct {
	Row
	Fingerprint string          `json:"fingerprint,omitempty"`
	References  []RowResource   `json:"references,omitempty"`
	Note        string          `json:"note,omitempty"`
	Trace       string          `json:"trace,omitempty"`
	Attempts    []DetailAttempt `json:"attempts"`
	Held        *DetailHeld     `json:"held,omitempty"`
	Audit       []EntryRow      `json:"audit"`
	Next        []DetailNext    `json:"next"`
}

// DetailHeld is an open transaction that runs the key, as JSON: what it does is not committed.
type DetailHeld struct {
	Session     string     `json:"session"`
	Application string     `json:"application"`
	Since       *time.Time `json:"since,omitempty"`
}

// DetailNext is something that can become of a key: by itself, or by a command.
type DetailNext struct {
	Text    string `json:"text"`
	Action  string `json:"action,omitempty"`
	Command string `json:"command,omitempty"`
}

// DetailAttempt is one attempt of a key, as JSON.
type DetailAttempt struct {
	Attempt     int64      `json:"attempt"`
	Generation  int64      `json:"generation"`
	State       string     `json:"state"`
	Owner       string     `json:"owner,omitempty"`
	ClaimedAt   *time.Time `json:"claimed_at,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	LeaseUntil  *time.Time `json:"lease_until,omitempty"`
	CompletedAt *time.Time `json:"completed_at,omitempty"`
	Note        string     `json:"note,omitempty"`
}

// RowOf returns r as JSON shows it in a list.
func RowOf(r idempo.Record) Row {
	l := Row{Schema: 1, KeyRef: r.Ref(), Tenant: r.Key.Tenant, Operation: r.Key.Operation, State: string(r.State), Guard: string(r.Guard),
		OnCrash: string(r.OnCrash), Surface: r.Surface, Attempt: r.Attempt, Generation: r.Generation, Owner: r.Owner,
		CreatedAt: moment(r.CreatedAt), ChangedAt: moment(r.ChangedAt), GoneAt: moment(r.GoneAt), ExpiresAt: moment(r.ExpiresAt)}
	if r.State == idempo.StatePending {
		l.LeaseUntil = moment(r.LeaseUntil)
	}
	if r.State == idempo.StateCompleted || r.State == idempo.StateExpired {
		l.Result = &RowResult{r.Result.Status, r.Result.Failing, r.BodySize, r.BodyKept, r.Sealed}
	}
	if !r.Result.Resource.IsZero() {
		l.Resource = &RowResource{r.Result.Resource.Type, r.Result.Resource.ID}
	}
	return l
}

// DetailOf returns shown as JSON.
func DetailOf(shown Shown) Detail {
	r, earlier := shown.Record, shown.Attempts
	s := Detail{Row: RowOf(r), Fingerprint: r.Recipe, Note: r.Note, Trace: r.Trace, Attempts: []DetailAttempt{}, Audit: []EntryRow{}, Next: []DetailNext{}}
	for _, ref := range r.References {
		s.References = append(s.References, RowResource{ref.Type, ref.ID})
	}
	if r.Attempt > 0 && !slices.ContainsFunc(earlier, func(e idempo.Record) bool { return e.Attempt == r.Attempt }) {
		earlier = append(earlier[:len(earlier):len(earlier)], r)
	}
	for _, e := range earlier {
		s.Attempts = append(s.Attempts, DetailAttempt{e.Attempt, e.Generation, string(e.State), e.Owner, moment(e.ClaimedAt), moment(e.StartedAt),
			moment(e.LeaseUntil), moment(e.CompletedAt), e.Note})
	}
	if h := shown.Held; !h.IsZero() {
		s.Held = &DetailHeld{h.Session, h.Application, moment(h.Since)}
	}
	for _, e := range shown.Audit {
		s.Audit = append(s.Audit, EntryRowOf(e))
	}
	for _, n := range shown.Next {
		s.Next = append(s.Next, DetailNext{n.Text, string(n.Action), n.Command})
	}
	return s
}

// EntryRow is an audit row, as JSON.
type EntryRow struct {
	Schema    int        `json:"schema"`
	ID        int64      `json:"id"`
	At        *time.Time `json:"at"`
	Actor     string     `json:"actor"`
	Role      string     `json:"role"`
	Channel   string     `json:"channel"`
	Action    string     `json:"action"`
	Outcome   string     `json:"outcome"`
	Code      string     `json:"code,omitempty"`
	KeyRef    string     `json:"key_ref"`
	Tenant    string     `json:"tenant"`
	Operation string     `json:"operation"`
	Attempt   int64      `json:"attempt"`
	Before    string     `json:"before"`
	After     string     `json:"after"`
	Reason    string     `json:"reason"`
	Evidence  string     `json:"evidence,omitempty"`
}

// EntryRowOf returns e as JSON.
func EntryRowOf(e Entry) EntryRow {
	return EntryRow{1, e.ID, moment(e.At), e.Actor, string(e.Role), e.Channel, string(e.Action), e.Outcome, e.Code, e.Key.Ref(), e.Key.Tenant, e.Key.Operation,
		e.Attempt, string(e.Before), string(e.After), e.Reason, e.Evidence}
}

// moment is a time in JSON: RFC 3339 in UTC, nil for none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// MessageRow is a message of an inbox in a list, as JSON: one form for command line, API and export.
type MessageRow struct {
	Schema      int        `json:"schema"`
	Subscriber  string     `json:"subscriber"`
	Source      string     `json:"source"`
	ID          string     `json:"id"`
	Status      string     `json:"status"`
	Reason      string     `json:"reason"`
	Attempts    int        `json:"attempts"`
	NextAttempt *time.Time `json:"next_attempt"` // null: by itself it does not run
	ReceivedAt  *time.Time `json:"received_at"`
	Lane        string     `json:"lane"`
	Version     string     `json:"version"`
	FirstError  string     `json:"first_error"`
	LastError   string     `json:"last_error"`
}

// MessageRowOf returns r as JSON shows it in a list.
func MessageRowOf(r inbox.Receipt) MessageRow {
	m := MessageRow{Schema: 1, Subscriber: r.Subscriber, Source: r.Message.Source, ID: r.Message.ID, Status: string(r.Status), Reason: r.Reason, Attempts: r.Attempts,
		NextAttempt: moment(r.NextAt), ReceivedAt: moment(r.ReceivedAt), Lane: r.Message.Lane, Version: r.Message.Version}
	if n := len(r.Failures); n > 0 {
		m.FirstError, m.LastError = r.Failures[0].Error, r.Failures[n-1].Error
	}
	return m
}

// MessageDetail is a message with its history, as JSON.
type MessageDetail struct {
	MessageRow
	Number    int64            `json:"number"`
	KeyRef    string           `json:"key_ref"`
	Tenant    string           `json:"tenant"`
	Type      string           `json:"type"`
	Position  string           `json:"position"`
	MessageAt *time.Time       `json:"message_at"`
	ChangedAt *time.Time       `json:"changed_at"`
	Holds     bool             `json:"holds"` // later messages of its lane wait for it
	BodySize  int              `json:"body_size"`
	Headers   int              `json:"headers"`
	Failures  []MessageFailure `json:"failures"`
	Audit     []EntryRow       `json:"audit"`
	Next      []DetailNext     `json:"next"`
}

// MessageFailure is a start that did not succeed, as JSON.
type MessageFailure struct {
	At    *time.Time `json:"at"`
	Error string     `json:"error"`
}

// MessageDetailOf returns shown as JSON.
func MessageDetailOf(shown ShownMessage) MessageDetail {
	r, m := shown.Receipt, shown.Receipt.Message
	d := MessageDetail{MessageRow: MessageRowOf(r), Number: r.Seq, KeyRef: MessageKey(r).Ref(), Tenant: m.Tenant, Type: m.Type, Position: m.Position, MessageAt: moment(m.Time),
		ChangedAt: moment(r.ChangedAt), Holds: r.Holds && m.Lane != "", BodySize: len(m.Body), Headers: len(m.Headers), Failures: []MessageFailure{}, Audit: []EntryRow{}, Next: []DetailNext{}}
	for _, f := range r.Failures {
		d.Failures = append(d.Failures, MessageFailure{moment(f.At), f.Error})
	}
	for _, e := range shown.Audit {
		d.Audit = append(d.Audit, EntryRowOf(e))
	}
	for _, n := range shown.Next {
		d.Next = append(d.Next, DetailNext{n.Text, string(n.Action), n.Command})
	}
	return d
}

// SubscriberRow is what an inbox keeps, as JSON.
type SubscriberRow struct {
	Schema        int     `json:"schema"`
	Subscriber    string  `json:"subscriber"`
	Retrying      int64   `json:"retrying"`
	Stored        int64   `json:"stored"`
	Dead          int64   `json:"dead"`
	Parked        int64   `json:"parked"`
	InDoubt       int64   `json:"in_doubt"`
	BlockedLanes  int64   `json:"blocked_lanes"`
	OldestSeconds float64 `json:"oldest_seconds"` // of what waits for anything; 0: nothing does
}

// SubscriberRowOf returns c as JSON.
func SubscriberRowOf(c inbox.Counted) SubscriberRow {
	row := SubscriberRow{Schema: 1, Subscriber: c.Subscriber, Retrying: c.Statuses[inbox.StatusRetrying], Stored: c.Statuses[inbox.StatusStored],
		Dead: c.Statuses[inbox.StatusDead], Parked: c.Statuses[inbox.StatusParked], InDoubt: c.Statuses[inbox.StatusInDoubt], BlockedLanes: c.BlockedLanes}
	if !c.Oldest.IsZero() {
		row.OldestSeconds = max(0, c.Now.Sub(c.Oldest).Seconds())
	}
	return row
}

// EventRow is an event of an outbox in a list, as JSON: one form for command line, API and export.
type EventRow struct {
	Schema      int        `json:"schema"`
	ID          string     `json:"id"`
	Seq         int64      `json:"seq"`
	Topic       string     `json:"topic"`
	Key         string     `json:"key"`
	Type        string     `json:"type"`
	Tenant      string     `json:"tenant"`
	Status      string     `json:"status"`
	Attempts    int        `json:"attempts"`
	NextAttempt *time.Time `json:"next_attempt"` // null: by itself there is none
	AppendedAt  *time.Time `json:"appended_at"`
	FirstError  string     `json:"first_error"`
	LastError   string     `json:"last_error"`
}

// EventRowOf returns e as JSON shows it in a list. What is queued behind another event of its key is pending.
func EventRowOf(e outbox.Aside) EventRow {
	state := e.State
	if state == outbox.StateQueued {
		state = outbox.StatePending
	}
	return EventRow{Schema: 1, ID: e.ID, Seq: e.Seq, Topic: e.Topic, Key: e.Key, Type: e.Type, Tenant: e.Tenant, Status: string(state), Attempts: e.Attempts,
		NextAttempt: moment(e.NextAt), AppendedAt: moment(e.Time), FirstError: e.FirstError, LastError: e.LastError}
}

// EventDetail is an event with what is known of it, as JSON.
type EventDetail struct {
	EventRow
	Group       string       `json:"group"`
	Source      string       `json:"source"`
	ContentType string       `json:"content_type"`
	Partition   int          `json:"partition"`
	KeyRef      string       `json:"key_ref,omitempty"` // of the claim that it was appended in
	SetAsideAt  *time.Time   `json:"set_aside_at"`
	Holds       bool         `json:"holds"` // later events of its key wait for it
	Audit       []EntryRow   `json:"audit"`
	Next        []DetailNext `json:"next"`
}

// EventDetailOf returns shown as JSON.
func EventDetailOf(shown ShownEvent) EventDetail {
	e := shown.Event
	d := EventDetail{EventRow: EventRowOf(e), Group: shown.Group, Source: e.Source, ContentType: e.ContentType, Partition: e.Partition, KeyRef: e.Trace.KeyRef,
		SetAsideAt: moment(e.FirstAt), Holds: e.Holds, Audit: []EntryRow{}, Next: []DetailNext{}}
	for _, x := range shown.Audit {
		d.Audit = append(d.Audit, EntryRowOf(x))
	}
	for _, n := range shown.Next {
		d.Next = append(d.Next, DetailNext{n.Text, string(n.Action), n.Command})
	}
	return d
}

// GroupRow is how a group of an outbox stands, as JSON.
type GroupRow struct {
	Schema        int         `json:"schema"`
	Group         string      `json:"group"`
	Topics        []string    `json:"topics"`
	Pending       int64       `json:"pending"`
	OldestSeconds float64     `json:"oldest_seconds"`
	Waiting       int64       `json:"waiting"`
	Dead          int64       `json:"dead"`
	BlockedKeys   int64       `json:"blocked_keys"`
	Paused        bool        `json:"paused"`
	PausedTopics  []string    `json:"paused_topics"`
	Relays        int         `json:"relays"`
	External      bool        `json:"external"`
	Foreign       bool        `json:"foreign"`
	Holders       []HolderRow `json:"holders"`
}

// HolderRow is what holds a group up, as JSON.
type HolderRow struct {
	Kind       string  `json:"kind"`
	Text       string  `json:"text"`
	AgeSeconds float64 `json:"age_seconds"`
}

// GroupRowOf returns g as JSON.
func GroupRowOf(g outbox.GroupStatus) GroupRow {
	row := GroupRow{Schema: 1, Group: g.Name, Topics: append([]string{}, g.Topics...), Pending: g.Pending, OldestSeconds: g.Oldest.Seconds(), Waiting: g.Waiting, Dead: g.Dead,
		BlockedKeys: g.BlockedKeys, Paused: g.Paused, PausedTopics: append([]string{}, g.PausedTopics...), Relays: len(g.Relays), External: g.External, Foreign: g.Foreign,
		Holders: []HolderRow{}}
	for _, h := range g.Holders {
		row.Holders = append(row.Holders, HolderRow{h.Kind, h.Text, h.Age.Seconds()})
	}
	return row
}
