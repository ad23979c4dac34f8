package idemhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/idempo/idempo"
)

// Rules say how one route is guarded: where its key comes from, what makes two requests the same, what is kept of the answer.
// The zero value works and is what most routes need. Rules are read once, when a handler is wrapped; a later change of a
// slice or map has no effect. All mistakes are reported in one error.
type Rules struct {
	// Key says what happens to a request without a key. Default KeyRequired.
	Key KeyMode
	// Profile names a set of key rules: default, strict, uuid, stripe, adyen, square, paypal, aws. The fields below refine it.
	Profile string
	// KeyHeaders are the accepted header names. Default Idempotency-Key (paypal: PayPal-Request-Id). A request may carry one
	// of them, once. A header that counts attempts or traces is refused unless AttemptHeaderAsKey is set.
	KeyHeaders []string
	// KeyPointer takes the key from the body instead of a header: an RFC 6901 pointer to a JSON string, or "/name" for the
	// form field of that name. Headers are then not looked at.
	KeyPointer string
	// KeyFrom makes the key of several parts of the request, joined so that no two tuples share a key. Each is
	// "body:/pointer", "query:name" or "path:wildcard". It excludes KeyHeaders and KeyPointer.
	KeyFrom []string
	// MinKey and MaxKey bound the length of a key in bytes, after unquoting. 0 is the profile's (1 and 255); at most 1,024.
	MinKey, MaxKey int
	// KeyPattern is an RE2 expression that the whole key must match; at most 512 bytes of source and 10,000 instructions.
	KeyPattern string
	// AttemptHeaderAsKey lifts the refusal of KeyHeaders that proxies and clients renew on every attempt. A key that is new
	// on every retry guards nothing: set it only where your own clients are known to repeat the value.
	AttemptHeaderAsKey bool

	// Methods are guarded besides POST and PATCH, such as PUT and DELETE. Never GET, HEAD, OPTIONS, TRACE or CONNECT.
	Methods []string
	// Wait is how long a duplicate of a running request waits for its answer before it gets 409. Default 0, at most 60 s.
	Wait time.Duration

	// MaxBody is the largest request body in bytes. Default 1 MiB.
	MaxBody int64
	// MaxInflated is the largest request body in bytes after its gzip coding is undone. Default four times MaxBody.
	MaxInflated int64
	// MaxSpool bounds, in bytes, what is buffered of an answer before it may leave. Default 64 MiB.
	MaxSpool int64

	// Fingerprint says how bodies are compared. Default FingerprintCanonical.
	Fingerprint FingerprintMode
	// Exclude lists RFC 6901 pointers that do not count, such as "/sent_at" or "/items/*/url"; "*" is every element of an
	// array. In a form the pointer "/name" is the field, in multipart the part. A body compared as raw bytes counts whole.
	Exclude []string
	// Include lists the only pointers that count. It excludes Exclude.
	Include []string
	// Defaults give the value of an absent member: {"/currency": "EUR"} makes a request without the member equal to one that
	// spells the value out. Values are what encoding/json can marshal.
	Defaults map[string]any
	// Headers names the request headers that count. Default none.
	Headers []string
	// PathValues makes only the wildcard values of the pattern count, not the path around them, so that a renamed route keeps
	// its keys. Default false.
	PathValues bool
	// MismatchDetail says whether a 422 names the members that differ. Default DetailPointers.
	MismatchDetail DetailMode
	// MismatchStatus is the status of a mismatch: 422 (default), 400 or 409.
	MismatchStatus int

	// Outcomes overrides, by status, what becomes of an answer; SetOutcome goes before it, the table of defaults after it.
	Outcomes map[int]Outcome
	// Result says how much of an answer is kept. Default ResultFull.
	Result ResultMode
	// PointerStatus is what a replay of a kept success gets where only the pointer is kept: 410 (default), or 303 with
	// Location. Only with ResultPointer.
	PointerStatus int
	// Redact lists RFC 6901 pointers into the answer that are stored as null. The first answer is untouched.
	Redact []string
	// DenyHeaders are not stored, in addition to those that never are.
	DenyHeaders []string
	// KeepHeaders, when given, are the only headers stored, less those that never are.
	KeepHeaders []string
	// ReplayFunc is asked before a replay: an error is 403, and no stored byte leaves. It must not change the record.
	ReplayFunc func(r *http.Request, record idempo.Record) error
	// RenderFunc makes the body of a replay from the resource as it is now; headers too, where the result has any. Status and
	// marker stay those of the first answer. On error the stored answer is sent. It is never called for a first call.
	RenderFunc func(ctx context.Context, record idempo.Record) (idempo.Result, error)
	// StatusURL is where the handler of Middleware.Status is mounted; the problems in_progress and in_doubt link to it.
	StatusURL string
	// SnapshotFunc gives what a probe needs to ask later whether the effect happened; it is stored with the claim. An error
	// refuses the request, before any claim: with its own problem where it is a *ProblemError, else as malformed_request.
	SnapshotFunc func(r *http.Request, key idempo.Key) ([]byte, error)
	// Stream lets an answer leave as it is flushed; a retry then gets 410 after the end. Leased operations only.
	Stream bool

	// OnStoreDown says what happens while the store cannot be reached. Default StoreDownRefuse.
	OnStoreDown StoreDown
	// OnDisconnect says what happens to a running handler when its client has gone. Default DisconnectContinue.
	OnDisconnect Disconnect
	// UniqueBy makes a second claim on a business identity, from parts of the request spelled as in KeyFrom: the same identity
	// under a new key is answered 409 already_done.
	UniqueBy []string
}

// KeyMode says what happens to a request without a key. The zero value is KeyRequired.
type KeyMode string

const (
	KeyRequired KeyMode = "required" // 400 key_missing
	KeyOptional KeyMode = "optional" // the handler runs unguarded: no store call, no header of idempo
)

// FingerprintMode says how request bodies are compared. The zero value is FingerprintCanonical.
type FingerprintMode string

const (
	FingerprintCanonical FingerprintMode = "canonical" // documents by what they say; whatever is ambiguous as raw bytes
	FingerprintRaw       FingerprintMode = "raw"       // bytes
	FingerprintNone      FingerprintMode = "none"      // nothing at all is compared: a key answers any request
)

// DetailMode says whether a mismatch names what differs. The zero value is DetailPointers.
type DetailMode string

const (
	DetailPointers DetailMode = "pointers" // member digests are kept, ≤ 1.25 KiB a record, and pointers of the new request named
	DetailNone     DetailMode = "none"     // nothing is kept for it and nothing named
)

// ResultMode says how much of an answer is kept. The zero value is ResultFull.
type ResultMode string

const (
	ResultFull    ResultMode = "full"    // status, kept headers, body
	ResultPointer ResultMode = "pointer" // status, kept headers, resource; no body
)

// Outcome says what becomes of an attempt and its answer. The zero value of a map entry is a mistake.
type Outcome string

const (
	OutcomeKeep        Outcome = "keep"         // commit, keep the answer
	OutcomeKeepFailure Outcome = "keep_failure" // undo the handler's writes, keep the answer
	OutcomeRelease     Outcome = "release"      // nothing happened: roll back, the key may run again
	OutcomeInDoubt     Outcome = "in_doubt"     // nobody knows; leased operations only
)

// StoreDown says what happens while the store cannot be reached. The zero value is StoreDownRefuse.
type StoreDown string

const (
	StoreDownRefuse StoreDown = "refuse" // 503 store_unavailable, the handler does not run
	StoreDownRun    StoreDown = "run"    // the handler runs unguarded, marked and counted; leased operations only
)

// Disconnect says what happens to a running handler when its client has gone. The zero value is DisconnectContinue.
type Disconnect string

const (
	DisconnectContinue Disconnect = "continue" // it goes on, detached, and a retry gets the answer
	DisconnectCancel   Disconnect = "cancel"   // atomic: rolled back; leased: in doubt
)
