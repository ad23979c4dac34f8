package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

var (
	errAnswered = errors.New("inbox: a record or receipt answers; nothing is done in this transaction")
	errProbed   = errors.New("inbox: it would run")
)

// skippedHeader is the only header of the result of a message that was completed without effect.
const skippedHeader = "idempo-skipped"

// transact handles ds in one transaction: claim each, look at its lane, run the handler, complete. A delivery that is not
// run has its verdict in it, and the others go on; with none to run nothing is written. An error of a handler ends
// everything. A nil h looks only: errProbed says that at least one would run.
func (in *Inbox) transact(ctx context.Context, ds []*delivery, h Handler) error {
	sorted := slices.Clone(ds)
	slices.SortFunc(sorted, func(a, b *delivery) int {
		return cmpKeys(a.key, b.key)
	})
	return in.engine.InTx(ctx, func(ctx context.Context) error {
		if err := in.foresee(ctx, sorted); err != nil {
			return err
		}
		for _, d := range sorted {
			d.past, d.tied, d.first = false, false, ""
			d.ent, d.run, d.fault, d.out, d.moved, d.result, d.claim, d.verdict = Entered{}, false, nil, Outcome{}, nil, idempo.Result{}, nil, answered
			if err := d.begin(ctx); err != nil {
				return err
			}
			if d.verdict != answered && len(ds) > 1 {
				return errSplit
			}
		}
		if err := in.foreseeLanes(ctx, ds); err != nil {
			return err
		}
		worked := false
		for _, d := range ds {
			if d.claim == nil {
				continue
			}
			runs, err := d.enter(ctx)
			if err != nil {
				return err
			}
			if !runs {
				if len(ds) > 1 {
					return errSplit
				}
				return errAnswered
			}
			if h == nil {
				return errProbed
			}
			if err := d.perform(ctx, h); err != nil {
				return err
			}
			worked = true
		}
		if !worked {
			return errAnswered
		}
		return nil
	})
}

// foresee lets the store look at the keys of a batch at once.
func (in *Inbox) foresee(ctx context.Context, ds []*delivery) error {
	if len(ds) < 2 {
		return nil
	}
	requests := make([]idempo.Request, len(ds))
	for i, d := range ds {
		requests[i] = idempo.Request{Key: d.key}
	}
	return in.engine.Foresee(ctx, requests)
}

// foreseeLanes lets the store look at the receipts and lanes of those of a batch that have a claim.
func (in *Inbox) foreseeLanes(ctx context.Context, ds []*delivery) error {
	s, ok := in.store.(Foreseer)
	if !ok || len(ds) < 2 {
		return nil
	}
	var ps []EnterParams
	for _, d := range ds {
		if d.claim != nil {
			ps = append(ps, d.entering())
		}
	}
	return s.Foresee(ctx, ps)
}

// entering is what the store is asked of d.
func (d *delivery) entering() EnterParams {
	p := EnterParams{Tenant: d.m.Tenant, Subscriber: d.in.o.Subscriber, Key: d.rkey}
	if d.order != OrderNone {
		p.Lane = d.m.Lane
	}
	return p
}

// errSplit ends a batch in which a message neither runs nor is done already: they are handled one by one.
var errSplit = errors.New("inbox: not all of a batch can run together")

func cmpKeys(a, b idempo.Key) int {
	if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// begin claims d. Without a claim d has its answer.
func (d *delivery) begin(ctx context.Context) error {
	b, err := d.in.engine.Begin(ctx, idempo.Request{Key: d.key, Input: d.input(), Surface: "inbox", Trace: d.trace()})
	if err != nil {
		return err
	}
	d.claim = b.Claim
	if b.Claim == nil {
		d.answer(b)
	}
	return nil
}

func (d *delivery) trace() string {
	v, _ := d.m.Header("traceparent")
	return v
}

// answer turns a verdict into an outcome.
func (d *delivery) answer(b idempo.Begun) {
	switch b.Verdict {
	case idempo.VerdictReplay, idempo.VerdictExpired:
		d.out = Outcome{Status: StatusDuplicate, Ack: true, Result: b.Record.Result}
		if hs := b.Record.Result.Header; len(hs) == 1 && hs[0][0] == skippedHeader {
			d.out.Reason, d.out.Result = StatusSkipped.with(hs[0][1]), idempo.Result{}
		}
	case idempo.VerdictMismatch:
		d.verdict = parks
		d.out = Outcome{Reason: ReasonConflict}
		d.ent.Now = b.Record.Now
		d.why = fmt.Sprintf("another body under a known id; the first was handled as %s at %s; retry with accept runs it all the same",
			b.Record.Ref(), b.Record.CompletedAt.Format(time.RFC3339))
	case idempo.VerdictInDoubt:
		d.out = Outcome{Status: StatusInDoubt, Ack: true, RetryIn: b.RetryAfter}
	default:
		d.out = Outcome{Status: StatusRunning, RetryIn: max(b.RetryAfter, time.Second)}
	}
}

func (s Status) with(reason string) string { return string(s) + ": " + reason }

// enter looks at receipt and lane of a claimed message. ok says that it is to be performed; else d has its verdict.
func (d *delivery) enter(ctx context.Context) (ok bool, err error) {
	p := d.entering()
	if d.ent, err = d.in.store.Enter(ctx, p); err != nil {
		return false, err
	}
	if r := d.ent.Receipt; r != nil && r.over() {
		if err := d.in.store.Leave(ctx, LeaveParams{Tenant: p.Tenant, Subscriber: p.Subscriber, Key: p.Key, Rev: r.Rev}); err != nil {
			return false, err
		}
		d.ent.Receipt = nil
	}
	switch r := d.ent.Receipt; {
	case d.ent.Busy:
		d.out = Outcome{Status: StatusRunning, RetryIn: time.Second}
		return false, nil
	case r != nil && !d.taken && r.Status != StatusStarted: // the store has it: the copy has nothing to add
		d.out = Outcome{Status: r.Status, Reason: r.Reason, Ack: true}
		return false, nil
	case r != nil && d.taken && r.Rev != d.receipt.Rev, r == nil && d.taken: // somebody else decided about it meanwhile
		d.out = Outcome{Status: StatusRunning, RetryIn: time.Second}
		return false, nil
	case r == nil:
		if old, err := d.tooOld(ctx); err != nil || old {
			return false, err
		}
	}
	if d.expired() {
		if d.first, err = d.lowest(ctx); err != nil {
			return false, err
		}
	}
	return d.judge(), nil
}

// tooOld parks what is older than the inbox can remember, unless the subscriber is younger than that.
func (d *delivery) tooOld(ctx context.Context) (bool, error) {
	window := d.in.Window()
	if d.in.o.TooOld == TooOldRun || window == idempo.Forever || d.m.Time.IsZero() {
		return false, nil
	}
	const slack = 5 * time.Minute
	if d.ent.Now.Sub(d.m.Time) <= window+slack {
		return false, nil
	}
	own, err := d.in.store.Enter(ctx, EnterParams{Subscriber: d.in.o.Subscriber})
	if err != nil || own.CreatedAt.IsZero() || own.Now.Sub(own.CreatedAt) <= window+slack {
		return false, err
	}
	d.verdict, d.out = parks, Outcome{Reason: ReasonTooOld}
	d.why = fmt.Sprintf("older than the %v that the inbox remembers: it may have been handled; retry runs it", window)
	return true, nil
}

// judge says whether the order of its lane lets d run.
func (d *delivery) judge() bool {
	waits := func(reason string) bool {
		d.verdict, d.out = behind, Outcome{Status: StatusStored, Reason: reason, Ack: true}
		return false
	}
	if d.order == OrderNone {
		return true
	}
	if d.order != OrderContiguous && d.ent.Blocked {
		return waits(ReasonLane)
	}
	now := version(d.ent.Version)
	if d.order == OrderSerial {
		if c, ok := d.ver.compare(now); now != "" && d.ver != "" && ok && c <= 0 { // SetVersion has given the lane one
			d.out.Reason = ReasonStale
		}
		return true
	}
	if d.order == OrderContiguous {
		return d.contiguous(now, waits)
	}
	if now == "" {
		return true
	}
	c, ok := d.ver.compare(now)
	switch {
	case !ok:
		return d.incomparable()
	case c < 0, c == 0 && d.in.o.Tie == TieSkip:
		d.out.Reason = ReasonStale
	}
	d.tied = c == 0
	return true
}

func (d *delivery) incomparable() bool {
	d.verdict, d.out = parks, Outcome{Reason: ReasonUnparsable}
	d.why = "the version is an integer where the lane has an instant, or the reverse"
	return false
}

// perform runs the handler, unless the message is stale or was skipped, and completes its claim.
func (d *delivery) perform(ctx context.Context, h Handler) error {
	stale := d.out.Reason == ReasonStale
	d.out = Outcome{Status: StatusDone, Ack: true}
	if stale {
		d.out = Outcome{Status: StatusSkipped, Reason: ReasonStale, Ack: true}
	}
	if !stale {
		if err := d.call(ctx, h); err != nil {
			return err
		}
	}
	if s, ok := errors.AsType[*skip](d.skipping()); ok {
		d.out = Outcome{Status: StatusSkipped, Reason: s.reason, Ack: true}
	}
	res := d.result
	if d.out.Status == StatusSkipped {
		res = idempo.Result{Header: [][2]string{{skippedHeader, d.out.Reason}}}
	}
	d.out.Result = d.result
	if err := d.leave(ctx, stale); err != nil {
		return err
	}
	return d.claim.Complete(ctx, res)
}

// skipping is the Skip of a handler's earlier run, which this transaction only completes.
func (d *delivery) skipping() error {
	if d.skipped == "" {
		return nil
	}
	return &skip{d.skipped}
}

// leave takes the receipt away, moves the lane and wakes the next in it. Where neither is needed it sends nothing.
func (d *delivery) leave(ctx context.Context, stale bool) error {
	p := LeaveParams{Tenant: d.m.Tenant, Subscriber: d.in.o.Subscriber}
	if d.ent.Receipt != nil {
		p.Key = d.rkey
	}
	kept := p.Key != "" && d.in.o.KeepDone > 0
	if kept {
		if err := d.in.finish(ctx, *d.ent.Receipt, d.out); err != nil {
			return err
		}
		p.Key = ""
	}
	versions := d.order == OrderLatest || d.order == OrderContiguous
	if versions && !stale && !d.moved[d.m.Lane] {
		p.Version = string(d.ver)
	}
	if d.order == OrderContiguous {
		p.Wanted = string(d.ver.next())
		if stale {
			p.Wanted = string(version(d.ent.Version).next())
		}
	}
	if d.order != OrderNone && (p.Key != "" || kept || p.Version != "") {
		p.Lane = d.m.Lane
	}
	if p.Key == "" && p.Lane == "" {
		return nil
	}
	if d.moved[d.m.Lane] {
		p.Wanted = "" // SetVersion has woken who is next
	}
	d.in.nudge()
	return d.in.store.Leave(ctx, p)
}

type deliveryKey struct{}

// call runs the handler. What it panics with is its error.
func (d *delivery) call(ctx context.Context, h Handler) (err error) {
	if d.skipped != "" {
		return nil
	}
	own := context.WithValue(d.claim.Context(), deliveryKey{}, d)
	limit, cancel := context.WithTimeout(own, d.in.o.HandlerTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	d.run, d.begun = true, time.Now()
	defer func() {
		if p := recover(); p != nil {
			d.fault = &handlerError{err: fmt.Errorf("panic: %v", p), stack: string(debug.Stack())}
			err = d.fault
		}
	}()
	if err = h(limit, d.m.clone()); err != nil {
		d.fault = &handlerError{err: err}
		return d.fault
	}
	return nil
}

// SetResult sets the result of the message that ctx, a handler's, belongs to: duplicates get the same. Outside of a
// handler it does nothing. The last one counts.
func SetResult(ctx context.Context, r idempo.Result) {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		d.result = r
	}
}
