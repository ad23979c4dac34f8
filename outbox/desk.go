package outbox

import (
	"context"
	"time"
)

// Desk is what operators see of an outbox and change in it. Changes are audited in the
// transaction that makes them, by the rules of the store's records.
type Desk interface {
	// Status reads how each group stands, and what holds it up. It works with a read-only role and on a standby.
	Status(ctx context.Context, p StatusParams) (Status, error)
	// List reads events in the order of Seq, each with its state in p.Group. It returns ErrKept where p.Since is older than
	// what is kept; Listed.Kept then says from when.
	List(ctx context.Context, p ListParams) (Listed, error)
	// Change makes p.Action of each target, or says why not; targets are changed each by itself. It begins a new epoch.
	Change(ctx context.Context, p ChangeParams) (Changed, error)
	// SetGroup makes, pauses, resumes, removes or adopts a group, or changes its settings, and returns it as it is then.
	// Removed: its Name is "". It begins a new epoch.
	SetGroup(ctx context.Context, p GroupParams) (GroupStatus, error)
}

// Audit is who changes something, and why. Reason is required.
type Audit struct {
	Actor, Role, Channel, Reason string
}

// StatusParams ask for one group or all.
type StatusParams struct {
	Group string // "": all
	Now   time.Time
}

// Status is how an outbox stands.
type Status struct {
	Groups      []GroupStatus
	Unmatched   []TopicStatus // topics that no group matches: their rows are kept for ever
	Rows, Bytes int64         // of the log; an estimate where counting would read it all
	Kept        time.Time     // the oldest event of the log; zero: it is empty
	Environment string        // "": none was said
	Identity    string        // of the database, as it would be adopted
	Standby     bool          // read from a standby, or a read-only server
	Holders     []Holder      // of the horizon: what keeps the oldest snapshot, and rotation
	Now         time.Time
}

// GroupStatus is how a group stands.
type GroupStatus struct {
	Name         string
	Topics       []string
	External     bool   // published by somebody else, through the replication slot Slot
	Slot         string //
	Pending      int64  // behind the cursor, queued ones included; an estimate where counting would read it all
	Oldest       time.Duration
	Waiting      int64
	Dead         int64
	NoRoute      int64 // of Waiting
	BlockedKeys  int64
	Paused       bool
	PausedTopics []string
	Relays       []RelayStatus
	Free         int      // partitions without a living owner
	Holders      []Holder // of its oldest event: dead (a dead head), no_route, partition (without a relay), paused, group
	Foreign      bool     // the database is not the one it published from last
}

// RelayStatus is a relay as the store knows it.
type RelayStatus struct {
	Owner      string
	Partitions int
	Since      time.Time
	Until      time.Time // of its lease
}

// TopicStatus counts the events of a topic.
type TopicStatus struct {
	Topic       string
	Rows, Bytes int64
	Oldest      time.Duration
}

// Holder is what holds something up: session (pid, user, application, database, state), prepared (transaction), slot
// (replication slot), group, topic, dead, no_route, partition, paused, lock. Text names no key, tenant or address.
type Holder struct {
	Kind string        `json:"kind"`
	Text string        `json:"text"`
	Age  time.Duration `json:"-"`
}

// ListParams read events. Empty fields do not filter.
type ListParams struct {
	Group          string // whose states are told; required
	Tenant         string
	IDs            []string
	Topics         []string // globs
	Types          []string
	Key            string
	KeyRef         string  // of the claim an event was appended in
	States         []State // pending has the queued ones
	Since, Until   time.Time
	After          int64 // Seq of the last one read
	Limit          int   // at most so many, 100 if 0
	WithoutPayload bool
	Now            time.Time
}

// Listed is a page of events.
type Listed struct {
	Events []Aside   // those of the log have only Row, State and Holds
	More   bool      //
	Kept   time.Time // the oldest event of the log
	Now    time.Time
}

// What Change does.
const (
	ActionRetry   = "retry"   // waiting, dead or skipped: waiting, attempts from 0, due now, with a fresh Replay
	ActionSkip    = "skip"    // waiting, queued or dead: skipped; its key goes on
	ActionDiscard = "discard" // waiting, queued, dead or skipped: the row goes for good; of a topic: no group needs its events
)

// ChangeParams change events that are set aside.
type ChangeParams struct {
	Group   string
	Action  string
	Targets []Target
	Topics  []string // ActionDiscard only: exact topics that no group matches
	DryRun  bool     // says what would happen; nothing is written, audit included
	Audit   Audit
	Now     time.Time
}

// Judge says why the target, which is a now, is not changed: the code of a ChangeOutcome, "" when it is. A target that is
// not set aside is code not_found.
func (p ChangeParams) Judge(a Aside, t Target) string {
	switch {
	case a.State != t.State || a.Attempts != t.Attempts:
		return "moved"
	case p.Action == ActionRetry && a.State != StateQueued:
		return ""
	case p.Action == ActionSkip && a.State != StateSkipped:
		return ""
	case p.Action == ActionDiscard:
		return ""
	}
	return "wrong_state"
}

// Apply returns what a judged target becomes; gone: its row goes. replay is a fresh text for Aside.Replay.
func (p ChangeParams) Apply(a Aside, replay string, now time.Time) (next Aside, gone bool) {
	a.LastAt, a.NextAt = now, time.Time{}
	switch p.Action {
	case ActionRetry:
		a.State, a.Class, a.Holds, a.Attempts, a.Starts, a.NextAt, a.Replay = StateWaiting, ClassFailed, a.Key != "", 0, 0, now, replay
	case ActionSkip:
		a.State, a.Holds = StateSkipped, false
	}
	return a, p.Action == ActionDiscard
}

// Target is one event as the operator saw it.
type Target struct {
	Seq      int64
	State    State
	Attempts int
}

// Changed is what Change did, in the order of the targets.
type Changed struct {
	Outcomes []ChangeOutcome
}

// ChangeOutcome is what became of one target.
type ChangeOutcome struct {
	Seq   int64
	ID    string // of the event, "": not found
	Code  string // "": done; not_found, moved (it is not as the operator saw it), wrong_state
	State State  // now; "": gone
}

// What SetGroup does.
const (
	GroupCreate = "create" // with From, and External and Slot; one that is there is ErrGroup
	GroupPause  = "pause"  // of Topics alone where some are named
	GroupResume = "resume" // the same way
	GroupRemove = "remove" // with all its cursors and what is set aside; living relays stop
	GroupAdopt  = "adopt"  // publish from this database from now on: what it published before is not published again
)

// GroupParams change a group.
type GroupParams struct {
	Group    string
	Action   string
	Topics   []string
	From     string
	External bool
	Slot     string
	Audit    Audit
	Now      time.Time
}
