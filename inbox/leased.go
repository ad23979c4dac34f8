package inbox

import (
	"context"
	"errors"

	"github.com/idempo/idempo"
)

// HandleLeased is Handle where the effect is outside of the store's database: the claim commits, h runs under its lease
// (idempo.FromContext(ctx).Derive gives the key to send downstream), the result commits. An error of h that is marked
// idempo.NothingHappened, a Skip and a Later say that there was no effect: the message is retried, completed, stored. Any
// other error, or a crash, leaves it in doubt, and Options.OnCrash says what follows. One in doubt holds its lane.
//
// Lanes: what waits holds them as under Handle. Two messages that run at once are kept apart within this process only.
func (in *Inbox) HandleLeased(ctx context.Context, m Message, h Handler) (Outcome, error) {
	if in.o.Guard != idempo.GuardLeased {
		return Outcome{}, misuse("HandleLeased needs Options.Guard idempo.GuardLeased")
	}
	return in.handle(ctx, m, h)
}

// lookLeased is look without a transaction.
func (in *Inbox) lookLeased(ctx context.Context, d *delivery) error {
	rec, err := in.engine.Lookup(ctx, d.key)
	switch code := codeOf(err); {
	case err != nil && code != "not_found":
		return err
	case err == nil && rec.State != idempo.StateFailed && !(rec.State == idempo.StatePending && rec.Lapsed(rec.Now)):
		return errNoStart
	}
	if runs, err := in.enterLeased(ctx, d); err != nil || !runs {
		return errors.Join(err, errAnswered)
	}
	return errProbed
}

// enterLeased looks at receipt and lane in a transaction of its own.
func (in *Inbox) enterLeased(ctx context.Context, d *delivery) (runs bool, err error) {
	err = in.engine.InTx(ctx, func(ctx context.Context) (err error) {
		d.out, d.verdict = Outcome{}, answered
		runs, err = d.enter(ctx)
		return err
	})
	return runs, err
}

// lease is one start of the handler under a lease, and what follows from it.
func (in *Inbox) lease(ctx context.Context, d *delivery, h Handler) (Outcome, error) {
	if runs, err := in.enterLeased(ctx, d); err != nil || !runs {
		out, again, err := in.settle(ctx, d, errors.Join(err, errAnswered))
		if again {
			out = Outcome{Status: StatusRunning, RetryIn: d.in.o.Poll}
		}
		return out, err
	}
	req := idempo.Request{Key: d.key, Input: d.input(), Surface: "inbox", Trace: d.trace()}
	d.fault, d.result, d.skipped = nil, idempo.Result{}, ""
	b, err := in.engine.Do(ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		d.claim = c
		return d.leased(ctx, h)
	})
	doubt := errors.Is(err, idempo.ErrInDoubt)
	switch {
	case err == nil && b.Verdict == idempo.VerdictRun:
		out := Outcome{Status: StatusDone, Ack: true, Result: d.result}
		if d.skipped != "" {
			out = Outcome{Status: StatusSkipped, Reason: d.skipped, Ack: true}
		}
		if d.ent.Receipt != nil {
			return out, in.remove(ctx, d, out)
		}
		return out, nil
	case d.fault != nil && errors.Is(err, d.fault) && !doubt:
		out, _, err := in.failed(ctx, d, d.fault)
		return out, err
	case doubt || b.Verdict == idempo.VerdictInDoubt: // without a fault of its own it was not started
		out, kept := in.keep(ctx, d, keeping{status: StatusInDoubt, fault: d.fault, due: true, delay: in.o.BackoffMax})
		out.Err = err
		return out, kept
	case b.Verdict != "" && b.Verdict != idempo.VerdictRun:
		d.answer(b)
		out, _, err := in.answer(ctx, d)
		return out, err
	}
	return Outcome{}, errors.Join(err, in.uncount(ctx, d))
}

// leased calls the handler and says what its error means for the claim.
func (d *delivery) leased(ctx context.Context, h Handler) (idempo.Result, error) {
	err := d.call(ctx, h)
	if err == nil {
		return d.result, nil
	}
	if s, ok := errors.AsType[*skip](err); ok {
		d.skipped = s.reason
		if d.skipped == "" {
			d.skipped = string(StatusSkipped)
		}
		return idempo.Result{Header: [][2]string{{skippedHeader, d.skipped}}}, nil
	}
	if _, ok := errors.AsType[*later](err); ok {
		return idempo.Result{}, idempo.NothingHappened(err)
	}
	return idempo.Result{}, err
}
