package idempo

import (
	"context"
	"errors"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// transaction tries one piece of work in transactions of the store until its outcome is known.
type transaction struct {
	e         *Engine
	ctx       context.Context
	open      error     // a COMMIT was sent and not answered
	until     time.Time // how long its outcome is waited for
	polls     int
	conflicts int
	lostRaces int

	// of the last try
	scope  scope
	begun  Begun
	answer bool // it found a record instead of work
	own    bool // and the record bears this call's token: the open COMMIT happened
	busy   bool // and the key is in use, maybe by the open COMMIT itself
}

// workError marks an error as the work's own, so that a code in it is not taken for the transaction's.
type workError struct{ err error }

func (w *workError) Error() string { return w.err.Error() }
func (w *workError) Unwrap() error { return w.err }

var errNotRun = errors.New("idempo: a record answers; there is nothing to do in this transaction")

type outcome int

const (
	done outcome = iota
	again
	committed
)

// once runs body in one transaction of the store. Asking what became of a COMMIT is detached from the caller.
func (t *transaction) once(body func(context.Context) error) error {
	t.answer, t.own, t.busy = false, false, false
	t.scope = scope{}
	s := &t.scope
	s.claims = s.one[:0]
	defer s.close()
	ctx := t.ctx
	if t.open != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return t.e.timed(ctx, "tx", "", func() error { return t.e.tx.InTx(withScope(ctx, s), body) })
}

// won says that this try holds the key: an open COMMIT of an earlier one did not happen.
func (t *transaction) won() {
	if t.open != nil {
		t.settled("rolled_back")
	}
}

// notRun ends a try that found a record instead of work.
func (t *transaction) notRun(b Begun, token Token) error {
	t.answer = true
	t.own = b.Verdict == VerdictReplay && b.Record.Token.Equal(token)
	t.busy = b.Verdict == VerdictInProgress
	return errNotRun
}

// next decides what follows a try that ended with err.
func (t *transaction) next(err error) outcome {
	work, own := err.(*workError) //nolint:errorlint // exactly as the body returned it: the store found nothing to add
	switch {
	case own && codeOf(work.err) != "tx_conflict":
		return done
	case t.open != nil && (t.busy || !t.answer && errors.Is(err, ErrUnavailable)):
		return t.askAgain()
	case t.open != nil && t.own:
		t.settled("committed")
		return committed
	case t.open != nil && t.answer:
		t.settled("rolled_back") // another attempt has the key: this one's can never have committed
		return done
	case err == nil || t.answer:
		return done
	case unknown(err):
		t.open, t.until = err, time.Now().Add(t.e.cfg.CompleteBudget)
		return again
	case codeOf(err) == "tx_conflict" && t.conflicts < t.e.cfg.TxRetries:
		t.conflicts++
		t.e.observe(t.ctx, Event{Kind: "retry", Class: "tx_conflict"})
		if sleep(t.ctx, backoff.Full(t.conflicts, 10*time.Millisecond, 500*time.Millisecond)) {
			return again
		}
	case codeOf(err) == "lease_lost" && t.lostRaces < 5:
		t.lostRaces++ // another attempt won while this one ran: nothing remains, its record answers
		return again
	}
	return done
}

// askAgain waits before the next question about an open COMMIT, until the budget is over.
func (t *transaction) askAgain() outcome {
	pause := backoff.Around(min(pollMin<<min(t.polls, 4), pollMax), 0.2)
	t.polls++
	if time.Now().Add(pause).After(t.until) || !sleep(context.WithoutCancel(t.ctx), pause) {
		return done
	}
	return again
}

func (t *transaction) settled(outcome string) {
	t.open = nil
	t.e.observe(t.ctx, Event{Kind: "settled", Outcome: outcome})
}

// err is what the caller learns of the last try's err.
func (t *transaction) err(err error) error {
	switch {
	case t.open != nil:
		t.e.observe(t.ctx, Event{Kind: "settled", Outcome: "open"})
		return t.open
	case err == nil || t.answer:
		return nil
	}
	if work, ok := err.(*workError); ok { //nolint:errorlint // see next
		return NothingHappened(work.err)
	}
	switch codeOf(err) {
	case "tx_conflict", "lease_lost":
		return &Error{Op: "commit", Code: "unavailable", Err: err, RetryAfter: time.Second, Hint: "the transaction kept losing to others; nothing was done"}
	case "":
		return NothingHappened(err)
	}
	return err
}
