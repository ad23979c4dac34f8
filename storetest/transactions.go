package storetest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/idempo/idempo"
)

func txCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needTx, run: run} }
	effects := func(name string, run func(k *K)) testCase {
		return testCase{name: name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		effects("[stores/E8] a commit shows effect and record together", txCommit),
		effects("[stores/E8] error, panic, Goexit: rolled back, nothing remains, the panic goes on", txRollback),
		effects("[stores/E8] a failing result undoes the effects and is kept", txFailing),
		effects("[stores/E8] a failing result undoes the other records of its transaction, too", txFailingAmongOthers),
		effects("a claim never completed leaves nothing, though its transaction commits", txNeverCompleted),
		c("[stores/L9] a claim never waits for an open transaction: in progress, whatever the fingerprint", txHolds),
		c("[stores/E6] an open transaction's fingerprint is shown to nobody, a committed one's is", txFingerprint),
		c("rule 2: the same claim sent twice inside a transaction recognises itself", txClaimTwice),
		c("[stores/E15] in a transaction: the same result twice is fine, another is wrong, the first stays", txCompleteTwice),
		c("an atomic claim takes over what a leased one may, attempt by attempt", txTakeover),
		c("[stores/E18] an issued key claimed and rolled back is unspent; committed, it is spent", txIssued),
		c("[stores/E18] the next key is issued by the completing commit, and only by it", txIssueNext),
		c("inside a transaction: replay, mismatch, expired, in doubt as outside", txVerdicts),
		c("[stores/E4] an atomic claim outside a transaction, a leased one inside: misuse, nothing written", txMisuse),
		c("[stores/E22] rule 7: Enqueue joins the transaction in ctx", txEnqueue),
		c("rule 7: renewal, completion and release of a leased claim join the transaction in ctx", txJoins),
		c("Joined says whether a context carries a transaction, and whose", txJoined),
		c("a context whose transaction is over gives errors, not writes", txOver),
		c("[stores/E20] several claims in one transaction: one commit, a verdict per key", txSeveral),
		c("[stores/E20] one failing Complete fails all", txOneFails),
		c("the end of ctx during the work: committed with nil, or nothing with an error", txCancelled),
		{name: "[stores/E12] the work ends the transaction itself: tx_ended, never success", needs: needTx | needEffect | needEnd, run: txEnded},
		{name: "[stores/E12] a swallowed failed statement: tx_aborted, no effect", needs: needTx | needEffect | needPoison, run: txAborted},
		{name: "[stores/E10] the caller's own transaction: the caller commits, or nothing remains", needs: needTx | needEffect | needOwn, run: txOwn},
	}
}

func txCommit(k *K) {
	p := k.atomic()
	k.ok(k.inTx(func(in tx) error {
		r := in.run(p)
		k.ok(k.effect(p.Key)(in.ctx))
		k.state(p.Key, k.t0, "")
		k.effects(p.Key, 0)
		if err := in.complete(p, r.Attempt); err != nil {
			return err
		}
		k.state(p.Key, k.t0, "")
		k.effects(p.Key, 0)
		return nil
	}))
	k.effects(p.Key, 1)
	r := k.state(p.Key, k.t0, idempo.StateCompleted)
	if r.Attempt != 1 || r.Token != p.Token || !r.Result.Equal(answer()) || r.Guard != idempo.GuardAtomic || string(r.Hash) != string(p.Hash) ||
		r.Recipe != p.Recipe || r.Owner != p.Owner || r.Trace != p.Trace || r.Surface != p.Surface || r.DerivedKey != p.DerivedKey ||
		!r.CompletedAt.Equal(k.t0) || !r.ExpiresAt.Equal(k.t0.Add(retention)) || !r.CreatedAt.Equal(k.t0) || string(r.Snapshot) != "snapshot" {
		k.Errorf("committed as %+v", r)
	}
	k.same("replayed in a transaction", k.verdictInTx(k.again(p, k.t0), idempo.VerdictReplay).Record, r)
}

func txRollback(k *K) {
	boom := errors.New("boom")
	for _, completed := range []bool{false, true} {
		for _, end := range []string{"error", "panic", "Goexit"} {
			p := k.atomic()
			work := func(in tx) error {
				r := in.run(p)
				k.ok(k.effect(p.Key)(in.ctx))
				if completed {
					k.ok(in.complete(p, r.Attempt))
				}
				switch end {
				case "panic":
					panic(boom)
				case "Goexit":
					runtime.Goexit()
				}
				return boom
			}
			var err error
			var recovered any
			returned := false
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recovered = recover() }()
				err = k.inTx(work)
				returned = true
			}()
			<-done
			if end == "error" && !errors.Is(err, boom) || end == "panic" && recovered != boom || end == "Goexit" && (returned || recovered != nil) {
				k.Errorf("%s: error %v, panic %v, returned %t", end, err, recovered, returned)
			}
			k.effects(p.Key, 0)
			k.state(p.Key, k.t0, "")
			if a := k.verdictInTx(k.again(p, k.t0), idempo.VerdictRun); a.Record.Attempt != 1 || a.Lapsed {
				k.Errorf("%s: attempt %d, Lapsed %t: something remained", end, a.Record.Attempt, a.Lapsed)
			}
		}
	}
}

func txFailing(k *K) {
	p := k.atomic()
	k.ok(k.inTx(func(in tx) error {
		r := in.run(p)
		k.ok(k.effect(p.Key)(in.ctx))
		c := k.done(p, r.Attempt, k.t0)
		c.Result = idempo.Result{Status: 422, Body: []byte("no"), Failing: true}
		_, err := k.Store.Complete(in.ctx, c)
		return err
	}))
	k.effects(p.Key, 0)
	if r := k.state(p.Key, k.t0, idempo.StateCompleted); !r.Result.Failing || r.Result.Status != 422 || r.Attempt != 1 || r.Token != p.Token {
		k.Errorf("kept %+v", r)
	}
	k.verdictInTx(k.again(p, k.t0), idempo.VerdictReplay)
}

func txFailingAmongOthers(k *K) {
	p, q, e := k.atomic(), k.atomic(), k.claim(k.key())
	e.Due = k.t0
	k.ok(k.inTx(func(in tx) error {
		k.ok(in.complete(p, in.run(p).Attempt))
		in.run(e)
		c := k.done(q, in.run(q).Attempt, k.t0)
		c.Result.Failing = true
		_, err := k.Store.Complete(in.ctx, c)
		k.ok(k.effect(p.Key)(in.ctx))
		return err
	}))
	k.effects(p.Key, 0)
	k.state(p.Key, k.t0, "")
	k.state(e.Key, k.t0, "")
	k.state(q.Key, k.t0, idempo.StateCompleted)
}

func txNeverCompleted(k *K) {
	p := k.atomic()
	k.ok(k.inTx(func(in tx) error { in.run(p); return nil }))
	if k.caps.Written && k.look(p.Key, k.t0).State == idempo.StatePending {
		k.verdictInTx(k.again(p, k.t0), idempo.VerdictInProgress)
		k.verdictInTx(k.again(p, k.t0.Add(lease)), idempo.VerdictInDoubt)
		return
	}
	k.state(p.Key, k.t0, "")
	k.ok(k.commit(k.again(p, k.t0), k.effect(p.Key)))
	k.effects(p.Key, 1)
}

func txHolds(k *K) {
	p := k.atomic()
	failed := k.atomic() // a row is there already
	leased := k.claim(failed.Key)
	k.released(leased, idempo.StateFailed)
	err := k.inTx(func(in tx) error {
		one, two := in.run(p), in.run(failed)
		if one.Attempt != 1 || two.Attempt != 2 {
			k.Errorf("attempts %d and %d", one.Attempt, two.Attempt)
		}
		for _, q := range []idempo.AcquireParams{k.again(p, k.t0), k.again(failed, k.t0)} {
			q.Guard = idempo.GuardLeased
			if a := k.verdict(q, idempo.VerdictInProgress); a.RetryAfter != time.Second {
				k.Errorf("RetryAfter %s, want 1s", a.RetryAfter)
			}
			q.Guard = idempo.GuardAtomic
			if a := k.verdictInTx(q, idempo.VerdictInProgress); a.RetryAfter != time.Second {
				k.Errorf("RetryAfter %s, want 1s", a.RetryAfter)
			}
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		k.Fatal(err)
	}
	k.ok(k.commit(k.again(p, k.t0), nil))
	if r := k.verdictInTx(k.again(failed, k.t0), idempo.VerdictRun).Record; r.Attempt != 2 {
		k.Errorf("attempt %d after a rollback, want 2", r.Attempt)
	}
}

func txFingerprint(k *K) {
	p := k.atomic()
	other := k.again(p, k.t0)
	other.Hash = digest("another request")
	k.ok(k.inTx(func(in tx) error {
		r := in.run(p)
		leased := other
		leased.Guard = idempo.GuardLeased
		k.verdict(leased, idempo.VerdictInProgress)
		return in.complete(p, r.Attempt)
	}))
	k.verdictInTx(other, idempo.VerdictMismatch)
}

func txClaimTwice(k *K) {
	p := k.atomic()
	k.ok(k.inTx(func(in tx) error {
		first := in.run(p)
		if again := in.run(p); again.Attempt != first.Attempt || again.Token != first.Token {
			k.Errorf("attempts %d, then %d", first.Attempt, again.Attempt)
		}
		return in.complete(p, first.Attempt)
	}))
	if r := k.state(p.Key, k.t0, idempo.StateCompleted); r.Attempt != 1 {
		k.Errorf("attempt %d", r.Attempt)
	}
	a := k.verdictInTx(p, idempo.VerdictReplay) // settlement: the same token, in a new transaction
	if a.Record.Token != p.Token {
		k.Error("the owner does not recognise its own commit")
	}
}

func txCompleteTwice(k *K) {
	p := k.atomic()
	k.ok(k.inTx(func(in tx) error {
		r := in.run(p)
		k.ok(in.complete(p, r.Attempt))
		k.ok(in.complete(p, r.Attempt))
		c := k.done(p, r.Attempt, k.t0)
		c.Result.Status = 299
		_, err := k.Store.Complete(in.ctx, c)
		k.code(err, "wrong_state")
		return nil
	}))
	if r := k.state(p.Key, k.t0, idempo.StateCompleted); r.Result.Status != 201 {
		k.Errorf("status %d, want the first's", r.Result.Status)
	}
}

func txTakeover(k *K) {
	for _, c := range []struct {
		name    string
		at      time.Time
		attempt int64
		before  func(p idempo.AcquireParams)
	}{
		{"failed", k.t0, 2, func(p idempo.AcquireParams) { k.released(p, idempo.StateFailed) }},
		{"lapsed, not started", k.t0.Add(lease), 2, func(p idempo.AcquireParams) { p.StartMark = true; k.won(p) }},
		{"lapsed, rerun", k.t0.Add(lease), 2, func(p idempo.AcquireParams) { k.won(p) }},
		{"in doubt, rerun", k.t0.Add(lease), 2, func(p idempo.AcquireParams) { k.released(p, idempo.StateInDoubt) }},
	} {
		p := k.claim(k.key())
		p.OnCrash = idempo.OnCrashRerun
		c.before(p)
		next := k.again(p, c.at)
		next.Guard = idempo.GuardAtomic
		before := k.look(p.Key, c.at)
		k.verdictInTx(next, idempo.VerdictRun)
		k.same(c.name+": rolled back", k.look(p.Key, c.at), before)
		k.ok(k.commit(next, nil))
		r := k.state(p.Key, c.at, idempo.StateCompleted)
		if r.Attempt != c.attempt || r.Token != next.Token || r.Guard != idempo.GuardAtomic {
			k.Errorf("%s: attempt %d, guard %s", c.name, r.Attempt, r.Guard)
		}
		_, err := k.Store.Complete(k.ctx, k.done(p, 1, c.at)) // the first owner comes back
		k.code(err, "lease_lost")
		k.same(c.name+": the winner's row", k.look(p.Key, c.at), r)
	}
	p := k.atomic() // and what is gone
	k.ok(k.commit(p, nil))
	gone := k.again(p, k.t0.Add(retention+tombstone))
	k.ok(k.commit(gone, nil))
	if r := k.state(p.Key, gone.Now, idempo.StateCompleted); r.Attempt != 2 && k.caps.Sweep {
		k.Errorf("attempt %d, want 2", r.Attempt)
	}
}

func txIssued(k *K) {
	p := k.demand(k.issued())
	p.Guard = idempo.GuardAtomic
	k.verdictInTx(p, idempo.VerdictRun)
	k.state(p.Key, k.t0, idempo.StateIssued)
	k.ok(k.commit(p, nil))
	k.state(p.Key, k.t0, idempo.StateCompleted)
	absent := k.demand(k.key())
	absent.Guard = idempo.GuardAtomic
	err := k.inTx(func(in tx) error { _, err := k.Store.Acquire(in.ctx, absent); return err })
	k.code(err, "not_issued")
}

func txIssueNext(k *K) {
	for _, end := range []error{errUndo, nil} {
		p := k.atomic()
		next := k.claim(k.key())
		next.Issue, next.Hash, next.Recipe = time.Hour, nil, ""
		err := k.inTx(func(in tx) error {
			c := k.done(p, in.run(p).Attempt, k.t0)
			c.Issue = &next
			_, err := k.Store.Complete(in.ctx, c)
			k.ok(err)
			k.state(next.Key, k.t0, "")
			return end
		})
		if !errors.Is(err, end) {
			k.Errorf("%v, want %v", err, end)
		}
		if end == nil {
			k.state(next.Key, k.t0, idempo.StateIssued)
		} else {
			k.state(next.Key, k.t0, "")
		}
	}
}

func txVerdicts(k *K) {
	done, doubt, running := k.claim(k.key()), k.claim(k.key()), k.claim(k.key())
	k.completed(done)
	k.released(doubt, idempo.StateInDoubt)
	k.won(running)
	in := func(p idempo.AcquireParams, at time.Time) idempo.AcquireParams {
		p = k.again(p, at)
		p.Guard = idempo.GuardAtomic
		return p
	}
	k.verdictInTx(in(done, k.t0), idempo.VerdictReplay)
	k.verdictInTx(in(done, k.t0.Add(retention)), idempo.VerdictExpired)
	other := in(done, k.t0)
	other.Hash = digest("another request")
	k.verdictInTx(other, idempo.VerdictMismatch)
	k.verdictInTx(in(doubt, k.t0), idempo.VerdictInDoubt)
	k.verdictInTx(in(running, k.t0), idempo.VerdictInProgress)
	k.verdictInTx(in(running, k.t0.Add(lease)), idempo.VerdictInDoubt)
}

func txMisuse(k *K) {
	p := k.atomic()
	_, err := k.Store.Acquire(k.ctx, p)
	k.code(err, "misuse")
	leased := k.claim(k.key())
	err = k.inTx(func(in tx) error { _, err := k.Store.Acquire(in.ctx, leased); return err })
	k.code(err, "misuse")
	k.state(p.Key, k.t0, "")
	k.state(leased.Key, k.t0, "")
}

func txEnqueue(k *K) {
	for _, end := range []error{errUndo, nil} {
		p, q := k.claim(k.key()), k.atomic()
		p.Due, q.Due = k.t0.Add(time.Hour), k.t0.Add(time.Hour) // of a leased and of an atomic operation
		err := k.inTx(func(in tx) error { in.run(p); in.run(q); return end })
		if !errors.Is(err, end) {
			k.Errorf("%v, want %v", err, end)
		}
		want := idempo.StatePending
		if end != nil {
			want = ""
		}
		k.state(p.Key, k.t0, want)
		k.state(q.Key, k.t0, want)
	}
}

func txJoins(k *K) {
	for _, end := range []error{errUndo, nil} {
		renewed, completed, released := k.claim(k.key()), k.claim(k.key()), k.claim(k.key())
		before := []idempo.Record{k.won(renewed), k.won(completed), k.won(released)}
		at := k.t0.Add(time.Second)
		err := k.inTx(func(in tx) error {
			r := k.renew(renewed, at)
			r.Refer = idempo.Resource{Type: "charge", ID: "1"}
			_, err1 := k.Store.Renew(in.ctx, r)
			_, err2 := k.Store.Complete(in.ctx, k.done(completed, 1, at))
			_, err3 := k.Store.Release(in.ctx, k.release(released, idempo.StateFailed, at))
			return errors.Join(err1, err2, err3, end)
		})
		if !errors.Is(err, end) {
			k.Errorf("%v, want %v", err, end)
		}
		if end != nil {
			for _, want := range before {
				k.same("rolled back", k.look(want.Key, k.t0), want)
			}
			continue
		}
		if r := k.state(renewed.Key, at, idempo.StatePending); len(r.References) != 1 || !r.LeaseUntil.Equal(at.Add(lease)) {
			k.Errorf("renewed as %+v", r)
		}
		k.state(completed.Key, at, idempo.StateCompleted)
		k.state(released.Key, at, idempo.StateFailed)
	}
}

func txJoined(k *K) {
	j, ok := k.Store.(idempo.Joiner)
	if !ok {
		k.Fatal("a Transactor must be a Joiner")
	}
	if in, _, err := j.Joined(k.ctx); in || err != nil {
		k.Errorf("outside: %t, %v", in, err)
	}
	k.ok(k.inTx(func(t tx) error {
		if in, own, err := j.Joined(t.ctx); !in || !own || err != nil {
			k.Errorf("inside: %t, own %t, %v", in, own, err)
		}
		if in, own, err := j.Joined(context.WithoutCancel(t.ctx)); !in || !own || err != nil {
			k.Errorf("detached: %t, own %t, %v", in, own, err)
		}
		return nil
	}))
	if k.Own == nil {
		return
	}
	ctx, _, rollback, err := k.Own(k.ctx)
	k.ok(err)
	if in, own, err := j.Joined(ctx); !in || own || err != nil {
		k.Errorf("the caller's own: %t, own %t, %v", in, own, err)
	}
	k.ok(rollback())
}

func txOver(k *K) {
	p := k.atomic()
	var over context.Context
	k.ok(k.inTx(func(in tx) error { over = in.ctx; return in.complete(p, in.run(p).Attempt) }))
	want := k.look(p.Key, k.t0)
	q := k.atomic()
	if _, err := k.Store.Acquire(over, q); err == nil {
		k.Error("a claim in a transaction that is over")
	}
	if _, err := k.Store.Complete(over, k.done(q, 1, k.t0)); err == nil {
		k.Error("a completion in a transaction that is over")
	}
	k.state(q.Key, k.t0, "")
	k.same("the committed row", k.look(p.Key, k.t0), want)
}

func txSeveral(k *K) {
	done := k.claim(k.key())
	k.completed(done)
	p, q := k.atomic(), k.atomic()
	again := k.again(done, k.t0)
	again.Guard = idempo.GuardAtomic
	k.ok(k.inTx(func(in tx) error {
		one, two := in.run(p), in.run(q)
		if a, err := k.Store.Acquire(in.ctx, again); err != nil || a.Verdict != idempo.VerdictReplay {
			k.Errorf("%q, %v; want replay", a.Verdict, err)
		}
		return errors.Join(in.complete(q, two.Attempt), in.complete(p, one.Attempt))
	}))
	k.state(p.Key, k.t0, idempo.StateCompleted)
	k.state(q.Key, k.t0, idempo.StateCompleted)
}

func txOneFails(k *K) {
	p, q := k.atomic(), k.atomic()
	err := k.inTx(func(in tx) error {
		if err := in.complete(p, in.run(p).Attempt); err != nil {
			return err
		}
		r := in.run(q)
		q.Token = k.token() // not the claim's
		return in.complete(q, r.Attempt)
	})
	k.code(err, "lease_lost")
	k.state(p.Key, k.t0, "")
	k.state(q.Key, k.t0, "")
}

func txCancelled(k *K) {
	p := k.atomic()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	err := k.Store.(idempo.Transactor).InTx(ctx, func(ctx context.Context) error {
		in := tx{k, k.Store, ctx}
		if err := in.complete(p, in.run(p).Attempt); err != nil {
			return err
		}
		cancel()
		return nil
	})
	want := idempo.StateCompleted
	if err != nil {
		want = ""
	}
	k.state(p.Key, k.t0, want)
}

func txEnded(k *K) {
	p := k.atomic()
	err := k.inTx(func(in tx) error {
		r := in.run(p)
		k.ok(k.effect(p.Key)(in.ctx))
		k.ok(k.End(in.ctx))
		_ = in.complete(p, r.Attempt) // whatever it says, the commit cannot succeed
		return nil
	})
	k.code(err, "tx_ended")
	if n, err := k.Count(k.ctx, p.Key.Ref()); err != nil || n > 1 {
		k.Errorf("%d effects, %v", n, err)
	}
	if k.caps.Written && k.look(p.Key, k.t0).State == idempo.StatePending {
		return
	}
	k.state(p.Key, k.t0, "")
}

func txAborted(k *K) {
	p := k.atomic()
	err := k.inTx(func(in tx) error {
		r := in.run(p)
		k.ok(k.effect(p.Key)(in.ctx))
		k.Poison(in.ctx)
		_ = in.complete(p, r.Attempt)
		return nil
	})
	k.code(err, "tx_aborted")
	k.effects(p.Key, 0)
	k.state(p.Key, k.t0, "")
}

func txOwn(k *K) {
	for _, keep := range []bool{false, true} {
		p := k.atomic()
		ctx, commit, rollback, err := k.Own(k.ctx)
		k.ok(err)
		in := tx{k, k.Store, ctx}
		r := in.run(p)
		k.ok(k.effect(p.Key)(ctx))
		leased := k.again(p, k.t0)
		leased.Guard = idempo.GuardLeased
		k.verdict(leased, idempo.VerdictInProgress)
		k.ok(in.complete(p, r.Attempt))
		k.state(p.Key, k.t0, "")
		if !keep {
			k.ok(rollback())
			k.effects(p.Key, 0)
			k.state(p.Key, k.t0, "")
			continue
		}
		k.ok(commit())
		k.effects(p.Key, 1)
		k.state(p.Key, k.t0, idempo.StateCompleted)
	}
}
