package outbox

import (
	"context"
	"time"
)

// Opener is a store that keeps an outbox beside its records. New and NewRelay ask the store for it.
type Opener interface {
	// Outbox returns the outbox of the store, and what operators see of it, which may be the same value. It does no I/O.
	Outbox() (Store, Desk)
}

// Store keeps the log of events, and for each group how far it is published and what is set aside. It sends nothing and
// decides nothing about failures. Package storetest says when an implementation is right.
//
// Rules: 1 the log is append-only: no row of it is changed, and none goes but by Keep · 2 no committed event is ever
// passed over, whatever order transactions commit in, however long one stays open; none of a rolled-back one is read ·
// 3 an open transaction elsewhere does not delay the events of others · 4 events of one (tenant, key) are read in the
// order in which their transactions held the key's lock · 5 whoever names an owner and a fence writes only while both are
// the partition's · 6 times are the store's clock, or Now where a test sets it · 7 bytes compare as bytes · 8 nothing of
// the caller's memory is kept, nothing returned is shared · 9 Append joins the transaction of its context; every other
// method is a short transaction of its own and holds nothing when it returns · 10 errors are *idempo.Error, as of
// idempo.Store, and the sentinels of this package. All methods are safe for concurrent use.
//
// A store may have fewer partitions than 64: one, where one relay reads per group and others stand by (Held.Total). The
// partition of a row is then that of its event modulo Total.
// What else it can do it says by Keeper, Beller, Waker and Listener.
type Store interface {
	// Append writes p.Rows to the log, in the transaction that ctx carries: ErrNoTx where it carries none, or one that is
	// over. With p.Lock it first takes a lock on each (tenant, key), in sorted order, until the transaction's end, and
	// draws the sequence numbers only then. It takes one round trip for any number of rows, or few that are bounded.
	// On an error of the database the transaction is as that database leaves it.
	Append(ctx context.Context, p AppendParams) (Appended, error)
	// Hold is a relay's sign of life: it says that p.Owner works for p.Group until p.Lease from now, extends the leases of
	// the partitions that it has, gives up those of p.Release (each with its fence; they are free at once), and takes free
	// or lapsed ones, in a new fence each, until it has p.Want. It takes none from a living owner, and gives none up by
	// itself. Of concurrent calls one gets a partition. With p.Leave all are given up, and the owner is forgotten.
	//
	// The first group of an outbox begins at the beginning; another new one as p.From says, else ErrFrom. ErrGroup: it is
	// external. ErrForeignDatabase, ErrEnvironment, ErrStandby: as they say; nothing is held then.
	Hold(ctx context.Context, p HoldParams) (Held, error)
	// Read returns what comes behind p.From, at most p.MaxRows and p.MaxBytes, but one row if there is any. The rows of a
	// partition are in order; what they cost does not grow with the backlog. It tells p.Group's epoch, also where p.From
	// is empty. It takes no lock, and where nothing is new it writes nothing and is one round trip.
	//
	// Row.Blocked says whether, at the time of the call, the event itself is set aside in p.Group, or one that holds its
	// key.
	Read(ctx context.Context, p ReadParams) (Page, error)
	// Move stores for each of p.To how far everything is published, and with it what is set aside, in one transaction.
	// What belongs to a partition whose owner and fence are no longer p's is not written, and the partition is in Lost;
	// all else is written. Any of it is progress: Lease.Starts is 0 then.
	Move(ctx context.Context, p MoveParams) (Moved, error)
	// Take hands out what is set aside in p.From and due. A row is a head if no earlier row that holds has the same tenant
	// and key; one without key always is. A head is due if it is queued or waiting and NextAt has come (zero: it has); dead and skipped
	// ones never are, nor those of a paused topic. Each head gets Starts + 1 and is due again after p.Lease only, or when its
	// partition has got another fence, committed before Take returns. Behind each head come up to p.Behind queued rows of its key, in order, unchanged.
	Take(ctx context.Context, p TakeParams) (Taken, error)
}

// Cursor is a place in the log of one partition, everything up to it being read. The zero value is the beginning. It is
// the store's own; a relay compares nothing in it.
type Cursor struct {
	Window string // of what can be seen at once; what it means is the store's business
	Seq    int64  // in the Window, in the order in which it is read
}

// Row is an event as the log has it.
type Row struct {
	Event
	Seq       int64 // rises with every event of a key
	Partition int   // PartitionOf it
	Trace     Trace
	Sealed    string // "": Payload is in clear; else the id of the key it is encrypted under
	Cursor    Cursor // right behind it, as read by Read
	Blocked   bool   // see Store.Read
}

// State is what became of an event in one group.
type State string

// The states. The log alone knows pending and published; the others are of rows that are set aside.
const (
	StatePending   State = "pending"   // the group's cursor has not come to it
	StatePublished State = "published" //
	StateWaiting   State = "waiting"   // failed, or without a route; tried again at NextAt
	StateQueued    State = "queued"    // behind an earlier one of its key, or its topic is paused; listed as pending
	StateDead      State = "dead"      // for a person; never expires
	StateSkipped   State = "skipped"   // a person has given it up
)

// Aside is an event of a group that is set aside: the group's cursor is past it.
type Aside struct {
	Row
	State      State
	Class      Class     // of the last failure
	Holds      bool      // later events of its key wait for it
	Attempts   int       // failures that counted
	Starts     int       // sends whose outcome was never written: its relay died
	NextAt     time.Time // of waiting
	FirstAt    time.Time // when it was set aside
	LastAt     time.Time // its last change
	FirstError string
	LastError  string
	Replay     string // see Delivery.Replay
}

// AppendParams are events to write. Every field of Row is filled in but Seq, Time, Cursor and Blocked.
type AppendParams struct {
	Rows []Row
	Lock bool // see Options.KeyLock
	Now  time.Time
}

// Appended is what Append did.
type Appended struct {
	Time time.Time // of the events
}

// Place is a place in the log of a partition that is leased under Fence.
type Place struct {
	Partition int
	Fence     int64
	Cursor    Cursor
}

// HoldParams are a sign of life.
type HoldParams struct {
	Group       string
	Topics      []string // the group's globs, kept for Status
	Owner       string   // of this process and run
	Environment string   // "": not said. The first that is said is kept in the store
	From        string   // FromBeginning, FromNow, "": see Hold
	Lease       time.Duration
	Want        int
	Release     []Place // Cursor is not looked at: Move stores it
	Leave       bool
	Now         time.Time
}

// Where a new group begins.
const (
	FromBeginning = "beginning"
	FromNow       = "now"
)

// Held is what a relay has.
type Held struct {
	Leases       []Lease       // all of the owner's, by partition
	Total        int           // partitions of a group in this store, 1 to 64
	Relays       int           // living owners of the group, this one included
	Rank         int           // of this one among them, from 0, by the time they came
	NextFree     time.Duration // until the next lease of another owner lapses, if it is not extended; 0: there is none
	Epoch        int64         // see Page
	Paused       bool
	PausedTopics []string // globs
	Environment  string   // of the store, "": none was ever said
}

// Lease is a partition that a relay has.
type Lease struct {
	Partition int
	Fence     int64
	Cursor    Cursor // as stored
	Starts    int    // owners that lapsed since the last progress
}

// ReadParams ask for what is new.
type ReadParams struct {
	Group        string
	From         []Place // where reading goes on; Fence is not looked at
	Topics       []string
	MaxRows      int
	MaxBytes     int
	PublishAfter string // AfterCommit, AfterStandby
	Now          time.Time
}

// Page is what was read. The store may leave out rows whose topic none of ReadParams.Topics matches.
type Page struct {
	Rows []Row
	// Next is where reading goes on, of every partition that got further, behind all its rows of this page. Between the
	// last row and Next nothing is left to publish.
	Next []Place
	// More: there is more to read at once.
	More bool
	// Epoch of the group changes when a relay joins, leaves or gives up partitions, when the group or a topic is paused or
	// resumed, and when an operator changes what is set aside.
	Epoch int64
}

// MoveParams store what became of events.
type MoveParams struct {
	Group  string
	Owner  string
	To     []Place // a zero Cursor stays where it is
	Asides []Setting
	Now    time.Time
}

// Setting is what became of an event that is set aside, or is now. Its partition is in MoveParams.To.
type Setting struct {
	// Row is the event. Where New is false only Partition and Seq count; one that is not set aside, or was skipped, is left
	// alone, but that a skipped one goes when it is published.
	Row Row
	New bool // the event comes from the log and is set aside now; one that is set aside already is left alone
	// State from now on. StatePublished: the row goes.
	State    State
	Class    Class
	Holds    bool
	Attempts int
	Starts   int
	Wait     time.Duration // of StateWaiting, from now
	Error    string        // "": FirstError and LastError stay; else LastError, and FirstError where there is none
}

// Moved is what Move did.
type Moved struct {
	Lost []Lost
}

// Lost is a partition that is another owner's now.
type Lost struct {
	Partition int
	Owner     string // "": nobody's
	Fence     int64
}

// TakeParams ask for what is set aside and due.
type TakeParams struct {
	Group    string
	Owner    string
	From     []Place // Cursor is not looked at
	Limit    int     // heads
	Behind   int     // rows behind each
	MaxBytes int     // of all payloads, but one head if there is any
	Lease    time.Duration
	Now      time.Time
}

// Taken is what is due.
type Taken struct {
	Asides []Aside       // each head, then those behind it; heads in the order in which they became due
	NextIn time.Duration // until the next head of From is due; 0: none waits
	More   bool          // Limit or MaxBytes left some out
	Lost   []Lost        // nothing of these was taken
}

// Keeper is a store whose log does not shrink by itself.
type Keeper interface {
	// Keep empties whole slots of the log: those whose rows are all older than p.Retention and published by every group,
	// after it has copied what is set aside. It works for about p.Budget, holds no lock that an Append waits for longer
	// than 100ms, and gives up where it does not get one within 50ms. Of concurrent calls one works.
	Keep(ctx context.Context, p KeepParams) (Kept, error)
}

// KeepParams bound one call of Keep.
type KeepParams struct {
	Retention time.Duration
	Budget    time.Duration
	Now       time.Time
}

// Kept is what Keep did.
type Kept struct {
	Rows  int64 // gone
	Slots int
	More  bool // there is more that could go
	// Holder says what keeps rows that are past the retention: kind group (one that is behind, or paused), slot (a
	// replication slot), topic (one that no group matches), lock (tried again later). Kind "": nothing does.
	Holder Holder
}

// Beller is a store with a Bell, by which appends of a process wake the relays in it.
type Beller interface {
	Bell() *Bell
}

// Waker is a store that can wake relays of other processes. It is called after commits, never in a transaction, at most 50
// times a second in a process.
type Waker interface {
	Wake(ctx context.Context) error
}

// Listener is a store that hears the Wake of other processes. It is only a hint: a relay looks by itself every MaxPoll.
type Listener interface {
	// Listen calls f for each Wake until ctx ends, and returns an error when it cannot any more.
	Listen(ctx context.Context, f func()) error
}
