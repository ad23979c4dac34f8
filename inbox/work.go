package inbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// Work runs what was stored for later, by Put or after a failure, until ctx ends: Workers messages at once, each lane in
// order. Then it takes nothing more, gives what runs DrainTimeout to end, and returns nil. Any number of processes may
// run it. While the store is away it asks again, with full jitter.
func (in *Inbox) Work(ctx context.Context, h Handler) error {
	if h == nil {
		return misuse("Work needs a handler")
	}
	var all sync.WaitGroup
	defer all.Wait()
	work, stop := in.Drain(ctx)
	defer stop()
	defer all.Wait() // before stop
	if in.o.KeepDone > 0 {
		all.Go(func() { in.sweeping(ctx) })
	}
	free := make(chan struct{}, in.o.Workers)
	for range in.o.Workers {
		free <- struct{}{}
	}
	failures := 0
	for {
		taken, err := in.take(ctx, free)
		for _, r := range taken {
			all.Go(func() {
				defer func() { free <- struct{}{} }()
				in.redeliver(work, r, h)
			})
		}
		pause := backoff.Around(in.o.Poll, 0.5)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			in.o.Logger.Warn("inbox: cannot take what is due", "subscriber", in.o.Subscriber, "error", err)
			failures++
			pause = backoff.Full(failures, in.o.Poll, 30*time.Second)
		case len(taken) > 0:
			failures, pause = 0, 0
		default:
			failures = 0
		}
		if pause > 0 && !in.rest(ctx, pause) {
			return nil
		}
	}
}

// Once runs what is due, one message after the other, until nothing is, and returns how many that were. It is Work for
// who has a schedule of his own. A handler that says Later(0) each time keeps it going until ctx ends.
func (in *Inbox) Once(ctx context.Context, h Handler) (n int, err error) {
	for {
		rs, err := in.store.Take(ctx, TakeParams{Subscriber: in.o.Subscriber, Limit: 1, Lease: in.o.Lease})
		if err != nil || len(rs) == 0 {
			return n, err
		}
		if _, err := in.rerun(ctx, rs[0], h); err != nil {
			return n, err
		}
		n++
	}
}

// rest waits for d, for work, or for the end of ctx: false.
func (in *Inbox) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-in.wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// take waits for a free worker and takes as many receipts as there are; the workers of those it does not find stay free.
func (in *Inbox) take(ctx context.Context, free chan struct{}) ([]Receipt, error) {
	select {
	case <-free:
	case <-ctx.Done():
		return nil, nil
	}
	n := 1
	for more := true; more; {
		select {
		case <-free:
			n++
		default:
			more = false
		}
	}
	rs, err := in.store.Take(ctx, TakeParams{Subscriber: in.o.Subscriber, Limit: n, Lease: in.o.Lease})
	for range n - len(rs) {
		free <- struct{}{}
	}
	return rs, err
}

// Drain returns the context for work that was taken before ctx ended: it ends DrainTimeout later. stop ends it, and must
// be called when the work is over.
func (in *Inbox) Drain(ctx context.Context) (work context.Context, stop func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		t := time.NewTimer(in.o.DrainTimeout)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(errDrained)
		case <-work.Done():
		}
	})
	return work, func() { unhook(); cancel(context.Canceled) }
}

var errDrained = errors.New("inbox: stopped; the time to drain is over")

// redeliver handles one receipt that Take has handed out.
func (in *Inbox) redeliver(ctx context.Context, r Receipt, h Handler) {
	if _, err := in.rerun(ctx, r, h); err != nil && ctx.Err() == nil {
		in.o.Logger.Warn("inbox: a stored message is given back", "subscriber", in.o.Subscriber, "receipt", r.Seq, "error", err)
	}
}

func (in *Inbox) rerun(ctx context.Context, r Receipt, h Handler) (Outcome, error) {
	d, p := in.restore(r)
	switch {
	case r.Unreadable != nil: // it has not been started
		return in.keepParked(ctx, d, d.rkey, &parking{ReasonUnreadable, "it cannot be decrypted: " + r.Unreadable.Error() + "; retry it once the encryption key is configured again"})
	case r.Status == StatusDead: // woken with its lane
		return in.keep(ctx, d, keeping{status: StatusDead, reason: r.Reason})
	case p != nil:
		return in.keepParked(ctx, d, d.rkey, p)
	case r.Reason == ReasonSkip:
		return in.skipTaken(ctx, d)
	case r.Attempts > in.o.MaxAttempts && r.Status != StatusInDoubt: // taken, and never heard of again
		d.counted = false
		d.receipt.Attempts-- // this start will not be
		return in.bury(ctx, d, ReasonAttempts, &handlerError{err: errUnseen})
	}
	return in.deliver(ctx, d, h)
}

// restore is the delivery that a taken receipt stands for. Its start is counted.
func (in *Inbox) restore(r Receipt) (*delivery, *parking) {
	d, p := in.accept(r.Message, r.Reason == ReasonAccepted)
	d.receipt, d.taken, d.counted, d.rkey = &r, true, true, r.Key
	d.ent.Now = r.Now
	if r.Reason == ReasonUnordered && p == nil {
		d.order = OrderNone
	}
	return d, p
}
