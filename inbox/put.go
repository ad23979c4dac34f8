package inbox

import (
	"context"

	"github.com/idempo/idempo"
)

// Put stores the message for later, in the transaction of ctx if there is one: Work runs it. A message that has a receipt
// already is left as it is; one that had its effect is found to be a duplicate when its turn comes. What cannot be
// identified is parked, in the same transaction. Outcome.Ack says that it may be acknowledged once that transaction has
// committed; on an error nothing is stored.
func (in *Inbox) Put(ctx context.Context, m Message) (Outcome, error) {
	d, p := in.accept(m, false)
	if p != nil {
		return in.keepParked(ctx, d, d.rkey, p)
	}
	r := Receipt{Subscriber: in.o.Subscriber, Key: d.rkey, Message: d.kept, Status: StatusStored, Holds: d.order != OrderNone}
	put := PutParams{Receipt: r, Due: true} // due at once: a worker lets it sleep if it is not its turn
	for range 5 {
		st, err := in.store.Put(ctx, put)
		switch {
		case err != nil:
			return Outcome{}, err
		case st.Lost && st.Receipt.over(): // not swept yet: nothing remembers that message any more
			if err := in.store.Leave(ctx, LeaveParams{Tenant: d.m.Tenant, Subscriber: in.o.Subscriber, Key: d.rkey, Rev: st.Receipt.Rev}); err != nil {
				return Outcome{}, err
			}
			continue
		case st.Lost && st.Receipt.Status == StatusStarted: // it only counts starts: the message is nowhere else
			put.Rev, put.Receipt.Attempts, put.Receipt.Failures = st.Receipt.Rev, st.Receipt.Attempts, st.Receipt.Failures
			continue
		case st.Lost && st.Receipt.Status == "":
			put.Rev, put.Receipt.Attempts, put.Receipt.Failures = 0, 0, nil
			continue
		}
		in.nudge()
		return Outcome{Status: st.Receipt.Status, Reason: st.Receipt.Reason, Ack: true}, nil
	}
	return Outcome{}, &idempo.Error{Op: "inbox", Code: "unavailable", Hint: "the receipt kept changing; nothing is stored"}
}

// SetVersion puts the lane's version to v: under OrderContiguous v+1 is next, under OrderLatest only what is newer than v
// runs; under OrderSerial, too, what has a version that is not newer is stale from now on. In a handler it is part of the handler's transaction and of its message's tenant; elsewhere it joins the
// transaction of ctx, or is one of its own, and the tenant is Options.Tenant. It sets what it is told, also backwards.
func (in *Inbox) SetVersion(ctx context.Context, lane, v string) error {
	ver, ok := parseVersion(v, in.o.Order != OrderContiguous)
	if !ok || lane == "" || len(lane) > maxLane {
		return misuse("SetVersion needs a lane and an integer, or but for OrderContiguous an RFC 3339 instant")
	}
	p := LeaveParams{Tenant: in.o.Tenant, Subscriber: in.o.Subscriber, Lane: lane, Version: string(ver)}
	if in.o.Order == OrderContiguous {
		p.Wanted = string(ver.next())
	}
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok && d.in == in {
		p.Tenant = d.m.Tenant
		if d.moved == nil {
			d.moved = map[string]bool{}
		}
		d.moved[lane] = true
	}
	in.nudge()
	return in.store.Leave(ctx, p)
}
