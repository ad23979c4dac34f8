package inbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// Order is how messages of one lane follow each other.
type Order string

// The orders. The default is OrderSerial where a message has a lane.
const (
	OrderNone       Order = "none"       // lanes mean nothing
	OrderSerial     Order = "serial"     // one at a time, in the order of arrival
	OrderLatest     Order = "latest"     // one at a time, only if newer than the lane's version
	OrderContiguous Order = "contiguous" // exactly the next version; waits on a gap
)

// Policies of Options.
const (
	OnDeadBlock     = "block"    // a dead message holds its lane
	OnDeadContinue  = "continue" // the lane goes on without it
	MissingPark     = "park"     // a message without identity waits for a person
	MissingDigest   = "digest"   // its identity is its bytes and type: equal messages are one
	MissingPosition = "position" // its identity is its place in the broker: a producer's repeat is not seen
	TooOldPark      = "park"     // a message older than the window waits for a person
	TooOldRun       = "run"      // it runs
	OnGapPark       = "park"     // after GapWait a message behind a gap waits for a person
	OnGapContinue   = "continue" // the lane goes on from the lowest that is held: see PastGap
	TieSkip         = "skip"     // under OrderLatest an equal version is stale
	TieRun          = "run"      // it runs
	FingerprintBody = "body"     // another body under a known identity is a conflict
	FingerprintOff  = "off"      // it is a duplicate
)

// Options of an Inbox. Zero values mean the defaults, negative ones are refused.
type Options struct {
	// Subscriber names who consumes; messages are deduplicated per subscriber. Required: [A-Za-z0-9._:-]{1,190}.
	Subscriber string
	// Tenant of messages that name none. Default "default".
	Tenant string
	// TenantFunc tells the tenant of a message, from what the application trusts; "" is Tenant.
	TenantFunc func(Message) string
	// TrustTenantHeader takes the tenant from the CloudEvents attribute `tenant`: whoever may publish may choose it.
	TrustTenantHeader bool
	// Source of messages that name an id and no source. Default: Message.Source, the topic or queue.
	Source string
	// Identify returns source and id of a message that has neither CloudEvents attributes nor a broker's id.
	Identify func(Message) (source, id string)
	// LaneOf and VersionOf tell lane and version of a message that has none set.
	LaneOf    func(Message) string
	VersionOf func(Message) string

	// Guard is idempo.GuardAtomic (default: effect in the store's database, Handle) or GuardLeased (effect anywhere,
	// HandleLeased). OnCrash, ProbeFunc, DownstreamHonoursKey and RepeatHarmless belong to the leased guard, see
	// idempo.Operation.
	Guard                idempo.Guard
	OnCrash              idempo.OnCrash
	ProbeFunc            func(context.Context, idempo.Record) (idempo.State, idempo.Result, error)
	DownstreamHonoursKey bool
	RepeatHarmless       string

	// Order within a lane. Default OrderSerial where a message has a lane.
	Order Order
	// OnDead is OnDeadBlock (default) or OnDeadContinue.
	OnDead string
	// Tie is TieSkip (default) or TieRun.
	Tie string
	// GapWait is how long OrderContiguous waits for a missing version before OnGap. Default 15m.
	GapWait time.Duration
	// OnGap is OnGapPark (default) or OnGapContinue.
	OnGap string
	// AnyStart lets the first version seen of a lane under OrderContiguous start its run; without it that is 1. After Idle
	// without a version any starts a new one; 0: never.
	AnyStart bool
	Idle     time.Duration
	// MissingID is MissingPark (default), MissingDigest or MissingPosition.
	MissingID string
	// Fingerprint is FingerprintBody (default) or FingerprintOff.
	Fingerprint string
	// ParkBreaker: so many messages in a row parked for identity or parsing stop the Inbox. Default 100.
	ParkBreaker int

	// Retention and Tombstone are how long a message is remembered: 24h, and seven times that. Their sum is the window.
	Retention, Tombstone time.Duration
	// Horizon is how old a message may be when the broker still delivers it; idempo.Forever: without limit; 0: not known.
	Horizon time.Duration
	// AllowShortWindow starts although Horizon is longer than the window.
	AllowShortWindow bool
	// TooOld is TooOldPark (default) or TooOldRun.
	TooOld string

	// MaxAttempts is how often the handler is started for one message. Default 10.
	MaxAttempts int
	// MaxAge ends the attempts of a message so long after its first failure. 0: MaxAttempts alone counts.
	MaxAge time.Duration
	// BackoffBase × 2 each time, at most BackoffMax, with full jitter. 1s and 15m.
	BackoffBase, BackoffMax time.Duration
	// HandlerTimeout ends the context of a handler. Default 5m.
	HandlerTimeout time.Duration
	// DrainTimeout is how long running handlers may go on when Work, or a consumer, is told to stop. Default 20s.
	DrainTimeout time.Duration
	// Lease is how long a receipt waits that a vanished worker had. Default 30s.
	Lease time.Duration
	// Workers is how many messages run at once, in Work and in a consumer. Default 8.
	Workers int
	// MaxInFlight and MaxInFlightBytes bound what a consumer has taken from its broker and not answered. 64, 16 MiB.
	MaxInFlight, MaxInFlightBytes int
	// BatchSize and BatchBytes bound one transaction of HandleBatch. 100, 8 MiB.
	BatchSize, BatchBytes int
	// KeepDone is how long the receipt of a finished message is kept, for operators, and KeepBody its body and headers.
	// 0: it goes with its message. It is about messages that had a receipt: those of Put, and those that failed before.
	KeepDone, KeepBody time.Duration
	// Poll is how often Work looks for due receipts, jittered. Default 500ms.
	Poll time.Duration

	Logger *slog.Logger // nil: no logging
}

func (o Options) withDefaults() Options {
	o.Tenant = cmp.Or(o.Tenant, "default")
	o.Guard = cmp.Or(o.Guard, idempo.GuardAtomic)
	o.OnDead = cmp.Or(o.OnDead, OnDeadBlock)
	o.Tie = cmp.Or(o.Tie, TieSkip)
	o.GapWait = cmp.Or(o.GapWait, 15*time.Minute)
	o.OnGap = cmp.Or(o.OnGap, OnGapPark)
	o.MissingID = cmp.Or(o.MissingID, MissingPark)
	o.Fingerprint = cmp.Or(o.Fingerprint, FingerprintBody)
	o.ParkBreaker = cmp.Or(o.ParkBreaker, 100)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	o.Tombstone = cmp.Or(o.Tombstone, 7*o.Retention)
	o.TooOld = cmp.Or(o.TooOld, TooOldPark)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.BackoffBase = cmp.Or(o.BackoffBase, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, 15*time.Minute)
	o.HandlerTimeout = cmp.Or(o.HandlerTimeout, 5*time.Minute)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 20*time.Second)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Workers = cmp.Or(o.Workers, 8)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 64)
	o.MaxInFlightBytes = cmp.Or(o.MaxInFlightBytes, 16<<20)
	o.BatchSize = cmp.Or(o.BatchSize, 100)
	o.BatchBytes = cmp.Or(o.BatchBytes, 8<<20)
	o.Poll = cmp.Or(o.Poll, 500*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// check returns every mistake of o as given.
func (o Options) check() (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("inbox: "+format, a...)) }
	switch {
	case o.Subscriber == "":
		bad("Subscriber is required")
	case len(o.Subscriber) > 190:
		bad("Subscriber is longer than 190 bytes")
	}
	for name, v := range map[string]int64{
		"GapWait": int64(o.GapWait), "ParkBreaker": int64(o.ParkBreaker), "Retention": int64(o.Retention), "Tombstone": int64(o.Tombstone),
		"Horizon": int64(o.Horizon), "MaxAttempts": int64(o.MaxAttempts), "BackoffBase": int64(o.BackoffBase), "BackoffMax": int64(o.BackoffMax),
		"HandlerTimeout": int64(o.HandlerTimeout), "DrainTimeout": int64(o.DrainTimeout), "Workers": int64(o.Workers), "Lease": int64(o.Lease),
		"MaxInFlight": int64(o.MaxInFlight), "MaxInFlightBytes": int64(o.MaxInFlightBytes), "BatchSize": int64(o.BatchSize),
		"BatchBytes": int64(o.BatchBytes), "Poll": int64(o.Poll), "Idle": int64(o.Idle), "MaxAge": int64(o.MaxAge), "KeepDone": int64(o.KeepDone), "KeepBody": int64(o.KeepBody),
	} {
		if v < 0 {
			bad("%s is negative", name)
		}
	}
	word := func(name, v string, known ...string) {
		if v == "" {
			return
		}
		if slices.Contains(known, v) {
			return
		}
		bad("%s %q: one of %q", name, v, known)
	}
	word("Order", string(o.Order), string(OrderNone), string(OrderSerial), string(OrderLatest), string(OrderContiguous))
	word("OnDead", o.OnDead, OnDeadBlock, OnDeadContinue)
	word("Tie", o.Tie, TieSkip, TieRun)
	word("OnGap", o.OnGap, OnGapPark, OnGapContinue)
	word("MissingID", o.MissingID, MissingPark, MissingDigest, MissingPosition)
	word("TooOld", o.TooOld, TooOldPark, TooOldRun)
	word("Fingerprint", o.Fingerprint, FingerprintBody, FingerprintOff)
	if o.BackoffBase > 0 && o.BackoffMax > 0 && o.BackoffMax < o.BackoffBase {
		bad("BackoffMax %v is shorter than BackoffBase %v", o.BackoffMax, o.BackoffBase)
	}
	if w := o.withDefaults().window(); w != idempo.Forever && o.KeepDone > w {
		bad("KeepDone %v is longer than Retention and Tombstone together, %v: a receipt must not outlive what is remembered", o.KeepDone, w)
	}
	if o.Guard == idempo.GuardLeased && (o.Order == OrderLatest || o.Order == OrderContiguous) {
		bad("Order %s needs the atomic guard: the lane's version commits with the effect", o.Order)
	}
	return errs
}

// operation is what the inbox declares to the engine.
func (o Options) operation() idempo.Operation {
	return idempo.Operation{
		Name: "inbox:" + o.Subscriber, Guard: o.Guard, OnCrash: o.OnCrash, ProbeFunc: o.ProbeFunc,
		DownstreamHonoursKey: o.DownstreamHonoursKey, RepeatHarmless: o.RepeatHarmless,
		Retention: o.Retention, Tombstone: o.Tombstone, MaxRun: max(15*time.Minute, 2*o.HandlerTimeout),
	}
}

// Window is how long a message is remembered: Retention and Tombstone together, idempo.Forever if the tombstone is.
func (in *Inbox) Window() time.Duration { return in.o.window() }

func (o Options) window() time.Duration {
	if o.Tombstone == idempo.Forever {
		return idempo.Forever
	}
	return o.Retention + o.Tombstone
}
