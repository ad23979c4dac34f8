package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/outbox"
)

// claimCases are about events that are appended inside a claim: they share its transaction.
func claimCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "claim: " + name, needs: needTx, run: run}
	}
	return []testCase{
		c("an event if and only if the claim's writes committed: replay, mismatch, rollback, release and a kept failure append nothing", claimEvents),
		c("a message whose handler appends: an event once, however often it is delivered or fails first", claimMessages),
		c("an event tells the key reference of its claim and the correlation, never the key", claimCause),
	}
}

// claiming is the atomic operation of these cases.
func (k *K) claiming() *idempo.Engine {
	return k.engine(k.Store, idempo.Config{}, idempo.Operation{Name: "pay-and-tell", Guard: idempo.GuardAtomic})
}

func (p *post) paying(id, input string) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: p.tenant, Operation: "pay-and-tell", ID: id}, Input: [][]byte{[]byte(input)}}
}

func claimEvents(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	e := k.claiming()
	do := func(id, input string, work func(ctx context.Context, c *idempo.Claim) (idempo.Result, error)) (idempo.Begun, error) {
		return e.Do(k.ctx, p.paying(id, input), func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
			if _, err := p.box.Append(ctx, p.event("of "+id, id)); err != nil {
				return idempo.Result{}, err
			}
			return work(ctx, c)
		})
	}
	good := func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{Status: 201}, nil }
	for range 3 { // run, replay, replay
		_, err := do("a", "1", good)
		k.ok(err)
	}
	if b, err := do("a", "2", good); b.Verdict != idempo.VerdictMismatch {
		k.Errorf("another body: %s, %v", b.Verdict, err)
	}
	if _, err := do("b", "1", func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, errUndo }); !errors.Is(err, errUndo) {
		k.Errorf("work that fails: %v", err)
	}
	_, _ = do("c", "1", func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		return idempo.Result{}, errors.Join(c.Release(ctx, "not now"), errUndo)
	})
	b, err := do("d", "1", func(context.Context, *idempo.Claim) (idempo.Result, error) {
		return idempo.Result{Status: 422, Failing: true}, nil
	})
	if err != nil || b.Record.Result.Status != 422 {
		k.Errorf("a kept failure: %+v, %v", b, err)
	}
	_, err = do("e", "1", func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) { // a copy comes while the first runs
		if b, _ := e.Do(context.WithoutCancel(k.ctx), p.paying("e", "1"), good); b.Verdict == idempo.VerdictRun {
			k.Error("a copy ran beside the first")
		}
		return idempo.Result{Status: 201}, nil
	})
	k.ok(err)
	_, err = do("b", "1", good)
	k.ok(err)
	p.append(p.event("end", "end"))
	got := deliveries(p.published(4))
	slices.Sort(got)
	k.wants("published", got, "end", "of a", "of b", "of e")
}

func claimMessages(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	b := k.box(inbox.Options{})
	fails := failing(2)
	handle := func(ctx context.Context, m inbox.Message) error {
		if _, err := p.box.Append(ctx, p.event("of "+m.ID, m.ID)); err != nil {
			return err
		}
		return fails(ctx, m)
	}
	for range 3 {
		for i := range 4 {
			_, err := b.Handle(k.ctx, msg(fmt.Sprint("m-", i)), handle)
			k.ok(err)
		}
	}
	_, err := b.Once(k.ctx, handle)
	k.ok(err)
	k.until("all handled", func() bool {
		_, err := b.Once(k.ctx, handle)
		k.ok(err)
		return len(b.receipts()) == 0
	})
	p.append(p.event("end", "end"))
	got := deliveries(p.published(5))
	slices.Sort(got)
	k.wants("published", got, "end", "of m-0", "of m-1", "of m-2", "of m-3")
}

func claimCause(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	var ref string
	e := k.claiming()
	work := func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		ref = c.Ref()
		_, err := p.box.Append(ctx, p.event("of the claim", "k"))
		return idempo.Result{Status: 201}, err
	}
	_, err := e.Do(k.ctx, p.paying("secret-key-7", "1"), work)
	k.ok(err)
	d := p.published(1)[0]
	if ref == "" || d.Trace.KeyRef != ref || d.Trace.Correlation != ref || !slices.Contains(d.Attributes(), [2]string{"keyref", ref}) ||
		!slices.Contains(d.Extra(), [2]string{"correlation-id", ref}) {
		k.Errorf("caused by %s: %+v, %q, %q", ref, d.Trace, d.Attributes(), d.Extra())
	}
	for _, h := range append(d.Attributes(), d.Extra()...) {
		if h[1] == "secret-key-7" {
			k.Errorf("the key itself is in %s", h[0])
		}
	}
	p.box = k.boxFor(outbox.Options{CorrelationFunc: func(context.Context) string { return "order 81" }})
	_, err = e.Do(k.ctx, p.paying("another", "1"), work)
	k.ok(err)
	if d = p.published(2)[1]; d.Trace.KeyRef != ref || d.Trace.Correlation != "order 81" {
		k.Errorf("with a correlation of the caller's: %+v", d.Trace)
	}
	l, err := p.desk().List(k.ctx, outbox.ListParams{Group: p.group, KeyRef: ref})
	if err != nil || len(l.Events) != 1 || l.Events[0].ID != d.ID {
		k.Errorf("found by its cause: %+v, %v", l.Events, err)
	}
}
