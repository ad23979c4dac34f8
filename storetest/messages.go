package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

func messageCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "inbox: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		c("[messages/I1] the same message again, in turn and at once, on two handles", messageAgain),
		c("[messages/I3] the same id for two subscribers and two tenants", messageScopes),
		c("[messages/I4] sources and ids that differ in a byte, or split otherwise", messageKeys),
		c("[messages/I5] ids too long or with NUL, broken, batched, unknown CloudEvents", messageUnusable),
		c("[messages/I6] another body under a known identity", messageConflict),
		c("[messages/I7] no id: parked, and run after the policy has changed", messageMissing),
		c("[messages/I8] no id: by digest, by position", messageDerived),
		c("[messages/I9] a row of messages without identity stops the inbox", messageBreaker),
		c("[messages/I17] a copy that comes while the first runs", messageRunning),
		c("[messages/I34] a result is the duplicates' too; nothing of it shows before the commit", messageResult),
		c("Put stores in the caller's transaction, and Once runs it", messagePut),
		c("Skip completes without effect", messageSkip),
		c("a mark of a partition goes forward only", messageMarks),
	}
}

func messageAgain(k *K) {
	one, two := k.box(inbox.Options{}), k.boxOn(k.Again, inbox.Options{})
	one.give(msg("a"), inbox.StatusDone)
	redelivered := msg("a")
	for _, attempt := range []int{0, 1, 2, 7} {
		redelivered.Attempt = attempt
		two.give(redelivered, inbox.StatusDuplicate)
	}
	one.effects("a", 1)
	for round, copies := range []int{2, 50} {
		id := fmt.Sprint("at once ", round)
		var all sync.WaitGroup
		for i := range copies {
			b := one
			if i%2 == 1 {
				b = two
			}
			m := msg(id)
			m.Attempt = i % 3
			all.Go(func() {
				for {
					out, err := b.Handle(k.ctx, m, b.work)
					if err != nil && k.ctx.Err() != nil {
						k.Error(err)
						return
					}
					if err == nil && out.Ack {
						if out.Status != inbox.StatusDone && out.Status != inbox.StatusDuplicate {
							k.Errorf("a copy ended as %+v", out)
						}
						return
					}
					runtime.Gosched() // the broker delivers it again
				}
			})
		}
		all.Wait()
		one.effects(id, 1)
	}
	one.settled()
}

func messageScopes(k *K) {
	one, two := k.box(inbox.Options{}), k.box(inbox.Options{Subscriber: k.tenant + "-2"})
	one.give(msg("a"), inbox.StatusDone)
	two.give(msg("a"), inbox.StatusDone)
	other := msg("a")
	other.Tenant = k.tenant + "-other"
	one.give(other, inbox.StatusDone)
	one.give(other, inbox.StatusDuplicate)
	one.effects("a", 1)
	two.effects("a", 1)
	other.Source = "orders"
	one.effectsOf(other, 1)
}

func messageKeys(k *K) {
	b := k.box(inbox.Options{})
	for _, p := range [][2]string{{"s", "id"}, {"s", "ID"}, {"s", "id "}, {"s", " id"}, {"s", "íd"}, {"s", "i\u0301d"}, {"S", "id"}, {"si", "d"}, {"sid", "d"},
		{"s", "id\xff"}, {"", "id"}, {strings.Repeat("s", 1024), strings.Repeat("i", 1024)}} {
		m := msg(p[1])
		m.Source = p[0]
		b.give(m, inbox.StatusDone)
		b.give(m, inbox.StatusDuplicate)
		b.effectsOf(inbox.Message{Tenant: k.tenant, Source: p[0], ID: p[1]}, 1)
	}
}

func messageUnusable(k *K) {
	b := k.box(inbox.Options{})
	event := func(kind, body string) inbox.Message {
		return inbox.Message{Source: "orders", ID: "broker", Attempt: 1, Headers: [][2]string{{"Content-Type", kind}}, Body: []byte(body)}
	}
	for reason, ms := range map[string][]inbox.Message{
		inbox.ReasonBadID: {msg(strings.Repeat("i", 1025)), msg("a\x00b"), {ID: "x", Source: strings.Repeat("s", 1025), Attempt: 1}},
		inbox.ReasonUnparsable: {event("application/cloudevents+json", "{"), event("application/cloudevents+json", `{"id":"1"`), event("application/cloudevents+json", `[]`),
			event("application/cloudevents+json; charset=utf-8", `{"specversion":"2.0","id":"1","source":"s"}`),
			event("application/cloudevents-batch+json", `[]`), event("application/cloudevents+avro", "x"),
			{ID: "x", Attempt: 1, Headers: [][2]string{{"ce_specversion", "0.2"}, {"ce_id", "1"}, {"ce_source", "s"}}}},
	} {
		for _, m := range ms {
			before := len(b.receipts())
			out := b.give(m, inbox.StatusParked)
			rs, err := b.Find(k.ctx, inbox.Selection{})
			k.ok(err)
			if out.Reason != reason || len(rs) != before+1 {
				k.Fatalf("%+v, %d receipts", out, len(rs))
			}
			full, err := k.shelf().List(k.ctx, inbox.ListParams{Subscriber: b.Options().Subscriber, After: rs[before].Seq - 1, Limit: 1})
			k.ok(err)
			got := full[0].Message
			if string(got.Body) != string(m.Body) || got.ID != m.ID || (len(m.Headers) > 0 && got.Headers[0] != m.Headers[0]) {
				k.Errorf("kept as %+v", got)
			}
		}
	}
	if len(b.started()) != 0 {
		k.Error("one of them was started")
	}
}

func messageConflict(k *K) {
	b := k.box(inbox.Options{})
	b.give(msg("a"), inbox.StatusDone)
	other := msg("a")
	other.Body = []byte("something else")
	for range 2 { // the copy of a conflict is the same receipt
		if out := b.give(other, inbox.StatusParked); out.Reason != inbox.ReasonConflict {
			k.Errorf("%+v", out)
		}
	}
	b.effects("a", 1)
	r := b.receipt(inbox.StatusParked)
	if len(r.Failures) == 0 || !strings.Contains(r.Failures[0].Error, "k_") {
		k.Errorf("the first is not named: %+v", r.Failures)
	}
	c, err := b.Retry(k.ctx, inbox.Selection{IDs: []int64{r.Seq}}, false)
	if k.ok(err); c.OK != 0 || c.Failed != 1 {
		k.Errorf("retried without accept: %+v", c)
	}
	c, err = b.Retry(k.ctx, inbox.Selection{IDs: []int64{r.Seq}}, true)
	if k.ok(err); c.OK != 1 {
		k.Errorf("retried with accept: %+v", c)
	}
	b.once()
	b.effects("a", 2)
	b.settled()
	off := k.box(inbox.Options{Subscriber: k.tenant + "-off", Fingerprint: inbox.FingerprintOff})
	off.give(msg("a"), inbox.StatusDone)
	off.give(other, inbox.StatusDuplicate)
	nilBody, empty := msg("b"), msg("b")
	nilBody.Body, empty.Body = nil, []byte{}
	b.give(nilBody, inbox.StatusDone)
	b.give(empty, inbox.StatusParked)
}

func messageMissing(k *K) {
	strict := k.box(inbox.Options{})
	for _, m := range []inbox.Message{{Source: "orders", Body: []byte("1")}, {Source: "orders", ID: " \t", Body: []byte("2")},
		{ID: "broker", Headers: [][2]string{{"ce-id", "1"}, {"ce-source", "s"}, {"CE-ID", "2"}}, Body: []byte("3")},
		{ID: "broker", Headers: [][2]string{{"ce-id", " "}}, Body: []byte("4")}} {
		m.Attempt = 1
		if out := strict.give(m, inbox.StatusParked); out.Reason != inbox.ReasonMissingID {
			k.Errorf("%+v", out)
		}
	}
	rs := strict.receipts()
	if len(rs) != 4 || !strings.Contains(rs[0].Failures[0].Error, inbox.MissingDigest) || !strings.Contains(rs[0].Failures[0].Error, inbox.MissingPosition) {
		k.Fatalf("%v %+v", show(rs), rs[0].Failures)
	}
	c, err := strict.Retry(k.ctx, inbox.Selection{IDs: []int64{rs[0].Seq}}, false)
	if k.ok(err); c.OK != 1 {
		k.Error(c)
	}
	strict.once()
	if got := strict.receipts()[0]; got.Status != inbox.StatusParked || len(strict.started()) != 0 {
		k.Errorf("retried under the same policy: %+v", got)
	}
	digest := k.box(inbox.Options{MissingID: inbox.MissingDigest})
	c, err = digest.Retry(k.ctx, inbox.Selection{Reason: inbox.ReasonMissingID}, false)
	if k.ok(err); c.OK != 4 || digest.once() != 4 || len(digest.started()) != 4 {
		k.Errorf("retried under another policy: %+v, started %q", c, digest.started())
	}
	digest.settled()
}

func messageDerived(k *K) {
	d := k.box(inbox.Options{MissingID: inbox.MissingDigest})
	anon := inbox.Message{Source: "orders", Type: "paid", Body: []byte("1"), Attempt: 1, Position: "t/0/1"}
	other := anon
	d.give(anon, inbox.StatusDone)
	other.Position = "t/0/2"
	d.give(other, inbox.StatusDuplicate)
	other.Type = "refunded"
	d.give(other, inbox.StatusDone)
	p := k.box(inbox.Options{Subscriber: k.tenant + "-p", MissingID: inbox.MissingPosition})
	p.give(anon, inbox.StatusDone)
	p.give(anon, inbox.StatusDuplicate)
	anon.Position = "t/0/2"
	p.give(anon, inbox.StatusDone)
	named := msg("t/0/2") // an id that reads like a position is another message
	p.give(named, inbox.StatusDone)
	anon.Position = ""
	p.give(anon, inbox.StatusParked)
}

func messageBreaker(k *K) {
	b := k.box(inbox.Options{ParkBreaker: 3})
	for range 2 {
		b.give(inbox.Message{Attempt: 1}, inbox.StatusParked)
	}
	b.give(msg("good"), inbox.StatusDone)
	for range 3 {
		b.give(inbox.Message{Attempt: 1}, inbox.StatusParked)
	}
	for _, m := range []inbox.Message{msg("next"), {Attempt: 1}} {
		out, err := b.Handle(k.ctx, m, b.work)
		if !errors.Is(err, inbox.ErrBreaker) || out.Ack || !strings.Contains(err.Error(), inbox.ReasonMissingID) {
			k.Errorf("%+v, %v", out, err)
		}
	}
	b.effects("next", 0)
}

func messageRunning(k *K) {
	for _, fail := range []bool{false, true} {
		b := k.box(inbox.Options{Subscriber: fmt.Sprint(k.tenant, fail)})
		running, end := make(chan struct{}), make(chan struct{})
		b.fails = func(context.Context, inbox.Message) error {
			if len(b.started()) > 1 {
				return nil
			}
			close(running)
			<-end
			if fail {
				return inbox.Later(0)
			}
			return nil
		}
		var all sync.WaitGroup
		all.Go(func() {
			if out, err := b.Handle(k.ctx, msg("a"), b.work); err != nil || !out.Ack {
				k.Errorf("the first: %+v, %v", out, err)
			}
		})
		<-running
		out := b.give(msg("a"), inbox.StatusRunning)
		if out.RetryIn <= 0 {
			k.Errorf("%+v", out)
		}
		close(end)
		all.Wait()
		if fail { // rolled back and stored: it runs from there
			b.give(msg("a"), inbox.StatusStored)
			b.once()
		}
		b.give(msg("a"), inbox.StatusDuplicate)
		b.effects("a", 1)
		b.settled()
	}
}

func messageResult(k *K) {
	b := k.box(inbox.Options{})
	res := idempo.Result{Status: 201, Header: [][2]string{{"a", "1"}}, Body: []byte{0, 0xff}, Resource: idempo.Resource{Type: "invoice", ID: "9"}}
	b.fails = func(ctx context.Context, m inbox.Message) error {
		inbox.SetResult(ctx, res)
		b.effects(m.ID, 0)
		return nil
	}
	if out := b.give(msg("a"), inbox.StatusDone); !out.Result.Equal(res) {
		k.Errorf("%+v", out)
	}
	if out := b.give(msg("a"), inbox.StatusDuplicate); !out.Result.Equal(res) {
		k.Errorf("%+v", out)
	}
	b.effects("a", 1)
}

func messagePut(k *K) {
	b := k.box(inbox.Options{})
	put := func(m inbox.Message, undo error) {
		err := k.inTx(func(in tx) error {
			if out, err := b.Put(in.ctx, m); err != nil || !out.Ack || out.Status != inbox.StatusStored {
				k.Errorf("%+v, %v", out, err)
			}
			return undo
		})
		if !errors.Is(err, undo) {
			k.Error(err)
		}
	}
	put(msg("a"), errUndo)
	b.settled()
	put(msg("a"), nil)
	put(msg("a"), nil)
	b.effects("a", 0)
	if n := b.once(); n != 1 {
		k.Errorf("%d ran", n)
	}
	b.effects("a", 1)
	put(msg("a"), nil)
	b.once()
	b.effects("a", 1)
	b.settled()
	// A start of the same message was counted, and its process vanished: Put stores it all the same.
	b.fails = func(context.Context, inbox.Message) error { runtime.Goexit(); return nil }
	m := msg("b")
	m.Attempt = 0
	vanish(func() { _, _ = b.Handle(k.ctx, m, b.work) })
	b.receipt(inbox.StatusStarted)
	b.fails = nil
	put(m, nil)
	if r := b.receipt(inbox.StatusStored); r.Attempts != 1 {
		k.Errorf("%+v", r)
	}
	b.once()
	b.effects("b", 1)
	b.settled()
}

func messageSkip(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(context.Context, inbox.Message) error { return fmt.Errorf("wrapped: %w", inbox.Skip("not ours")) }
	if out := b.give(msg("a"), inbox.StatusSkipped); out.Reason != "not ours" {
		k.Errorf("%+v", out)
	}
	b.effects("a", 0)
	if out := b.give(msg("a"), inbox.StatusDuplicate); !strings.Contains(out.Reason, "not ours") {
		k.Errorf("%+v", out)
	}
	redelivered := msg("b")
	redelivered.Attempt = 2
	b.give(redelivered, inbox.StatusSkipped)
	if n := len(b.started()); n != 2 {
		k.Errorf("%d starts", n)
	}
	b.settled()
}
