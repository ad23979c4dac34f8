package storetest

import (
	"sync"
	"time"

	"github.com/idempo/idempo"
)

func sweepCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: name, needs: needSweep, alone: true, run: run}
	}
	return []testCase{
		c("[stores/T3, T7] a sweep makes results tombstones, and keeps what a tombstone keeps", sweepResults),
		c("[stores/T6, T7] a sweep removes old failures, unused issued keys and old tombstones", sweepRemoves),
		c("[stores/T7] a sweep never touches what is live, in doubt, or not yet over", sweepLeaves),
		c("[stores/T7, T8] a sweep moves started records of vanished owners to in doubt, and late truth still counts", sweepDoubts),
		c("[stores/T7] batches: at most so many, the oldest end first, until nothing is left", sweepBatches),
		c("[stores/T7] two sweepers at once lose nothing and do nothing twice", sweepTogether),
		{name: "[stores/E23] a sweep takes alias rows with their record", needs: needSweep | needAliases, alone: true, run: sweepAliases},
		{name: "[stores/T7] a sweep beside an open transaction: it commits what it claimed, or nothing", needs: needSweep | needTx, alone: true, run: sweepHeld},
	}
}

// now is the time on the store's own clock, which sweeps go by.
func (k *K) now() time.Time {
	k.Helper()
	p := k.claim(k.key())
	p.Now, p.StartMark = time.Time{}, true
	return k.won(p).Now
}

// ago returns a claim made d before the store's present.
func (k *K) ago(d time.Duration) idempo.AcquireParams {
	p := k.claim(k.key())
	p.Now = k.now().Add(-d).Truncate(k.tick)
	return p
}

// sweep sweeps until nothing is left and returns how many rows it changed.
func (k *K) sweep() (n int) {
	k.Helper()
	for range 1000 {
		done, err := k.Store.(idempo.Sweeper).Sweep(k.ctx, 100)
		k.ok(err)
		n += done
		if done < 100 {
			return n
		}
	}
	k.Fatal("a sweep finds always more")
	return n
}

func sweepResults(k *K) {
	p := k.ago(retention + time.Hour)
	want := k.completed(p)
	if n := k.sweep(); n != 1 {
		k.Errorf("%d rows changed, want 1", n)
	}
	for _, at := range []time.Time{{}, p.Now.Add(retention), p.Now.Add(retention + tombstone - k.tick)} {
		k.checkTombstone(k.look(p.Key, at), want)
	}
	k.verdict(k.again(p, time.Time{}), idempo.VerdictExpired)
	gone := k.again(p, p.Now.Add(retention+tombstone))
	if r := k.won(gone); r.Attempt != 2 {
		k.Errorf("attempt %d after a swept tombstone's end, want 2", r.Attempt)
	}
	if n := k.sweep(); n != 0 {
		k.Errorf("%d more rows changed", n)
	}
}

func sweepRemoves(k *K) {
	failed, issued, gone := k.ago(retention+time.Hour), k.ago(2*time.Hour), k.ago(retention+tombstone+time.Hour)
	k.released(failed, idempo.StateFailed)
	issued.Issue = time.Hour
	k.won(issued)
	k.completed(gone)
	if n := k.sweep(); n < 3 || n > 4 { // a tombstone may be made before it goes
		k.Errorf("%d rows changed, want 3", n)
	}
	for _, p := range []idempo.AcquireParams{failed, issued, gone} {
		k.state(p.Key, p.Now, "") // not even in the past: the row is no more
		if r := k.won(k.again(k.claim(p.Key), k.t0)); r.Attempt != 1 {
			k.Errorf("attempt %d of a removed record", r.Attempt)
		}
	}
}

func sweepLeaves(k *K) {
	var keep []idempo.Record
	add := func(r idempo.Record) { keep = append(keep, r) }
	p := k.ago(0)
	p.Lease = time.Hour
	add(k.won(p)) // alive
	p = k.ago(1000 * time.Hour)
	p.StartMark = true
	add(k.won(p)) // lapsed, never started
	for _, c := range []idempo.OnCrash{idempo.OnCrashProbe, idempo.OnCrashRerun} {
		p = k.ago(1000 * time.Hour)
		p.OnCrash = c
		add(k.won(p)) // lapsed, started: waits for a probe or the next call
	}
	add(k.released(k.ago(1000*time.Hour), idempo.StateInDoubt))
	add(k.completed(k.ago(retention - time.Hour)))
	add(k.released(k.ago(retention-time.Hour), idempo.StateFailed))
	p = k.ago(0)
	p.Issue = time.Hour
	add(k.won(p))
	if n := k.sweep(); n != 0 {
		k.Errorf("%d rows changed, want none", n)
	}
	for _, want := range keep {
		k.same(string(want.State), k.look(want.Key, time.Time{}), want)
	}
}

func sweepDoubts(k *K) {
	p, q := k.ago(time.Hour), k.ago(time.Hour)
	k.won(p)
	k.won(q)
	before := k.look(p.Key, time.Time{})
	if n := k.sweep(); n != 2 {
		k.Errorf("%d rows changed, want 2", n)
	}
	after := k.state(p.Key, time.Time{}, idempo.StateInDoubt)
	before.ChangedAt, after.ChangedAt = time.Time{}, time.Time{}
	k.same("seen by all as before", after, before)
	k.state(p.Key, p.Now, idempo.StateInDoubt) // written down, not only read so
	k.verdict(k.again(p, time.Time{}), idempo.VerdictInDoubt)
	_, err := k.Store.Complete(k.ctx, k.done(p, 1, time.Time{}))
	k.ok(err)
	_, err = k.Store.Release(k.ctx, k.release(q, idempo.StateFailed, time.Time{}))
	k.ok(err)
	k.state(p.Key, time.Time{}, idempo.StateCompleted)
	k.state(q.Key, time.Time{}, idempo.StateFailed)
}

func sweepBatches(k *K) {
	const n = 25
	params := make([]idempo.AcquireParams, n)
	for i := range params { // the oldest last
		params[i] = k.ago(retention + time.Hour + time.Duration(i)*time.Minute)
		k.completed(params[i])
	}
	swept := func() (n int) {
		for _, p := range params {
			if k.look(p.Key, p.Now).State == idempo.StateExpired {
				n++
			}
		}
		return n
	}
	for total := 0; total < n; {
		done, err := k.Store.(idempo.Sweeper).Sweep(k.ctx, 10)
		k.ok(err)
		if done > 10 || done < min(10, n-total) {
			k.Fatalf("%d rows in a batch of 10, %d were left", done, n-total)
		}
		if total += done; swept() != total {
			k.Fatalf("said %d rows in all, %d are", total, swept())
		}
		for i, p := range params {
			if is, want := k.look(p.Key, p.Now).State == idempo.StateExpired, i >= n-total; is != want {
				k.Fatalf("after %d rows, number %d by age is swept: %t", total, n-i, is)
			}
		}
	}
	if done, err := k.Store.(idempo.Sweeper).Sweep(k.ctx, 10); done != 0 || err != nil {
		k.Errorf("%d more, %v", done, err)
	}
}

func sweepTogether(k *K) {
	const n = 60
	var params []idempo.AcquireParams
	for range n {
		p := k.ago(retention + time.Hour)
		params = append(params, p)
		k.completed(p)
	}
	var mu sync.Mutex
	total := 0
	k.race(4, func(_ int, s idempo.Store) {
		for range 20 {
			done, err := s.(idempo.Sweeper).Sweep(k.ctx, 7)
			if err != nil {
				k.Errorf("sweep: %v", err)
			}
			mu.Lock()
			total += done
			mu.Unlock()
		}
	})
	total += k.sweep()
	if total != n {
		k.Errorf("%d rows changed, want %d", total, n)
	}
	for _, p := range params {
		k.state(p.Key, p.Now, idempo.StateExpired)
	}
}

func sweepAliases(k *K) {
	a, b, _ := k.digests()
	p := k.ago(retention + tombstone + time.Hour)
	p.Key.ID, p.Aliases = a, []string{b}
	k.completed(p)
	q := k.ago(retention + time.Hour)
	c, d, _ := k.digests()
	q.Key.ID, q.Aliases = c, []string{d}
	k.completed(q)
	k.sweep()
	p.Key.ID, q.Key.ID = b, d
	k.state(p.Key, p.Now, "")
	k.state(q.Key, time.Time{}, idempo.StateExpired) // a tombstone is still found by its alias
}

func sweepHeld(k *K) {
	p := k.ago(retention + time.Hour)
	k.released(p, idempo.StateFailed)
	q := k.again(p, p.Now) // at a time when the failure still stood
	q.Guard = idempo.GuardAtomic
	err := k.inTx(func(in tx) error {
		r := in.run(q)
		_, _ = k.Store.(idempo.Sweeper).Sweep(k.ctx, 100) // where there is one writer only, it may be told to wait
		c := k.done(q, r.Attempt, q.Now)
		c.Retention = 1000 * time.Hour
		_, err := k.Store.Complete(in.ctx, c)
		return err
	})
	switch codeOf(err) { // the claim holds against the sweep, or is told that it does not
	case "":
		k.state(p.Key, time.Time{}, idempo.StateCompleted)
	case "lease_lost", "tx_conflict":
		k.state(p.Key, time.Time{}, "")
	default:
		k.ok(err)
	}
}
