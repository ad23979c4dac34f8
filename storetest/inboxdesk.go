package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
)

// wardCases are what an operator does to the messages of an inbox, on the store alone.
func wardCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "ward: " + name, needs: needTx | needEffect | needOperator, run: run}
	}
	return []testCase{
		c("[messages/I16] dead ones run again in the order of their lane, each once, also beside a broker's copy", deskRetry),
		c("a skipped one has no effect, its copies are duplicates, and its lane goes on", deskSkip),
		c("a discarded one is gone, and its copy is a new message", deskDiscard),
		c("[messages/I24] a gap is released from the lowest version that is held, whatever its length", deskRelease),
		c("of several operators and a worker at one message, one changes it at a time, and the audit says which", deskRace),
		c("an audit row of a transaction that rolls back is none", deskRollback),
	}
}

// ward is the operator service over the first handle.
func (k *K) ward() *operator.Service {
	k.Helper()
	s, err := operator.New(k.Store, operator.Config{})
	k.ok(err)
	return s
}

func (k *K) operator(name string) operator.Principal {
	return operator.Principal{Actor: name, Role: operator.RoleAdmin, Channel: "cli", Tenants: []string{k.tenant}}
}

// handled does an action to what is found, and wants n to be done.
func (k *K) handled(a operator.Action, f operator.FindMessages, n int) operator.Handled[inbox.Receipt] {
	k.Helper()
	f.Subscriber = k.tenant
	got, err := k.ward().ActMessages(k.ctx, operator.MessagesParams{By: k.operator("ann"), Find: f, Action: a, Reason: "the kit"})
	k.ok(err)
	if got.OK != n || got.Failed != 0 {
		k.Fatalf("%s: %d done, %d failed, %d passed over; want %d", a, got.OK, got.Failed, got.Skipped, n)
	}
	return got
}

// rounds returns the audit rows of the case's tenant.
func (k *K) rounds() []operator.Entry {
	k.Helper()
	page, err := k.ward().Audit(k.ctx, operator.ReadAuditParams{By: k.operator("bob"), Find: operator.AuditParams{Limit: 1000}})
	k.ok(err)
	return page.Entries
}

// drained runs what is due until n messages ran; the clocks of handles may be some milliseconds apart.
func (b *box) drained(n int) {
	b.k.Helper()
	for n > 0 {
		if n -= b.once(); b.k.ctx.Err() != nil {
			b.k.Fatalf("%d messages are not due", n)
		}
	}
}

// grave fills a lane: the first message is dead, the others wait behind it.
func (k *K) grave(lane string, ids ...string) *box {
	k.Helper()
	b := k.box(inbox.Options{Order: inbox.OrderSerial})
	b.fails = func(context.Context, inbox.Message) error { return inbox.Permanent(errBoom) }
	for i, id := range ids {
		want := inbox.StatusDead
		if i > 0 {
			want = inbox.StatusStored
		}
		b.give(inLane(id, lane, ""), want)
	}
	b.fails = nil
	return b
}

func deskRetry(k *K) {
	b := k.grave("c-1", "a", "b", "c")
	starts := len(b.started())
	k.handled(operator.ActionRetry, operator.FindMessages{Status: inbox.StatusDead}, 1)
	k.handled(operator.ActionRetry, operator.FindMessages{}, 0) // it runs when its turn comes
	copied := inLane("a", "c-1", "")
	copied.Attempt = 2
	if out, err := b.Handle(k.ctx, copied, b.work); err != nil || !out.Ack || out.Status != inbox.StatusStored {
		k.Errorf("a copy meanwhile: %+v, %v", out, err)
	}
	b.drained(3)
	for _, id := range []string{"a", "b", "c"} {
		b.effects(id, 1)
	}
	if got := b.started()[starts:]; !slices.Equal(got, []string{"a", "b", "c"}) {
		k.Errorf("ran in the order %v", got)
	}
	b.give(copied, inbox.StatusDuplicate)
	b.settled()
	rows := k.rounds()
	if len(rows) != 1 || rows[0].Action != operator.ActionRetry || rows[0].Before != "dead" || rows[0].After != "stored" || rows[0].Actor != "ann" ||
		rows[0].Reason != "the kit" || rows[0].Key.Operation != "inbox:"+k.tenant || rows[0].At.IsZero() {
		k.Errorf("audit: %+v", rows)
	}
}

func deskSkip(k *K) {
	b := k.grave("c-1", "a", "b")
	k.handled(operator.ActionSkip, operator.FindMessages{ID: "a"}, 1)
	if r := b.receipts()[0]; r.Status != inbox.StatusStored || r.Reason != inbox.ReasonSkip || r.NextAt.IsZero() {
		k.Errorf("marked as %+v", r)
	}
	b.drained(2)
	b.effects("a", 0)
	b.effects("b", 1)
	b.give(inLane("a", "c-1", ""), inbox.StatusDuplicate)
	b.effects("a", 0)
	b.settled()
}

func deskDiscard(k *K) {
	b := k.grave("c-1", "a", "b")
	k.handled(operator.ActionDiscard, operator.FindMessages{Status: inbox.StatusDead, Lane: "c-1"}, 1)
	b.drained(1)
	b.effects("b", 1)
	b.give(inLane("a", "c-1", ""), inbox.StatusDone)
	b.effects("a", 1)
	b.settled()
	if rows := k.rounds(); len(rows) != 1 || rows[0].After != "" || rows[0].Before != "dead" {
		k.Errorf("audit: %+v", rows)
	}
}

func deskRelease(k *K) {
	b := k.box(inbox.Options{Order: inbox.OrderContiguous})
	versions := []string{"123456789012345678901234567892", "123456789012345678901234567890", "123456789012345678901234567891"}
	for i, v := range versions {
		b.give(inLane(fmt.Sprint("v", i), "c-1", v), inbox.StatusStored)
	}
	release := func(lane string, dry bool) (string, error) {
		return k.ward().ReleaseLane(k.ctx, operator.ReleaseLaneParams{By: k.operator("ann"), Subscriber: k.tenant, Tenant: k.tenant, Lane: lane, Reason: "the kit", DryRun: dry})
	}
	if _, err := release("c-2", false); operator.CodeOf(err) != operator.CodeNotFound {
		k.Errorf("a lane with nothing in it: %v", err)
	}
	for _, dry := range []bool{true, false} {
		if from, err := release("c-1", dry); err != nil || from != versions[1] {
			k.Errorf("released from %q, %v", from, err)
		}
		if dry && b.once() != 0 {
			k.Error("a dry run released it")
		}
	}
	b.drained(3)
	if got := b.started(); !slices.Equal(got, []string{"v1", "v2", "v0"}) {
		k.Errorf("ran in the order %v", got)
	}
	b.settled()
	if rows := k.rounds(); len(rows) != 2 || rows[0].Code != operator.CodeNotFound || rows[1].Outcome != operator.OutcomeDone {
		k.Errorf("audit: %+v", rows)
	}
}

func deskRace(k *K) {
	b := k.grave("", "a")
	seen := b.receipt(inbox.StatusDead)
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for i := range 6 {
		store := k.Store
		if i%2 == 1 {
			store = k.Again
		}
		s, err := operator.New(store, operator.Config{})
		k.ok(err)
		all.Go(func() {
			_, err := s.ActMessages(k.ctx, operator.MessagesParams{By: k.operator(fmt.Sprint("op-", i)), Find: operator.FindMessages{Subscriber: k.tenant, Number: seen.Seq}, One: true,
				On: seen.Rev, Action: operator.ActionRetry, Reason: "the kit"})
			mu.Lock()
			defer mu.Unlock()
			codes[operator.CodeOf(err)]++
			if err != nil && operator.CodeOf(err) != operator.CodeMoved {
				k.Error(err)
			}
		})
	}
	all.Wait()
	if codes[""] != 1 || codes[operator.CodeMoved] != 5 {
		k.Errorf("%v, want one to win and five to be told that it moved", codes)
	}
	done := 0
	for _, e := range k.rounds() {
		if e.Outcome == operator.OutcomeDone {
			done++
		}
	}
	if n := len(k.rounds()); n != 6 || done != 1 {
		k.Errorf("%d audit rows, %d done", n, done)
	}
	b.drained(1)
	b.effects("a", 1)
}

func deskRollback(k *K) {
	recorder, ok := k.Store.(operator.Recorder)
	if !ok {
		k.Fatal("the store does not record what operators do beside its keys")
	}
	e := operator.Entry{Actor: "ann", Role: operator.RoleAdmin, Channel: "cli", Action: operator.ActionSkip, Outcome: operator.OutcomeDone, Reason: "the kit",
		Key: idempo.Key{Tenant: k.tenant, Operation: "inbox:x", ID: k.key().ID}, Before: "dead"}
	err := k.inTx(func(in tx) error {
		_, err := recorder.RecordAudit(in.ctx, e)
		return errors.Join(err, errUndo)
	})
	if !errors.Is(err, errUndo) || len(k.rounds()) != 0 {
		k.Fatalf("%v: %d rows", err, len(k.rounds()))
	}
	k.ok(k.inTx(func(in tx) error {
		_, err := recorder.RecordAudit(in.ctx, e)
		return err
	}))
	alone, err := recorder.RecordAudit(k.ctx, e)
	k.ok(err)
	rows := k.rounds()
	if len(rows) != 2 || rows[1].ID != alone.ID || !rows[1].At.Equal(alone.At) || rows[0].ID >= rows[1].ID || rows[0].Before != "dead" || time.Since(rows[0].At).Abs() > time.Hour {
		k.Errorf("%+v", rows)
	}
}
