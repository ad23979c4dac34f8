package outbox

import (
	"errors"
	"time"
)

// Errors of Append. Nothing was written, and the caller's transaction is as usable as before.
var (
	// ErrEvent: a field of an event breaks a rule; the text names field and rule.
	ErrEvent = errors.New("outbox: the event breaks a rule")
	// ErrHeader: a header breaks a rule; the text names it.
	ErrHeader = errors.New("outbox: the header is not allowed")
	// ErrTooLarge: the payload is larger than Options.MaxPayload.
	ErrTooLarge = errors.New("outbox: the payload is too large")
	// ErrTooManyKeys: more than 1,000 keys in one Append that locks each.
	ErrTooManyKeys = errors.New("outbox: too many keys in one call")
	// ErrNoTx: the context carries no open transaction of the store.
	ErrNoTx = errors.New("outbox: append needs a transaction: use Do, or the store's WithTx")
)

// Errors of a relay. Nothing was published by the call that returns one.
var (
	// ErrForeignDatabase: this is not the server that was published from last: a restored or upgraded copy, whose cursors
	// mean nothing. The text says what differs; `idempo outbox adopt` goes on from there.
	ErrForeignDatabase = errors.New("outbox: another database than was published from")
	// ErrEnvironment: the database belongs to another environment: a clone.
	ErrEnvironment = errors.New("outbox: the database belongs to another environment")
	// ErrFrom: the group is new on an outbox that was used already; say where it begins.
	ErrFrom = errors.New("outbox: a new group must say where it begins")
	// ErrGroup: the group cannot be used so: it is external, or there is none of the name.
	ErrGroup = errors.New("outbox: the group cannot be used so")
	// ErrStandby: the server is read-only, or a standby. A relay goes on by itself after a promotion.
	ErrStandby = errors.New("outbox: the server is read-only, or a standby")
	// ErrKept: what was asked for is older than what is kept; the text says from when events are kept.
	ErrKept = errors.New("outbox: older than what is kept")
)

// ErrDuplicate is what a publisher says to Done instead of nil where the broker answered that it had the id already. It
// is a success, and counted apart.
var ErrDuplicate = errors.New("outbox: the broker had it already")

// Class is what a publisher knows of a failure. The zero value is a failure that counts: an attempt more.
type Class string

// The classes. A publisher marks its errors by the functions of the same name.
const (
	ClassFailed      Class = ""            // counted; its key is set aside and tried again, at last dead
	ClassRefused     Class = "refused"     // no repeat can mend it: dead at once
	ClassNoRoute     Class = "no_route"    // nothing takes the topic yet: its key waits, not counted, never dead
	ClassUnavailable Class = "unavailable" // the destination takes nothing now: all of it waits, nothing is set aside
	ClassUnanswered  Class = "unanswered"  // no answer, or a failure of the destination's own: outcome not known
	ClassLater       Class = "later"       // the destination asks for it again later: its key waits, not counted
)

// Failure is an error of a publisher with what it knows.
type Failure struct {
	Class Class
	After time.Duration // not before; 0: as the relay sees fit. At most an hour is obeyed
	Err   error
}

// Error is that of the cause.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Refused marks an error that no repeat will mend, such as too large or malformed: the event is dead at once.
func Refused(err error) error { return mark(ClassRefused, err) }

// NoRoute marks that nothing takes the event's topic yet: no binding, no stream, an unknown topic. The event waits and
// blocks its key, others go on; it heals by itself and is never dead.
func NoRoute(err error) error { return mark(ClassNoRoute, err) }

// Unavailable marks that the destination takes nothing at all now: link down, no leader, throttled. The destination
// waits; nothing is counted.
func Unavailable(err error) error { return mark(ClassUnavailable, err) }

// Unanswered marks that the outcome is not known, or that the destination failed by itself (time-out, HTTP 5xx). It
// counts only while the destination takes other events; the event goes out again with the same id.
func Unanswered(err error) error { return mark(ClassUnanswered, err) }

// Later marks that the destination is busy with this very event (HTTP 409): its key waits, nothing is counted.
func Later(err error) error { return mark(ClassLater, err) }

// After adds to err when the destination wants to be asked again; the class of err stays. After(d, nil) is nil.
func After(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Class: ClassOf(err), After: d, Err: err}
}

func mark(c Class, err error) error {
	if err == nil {
		return nil
	}
	f := &Failure{Class: c, Err: err}
	if inner, ok := errors.AsType[*Failure](err); ok {
		f.After = inner.After
	}
	return f
}

// ClassOf returns the class of a publisher's error: that of the outermost Failure in it; ClassUnanswered for an error
// that says it is a time-out (a method Timeout, as of net.Error and context.DeadlineExceeded); else ClassFailed.
func ClassOf(err error) Class {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Class
	}
	if t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && t.Timeout() {
		return ClassUnanswered
	}
	return ClassFailed
}
