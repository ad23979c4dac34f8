package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo/outbox"
)

// logCases is the contract of outbox.Store as far as the log, its cursors and its leases go.
func logCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "log: " + name, needs: needTx, run: run}
	}
	own := func(name string, run func(k *K)) testCase {
		return testCase{name: "log: " + name, needs: needTx | needOwn, run: run}
	}
	return []testCase{
		c("events come back as they were appended: any bytes, nil and empty apart", logBytes),
		c("an append without a transaction writes nothing", logNoTx),
		c("what is rolled back is never read", logRollback),
		own("transactions that commit in another order than they drew: nothing is passed over", logLate),
		own("a transaction that stays open delays its own events only", logOpen),
		own("a key is held until the transaction ends, other keys are not", logKeyLock),
		c("pages are bounded by rows and bytes, and one row comes in any case", logPages),
		c("a cursor inside a page goes on behind its row", logCursor),
		c("many writers at once: each event is read once, each key in order", logMany),
		c("a partition has one owner, and a new fence each time", logLeases),
		c("of many owners at once one gets a partition", logLeaseRace),
		c("owners that lapse are counted until something gets on", logStarts),
		c("the epoch changes with who comes, leaves, pauses and changes", logEpoch),
		c("a new group says where it begins", logFrom),
	}
}

func logBytes(k *K) {
	r := k.reel()
	r.own("one")
	for i, payload := range [][]byte{nil, {}, []byte("body"), {0, 0xff, '\'', '"', '\\'}, bytes.Repeat([]byte{7}, 900<<10)} {
		row := r.row(fmt.Sprint("e", i), "kéy ' \\ %")
		row.Payload, row.ContentType, row.Type, row.Source = payload, "application/x; a=\"b\"", "Päid'", "/kit?a=b'c"
		row.Headers = [][2]string{{"x-a", "1"}, {"x-a", "ü '\""}, {"X-B", ""}}
		row.Trace = outbox.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "a=1,b=2", Correlation: "c-1", KeyRef: "k_abc"}
		row.Sealed = "e1"
		if i == 0 {
			row.Headers, row.Trace, row.Sealed, row.ContentType, row.Key = nil, outbox.Trace{}, "", "", ""
		}
		r.commit(row)
		got := r.read()
		if len(got) != 1 {
			k.Fatalf("%d rows, want one", len(got))
		}
		g := got[0]
		if (g.Payload == nil) != (payload == nil) || !bytes.Equal(g.Payload, payload) {
			k.Errorf("payload of %d bytes came back as %d, nil %v", len(payload), len(g.Payload), g.Payload == nil)
		}
		if g.ID != row.ID || g.Source != row.Source || g.Topic != row.Topic || g.Key != row.Key || g.Type != row.Type || g.Tenant != row.Tenant ||
			g.ContentType != row.ContentType || !slices.Equal(g.Headers, row.Headers) || g.Trace != row.Trace || g.Sealed != row.Sealed || !g.Time.Equal(r.now) {
			k.Errorf("came back as %+v", g)
		}
	}
}

func logNoTx(k *K) {
	r := k.reel()
	r.own("one")
	if err := r.write(k.ctx, r.row("a", "k")); !errors.Is(err, outbox.ErrNoTx) {
		k.Errorf("an append outside of a transaction: %v", err)
	}
	var over context.Context
	k.ok(k.inTx(func(in tx) error { over = in.ctx; return nil }))
	if err := r.write(over, r.row("b", "k")); err == nil {
		k.Error("an append in a transaction that is over")
	}
	k.wants("read", names(r.read()))
}

func logRollback(k *K) {
	r := k.reel()
	r.own("one")
	for i := range 5 {
		err := k.inTx(func(in tx) error {
			k.ok(r.write(in.ctx, r.row(fmt.Sprint("undone", i), "k"), r.row(fmt.Sprint("undone", i, "b"), "")))
			return errUndo
		})
		if !errors.Is(err, errUndo) {
			k.Fatal(err)
		}
		r.publish("k", fmt.Sprint(i))
	}
	k.wants("read", names(r.read()), "0", "1", "2", "3", "4")
}

// beside opens a transaction of the caller's own beside what else happens.
func (k *K) beside() (in context.Context, commit func()) {
	k.Helper()
	if !k.caps.Lanes {
		k.Skip("skipped by caps: one writer at a time (Lanes)")
	}
	in, end, undo, err := k.Own(k.ctx)
	k.ok(err)
	over := false
	k.Cleanup(func() {
		if !over {
			_ = undo()
		}
	})
	return in, func() { k.Helper(); over = true; k.ok(end()) }
}

func logLate(k *K) {
	r := k.reel()
	r.own("one")
	r.publish("k0", "first")
	ins, commits := make([]context.Context, 4), make([]func(), 4)
	for i := range ins {
		ins[i], commits[i] = k.beside()
		k.ok(r.write(ins[i], r.row(fmt.Sprint("late", i), fmt.Sprint("k", i+1))))
	}
	r.publish("k9", "second")
	got := names(r.read())
	slices.Sort(got)
	k.wants("while four are open", got, "first", "second")
	for _, i := range []int{2, 0, 3, 1} {
		commits[i]()
		k.wants("after a commit", names(r.read()), fmt.Sprint("late", i))
		r.publish("k9", fmt.Sprint("between", i))
		k.wants("after another", names(r.read()), fmt.Sprint("between", i))
	}
	k.wants("at the end", names(r.read()))
}

func logOpen(k *K) {
	r := k.reel()
	r.own("one")
	in, commit := k.beside()
	k.ok(r.write(in, r.row("own", "k")))
	for i := range 20 {
		r.publish(fmt.Sprint("k", i), fmt.Sprint(i))
		k.wants("beside an open transaction", names(r.read()), fmt.Sprint(i))
	}
	commit()
	k.wants("when it commits", names(r.read()), "own")
}

func logKeyLock(k *K) {
	r := k.reel()
	r.own("one")
	in, commit := k.beside()
	k.ok(r.write(in, r.row("a1", "a")))
	r.publish("b", "b1") // waits for nobody
	done := make(chan error, 1)
	go func() {
		done <- k.inTx(func(in tx) error { return r.write(in.ctx, r.row("a2", "a"), r.row("b2", "b")) })
	}()
	k.ok(r.write(in, r.row("a3", "a"))) // its own
	select {
	case err := <-done:
		k.Fatalf("a second writer of the key did not wait: %v", err)
	case <-time.After(30 * time.Millisecond): // not waited for: the order below shows that it held
	}
	commit()
	k.ok(<-done)
	byKey := map[string][]string{}
	for _, row := range r.read() {
		byKey[row.Key] = append(byKey[row.Key], string(row.Payload))
	}
	k.wants("key a", byKey["a"], "a1", "a3", "a2")
	k.wants("key b", byKey["b"], "b1", "b2")
}

func logPages(k *K) {
	r := k.reel()
	r.own("one")
	var rows []outbox.Row
	for i := range 25 {
		rows = append(rows, r.row(fmt.Sprint(i), "k"))
	}
	r.commit(rows...)
	r.page = 10
	var all []string
	for range 50 {
		p := r.once()
		if len(p.Rows) > 10 {
			k.Fatalf("a page of %d rows", len(p.Rows))
		}
		if all = append(all, names(p.Rows)...); !p.More && len(p.Rows) == 0 {
			break
		}
	}
	if len(all) != 25 || !slices.Equal(all, names(rows)) {
		k.Errorf("pages: %q", all)
	}
	big := r.row("big", "k")
	big.Payload = bytes.Repeat([]byte{1}, 1<<20)
	r.commit(big, big, big)
	p := outbox.ReadParams{Group: r.group, MaxRows: 100, MaxBytes: 1000, PublishAfter: outbox.AfterCommit, Now: r.now}
	n := 0
	for range 20 {
		p.From = nil
		for _, at := range r.places {
			p.From = append(p.From, at)
		}
		page, err := r.s.Read(k.ctx, p)
		k.ok(err)
		if len(page.Rows) > 1 && len(page.Rows[0].Payload) > 1000 {
			k.Fatalf("%d rows of a MiB in a page of 1,000 bytes", len(page.Rows))
		}
		for _, row := range page.Rows {
			if n++; len(row.Payload) != 1<<20 {
				n--
			}
		}
		for _, next := range page.Next {
			at := r.places[next.Partition]
			at.Cursor = next.Cursor
			r.places[next.Partition] = at
		}
	}
	if n != 3 {
		k.Errorf("%d big events, want 3", n)
	}
}

func logCursor(k *K) {
	r := k.reel()
	r.own("one")
	for i := range 6 {
		r.publish("k", fmt.Sprint(i))
	}
	rows := r.read()
	k.wants("all", names(rows), "0", "1", "2", "3", "4", "5")
	m, err := r.s.Move(k.ctx, outbox.MoveParams{Group: r.group, Owner: "one", To: []outbox.Place{r.place(rows[2], true)}, Now: r.now})
	if err != nil || len(m.Lost) > 0 {
		k.Fatalf("move: %+v, %v", m, err)
	}
	r.publish("k", "6")
	r.own("one") // as the store has it
	k.wants("behind the third", names(r.read()), "3", "4", "5", "6")
	r.moved("one")
	r.own("one")
	k.wants("behind all", names(r.read()))
	r.publish("k", "7")
	k.wants("what came later", names(r.read()), "7")
}

func logMany(k *K) {
	r := k.reel()
	r.own("one")
	r.page = 7
	const writers, each = 8, 25
	var all sync.WaitGroup
	errs := make(chan error, writers*each)
	for w := range writers {
		all.Go(func() {
			for i := range each {
				errs <- k.inTx(func(in tx) error {
					err := r.write(in.ctx, r.row(fmt.Sprint(w, "/", i), fmt.Sprint("k", w%3)), r.row(fmt.Sprint(w, "/", i, "n"), ""))
					if err == nil && i%5 == 4 {
						return errUndo
					}
					return err
				})
			}
		})
	}
	go func() { all.Wait(); close(errs) }()
	seen, last := map[string]int{}, map[string]int64{}
	look := func() {
		for _, row := range r.read() {
			seen[string(row.Payload)]++
			if row.Key != "" {
				if row.Seq <= last[row.Key] {
					k.Errorf("key %s: seq %d after %d", row.Key, row.Seq, last[row.Key])
				}
				last[row.Key] = row.Seq
			}
		}
	}
	for err := range errs {
		if err != nil && !errors.Is(err, errUndo) {
			k.Fatal(err)
		}
		look()
	}
	look()
	if want := writers * each * 4 / 5 * 2; len(seen) != want {
		k.Errorf("%d events, want %d", len(seen), want)
	}
	for name, n := range seen {
		if n != 1 {
			k.Errorf("%s was read %d times", name, n)
		}
	}
}

func logLeases(k *K) {
	r := k.reel()
	a := r.own("one")
	if a.Relays != 1 || a.Rank != 0 || a.NextFree != 0 {
		k.Errorf("alone: %+v", a)
	}
	r.now = r.now.Add(time.Second)
	b := r.hold("two", outbox.Partitions)
	if len(b.Leases) != 0 || b.Relays != 2 || b.Rank != 1 || b.NextFree != lease-time.Second || b.Total != a.Total {
		k.Errorf("beside a living owner: %d leases, %+v", len(b.Leases), b)
	}
	p := r.holdParams("one", outbox.Partitions)
	p.Want = a.Total - 1
	p.Release = []outbox.Place{{Partition: a.Leases[0].Partition, Fence: a.Leases[0].Fence}}
	h, err := r.s.Hold(k.ctx, p)
	if err != nil || len(h.Leases) != a.Total-1 {
		k.Fatalf("after giving one up: %d, %v", len(h.Leases), err)
	}
	if b = r.hold("two", 1); len(b.Leases) != 1 || b.Leases[0].Partition != a.Leases[0].Partition || b.Leases[0].Fence <= a.Leases[0].Fence || b.Leases[0].Starts != 0 {
		k.Fatalf("the free one: %+v", b.Leases)
	}
	// What is one's no more is not written, the rest is.
	gone := outbox.Place{Partition: a.Leases[0].Partition, Fence: a.Leases[0].Fence}
	m, err := r.s.Move(k.ctx, outbox.MoveParams{Group: r.group, Owner: "one", To: []outbox.Place{gone}, Now: r.now})
	if err != nil || len(m.Lost) != 1 || m.Lost[0].Owner != "two" || m.Lost[0].Fence != b.Leases[0].Fence || m.Lost[0].Partition != gone.Partition {
		k.Errorf("a stale fence: %+v, %v", m, err)
	}
	r.now = r.now.Add(lease + time.Second) // both lapse
	if h = r.hold("two", a.Total); len(h.Leases) != a.Total || h.Relays != 1 {
		k.Errorf("after the lease: %d leases of %d relays", len(h.Leases), h.Relays)
	}
	if h = r.hold("one", a.Total); len(h.Leases) != 0 {
		k.Errorf("the old owner still has %d", len(h.Leases))
	}
	p = r.holdParams("two", 0)
	p.Leave = true
	h, err = r.s.Hold(k.ctx, p)
	if err != nil || len(h.Leases) != 0 || h.Relays != 1 {
		k.Errorf("after leaving: %+v, %v", h, err)
	}
	if h = r.hold("one", a.Total); len(h.Leases) != a.Total || h.Rank != 0 {
		k.Errorf("what was left is free at once: %d", len(h.Leases))
	}
}

func logLeaseRace(k *K) {
	r := k.reel()
	var all sync.WaitGroup
	held := make([]outbox.Held, 8)
	for i := range held {
		all.Go(func() {
			s := r.s
			if i%2 == 1 {
				s = r.again
			}
			var err error
			if held[i], err = s.Hold(k.ctx, r.holdParams(fmt.Sprint("racer-", i), outbox.Partitions)); err != nil {
				k.Errorf("hold: %v", err)
			}
		})
	}
	all.Wait()
	owner, n := map[int]int{}, 0
	for i := range held {
		for _, l := range held[i].Leases {
			if other, twice := owner[l.Partition]; twice {
				k.Errorf("partition %d belongs to %d and %d", l.Partition, other, i)
			}
			owner[l.Partition] = i
			n++
		}
	}
	if n != held[0].Total {
		k.Errorf("%d partitions were given out, want %d", n, held[0].Total)
	}
}

func logStarts(k *K) {
	r := k.reel()
	starts := func(owner string, want int) outbox.Held {
		k.Helper()
		h := r.own(owner)
		for _, l := range h.Leases {
			if l.Starts != want {
				k.Fatalf("%s: partition %d has %d starts, want %d", owner, l.Partition, l.Starts, want)
			}
		}
		r.now = r.now.Add(lease + time.Second)
		return h
	}
	starts("a", 0)
	starts("b", 1)
	starts("c", 2)
	r.own("d")
	r.publish("k", "e")
	rows := r.read()
	if len(rows) != 1 {
		k.Fatal("no event")
	}
	_, err := r.s.Move(k.ctx, outbox.MoveParams{Group: r.group, Owner: "d", To: []outbox.Place{r.place(rows[0], true)}, Now: r.now})
	k.ok(err)
	r.now = r.now.Add(lease + time.Second)
	for _, l := range r.own("e").Leases {
		want := 4
		if l.Partition == rows[0].Partition {
			want = 1
		}
		if l.Starts != want {
			k.Errorf("partition %d has %d starts, want %d", l.Partition, l.Starts, want)
		}
	}
}

func logEpoch(k *K) {
	r := k.reel()
	last := r.own("one").Epoch
	now := func(what string, changes bool) {
		k.Helper()
		clear(r.places)
		e := r.once().Epoch
		if (e != last) != changes {
			k.Errorf("%s: epoch %d after %d", what, e, last)
		}
		last = e
	}
	now("nothing", false)
	r.hold("one", outbox.Partitions)
	now("a sign of life", false)
	r.hold("two", 0)
	now("another relay", true)
	p := r.holdParams("two", 0)
	p.Leave = true
	_, err := r.s.Hold(k.ctx, p)
	k.ok(err)
	now("it leaves", true)
	for _, action := range []string{outbox.GroupPause, outbox.GroupResume} {
		_, err := r.desk().SetGroup(k.ctx, outbox.GroupParams{Group: r.group, Action: action, Audit: who(), Now: r.now})
		k.ok(err)
		now(action, true)
	}
	r.publish("k", "e")
	now("an event", false)
}

func who() outbox.Audit {
	return outbox.Audit{Actor: "kit", Role: "admin", Channel: "cli", Reason: "the kit wants to"}
}

func logFrom(k *K) {
	r := k.reel()
	r.publish("k", "old")
	p := r.holdParams("one", 0)
	p.Group, p.From = r.group+"-2", ""
	if _, err := r.s.Hold(k.ctx, p); !errors.Is(err, outbox.ErrFrom) {
		k.Errorf("a second group that does not say where it begins: %v", err)
	}
	for from, want := range map[string][]string{outbox.FromBeginning: {"old", "new"}, outbox.FromNow: {"new"}} {
		g := *r
		g.group, g.places = r.group+"-"+from, map[int]outbox.Place{}
		p := g.holdParams("one", outbox.Partitions)
		p.From, p.Topics = from, []string{r.group + ".*"}
		h, err := g.s.Hold(k.ctx, p)
		k.ok(err)
		for _, l := range h.Leases {
			g.places[l.Partition] = outbox.Place{Partition: l.Partition, Fence: l.Fence, Cursor: l.Cursor}
		}
		var got []string
		if from == outbox.FromNow {
			g.publish("k", "new")
		} else {
			want = want[:1]
		}
		for range 10_000 {
			page, err := g.s.Read(k.ctx, outbox.ReadParams{Group: g.group, Topics: p.Topics, From: slices.Collect(mapValues(g.places)), MaxRows: 1000, MaxBytes: 8 << 20,
				PublishAfter: outbox.AfterCommit, Now: r.now})
			k.ok(err)
			for _, row := range page.Rows {
				if row.Topic == r.topic {
					got = append(got, string(row.Payload))
				}
			}
			for _, next := range page.Next {
				at := g.places[next.Partition]
				at.Cursor = next.Cursor
				g.places[next.Partition] = at
			}
			if !page.More && len(page.Rows) == 0 {
				break
			}
		}
		if from == outbox.FromNow && !slices.Equal(got, want) || from == outbox.FromBeginning && !slices.Contains(got, "old") {
			k.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
}

func mapValues(m map[int]outbox.Place) func(yield func(outbox.Place) bool) {
	return func(yield func(outbox.Place) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}
