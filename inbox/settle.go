package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
)

const (
	maxFailures  = 100
	settleBudget = 5 * time.Second // for what must be written although the caller is gone
)

// settle does what the end of d's transaction asks for. again says that it is to be tried once more at once.
func (in *Inbox) settle(ctx context.Context, d *delivery, err error) (out Outcome, again bool, _ error) {
	code := codeOf(err)
	switch {
	case err == nil:
		return d.out, false, nil
	case errors.Is(err, errAnswered):
		return in.answer(ctx, d)
	case d.fault != nil && errors.Is(err, d.fault) && codeOf(d.fault) != "tx_conflict": // the database's verdict is no failure
		if ctx.Err() != nil { // stopped, not failed
			return Outcome{}, false, errors.Join(context.Cause(ctx), in.uncount(ctx, d))
		}
		return in.failed(ctx, d, d.fault)
	case code == "tx_ended" && d.run:
		ended := fmt.Errorf("%w: %w", ErrTxEnded, err)
		out, err := in.bury(ctx, d, ReasonTxEnded, &handlerError{err: ended})
		out.Err = ended
		return out, false, err
	case code == "tx_aborted" && d.run:
		return in.failed(ctx, d, &handlerError{err: err})
	}
	return Outcome{}, false, errors.Join(err, in.uncount(ctx, d))
}

// answer is settle for a message whose handler was not started.
func (in *Inbox) answer(ctx context.Context, d *delivery) (Outcome, bool, error) {
	switch {
	case d.verdict == behind:
		return in.wait(ctx, d)
	case d.verdict == parks:
		key := d.rkey
		if d.out.Reason == ReasonConflict && !d.taken {
			key = d.conflictKey()
		}
		out, err := in.keepParked(ctx, d, key, &parking{d.out.Reason, d.why})
		return out, false, err
	case d.out.Status == StatusRunning:
		return d.out, false, in.uncount(ctx, d)
	case d.out.Status == StatusDuplicate && d.receipt != nil:
		return d.out, false, in.remove(ctx, d, d.out)
	case d.out.Status == StatusDuplicate && d.m.Attempt != 1:
		return d.out, false, in.forgetStarts(ctx, d)
	}
	return d.out, false, nil
}

// forgetStarts takes away what another copy of a finished message counted before its process was killed.
func (in *Inbox) forgetStarts(ctx context.Context, d *delivery) error {
	e, err := in.store.Enter(ctx, EnterParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Key: d.rkey})
	if err != nil || e.Receipt == nil || e.Receipt.Status != StatusStarted {
		return err
	}
	return in.store.Leave(ctx, LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Key: d.rkey, Rev: e.Receipt.Rev})
}

// remove takes away the receipt of a message that has had its effect already, or ends it where it is kept.
func (in *Inbox) remove(ctx context.Context, d *delivery, out Outcome) error {
	p := LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Key: d.rkey}
	if in.o.KeepDone > 0 {
		if err := in.finish(ctx, *cmp.Or(d.receipt, d.ent.Receipt), out); err != nil {
			return err
		}
		p.Key = ""
	}
	if in.o.KeepDone > 0 && (d.order == OrderNone || d.order == OrderContiguous) {
		return nil
	}
	if d.order != OrderNone && d.order != OrderContiguous {
		p.Lane = d.m.Lane
	}
	in.nudge()
	return in.store.Leave(ctx, p)
}

// failed is what a handler's error leads to.
func (in *Inbox) failed(ctx context.Context, d *delivery, f *handlerError) (Outcome, bool, error) {
	if s, ok := errors.AsType[*skip](f.err); ok {
		d.skipped = s.reason
		if s.reason == "" {
			d.skipped = string(StatusSkipped)
		}
		return Outcome{}, true, nil // rolled back; the next transaction completes it without effect
	}
	if l, ok := errors.AsType[*later](f.err); ok {
		k := keeping{status: StatusStored, reason: ReasonLater, due: true, delay: l.d}
		if l.resting != "" {
			k.status, k.reason = StatusRetrying, l.resting
		}
		out, err := in.keep(ctx, d, k)
		return out, false, err
	}
	if p, ok := errors.AsType[*permanent](f.err); ok {
		out, err := in.bury(ctx, d, p.reason, f)
		return out, false, err
	}
	k := keeping{status: StatusRetrying, fault: f, due: true, delay: -1, inPlace: d.inPlace}
	if r, ok := errors.AsType[*retry](f.err); ok {
		k.delay = r.d
	}
	out, err := in.keep(ctx, d, k)
	return out, false, err
}

// bury makes d dead. f is why, nil: it used up its attempts in starts that nobody saw the end of.
func (in *Inbox) bury(ctx context.Context, d *delivery, reason string, f *handlerError) (Outcome, error) {
	return in.keep(ctx, d, keeping{status: StatusDead, reason: reason, fault: f})
}

// keeping is how a message is stored after a start.
type keeping struct {
	status Status
	reason string
	fault  *handlerError // of the start; nil: none
	due    bool
	delay  time.Duration // below 0, of a failure: as the settings say

	inPlace bool // the broker keeps it: the receipt counts only
}

// keep stores d as its receipt. The number of starts decides whether a failing one is dead.
func (in *Inbox) keep(ctx context.Context, d *delivery, k keeping) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBudget)
	defer cancel()
	counted := d.counted
	for range 5 {
		r, rev := Receipt{Subscriber: in.o.Subscriber, Key: d.rkey, Message: d.kept}, int64(0)
		if d.receipt != nil {
			r, rev = d.receipt.clone(), d.receipt.Rev
		}
		p := in.keepAs(d, &r, k, counted)
		p.Rev = rev
		st, err := in.store.Put(ctx, p)
		if err != nil {
			return Outcome{}, err
		}
		if !st.Lost {
			if r.Status == StatusDead {
				err = in.buried(ctx, d, st.Receipt)
			}
			out := Outcome{Status: r.Status, Reason: r.Reason, Ack: true}
			if k.inPlace && r.Status == StatusStarted {
				out = Outcome{Status: StatusRetrying, RetryIn: p.Delay}
			}
			if k.fault != nil {
				out.Err = k.fault.err
			}
			return out, err
		}
		// Another copy, or a person, changed it meanwhile: this start is added to what is there now.
		d.receipt, counted = nil, false
		if st.Receipt.Status != "" {
			d.receipt = &st.Receipt
		}
	}
	return Outcome{}, &idempo.Error{Op: "inbox", Code: "unavailable", Hint: "the receipt kept changing; nothing is acknowledged"}
}

// keepAs fills r in and returns how it is put.
func (in *Inbox) keepAs(d *delivery, r *Receipt, k keeping, counted bool) PutParams {
	starts := r.Attempts
	switch {
	case k.fault != nil && k.fault.err == errUnseen: //nolint:errorlint // exactly that one
	case k.fault != nil && !counted:
		starts++
	case k.fault == nil && counted: // not a start that counts
		starts--
	}
	r.Attempts, r.Status, r.Reason = max(starts, 0), k.status, k.reason
	p := PutParams{Due: k.due, Delay: k.delay}
	if k.fault != nil {
		for len(r.Failures) < min(r.Attempts, maxFailures)-1 { // of starts that nobody saw the end of
			r.Failures = append(r.Failures, Failure{At: d.ent.Now, Error: errUnseen.Error()})
		}
		at := d.ent.Now
		if !d.begun.IsZero() {
			at = at.Add(time.Since(d.begun))
		}
		r.Failures = append(r.Failures, Failure{At: at.Truncate(time.Microsecond), Error: k.fault.text()})
		r.Failures = r.Failures[max(0, len(r.Failures)-maxFailures):]
	}
	if k.status == StatusRetrying {
		old := in.o.MaxAge > 0 && len(r.Failures) > 0 && d.ent.Now.Sub(r.Failures[0].At) > in.o.MaxAge
		switch {
		case k.fault != nil && r.Attempts >= in.o.MaxAttempts || old:
			r.Status, r.Reason, p.Due = StatusDead, ReasonAttempts, false
		case k.delay < 0:
			p.Delay = backoff.Full(r.Attempts-1, in.o.BackoffBase, in.o.BackoffMax)
		}
	}
	if k.inPlace && r.Status == StatusRetrying {
		r.Status, p.Due = StatusStarted, false
	}
	r.Holds = d.order != OrderNone && r.Status != StatusStarted && (r.Status != StatusDead || in.o.OnDead == OnDeadBlock)
	p.Receipt = *r
	return p
}

// buried says that a message died, and lets its lane go on where OnDead says so.
func (in *Inbox) buried(ctx context.Context, d *delivery, r Receipt) error {
	in.o.Logger.Error("inbox: a message is dead", "subscriber", in.o.Subscriber, "receipt", r.Seq, "reason", r.Reason, "attempts", r.Attempts)
	if d.order == OrderNone || in.o.OnDead != OnDeadContinue {
		return nil
	}
	p := LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Lane: d.m.Lane}
	if d.order == OrderContiguous {
		p.Version, p.Wanted = string(d.ver), string(d.ver.next())
	}
	in.nudge()
	return in.store.Leave(ctx, p)
}

// wait stores d behind its lane or a gap. Whether it still has to wait is judged again, under the lane.
func (in *Inbox) wait(ctx context.Context, d *delivery) (out Outcome, again bool, err error) {
	err = in.engine.InTx(ctx, func(ctx context.Context) error {
		d.out, d.verdict, again = Outcome{}, answered, false
		runs, err := d.enter(ctx)
		if err != nil {
			return err
		}
		if runs || d.verdict != behind {
			again = runs
			return errAnswered
		}
		st, err := in.store.Put(ctx, in.waiting(d))
		if err == nil && st.Lost {
			again = true
			return errAnswered
		}
		out = d.out
		if st.Receipt.Status == StatusParked {
			out = Outcome{Status: StatusParked, Reason: ReasonGap, Ack: true}
		}
		return err
	})
	switch {
	case err == nil:
		return out, false, nil
	case !errors.Is(err, errAnswered):
		return Outcome{}, false, errors.Join(err, in.uncount(ctx, d))
	case again:
		return Outcome{}, true, nil
	}
	return in.answer(ctx, d)
}

// waiting is the receipt of a message that waits. One that has waited for a gap too long is parked.
func (in *Inbox) waiting(d *delivery) PutParams {
	r, rev := Receipt{Subscriber: in.o.Subscriber, Key: d.rkey, Message: d.kept}, int64(0)
	since := d.ent.Now
	if d.ent.Receipt != nil {
		r, rev = d.ent.Receipt.clone(), d.ent.Receipt.Rev
		since = r.ReceivedAt
		if d.counted {
			r.Attempts = max(r.Attempts-1, 0)
		}
	}
	r.Status, r.Reason, r.Holds = StatusStored, d.out.Reason, true
	p := PutParams{Rev: rev}
	if d.out.Reason == ReasonGap {
		p.Due, p.Delay = true, in.o.GapWait-d.ent.Now.Sub(since)
		switch {
		case p.Delay <= 0 && in.o.OnGap == OnGapContinue:
			p.Delay = time.Second // a lower one that waits goes first
		case p.Delay <= 0:
			p.Due, r.Status = false, StatusParked
			wanted := version(d.ent.Version).next()
			text := fmt.Sprintf("version %s did not come within %v; release goes on from %s", wanted, in.o.GapWait, d.ver)
			r.Failures = append(r.Failures, Failure{At: d.ent.Now, Error: text})
			in.o.Logger.Error("inbox: a gap in a lane is open for too long", "subscriber", in.o.Subscriber, "lane", d.m.Lane,
				"wanted", string(wanted), "held", string(d.ver))
		}
	}
	p.Receipt = r
	return p
}

// uncount takes back the count of a start that did not happen, or whose failure is not the message's. What cannot be
// written now is remembered, so that the next delivery to this process is not counted again.
func (in *Inbox) uncount(ctx context.Context, d *delivery) error {
	if !d.counted || d.receipt == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBudget)
	defer cancel()
	err := in.takeBack(ctx, d)
	if err != nil {
		in.mu.Lock()
		if len(in.spared) < 10_000 {
			in.spared[d.rkey] = true
		}
		in.mu.Unlock()
	}
	return err
}

// takeBack writes one start less. What was only there to count starts goes when none is left to remember.
func (in *Inbox) takeBack(ctx context.Context, d *delivery) error {
	r := d.receipt.clone()
	for range 5 {
		rev := r.Rev
		r.Attempts = max(r.Attempts-1, 0)
		if r.Status == StatusStarted && (r.Attempts == 0 || r.Attempts == 1 && d.m.Attempt > 1) {
			return in.store.Leave(ctx, LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Key: d.rkey, Rev: rev})
		}
		st, err := in.store.Put(ctx, PutParams{Receipt: r, Rev: rev, Due: d.taken, Delay: max(d.out.RetryIn, time.Second)})
		if err != nil || !st.Lost || d.taken || st.Receipt.Status != StatusStarted {
			return err
		}
		r = st.Receipt // another copy was counted meanwhile
	}
	return nil
}

// count commits that the handler is about to be started for a message that may have been started before. done says that
// there is nothing to start: out is the answer.
func (in *Inbox) count(ctx context.Context, d *delivery) (out Outcome, done bool, err error) {
	for range 3 {
		err = in.look(ctx, d)
		if errors.Is(err, errProbed) {
			break
		}
		if errors.Is(err, errNoStart) {
			return Outcome{}, false, nil
		}
		out, again, err := in.settle(ctx, d, err)
		if !again {
			return out, true, err
		}
	}
	if !errors.Is(err, errProbed) {
		return Outcome{Status: StatusRunning, RetryIn: time.Second}, true, nil
	}
	r := d.ent.Receipt
	for range 5 {
		next, rev := Receipt{Subscriber: in.o.Subscriber, Key: d.rkey, Message: d.kept, Attempts: min(max(d.m.Attempt, 1), 2)}, int64(0)
		if r != nil {
			next, rev = r.clone(), r.Rev
			if in.spare(d.rkey) {
				d.receipt, d.counted = r, true
				return Outcome{}, false, nil
			}
			next.Attempts++
		}
		if next.Attempts > in.o.MaxAttempts {
			if d.receipt = r; r == nil {
				d.kept.Attempt = 0
			}
			out, err := in.bury(ctx, d, ReasonAttempts, &handlerError{err: errUnseen})
			return out, true, err
		}
		next.Status = StatusStarted
		st, err := in.store.Put(ctx, PutParams{Receipt: next, Rev: rev})
		switch {
		case err != nil:
			return Outcome{}, true, err
		case !st.Lost:
			d.receipt, d.counted = &st.Receipt, true
			return Outcome{}, false, nil
		case st.Receipt.Status == "":
			r = nil
		case st.Receipt.Status != StatusStarted:
			return Outcome{Status: st.Receipt.Status, Reason: st.Receipt.Reason, Ack: true}, true, nil
		default:
			r = &st.Receipt
		}
	}
	return Outcome{Status: StatusRunning, RetryIn: time.Second}, true, nil
}

// errNoStart says that the record answers, so that there is no start to count.
var errNoStart = errors.New("inbox: the record answers")

// errUnseen is the failure of starts whose end nobody saw.
var errUnseen = errors.New("a start of the handler did not end: its process was killed, or lost its store")

// spare reports, once, that a start of the key was counted and not used.
func (in *Inbox) spare(key string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	spared := in.spared[key]
	delete(in.spared, key)
	return spared
}

// look finds out whether d would run. errProbed: it would.
func (in *Inbox) look(ctx context.Context, d *delivery) error {
	if in.o.Guard == idempo.GuardAtomic {
		return in.transact(ctx, []*delivery{d}, nil)
	}
	return in.lookLeased(ctx, d)
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e.Code
	}
	return ""
}
