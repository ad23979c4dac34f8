package inbox

import (
	"context"
	"slices"
	"time"
)

// Opener is a store that keeps receipts and lanes beside its records. New asks the engine's store for it.
type Opener interface {
	// Inbox returns the receipts of the store. It does no I/O.
	Inbox() Store
}

// Store keeps receipts and lanes. It decides nothing about messages: whether one has had its effect is the engine's
// record alone. Package storetest says when an implementation is right.
//
// Rules: 1 every method joins the transaction that its context carries; without one it is a transaction of its own ·
// 2 times are the store's clock, read after any lock wait, or Now where a test sets it · 3 bytes compare as bytes ·
// 4 nothing of the caller's memory is kept, nothing returned is shared · 5 errors are *idempo.Error, as of
// idempo.Store. All methods are safe for concurrent use.
type Store interface {
	// Enter looks at what a message of the key and lane would meet. With a lane it must be called in a transaction and
	// takes the lane until its end, without waiting: Busy says that another transaction has it, or that it cannot be
	// told; then nothing else is filled in. Without lane and key it reads the row of the subscriber itself.
	Enter(ctx context.Context, p EnterParams) (Entered, error)
	// Put makes p.Receipt the receipt of its key: a new one with Rev 0, which is lost to one that is there, or the
	// successor of the revision Rev, which is lost to every other. The message of a receipt never changes. Of concurrent
	// calls one wins; losing is no error.
	Put(ctx context.Context, p PutParams) (Stored, error)
	// Leave is what a finished message does to the tables: its receipt goes, the lane gets its version, and the next
	// receipt of the lane becomes due. Without lane and key it makes the row of the subscriber, if there is none.
	Leave(ctx context.Context, p LeaveParams) error
	// Take hands out receipts that are due, the oldest first, of all tenants: each gets a new revision, one attempt more,
	// and is due again after Lease. Of concurrent calls one gets a receipt; none waits for another.
	Take(ctx context.Context, p TakeParams) ([]Receipt, error)
	// List reads receipts in the order in which they came, or the newest first, without lock.
	List(ctx context.Context, p ListParams) ([]Receipt, error)
}

// Foreseer is a store that can look at many messages at once. It is a hint: Enter says the same afterwards as without it.
type Foreseer interface {
	// Foresee takes the lanes of Enter calls that will follow in the transaction of ctx, and reads what they would, in one
	// round trip where it can. Outside of a transaction it does nothing.
	Foresee(ctx context.Context, ps []EnterParams) error
}

// Sweeper is a store that forgets. Without it receipts of finished messages stay for ever.
type Sweeper interface {
	// Sweep removes receipts that are past GoneAt, and of those past BodyUntil body and headers; at most p.Limit of each. It
	// must not be called in a transaction.
	Sweep(ctx context.Context, p SweepParams) (Swept, error)
}

// Noter is a store that counts how often a message came again. Without it nothing is counted.
type Noter interface {
	// Note adds to Receipt.Seen, and sets SeenAt to the store's clock, without a new revision. A receipt that is not there
	// is passed over.
	Note(ctx context.Context, p NoteParams) error
}

// Receipt is a message that is stored: it failed, waits, waits for a person, or is finished and kept.
type Receipt struct {
	Subscriber string
	Key        string  // 32 bytes, unique per tenant and subscriber
	Message    Message // Attempt and Partition are not kept
	Seq        int64   // order of arrival
	Rev        int64   // grows with every change, from 1
	Status     Status
	Reason     string
	Holds      bool // later messages of its lane wait for it
	Attempts   int  // starts of the handler
	Failures   []Failure
	ReceivedAt time.Time
	ChangedAt  time.Time
	NextAt     time.Time // zero: by itself it is never due
	Now        time.Time // the store's clock when this was read

	Sealed    string    // id of the encryption key of body and headers, "": they are in clear
	Seen      int64     // how often it came again; a lower bound
	SeenAt    time.Time // when it last did
	BodyUntil time.Time // body and headers go then, or went; zero: they stay
	GoneAt    time.Time // the receipt goes then; zero: it stays
	// Unreadable says why body and headers could not be decrypted; both are nil then. Stores leave it alone.
	Unreadable error
}

// Bodiless tells whether body and headers are past their time.
func (r Receipt) Bodiless() bool { return !r.BodyUntil.IsZero() && !r.BodyUntil.After(r.Now) }

// over tells whether it waits for the sweep only.
func (r Receipt) over() bool { return !r.GoneAt.IsZero() && !r.GoneAt.After(r.Now) }

// Failure is one start that did not succeed.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// clone returns r without shared memory.
func (r Receipt) clone() Receipt {
	r.Message, r.Failures = r.Message.clone(), slices.Clone(r.Failures)
	return r
}

// EnterParams asks for one message.
type EnterParams struct {
	Tenant, Subscriber string
	Key                string // of its receipt, "": none is asked for
	Lane               string // "": none
	Now                time.Time
}

// Entered is what stands in a message's way.
type Entered struct {
	Busy      bool      // the lane is in another transaction
	Version   string    // of the lane, "" where it has none
	Blocked   bool      // another receipt of the lane holds it: any if the key has no receipt, else an earlier one
	Receipt   *Receipt  // of the key, nil: none
	CreatedAt time.Time // of the lane's row, or of the subscriber's
	ChangedAt time.Time // of the lane's row: when it got its version
	Now       time.Time // the store's clock
}

// PutParams writes a receipt.
type PutParams struct {
	Receipt Receipt // Seq, Rev, ReceivedAt, ChangedAt, NextAt and Now are the store's
	Rev     int64
	Due     bool // it is due Delay from now; false: it never is by itself
	Delay   time.Duration
	// BodyFor and KeepFor are how long from now body with headers, and the receipt, are kept. 0: until it is put again.
	BodyFor, KeepFor time.Duration
	Now              time.Time
}

// Stored is the receipt as it is after a Put. Lost says that it is another one's; its Status is "" where none is there.
type Stored struct {
	Receipt Receipt
	Lost    bool
}

// LeaveParams ends a message.
type LeaveParams struct {
	Tenant, Subscriber string
	Key                string // of a receipt that goes, "": none
	Rev                int64  // only if it has this revision; 0: any
	Lane               string // the next of it becomes due; "": none
	Version            string // of the lane from now on; "": unchanged
	Wanted             string // the receipts with this version are next; "": the earliest that holds the lane
	Now                time.Time
}

// TakeParams takes due receipts.
type TakeParams struct {
	Subscriber string
	Limit      int
	Lease      time.Duration
	Now        time.Time
}

// ListParams reads receipts. Empty fields do not filter.
type ListParams struct {
	Tenant, Subscriber string
	Lane               string
	Key                string
	ID                 string // Message.ID
	Position           string // Message.Position, or what stands in it before a "/"
	Statuses           []Status
	Since, Until       time.Time // ReceivedAt, at or after and before
	Newest             bool      // the newest first
	After              int64     // Seq of the last one read
	Limit              int       // at most so many, 100 if 0
	WithoutBody        bool
	Now                time.Time
}

// SweepParams forget.
type SweepParams struct {
	Subscriber string
	Limit      int
	Now        time.Time
}

// Swept is what a sweep took away.
type Swept struct{ Receipts, Bodies int }

// NoteParams say which messages came again.
type NoteParams struct {
	Subscriber string
	Seen       []Sighting
	Now        time.Time
}

// Sighting is one message that came again.
type Sighting struct {
	Tenant, Key string // of the receipt
	Times       int64
}

// Counter is a Store that counts what it keeps. Every store of idempo does.
type Counter interface {
	// Count counts the receipts of each subscriber that has any, or has had one (its row, see Leave), by name. It takes no
	// lock and writes nothing.
	Count(ctx context.Context, p CountParams) ([]Counted, error)
}

// CountParams say what is counted. Empty fields do not filter.
type CountParams struct {
	Tenant, Subscriber string
	Now                time.Time
}

// Counted is what a subscriber has.
type Counted struct {
	Subscriber   string
	Statuses     map[Status]int64
	BlockedLanes int64     // lanes that wait for a person: a dead, parked or doubtful receipt holds them
	Oldest       time.Time // when the oldest receipt came that waits: for its turn, its time or a person; zero: there is none
	Now          time.Time // the store's clock
}

// Waits reports whether a message of this status waits for its turn, its time or a person: it is neither finished nor the
// broker's.
func Waits(s Status) bool {
	switch s {
	case StatusStarted, StatusDone, StatusDuplicate, StatusSkipped, StatusRunning:
		return false
	}
	return true
}

// Waiting is how many messages of c wait for something.
func (c Counted) Waiting() (n int64) {
	for s, k := range c.Statuses {
		if Waits(s) {
			n += k
		}
	}
	return n
}
