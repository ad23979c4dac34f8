package inbox

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Message is one delivery, as a broker adapter hands it over. Nothing in it is changed; the handler gets a copy whose
// Tenant, Source, ID, Type, Lane, Version and Time are filled in from CloudEvents attributes and Options.
type Message struct {
	// Tenant of the message, from a source that the adapter trusts. "": Options.TenantFunc, then Options.Tenant.
	Tenant string
	// Source is where it came from when it does not say so itself: topic or queue.
	Source string
	// ID is the broker's identity of the message (AMQP message-id, Nats-Msg-Id). CloudEvents id and source count first.
	ID string
	// Type of the message, free text.
	Type string
	// Lane is what order is kept within; "": Options.LaneOf, then the CloudEvents partitionkey, then Partition.
	Lane string
	// Version inside the lane: an integer of any length, or an RFC 3339 instant under OrderLatest; "": Options.VersionOf,
	// then the CloudEvents sequence.
	Version string
	// Headers as they came: name and value, repeated names in order.
	Headers [][2]string
	// Body as it came. Nil differs from empty.
	Body []byte
	// Attempt is which delivery this is: 1 only if it is certainly the first, 2 or more if it is a redelivery, 0 if the
	// broker does not say.
	Attempt int
	// Time is when the broker, or the producer, took it; zero: not known.
	Time time.Time
	// Position in the broker: "topic/partition/offset". It is the identity under MissingPosition.
	Position string
	// Partition is the broker's own ordering key (Kafka's record key), the last choice of a lane.
	Partition string
}

// Handler does the work of one message. Its context carries the claim's transaction (postgres.Tx, sqlite.Tx, …), ends
// after Options.HandlerTimeout and with the caller's. It must be repeatable until it returns: a conflict in the database
// runs it again. nil commits; see Permanent, Skip and Later for the rest.
type Handler func(ctx context.Context, m Message) error

// Header returns the first value of a header, its name compared without case.
func (m Message) Header(name string) (value string, ok bool) {
	for _, h := range m.Headers {
		if strings.EqualFold(h[0], name) {
			return h[1], true
		}
	}
	return "", false
}

// clone returns m without memory of the caller's.
func (m Message) clone() Message {
	m.Headers, m.Body = slices.Clone(m.Headers), bytes.Clone(m.Body)
	return m
}

// Status is what became of a message.
type Status string

// The words of Outcome.Status and Receipt.Status.
const (
	StatusDone      Status = "done"      // effect committed now
	StatusDuplicate Status = "duplicate" // effect committed before
	StatusSkipped   Status = "skipped"   // completed without effect
	StatusRetrying  Status = "retrying"  // failed, will be tried again
	StatusStored    Status = "stored"    // kept, waits behind its lane, a gap, or for its time
	StatusDead      Status = "dead"      // attempts used up, or Permanent: waits for a person
	StatusParked    Status = "parked"    // never started: waits for a person
	StatusInDoubt   Status = "in_doubt"  // leased only: an effect may have happened
	StatusRunning   Status = "running"   // elsewhere: ask again after RetryIn
	StatusStarted   Status = "started"   // of a receipt: a start is counted, the message is still the broker's
)

// Reasons of a parked message, and others that Outcome.Reason names.
const (
	ReasonConflict   = "conflict"   // other body under a known identity
	ReasonMissingID  = "missing_id" // no identity
	ReasonBadID      = "bad_id"     // identity too long, or with NUL
	ReasonUnparsable = "unparsable" // CloudEvents, lane or version that cannot be read
	ReasonTooOld     = "too_old"    // older than the inbox remembers
	ReasonGap        = "gap"        // its predecessor did not come within GapWait
	ReasonStale      = "stale"      // skipped: the lane is past its version
	ReasonLane       = "lane"       // stored: an earlier message of its lane waits
	ReasonLater      = "later"      // stored: the handler said Later
	ReasonAttempts   = "attempts"   // dead: MaxAttempts starts
	ReasonPermanent  = "permanent"  // dead: the handler said Permanent
	ReasonTxEnded    = "tx_ended"   // dead: the handler ended the transaction
	ReasonAccepted   = "accepted"   // a conflict that a person let run
	ReasonUnreadable = "unreadable" // what is stored cannot be decrypted
	ReasonUnordered  = "unordered"  // stored: a person lets it run whatever its lane's version is
	ReasonSkip       = "skip"       // stored: a person skips it; Work completes it without its effect
)

// Outcome is the answer to one message.
type Outcome struct {
	Status Status
	Reason string // why, where the status does not say it all
	// Ack says that the message may be acknowledged: what became of it is durable. Never acknowledge on an error.
	Ack     bool
	RetryIn time.Duration // with StatusRunning: when to ask again
	Result  idempo.Result // of the run that had the effect: see SetResult
	Err     error         // of the handler, with retrying, dead and in_doubt

	started bool // the handler was, whatever came of it
}
