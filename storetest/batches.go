package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

func batchCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "inbox: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		c("[messages/I27] a batch with repeats inside it and of earlier messages", batchRepeats),
		c("[messages/I28] one message of a batch fails: the others are done, it is retried", batchFails),
		c("a batch keeps the order of its lanes", batchLanes),
		{name: "inbox: [messages/I12] a handler ends the transaction of a batch: what ran does not run again", needs: needTx | needEffect | needEnd, run: batchEnded},
	}
}

func (b *box) batch(want string, ms ...inbox.Message) []inbox.Outcome {
	b.k.Helper()
	outs, err := b.HandleBatch(b.k.ctx, ms, b.work)
	b.k.ok(err)
	var got []string
	for _, o := range outs {
		got = append(got, string(o.Status))
		if !o.Ack {
			b.k.Errorf("not acknowledged: %+v", o)
		}
	}
	if s := strings.Join(got, " "); s != want {
		b.k.Fatalf("batch: %s; want %s", s, want)
	}
	return outs
}

func batchRepeats(k *K) {
	b := k.box(inbox.Options{BatchSize: 4})
	b.give(msg("old"), inbox.StatusDone)
	b.batch("done done done", msg("a"), msg("b"), msg("c"))
	b.batch("duplicate done", msg("old"), msg("d"))
	b.batch("duplicate duplicate", msg("a"), msg("b"))
	other := msg("e")
	other.Body = []byte("other")
	redelivered := msg("f")
	redelivered.Attempt = 3
	b.batch("done duplicate duplicate parked done parked", msg("e"), msg("e"), msg("old"), other, redelivered, inbox.Message{Attempt: 1})
	for _, id := range []string{"old", "a", "b", "c", "d", "e", "f"} {
		b.effects(id, 1)
	}
	b.batch("")
}

func batchFails(k *K) {
	for _, o := range []inbox.Options{{}, {BatchSize: 1}, {BatchBytes: 1}} {
		o.Subscriber, o.MaxAttempts = fmt.Sprintf("%s-%d-%d", k.tenant, o.BatchSize, o.BatchBytes), 2
		b := k.box(o)
		b.fails = func(_ context.Context, m inbox.Message) error {
			switch m.ID {
			case "bad":
				return errBoom
			case "skip":
				return inbox.Skip("no")
			}
			return nil
		}
		outs := b.batch("done retrying done skipped", msg("a"), msg("bad"), msg("b"), msg("skip"))
		if !errors.Is(outs[1].Err, errBoom) {
			k.Errorf("%+v", outs[1])
		}
		b.effects("a", 1)
		b.effects("b", 1)
		b.effects("bad", 0)
		b.once()
		starts := 0
		for _, id := range b.started() {
			if id == "bad" {
				starts++
			}
		}
		if r := b.receipt(inbox.StatusDead); r.Attempts != 2 || starts != 2 {
			k.Errorf("%d starts, %+v", starts, r)
		}
	}
}

func batchEnded(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(ctx context.Context, m inbox.Message) error {
		if m.ID == "ends" {
			return k.End(ctx)
		}
		return nil
	}
	b.batch("dead dead done", msg("before"), msg("ends"), msg("after"))
	for _, id := range []string{"before", "ends"} {
		if n, err := k.Count(k.ctx, b.name(inbox.Message{Tenant: k.tenant, Source: "orders", ID: id})); err != nil || n > 1 {
			k.Errorf("%s: %d effects, %v", id, n, err)
		}
	}
	b.effects("after", 1)
}

func batchLanes(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderContiguous})
	b.batch("done done done", inLane("1", "a", "1"), inLane("2", "a", "2"), inLane("3", "a", "3"))
	b.batch("done stored done", inLane("4", "a", "4"), inLane("6", "a", "6"), inLane("5", "a", "5"))
	b.once()
	b.effects("6", 1)
	s := k.box(inbox.Options{Subscriber: k.tenant + "-s"})
	s.fails = failing(1)
	s.batch("retrying stored done", inLane("1", "a", ""), inLane("2", "a", ""), inLane("1b", "b", ""))
	s.once()
	s.effects("1", 1)
	s.effects("2", 1)
	s.settled()
}

func windowCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "inbox: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		c("[messages/I29] a horizon longer than the window", windowShort),
		c("[messages/I31] a message older than the window, of an old and of a new subscriber", windowOld),
		c("[messages/I1] a tombstone is a duplicate", windowTombstone),
	}
}

func windowShort(k *K) {
	_, err := k.tryBox(k.Store, inbox.Options{Horizon: 30 * 24 * time.Hour})
	if !errors.Is(err, inbox.ErrWindow) || !strings.Contains(err.Error(), "192h") || !strings.Contains(err.Error(), "720h") {
		k.Error(err)
	}
	b := k.box(inbox.Options{Horizon: 30 * 24 * time.Hour, AllowShortWindow: true})
	if room, ok := b.Headroom(); !ok || room != -22*24*time.Hour {
		k.Error(room, ok)
	}
	fits := k.box(inbox.Options{Subscriber: k.tenant + "-fits", Horizon: 7 * 24 * time.Hour})
	if room, ok := fits.Headroom(); !ok || room != 24*time.Hour {
		k.Error(room, ok)
	}
	for _, h := range []time.Duration{0, idempo.Forever} {
		k.box(inbox.Options{Subscriber: fmt.Sprint(k.tenant, h), Horizon: h})
	}
}

func windowOld(k *K) {
	e, err := k.shelf().Enter(k.ctx, inbox.EnterParams{Subscriber: k.tenant})
	k.ok(err)
	const window = 8 * 24 * time.Hour
	old := func(age time.Duration) inbox.Message {
		k.n++
		m := msg(fmt.Sprint("m", k.n))
		m.Time = e.Now.Add(-age)
		return m
	}
	fresh := k.box(inbox.Options{Subscriber: k.tenant + "-new"})
	fresh.give(old(2*window), inbox.StatusDone)
	k.ok(k.shelf().Leave(k.ctx, inbox.LeaveParams{Subscriber: k.tenant, Now: e.Now.Add(-window - time.Hour)}))
	b := k.box(inbox.Options{})
	b.give(old(window-time.Hour), inbox.StatusDone)
	b.give(old(window+time.Minute), inbox.StatusDone)
	m := old(window + time.Hour)
	if out := b.give(m, inbox.StatusParked); out.Reason != inbox.ReasonTooOld {
		k.Errorf("%+v", out)
	}
	c, err := b.Retry(k.ctx, inbox.Selection{}, false)
	if k.ok(err); c.OK != 1 || b.once() != 1 {
		k.Errorf("%+v", c)
	}
	b.effects(m.ID, 1)
	run := k.box(inbox.Options{TooOld: inbox.TooOldRun})
	run.give(old(2*window), inbox.StatusDone)
}

func windowTombstone(k *K) {
	b := k.box(inbox.Options{Retention: time.Microsecond, Tombstone: time.Hour})
	b.give(msg("a"), inbox.StatusDone)
	e, err := k.shelf().Enter(k.ctx, inbox.EnterParams{Subscriber: k.tenant})
	k.ok(err)
	for now := e.Now; !e.Now.After(now.Add(time.Millisecond)); { // until the store's clock has moved
		e, err = k.shelf().Enter(k.ctx, inbox.EnterParams{Subscriber: k.tenant})
		k.ok(err)
	}
	b.give(msg("a"), inbox.StatusDuplicate)
	b.effects("a", 1)
}
