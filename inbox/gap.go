package inbox

import "context"

// A gap in a lane under OrderContiguous: what Options.GapWait, OnGap, AnyStart and Idle make of it.

// contiguous is judge for a lane whose version is now.
func (d *delivery) contiguous(now version, waits func(string) bool) bool {
	o := d.in.o
	idle := o.Idle > 0 && !d.ent.ChangedAt.IsZero() && d.ent.Now.Sub(d.ent.ChangedAt) > o.Idle
	if o.AnyStart && now == "" || idle {
		return true
	}
	c, ok := d.ver.compare(now.next())
	switch {
	case !ok:
		return d.incomparable()
	case c > 0 && d.first != "" && d.first == d.ver:
		d.past = true
		d.in.o.Logger.Warn("inbox: a lane goes on past a gap", "subscriber", o.Subscriber, "wanted", string(now.next()), "went on from", string(d.ver))
	case c > 0:
		return waits(ReasonGap)
	case c < 0:
		d.out.Reason = ReasonStale
	}
	return true
}

// expired tells whether d has waited long enough for a gap, so that its lane may go on.
func (d *delivery) expired() bool {
	return d.order == OrderContiguous && d.in.o.OnGap == OnGapContinue && d.ent.Receipt != nil && d.ent.Now.Sub(d.ent.Receipt.ReceivedAt) >= d.in.o.GapWait
}

// lowest is the lowest version that the lane of d holds.
func (d *delivery) lowest(ctx context.Context) (low version, err error) {
	p := ListParams{Tenant: d.m.Tenant, Subscriber: d.in.o.Subscriber, Lane: d.m.Lane, WithoutBody: true, Limit: 1000,
		Statuses: []Status{StatusStored, StatusRetrying, StatusParked}}
	for {
		rs, err := d.in.store.List(ctx, p)
		if err != nil {
			return "", err
		}
		if low = lowestHeld(low, rs); len(rs) < p.Limit {
			return low, nil
		}
		p.After = rs[len(rs)-1].Seq
	}
}

// PastGap tells a handler under OnGapContinue that a version before its message's did not come within GapWait.
func PastGap(ctx context.Context) bool {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	return ok && d.past
}

// Tied tells a handler under OrderLatest and TieRun that the lane has reached its message's version already, by another one.
func Tied(ctx context.Context) bool {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	return ok && d.tied
}
