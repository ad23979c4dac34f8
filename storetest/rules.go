package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// ruleCases are the numbered rules of Store that are no single cell.
func ruleCases() []testCase {
	return []testCase{
		{name: "[stores/CT15] rule 2: the same claim sent twice recognises itself", run: claimTwice},
		{name: "[stores/CT15] rule 2: the same renewal sent twice is harmless", run: renewTwice},
		{name: "[stores/CT15, E15] rule 2: the same completion sent twice is harmless", run: completeTwice},
		{name: "[stores/CT15, E15] rule 2: the same release sent twice is harmless", run: releaseTwice},
		{name: "[stores/CT12] rule 2: a claim sent again after its completion is a replay that shows its own token", run: claimAfterCompletion},
		{name: "[stores/E15] Complete and Release one after the other: wrong, the first stays", run: oneAfterTheOther},
		{name: "[stores/E16] rule 5: what the caller changes afterwards has no influence", run: callerChangesItsParams},
		{name: "[stores/E16] rule 5: what is returned is the caller's", run: callerChangesWhatItGot},
		{name: "[stores/E16] rule 5: the params are not changed", run: paramsStay},
		{name: "rule 4: a write with a stale token changes nothing, whatever it wants", run: staleToken},
		{name: "rule 4: a token of another key is nobody's here", run: tokenOfAnotherKey},
		{name: "absent: Lookup is a Record without state, and no error", run: lookupAbsent},
	}
}

func claimTwice(k *K) {
	p := k.claim(k.key())
	first := k.won(p)
	p.Now = p.Now.Add(10 * time.Second)
	again := k.verdict(p, idempo.VerdictRun)
	k.same("returned again", again.Record, first)
	k.same("the row", k.look(p.Key, p.Now), first)
	if again.Lapsed {
		k.Error("a first attempt took over from nobody")
	}

	// A take-over whose answer was lost: it is not in the row that it was one, so the caller must be told to ask.
	p.OnCrash = idempo.OnCrashRerun
	p = k.again(p, k.t0)
	p.Key = k.key()
	k.won(p)
	late := k.again(p, k.t0.Add(lease))
	k.verdict(late, idempo.VerdictRun)
	if a := k.verdict(late, idempo.VerdictRun); !a.Lapsed || a.Record.Attempt != 2 {
		k.Errorf("a take-over sent twice: Lapsed %t, attempt %d", a.Lapsed, a.Record.Attempt)
	}
}

func renewTwice(k *K) {
	p := k.claim(k.key())
	k.won(p)
	r := k.renew(p, k.t0.Add(10*time.Second))
	r.Start = true
	first, err := k.Store.Renew(k.ctx, r)
	k.ok(err)
	again, err := k.Store.Renew(k.ctx, r)
	k.ok(err)
	k.same("returned again", again, first)
}

func completeTwice(k *K) {
	p := k.claim(k.key())
	c := k.done(p, k.won(p).Attempt, k.t0)
	first, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	c.Now = c.Now.Add(time.Minute)
	again, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	k.same("returned again", again, first)
	k.same("the row", k.look(p.Key, c.Now), first)
	for _, change := range []func(r *idempo.Result){
		func(r *idempo.Result) { r.Status = 202 }, func(r *idempo.Result) { r.Body = nil }, func(r *idempo.Result) { r.Failing = true },
		func(r *idempo.Result) { r.Header = r.Header[:1] }, func(r *idempo.Result) { slices.Reverse(r.Header) },
		func(r *idempo.Result) { r.Resource.ID = "10" }, func(r *idempo.Result) { r.Body = []byte("{\"id\":9} ") },
	} {
		other := c
		other.Result = answer()
		change(&other.Result)
		_, err := k.Store.Complete(k.ctx, other)
		k.code(err, "wrong_state")
		k.same("the row after another result", k.look(p.Key, c.Now), first)
	}
}

func releaseTwice(k *K) {
	for _, to := range []idempo.State{idempo.StateFailed, idempo.StateInDoubt} {
		p := k.claim(k.key())
		first := k.released(p, to)
		r := k.release(p, to, k.t0.Add(time.Minute))
		again, err := k.Store.Release(k.ctx, r)
		k.ok(err)
		k.same("returned again", again, first)
		k.same("the row", k.look(p.Key, r.Now), first)
	}
	p := k.claim(k.key()) // forgotten: what is gone belongs to nobody
	k.released(p, idempo.StateIssued)
	_, err := k.Store.Release(k.ctx, k.release(p, idempo.StateIssued, k.t0))
	k.code(err, "lease_lost")
	k.state(p.Key, k.t0, "")
}

func claimAfterCompletion(k *K) {
	p := k.claim(k.key())
	want := k.completed(p)
	p.Now = p.Now.Add(time.Second)
	a := k.verdict(p, idempo.VerdictReplay)
	k.same("replayed", a.Record, want)
	if a.Record.Token != p.Token {
		k.Error("the owner does not recognise its own completion")
	}
}

func oneAfterTheOther(k *K) {
	p := k.claim(k.key())
	want := k.completed(p)
	for _, to := range []idempo.State{idempo.StateFailed, idempo.StateInDoubt, idempo.StateIssued} {
		_, err := k.Store.Release(k.ctx, k.release(p, to, k.t0))
		k.code(err, "wrong_state")
	}
	k.same("completed first", k.look(p.Key, k.t0), want)

	p = k.claim(k.key())
	want = k.released(p, idempo.StateFailed)
	_, err := k.Store.Complete(k.ctx, k.done(p, 1, k.t0))
	k.code(err, "wrong_state")
	k.same("released first", k.look(p.Key, k.t0), want)
}

// spoil overwrites what a slice holds.
func spoil(bs ...[]byte) {
	for _, b := range bs {
		for i := range b {
			b[i] ^= 0xff
		}
	}
}

func spoilRecord(r idempo.Record) {
	spoil(r.Hash, r.Detail, r.Snapshot, r.BodySHA256, r.Result.Body)
	for i := range r.Result.Header {
		r.Result.Header[i] = [2]string{"spoilt", "spoilt"}
	}
	for i := range r.References {
		r.References[i] = idempo.Resource{Type: "spoilt"}
	}
}

// rich returns a claim and its completion that fill every slice.
func rich(k *K) (idempo.AcquireParams, idempo.CompleteParams) {
	p := k.claim(k.key())
	c := k.done(p, 1, k.t0)
	c.SHA256, c.References = digest("body"), []idempo.Resource{{Type: "charge", ID: "1"}}
	return p, c
}

func callerChangesItsParams(k *K) {
	p, c := rich(k)
	want := k.won(p).Clone()
	spoil(p.Hash, p.Detail, p.Snapshot)
	k.same("the claim", k.look(p.Key, k.t0), want)

	r, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	want = r.Clone()
	spoil(c.Result.Body, c.SHA256)
	c.Result.Header[0], c.References[0] = [2]string{"spoilt", ""}, idempo.Resource{Type: "spoilt"}
	k.same("the result", k.look(p.Key, k.t0), want)
}

func callerChangesWhatItGot(k *K) {
	p, c := rich(k)
	r := k.won(p)
	want := r.Clone()
	spoilRecord(r)
	k.same("after Acquire", k.look(p.Key, k.t0), want)
	r, err := k.Store.Renew(k.ctx, k.renew(p, k.t0))
	k.ok(err)
	want = r.Clone()
	spoilRecord(r)
	k.same("after Renew", k.look(p.Key, k.t0), want)
	r, err = k.Store.Complete(k.ctx, c)
	k.ok(err)
	want = r.Clone()
	spoilRecord(r)
	k.same("after Complete", k.look(p.Key, k.t0), want)
	spoilRecord(k.look(p.Key, k.t0))
	k.same("after Lookup", k.look(p.Key, k.t0), want)
	spoilRecord(k.verdict(k.again(k.claim(p.Key), k.t0), idempo.VerdictReplay).Record)
	k.same("after a replay", k.look(p.Key, k.t0), want)

	p = k.claim(k.key())
	r = k.released(p, idempo.StateFailed)
	want = r.Clone()
	spoilRecord(r)
	k.same("after Release", k.look(p.Key, k.t0), want)
}

func paramsStay(k *K) {
	p, c := rich(k)
	p.Aliases = []string{k.key().ID}
	if k.caps.SingleAlias {
		p.Aliases = nil
	}
	hash, aliases := bytes.Clone(p.Hash), slices.Clone(p.Aliases)
	body, header := bytes.Clone(c.Result.Body), slices.Clone(c.Result.Header)
	k.won(p)
	_, err := k.Store.Complete(k.ctx, c)
	k.ok(err)
	if !bytes.Equal(hash, p.Hash) || !slices.Equal(aliases, p.Aliases) || !bytes.Equal(body, c.Result.Body) || !slices.Equal(header, c.Result.Header) {
		k.Error("the store changed its caller's memory")
	}
}

func staleToken(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashRerun
	k.won(p)
	next := k.again(p, k.t0.Add(lease))
	want := k.won(next)
	at := next.Now.Add(time.Second)
	_, err := k.Store.Renew(k.ctx, k.renew(p, at))
	k.code(err, "lease_lost")
	_, err = k.Store.Complete(k.ctx, k.done(p, 1, at))
	k.code(err, "lease_lost")
	for _, to := range []idempo.State{idempo.StateFailed, idempo.StateInDoubt, idempo.StateIssued} {
		_, err = k.Store.Release(k.ctx, k.release(p, to, at))
		k.code(err, "lease_lost")
	}
	k.same("the winner's row", k.look(p.Key, at), want)
}

func tokenOfAnotherKey(k *K) {
	p, other := k.claim(k.key()), k.claim(k.key())
	want := k.won(p)
	k.won(other)
	other.Key = p.Key
	_, err := k.Store.Complete(k.ctx, k.done(other, 1, k.t0))
	k.code(err, "lease_lost")
	k.same("the row", k.look(p.Key, k.t0), want)
}

func lookupAbsent(k *K) {
	if r, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: k.key()}); err != nil || r.State != "" || r.Attempt != 0 {
		k.Errorf("%+v, %v", r, err)
	}
}
