package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idempo/idempo/inbox"
)

// The modes of an order.
const (
	OrderNone     = "none"     // lanes mean nothing
	OrderSerial   = "serial"   // one at a time in a lane, in the order of arrival: the default where the profile has a lane
	OrderLatest   = "latest"   // an event with a lower version than its lane has is stale
	OrderSequence = "sequence" // versions are numbers in steps of one; the first seen begins
	OrderRefetch  = "refetch"  // an event is a hint: the hook of Receiver.Refetch loads what is true, one at a time in a lane
)

// ParkedNoVersion: lane or version are missing or cannot be compared, and the order needs both.
const ParkedNoVersion = "no-version"

// Order is how the events of one lane follow each other.
type Order struct {
	Mode string
	// OnDead says what a dead event does to its lane: block (default) or continue.
	OnDead string
	// Tie says what becomes of an equal version of another event under latest: refetch (default where there is a hook),
	// apply (default elsewhere, unless the bytes are those of an event that ran: then it is stale), or skip.
	Tie string
	// GapWait is how long sequence waits for a missing number. 0 means 30s.
	GapWait time.Duration
	// OnGap says what follows then: continue (default) with the lowest number that waits, refetch for it, or hold it for a
	// person.
	OnGap string
	// Idle is after how long without an event any number begins a new sequence. 0 means 7 days.
	Idle time.Duration
	// AllowUnsignedVersion lets latest and sequence go by a version that no code covers.
	AllowUnsignedVersion bool
}

// versioned tells whether events are compared by their version.
func (o Order) versioned() bool { return o.Mode == OrderLatest || o.Mode == OrderSequence }

// into sets what an inbox needs for the order.
func (o Order) into(in *inbox.Options) {
	in.OnDead, in.Tie = o.OnDead, inbox.TieRun
	if o.Tie == "skip" {
		in.Tie = inbox.TieSkip
	}
	switch o.Mode {
	case OrderSequence:
		in.Order, in.AnyStart, in.OnGap = inbox.OrderContiguous, true, inbox.OnGapContinue
		in.GapWait, in.Idle = cmp.Or(o.GapWait, 30*time.Second), cmp.Or(o.Idle, 7*24*time.Hour)
		if o.OnGap == "hold" {
			in.OnGap = inbox.OnGapPark
		}
	case OrderRefetch:
		in.Order = inbox.OrderSerial
	default:
		in.Order = inbox.Order(o.Mode)
	}
}

// check judges an order.
func (s *Source) checkOrder(p *Profile, f *faults) {
	word := func(field, value, fix string, allowed ...string) { f.word("order."+field, value, fix, allowed...) }
	word("mode", s.Order.Mode, "write none, serial, latest, sequence or refetch", OrderNone, OrderSerial, OrderLatest, OrderSequence, OrderRefetch)
	word("on_dead", s.Order.OnDead, "write block or continue", "block", "continue")
	word("tie", s.Order.Tie, "write refetch, apply or skip", "refetch", "apply", "skip")
	word("on_gap", s.Order.OnGap, "write continue, refetch or hold", "continue", "refetch", "hold")
	if s.Order.GapWait < 0 || s.Order.Idle < 0 {
		f.add("order", "gap_wait or idle is negative", "write a duration such as 30s")
	}
	if s.Order.versioned() && !s.Order.AllowUnsignedVersion && !p.versionSigned() {
		f.add("order.mode", s.Order.Mode+" goes by a version that the code of "+s.Provider+" does not cover, or that it does not have",
			"use serial, or write allow_unsigned_version: true")
	}
}

// Refetch sets the hook that loads what is true of an event's entity, wherever the order of the source asks for it instead of
// the event's own content. Its error is that of a handler. It panics where the source is not configured.
func (r *Receiver) Refetch(source string, hook HandlerFunc) {
	e := r.sources[source]
	if e == nil || hook == nil || e.target != nil {
		panic(fmt.Sprintf("webhook: Refetch needs a hook, and a source that is configured and does not forward; %q is none", source))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refetch = hook
}

// hooked tells what the order of e lacks.
func (e *endpoint) hooked() error {
	o := e.v.source.Order
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.refetch == nil && (o.Mode == OrderRefetch || o.Tie == "refetch" || o.OnGap == "refetch") {
		return fmt.Errorf("webhook %s: its order refetches, and there is no hook: call Receiver.Refetch before Run", e.v.source.Name)
	}
	return nil
}

// choose returns what runs an event: a handler, or the hook where the order says so. A tie with an event that is the same
// in its bytes is skipped.
func (e *endpoint) choose(ctx context.Context, ev *Event, m inbox.Message) (HandlerFunc, error) {
	o := e.v.source.Order
	tied := o.Mode == OrderLatest && inbox.Tied(ctx)
	e.mu.RLock()
	h, hook := e.handlers[m.Type], e.refetch
	if h == nil {
		h = e.handlers["*"]
	}
	e.mu.RUnlock()
	switch {
	case o.Mode == OrderRefetch, inbox.PastGap(ctx) && o.OnGap == "refetch", tied && hook != nil && (o.Tie == "" || o.Tie == "refetch"):
		h = hook
	case tied:
		same, err := e.ran(ctx, ev, m)
		if err != nil {
			return nil, err
		}
		if same {
			return nil, inbox.Skip(inbox.ReasonStale)
		}
	}
	if h == nil {
		return nil, inbox.Skip("no-handler")
	}
	return h, nil
}

// ran tells whether an event of the same lane, version and bytes was handled lately.
func (e *endpoint) ran(ctx context.Context, ev *Event, m inbox.Message) (bool, error) {
	rs, err := e.in.Receipts(ctx, inbox.ListParams{Tenant: m.Tenant, Lane: m.Lane, Statuses: []inbox.Status{inbox.StatusDone}, Newest: true, Limit: 20})
	if err != nil {
		return false, err
	}
	for _, r := range rs {
		if r.Message.Version == m.Version && r.Message.Body != nil && bytes.Equal(r.Message.Body, ev.Body) {
			return true, nil
		}
	}
	return false, nil
}

// CloseLane says that the entity of the event is gone: what comes later in its lane with a version that is not newer is
// stale, in every order but none. It commits with the effect. It is for handlers; an event without lane or version has
// nothing to close.
func (ev *Event) CloseLane() error {
	if ev.doing == nil || ev.Lane == "" || ev.Version == "" {
		return errors.New("webhook: CloseLane needs a handler's event with lane and version")
	}
	return ev.doing.e.in.SetVersion(ev.doing.ctx, ev.Lane, ev.Version)
}

// doing is the run that an event belongs to.
type doing struct {
	ctx context.Context //nolint:containedctx // of the handler's transaction; an event does not outlive it
	e   *endpoint
}
