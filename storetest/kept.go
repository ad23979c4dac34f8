package storetest

import (
	"slices"
	"time"

	"github.com/idempo/idempo/inbox"
)

// receiptFinds is what an operator looks for.
func receiptFinds(k *K) {
	at := func(i int, id, position string, status inbox.Status) inbox.Receipt {
		r := k.fresh()
		r.Message.ID, r.Message.Position, r.Status = id, position, status
		st, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Now: k.t0.Add(time.Duration(i) * time.Minute)})
		k.ok(err)
		return st.Receipt
	}
	a := at(0, "x", "01A/0", inbox.StatusDone)
	b := at(1, "x\x00", "01A/1", inbox.StatusDead)
	c := at(2, "X", "01A", inbox.StatusDone)
	d := at(3, "x", "01A0", inbox.StatusParked)
	list := func(p inbox.ListParams, want ...inbox.Receipt) {
		k.Helper()
		p.Subscriber, p.Now = k.tenant, k.t0
		rs, err := k.shelf().List(k.ctx, p)
		k.ok(err)
		same := func(x, y inbox.Receipt) bool { return x.Seq == y.Seq && x.Key == y.Key }
		if !slices.EqualFunc(rs, want, same) {
			k.Errorf("%+v: %v, want %v", p, show(rs), show(want))
		}
	}
	list(inbox.ListParams{ID: "x"}, a, d)
	list(inbox.ListParams{ID: "x", Statuses: []inbox.Status{inbox.StatusParked}}, d)
	list(inbox.ListParams{Position: "01A"}, a, b, c)
	list(inbox.ListParams{Position: "01A/1"}, b)
	list(inbox.ListParams{Key: c.Key}, c)
	list(inbox.ListParams{Newest: true}, d, c, b, a)
	list(inbox.ListParams{Newest: true, Limit: 1, After: c.Seq}, b)
	list(inbox.ListParams{Newest: true, Statuses: []inbox.Status{inbox.StatusDone, inbox.StatusParked}, Limit: 2}, d, c)
	list(inbox.ListParams{Statuses: []inbox.Status{inbox.StatusDone, inbox.StatusDead}, After: a.Seq}, b, c)
	list(inbox.ListParams{Since: k.t0.Add(time.Minute), Until: k.t0.Add(3 * time.Minute)}, b, c)
	list(inbox.ListParams{Newest: true, Until: k.t0}, []inbox.Receipt{}...)
	list(inbox.ListParams{Tenant: k.tenant, Lane: "c-1"}, a, b, c, d)
}

func receiptKept(k *K) {
	r := k.fresh()
	r.Sealed = "e1"
	k.put(r, 0)
	r.Status, r.Holds = inbox.StatusDone, false
	st, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Rev: 1, BodyFor: time.Hour, KeepFor: 2 * time.Hour, Now: k.t0})
	k.ok(err)
	open := k.put(k.fresh(), 0).Receipt
	got, _ := k.receipt(r)
	if got.Sealed != "e1" || !got.BodyUntil.Equal(k.t0.Add(time.Hour)) || !got.GoneAt.Equal(k.t0.Add(2*time.Hour)) || !got.NextAt.IsZero() || st.Receipt.Sealed != "e1" ||
		!st.Receipt.GoneAt.Equal(got.GoneAt) || got.Bodiless() {
		k.Errorf("kept as %+v", got)
	}
	sweep := func(after time.Duration, want inbox.Swept) {
		k.Helper()
		done, err := k.shelf().(inbox.Sweeper).Sweep(k.ctx, inbox.SweepParams{Subscriber: k.tenant, Limit: 10, Now: k.t0.Add(after)})
		if k.ok(err); done != want {
			k.Errorf("after %v swept %+v, want %+v", after, done, want)
		}
	}
	sweep(time.Hour-time.Microsecond, inbox.Swept{})
	sweep(time.Hour, inbox.Swept{Bodies: 1})
	sweep(time.Hour, inbox.Swept{})
	if got, ok := k.receipt(r); !ok || got.Message.Body != nil || got.Message.Headers != nil || got.Sealed != "" || got.Message.ID != "m-1" || !got.BodyUntil.Equal(k.t0.Add(time.Hour)) {
		k.Errorf("without body: %+v", got)
	}
	sweep(2*time.Hour, inbox.Swept{Receipts: 1})
	if _, ok := k.receipt(r); ok {
		k.Error("it is still there")
	}
	sweep(1000*time.Hour, inbox.Swept{})
	if got, ok := k.receipt(open); !ok || string(got.Message.Body) != "body" {
		k.Errorf("one that is open: %+v, %v", got, ok)
	}
	again := k.fresh()
	k.put(again, 0)
	_, err = k.shelf().Put(k.ctx, inbox.PutParams{Receipt: again, Rev: 1, BodyFor: time.Hour, KeepFor: time.Hour, Now: k.t0})
	k.ok(err)
	k.put(again, 2) // open again
	sweep(1000*time.Hour, inbox.Swept{})
	if got, ok := k.receipt(again); !ok || !got.GoneAt.IsZero() || !got.BodyUntil.IsZero() || got.Message.Body == nil {
		k.Errorf("open again: %+v, %v", got, ok)
	}
}

func receiptNoted(k *K) {
	r := k.fresh()
	k.put(r, 0)
	note := func(at time.Duration, seen ...inbox.Sighting) {
		k.ok(k.shelf().(inbox.Noter).Note(k.ctx, inbox.NoteParams{Subscriber: k.tenant, Seen: seen, Now: k.t0.Add(at)}))
	}
	note(0)
	note(time.Minute, inbox.Sighting{Tenant: k.tenant, Key: r.Key, Times: 3}, inbox.Sighting{Tenant: k.tenant, Key: k.fresh().Key, Times: 1})
	note(time.Hour, inbox.Sighting{Tenant: k.tenant, Key: r.Key, Times: 2}, inbox.Sighting{Tenant: "nobody", Key: r.Key, Times: 9})
	k.put(r, 1)
	if got, _ := k.receipt(r); got.Seen != 5 || !got.SeenAt.Equal(k.t0.Add(time.Hour)) || got.Rev != 2 {
		k.Errorf("noted as %+v", got)
	}
}
