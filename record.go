package idempo

import (
	"bytes"
	"crypto/subtle"
	"slices"
	"time"
)

// Token is the random fence of one claim: every later write of the claim names it. It prints as ***.
type Token [16]byte

// String hides the token.
func (Token) String() string { return "***" }

// GoString hides the token.
func (Token) GoString() string { return "***" }

// MarshalText hides the token from JSON and every other encoder.
func (Token) MarshalText() ([]byte, error) { return []byte("***"), nil }

// IsZero reports whether t is no token at all.
func (t Token) IsZero() bool { return t == Token{} }

// Equal compares two tokens in constant time.
func (t Token) Equal(o Token) bool { return subtle.ConstantTimeCompare(t[:], o[:]) == 1 }

// Record is what a store keeps for a key. Times are on the store's clock, UTC, to the microsecond; a zero time is
// absent. Nothing in a returned Record is shared with the store.
type Record struct {
	Key        Key    // Tenant and Operation in clear, ID as the 32-byte digest
	Hash       []byte // fingerprint of the request
	Recipe     string // how Hash was made, digest key id included
	Detail     []byte // member digests, so that a mismatch can name what differs; may be nil
	State      State  // effective, see State; "" where there is no record
	Guard      Guard
	OnCrash    OnCrash
	Surface    string // http grpc inbox webhook saga run task client mcp
	Attempt    int64  // grows by one with every claim won
	Generation int64  // grows when a finished key is run again on purpose; 1 at first
	Token      Token
	Owner      string // host, pid and version of the last owner
	Result     Result // without Body where BodyKept is false or the caller asked for none
	BodySize   int64  // of the whole body, kept or not
	BodySHA256 []byte // of the whole body, where it was not kept
	BodyKept   bool
	References []Resource // set by Claim.Refer, oldest first
	DerivedKey string     // Claim.Derive("")
	Snapshot   []byte     // input kept for probes and tasks; may be nil
	Note       string     // last error, at most 4 KiB
	Trace      string     // trace context of the run that made the result
	Sealed     string     // id of the encryption key of Result, Snapshot; "" is clear
	Format     int        // of the row; see RowFormat in the store's documentation

	ClaimedAt, StartedAt, LeaseUntil, DueAt time.Time
	CreatedAt, ChangedAt, CompletedAt       time.Time
	IssuedUntil                             time.Time // not zero: the key was handed out, and would lapse unused then
	ExpiresAt                               time.Time // end of the result (completed), of the key (issued, failed)
	GoneAt                                  time.Time // end of the tombstone; zero in a completed record: kept forever
	Now                                     time.Time // the store's clock when this was read
}

// Ref is Key.Ref.
func (r Record) Ref() string { return r.Key.Ref() }

// Clone returns a copy that shares no memory with r.
func (r Record) Clone() Record {
	r.Hash, r.Detail, r.Snapshot = bytes.Clone(r.Hash), bytes.Clone(r.Detail), bytes.Clone(r.Snapshot)
	r.BodySHA256, r.References = bytes.Clone(r.BodySHA256), slices.Clone(r.References)
	r.Result = r.Result.clone()
	return r
}

// Readable reports whether this release knows the format of r.
func (r Record) Readable() bool { return r.Format <= rowFormat }

// Lapsed reports whether r is pending and its lease is over at now.
func (r Record) Lapsed(now time.Time) bool {
	return r.State == StatePending && !r.LeaseUntil.After(now)
}

// Effective returns what the stored record r means at now, and whether there is anything at all: unused issued keys,
// old failures and old tombstones are absent, an old result is a tombstone, and a pending record whose started owner
// let its lease run out is in doubt where its policy is OnCrashHold. Stores apply it to every row they return.
func (r Record) Effective(now time.Time) (Record, bool) {
	r.Now = now
	over := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch r.State {
	case StateIssued, StateFailed:
		if over(r.ExpiresAt) {
			return Record{}, false
		}
	case StateCompleted, StateExpired:
		if over(r.GoneAt) {
			return Record{}, false
		}
		if r.State == StateExpired || over(r.ExpiresAt) {
			return r.tombstone(), true
		}
	case StatePending:
		if r.Lapsed(now) && !r.StartedAt.IsZero() && r.OnCrash == OnCrashHold {
			r.State = StateInDoubt
		}
	case "":
		return Record{}, false
	}
	return r, true
}

// tombstone returns r without what does not outlive a result.
func (r Record) tombstone() Record {
	r.State = StateExpired
	r.Result = Result{Status: r.Result.Status, Failing: r.Result.Failing, Resource: r.Result.Resource}
	r.Detail, r.Snapshot, r.Note, r.Trace, r.BodyKept = nil, nil, "", "", false
	return r
}
