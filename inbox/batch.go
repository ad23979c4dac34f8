package inbox

import (
	"context"
	"errors"

	"github.com/idempo/idempo"
)

// HandleBatch is Handle for many messages, which cost one commit where all goes well: those that are certainly delivered
// for the first time run in one transaction, in their order. Where one of them fails, or has to wait, that transaction is
// rolled back and the messages are handled one by one: the others have their effect, the bad one is retried. Outcomes
// stand in the order of ms. On an error those with Ack are decided; nothing else is.
//
// Batches over BatchSize or BatchBytes are cut into several transactions.
func (in *Inbox) HandleBatch(ctx context.Context, ms []Message, h Handler) ([]Outcome, error) {
	outs := make([]Outcome, len(ms))
	if in.o.Guard != idempo.GuardAtomic {
		return outs, misuse("HandleBatch needs the atomic guard; this inbox is leased: call HandleLeased")
	}
	for from := 0; from < len(ms); {
		to, size := from, 0
		for to < len(ms) && to-from < in.o.BatchSize && (to == from || size+len(ms[to].Body) <= in.o.BatchBytes) {
			size += len(ms[to].Body)
			to++
		}
		if err := in.batch(ctx, ms[from:to], outs[from:to], h); err != nil {
			return outs, err
		}
		from = to
	}
	return outs, nil
}

// batch handles ms in one transaction if it can, else one by one.
func (in *Inbox) batch(ctx context.Context, ms []Message, outs []Outcome, h Handler) error {
	if err := in.ready(ctx); err != nil {
		return err
	}
	ds, together := in.together(ms)
	var txEnded error // the work ended the transaction: what ran may have had its effect, and does not run again
	ended := false
	if together {
		leave, err := in.enterAll(ctx, ds)
		if err != nil {
			return err
		}
		err = in.transact(ctx, ds, h)
		leave()
		if err == nil || errors.Is(err, errAnswered) {
			for i, d := range ds {
				outs[i] = d.out
			}
			in.identified()
			return nil
		}
		if ended = codeOf(err) == "tx_ended"; ended {
			txEnded = err
		}
	}
	for i, m := range ms {
		var err error
		if ended && ds[i].run {
			outs[i], _, err = in.settle(ctx, ds[i], txEnded)
		} else if together && ds[i].fault != nil { // its start counts; it is not started again at once
			outs[i], err = in.failedInBatch(ctx, ds[i], h)
		} else {
			outs[i], err = in.handle(ctx, m, h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failedInBatch is what follows for the message whose handler ended its batch.
func (in *Inbox) failedInBatch(ctx context.Context, d *delivery, h Handler) (Outcome, error) {
	if d.order != OrderNone {
		leave, err := in.lanes.enter(ctx, laneOf(d))
		if err != nil {
			return Outcome{}, err
		}
		defer leave()
	}
	out, again, err := in.settle(ctx, d, d.fault)
	if again {
		return in.attempt(ctx, d, h)
	}
	return out, err
}

// laneOf names the lane of d in this process.
func laneOf(d *delivery) string { return d.m.Tenant + "\x00" + d.m.Lane }

// together returns the deliveries of ms if they can share a transaction: each identified, once, and certainly the first.
func (in *Inbox) together(ms []Message) ([]*delivery, bool) {
	ds, seen := make([]*delivery, len(ms)), map[idempo.Key]bool{}
	for i, m := range ms {
		d, p := in.accept(m, false)
		if p != nil || m.Attempt != 1 || seen[d.key] {
			return nil, false
		}
		seen[d.key] = true
		ds[i] = d
	}
	return ds, len(ds) > 1
}

// enterAll takes the turn of every lane of ds, in sorted order.
func (in *Inbox) enterAll(ctx context.Context, ds []*delivery) (leave func(), err error) {
	lanes := map[string]bool{}
	for _, d := range ds {
		if d.order != OrderNone {
			lanes[laneOf(d)] = true
		}
	}
	var held []func()
	leave = func() {
		for _, f := range held {
			f()
		}
	}
	for _, lane := range sortedKeys(lanes) {
		one, err := in.lanes.enter(ctx, lane)
		if err != nil {
			leave()
			return nil, err
		}
		held = append(held, one)
	}
	return leave, nil
}
