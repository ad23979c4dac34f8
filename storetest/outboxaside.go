package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

// asideCases is the contract of outbox.Store as far as events go that are set aside.
func asideCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "aside: " + name, needs: needTx, run: run}
	}
	return []testCase{
		c("what is set aside comes back when it is due, with what is behind it", asideDue),
		c("a new one is left alone where one is already, a change where none is", asideTwice),
		c("cursor and set-aside are one commit, and neither of a lost partition", asideFenced),
		c("a row behind a held key is blocked, and so is one that is set aside itself", asideBlocked),
		c("a start is counted before it happens, and due again after the lease or under another fence", asideStarts),
		c("dead ones hold their key or not, and never come by themselves", asideDead),
		c("limits leave the rest for the next call", asideLimits),
	}
}

// deskCases is the contract of outbox.Desk and outbox.Keeper.
func deskCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "desk: " + name, needs: needTx, run: run}
	}
	alone := c("rows go when they are old and every group has them, and are copied where they are set aside", deskKeep)
	alone.alone = true
	env := c("the first environment that is said stays; another one is refused", deskEnvironment)
	env.alone = true
	return []testCase{
		c("every event has its state, filtered, in order, in pages", deskList),
		c("retry, skip and discard change what the operator saw, and are audited", deskChange),
		c("a paused topic is not taken, and goes on when it is resumed", deskPause),
		c("groups are made, external or not, and removed", deskGroups),
		alone, env,
	}
}

// setting is what becomes of a row of the log.
func setting(row outbox.Row, state outbox.State, wait time.Duration, text string) outbox.Setting {
	return outbox.Setting{Row: row, New: true, State: state, Holds: row.Key != "", Wait: wait, Error: text}
}

// three publishes a, b and c of one key, and d without, and reads them.
func (r *reel) three() (a, b, c, d outbox.Row) {
	r.Helper()
	r.own("one")
	r.publish("k", "a", "b", "c")
	r.publish("", "d")
	byName := map[string]outbox.Row{}
	for _, row := range r.read() {
		byName[string(row.Payload)] = row
	}
	if len(byName) != 4 {
		r.Fatalf("read %v", byName)
	}
	return byName["a"], byName["b"], byName["c"], byName["d"]
}

func asideDue(k *K) {
	r := k.reel()
	a, b, c, d := r.three()
	first := setting(a, outbox.StateWaiting, 10*time.Second, "boom one")
	first.Attempts, first.Class = 1, outbox.ClassNoRoute
	r.set("one", first, setting(b, outbox.StateQueued, 0, ""), setting(c, outbox.StateQueued, 0, ""), setting(d, outbox.StateWaiting, 20*time.Second, "boom d"))
	if t := r.take("one", 10, 10); len(t.Asides) != 0 || t.NextIn != 10*time.Second || t.More {
		k.Fatalf("before it is due: %q, next in %v", asideNames(t.Asides), t.NextIn)
	}
	r.now = r.now.Add(10 * time.Second)
	t := r.take("one", 10, 10)
	k.wants("due", asideNames(t.Asides), "a", "b", "c")
	if t.NextIn != 10*time.Second {
		k.Errorf("next in %v", t.NextIn)
	}
	x := t.Asides[0]
	if x.State != outbox.StateWaiting || x.Class != outbox.ClassNoRoute || !x.Holds || x.Attempts != 1 || x.Starts != 1 || x.FirstError != "boom one" || x.LastError != "boom one" ||
		!x.FirstAt.Equal(k.t0) || x.ID != a.ID || !slices.Equal(x.Headers, a.Headers) || x.Seq != a.Seq || x.Partition != a.Partition || !x.Time.Equal(a.Time) {
		k.Errorf("came back as %+v", x)
	}
	if y := t.Asides[1]; y.State != outbox.StateQueued || y.Starts != 0 {
		k.Errorf("behind it: %+v", y)
	}
	again := outbox.Setting{Row: a, State: outbox.StateWaiting, Holds: true, Attempts: 2, Wait: time.Second, Error: "boom two"}
	r.set("one", again)
	r.now = r.now.Add(time.Second)
	t = r.take("one", 10, 0)
	if len(t.Asides) != 1 || t.Asides[0].FirstError != "boom one" || t.Asides[0].LastError != "boom two" || t.Asides[0].Attempts != 2 || t.Asides[0].Starts != 1 {
		k.Errorf("after a second failure: %+v", t.Asides)
	}
	r.set("one", outbox.Setting{Row: a, State: outbox.StatePublished})
	k.wants("the next head", asideNames(r.take("one", 10, 10).Asides), "b", "c")
	r.set("one", outbox.Setting{Row: b, State: outbox.StatePublished}, outbox.Setting{Row: c, State: outbox.StatePublished})
	r.now = r.now.Add(time.Minute)
	r.own("one")
	k.wants("without a key", asideNames(r.take("one", 10, 10).Asides), "d")
}

func asideTwice(k *K) {
	r := k.reel()
	a, b, _, _ := r.three()
	first := setting(a, outbox.StateDead, 0, "boom")
	first.Attempts = 10
	r.set("one", first)
	r.set("one", setting(a, outbox.StateQueued, 0, ""), outbox.Setting{Row: b, State: outbox.StateWaiting, Attempts: 3})
	all := r.list(outbox.StateDead, outbox.StateWaiting, outbox.StateQueued)
	if len(all) != 1 || all[0].State != outbox.StateDead || all[0].Attempts != 10 || all[0].LastError != "boom" {
		k.Errorf("set aside: %+v", all)
	}
}

func asideFenced(k *K) {
	r := k.reel()
	r.own("one")
	var rows []outbox.Row
	for i := range 40 {
		r.publish("", fmt.Sprint(i))
	}
	rows = r.read()
	old := map[int]outbox.Place{}
	maps.Copy(old, r.places)
	r.now = r.now.Add(lease + time.Second)
	h := r.own("two")
	if h.Total == 1 {
		var to []outbox.Place
		for _, at := range old {
			to = append(to, at)
		}
		m, err := r.s.Move(k.ctx, outbox.MoveParams{Group: r.group, Owner: "one", To: to, Asides: []outbox.Setting{setting(rows[0], outbox.StateDead, 0, "boom")}, Now: r.now})
		if err != nil || len(m.Lost) != 1 {
			k.Errorf("the old owner: %+v, %v", m, err)
		}
		k.wants("set aside", asideNames(r.list(outbox.StateDead)))
		return
	}
	var p outbox.MoveParams // one partition is two's, with the new fence, the others are named with stale ones
	p.Group, p.Owner, p.Now = r.group, "two", r.now
	mine := rows[0]
	for i, at := range old {
		if i == mine.Partition {
			at.Fence = r.places[i].Fence
		}
		p.To = append(p.To, at)
	}
	var dead []string
	for _, row := range rows {
		p.Asides = append(p.Asides, setting(row, outbox.StateDead, 0, "boom"))
		if row.Partition == mine.Partition {
			dead = append(dead, string(row.Payload))
		}
	}
	m, err := r.s.Move(k.ctx, p)
	if err != nil || len(m.Lost) != h.Total-1 {
		k.Fatalf("%d lost of %d, %v", len(m.Lost), h.Total, err)
	}
	k.wants("set aside", asideNames(r.list(outbox.StateDead)), dead...)
	h = r.own("two")
	for _, l := range h.Leases {
		if (l.Cursor == old[l.Partition].Cursor) != (l.Partition == mine.Partition) && old[l.Partition].Cursor != (outbox.Cursor{}) {
			k.Errorf("partition %d is at %+v", l.Partition, l.Cursor)
		}
	}
}

func asideBlocked(k *K) {
	r := k.reel()
	a, _, _, d := r.three()
	r.set("one", setting(a, outbox.StateWaiting, time.Hour, "boom"), setting(d, outbox.StateWaiting, time.Hour, "boom"))
	r.publish("k", "e")
	r.publish("k2", "f")
	r.own("one") // from where the store is: all come again
	got := map[string]bool{}
	for _, row := range r.read() {
		got[string(row.Payload)] = row.Blocked
	}
	for name, want := range map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true, "f": false} {
		if b, ok := got[name]; !ok || b != want {
			k.Errorf("%s: read %v, blocked %v, want %v", name, ok, b, want)
		}
	}
	r.set("one", outbox.Setting{Row: a, State: outbox.StatePublished})
	r.publish("k", "g")
	for _, row := range r.read() {
		if row.Blocked {
			k.Errorf("%s is blocked by nothing", row.Payload)
		}
	}
}

func asideStarts(k *K) {
	r := k.reel()
	a, _, _, _ := r.three()
	r.set("one", setting(a, outbox.StateWaiting, 0, "boom"))
	starts := func(owner string, want ...int) {
		k.Helper()
		t := r.take(owner, 10, 0)
		var got []int
		for _, x := range t.Asides {
			got = append(got, x.Starts)
		}
		if !slices.Equal(got, want) {
			k.Fatalf("starts %v, want %v", got, want)
		}
	}
	starts("one", 1)
	starts("one")
	r.now = r.now.Add(lease + time.Second)
	r.own("one")
	starts("one", 2) // its time is over, or it has another fence
	starts("one")
	p := r.holdParams("one", 0)
	p.Leave = true
	_, err := r.s.Hold(k.ctx, p)
	k.ok(err)
	r.own("two")
	starts("two", 3)
	r.set("two", outbox.Setting{Row: a, State: outbox.StateWaiting, Holds: true, Attempts: 1})
	starts("two", 1)
	if t := r.take("one", 10, 0); len(t.Asides) != 0 || len(t.Lost) == 0 {
		k.Errorf("an old owner takes %q, lost %d", asideNames(t.Asides), len(t.Lost))
	}
}

func asideDead(k *K) {
	r := k.reel()
	a, b, c, d := r.three()
	dead := setting(a, outbox.StateDead, 0, "boom")
	r.set("one", dead, setting(b, outbox.StateQueued, 0, ""), setting(c, outbox.StateQueued, 0, ""), setting(d, outbox.StateDead, 0, "boom"))
	r.moved("one")
	r.now = r.now.Add(100 * time.Hour)
	r.own("one")
	if t := r.take("one", 10, 10); len(t.Asides) != 0 || t.NextIn != 0 {
		k.Errorf("dead: %q, next in %v", asideNames(t.Asides), t.NextIn)
	}
	r.set("one", outbox.Setting{Row: a, State: outbox.StateDead, Holds: false, Attempts: 1})
	k.wants("its key goes on", asideNames(r.take("one", 10, 10).Asides), "b", "c")
	if s := r.status(); s.Dead != 2 || s.Pending != 2 || s.BlockedKeys != 1 {
		k.Errorf("status %+v", s)
	}
}

func asideLimits(k *K) {
	r := k.reel()
	r.own("one")
	var all []outbox.Setting
	for i := range 10 {
		r.publish(fmt.Sprint("k", i), fmt.Sprint(i))
	}
	for i, row := range r.read() {
		all = append(all, setting(row, outbox.StateWaiting, time.Duration(i)*time.Second, "boom"))
	}
	r.set("one", all...)
	r.now = r.now.Add(time.Minute / 2)
	r.own("one")
	seen := map[string]bool{}
	for range 4 {
		t := r.take("one", 3, 5)
		if len(t.Asides) > 3 || t.More != (len(seen)+len(t.Asides) < 10) {
			k.Errorf("took %q, more %v", asideNames(t.Asides), t.More)
		}
		for _, x := range t.Asides {
			seen[string(x.Payload)] = true
		}
	}
	if len(seen) != 10 {
		k.Errorf("took %d of 10", len(seen))
	}
}

func deskList(k *K) {
	r := k.reel()
	a, b, c, d := r.three()
	r.set("one", setting(a, outbox.StateDead, 0, "boom"), setting(b, outbox.StateQueued, 0, ""))
	_, err := r.s.Move(k.ctx, outbox.MoveParams{Group: r.group, Owner: "one", To: []outbox.Place{r.place(c, true)}, Now: r.now})
	k.ok(err)
	r.now = r.now.Add(time.Hour)
	r.publish("k9", "e")
	state := map[string]outbox.State{}
	for _, x := range r.list() {
		state[string(x.Payload)] = x.State
	}
	want := map[string]outbox.State{"a": outbox.StateDead, "b": outbox.StateQueued, "c": outbox.StatePublished, "d": outbox.StatePending, "e": outbox.StatePending}
	if d.Partition == c.Partition {
		want["d"] = state["d"]
	}
	if e := r.row("e", "k9"); r.own("one").Total == 1 || e.Partition == c.Partition {
		want["e"] = outbox.StatePending
	}
	for name, s := range want {
		if state[name] != s {
			k.Errorf("%s is %s, want %s", name, state[name], s)
		}
	}
	find := func(p outbox.ListParams, want ...string) {
		k.Helper()
		p.Group, p.Now = r.group, r.now
		l, err := r.desk().List(k.ctx, p)
		k.ok(err)
		k.wants(fmt.Sprintf("%+v", p), asideNames(l.Events), want...)
	}
	find(outbox.ListParams{IDs: []string{c.ID, a.ID}}, "a", "c")
	find(outbox.ListParams{Key: "k9"}, "e")
	find(outbox.ListParams{Since: k.t0.Add(time.Minute)}, "e")
	find(outbox.ListParams{Until: k.t0.Add(time.Minute), Key: "k"}, "a", "b", "c")
	find(outbox.ListParams{Topics: []string{"other.*"}})
	find(outbox.ListParams{Types: []string{"Paid"}, Tenant: r.tenant, States: []outbox.State{outbox.StateDead}}, "a")
	find(outbox.ListParams{Tenant: "nobody"})
	var pages []string
	for after, n := int64(0), 0; n < 10; n++ {
		l, err := r.desk().List(k.ctx, outbox.ListParams{Group: r.group, After: after, Limit: 2, Key: "k", Now: r.now})
		k.ok(err)
		pages = append(pages, asideNames(l.Events)...)
		if !l.More {
			break
		}
		after = l.Events[len(l.Events)-1].Seq
	}
	k.wants("pages", pages, "a", "b", "c")
	l, err := r.desk().List(k.ctx, outbox.ListParams{Group: r.group, IDs: []string{a.ID, c.ID}, WithoutPayload: true, Now: r.now})
	if err != nil || len(l.Events) != 2 || l.Events[0].Payload != nil || l.Events[1].Payload != nil || l.Events[0].ID != a.ID {
		k.Errorf("without payload: %+v, %v", l.Events, err)
	}
}

func deskChange(k *K) {
	r := k.reel()
	a, b, c, d := r.three()
	one := setting(a, outbox.StateDead, 0, "boom")
	one.Attempts = 10
	r.set("one", one, setting(b, outbox.StateQueued, 0, ""), setting(c, outbox.StateQueued, 0, ""), setting(d, outbox.StateWaiting, time.Hour, "boom"))
	change := func(action string, dry bool, t outbox.Target, code string, state outbox.State) {
		k.Helper()
		done, err := r.desk().Change(k.ctx, outbox.ChangeParams{Group: r.group, Action: action, Targets: []outbox.Target{t}, DryRun: dry, Audit: who(), Now: r.now})
		k.ok(err)
		if len(done.Outcomes) != 1 || done.Outcomes[0].Code != code || done.Outcomes[0].State != state || done.Outcomes[0].Seq != t.Seq {
			k.Errorf("%s: %+v, want %q %q", action, done.Outcomes, code, state)
		}
	}
	saw := outbox.Target{Seq: a.Seq, State: outbox.StateDead, Attempts: 10}
	change(outbox.ActionRetry, false, outbox.Target{Seq: a.Seq + 1_000_000, State: outbox.StateDead}, "not_found", "")
	change(outbox.ActionRetry, false, outbox.Target{Seq: a.Seq, State: outbox.StateDead, Attempts: 9}, "moved", outbox.StateDead)
	change(outbox.ActionRetry, false, outbox.Target{Seq: b.Seq, State: outbox.StateQueued}, "wrong_state", outbox.StateQueued)
	change(outbox.ActionRetry, true, saw, "", outbox.StateWaiting)
	k.wants("a dry run", asideNames(r.take("one", 10, 10).Asides))
	change(outbox.ActionRetry, false, saw, "", outbox.StateWaiting)
	t := r.take("one", 10, 10)
	k.wants("retried, head first", asideNames(t.Asides), "a", "b", "c")
	if x := t.Asides[0]; x.Attempts != 0 || x.Replay == "" {
		k.Errorf("retried as %+v", x)
	}
	change(outbox.ActionSkip, false, outbox.Target{Seq: a.Seq, State: outbox.StateWaiting}, "", outbox.StateSkipped)
	k.wants("behind a skipped one", asideNames(r.take("one", 10, 10).Asides), "b", "c")
	r.set("one", outbox.Setting{Row: a, State: outbox.StateWaiting, Holds: true, Attempts: 1, Error: "late"})
	k.wants("skipped", asideNames(r.list(outbox.StateSkipped)), "a")
	change(outbox.ActionDiscard, false, outbox.Target{Seq: d.Seq, State: outbox.StateWaiting}, "", "")
	k.wants("discarded", asideNames(r.list(outbox.StateWaiting)))
	auditor, ok := k.Store.(operator.Auditor)
	if !ok {
		return
	}
	page, err := auditor.Audit(k.ctx, operator.AuditParams{Tenants: []string{r.tenant}, Actor: "kit"})
	k.ok(err)
	var actions []string
	for _, e := range page.Entries {
		if e.Reason != who().Reason || e.Channel != "cli" || e.Key.Operation != "outbox:"+r.group {
			k.Errorf("audited as %+v", e)
		}
		actions = append(actions, string(e.Action))
	}
	k.wants("audit", actions, "retry", "skip", "discard")
}

func deskPause(k *K) {
	r := k.reel()
	a, b, _, d := r.three()
	r.set("one", setting(a, outbox.StateQueued, 0, ""), setting(b, outbox.StateQueued, 0, ""), setting(d, outbox.StateQueued, 0, ""))
	pause := func(action string, topics ...string) outbox.GroupStatus {
		k.Helper()
		s, err := r.desk().SetGroup(k.ctx, outbox.GroupParams{Group: r.group, Action: action, Topics: topics, Audit: who(), Now: r.now})
		k.ok(err)
		return s
	}
	if s := pause(outbox.GroupPause, r.group+".*"); s.Paused || !slices.Equal(s.PausedTopics, []string{r.group + ".*"}) {
		k.Errorf("paused topic: %+v", s)
	}
	k.wants("of a paused topic", asideNames(r.take("one", 10, 10).Asides))
	if h := r.hold("one", outbox.Partitions); h.Paused || !slices.Equal(h.PausedTopics, []string{r.group + ".*"}) {
		k.Errorf("a relay hears %+v", h)
	}
	if s := pause(outbox.GroupResume, r.group+".*"); len(s.PausedTopics) > 0 {
		k.Errorf("resumed topic: %+v", s)
	}
	got := asideNames(r.take("one", 10, 10).Asides)
	slices.Sort(got)
	k.wants("resumed", got, "a", "b", "d")
	if s := pause(outbox.GroupPause); !s.Paused || !r.hold("one", outbox.Partitions).Paused {
		k.Errorf("paused group: %+v", s)
	}
	if s := pause(outbox.GroupResume); s.Paused || r.hold("one", outbox.Partitions).Paused {
		k.Errorf("resumed group: %+v", s)
	}
}

func deskGroups(k *K) {
	r := k.reel()
	set := func(p outbox.GroupParams) (outbox.GroupStatus, error) {
		p.Audit, p.Now = who(), r.now
		return r.desk().SetGroup(k.ctx, p)
	}
	if _, err := set(outbox.GroupParams{Group: r.group, Action: outbox.GroupCreate, From: outbox.FromNow}); !errors.Is(err, outbox.ErrGroup) {
		k.Errorf("a group twice: %v", err)
	}
	if _, err := set(outbox.GroupParams{Group: r.group + "-ext", Action: outbox.GroupCreate}); !errors.Is(err, outbox.ErrFrom) {
		k.Errorf("a new group that does not say from where: %v", err)
	}
	s, err := set(outbox.GroupParams{Group: r.group + "-ext", Action: outbox.GroupCreate, From: outbox.FromNow, External: true, Slot: "cdc", Topics: []string{"a.*"}})
	if err != nil || !s.External || s.Slot != "cdc" || !slices.Equal(s.Topics, []string{"a.*"}) {
		k.Fatalf("external: %+v, %v", s, err)
	}
	p := r.holdParams("one", 1)
	p.Group = r.group + "-ext"
	if _, err := r.s.Hold(k.ctx, p); !errors.Is(err, outbox.ErrGroup) {
		k.Errorf("a relay of an external group: %v", err)
	}
	for _, g := range []string{r.group + "-ext", r.group} {
		if s, err = set(outbox.GroupParams{Group: g, Action: outbox.GroupRemove}); err != nil || s.Name != "" {
			k.Errorf("removed: %+v, %v", s, err)
		}
		if _, err := set(outbox.GroupParams{Group: g, Action: outbox.GroupPause}); !errors.Is(err, outbox.ErrGroup) {
			k.Errorf("a group that is gone: %v", err)
		}
	}
	if _, err := r.s.Read(k.ctx, outbox.ReadParams{Group: r.group, MaxRows: 1, MaxBytes: 1, Now: r.now}); !errors.Is(err, outbox.ErrGroup) {
		k.Errorf("reading for a group that is gone: %v", err)
	}
}

// keep runs Keep until nothing more can go.
func (r *reel) keep(retention time.Duration) (rows int64, holder outbox.Holder) {
	r.Helper()
	for range 1000 {
		kept, err := r.s.(outbox.Keeper).Keep(r.ctx, outbox.KeepParams{Retention: retention, Budget: time.Second, Now: r.now})
		r.ok(err)
		rows, holder = rows+kept.Rows, kept.Holder
		if !kept.More {
			break
		}
	}
	return rows, holder
}

func deskKeep(k *K) {
	r := k.reel()
	if _, ok := r.s.(outbox.Keeper); !ok {
		k.Skip("skipped: the store's log shrinks by itself")
	}
	a, b, _, d := r.three()
	r.now = r.now.Add(10 * 24 * time.Hour)
	r.own("one")
	read := r.read()
	if n, h := r.keep(7 * 24 * time.Hour); n != 0 || h.Kind != "group" {
		k.Errorf("unpublished: %d rows went, held by %+v", n, h)
	}
	r.moved("one", setting(a, outbox.StateDead, 0, "boom"), setting(b, outbox.StateQueued, 0, ""), setting(d, outbox.StateWaiting, time.Hour, "boom"))
	if n, _ := r.keep(11 * 24 * time.Hour); n != 0 {
		k.Errorf("%d rows went within the retention", n)
	}
	r.publish("k7", "young")
	if n, _ := r.keep(7 * 24 * time.Hour); n != int64(len(read)) {
		k.Errorf("%d rows went, want %d", n, len(read))
	}
	k.wants("what is left", asideNames(r.list()), "a", "b", "d", "young")
	if _, err := r.desk().List(k.ctx, outbox.ListParams{Group: r.group, Since: k.t0, Now: r.now}); !errors.Is(err, outbox.ErrKept) {
		k.Errorf("older than what is kept: %v", err)
	}
	k.wants("the young one", names(r.read()), "young")
	_, err := r.desk().Change(k.ctx, outbox.ChangeParams{Group: r.group, Action: outbox.ActionRetry, Targets: []outbox.Target{{Seq: a.Seq, State: outbox.StateDead}}, Audit: who(), Now: r.now})
	k.ok(err)
	t := r.take("one", 10, 10)
	if len(t.Asides) != 2 || string(t.Asides[0].Payload) != "a" || !slices.Equal(t.Asides[0].Headers, a.Headers) || t.Asides[0].ID != a.ID {
		k.Errorf("retried after its slot went: %+v", t.Asides)
	}
}

func deskEnvironment(k *K) {
	r := k.reel()
	p := r.holdParams("one", 1)
	p.Environment = "production"
	h, err := r.s.Hold(k.ctx, p)
	if err != nil || h.Environment != "production" {
		k.Fatalf("the first: %+v, %v", h, err)
	}
	p.Environment, p.Owner = "staging", "two"
	if h, err = r.s.Hold(k.ctx, p); !errors.Is(err, outbox.ErrEnvironment) || len(h.Leases) > 0 {
		k.Errorf("another: %+v, %v", h, err)
	}
	p.Environment = ""
	if h, err = r.s.Hold(k.ctx, p); err != nil || h.Environment != "production" {
		k.Errorf("one that says none: %+v, %v", h, err)
	}
}
