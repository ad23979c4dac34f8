package storetest

import (
	"errors"
	"time"

	"github.com/idempo/idempo"
)

func identityCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "[http/H44] " + name, needs: needAliases, run: run}
	}
	return []testCase{
		c("a known identity under a new key: a replay of the pointer, no run, whatever the fingerprint", identityDone),
		c("an identity still running: in progress; in doubt: in doubt", identityRunning),
		c("release gives the identity back, Forget too; doubt keeps it", identityReleased),
		c("an expired record's identity is done still, a gone one's is free", identityOver),
		c("a claim occupies all its identities, or, if another holds one, none", identityAllOrNone),
		c("the same key with its identity is answered in full", identityOwn),
		c("identities are of one tenant and operation", identityScope),
		c("many keys with one identity at once: one run", identityRace),
		{name: "[http/H44] in a transaction: held while it is open, taken by its commit, free after a rollback", needs: needAliases | needTx, run: identityTx},
	}
}

// naming returns a claim of a fresh key that occupies the given identities.
func (k *K) naming(identities ...string) idempo.AcquireParams {
	p := k.claim(k.key())
	p.Unique = identities
	return p
}

// foreign wants the answer a to show nothing of another key's record but its pointer.
func (k *K) foreign(a idempo.Acquired, owner idempo.Key) {
	k.Helper()
	r := a.Record
	if r.Key != owner || r.Result.Status != 0 || r.Result.Body != nil || len(r.Result.Header) > 0 || r.Snapshot != nil || r.Note != "" {
		k.Errorf("shown to another key: %s, %+v, snapshot %q", r.Key.Ref(), r.Result, r.Snapshot)
	}
}

func identityDone(k *K) {
	u := k.key().ID
	first := k.naming(u)
	want := k.completed(first)
	for _, body := range []string{"request", "another request"} {
		p := k.naming(u)
		p.Hash = digest(body)
		a := k.verdict(p, idempo.VerdictReplay)
		k.foreign(a, first.Key)
		if a.Record.Result.Resource != answer().Resource {
			k.Errorf("the pointer is %v", a.Record.Result.Resource)
		}
		k.state(p.Key, k.t0, "")
	}
	k.same("the first one's row", k.look(first.Key, k.t0), want)
}

func identityRunning(k *K) {
	u := k.key().ID
	first := k.naming(u)
	k.won(first)
	a := k.verdict(k.naming(u), idempo.VerdictInProgress)
	k.foreign(a, first.Key)
	if a.RetryAfter < time.Second {
		k.Errorf("RetryAfter %s", a.RetryAfter)
	}
	_, err := k.Store.Release(k.ctx, k.release(first, idempo.StateInDoubt, k.t0))
	k.ok(err)
	k.foreign(k.verdict(k.naming(u), idempo.VerdictInDoubt), first.Key)
}

func identityReleased(k *K) {
	for _, to := range []idempo.State{idempo.StateFailed, idempo.StateIssued} {
		u, v := k.key().ID, k.key().ID
		first := k.naming(u, v)
		k.won(first)
		r := k.release(first, to, k.t0)
		r.Free = first.Unique
		_, err := k.Store.Release(k.ctx, r)
		k.ok(err)
		k.won(k.naming(u))
		k.won(k.naming(v))
		k.verdict(k.again(first, k.t0), idempo.VerdictInProgress) // taken meanwhile: its own key does not help
		first.Unique = nil
		k.won(k.again(first, k.t0))
	}
	u := k.key().ID
	first := k.naming(u)
	k.won(first)
	r := k.release(first, idempo.StateInDoubt, k.t0)
	r.Free = first.Unique
	_, err := k.Store.Release(k.ctx, r)
	k.ok(err)
	k.verdict(k.naming(u), idempo.VerdictInDoubt)
	k.foreign(k.verdict(k.naming(u), idempo.VerdictInDoubt), first.Key)

	u = k.key().ID // released, and claimed again by its own key: the identity is occupied again
	first = k.naming(u)
	k.won(first)
	r = k.release(first, idempo.StateFailed, k.t0)
	r.Free = first.Unique
	_, err = k.Store.Release(k.ctx, r)
	k.ok(err)
	k.won(k.again(first, k.t0))
	k.verdict(k.naming(u), idempo.VerdictInProgress)
}

func identityOver(k *K) {
	u := k.key().ID
	first := k.naming(u)
	k.completed(first)
	p := k.naming(u)
	p.Now = k.t0.Add(retention)
	a := k.verdict(p, idempo.VerdictReplay)
	k.foreign(a, first.Key)
	if a.Record.Result.Resource != answer().Resource {
		k.Errorf("the pointer is %v", a.Record.Result.Resource)
	}
	p.Now = k.t0.Add(retention + tombstone)
	if r := k.won(p); r.Key != p.Key || r.Attempt != 1 {
		k.Errorf("%s, attempt %d: built on another key's record", r.Key.Ref(), r.Attempt)
	}
	k.verdict(func() idempo.AcquireParams { q := k.naming(u); q.Now = p.Now; return q }(), idempo.VerdictInProgress)

	u = k.key().ID // what is gone leaves with its identity, also where its own key is claimed anew without it
	first = k.naming(u)
	k.completed(first)
	next := k.again(first, k.t0.Add(retention+tombstone))
	next.Unique = nil
	k.won(next)
	p = k.naming(u)
	p.Now = next.Now
	k.won(p)
}

func identityAllOrNone(k *K) {
	u, v, w := k.key().ID, k.key().ID, k.key().ID
	first := k.naming(v)
	k.completed(first)
	p := k.naming(u, v, w)
	k.foreign(k.verdict(p, idempo.VerdictReplay), first.Key)
	k.state(p.Key, k.t0, "")
	k.won(k.naming(u))
	k.won(k.naming(w))

	u = k.key().ID // a take-over occupies what is missing
	p = k.naming()
	p.OnCrash = idempo.OnCrashRerun
	k.won(p)
	next := k.again(p, k.t0.Add(lease))
	next.Unique = []string{u}
	if r := k.won(next); r.Attempt != 2 {
		k.Errorf("attempt %d", r.Attempt)
	}
	late := k.naming(u)
	late.Now = next.Now
	k.verdict(late, idempo.VerdictInProgress)
}

func identityOwn(k *K) {
	u := k.key().ID
	p := k.naming(u)
	want := k.completed(p)
	k.same("replayed", k.verdict(k.again(p, k.t0), idempo.VerdictReplay).Record, want)
	other := k.again(p, k.t0)
	other.Hash = digest("another request")
	k.verdict(other, idempo.VerdictMismatch)
	k.same("looked up", k.look(p.Key, k.t0), want)
}

func identityScope(k *K) {
	u := k.key().ID
	k.completed(k.naming(u))
	tenant, operation := k.naming(u), k.naming(u)
	tenant.Key.Tenant += "-other"
	operation.Key.Operation = "cancel-order"
	k.won(tenant)
	k.won(operation)
}

func identityRace(k *K) {
	for range 3 {
		u := k.key().ID
		params := make([]idempo.AcquireParams, racers)
		for i := range params {
			params[i] = k.naming(u)
		}
		var t tally
		k.race(racers, func(i int, s idempo.Store) { t.add(word(s.Acquire(k.ctx, params[i]))) })
		if t.n["run"] != 1 || t.n["in_progress"] != racers-1 {
			k.Errorf("verdicts %v", t.n)
		}
	}
}

func identityTx(k *K) {
	for _, end := range []error{errUndo, nil} {
		u := k.key().ID
		p := k.naming(u)
		p.Guard = idempo.GuardAtomic
		err := k.inTx(func(in tx) error {
			r := in.run(p)
			k.verdict(k.naming(u), idempo.VerdictInProgress)
			return errors.Join(in.complete(p, r.Attempt), end)
		})
		if !errors.Is(err, end) {
			k.Errorf("%v, want %v", err, end)
		}
		if end == nil {
			k.foreign(k.verdict(k.naming(u), idempo.VerdictReplay), p.Key)
		} else {
			k.won(k.naming(u))
		}
	}
	u := k.key().ID // a leased release that joins a transaction gives back by its commit only
	p := k.naming(u)
	k.won(p)
	for _, end := range []error{errUndo, nil} {
		err := k.inTx(func(in tx) error {
			r := k.release(p, idempo.StateFailed, k.t0)
			r.Free = p.Unique
			_, err := k.Store.Release(in.ctx, r)
			return errors.Join(err, end)
		})
		if !errors.Is(err, end) {
			k.Errorf("%v, want %v", err, end)
		}
		if end != nil {
			k.verdict(k.naming(u), idempo.VerdictInProgress)
		} else {
			k.won(k.naming(u))
		}
	}
}
