package storetest

import (
	"time"

	"github.com/idempo/idempo"
)

func issueCases() []testCase {
	return []testCase{
		{name: "[stores/E18] an issued key is claimed once", run: issuedOnce},
		{name: "[stores/E18] absent, lapsed and foreign keys get the same not_issued", run: notIssued},
		{name: "[stores/E18] a completion issues the next key", run: issueNext},
		{name: "[stores/E18] Forget: the key is unspent and bound to no fingerprint", run: forgetIssued},
		{name: "[stores/E18] Release: the key stays bound to its fingerprint", run: releaseIssued},
		{name: "Forget of a plain key: as new, attempt 1, nothing remembered", run: forgetPlain},
		{name: "[stores/T6] an issued key that was used keeps nothing of its short life", run: issuedThenCompleted},
	}
}

// issued hands out a key for an hour.
func (k *K) issued() idempo.Key {
	k.Helper()
	p := k.claim(k.key())
	p.Issue, p.Hash, p.Recipe, p.Detail, p.Snapshot = time.Hour, nil, "", nil, nil
	k.won(p)
	k.state(p.Key, k.t0, idempo.StateIssued)
	return p.Key
}

// demand returns the params of a claim that accepts issued keys only.
func (k *K) demand(key idempo.Key) idempo.AcquireParams {
	p := k.claim(key)
	p.RequireIssued = true
	return p
}

func issuedOnce(k *K) {
	p := k.demand(k.issued())
	k.won(p)
	k.verdict(k.again(p, k.t0), idempo.VerdictInProgress)
	other := k.again(p, k.t0)
	other.Hash = digest("another request")
	k.verdict(other, idempo.VerdictMismatch)
	_, err := k.Store.Complete(k.ctx, k.done(p, 1, k.t0))
	k.ok(err)
	k.verdict(k.again(p, k.t0.Add(2*time.Hour)), idempo.VerdictReplay) // long after the key itself would have lapsed
}

func notIssued(k *K) {
	lapsed := k.demand(k.issued())
	lapsed.Now = k.t0.Add(time.Hour)
	foreign := k.demand(k.issued())
	foreign.Key.Tenant += "-other"
	otherOperation := k.demand(k.issued())
	otherOperation.Key.Operation = "cancel-order"
	texts := map[string]bool{}
	for _, p := range []idempo.AcquireParams{k.demand(k.key()), lapsed, foreign, otherOperation} {
		_, err := k.Store.Acquire(k.ctx, p)
		k.code(err, "not_issued")
		k.state(p.Key, p.Now, "")
		if e, ok := err.(*idempo.Error); ok {
			e.KeyRef = ""
			texts[e.Error()] = true
		}
	}
	if len(texts) > 1 {
		k.Errorf("the errors can be told apart: %v", texts)
	}
}

func issueNext(k *K) {
	p := k.demand(k.issued())
	c := k.done(p, k.won(p).Attempt, k.t0)
	next := k.claim(k.key())
	next.Issue, next.Hash, next.Recipe = time.Hour, nil, ""
	c.Issue = &next
	stale := c
	stale.Token = k.token()
	_, err := k.Store.Complete(k.ctx, stale)
	k.code(err, "lease_lost")
	k.state(next.Key, k.t0, "")

	_, err = k.Store.Complete(k.ctx, c)
	k.ok(err)
	k.state(next.Key, k.t0, idempo.StateIssued)
	_, err = k.Store.Complete(k.ctx, c) // again: the next key is not made twice, nor given back
	k.ok(err)
	k.won(k.demand(next.Key))
	_, err = k.Store.Complete(k.ctx, c)
	k.ok(err)
	k.state(next.Key, k.t0, idempo.StatePending)
}

func forgetIssued(k *K) {
	p := k.demand(k.issued())
	k.won(p)
	_, err := k.Store.Release(k.ctx, k.release(p, idempo.StateIssued, k.t0.Add(time.Minute)))
	k.ok(err)
	r := k.state(p.Key, k.t0.Add(time.Minute), idempo.StateIssued)
	if len(r.Hash) > 0 || r.Snapshot != nil || !r.Token.IsZero() || !r.IssuedUntil.Equal(k.t0.Add(time.Hour)) {
		k.Errorf("still bound: %+v", r)
	}
	k.state(p.Key, k.t0.Add(time.Hour), "") // it lapses as it would have
	other := k.again(p, k.t0.Add(2*time.Minute))
	other.Hash = digest("another request")
	k.won(other)
}

func releaseIssued(k *K) {
	p := k.demand(k.issued())
	k.won(p)
	_, err := k.Store.Release(k.ctx, k.release(p, idempo.StateFailed, k.t0))
	k.ok(err)
	other := k.again(p, k.t0)
	other.Hash = digest("another request")
	k.verdict(other, idempo.VerdictMismatch)
	if r := k.won(k.again(p, k.t0)); r.Attempt != 2 {
		k.Errorf("attempt %d, want 2", r.Attempt)
	}
}

func forgetPlain(k *K) {
	p := k.claim(k.key())
	k.won(p)
	_, err := k.Store.Release(k.ctx, k.release(p, idempo.StateIssued, k.t0))
	k.ok(err)
	k.state(p.Key, k.t0, "")
	other := k.again(p, k.t0)
	other.Hash = digest("another request")
	if r := k.won(other); r.Attempt != 1 || string(r.Hash) != string(other.Hash) {
		k.Errorf("attempt %d", r.Attempt)
	}
}

func issuedThenCompleted(k *K) {
	p := k.demand(k.issued())
	k.completed(p)
	k.state(p.Key, k.t0.Add(retention-k.tick), idempo.StateCompleted)
	k.state(p.Key, k.t0.Add(retention), idempo.StateExpired)

	p = k.demand(k.issued()) // and a running one outlives it
	k.won(p)
	k.state(p.Key, k.t0.Add(1000*time.Hour), idempo.StateInDoubt)
}
