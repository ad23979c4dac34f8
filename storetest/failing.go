package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

func failureCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "inbox: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		c("[messages/I10] an error or panic after a partial effect", failurePartial),
		{name: "inbox: [messages/I10] a swallowed failed statement", needs: needTx | needEffect | needPoison, run: failureSwallowed},
		{name: "inbox: [messages/I12] the handler ends the transaction itself", needs: needTx | needEffect | needEnd, run: failureEnded},
		c("[messages/I13] conflicts are tried again in place, and are no attempts", failureConflict),
		c("[messages/I14] a COMMIT without an answer is not acknowledged; the redelivery decides", failureCommit),
		c("[messages/I15] a message that always fails is started MaxAttempts times, then dead", failureDead),
		c("[messages/I15] a message whose starts do not end is started MaxAttempts times, with or without the broker's count", failureKiller),
		c("[messages/I15] a stored message whose worker vanishes each time is dead in the end", failureWorker),
		c("Permanent is dead at once, Later comes back uncounted", failureWords),
		c("[messages/I16] dead ones are retried from 0, by id and by filter", failureRetry),
		c("[messages/I19] while the store is away nothing is acknowledged, and nothing is used up", failureAway),
		c("[messages/I33] leased: a doubt is held, probed, or run again with the same key", failureLeased),
	}
}

func failurePartial(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(_ context.Context, m inbox.Message) error {
		switch {
		case len(b.started()) > 2:
			return nil
		case m.ID == "panic":
			panic("secret cause")
		}
		return errBoom
	}
	for _, id := range []string{"error", "panic"} {
		b.mu.Lock()
		b.runs = nil
		b.mu.Unlock()
		out := b.give(msg(id), inbox.StatusRetrying)
		if out.Err == nil || id == "error" && !errors.Is(out.Err, errBoom) {
			k.Errorf("%+v", out)
		}
		b.effects(id, 0)
		b.give(msg(id), inbox.StatusRetrying) // the store has it: a copy is acknowledged, and does not run
		r := b.receipt(inbox.StatusRetrying)
		if r.Attempts != 1 || len(r.Failures) != 1 || r.Failures[0].At.IsZero() || r.NextAt.IsZero() {
			k.Errorf("%+v", r)
		}
		if id == "panic" && !strings.Contains(r.Failures[0].Error, "failing.go") {
			k.Errorf("no stack: %s", r.Failures[0].Error)
		}
		if b.once(); len(b.started()) != 3 {
			k.Errorf("%d starts", len(b.started()))
		}
		b.effects(id, 1)
		b.settled()
	}
}

func failureSwallowed(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(ctx context.Context, _ inbox.Message) error {
		if len(b.started()) == 1 {
			k.Poison(ctx)
		}
		return nil
	}
	b.give(msg("a"), inbox.StatusRetrying)
	b.effects("a", 0)
	if r := b.receipt(inbox.StatusRetrying); r.Attempts != 1 || len(r.Failures) != 1 {
		k.Errorf("%+v", r)
	}
	b.once()
	b.effects("a", 1)
	b.settled()
}

func failureEnded(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(ctx context.Context, _ inbox.Message) error { return k.End(ctx) }
	out := b.give(msg("a"), inbox.StatusDead)
	if !errors.Is(out.Err, inbox.ErrTxEnded) || codeOf(out.Err) != "tx_ended" {
		k.Errorf("%+v", out)
	}
	b.give(msg("a"), inbox.StatusDead)
	if n := b.once(); n != 0 || len(b.started()) != 1 {
		k.Errorf("%d ran again, %d starts", n, len(b.started()))
	}
	if n, err := k.Count(k.ctx, b.name(inbox.Message{Tenant: k.tenant, Source: "orders", ID: "a"})); err != nil || n > 1 {
		k.Errorf("%d effects, %v", n, err)
	}
}

func failureConflict(k *K) {
	b := k.box(inbox.Options{})
	b.fails = func(context.Context, inbox.Message) error {
		if len(b.started()) <= 3 {
			return fmt.Errorf("update: %w", &idempo.Error{Op: "test", Code: "tx_conflict"})
		}
		return nil
	}
	b.give(msg("a"), inbox.StatusDone)
	b.effects("a", 1)
	b.settled()
	b.fails = func(context.Context, inbox.Message) error { return &idempo.Error{Op: "test", Code: "tx_conflict"} }
	out, err := b.Handle(k.ctx, msg("b"), b.work)
	if err == nil || out.Ack || len(b.started()) > 4+6 {
		k.Errorf("conflicts without end: %+v, %v, %d starts", out, err, len(b.started()))
	}
	b.settled()
}

// lossy is a store whose InTx may lose the answer of its COMMIT, or be away.
type lossy struct {
	idempo.Store
	lose  atomic.Int64 // so many commits
	away  atomic.Bool
	after atomic.Bool // away once an answer was lost
}

func (l *lossy) Inbox() inbox.Store { return awayShelf{l.Store.(inbox.Opener).Inbox(), l} }

func (l *lossy) Joined(ctx context.Context) (tx, own bool, err error) {
	return l.Store.(idempo.Joiner).Joined(ctx)
}

func (l *lossy) InTx(ctx context.Context, fn func(context.Context) error) error {
	if l.away.Load() {
		return errAway()
	}
	err := l.Store.(idempo.Transactor).InTx(ctx, fn)
	if err == nil && l.lose.Add(-1) >= 0 {
		l.away.Store(l.after.Load())
		return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true}
	}
	return err
}

func errAway() error { return &idempo.Error{Op: "test", Code: "unavailable"} }

// awayShelf is the shelf of a store that may be away.
type awayShelf struct {
	inbox.Store
	l *lossy
}

func (a awayShelf) Put(ctx context.Context, p inbox.PutParams) (inbox.Stored, error) {
	if a.l.away.Load() {
		return inbox.Stored{}, errAway()
	}
	return a.Store.Put(ctx, p)
}

func failureCommit(k *K) {
	l := &lossy{Store: k.Store}
	b := k.boxOn(l, inbox.Options{})
	b.give(msg("first"), inbox.StatusDone)
	l.lose.Store(1)
	b.give(msg("a"), inbox.StatusDone) // asked and found: it did commit
	b.effects("a", 1)
	l.after.Store(true)
	l.lose.Store(1)
	out, err := b.Handle(k.ctx, msg("b"), b.work)
	if err == nil || out.Ack {
		k.Errorf("acknowledged without knowing: %+v, %v", out, err)
	}
	l.away.Store(false)
	b.give(msg("b"), inbox.StatusDuplicate)
	b.effects("b", 1)
	b.settled()
}

func failureDead(k *K) {
	for _, attempt := range []int{0, 1, 2} {
		b := k.box(inbox.Options{Subscriber: fmt.Sprint(k.tenant, attempt), MaxAttempts: 3})
		b.fails = failing(99)
		m := msg("a")
		m.Attempt = attempt
		b.give(m, inbox.StatusRetrying)
		for range 5 {
			b.once()
		}
		want := 3
		if attempt == 2 {
			want = 2 // its first start cannot be ruled out
		}
		r := b.receipt(inbox.StatusDead)
		if len(b.started()) != want || r.Attempts != 3 || r.Reason != inbox.ReasonAttempts || len(r.Failures) != 3 || !r.NextAt.IsZero() {
			k.Errorf("attempt %d: %d starts, %+v", attempt, len(b.started()), r)
		}
		for _, f := range r.Failures {
			if f.At.IsZero() || f.Error == "" {
				k.Errorf("%+v", f)
			}
		}
		b.give(m, inbox.StatusDead)
		b.effects("a", 0)
	}
}

// vanish runs f in a goroutine that a Goexit in it ends, as far as the store can see: the transaction is over, and nobody
// writes what came of it. A killed process is played by internal/storecheck/crash.
func vanish(f func()) {
	var all sync.WaitGroup
	all.Go(f)
	all.Wait()
}

func failureKiller(k *K) {
	for _, counts := range []bool{true, false} {
		o := inbox.Options{Subscriber: fmt.Sprint(k.tenant, counts), MaxAttempts: 3}
		b := k.box(o)
		b.fails = func(context.Context, inbox.Message) error { runtime.Goexit(); return nil }
		var out inbox.Outcome
		for delivery := 1; delivery <= 6 && !out.Ack; delivery++ {
			b.Inbox = k.box(o).Inbox // another process
			m := msg("a")
			if m.Attempt = 0; counts {
				m.Attempt = delivery
			}
			vanish(func() {
				var err error
				out, err = b.Handle(k.ctx, m, b.work)
				k.ok(err)
			})
		}
		r := b.receipt(inbox.StatusDead)
		if len(b.started()) != 3 || out.Status != inbox.StatusDead || r.Reason != inbox.ReasonAttempts || r.Attempts != 3 || len(r.Failures) != 3 {
			k.Errorf("counts %v: %d starts, %+v, %+v", counts, len(b.started()), out, r)
		}
		b.effects("a", 0)
		b.fails = nil
		b.give(msg("other"), inbox.StatusDone)
	}
}

func failureWorker(k *K) {
	o := inbox.Options{MaxAttempts: 3, Lease: 1}
	b := k.box(o)
	_, err := b.Put(k.ctx, msg("a"))
	k.ok(err)
	b.fails = func(context.Context, inbox.Message) error { runtime.Goexit(); return nil }
	for range 6 {
		vanish(func() { _, _ = b.Once(k.ctx, b.work) })
	}
	b.once()
	r := b.receipt(inbox.StatusDead)
	if len(b.started()) != 3 || r.Attempts != 3 || len(r.Failures) != 3 {
		k.Errorf("%d starts, %+v", len(b.started()), r)
	}
}

func failureWords(k *K) {
	b := k.box(inbox.Options{MaxAttempts: 2})
	b.fails = func(context.Context, inbox.Message) error { return inbox.Permanent(errBoom) }
	if out := b.give(msg("a"), inbox.StatusDead); out.Reason != inbox.ReasonPermanent || !errors.Is(out.Err, errBoom) {
		k.Errorf("%+v", out)
	}
	c, err := b.Discard(k.ctx, inbox.Selection{})
	if k.ok(err); c.OK != 1 {
		k.Errorf("%+v", c)
	}
	n := 0
	b.fails = func(context.Context, inbox.Message) error {
		if n++; n <= 5 {
			return inbox.Later(0)
		}
		return nil
	}
	if out := b.give(msg("b"), inbox.StatusStored); out.Reason != inbox.ReasonLater {
		k.Errorf("%+v", out)
	}
	if r := b.receipt(inbox.StatusStored); r.Attempts != 0 {
		k.Errorf("counted: %+v", r)
	}
	for range 6 {
		b.once()
	}
	b.effects("b", 1)
	b.settled()
}

func failureRetry(k *K) {
	b := k.box(inbox.Options{MaxAttempts: 1})
	b.fails = failing(99)
	for _, id := range []string{"a", "b", "c"} {
		b.give(msg(id), inbox.StatusDead)
	}
	rs := b.receipts()
	b.fails = nil
	b.give(msg("done"), inbox.StatusDone)
	c, err := b.Retry(k.ctx, inbox.Selection{IDs: []int64{rs[0].Seq, 1 << 40}}, false)
	if k.ok(err); c.OK != 1 || c.Failed != 1 || len(c.Notes) != 1 {
		k.Errorf("%+v", c)
	}
	b.give(msg("a"), inbox.StatusStored) // a copy meanwhile
	c, err = b.Retry(k.ctx, inbox.Selection{IDs: []int64{rs[0].Seq}}, false)
	if k.ok(err); c.OK != 0 || c.Failed != 1 {
		k.Errorf("retried twice: %+v", c)
	}
	b.once()
	b.effects("a", 1)
	b.effects("b", 0)
	c, err = b.Retry(k.ctx, inbox.Selection{Statuses: []inbox.Status{inbox.StatusDead}}, false)
	if k.ok(err); c.OK != 2 || c.Failed != 0 {
		k.Errorf("%+v", c)
	}
	b.once()
	for _, id := range []string{"a", "b", "c"} {
		b.effects(id, 1)
		b.give(msg(id), inbox.StatusDuplicate)
	}
	b.settled()
}

func failureAway(k *K) {
	l := &lossy{Store: k.Store}
	b := k.boxOn(l, inbox.Options{MaxAttempts: 2})
	b.give(msg("first"), inbox.StatusDone)
	l.away.Store(true)
	for attempt := range 5 {
		m := msg("a")
		m.Attempt = attempt
		if out, err := b.Handle(k.ctx, m, b.work); err == nil || out.Ack {
			k.Errorf("%+v, %v", out, err)
		}
	}
	l.away.Store(false)
	// Away when a failure is to be stored.
	b.fails = func(context.Context, inbox.Message) error { l.away.Store(true); return errBoom }
	m := msg("a")
	m.Attempt = 2
	if out, err := b.Handle(k.ctx, m, b.work); err == nil || out.Ack {
		k.Errorf("a failure that could not be stored: %+v, %v", out, err)
	}
	l.away.Store(false)
	m.Attempt = 3
	b.give(m, inbox.StatusDead) // that start did happen
	b.fails = nil
	m = msg("b")
	m.Attempt = 3
	b.give(m, inbox.StatusDone)
	b.effects("b", 1)
}

func failureLeased(k *K) {
	var keys []string
	o := inbox.Options{Guard: idempo.GuardLeased, BackoffMax: time.Nanosecond}
	give := func(b *box, want inbox.Status, f inbox.Handler) inbox.Outcome {
		k.Helper()
		out, err := b.HandleLeased(k.ctx, msg("a"), f)
		if err != nil || out.Status != want {
			k.Errorf("%+v, %v; want %s", out, err, want)
		}
		return out
	}
	work := func(err error) inbox.Handler {
		return func(ctx context.Context, _ inbox.Message) error {
			keys = append(keys, idempo.FromContext(ctx).Derive(""))
			return err
		}
	}
	hold := k.box(o)
	give(hold, inbox.StatusInDoubt, work(errBoom))
	give(hold, inbox.StatusInDoubt, work(nil))
	if len(keys) != 1 {
		k.Errorf("a doubt ran again: %d starts", len(keys))
	}
	o.Subscriber = k.tenant + "-known"
	known := k.box(o)
	give(known, inbox.StatusRetrying, work(idempo.NothingHappened(errBoom)))
	if _, err := known.Once(k.ctx, work(nil)); err != nil || len(keys) != 3 || keys[1] != keys[2] {
		k.Errorf("%v, keys %q", err, keys)
	}
	give(known, inbox.StatusDuplicate, work(nil))
	o.Subscriber, o.OnCrash, o.DownstreamHonoursKey = k.tenant+"-rerun", idempo.OnCrashRerun, true
	rerun := k.box(o)
	keys = nil
	give(rerun, inbox.StatusInDoubt, work(errBoom))
	if _, err := rerun.Once(k.ctx, work(nil)); err != nil || len(keys) != 2 || keys[0] != keys[1] {
		k.Errorf("rerun: %v, keys %q", err, keys)
	}
	rerun.settled()
	o.Subscriber, o.OnCrash, o.DownstreamHonoursKey = k.tenant+"-probe", idempo.OnCrashProbe, false
	asked := 0
	o.ProbeFunc = func(context.Context, idempo.Record) (idempo.State, idempo.Result, error) {
		asked++
		return idempo.StateCompleted, idempo.Result{}, nil
	}
	probe := k.box(o)
	keys = nil
	give(probe, inbox.StatusInDoubt, work(errBoom))
	if len(keys) != 1 {
		k.Errorf("%q", keys)
	}
}
