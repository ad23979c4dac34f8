package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo/inbox"
)

// receiptCases is the contract of inbox.Store itself.
func receiptCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "receipts: " + name, needs: needTx, run: run}
	}
	return []testCase{
		c("what is put comes back equal: any bytes, nil and empty apart", receiptBytes),
		c("a new one is lost to one that is there, a change to every other revision", receiptRevisions),
		c("of many puts of one revision at once, one wins", receiptRaces),
		c("[messages/I4] keys, tenants and subscribers that differ in one byte are different", receiptKeys),
		c("due ones are taken once, the oldest first, and again after the lease", receiptTakes),
		c("[messages/I36] times are the store's clock", receiptClock),
		c("a lane is entered by one transaction at a time, without waiting", receiptLane),
		c("a transaction that rolls back leaves neither receipt, version nor wake-up", receiptRollback),
		c("the end of a message wakes the next of its lane, by order or by version", receiptWakes),
		c("the subscriber's row is made once and keeps its time", receiptSubscriber),
		c("a list is filtered, in order, in pages", receiptLists),
		c("a list by id, position and time, and the newest first", receiptFinds),
		c("a finished one is kept as long as it is told, its body shorter", receiptKept),
		c("what came again is counted beside the revision", receiptNoted),
		c("receipts are counted by subscriber, status and blocked lane", receiptCounts),
	}
}

// shelf is the inbox.Store of the first handle.
func (k *K) shelf() inbox.Store { return k.Store.(inbox.Opener).Inbox() }

func (k *K) shelfAgain() inbox.Store { return k.Again.(inbox.Opener).Inbox() }

// fresh returns a receipt that no other case has.
func (k *K) fresh() inbox.Receipt {
	key := k.key()
	return inbox.Receipt{Subscriber: k.tenant, Key: key.ID, Status: inbox.StatusStored, Reason: "later", Holds: true,
		Message: inbox.Message{Tenant: k.tenant, Source: "orders", ID: "m-1", Type: "paid", Lane: "c-1", Version: "7", Position: "t/0/9",
			Headers: [][2]string{{"a", "1"}, {"a", "\xff"}}, Body: []byte("body"), Time: k.t0.Add(-time.Hour)}}
}

func (k *K) put(r inbox.Receipt, rev int64) inbox.Stored {
	k.Helper()
	st, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Rev: rev, Due: true, Now: k.t0})
	k.ok(err)
	return st
}

func (k *K) receipt(r inbox.Receipt) (inbox.Receipt, bool) {
	k.Helper()
	rs, err := k.shelfAgain().List(k.ctx, inbox.ListParams{Tenant: r.Message.Tenant, Subscriber: r.Subscriber, Key: r.Key, Now: k.t0})
	k.ok(err)
	if len(rs) == 0 {
		return inbox.Receipt{}, false
	}
	return rs[0], true
}

func receiptBytes(k *K) {
	for _, body := range [][]byte{nil, {}, []byte("body"), {0, 0xff, '\''}, bytes.Repeat([]byte{7}, 1<<20)} {
		r := k.fresh()
		r.Message.Body, r.Message.ID, r.Message.Source, r.Message.Lane = body, "id\x00\xff", "söurce\x00", "lane ' \xfe"
		r.Attempts, r.Failures = 3, []inbox.Failure{{At: k.t0, Error: "bo\"om \x00 ü"}}
		st := k.put(r, 0)
		got, ok := k.receipt(r)
		if !ok || st.Lost || st.Receipt.Seq == 0 || st.Receipt.Seq != got.Seq {
			k.Fatalf("put: %+v, found %v", st, ok)
		}
		m := got.Message
		if (m.Body == nil) != (body == nil) || !bytes.Equal(m.Body, body) || m.ID != r.Message.ID || m.Source != r.Message.Source || m.Lane != r.Message.Lane ||
			m.Version != "7" || m.Position != "t/0/9" || m.Type != "paid" || !slices.Equal(m.Headers, r.Message.Headers) || !m.Time.Equal(r.Message.Time) {
			k.Errorf("message came back as %+v", m)
		}
		if got.Rev != 1 || got.Status != r.Status || got.Reason != r.Reason || !got.Holds || got.Attempts != 3 || len(got.Failures) != 1 ||
			got.Failures[0].Error != r.Failures[0].Error || !got.Failures[0].At.Equal(k.t0) {
			k.Errorf("receipt came back as %+v", got)
		}
	}
}

func receiptRevisions(k *K) {
	r := k.fresh()
	k.put(r, 0)
	other := r
	other.Status, other.Message.Body = inbox.StatusDead, []byte("other")
	if st := k.put(other, 0); !st.Lost || st.Receipt.Status != inbox.StatusStored || string(st.Receipt.Message.Body) != "body" {
		k.Errorf("a second new one: %+v", st)
	}
	if st := k.put(other, 7); !st.Lost || st.Receipt.Rev != 1 {
		k.Errorf("a change of another revision: %+v", st)
	}
	other.Attempts = 4
	if st := k.put(other, 1); st.Lost || st.Receipt.Rev != 2 {
		k.Errorf("the change: %+v", st)
	}
	if got, _ := k.receipt(r); got.Status != inbox.StatusDead || string(got.Message.Body) != "body" || got.Attempts != 4 || !got.ReceivedAt.Equal(k.t0) {
		k.Errorf("changed to %+v", got)
	}
	if st := k.put(k.fresh(), 3); !st.Lost || st.Receipt.Status != "" {
		k.Errorf("a change of nothing: %+v", st)
	}
}

func receiptRaces(k *K) {
	r := k.fresh()
	k.put(r, 0)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		s := k.shelf()
		if i%2 == 1 {
			s = k.shelfAgain()
		}
		all.Go(func() {
			st, err := s.Put(k.ctx, inbox.PutParams{Receipt: r, Rev: 1})
			if err != nil {
				k.Error(err)
			}
			if !st.Lost {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if got, _ := k.receipt(r); won != 1 || got.Rev != 2 {
		k.Errorf("%d won, revision %d", won, got.Rev)
	}
}

func receiptKeys(k *K) {
	r := k.fresh()
	k.put(r, 0)
	for _, change := range []func(*inbox.Receipt){
		func(r *inbox.Receipt) { r.Key = r.Key[:31] + string([]byte{r.Key[31] ^ 1}) },
		func(r *inbox.Receipt) { r.Subscriber += "x" },
		func(r *inbox.Receipt) { r.Subscriber = k.tenant + "X" },
		func(r *inbox.Receipt) { r.Message.Tenant = k.tenant + " " },
		func(r *inbox.Receipt) { r.Message.Tenant = k.tenant + "é" },
	} {
		other := r
		change(&other)
		if st := k.put(other, 0); st.Lost {
			k.Errorf("taken for another: %q %q", other.Subscriber, other.Message.Tenant)
		}
	}
}

func receiptTakes(k *K) {
	var want []string
	for i := range 3 {
		r := k.fresh()
		r.Holds = false
		_, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Due: true, Delay: time.Duration(3-i) * time.Second, Now: k.t0})
		k.ok(err)
		want = slices.Insert(want, 0, r.Key)
	}
	never := k.fresh()
	_, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: never, Now: k.t0})
	k.ok(err)
	take := func(at time.Duration, n int) (keys []string) {
		rs, err := k.shelfAgain().Take(k.ctx, inbox.TakeParams{Subscriber: k.tenant, Limit: n, Lease: time.Minute, Now: k.t0.Add(at)})
		k.ok(err)
		for _, r := range rs {
			keys = append(keys, r.Key)
			if r.Attempts == 0 || string(r.Message.Body) != "body" || !r.NextAt.Equal(k.t0.Add(at).Add(time.Minute)) {
				k.Errorf("taken as %+v", r)
			}
		}
		return keys
	}
	if got := take(0, 10); len(got) != 0 {
		k.Errorf("%d taken before they are due", len(got))
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{2 * time.Second, want[0]}, {3 * time.Second, want[1]}, {4 * time.Second, want[2]}, {62500 * time.Millisecond, want[0]}} {
		if got := take(step.at, 1); !slices.Equal(got, []string{step.want}) {
			k.Errorf("at %v another one was taken, or none: %d", step.at, len(got))
		}
	}
	if got := take(62500*time.Millisecond, 10); len(got) != 0 {
		k.Errorf("%d taken before their leases end", len(got))
	}
	if got, _ := k.receipt(inbox.Receipt{Subscriber: k.tenant, Key: want[0], Message: inbox.Message{Tenant: k.tenant}}); got.Attempts != 2 || got.Rev != 3 {
		k.Errorf("after two takes: %d attempts, revision %d", got.Attempts, got.Rev)
	}
}

func receiptClock(k *K) {
	r := k.fresh()
	st, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Due: true, Delay: time.Hour})
	k.ok(err)
	e, err := k.shelf().Enter(k.ctx, inbox.EnterParams{Tenant: k.tenant, Subscriber: k.tenant, Key: r.Key})
	k.ok(err)
	got := *e.Receipt
	if got.ReceivedAt.IsZero() || got.NextAt.Sub(got.ReceivedAt) != time.Hour || e.Now.Before(got.ReceivedAt) || !st.Receipt.NextAt.Equal(got.NextAt) {
		k.Errorf("received %v, next %v, now %v", got.ReceivedAt, got.NextAt, e.Now)
	}
}

// enterIn enters a lane in the transaction of ctx.
func (k *K) enterIn(ctx context.Context, s inbox.Store, key, lane string) inbox.Entered {
	k.Helper()
	e, err := s.Enter(ctx, inbox.EnterParams{Tenant: k.tenant, Subscriber: k.tenant, Key: key, Lane: lane, Now: k.t0})
	k.ok(err)
	return e
}

func receiptLane(k *K) {
	r := k.fresh()
	k.put(r, 0)
	k.ok(k.inTx(func(in tx) error {
		if e := k.enterIn(in.ctx, k.shelf(), "", "c-1"); e.Busy || !e.Blocked || e.Version != "" {
			k.Errorf("first: %+v", e)
		}
		if e := k.enterIn(in.ctx, k.shelf(), r.Key, "c-1"); e.Busy || e.Blocked || e.Receipt == nil || e.Receipt.Rev != 1 {
			k.Errorf("again in the same transaction, of the one that holds it: %+v", e)
		}
		return nil
	}))
	if !k.caps.Lanes {
		return
	}
	k.ok(k.inTx(func(in tx) error {
		k.enterIn(in.ctx, k.shelf(), "", "c-1")
		return k.inTxOf(k.Again, func(other tx) error {
			if e := k.enterIn(other.ctx, k.shelfAgain(), "", "c-1"); !e.Busy {
				k.Errorf("of another transaction: %+v", e)
			}
			if e := k.enterIn(other.ctx, k.shelfAgain(), "", "c-2"); e.Busy || e.Blocked {
				k.Errorf("another lane: %+v", e)
			}
			return nil
		})
	}))
}

func receiptRollback(k *K) {
	kept, gone := k.fresh(), k.fresh()
	k.put(gone, 0)
	leave := func(in tx) error {
		k.enterIn(in.ctx, k.shelf(), "", "c-1")
		_, err := k.shelf().Put(in.ctx, inbox.PutParams{Receipt: kept, Now: k.t0})
		k.ok(err)
		k.ok(k.shelf().Leave(in.ctx, inbox.LeaveParams{Tenant: k.tenant, Subscriber: k.tenant, Key: gone.Key, Lane: "c-1", Version: "8", Now: k.t0}))
		if e := k.enterIn(in.ctx, k.shelf(), gone.Key, "c-1"); e.Version != "8" || e.Receipt != nil {
			k.Errorf("inside: %+v", e)
		}
		return nil
	}
	if err := k.inTx(func(in tx) error { return errors.Join(leave(in), errUndo) }); !errors.Is(err, errUndo) {
		k.Fatal(err)
	}
	_, there := k.receipt(kept)
	_, still := k.receipt(gone)
	if there || !still {
		k.Errorf("after a rollback: put is there %v, the other is there %v", there, still)
	}
	k.ok(k.inTx(leave))
	_, there = k.receipt(kept)
	_, still = k.receipt(gone)
	if !there || still {
		k.Errorf("after the commit: put is there %v, the other is there %v", there, still)
	}
}

func receiptWakes(k *K) {
	due := func(r inbox.Receipt) bool { got, _ := k.receipt(r); return !got.NextAt.IsZero() }
	sleeping := func(version string, status inbox.Status) inbox.Receipt {
		r := k.fresh()
		r.Message.Version, r.Status = version, status
		_, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Now: k.t0})
		k.ok(err)
		return r
	}
	leave := func(p inbox.LeaveParams) {
		p.Tenant, p.Subscriber, p.Lane, p.Now = k.tenant, k.tenant, "c-1", k.t0
		k.ok(k.shelf().Leave(k.ctx, p))
	}
	a, b, c := sleeping("12", inbox.StatusStored), sleeping("10", inbox.StatusParked), sleeping("11", inbox.StatusStored)
	leave(inbox.LeaveParams{Version: "9", Wanted: "10"})
	if due(a) || !due(b) || due(c) {
		k.Errorf("by version: %v %v %v, want the second", due(a), due(b), due(c))
	}
	leave(inbox.LeaveParams{})
	if !due(a) || due(c) {
		k.Errorf("by order: %v %v, want the first", due(a), due(c))
	}
	leave(inbox.LeaveParams{Key: a.Key})
	leave(inbox.LeaveParams{Key: b.Key, Rev: 9})
	if _, ok := k.receipt(b); !ok || due(c) {
		k.Error("another revision left, or the one behind it was woken")
	}
	leave(inbox.LeaveParams{Key: b.Key, Rev: 1})
	if !due(c) {
		k.Error("the last is not due")
	}
	dead, behind := sleeping("1", inbox.StatusDead), sleeping("2", inbox.StatusStored)
	leave(inbox.LeaveParams{Key: c.Key})
	if due(dead) || due(behind) {
		k.Error("a dead one, or one behind it, was woken")
	}
}

func receiptSubscriber(k *K) {
	look := func() inbox.Entered {
		e, err := k.shelf().Enter(k.ctx, inbox.EnterParams{Subscriber: k.tenant})
		k.ok(err)
		return e
	}
	if e := look(); !e.CreatedAt.IsZero() || e.Now.IsZero() {
		k.Errorf("before: %+v", e)
	}
	for _, at := range []time.Time{k.t0, k.t0.Add(time.Hour)} {
		k.ok(k.shelf().Leave(k.ctx, inbox.LeaveParams{Subscriber: k.tenant, Now: at}))
		if e := look(); !e.CreatedAt.Equal(k.t0) {
			k.Errorf("since %v, want %v", e.CreatedAt, k.t0)
		}
	}
}

func receiptLists(k *K) {
	for i := range 5 {
		r := k.fresh()
		if i == 3 {
			r.Status, r.Message.Lane = inbox.StatusDead, "c-2"
		}
		k.put(r, 0)
	}
	list := func(p inbox.ListParams) []inbox.Receipt {
		p.Subscriber = k.tenant
		rs, err := k.shelf().List(k.ctx, p)
		k.ok(err)
		if !slices.IsSortedFunc(rs, func(a, b inbox.Receipt) int { return int(a.Seq - b.Seq) }) {
			k.Error("not in order")
		}
		return rs
	}
	all := list(inbox.ListParams{})
	if len(all) != 5 || string(all[0].Message.Body) != "body" {
		k.Fatalf("%d listed", len(all))
	}
	if rs := list(inbox.ListParams{Limit: 2, After: all[1].Seq, WithoutBody: true}); len(rs) != 2 || rs[0].Seq != all[2].Seq || rs[0].Message.Body != nil {
		k.Errorf("a page: %v", show(rs))
	}
	if rs := list(inbox.ListParams{Statuses: []inbox.Status{inbox.StatusDead, inbox.StatusParked}}); len(rs) != 1 {
		k.Errorf("by status: %v", show(rs))
	}
	if rs := list(inbox.ListParams{Lane: "c-2"}); len(rs) != 1 {
		k.Errorf("by lane: %v", show(rs))
	}
	if rs := list(inbox.ListParams{Tenant: "nobody"}); len(rs) != 0 {
		k.Errorf("by tenant: %v", show(rs))
	}
}

func receiptCounts(k *K) {
	counter, ok := k.shelf().(inbox.Counter)
	if !ok {
		k.Fatal("the store does not count its receipts")
	}
	count := func(p inbox.CountParams) []inbox.Counted {
		p.Now = k.t0.Add(time.Hour)
		all, err := counter.Count(k.ctx, p)
		k.ok(err)
		return all
	}
	if got := count(inbox.CountParams{Subscriber: k.tenant}); len(got) != 0 {
		k.Errorf("before: %+v", got)
	}
	k.ok(k.shelf().Leave(k.ctx, inbox.LeaveParams{Subscriber: k.tenant, Now: k.t0}))
	if got := count(inbox.CountParams{Subscriber: k.tenant}); len(got) != 1 || got[0].Waiting() != 0 || !got[0].Oldest.IsZero() {
		k.Errorf("a subscriber without receipts: %+v", got)
	}
	for i, s := range []inbox.Status{inbox.StatusStarted, inbox.StatusDead, inbox.StatusParked, inbox.StatusDead, inbox.StatusStored} {
		r := k.fresh()
		r.Status, r.Holds = s, i != 3
		if i == 2 {
			r.Message.Lane = "c-2"
		}
		if i == 4 {
			r.Message.Lane = "c-3"
		}
		_, err := k.shelf().Put(k.ctx, inbox.PutParams{Receipt: r, Now: k.t0.Add(time.Duration(i) * time.Second)})
		k.ok(err)
	}
	got := count(inbox.CountParams{Tenant: k.tenant, Subscriber: k.tenant})
	if len(got) != 1 {
		k.Fatalf("%+v", got)
	}
	c := got[0]
	if c.Subscriber != k.tenant || c.Statuses[inbox.StatusDead] != 2 || c.Statuses[inbox.StatusParked] != 1 || c.Statuses[inbox.StatusStored] != 1 ||
		c.Statuses[inbox.StatusStarted] != 1 || c.Waiting() != 4 || c.BlockedLanes != 2 || !c.Oldest.Equal(k.t0.Add(time.Second)) || !c.Now.Equal(k.t0.Add(time.Hour)) {
		k.Errorf("%+v", c)
	}
	if got := count(inbox.CountParams{Tenant: k.tenant + "-other"}); len(got) != 0 {
		k.Errorf("of another tenant: %+v", got)
	}
	if all := count(inbox.CountParams{}); !slices.ContainsFunc(all, func(c inbox.Counted) bool { return c.Subscriber == k.tenant }) {
		k.Error("among all it is not there")
	}
}
