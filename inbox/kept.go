package inbox

import (
	"context"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
)

// Receipts of finished messages are kept for operators where Options.KeepDone says so. They hold no lane and decide nothing.

// finish makes r the receipt of a finished message.
func (in *Inbox) finish(ctx context.Context, r Receipt, out Outcome) error {
	rev := r.Rev
	for range 5 {
		done := r.clone()
		done.Status, done.Reason, done.Holds = StatusDone, "", false
		switch why, skipped := strings.CutPrefix(out.Reason, string(StatusSkipped)+": "); {
		case skipped: // the record says so
			done.Status, done.Reason = StatusSkipped, why
		case out.Status == StatusSkipped:
			done.Status, done.Reason = StatusSkipped, out.Reason
		}
		st, err := in.store.Put(ctx, PutParams{Receipt: done, Rev: rev, BodyFor: in.o.KeepBody, KeepFor: in.o.KeepDone})
		if err != nil || !st.Lost || st.Receipt.Status == "" {
			return err
		}
		r, rev = st.Receipt, st.Receipt.Rev // a person changed it meanwhile; it is finished all the same
	}
	return &idempo.Error{Op: "inbox", Code: "tx_conflict", Hint: "the receipt kept changing"}
}

const sweepBatch = 500

// Sweep takes away what is over of finished messages. Work does it about once a minute.
func (in *Inbox) Sweep(ctx context.Context) (Swept, error) {
	s, ok := in.store.(sealing).Store.(Sweeper)
	if !ok {
		return Swept{}, nil
	}
	var sum Swept
	for ctx.Err() == nil {
		done, err := s.Sweep(ctx, SweepParams{Subscriber: in.o.Subscriber, Limit: sweepBatch})
		sum.Receipts, sum.Bodies = sum.Receipts+done.Receipts, sum.Bodies+done.Bodies
		if err != nil || done.Receipts < sweepBatch && done.Bodies < sweepBatch {
			return sum, err
		}
	}
	return sum, nil
}

// sweeping sweeps until ctx ends.
func (in *Inbox) sweeping(ctx context.Context) {
	for {
		rest(ctx, backoff.Around(time.Minute, 0.5))
		if ctx.Err() != nil {
			return
		}
		if _, err := in.Sweep(ctx); err != nil && ctx.Err() == nil {
			in.o.Logger.Warn("inbox: cannot sweep", "subscriber", in.o.Subscriber, "error", err)
		}
	}
}

// Note counts that messages came again, by tenant and id of their identity. It decides nothing; a store that cannot count
// does not.
func (in *Inbox) Note(ctx context.Context, seen []Sighting) error {
	n, ok := in.store.(sealing).Store.(Noter)
	if !ok || len(seen) == 0 {
		return nil
	}
	return n.Note(ctx, NoteParams{Subscriber: in.o.Subscriber, Seen: seen})
}

// Park stores a message that must not run by itself under a receipt key of the caller's, 32 bytes, and says whether it was
// stored: the first of a key is, later ones are not. It joins the transaction of ctx.
func (in *Inbox) Park(ctx context.Context, m Message, key, reason string) (bool, error) {
	st, err := in.store.Put(ctx, PutParams{Receipt: Receipt{Subscriber: in.o.Subscriber, Key: key, Message: m, Status: StatusParked, Reason: reason}})
	return err == nil && !st.Lost, err
}

// ReceiptKey is the receipt's key of a message that is known by its source and id.
func ReceiptKey(source, id string) string { return digestOf("message", string(fields(source, id))) }

// KeyOf is the engine's key of the message that a receipt is about.
func KeyOf(r Receipt) idempo.Key {
	return idempo.Key{Tenant: r.Message.Tenant, Operation: "inbox:" + r.Subscriber, ID: string(fields(r.Message.Source, r.Message.ID))}
}

// Accepts tells whether m has all that the inbox needs: an identity, and what its order goes by.
func (in *Inbox) Accepts(m Message) bool {
	_, p := in.accept(m, false)
	return p == nil
}

// Receipts lists receipts of the subscriber, bodies and headers opened, see Store.List.
func (in *Inbox) Receipts(ctx context.Context, p ListParams) ([]Receipt, error) {
	p.Subscriber = in.o.Subscriber
	return in.store.List(ctx, p)
}
