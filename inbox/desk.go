package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/idempo/idempo"
)

// Selection picks receipts: by their numbers (Receipt.Seq), else by every filter that is set.
type Selection struct {
	IDs      []int64
	Tenant   string
	Lane     string
	Statuses []Status // default: dead and parked
	Reason   string
	Limit    int // at most so many; 1,000 if 0
}

// Changed is what an operator's action did. Notes says of each receipt that it left alone, why.
type Changed struct {
	OK, Failed int
	Notes      []string
}

func (c *Changed) note(r Receipt, why string) {
	c.Failed++
	c.Notes = append(c.Notes, fmt.Sprintf("receipt %d is %s: %s", r.Seq, r.Status, why))
}

// Find lists the receipts of a selection in the order in which they came, without their bodies.
func (in *Inbox) Find(ctx context.Context, s Selection) ([]Receipt, error) {
	return in.find(ctx, s, true)
}

func (in *Inbox) find(ctx context.Context, s Selection, bodiless bool) (found []Receipt, err error) {
	limit := cmp.Or(s.Limit, 1000)
	p := ListParams{Tenant: s.Tenant, Subscriber: in.o.Subscriber, Lane: s.Lane, Statuses: s.Statuses, WithoutBody: bodiless, Limit: 100}
	if len(s.IDs) > 0 {
		p.Statuses, p.After = nil, slices.Min(s.IDs)-1
	} else if len(s.Statuses) == 0 {
		p.Statuses = []Status{StatusDead, StatusParked}
	}
	for len(found) < limit {
		if n := len(s.IDs); n > 0 && len(found) == n {
			break
		}
		rs, err := in.store.List(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if len(found) < limit && (len(s.IDs) == 0 || slices.Contains(s.IDs, r.Seq)) && (s.Reason == "" || s.Reason == r.Reason) {
				found = append(found, r)
			}
			p.After = r.Seq
		}
		if len(rs) < p.Limit {
			break
		}
	}
	return found, nil
}

// Retry has dead, parked and retrying messages run again: attempts from 0, in the order of their lanes, as soon as Work
// comes to them. accept lets those run whose identity stands for another body (ReasonConflict). A message that is
// stored, in doubt or running is left alone, and one that is done has no receipt: Changed says so.
func (in *Inbox) Retry(ctx context.Context, s Selection, accept bool) (c Changed, err error) {
	found, err := in.find(ctx, s, true)
	if err != nil {
		return c, err
	}
	for _, r := range found {
		switch {
		case r.Status != StatusDead && r.Status != StatusParked && r.Status != StatusRetrying:
			c.note(r, "nothing to retry")
			continue
		case r.Reason == ReasonConflict && !accept:
			c.note(r, "another body has been handled under its id; retry it with accept")
			continue
		}
		again := r
		if again.Reason == ReasonConflict || again.Reason == ReasonAccepted {
			again.Reason = ReasonAccepted
		} else {
			again.Reason = ""
		}
		again.Status, again.Attempts, again.Failures, again.Holds = StatusStored, 0, nil, r.Message.Lane != "" && in.o.Order != OrderNone
		st, err := in.store.Put(ctx, PutParams{Receipt: again, Rev: r.Rev, Due: true})
		switch {
		case err != nil:
			return c, err
		case st.Lost:
			c.note(r, "it changed meanwhile")
		default:
			c.OK++
		}
	}
	if n := len(s.IDs) - len(found); n > 0 {
		c.Failed += n
		c.Notes = append(c.Notes, fmt.Sprintf("%d have no receipt: done, or discarded", n))
	}
	in.nudge()
	return c, nil
}

// Skip completes messages that wait for a person without their effect, so that copies are duplicates and their lanes go
// on.
func (in *Inbox) Skip(ctx context.Context, s Selection, reason string) (c Changed, err error) {
	found, err := in.find(ctx, s, false)
	if err != nil {
		return c, err
	}
	for _, r := range found {
		if r.Status != StatusDead && r.Status != StatusParked && r.Status != StatusRetrying && r.Status != StatusStored {
			c.note(r, "it cannot be skipped")
			continue
		}
		if r.Unreadable != nil {
			c.note(r, "it cannot be decrypted: configure its encryption key, or discard it")
			continue
		}
		d, p := in.restore(r)
		if p != nil || r.Reason == ReasonConflict {
			c.note(r, "it has no identity of its own; discard it")
			continue
		}
		if err := in.skip(ctx, d, cmp.Or(cut(reason, 255), string(StatusSkipped))); err != nil {
			c.note(r, err.Error())
			continue
		}
		c.OK++
	}
	in.nudge()
	return c, nil
}

// skip completes d without its effect and lets its lane go on.
func (in *Inbox) skip(ctx context.Context, d *delivery, reason string) error {
	d.counted, d.skipped = false, reason
	if d.order == OrderSerial || d.order == OrderLatest {
		d.order = OrderNone // it need not be its turn
	}
	if in.o.Guard == idempo.GuardLeased {
		return in.skipLeased(ctx, d)
	}
	err := in.transact(ctx, []*delivery{d}, func(context.Context, Message) error { return nil })
	if err != nil {
		return err
	}
	return in.store.Leave(ctx, LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Lane: d.kept.Lane, Wanted: in.wanted(d)})
}

// skipLeased is skip where a claim is no part of a transaction: a crash between the claim and the receipt leaves a
// receipt that is found to be a duplicate.
func (in *Inbox) skipLeased(ctx context.Context, d *delivery) error {
	req := idempo.Request{Key: d.key, Input: d.input(), Surface: "inbox", Trace: d.trace()}
	b, err := in.engine.Do(ctx, req, func(context.Context, *idempo.Claim) (idempo.Result, error) {
		return idempo.Result{Header: [][2]string{{skippedHeader, d.skipped}}}, nil
	})
	switch {
	case err != nil:
		return err
	case b.Verdict == idempo.VerdictRun:
		d.out = Outcome{Status: StatusSkipped, Reason: d.skipped, Ack: true}
	default:
		d.verdict, d.out = answered, Outcome{}
		d.answer(b)
		return errAnswered
	}
	d.order = d.in.laneOrder(d)
	return in.remove(ctx, d, d.out)
}

// laneOrder is the order in which the lane of d goes on.
func (in *Inbox) laneOrder(d *delivery) Order {
	if d.kept.Lane == "" {
		return OrderNone
	}
	return cmp.Or(in.o.Order, OrderSerial)
}

// skipTaken skips a receipt that Take has handed out. Where its version is not next it waits for its turn as it is.
func (in *Inbox) skipTaken(ctx context.Context, d *delivery) (Outcome, error) {
	err := in.skip(ctx, d, "asked")
	switch {
	case !errors.Is(err, errAnswered):
		return d.out, err
	case d.verdict == behind:
		d.counted = true // taken, and not a start
		return in.keep(ctx, d, keeping{status: StatusStored, reason: ReasonSkip})
	}
	out, _, err := in.answer(ctx, d)
	return out, err
}

// wanted is the version that follows d, where its order has one.
func (in *Inbox) wanted(d *delivery) string {
	if d.order == OrderContiguous {
		return string(d.ver.next())
	}
	return ""
}

// Discard forgets receipts: what is still the broker's, or arrives again, is then a new message. Their lanes go on.
func (in *Inbox) Discard(ctx context.Context, s Selection) (c Changed, err error) {
	found, err := in.find(ctx, s, true)
	if err != nil {
		return c, err
	}
	for _, r := range found {
		p := LeaveParams{Tenant: r.Message.Tenant, Subscriber: in.o.Subscriber, Key: r.Key, Rev: r.Rev}
		if in.o.Order != OrderContiguous && in.o.Order != OrderNone {
			p.Lane = r.Message.Lane
		}
		if err := in.store.Leave(ctx, p); err != nil {
			return c, err
		}
		c.OK++
	}
	in.nudge()
	return c, nil
}

// Release lets a lane under OrderContiguous go on from the lowest version that is held in it, whatever is missing
// before. It returns that version, "" where nothing is held.
func (in *Inbox) Release(ctx context.Context, tenant, lane string) (string, error) {
	if in.o.Order != OrderContiguous || lane == "" {
		return "", misuse("only a lane under OrderContiguous is released; elsewhere retry, skip or discard what holds it")
	}
	held, err := in.find(ctx, Selection{Tenant: cmp.Or(tenant, in.o.Tenant), Lane: lane, Limit: 100_000,
		Statuses: []Status{StatusStored, StatusParked, StatusRetrying}}, true)
	if err != nil {
		return "", err
	}
	first, before := FirstHeld(held)
	if first == "" {
		return "", nil
	}
	in.nudge()
	return first, in.store.Leave(ctx, LeaveParams{Tenant: cmp.Or(tenant, in.o.Tenant), Subscriber: in.o.Subscriber, Lane: lane, Version: before, Wanted: first})
}

// FirstHeld returns the lowest integer version among receipts that hold their lane, and the version before it; "" where
// there is none. Such a lane goes on from first if its version is put to before.
func FirstHeld(held []Receipt) (first, before string) {
	low := lowestHeld("", held)
	if low == "" {
		return "", ""
	}
	return string(low), string(low.before())
}

// lowestHeld is the lowest version of receipts that hold their lane, or low where that is lower; "": there is none.
func lowestHeld(low version, held []Receipt) version {
	for _, r := range held {
		v, ok := parseVersion(r.Message.Version, false)
		if c, _ := v.compare(low); ok && r.Holds && (low == "" || c < 0) {
			low = v
		}
	}
	return low
}

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
