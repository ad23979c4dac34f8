package storetest

import (
	"sync"
	"time"

	"github.com/idempo/idempo"
)

func takeCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needTake, run: run} }
	return []testCase{
		{name: "[stores/E22] Enqueue: pending, lapsed, not started, due at its time", run: enqueue},
		c("[stores/E22] Take leases what is due, and no other", takeDue),
		c("[stores/E22] Take keeps to its operations and its limit, the longest due first", takeLimits),
		c("[stores/E22] a taken record is held; its taker may complete, its vanished taker's is due again", takeThenVanish),
		c("[stores/T8] Take hands out what must be probed, and what nobody may run again not", takeProbes),
		c("[stores/L5] any number of takers: nobody gets the same record", takeTogether),
	}
}

// enqueued returns the params of a record of its own operation, due at the given time.
func (k *K) enqueued(operation string, due time.Time) idempo.AcquireParams {
	p := k.claim(k.key())
	p.Key.Operation, p.Due, p.StartMark = operation, due, true
	return p
}

func (k *K) take(operation string, limit int, at time.Time) ([]idempo.Record, idempo.Token) {
	k.Helper()
	p := idempo.TakeParams{Operations: []string{"never-" + operation, operation}, Limit: limit, Token: k.token(), Lease: lease, Owner: "worker-1", Now: at}
	got, err := k.Store.(idempo.Taker).Take(k.ctx, p)
	k.ok(err)
	for _, r := range got {
		if r.State != idempo.StatePending || r.Token != p.Token || r.Owner != p.Owner || !r.LeaseUntil.Equal(at.Add(lease)) || !r.ClaimedAt.Equal(at) {
			k.Errorf("taken as %+v", r)
		}
		k.same("the row", k.look(r.Key, at), r)
	}
	return got, p.Token
}

// operation returns one that no other case uses.
func (k *K) operation() string { return "task-" + k.key().Ref() }

func enqueue(k *K) {
	due := k.t0.Add(time.Hour)
	p := k.enqueued(k.operation(), due)
	r := k.won(p)
	for _, got := range []idempo.Record{r, k.look(p.Key, k.t0)} {
		if got.State != idempo.StatePending || !got.Lapsed(k.t0) || !got.StartedAt.IsZero() || !got.DueAt.Equal(due) || got.Attempt != 0 || !got.Token.IsZero() ||
			string(got.Snapshot) != "snapshot" || got.LeaseUntil.IsZero() {
			k.Errorf("enqueued as %+v", got)
		}
	}
	again := k.again(p, k.t0.Add(time.Second)) // enqueued once
	k.verdict(again, idempo.VerdictInProgress)
	again.Hash = digest("another request")
	k.verdict(again, idempo.VerdictMismatch)
	k.same("the row", k.look(p.Key, k.t0), r)
	direct := k.again(p, k.t0.Add(time.Second)) // or claimed by its own name
	direct.Due = time.Time{}
	if a := k.verdict(direct, idempo.VerdictRun); a.Record.Attempt != 1 || a.Lapsed {
		k.Errorf("attempt %d, Lapsed %t", a.Record.Attempt, a.Lapsed)
	}
}

func takeDue(k *K) {
	op := k.operation()
	p := k.enqueued(op, k.t0.Add(time.Hour))
	k.won(p)
	k.completed(func() idempo.AcquireParams { q := k.claim(k.key()); q.Key.Operation = op; return q }())
	alive := k.claim(k.key())
	alive.Key.Operation, alive.Lease = op, 1000*time.Hour
	k.won(alive)
	failed := k.claim(k.key())
	failed.Key.Operation = op
	k.released(failed, idempo.StateFailed)
	idle := k.claim(k.key()) // claimed by a caller that never started: the next call's, not a taker's
	idle.Key.Operation, idle.StartMark = op, true
	k.won(idle)
	if got, _ := k.take(op, 10, k.t0.Add(time.Hour-k.tick)); len(got) != 0 {
		k.Errorf("took %d before its time", len(got))
	}
	got, _ := k.take(op, 10, k.t0.Add(time.Hour))
	if len(got) != 1 || got[0].Key != p.Key || got[0].Attempt != 1 || string(got[0].Snapshot) != "snapshot" || !got[0].StartedAt.IsZero() {
		k.Fatalf("took %d, %+v", len(got), got)
	}
	if got, _ := k.take(op, 10, k.t0.Add(time.Hour)); len(got) != 0 {
		k.Errorf("took %d that are held", len(got))
	}
}

func takeLimits(k *K) {
	one, two := k.operation(), k.operation()
	for i := range 5 {
		k.won(k.enqueued(one, k.t0.Add(-time.Duration(i)*time.Minute)))
		k.won(k.enqueued(two, k.t0))
	}
	for _, want := range []int{2, 2, 1, 0} {
		got, _ := k.take(one, 2, k.t0)
		if len(got) != want {
			k.Fatalf("took %d, want %d", len(got), want)
		}
		for _, r := range got {
			if r.Key.Operation != one {
				k.Errorf("took one of %s", r.Key.Operation)
			}
		}
	}
	three := k.operation()
	for i := range 5 {
		k.won(k.enqueued(three, k.t0.Add(-time.Duration(i)*time.Minute)))
	}
	for want := 4; want >= 0; want-- {
		if got, _ := k.take(three, 1, k.t0); len(got) != 1 || !got[0].DueAt.Equal(k.t0.Add(-time.Duration(want)*time.Minute)) {
			k.Fatalf("took %+v, want the one due %d minutes ago", got, want)
		}
	}
	if got, _ := k.take(two, 0, k.t0); len(got) != 0 {
		k.Errorf("limit 0: took %d", len(got))
	}
}

func takeThenVanish(k *K) {
	op := k.operation()
	p := k.enqueued(op, k.t0)
	k.won(p)
	got, token := k.take(op, 1, k.t0)
	if len(got) != 1 {
		k.Fatalf("took %d", len(got))
	}
	other := k.again(p, k.t0.Add(time.Second))
	other.Due = time.Time{}
	k.verdict(other, idempo.VerdictInProgress)
	if got, _ := k.take(op, 1, k.t0.Add(lease-k.tick)); len(got) != 0 {
		k.Error("taken while it is held")
	}
	got, next := k.take(op, 1, k.t0.Add(lease))
	if len(got) != 1 || got[0].Attempt != 2 {
		k.Fatalf("the vanished taker's record: %+v", got)
	}
	p.Token = token
	_, err := k.Store.Complete(k.ctx, k.done(p, 1, k.t0.Add(lease)))
	k.code(err, "lease_lost")
	p.Token = next
	r := k.renew(p, k.t0.Add(lease))
	r.Start = true
	_, err = k.Store.Renew(k.ctx, r)
	k.ok(err)
	_, err = k.Store.Complete(k.ctx, k.done(p, 2, k.t0.Add(lease)))
	k.ok(err)
	if got, _ := k.take(op, 1, k.t0.Add(time.Hour)); len(got) != 0 {
		k.Error("a completed one was taken")
	}
}

func takeProbes(k *K) {
	op := k.operation()
	want := map[idempo.Key]bool{}
	for _, c := range []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun} {
		for _, doubt := range []time.Duration{0, time.Second, time.Hour} {
			p := k.claim(k.key())
			p.Key.Operation, p.OnCrash = op, c
			k.won(p)
			if doubt > 0 {
				r := k.release(p, idempo.StateInDoubt, k.t0)
				r.Due = doubt
				_, err := k.Store.Release(k.ctx, r)
				k.ok(err)
			}
			want[p.Key] = c == idempo.OnCrashProbe && doubt < time.Hour
		}
	}
	got, token := k.take(op, 100, k.t0.Add(lease))
	for _, r := range got {
		if !want[r.Key] || r.Attempt != 2 || r.StartedAt.IsZero() || r.DerivedKey == "" || string(r.Snapshot) != "snapshot" {
			k.Errorf("took %s, attempt %d, started %s", r.OnCrash, r.Attempt, r.StartedAt)
		}
	}
	if len(got) != 2 {
		k.Fatalf("took %d, want 2", len(got))
	}
	p := k.claim(got[0].Key)
	p.Token = token
	r := k.release(p, idempo.StateInDoubt, k.t0.Add(lease))
	r.Due = time.Minute
	_, err := k.Store.Release(k.ctx, r)
	k.ok(err)
	if got, _ := k.take(op, 100, k.t0.Add(lease+time.Minute-k.tick)); len(got) != 1 {
		k.Errorf("took %d, want the one whose prober vanished", len(got))
	}
	if got, _ := k.take(op, 100, k.t0.Add(lease+time.Minute)); len(got) != 1 || got[0].Key != p.Key {
		k.Errorf("took %d, want the one whose probe is due again", len(got))
	}
}

func takeTogether(k *K) {
	const n = 40
	op := k.operation()
	for range n {
		k.won(k.enqueued(op, k.t0))
	}
	var mu sync.Mutex
	seen := map[idempo.Key]int{}
	k.race(8, func(_ int, s idempo.Store) {
		for range n {
			got, err := s.(idempo.Taker).Take(k.ctx, idempo.TakeParams{Operations: []string{op}, Limit: 3, Token: k.token(), Lease: lease, Now: k.t0})
			if err != nil {
				k.Errorf("take: %v", err)
				return
			}
			mu.Lock()
			for _, r := range got {
				seen[r.Key]++
			}
			mu.Unlock()
			if len(got) == 0 {
				return
			}
		}
	})
	rest, _ := k.take(op, n, k.t0) // SKIP LOCKED may have passed some over
	for _, r := range rest {
		seen[r.Key]++
	}
	for key, times := range seen {
		if times != 1 {
			k.Errorf("%s was taken %d times", key.Ref(), times)
		}
	}
	if len(seen) != n {
		k.Errorf("%d of %d were taken", len(seen), n)
	}
}
