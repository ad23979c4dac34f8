package storetest

import (
	"fmt"
	"time"

	"github.com/idempo/idempo"
)

func leaseCases() []testCase {
	return []testCase{
		{name: "[stores/L1] without Now, leases and times are the store's clock", run: storesClock},
		{name: "[stores/L1] every take-over is one attempt more and has the newcomer's token", run: attemptsGrow},
		{name: "[stores/E7] RetryAfter is half the age, at most 30 s and the rest of the lease, at least 1 s", run: retryAfter},
		{name: "[stores/E7] a doubt whose probe is not due says when", run: retryAfterProbe},
		{name: "a renewal extends from now and never shortens", run: renewNeverShortens},
		{name: "[stores/E22] StartMark: set once by Renew, kept by later renewals", run: startMark},
		{name: "a renewal may replace the derived key, and keeps it otherwise", run: renewDerivedKey},
		{name: "[stores/L3] a late renewal does not take the lease back", run: lateRenewal},
		{name: "[stores/L4] a late completion or release is accepted while the token stands", run: lateTruth},
		{name: "[stores/L4] after a take-over the old owner is lost, and the row byte-equal", run: takenOver},
		{name: "of record and caller the stricter policy decides, and a take-over keeps it", run: stricterKept},
		{name: "[stores/L5] a vanished owner blocks the key for one lease, whatever the retention", run: blockedOneLease},
		{name: "the derived key and the snapshot of the first claim stay through take-overs", run: keptThroughTakeover},
	}
}

func storesClock(k *K) {
	p := k.claim(k.key())
	p.Now = time.Time{}
	probe := func() time.Time {
		q := k.claim(k.key())
		q.Now = time.Time{}
		return k.won(q).Now
	}
	before := probe()
	r := k.won(p)
	after := probe()
	in := func(what string, got time.Time, lo, hi time.Time) {
		if got.Before(lo) || got.After(hi) {
			k.Errorf("%s is %s, want %s to %s", what, got, lo, hi)
		}
	}
	if before.IsZero() || after.Before(before) {
		k.Fatalf("the store's clock went from %s to %s", before, after)
	}
	in("ClaimedAt", r.ClaimedAt, before, after)
	in("LeaseUntil", r.LeaseUntil, before.Add(lease), after.Add(lease))
	c := k.done(p, 1, time.Time{})
	done, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	end := probe()
	in("CompletedAt", done.CompletedAt, after, end)
	in("ExpiresAt", done.ExpiresAt, after.Add(retention), end.Add(retention))
	l, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: p.Key})
	k.ok(err)
	in("Lookup's Now", l.Now, end, end.Add(time.Hour))
	if l.ClaimedAt.Location() != time.UTC || l.ClaimedAt.Nanosecond()%1000 != 0 {
		k.Errorf("%s is not UTC to the microsecond", l.ClaimedAt)
	}
}

func attemptsGrow(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashRerun
	for n := int64(1); n <= 5; n++ {
		r := k.won(p)
		if r.Attempt != n || r.Token != p.Token || r.Owner != p.Owner {
			k.Errorf("attempt %d, want %d, of %s", r.Attempt, n, r.Owner)
		}
		p = k.again(p, p.Now.Add(lease))
		p.Owner = fmt.Sprintf("host-%d", n)
	}
}

func retryAfter(k *K) {
	long := k.claim(k.key())
	long.Lease = 10 * time.Minute
	k.won(long)
	short := k.claim(k.key())
	k.won(short)
	for _, c := range []struct {
		p         idempo.AcquireParams
		age, want time.Duration
	}{
		{long, 0, time.Second}, {long, 2 * time.Second, time.Second}, {long, 20 * time.Second, 10 * time.Second}, {long, 5 * time.Minute, 30 * time.Second},
		{long, 10*time.Minute - 4*time.Second, 4 * time.Second}, {long, 10*time.Minute - k.tick, time.Second},
		{short, 18 * time.Second, 9 * time.Second}, {short, 24 * time.Second, 6 * time.Second}, {short, 29500 * time.Millisecond, time.Second},
	} {
		if a := k.verdict(k.again(c.p, k.t0.Add(c.age)), idempo.VerdictInProgress); a.RetryAfter != c.want {
			k.Errorf("lease %s, age %s: %s, want %s", c.p.Lease, c.age, a.RetryAfter, c.want)
		}
	}
}

func retryAfterProbe(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashProbe
	k.won(p)
	r := k.release(p, idempo.StateInDoubt, k.t0)
	r.Due = 20 * time.Second
	_, err := k.Store.Release(k.ctx, r)
	k.ok(err)
	if a := k.verdict(k.again(p, k.t0.Add(5*time.Second)), idempo.VerdictInDoubt); a.RetryAfter != 15*time.Second {
		k.Errorf("probe in %s, want 15s", a.RetryAfter)
	}
	if a := k.verdict(k.again(p, k.t0.Add(20*time.Second)), idempo.VerdictRun); !a.Lapsed || a.Record.Attempt != 2 {
		k.Errorf("the probe's take-over: Lapsed %t, attempt %d", a.Lapsed, a.Record.Attempt)
	}
	k.verdict(k.again(p, k.t0.Add(21*time.Second)), idempo.VerdictInProgress) // never two probes
}

func renewNeverShortens(k *K) {
	p := k.claim(k.key())
	k.won(p)
	for _, c := range []struct{ at, lease, until time.Duration }{
		{time.Second, time.Second, lease}, {10 * time.Second, lease, 40 * time.Second}, {39 * time.Second, 10 * time.Second, 49 * time.Second},
		{40 * time.Second, 2 * time.Second, 49 * time.Second},
	} {
		r := k.renew(p, k.t0.Add(c.at))
		r.Lease = c.lease
		got, err := k.Store.Renew(k.ctx, r)
		k.ok(err)
		if !got.LeaseUntil.Equal(k.t0.Add(c.until)) || !k.look(p.Key, r.Now).LeaseUntil.Equal(k.t0.Add(c.until)) {
			k.Errorf("renewed at %s for %s: until %s, want %s", c.at, c.lease, got.LeaseUntil.Sub(k.t0), c.until)
		}
	}
	k.verdict(k.again(p, k.t0.Add(49*time.Second-k.tick)), idempo.VerdictInProgress)
	k.verdict(k.again(p, k.t0.Add(49*time.Second)), idempo.VerdictInDoubt)
}

func startMark(k *K) {
	p := k.claim(k.key())
	p.StartMark = true
	if r := k.won(p); !r.StartedAt.IsZero() {
		k.Errorf("started at %s before it did", r.StartedAt)
	}
	r := k.renew(p, k.t0.Add(5*time.Second))
	if got, err := k.Store.Renew(k.ctx, r); err != nil || !got.StartedAt.IsZero() {
		k.Errorf("a plain renewal starts: %s, %v", got.StartedAt, err)
	}
	r.Start = true
	for range 2 {
		got, err := k.Store.Renew(k.ctx, r)
		if err != nil || !got.StartedAt.Equal(k.t0.Add(5*time.Second)) {
			k.Errorf("started at %s, %v", got.StartedAt, err)
		}
		r.Now = r.Now.Add(time.Second)
	}
	k.state(p.Key, k.t0.Add(time.Hour), idempo.StateInDoubt)

	p = k.claim(k.key()) // never started: free after its lease
	p.StartMark = true
	k.won(p)
	late := k.renew(p, k.t0.Add(lease))
	late.Start = true
	_, err := k.Store.Renew(k.ctx, late)
	k.code(err, "lease_lost")
	if a := k.verdict(k.again(p, k.t0.Add(lease)), idempo.VerdictRun); a.Lapsed {
		k.Error("a claim that never started may have had an effect?")
	}
}

func renewDerivedKey(k *K) {
	p := k.claim(k.key())
	k.won(p)
	r := k.renew(p, k.t0)
	r.DerivedKey = "11111111-2222-4333-8444-555555555555"
	_, err := k.Store.Renew(k.ctx, r)
	k.ok(err)
	_, err = k.Store.Renew(k.ctx, k.renew(p, k.t0))
	k.ok(err)
	if got := k.look(p.Key, k.t0).DerivedKey; got != r.DerivedKey {
		k.Errorf("derived key %q", got)
	}
}

func lateRenewal(k *K) {
	for _, c := range []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun} {
		p := k.claim(k.key())
		p.OnCrash = c
		k.won(p)
		at := k.t0.Add(lease)
		before := k.look(p.Key, at)
		for range 2 {
			_, err := k.Store.Renew(k.ctx, k.renew(p, at))
			k.code(err, "lease_lost")
		}
		k.same("nobody took it, and it is lost still", k.look(p.Key, at), before)
	}
}

func lateTruth(k *K) {
	late := k.t0.Add(1000 * time.Hour)
	for _, c := range []idempo.OnCrash{idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun} {
		for _, doubt := range []bool{false, true} {
			p := k.claim(k.key())
			p.OnCrash = c
			q := p
			q.Key = k.key()
			if doubt {
				k.released(p, idempo.StateInDoubt)
				k.released(q, idempo.StateInDoubt)
			} else {
				k.won(p)
				k.won(q)
			}
			_, err := k.Store.Complete(k.ctx, k.done(p, 1, late))
			k.ok(err)
			k.verdict(k.again(p, late), idempo.VerdictReplay)
			_, err = k.Store.Release(k.ctx, k.release(q, idempo.StateFailed, late))
			k.ok(err)
			if a := k.verdict(k.again(q, late), idempo.VerdictRun); a.Lapsed || a.Record.Attempt != 2 {
				k.Errorf("nothing happened: Lapsed %t, attempt %d", a.Lapsed, a.Record.Attempt)
			}
		}
	}
}

func takenOver(k *K) {
	at := k.t0.Add(lease)
	for _, settle := range []func(p idempo.AcquireParams) idempo.Record{
		func(p idempo.AcquireParams) idempo.Record { return k.look(p.Key, at) },
		func(p idempo.AcquireParams) idempo.Record {
			r, err := k.Store.Complete(k.ctx, k.done(p, 2, at))
			k.ok(err)
			return r
		},
		func(p idempo.AcquireParams) idempo.Record {
			r, err := k.Store.Release(k.ctx, k.release(p, idempo.StateFailed, at))
			k.ok(err)
			return r
		},
	} {
		p := k.claim(k.key())
		p.OnCrash = idempo.OnCrashRerun
		k.won(p)
		next := k.again(p, at)
		k.won(next)
		want := settle(next)
		_, err := k.Store.Complete(k.ctx, k.done(p, 1, at)) // the very result the winner may have stored
		k.code(err, "lease_lost")
		_, err = k.Store.Release(k.ctx, k.release(p, idempo.StateFailed, at))
		k.code(err, "lease_lost")
		_, err = k.Store.Renew(k.ctx, k.renew(p, at))
		k.code(err, "lease_lost")
		k.same("the winner's row", k.look(p.Key, at), want)
	}
}

func stricterKept(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashProbe
	k.won(p)
	rerun := k.again(p, k.t0.Add(lease))
	rerun.OnCrash = idempo.OnCrashRerun
	if r := k.won(rerun); r.OnCrash != idempo.OnCrashProbe {
		k.Errorf("a take-over by rerun made the record %s", r.OnCrash)
	}
	hold := k.again(p, k.t0.Add(2*lease))
	hold.OnCrash = idempo.OnCrashHold
	k.verdict(hold, idempo.VerdictInDoubt)
}

func blockedOneLease(k *K) {
	for _, c := range []idempo.OnCrash{idempo.OnCrashProbe, idempo.OnCrashRerun} {
		p := k.claim(k.key())
		p.OnCrash, p.Lease = c, time.Second
		k.won(p)
		k.verdict(k.again(p, k.t0.Add(time.Second-k.tick)), idempo.VerdictInProgress)
		k.verdict(k.again(p, k.t0.Add(time.Second)), idempo.VerdictRun)
	}
}

func keptThroughTakeover(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashProbe
	first := k.won(p)
	next := k.again(p, k.t0.Add(lease))
	next.DerivedKey, next.Snapshot, next.Detail = "another", []byte("another"), nil
	r := k.won(next)
	if r.DerivedKey != first.DerivedKey || string(r.Snapshot) != "snapshot" || string(r.Detail) != "detail" || !r.CreatedAt.Equal(k.t0) {
		k.Errorf("derived key %q, snapshot %q, detail %q, created %s", r.DerivedKey, r.Snapshot, r.Detail, r.CreatedAt)
	}
	k.same("the row", k.look(p.Key, next.Now), r)
}
