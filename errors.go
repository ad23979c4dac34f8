package idempo

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels to branch on with errors.Is. Each stands for one Error.Code of the same word.
var (
	// ErrMismatch: the key stands for another request.
	ErrMismatch = errors.New("this key stands for another request")
	// ErrInProgress: the first request of the key is still running.
	ErrInProgress = errors.New("the first request is still running")
	// ErrInDoubt: an effect may have happened and nobody has proved either way.
	ErrInDoubt = errors.New("the outcome is not known")
	// ErrExpired: it is done, and its result is no longer kept.
	ErrExpired = errors.New("it is done and its result has expired")
	// ErrLeaseLost: the claim's token is no longer the record's; the write changed nothing.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrUnavailable: the store could not answer, or the engine is draining.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrOutsideInLocal: an unsafe outside call inside an atomic operation was refused; it would not roll back.
	ErrOutsideInLocal = errors.New("an outside call inside an atomic operation would not roll back")
)

// Error is every error of this module: what was tried, what is known, what to do next. Its text never holds a key,
// payload, tenant, DSN or statement value.
//
// Codes: mismatch in_progress in_doubt expired lease_lost unavailable (the sentinels) · invalid (a field breaks a
// rule) · misuse (a call in the wrong place) · nested (a key begun inside its own claim) · not_issued ·
// quota_exceeded · tx_conflict (the database gave the transaction up; begin it again) · tx_ended (the work ended
// the transaction itself) · tx_aborted (a failed statement was swallowed; nothing was done) · wrong_state ·
// moved · not_found · record_unreadable.
type Error struct {
	Op         string        // the call: begin, complete, renew …
	Code       string        // stable word
	KeyRef     string        // k_… or ""
	Hint       string        // what to type or change next
	Attempt    int64         // of the record, where it matters
	RetryAfter time.Duration // for Retryable
	Resource   Resource      // of an expired record
	Unknown    bool          // something was sent whose outcome is not known
	Err        error         // cause, maybe nil
}

// Error says operation first, cause last.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.KeyRef != "" {
		b.WriteString(" " + e.KeyRef)
	}
	if e.Attempt > 0 {
		fmt.Fprintf(&b, " attempt %d", e.Attempt)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if s := e.sentinel(); s != nil {
		b.WriteString(s.Error())
	} else {
		b.WriteString(strings.ReplaceAll(e.Code, "_", " "))
	}
	if e.Unknown {
		b.WriteString("; it may have taken effect")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; hint: " + e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrX) true for the code x.
func (e *Error) Is(target error) bool { return target != nil && e.sentinel() == target }

func (e *Error) sentinel() error {
	switch e.Code {
	case "mismatch":
		return ErrMismatch
	case "in_progress":
		return ErrInProgress
	case "in_doubt":
		return ErrInDoubt
	case "expired":
		return ErrExpired
	case "lease_lost":
		return ErrLeaseLost
	case "unavailable":
		return ErrUnavailable
	}
	return nil
}

// codeOf returns the code of the outermost Error in err, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

type nothingHappened struct{ err error }

func (n *nothingHappened) Error() string { return n.err.Error() }
func (n *nothingHappened) Unwrap() error { return n.err }

// NothingHappened marks an error of the work as "known: no effect, and none will come", so that the key may run again.
// NothingHappened(nil) is nil. The mark counts at any depth of wrapping; a joined error is marked only if every part is.
func NothingHappened(err error) error {
	if err == nil {
		return nil
	}
	return &nothingHappened{err}
}

// knownNothing reports whether err is marked by NothingHappened, on every branch of a joined error.
func knownNothing(err error) bool {
	switch e := err.(type) { //nolint:errorlint // walks the tree itself: every branch must be marked
	case nil:
		return false
	case *nothingHappened:
		return true
	case interface{ Unwrap() []error }:
		parts := e.Unwrap()
		for _, p := range parts {
			if !knownNothing(p) {
				return false
			}
		}
		return len(parts) > 0
	case interface{ Unwrap() error }:
		return knownNothing(e.Unwrap())
	}
	return false
}

// MayHaveHappened reports whether an effect of the key may exist or still come, as far as err tells. It is true for
// every error it does not know. It is false for nil, a mismatch, NothingHappened, the codes invalid, misuse, nested,
// not_issued, quota_exceeded, tx_aborted and tx_conflict, and for unavailable where this call sent nothing whose
// outcome is open (earlier calls are not judged).
func MayHaveHappened(err error) bool {
	if err == nil || knownNothing(err) {
		return false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Unknown {
		return true
	}
	switch e.Code {
	case "mismatch", "invalid", "misuse", "nested", "not_issued", "quota_exceeded", "tx_aborted", "tx_conflict", "unavailable":
		return false
	}
	return true
}

// Retryable reports whether the same key and request is expected to fare better after the wait: in progress,
// unavailable, quota_exceeded, a lost lease, in doubt while a probe or rerun will settle it, tx_conflict.
func Retryable(err error) (after time.Duration, ok bool) {
	e, found := errors.AsType[*Error](err)
	if !found {
		return 0, false
	}
	switch e.Code {
	case "in_progress", "unavailable", "quota_exceeded":
		return max(e.RetryAfter, time.Second), true
	case "lease_lost", "tx_conflict":
		return e.RetryAfter, true
	case "in_doubt":
		return e.RetryAfter, e.RetryAfter > 0
	}
	return 0, false
}
