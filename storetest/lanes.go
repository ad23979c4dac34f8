package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo/inbox"
)

func laneCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "inbox: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		c("[messages/I21] a failing message holds its lane, in order; other lanes go on", laneSerial),
		c("[messages/I21] OnDead decides at the end", laneDead),
		c("[messages/I22] latest: older and equal versions are stale", laneLatest),
		c("[messages/I22] latest: workers at once never leave the lower version last", laneLatestTogether),
		c("[messages/I23] contiguous: a gap is waited for, then all follow", laneGap),
		c("[messages/I24] contiguous: a gap that stays open is parked, and released", laneRelease),
		c("[messages/I25] the lane's version rolls back with its effect, and SetVersion moves it", laneVersion),
		c("[messages/I26] lane or version missing, or not comparable", laneMissing),
		c("messages of one lane at once follow each other in one process", laneTogether),
		c("a message that is skipped by a person lets its lane go on", laneSkipped),
		c("a sequence begins anywhere, goes on past a gap and begins again after a rest", laneContinues),
		c("a serial lane with a version leaves out what is older", laneClosed),
	}
}

func laneSerial(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(_ context.Context, m inbox.Message) error {
		if m.ID == "a1" && len(b.started()) < 4 {
			return errBoom
		}
		return nil
	}
	b.give(inLane("a1", "a", ""), inbox.StatusRetrying)
	for _, id := range []string{"a2", "a3"} {
		if out := b.give(inLane(id, "a", ""), inbox.StatusStored); out.Reason != inbox.ReasonLane {
			k.Errorf("%+v", out)
		}
		again := inLane(id, "a", "")
		again.Attempt = 2
		b.give(again, inbox.StatusStored)
	}
	b.give(inLane("b1", "b", ""), inbox.StatusDone)
	b.give(msg("none"), inbox.StatusDone)
	other := k.boxOn(k.Again, inbox.Options{}) // another process, and a restart
	other.give(inLane("a4", "a", ""), inbox.StatusStored)
	b.once()
	b.once()
	if got := b.started(); !slices.Equal(got, []string{"a1", "b1", "none", "a1", "a2", "a3", "a4"}) {
		k.Errorf("started %q", got)
	}
	b.settled()
	b.give(inLane("a5", "a", ""), inbox.StatusDone)
	b.effects("a1", 1)
}

func laneDead(k *K) {
	for _, onDead := range []string{inbox.OnDeadBlock, inbox.OnDeadContinue} {
		for _, order := range []inbox.Order{inbox.OrderSerial, inbox.OrderContiguous} {
			b := k.box(inbox.Options{Subscriber: k.tenant + onDead + string(order), OnDead: onDead, Order: order, MaxAttempts: 2})
			b.fails = func(_ context.Context, m inbox.Message) error {
				if m.ID == "a1" {
					return errBoom
				}
				return nil
			}
			b.give(inLane("a1", "a", "1"), inbox.StatusRetrying)
			b.give(inLane("a2", "a", "2"), inbox.StatusStored)
			b.once()
			b.once()
			if onDead == inbox.OnDeadContinue {
				b.receipt(inbox.StatusDead)
				b.effects("a2", 1)
				b.give(inLane("a3", "a", "3"), inbox.StatusDone)
				continue
			}
			b.effects("a2", 0)
			b.give(inLane("a3", "a", "3"), inbox.StatusStored)
			b.fails = nil
			c, err := b.Retry(k.ctx, inbox.Selection{Lane: "a"}, false)
			if k.ok(err); c.OK != 1 {
				k.Errorf("%+v", c)
			}
			b.once()
			if got := b.started(); !slices.Equal(got[len(got)-3:], []string{"a1", "a2", "a3"}) {
				k.Errorf("%s: started %q", order, got)
			}
			b.settled()
		}
	}
}

func laneLatest(k *K) {
	for _, tie := range []string{inbox.TieSkip, inbox.TieRun} {
		b := k.box(inbox.Options{Subscriber: k.tenant + tie, Order: inbox.OrderLatest, Tie: tie})
		equal := inbox.StatusSkipped
		if tie == inbox.TieRun {
			equal = inbox.StatusDone
		}
		huge := "1" + strings.Repeat("0", 60)
		for _, one := range []struct {
			version string
			want    inbox.Status
		}{{"-5", inbox.StatusDone}, {"7", inbox.StatusDone}, {"007", equal}, {"6", inbox.StatusSkipped}, {"10", inbox.StatusDone}, {"9", inbox.StatusSkipped},
			{"9007199254740993", inbox.StatusDone}, {"9007199254740992", inbox.StatusSkipped}, {huge, inbox.StatusDone}, {huge[:60], inbox.StatusSkipped}} {
			k.n++
			id := fmt.Sprint(one.version, "-", k.n)
			out := b.give(inLane(id, "a", one.version), one.want)
			if one.want == inbox.StatusSkipped && out.Reason != inbox.ReasonStale {
				k.Errorf("%+v", out)
			}
			b.give(inLane(id, "a", one.version), inbox.StatusDuplicate)
		}
		for _, one := range []struct {
			version string
			want    inbox.Status
		}{{"2026-03-01T10:00:00Z", inbox.StatusDone}, {"2026-03-01T11:30:00+02:00", inbox.StatusSkipped}, {"2026-03-01T10:00:00.0000000001Z", inbox.StatusDone},
			{"2026-03-01T10:00:00.00Z", inbox.StatusSkipped}, {"2026-03-01T05:00:01-05:00", inbox.StatusDone}} {
			k.n++
			b.give(inLane(fmt.Sprint("t", k.n), "instants", one.version), one.want)
		}
		b.give(inLane("mixed", "instants", "5"), inbox.StatusParked)
	}
}

func laneLatestTogether(k *K) {
	one, two := k.box(inbox.Options{Order: inbox.OrderLatest}), k.boxOn(k.Again, inbox.Options{Order: inbox.OrderLatest})
	var mu sync.Mutex
	last := ""
	note := func(_ context.Context, m inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Version < last {
			k.Errorf("%s after %s", m.Version, last)
		}
		last = m.Version
		return nil
	}
	one.fails, two.fails = note, note
	var all sync.WaitGroup
	for i := range 20 {
		b := one
		if i%2 == 1 {
			b = two
		}
		m := inLane(fmt.Sprint("v", i), "a", fmt.Sprint(100+(i*7)%20))
		all.Go(func() {
			for k.ctx.Err() == nil {
				if out, err := b.Handle(k.ctx, m, b.work); err == nil && out.Ack {
					return
				}
			}
		})
	}
	all.Wait()
	if last != "119" {
		k.Errorf("last is %q", last)
	}
}

func laneGap(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderContiguous})
	for _, v := range []string{"3", "5", "2"} {
		if out := b.give(inLane("v"+v, "a", v), inbox.StatusStored); out.Reason != inbox.ReasonGap {
			k.Errorf("%+v", out)
		}
	}
	b.give(inLane("b1", "b", "1"), inbox.StatusDone)
	if n := b.once(); n != 0 {
		k.Errorf("%d ran before the gap closed", n)
	}
	b.give(inLane("v1", "a", "01"), inbox.StatusDone)
	if n := b.once(); n != 2 {
		k.Errorf("%d ran, want 2 and 3", n)
	}
	b.give(inLane("v4", "a", "4"), inbox.StatusDone)
	b.once()
	if got := b.started(); !slices.Equal(got, []string{"b1", "v1", "v2", "v3", "v4", "v5"}) {
		k.Errorf("started %q", got)
	}
	if out := b.give(inLane("v2 again", "a", "2"), inbox.StatusSkipped); out.Reason != inbox.ReasonStale {
		k.Errorf("%+v", out)
	}
	b.settled()
}

// laneContinues is a sequence whose first number is any, that goes on past a gap, and begins again after a rest.
func laneContinues(k *K) {
	past := map[string]bool{}
	b := k.box(inbox.Options{Order: inbox.OrderContiguous, AnyStart: true, OnGap: inbox.OnGapContinue, GapWait: time.Microsecond, Idle: time.Hour})
	b.fails = func(ctx context.Context, m inbox.Message) error { past[m.ID] = inbox.PastGap(ctx); return nil }
	for _, m := range []inbox.Message{inLane("41", "c", "41"), inLane("42", "c", "42")} {
		b.give(m, inbox.StatusDone)
	}
	b.give(inLane("47", "c", "47"), inbox.StatusStored)
	b.give(inLane("45", "c", "45"), inbox.StatusStored)
	for len(b.started()) < 4 {
		if k.ctx.Err() != nil {
			k.Fatal("it did not go on", b.started())
		}
		b.once()
	}
	if got := b.started(); !slices.Equal(got, []string{"41", "42", "45", "47"}) || past["41"] || past["42"] || !past["45"] || !past["47"] {
		k.Errorf("ran %v, past a gap %v", got, past)
	}
	if out := b.give(inLane("43", "c", "43"), inbox.StatusSkipped); out.Reason != inbox.ReasonStale {
		k.Errorf("one that comes too late: %+v", out)
	}
	b.give(inLane("48", "c", "48"), inbox.StatusDone)
	b.settled()
	// A lane that has rested for long takes any number again, also a lower one.
	k.ok(k.shelf().Leave(k.ctx, inbox.LeaveParams{Tenant: k.tenant, Subscriber: k.tenant, Lane: "c", Version: "48", Now: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}))
	b.give(inLane("7", "c", "7"), inbox.StatusDone)
	b.give(inLane("8", "c", "8"), inbox.StatusDone)
}

// laneClosed is a serial lane that has been given a version.
func laneClosed(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderSerial})
	b.fails = func(ctx context.Context, m inbox.Message) error {
		if m.ID == "deleted" {
			return b.SetVersion(ctx, m.Lane, m.Version)
		}
		return nil
	}
	b.give(inLane("a", "c", "9"), inbox.StatusDone)
	b.give(inLane("b", "c", "5"), inbox.StatusDone) // no version counts yet
	b.give(inLane("deleted", "c", "2026-01-02T00:00:00Z"), inbox.StatusDone)
	if out := b.give(inLane("old", "c", "2026-01-01T00:00:00Z"), inbox.StatusSkipped); out.Reason != inbox.ReasonStale {
		k.Errorf("%+v", out)
	}
	b.give(inLane("new", "c", "2026-01-03T00:00:00Z"), inbox.StatusDone)
	b.give(inLane("none", "c", ""), inbox.StatusDone)
}

func laneRelease(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderContiguous, GapWait: 1})
	for _, v := range []string{"12", "9", "10"} {
		b.give(inLane("v"+v, "a", v), inbox.StatusStored)
	}
	b.once()
	for _, r := range b.receipts() {
		last := r.Failures[len(r.Failures)-1].Error
		if r.Status != inbox.StatusParked || r.Reason != inbox.ReasonGap || !strings.Contains(last, "version 1 ") || !strings.Contains(last, r.Message.Version) || r.Attempts != 0 {
			k.Errorf("%v %+v", show([]inbox.Receipt{r}), r.Failures)
		}
	}
	from, err := b.Release(k.ctx, "", "a")
	if k.ok(err); from != "9" {
		k.Errorf("released from %q", from)
	}
	b.once()
	if got := b.started(); !slices.Equal(got, []string{"v9", "v10"}) {
		k.Errorf("started %q", got)
	}
	b.give(inLane("v11", "a", "11"), inbox.StatusDone) // late, and the parked one follows
	b.once()
	b.effects("v12", 1)
	b.settled()
	if from, err := b.Release(k.ctx, "", "a"); from != "" || err != nil {
		k.Errorf("nothing held: %q, %v", from, err)
	}
}

func laneVersion(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderLatest, MaxAttempts: 1, OnDead: inbox.OnDeadContinue})
	b.fails = failing(1)
	b.give(inLane("v5", "a", "5"), inbox.StatusDead)
	b.give(inLane("v3", "a", "3"), inbox.StatusDone) // 5 left nothing
	b.give(inLane("v2", "a", "2"), inbox.StatusSkipped)
	k.ok(b.SetVersion(k.ctx, "a", "50"))
	b.give(inLane("v49", "a", "49"), inbox.StatusSkipped)
	c := k.box(inbox.Options{Subscriber: k.tenant + "-c", Order: inbox.OrderContiguous})
	k.ok(c.SetVersion(k.ctx, "a", "99"))
	c.give(inLane("v1", "a", "1"), inbox.StatusSkipped)
	c.give(inLane("v100", "a", "100"), inbox.StatusDone)
	c.give(inLane("b2", "b", "2"), inbox.StatusStored)
	c.fails = func(ctx context.Context, m inbox.Message) error {
		if err := c.SetVersion(ctx, "a", "199"); err != nil || m.ID != "v101 again" {
			return err
		}
		return nil
	}
	undone := k.inTx(func(in tx) error {
		k.ok(c.SetVersion(in.ctx, "a", "500"))
		return errUndo
	})
	if undone == nil {
		k.Error("no rollback")
	}
	c.give(inLane("v101", "a", "101"), inbox.StatusDone)
	c.fails = nil
	c.give(inLane("v200", "a", "200"), inbox.StatusDone)
	if err := b.SetVersion(k.ctx, "a", "x"); codeOf(err) != "misuse" {
		k.Error(err)
	}
}

func laneMissing(k *K) {
	for _, order := range []inbox.Order{inbox.OrderLatest, inbox.OrderContiguous} {
		b := k.box(inbox.Options{Subscriber: k.tenant + string(order), Order: order})
		for _, m := range []inbox.Message{inLane("1", "", "1"), inLane("2", "a", ""), inLane("3", "a", "1.5"), inLane("4", "a", "x"), inLane("5", "a", "+1"),
			inLane("6", strings.Repeat("a", 1025), "1")} {
			if out := b.give(m, inbox.StatusParked); out.Reason != inbox.ReasonUnparsable {
				k.Errorf("%+v", out)
			}
		}
		if order == inbox.OrderContiguous {
			b.give(inLane("7", "a", "2026-03-01T10:00:00Z"), inbox.StatusParked)
		}
	}
	b := k.box(inbox.Options{})
	b.fails = failing(1)
	b.give(msg("a"), inbox.StatusRetrying)
	b.give(msg("b"), inbox.StatusDone) // without a lane nothing waits
}

func laneTogether(k *K) {
	b := k.box(inbox.Options{})
	var mu sync.Mutex
	in, most := 0, 0
	b.fails = func(context.Context, inbox.Message) error {
		mu.Lock()
		in++
		most = max(most, in)
		mu.Unlock()
		defer func() { mu.Lock(); in--; mu.Unlock() }()
		return nil
	}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() { b.give(inLane(fmt.Sprint(i), "a", ""), inbox.StatusDone) })
	}
	all.Wait()
	if most != 1 || len(b.started()) != 10 {
		k.Errorf("%d at once, %d starts", most, len(b.started()))
	}
}

func laneSkipped(k *K) {
	for _, order := range []inbox.Order{inbox.OrderSerial, inbox.OrderContiguous} {
		b := k.box(inbox.Options{Subscriber: k.tenant + string(order), Order: order, MaxAttempts: 1})
		b.fails = failing(1)
		b.give(inLane("v1", "a", "1"), inbox.StatusDead)
		b.give(inLane("v2", "a", "2"), inbox.StatusStored)
		c, err := b.Skip(k.ctx, inbox.Selection{Statuses: []inbox.Status{inbox.StatusDead}}, "known")
		if k.ok(err); c.OK != 1 {
			k.Errorf("%+v", c)
		}
		b.once()
		b.effects("v1", 0)
		b.effects("v2", 1)
		b.give(inLane("v1", "a", "1"), inbox.StatusDuplicate)
		b.settled()
	}
}
