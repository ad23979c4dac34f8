package inbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrWindow says that the broker redelivers for longer than the inbox remembers: a late copy would run again.
	ErrWindow = errors.New("inbox: the broker redelivers for longer than the inbox remembers")
	// ErrBreaker says that ParkBreaker messages in a row could not be identified or read: a setting is wrong, and going
	// on would drain the topic. Nothing more is acknowledged by this Inbox.
	ErrBreaker = errors.New("inbox: too many messages in a row cannot be identified")
	// ErrTxEnded says that the handler committed or rolled back the transaction of the inbox. What it wrote before may
	// stay, so the message is dead and does not run again by itself. It comes with the engine's code tx_ended.
	ErrTxEnded = errors.New("inbox: the handler ended the transaction; return an error instead")
)

// permanent, skip, later and retry are what a handler returns to say more than "failed".
type (
	permanent struct {
		err    error
		reason string
	}
	skip  struct{ reason string }
	later struct {
		d       time.Duration
		resting string // why it is retrying all the same; "": it is stored
	}
	retry struct {
		err error
		d   time.Duration
	}
)

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }
func (r *retry) Error() string     { return r.err.Error() }
func (r *retry) Unwrap() error     { return r.err }
func (s *skip) Error() string      { return "skipped: " + s.reason }
func (l *later) Error() string     { return fmt.Sprintf("not before %v", l.d) }

// Permanent marks an error of the handler that no retry will mend: everything is rolled back and the message is dead at
// once. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err, ReasonPermanent}
}

// Dead is Permanent with a reason of the handler's own, one word.
func Dead(reason string, err error) error { return &permanent{err, cut(reason, 64)} }

// RetryIn is a failure like any other, err not nil, but for when the message is tried again: d from now, since somebody
// said so. A negative d is 0.
func RetryIn(d time.Duration, err error) error { return &retry{err, max(d, 0)} }

// Resting is Later for a handler that cannot work at present whatever the message: it is retrying, with the reason, and no
// attempt is used.
func Resting(reason string, d time.Duration) error { return &later{max(d, 0), cut(reason, 64)} }

// Skip is returned by a handler that has nothing to do for a message: what it wrote is rolled back, and the message is
// completed without effect. The reason is kept, at most 255 bytes of it.
func Skip(reason string) error { return &skip{reason[:min(len(reason), 255)]} }

// Later is returned by a handler that wants to see the message again after d: what it wrote is rolled back, the message
// is stored, and the attempt does not count. A negative d is 0.
func Later(d time.Duration) error { return &later{d: max(d, 0)} }

// handlerError is an error of the handler, so that it is not taken for the database's.
type handlerError struct {
	err   error
	stack string // of a panic
}

func (h *handlerError) Error() string { return h.err.Error() }
func (h *handlerError) Unwrap() error { return h.err }

// text is what is kept of the failure.
func (h *handlerError) text() string {
	if h.stack == "" {
		return cut(h.err.Error(), maxFailureText)
	}
	return cut(h.err.Error()+"\n"+h.stack, maxFailureText)
}

const maxFailureText = 2 << 10

func cut(s string, n int) string { return s[:min(len(s), n)] }
