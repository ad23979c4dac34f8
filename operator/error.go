package operator

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// Codes of refusals. They are public words: in audit rows, exit texts and problem documents.
const (
	// CodeNotFound: there is no such key, or the principal may not see it; the two look the same.
	CodeNotFound = "not_found"
	// CodeMoved: the record is no longer what the decision was made on.
	CodeMoved = "moved"
	// CodeWrongState: a record in this state does not allow the action.
	CodeWrongState = "wrong_state"
	// CodeConfirmNeeded: the action is severe, and nobody confirmed it.
	CodeConfirmNeeded = "confirm_needed"
	// CodeForbidden stands in audit rows only: the principal is told not_found.
	CodeForbidden = "forbidden"
	// CodeInvalid: something about the request itself, a missing reason for instance.
	CodeInvalid = "invalid"
	// CodeUnsupported: this store lacks the ability.
	CodeUnsupported = "unsupported"
	// CodeUnreadable: a newer release wrote the record.
	CodeUnreadable = "record_unreadable"
)

// Error is a refusal: nothing changed. Code is stable, the text is not.
type Error struct {
	Action     Action
	Of         string // what it is about: "" a key, else message, event, lane, group
	Code       string
	KeyRef     string
	State      idempo.State // of the record now
	Attempt    int64        // of the record now
	Generation int64
	By         string     // who changed it last, where that was an operator
	At         time.Time  // when
	Allowed    []NextStep // what can be done instead
	Flag       string     // what would let it through
	Hint       string
}

// Error says what happened and what is known; commands are for the caller to show, see Allowed and Flag.
func (e *Error) Error() string {
	var b strings.Builder
	word := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	if e.Action != "" {
		word("%s ", e.Action)
	}
	if e.KeyRef != "" && e.Code != CodeNotFound {
		word("%s ", e.KeyRef)
	}
	switch e.Code {
	case CodeNotFound:
		word("no such %s", e.Thing())
	case CodeMoved:
		word("nothing was done: the %s has moved and is now %s, attempt %d", e.Thing(), e.State, e.Attempt)
		if e.Generation > 1 {
			word(", generation %d", e.Generation)
		}
		if e.By != "" {
			word(", by %s", e.By)
		}
	case CodeWrongState:
		word("nothing was done: the %s is %s, attempt %d", e.Thing(), e.State, e.Attempt)
	default:
		word("nothing was done: %s", e.Code)
	}
	if e.Hint != "" {
		word(": %s", e.Hint)
	}
	return strings.TrimSpace(b.String())
}

// Thing is what e is about, in a word.
func (e *Error) Thing() string { return cmp.Or(e.Of, "key") }

// CodeOf returns the code of a refusal, or of an *idempo.Error; "" for anything else.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e.Code
	}
	return ""
}

func invalid(a Action, format string, args ...any) *Error {
	return &Error{Action: a, Code: CodeInvalid, Hint: fmt.Sprintf(format, args...)}
}
