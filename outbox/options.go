package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"
)

// Words of Options and RelayOptions.
const (
	KeyLockAdvisory = "advisory" // Append locks each key until the transaction's end
	KeyLockCaller   = "caller"   // the caller has locked what the key stands for already: its row
	AfterCommit     = "commit"   // publish what is committed
	AfterStandby    = "standby"  // publish only what a standby has confirmed
	OnDeadBlock     = "block"    // a dead event holds its key
	OnDeadContinue  = "continue" // the key goes on without it
)

// Options of an Outbox. Zero values mean the defaults, negative ones are refused.
type Options struct {
	// Source of events that name none, a URI reference such as /shop/orders. Required.
	Source string
	// Tenant of events that name none. Default "default".
	Tenant string
	// MaxPayload is how many bytes a payload may have. Default 960 KiB, which fits NATS and Kafka with headers; ≤ 64 MiB.
	MaxPayload int
	// KeyLock is KeyLockAdvisory (default) or KeyLockCaller.
	KeyLock string
	// TraceFunc tells traceparent and tracestate of a context; nil: none is stored.
	TraceFunc func(context.Context) (parent, state string)
	// CorrelationFunc tells what an event's correlation-id is, at most 255 bytes without control characters. nil or "": the
	// key reference of the claim that the event is appended in, if any.
	CorrelationFunc func(context.Context) string
}

func (o Options) withDefaults() Options {
	o.Tenant = cmp.Or(o.Tenant, "default")
	o.MaxPayload = cmp.Or(o.MaxPayload, 960<<10)
	o.KeyLock = cmp.Or(o.KeyLock, KeyLockAdvisory)
	return o
}

// check returns every mistake of o with its defaults.
func (o Options) check() (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("outbox: "+format, a...)) }
	switch {
	case o.Source == "":
		bad("Source is required: a URI reference such as /shop/orders")
	case len(o.Source) > maxText:
		bad("Source has %d bytes, at most %d are allowed", len(o.Source), maxText)
	}
	if len(o.Tenant) > maxText {
		bad("Tenant has %d bytes, at most %d are allowed", len(o.Tenant), maxText)
	}
	if o.MaxPayload < 0 || o.MaxPayload > 64<<20 {
		bad("MaxPayload %d: 1 to %d", o.MaxPayload, 64<<20)
	}
	if o.KeyLock != KeyLockAdvisory && o.KeyLock != KeyLockCaller {
		bad("KeyLock %q: %s or %s", o.KeyLock, KeyLockAdvisory, KeyLockCaller)
	}
	return errs
}

// RelayOptions of a Relay. Zero values mean the defaults, negative ones are refused.
type RelayOptions struct {
	// Group is whose cursor is moved: all relays of a group publish each event once together. Default "main".
	Group string
	// Topics the group publishes, globs in which * is any text. Default "*".
	Topics []string
	// From says where a new group begins: FromBeginning or FromNow. The first group of an outbox needs none.
	From string
	// Owner names this relay in leases and messages. Default: made of random bytes.
	Owner string
	// Environment this relay publishes for; a database that says another is refused.
	Environment string
	// PublishAfter is AfterCommit (default) or AfterStandby.
	PublishAfter string
	// OnDead is OnDeadBlock (default) or OnDeadContinue.
	OnDead string
	// MaxAttempts is how many failures that count make an event dead. Default 10.
	MaxAttempts int
	// BackoffBase × 2 each time, at most BackoffMax, with full jitter. 100ms and 30s.
	BackoffBase, BackoffMax time.Duration
	// BatchRows and BatchBytes bound what is read at once. 1,000 and 8 MiB.
	BatchRows, BatchBytes int
	// MaxInFlight and MaxInFlightBytes bound what is sent and not answered. 1,000 and 16 MiB.
	MaxInFlight, MaxInFlightBytes int
	// MinPoll and MaxPoll are how soon an idle relay looks again: it begins with the first and doubles up to the second,
	// jittered. 5ms and 250ms.
	MinPoll, MaxPoll time.Duration
	// AckEvery is how often the cursor is stored at most. Default 100ms.
	AckEvery time.Duration
	// Lease is how long a silent relay keeps its partitions; Renew is how often it speaks. 15s and 5s; Lease ≥ 3 × Renew.
	Lease, Renew time.Duration
	// PublishTimeout is how long an answer is waited for before the event is sent again. Default 30s.
	PublishTimeout time.Duration
	// StatementTimeout bounds every call of the store. Default 10s.
	StatementTimeout time.Duration
	// DrainTimeout is how long Run waits for answers when it is told to stop. Default 20s.
	DrainTimeout time.Duration
	// Retention is how long published rows are kept. Default 7 days.
	Retention time.Duration

	Observer Observer     // nil: none
	Logger   *slog.Logger // nil: no logging

	// DecryptFunc opens the payload of a Row whose Sealed is not empty. nil: such rows cannot be published.
	DecryptFunc func(Row) ([]byte, error)
}

func (o RelayOptions) withDefaults() RelayOptions {
	o.Group = cmp.Or(o.Group, "main")
	if len(o.Topics) == 0 {
		o.Topics = []string{"*"}
	}
	o.Owner = cmp.Or(o.Owner, "relay-"+newID(time.Now())[24:])
	o.PublishAfter = cmp.Or(o.PublishAfter, AfterCommit)
	o.OnDead = cmp.Or(o.OnDead, OnDeadBlock)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.BackoffBase = cmp.Or(o.BackoffBase, 100*time.Millisecond)
	o.BackoffMax = cmp.Or(o.BackoffMax, 30*time.Second)
	o.BatchRows = cmp.Or(o.BatchRows, 1000)
	o.BatchBytes = cmp.Or(o.BatchBytes, 8<<20)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 1000)
	o.MaxInFlightBytes = cmp.Or(o.MaxInFlightBytes, 16<<20)
	o.MinPoll = cmp.Or(o.MinPoll, 5*time.Millisecond)
	o.MaxPoll = cmp.Or(o.MaxPoll, 250*time.Millisecond)
	o.AckEvery = cmp.Or(o.AckEvery, 100*time.Millisecond)
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Renew = cmp.Or(o.Renew, 5*time.Second)
	o.PublishTimeout = cmp.Or(o.PublishTimeout, 30*time.Second)
	o.StatementTimeout = cmp.Or(o.StatementTimeout, 10*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 20*time.Second)
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// check returns every mistake of o with its defaults.
func (o RelayOptions) check() (errs []error) {
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("outbox: "+format, a...)) }
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxAttempts", int64(o.MaxAttempts)}, {"BackoffBase", int64(o.BackoffBase)}, {"BackoffMax", int64(o.BackoffMax)}, {"BatchRows", int64(o.BatchRows)},
		{"BatchBytes", int64(o.BatchBytes)}, {"MaxInFlight", int64(o.MaxInFlight)}, {"MaxInFlightBytes", int64(o.MaxInFlightBytes)}, {"MinPoll", int64(o.MinPoll)},
		{"MaxPoll", int64(o.MaxPoll)}, {"AckEvery", int64(o.AckEvery)}, {"Lease", int64(o.Lease)}, {"Renew", int64(o.Renew)},
		{"PublishTimeout", int64(o.PublishTimeout)}, {"StatementTimeout", int64(o.StatementTimeout)}, {"DrainTimeout", int64(o.DrainTimeout)},
		{"Retention", int64(o.Retention)},
	} {
		if f.value < 0 {
			bad("%s is negative", f.name)
		}
	}
	switch {
	case len(o.Group) > maxText || strings.ContainsFunc(o.Group, notTopic):
		bad("Group %q: only letters, digits, . _ - are allowed, at most %d", short(o.Group), maxText)
	case len(o.Owner) > maxText:
		bad("Owner is longer than %d bytes", maxText)
	}
	for _, t := range o.Topics {
		if _, err := path.Match(t, ""); err != nil || t == "" || strings.ContainsFunc(strings.ReplaceAll(t, "*", ""), notTopic) {
			bad("Topics: %q: letters, digits, . _ - and * for any text", short(t))
		}
	}
	word := func(name, v string, known ...string) {
		if slices.Contains(known, v) {
			return
		}
		bad("%s %q: one of %q", name, v, known)
	}
	word("From", o.From, "", FromBeginning, FromNow)
	word("PublishAfter", o.PublishAfter, AfterCommit, AfterStandby)
	word("OnDead", o.OnDead, OnDeadBlock, OnDeadContinue)
	if o.Lease < 3*o.Renew {
		bad("Lease %v is shorter than three times Renew %v: a relay that is late once would lose its partitions", o.Lease, o.Renew)
	}
	if o.BackoffMax < o.BackoffBase {
		bad("BackoffMax %v is shorter than BackoffBase %v", o.BackoffMax, o.BackoffBase)
	}
	if o.MaxPoll < o.MinPoll {
		bad("MaxPoll %v is shorter than MinPoll %v", o.MaxPoll, o.MinPoll)
	}
	return errs
}

// Match reports whether a topic is one of globs, in which * is any text.
func Match(globs []string, topic string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, topic); ok && err == nil {
			return true
		}
	}
	return false
}
