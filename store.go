package idempo

import (
	"context"
	"time"
)

// Store makes the engine's decisions unique and durable. Anyone may implement it; package storetest says when an
// implementation is right. Keys reach a store as digests: Key.ID and every alias are 32 bytes of any value.
//
// Rules, each a case of the kit: 1 losing is a verdict, not an error · 2 an error means "not known": the same call
// with the same token is safe and recognises itself · 3 state is effective, on the store's clock read after any lock
// wait · 4 every later write names key and token and repeats its whole condition where it writes · 5 nothing of the
// caller's memory is kept, nothing returned is shared · 6 one call, one round trip (MySQL: at most three) · 7 a
// transaction in ctx is joined · 8 no read goes to a replica · 9 no state of a database session outlives its
// statement or transaction.
//
// Errors are *Error: code unavailable (the store could not answer; Unknown says whether something may have been
// written), tx_conflict (the database gave the transaction up; begin it again), tx_aborted, tx_ended, misuse,
// record_unreadable, and what each method adds. All methods are safe for concurrent use; ctx bounds the wait.
type Store interface {
	// Acquire tries to win p.Key and says what stands in the way if it cannot. See AcquireParams.Judge for the rule.
	//
	// It wins when there is no record, a failed one, or one whose owner vanished in a way that allows another run:
	// Verdict is VerdictRun and Attempt one more than before. Losing is not an error: Record holds what the winner
	// wrote. Of any number of concurrent calls for one key at most one wins an attempt. It returns code not_issued
	// where p.RequireIssued meets no issued key.
	//
	// On error it is not known whether the key was won: call again with the same p.Token, and a claim that did commit
	// is recognised and returned as won; a completed one with that token is a replay whose Record has it.
	// It never waits for another owner's open transaction longer than p.Wait: it says VerdictInProgress.
	//
	// With GuardAtomic it must run in a transaction of this store in ctx, with GuardLeased outside of any, except that
	// a p.Due (enqueue) may join one; otherwise code misuse, and nothing is sent. One exception serves settlement:
	// Engine repeats an atomic Acquire in a new InTx.
	Acquire(ctx context.Context, p AcquireParams) (Acquired, error)
	// Renew extends a live lease to now + p.Lease, never shortens it, sets the start mark, adds a reference. It
	// returns ErrLeaseLost, and changes nothing, when the token is not the record's or the lease is over.
	Renew(ctx context.Context, p RenewParams) (Record, error)
	// Complete stores the result. A late result is accepted while the claim's own token still stands, lapsed or in
	// doubt. The same result again changes nothing and is no error; another one is code wrong_state. It returns
	// ErrLeaseLost, and changes nothing, once another attempt, an operator or the clock has settled the key.
	//
	// In a transaction opened by InTx it may be decided at commit only, together with the COMMIT; a failing result
	// there undoes everything else the transaction did and keeps the result alone. In a caller's own transaction it is
	// decided at once. Outside a transaction it is one short transaction of its own.
	Complete(ctx context.Context, p CompleteParams) (Record, error)
	// Release gives the key back: as failed (nothing happened), as in doubt, or forgets it (StateIssued: the record
	// is gone, or issued again where it was an issued key). A second equal Release does nothing. It returns
	// ErrLeaseLost, and changes nothing, when the token is not the record's, code wrong_state when it is completed.
	Release(ctx context.Context, p ReleaseParams) (Record, error)
	// Lookup reads without lock or write. Absent: a Record whose State is "" and no error.
	Lookup(ctx context.Context, p LookupParams) (Record, error)
}

// Transactor is a store whose claims can share a database transaction with the effect. Without it GuardAtomic is
// refused.
type Transactor interface {
	// InTx runs fn in a new transaction of the store's database, found by the store's own accessor (postgres.Tx and
	// the like) in the context fn gets, and commits it when fn returns nil. The transaction may begin as late as the
	// first call that needs it. On error, panic or Goexit of fn everything is rolled back; the panic goes on. Once fn
	// has returned nil the end of ctx no longer matters.
	//
	// Errors: fn's own, unless the database ended the transaction under it: code tx_conflict (rolled back; fn may run
	// again), tx_aborted (a failed statement was swallowed; rolled back), tx_ended (fn ended the transaction itself),
	// lease_lost (another attempt won a key completed in it; rolled back), unavailable, with Unknown true exactly if
	// COMMIT was sent and not answered.
	InTx(ctx context.Context, fn func(context.Context) error) error
}

// Joiner is required of every Transactor: it tells the engine whether a context carries a transaction.
type Joiner interface {
	// Joined reports whether ctx carries a transaction of this store, and whether the store's InTx opened it (own
	// false: the caller's own, whose end the store cannot see). It sends nothing. A transaction of another store of
	// the same technology is code misuse.
	Joined(ctx context.Context) (tx, own bool, err error)
}

// Sweeper removes what is over. Without it the store expires by itself.
type Sweeper interface {
	// Sweep makes at most one batch of overdue changes in one short transaction, the oldest first: results to
	// tombstones, old tombstones, failures and unused issued keys removed, started records of vanished owners to in
	// doubt. It takes no lock that a claim waits for and never touches a live lease. done counts rows; done < batch
	// means nothing is left for now, or that another process is sweeping.
	Sweep(ctx context.Context, batch int) (done int, err error)
}

// Taker hands out due records: sagas, tasks, journals, and what must be probed.
type Taker interface {
	// Take leases up to p.Limit records of p.Operations that nobody holds and that are due: enqueued ones, and, of
	// OnCrashProbe, started ones whose owner vanished and doubts whose next probe is due. Each gets p.Token, a lease,
	// attempt + 1. Concurrent calls never get the same record.
	Take(ctx context.Context, p TakeParams) ([]Record, error)
}

// AcquireParams is one attempt to win a key. Byte slices belong to the caller and are not changed.
//
// Key.ID, Aliases and Unique are digests of one namespace, (tenant, operation, digest): the record's row holds the
// first, alias rows the rest, and the unique key over them all decides. Where several are taken already, the record of
// the first one counts, in the order Key, Aliases, Unique. A claim occupies them all or, if another holds one, none; a
// take-over occupies those that are missing.
type AcquireParams struct {
	Key           Key
	Aliases       []string      // digests of the same key under the other digest keys; each is occupied as well
	Unique        []string      // digests of business identities; each is occupied like an alias, and Release frees them
	Hash          []byte        // fingerprint
	Recipe        string        // how Hash was made
	Detail        []byte        // member digests
	Guard         Guard         //
	OnCrash       OnCrash       //
	Token         Token         // fresh and random per claim; the same again when the same call is repeated
	Lease         time.Duration // on the store's clock
	Wait          time.Duration // how long the store may wait for an open transaction; 0: not at all
	Issue         time.Duration // > 0: hand the key out instead of claiming it; it lives so long unused
	RequireIssued bool          // only a key that was issued may be claimed
	StartMark     bool          // the effect begins at Renew with Start; else with the claim
	DerivedKey    string
	Snapshot      []byte
	Due           time.Time // not zero: enqueue instead of claiming: pending, lapsed, not started, due then
	Surface       string
	Owner         string
	Trace         string
	Now           time.Time // zero outside tests: the store's clock
}

// Acquired is the outcome of an Acquire.
type Acquired struct {
	Verdict    Verdict
	Record     Record        // with VerdictRun the claim's own record; an atomic claim's may not be written yet
	Lapsed     bool          // VerdictRun took over from an owner whose effect may have happened
	RetryAfter time.Duration // with VerdictInProgress, and VerdictInDoubt where a probe is due
}

// RenewParams extends a lease. DerivedKey, when not empty, replaces the record's.
type RenewParams struct {
	Key        Key
	Token      Token
	Lease      time.Duration
	Start      bool // sets the start mark
	Refer      Resource
	DerivedKey string
	Now        time.Time
}

// CompleteParams stores a result. Result.Body is what is kept (maybe encrypted); Size, SHA256 and Kept describe the
// whole body.
type CompleteParams struct {
	Key        Key
	Token      Token
	Won        AcquireParams // of the claim: a store that wrote no row at Acquire writes it now
	Attempt    int64         // of the claim
	Result     Result
	Size       int64
	SHA256     []byte
	Kept       bool
	Sealed     string
	References []Resource // of an atomic claim
	Retention  time.Duration
	Tombstone  time.Duration  // after the retention; Forever
	Issue      *AcquireParams // makes the next one-time key in the same commit
	Now        time.Time
}

// ReleaseParams gives a key back.
type ReleaseParams struct {
	Key       Key
	Token     Token
	To        State         // StateFailed, StateInDoubt, StateIssued (forget)
	Note      string        // at most 4 KiB
	Retention time.Duration // how long a failure binds its fingerprint
	Due       time.Duration // until the next probe
	Free      []string      // the claim's Unique: given back with StateFailed
	Now       time.Time
}

// LookupParams reads a record.
type LookupParams struct {
	Key         Key
	Aliases     []string
	WithoutBody bool
	Now         time.Time
}

// TakeParams takes due records.
type TakeParams struct {
	Operations []string
	Limit      int
	Token      Token
	Lease      time.Duration
	Owner      string
	Now        time.Time
}
