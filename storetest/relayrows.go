package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo/internal/pubrec"
	"github.com/idempo/idempo/outbox"
)

// relayCases are the rows of page messages that relays over any store keep.
func relayCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needTx, run: run} }
	env := c("a relay of another environment publishes nothing", relayEnvironment)
	env.alone = true
	return []testCase{
		c("[messages/RL2] stopped in the middle, answers out of order: what is not stored goes out again, nothing is passed over", relayStopped),
		c("relays come, leave and die: nothing is lost, each key in order", relayCrowd),
		c("a relay that lost its partitions writes nothing more, first appearances stay in order", relayFrozen),
		c("[messages/RL7] a dead head: retried, or skipped, then those behind it in order; bulk; pause and resume", relayDead),
		c("[messages/RL8] an event that kills its relay is dead in the end, the others go out", relayKiller),
		c("[messages/RL9] a publisher that panics, never answers, answers twice or late", relayMisbehaved),
		c("refused for ever: one dead row each with reason and attempts, all others go on", relayPoison),
		c("[messages/RL15] two groups are independent; a second one says where it begins", relayGroups),
		c("[messages/RL24] relays in every replica, woken in process, end with their context", relayReplicas),
		c("once: drains what is there and counts what is left", relayOnce),
		env,
	}
}

func relayStopped(k *K) {
	p := k.post()
	var events []outbox.Event
	for i := range 60 {
		events = append(events, p.event(fmt.Sprint(i), fmt.Sprint("k", i%20)))
	}
	p.append(events...)
	// Of the first answers every third is held back: a prefix is done, and much behind it.
	first := &pubrec.Publisher{Hold: func(d outbox.Delivery) bool { return d.Key == "k3" || d.Key == "k10" }}
	run := p.relay(k.Store, first, outbox.RelayOptions{DrainTimeout: 50 * time.Millisecond})
	k.ok(first.Wait(k.ctx, func() bool { return len(first.Done()) == 54 && len(first.Held()) == 2 }))
	run.stop()
	k.ok(run.ended())
	if left := p.list(outbox.StatePending, outbox.StateWaiting); !slices.ContainsFunc(left, func(a outbox.Aside) bool { return a.Key == "k3" }) {
		k.Errorf("what was never answered is not pending: %q", asideNames(left))
	}
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	k.ok(p.pub.Wait(k.ctx, func() bool {
		got := perKey(p.pub.First())
		return len(got["k3"]) == 3 && len(got["k10"]) == 3
	}))
	all := perKey(append(first.First(), p.pub.First()...))
	for i := range 20 {
		key := fmt.Sprint("k", i)
		var seen []string
		for _, name := range all[key] {
			if !slices.Contains(seen, name) {
				seen = append(seen, name)
			}
		}
		k.wants(key, seen, fmt.Sprint(i), fmt.Sprint(i+20), fmt.Sprint(i+40))
	}
	repeats := 0
	ids := map[string]string{}
	for _, d := range append(first.Sent(), p.pub.Sent()...) {
		if id, ok := ids[string(d.Payload)]; ok {
			if repeats++; id != d.ID {
				k.Errorf("%s went out with two ids", d.Payload)
			}
		}
		ids[string(d.Payload)] = d.ID
	}
	if repeats < 2 {
		k.Errorf("void: %d repeats", repeats)
	}
	k.until("the end of the backlog", func() bool { return len(p.list(outbox.StatePending, outbox.StateWaiting)) == 0 })
}

func relayCrowd(k *K) {
	p := k.post()
	o := outbox.RelayOptions{Lease: 600 * time.Millisecond, Renew: 100 * time.Millisecond, BatchRows: 50, MaxInFlight: 50, MaxAttempts: 1000} // each death counts as a start
	slow := func(ctx context.Context, d outbox.Delivery) error {
		if rand.N(20) == 0 {
			return outbox.Unanswered(errors.New("lost"))
		}
		return nil
	}
	p.pub.Answer = slow
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch i % 3 {
			case 0: // one dies
				kill := p.doomed(p.pub, o)
				k.until("something of it", p.more(stop))
				kill()
			case 1: // one leaves
				r := p.relay(k.Again, p.pub, o)
				k.until("something of it", p.more(stop))
				r.stop()
				k.ok(r.ended())
			default: // two stay for a while
				a, b := p.relay(k.Store, p.pub, o), p.relay(k.Again, p.pub, o)
				k.until("something of them", p.more(stop))
				a.stop()
				k.until("something of the other", p.more(stop))
				b.stop()
			}
		}
	})
	want := map[string][]string{}
	const n = 300
	for i := range n {
		key := fmt.Sprint("k", i%12)
		p.append(p.event(fmt.Sprint(i), key))
		want[key] = append(want[key], fmt.Sprint(i))
	}
	p.published(n)
	close(stop)
	stay := p.relay(k.Store, p.pub, o)
	all.Wait()
	k.until("the end of the backlog", func() bool {
		return len(p.list(outbox.StatePending, outbox.StateQueued, outbox.StateWaiting, outbox.StateDead)) == 0
	})
	stay.stop()
	got := perKey(p.pub.First())
	for key, names := range want {
		k.wants(key, got[key], names...)
	}
	if repeats := len(p.pub.Sent()) - len(p.pub.First()); repeats == 0 {
		k.Error("void: nothing went out twice")
	}
}

// more returns a condition that is true once something was sent after the call, or over is closed: nothing more comes.
func (p *post) more(over <-chan struct{}) func() bool {
	n := len(p.pub.Sent())
	return func() bool {
		select {
		case <-over:
			return true
		default:
			return len(p.pub.Sent()) > n
		}
	}
}

func relayFrozen(k *K) {
	p := k.post()
	m := mortal{p.Store, &atomic.Bool{}}
	o := outbox.RelayOptions{Lease: 600 * time.Millisecond, Renew: 100 * time.Millisecond, DrainTimeout: time.Millisecond}
	frozen := &pubrec.Publisher{Hold: func(outbox.Delivery) bool { return true }}
	run := p.relay(m, frozen, o)
	for i := range 20 {
		p.append(p.event(fmt.Sprint(i), fmt.Sprint("k", i%5)))
	}
	k.ok(frozen.Wait(k.ctx, func() bool { return len(frozen.Held()) == 5 }))
	m.dead.Store(true) // nothing of it gets through, while its lease runs out
	p.relay(k.Again, p.pub, outbox.RelayOptions{})
	p.published(20)
	m.dead.Store(false) // it wakes up, and its answers come
	frozen.Release(nil)
	k.until("the frozen relay to hear of it", func() bool { return run.Status().InFlight == 0 && run.Status().Err == nil })
	for i := range 20 {
		p.append(p.event(fmt.Sprint("later", i), fmt.Sprint("k", i%5)))
	}
	run.stop()
	k.ok(run.ended())
	got := perKey(append(p.published(20), frozen.First()...))
	for i := range 5 {
		var first []string
		for _, name := range got[fmt.Sprint("k", i)] {
			if !slices.Contains(first, name) && !strings.HasPrefix(name, "later") {
				first = append(first, name)
			}
		}
		k.wants(fmt.Sprint("key k", i), first, fmt.Sprint(i), fmt.Sprint(i+5), fmt.Sprint(i+10), fmt.Sprint(i+15))
	}
}

// change changes all targets.
func (p *post) change(action string, all ...outbox.Aside) {
	p.Helper()
	c := outbox.ChangeParams{Group: p.group, Action: action, Audit: who()}
	for _, a := range all {
		c.Targets = append(c.Targets, outbox.Target{Seq: a.Seq, State: a.State, Attempts: a.Attempts})
	}
	done, err := p.desk().Change(p.ctx, c)
	p.ok(err)
	for _, o := range done.Outcomes {
		if o.Code != "" {
			p.Errorf("%s: %+v", action, o)
		}
	}
}

func relayDead(k *K) {
	p := k.post()
	var well atomic.Bool
	bad := func(d outbox.Delivery) bool { return strings.HasSuffix(string(d.Payload), "bad") }
	p.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
		if bad(d) && !well.Load() {
			return outbox.Refused(errors.New("it smells"))
		}
		return nil
	}
	run := p.relay(k.Store, p.pub, outbox.RelayOptions{})
	for _, key := range []string{"a", "b", "c", "d"} {
		p.append(p.event(key+"1", key), p.event(key+"2bad", key), p.event(key+"3", key), p.event(key+"4", key))
	}
	p.append(p.event("free", "e"))
	var dead []outbox.Aside
	k.until("four dead heads", func() bool {
		dead = p.list(outbox.StateDead)
		return len(dead) == 4 && len(p.list(outbox.StateQueued)) == 8
	})
	p.published(5)
	if got := perKey(p.pub.First()); len(got["a"]) != 1 || len(got["e"]) != 1 {
		k.Errorf("behind dead heads: %v", got)
	}
	if s := p.status(); s.Dead != 4 || s.BlockedKeys != 4 || len(s.Holders) == 0 || s.Holders[0].Kind != "dead" {
		k.Errorf("status %+v", s)
	}
	ids := map[string]string{}
	for _, a := range dead {
		ids[a.Key] = a.ID
		if a.Attempts != 1 || a.LastError != "it smells" || a.Class != outbox.ClassRefused {
			k.Errorf("dead: %+v", a)
		}
	}
	p.change(outbox.ActionSkip, dead[0])
	p.await("what is behind a skipped head", func() bool { return slices.Contains(deliveries(p.pub.First()), dead[0].Key+"4") })
	well.Store(true)
	p.change(outbox.ActionRetry, dead[1:]...)
	p.published(5 + 2 + 9)
	got := perKey(p.pub.First())
	for _, a := range dead {
		want := []string{a.Key + "1", a.Key + "2bad", a.Key + "3", a.Key + "4"}
		if a.Key == dead[0].Key {
			want = slices.Delete(want, 1, 2)
		}
		k.wants("key "+a.Key, got[a.Key], want...)
	}
	for _, d := range p.pub.Done() {
		if bad(d) && (d.Replay == "" || d.BrokerID == d.ID || d.ID != ids[d.Key] || !slices.Contains(d.Extra(), [2]string{"idempo-replay", d.Replay})) {
			k.Errorf("retried by a person: %+v", d)
		}
	}
	p.pauses(run)
}

// pauses looks at a pause of the group, which a new relay keeps as well, and of a topic.
func (p *post) pauses(first *running) {
	p.Helper()
	set := func(action string, topics ...string) {
		p.Helper()
		_, err := p.desk().SetGroup(p.ctx, outbox.GroupParams{Group: p.group, Action: action, Topics: topics, Audit: who()})
		p.ok(err)
	}
	r := p.relay(p.Again, p.pub, outbox.RelayOptions{})
	n := len(p.pub.First())
	set(outbox.GroupPause)
	p.until("the pause", func() bool {
		return r.Status().State == outbox.RelayPaused && first.Status().State == outbox.RelayPaused
	})
	p.append(p.event("paused", "p"))
	restarted := p.relay(p.Again, p.pub, outbox.RelayOptions{})
	p.until("the pause after a restart", func() bool { return restarted.Status().State == outbox.RelayPaused })
	if got := len(p.pub.First()); got != n {
		p.Errorf("%d events went out in a pause", got-n)
	}
	set(outbox.GroupResume)
	p.published(n + 1)
	set(outbox.GroupPause, p.topic+".x")
	p.until("the pause of a topic", func() bool {
		return len(r.Status().Paused) == 1 && len(first.Status().Paused) == 1 && len(restarted.Status().Paused) == 1
	})
	one := p.event("of a paused topic", "q")
	one.Topic += ".x"
	p.append(one)
	p.append(p.event("behind it", "q"), p.event("of another key", "r"))
	p.published(n + 2)
	p.until("what waits for the topic", func() bool { return len(p.list(outbox.StateQueued)) == 2 })
	set(outbox.GroupResume, p.topic+".x")
	p.wants("resumed", perKey(p.published(n + 4))["q"], "of a paused topic", "behind it")
}

func relayKiller(k *K) {
	p := k.post()
	for i := range 10 {
		p.append(p.event(fmt.Sprint(i), fmt.Sprint("k", i%3)))
	}
	p.append(p.event("poison", "k1"), p.event("behind", "k1"), p.event("else", "k9"))
	deaths := 0
	for ; deaths < 40; deaths++ {
		m := mortal{p.Store, &atomic.Bool{}}
		killed := make(chan struct{})
		var once sync.Once
		f := &killer{p.pub, func() { m.dead.Store(true); once.Do(func() { close(killed) }) }}
		r := p.relay(m, f, outbox.RelayOptions{MaxAttempts: 4, Lease: 600 * time.Millisecond, Renew: 100 * time.Millisecond, DrainTimeout: time.Millisecond, MaxPoll: 5 * time.Millisecond})
		over := false
		for !over {
			select {
			case <-killed:
				over = true
			case <-time.After(5 * time.Millisecond):
				over = len(p.list(outbox.StateDead)) == 1 && len(p.pub.First()) == 11
			}
		}
		select {
		case <-killed:
			r.stop()
			k.ok(r.ended())
			continue
		default:
		}
		break
	}
	dead := p.list(outbox.StateDead)
	if len(dead) != 1 || string(dead[0].Payload) != "poison" || dead[0].LastError == "" || deaths < 4 || deaths > 15 {
		k.Fatalf("after %d deaths: %+v", deaths, dead)
	}
	got := perKey(p.pub.First())
	k.wants("k0", got["k0"], "0", "3", "6", "9")
	k.wants("k1", got["k1"], "1", "4", "7")
	k.wants("k9", got["k9"], "else")
	p.change(outbox.ActionSkip, dead[0])
	k.wants("behind it", perKey(p.published(12))["k1"], "1", "4", "7", "behind")
}

func relayMisbehaved(k *K) {
	p := k.post()
	f := &rude{Publisher: p.pub, tries: map[string]int{}}
	r := p.relay(k.Store, f, outbox.RelayOptions{PublishTimeout: 50 * time.Millisecond})
	for i, name := range []string{"panics", "never", "twice", "good"} {
		p.append(p.event(name, fmt.Sprint("k", i)), p.event(name+" behind", fmt.Sprint("k", i)))
	}
	p.published(8)
	got := perKey(p.pub.First())
	for i, name := range []string{"panics", "never", "twice", "good"} {
		k.wants(name, got[fmt.Sprint("k", i)], name, name+" behind")
	}
	k.until("the end of the backlog", func() bool {
		return len(p.list(outbox.StatePending, outbox.StateQueued, outbox.StateWaiting, outbox.StateDead)) == 0
	})
	r.stop()
	k.ok(r.ended())
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, say := range f.late {
		say() // after the end
	}
	if f.tries["panics"] != 4 || f.tries["never"] != 2 || f.tries["twice"] != 1 || len(f.late) != 1 {
		k.Errorf("tries: %v", f.tries)
	}
}

func relayPoison(k *K) {
	p := k.post()
	poison := func(d outbox.Delivery) bool { return strings.HasPrefix(d.Key, "p") }
	p.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
		if poison(d) {
			return fmt.Errorf("no %s", d.Key)
		}
		return nil
	}
	p.relay(k.Store, p.pub, outbox.RelayOptions{MaxAttempts: 3})
	for i := range 20 {
		p.append(p.event(fmt.Sprint("p", i), fmt.Sprint("p", i)), p.event(fmt.Sprint("p", i, "+"), fmt.Sprint("p", i)), p.event(fmt.Sprint(i), fmt.Sprint("k", i%4)))
	}
	p.published(20)
	k.until("20 dead heads", func() bool { return len(p.list(outbox.StateDead)) == 20 })
	for _, a := range p.list(outbox.StateDead) {
		if a.Attempts != 3 || a.LastError != "no "+a.Key || a.FirstError != "no "+a.Key || string(a.Payload) != a.Key {
			k.Errorf("dead: %+v", a)
		}
	}
	if n := len(p.list(outbox.StateQueued)); n != 20 {
		k.Errorf("%d wait behind them", n)
	}
	tries := map[string]int{}
	for _, d := range p.pub.Sent() {
		tries[string(d.Payload)]++
	}
	for i := range 20 {
		if n := tries[fmt.Sprint("p", i)]; n != 3 {
			k.Errorf("p%d was tried %d times", i, n)
		}
	}
	on := k.post() // the same with OnDead: continue
	on.pub.Answer = p.pub.Answer
	on.relay(k.Store, on.pub, outbox.RelayOptions{MaxAttempts: 2, OnDead: outbox.OnDeadContinue})
	for i := range 3 {
		on.append(on.event(fmt.Sprint("p", i), "p"))
	}
	k.until("three dead", func() bool { return len(on.list(outbox.StateDead)) == 3 })
	if s := on.status(); s.BlockedKeys != 0 {
		k.Errorf("status %+v", s)
	}
}

func relayGroups(k *K) {
	p := k.post()
	p.relay(k.Store, p.pub, outbox.RelayOptions{})
	p.append(p.event("1", "k"))
	p.published(1)
	o := p.options(outbox.RelayOptions{})
	o.Group = p.group + "-b"
	second := &pubrec.Publisher{}
	r, err := outbox.NewRelay(k.Store, second, o)
	k.ok(err)
	if err := r.Run(k.ctx); !errors.Is(err, outbox.ErrFrom) || len(second.Sent()) > 0 {
		k.Fatalf("a second group that does not say where it begins: %v", err)
	}
	var stops []func()
	for group, from := range map[string]string{"-old": outbox.FromBeginning, "-new": outbox.FromNow} {
		q := *p
		q.pub = &pubrec.Publisher{Hold: func(d outbox.Delivery) bool { return group == "-old" && string(d.Payload) == "3" }}
		o := p.options(outbox.RelayOptions{From: from})
		o.Group = p.group + group
		r, err := outbox.NewRelay(k.Store, q.pub, o)
		k.ok(err)
		ctx, cancel := context.WithCancel(k.ctx)
		end := make(chan error, 1)
		go func() { end <- r.Run(ctx) }()
		k.until("its start", func() bool { return r.Status().Partitions > 0 })
		stops = append(stops, func() {
			want := []string{"1", "2"}
			if from == outbox.FromNow {
				want = []string{"2", "3"}
			}
			k.ok(q.pub.Wait(k.ctx, func() bool { return len(q.pub.First()) >= 2 }))
			k.wants("from "+from, deliveries(q.pub.First()), want...)
			q.pub.Release(nil)
			cancel()
			k.ok(<-end)
		})
	}
	p.append(p.event("2", "k"), p.event("3", "k"))
	k.wants("the first group", deliveries(p.published(3)), "1", "2", "3")
	for _, stop := range stops {
		stop()
	}
}

func relayReplicas(k *K) {
	p := k.post()
	var runs []*running
	for i := range 4 {
		s := k.Store
		if i%2 == 1 {
			s = k.Again
		}
		runs = append(runs, p.relay(s, p.pub, outbox.RelayOptions{MaxPoll: time.Minute, MinPoll: time.Minute, Renew: 100 * time.Millisecond}))
	}
	k.until("all of them", func() bool { return len(p.status().Relays) == 4 })
	k.until("a fair share", func() bool {
		most, all := 0, 0
		for _, r := range runs {
			n := r.Status().Partitions
			most, all = max(most, n), all+n
		}
		return all == outbox.Partitions && most == outbox.Partitions/4 || all == 1
	})
	for i := range 100 { // each Do wakes the relays of this process; they look by themselves once a minute only
		p.append(p.event(fmt.Sprint(i), fmt.Sprint("k", i%10)))
	}
	got := perKey(p.published(100))
	for i := range 10 {
		var want []string
		for j := i; j < 100; j += 10 {
			want = append(want, fmt.Sprint(j))
		}
		k.wants(fmt.Sprint("k", i), got[fmt.Sprint("k", i)], want...)
	}
	if n := len(p.pub.Sent()); n != 100 {
		k.Errorf("%d sends of 100 events", n)
	}
	for _, r := range runs {
		r.stop()
		k.ok(r.ended())
		if s := r.Status(); s.State != outbox.RelayStopped {
			k.Errorf("after the end: %+v", s)
		}
	}
}

func relayOnce(k *K) {
	p := k.post()
	p.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
		switch d.Key {
		case "dead":
			return outbox.Refused(errors.New("no"))
		case "lost":
			return outbox.NoRoute(errors.New("nobody"))
		}
		return nil
	}
	for i := range 500 {
		p.append(p.event(fmt.Sprint(i), fmt.Sprint("k", i%7)))
	}
	r, err := outbox.NewRelay(k.Store, p.pub, p.options(outbox.RelayOptions{BatchRows: 100, BackoffMax: time.Hour, BackoffBase: time.Hour}))
	k.ok(err)
	if left, err := r.Once(k.ctx); err != nil || left != (outbox.Left{}) || len(p.pub.First()) != 500 {
		k.Fatalf("once: %+v, %v, %d published", left, err, len(p.pub.First()))
	}
	p.append(p.event("a", "dead"), p.event("b", "lost"), p.event("c", "k"))
	if left, err := r.Once(k.ctx); err != nil || left != (outbox.Left{Waiting: 1, Dead: 1}) || len(p.pub.First()) != 501 {
		k.Errorf("with what cannot go: %+v, %v, %d published", left, err, len(p.pub.First()))
	}
}

func relayEnvironment(k *K) {
	p := k.post()
	run := p.relay(k.Store, p.pub, outbox.RelayOptions{Environment: "production"})
	p.append(p.event("1", "k"))
	p.published(1)
	other := &pubrec.Publisher{}
	r, err := outbox.NewRelay(k.Again, other, p.options(outbox.RelayOptions{Environment: "staging"}))
	k.ok(err)
	if err := r.Run(k.ctx); !errors.Is(err, outbox.ErrEnvironment) || !strings.Contains(err.Error(), "database says production, this relay says staging: nothing was published") || len(other.Sent()) > 0 {
		k.Errorf("in a clone: %v", err)
	}
	run.stop()
	k.ok(run.ended())
}
