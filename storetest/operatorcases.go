package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func operatorCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: name, needs: needOperator, run: run} }
	return []testCase{
		c("[operations/OP24] a failing result may be retried, the history stays, and the next generation derives other keys", retried),
		c("[operations/OP22] several operators settle one key at once: one does, the others are told that it moved", settledOnce),
		c("[operations/OP23] [stores/CT29] a release and a late completion at once: one wins, the other gets lost or moved", releasedOnce),
		c("[operations/OP27] changes of one call commit together with their audit rows; a refused one does not disturb", changedTogether),
		c("[operations/OP27] the audit is in order, in pages, filtered, and outlives its records", auditPages),
		c("[operations/OP27] refusals that were decided before, and unknown keys, are audited", auditedRefusals),
		c("[operations/OP19] earlier attempts are kept when taken over, settled and retried, each once", attemptsKept),
		{name: "[security/SEC25] [stores/E23] a purge frees every digest of its key", needs: needOperator | needAliases, run: purgedAliases},
		{name: "an operator's change is a transaction of its own", needs: needOperator | needTx, run: changeInTx},
		{name: "[operations/UI10] counts by effective state, and the oldest that runs and that is in doubt", needs: needOperator, alone: true, run: counts},
	}
}

// failing returns a completion that says no for good.
func (k *K) failing(p idempo.AcquireParams, attempt int64) idempo.CompleteParams {
	c := k.done(p, attempt, p.Now)
	c.Result = idempo.Result{Status: 402, Body: []byte("declined"), Failing: true}
	return c
}

func retried(k *K) {
	p := k.claim(k.key())
	_, err := k.Store.Complete(k.ctx, k.failing(p, k.won(p).Attempt))
	k.ok(err)
	at := k.t0.Add(time.Hour)
	c := operator.Change{Action: operator.ActionRetry, Retention: time.Minute}
	got := k.change(k.asked(c, k.look(p.Key, at), p.Key), at)
	r := k.state(p.Key, at, idempo.StateFailed)
	if got.Err != nil || r.Generation != 2 || r.Attempt != 1 || !r.ExpiresAt.Equal(at.Add(retention)) { // its own retention, not the default
		k.Fatalf("%v: %+v", got.Err, r)
	}
	again := k.change(k.asked(c, r, p.Key), at)
	if operator.CodeOf(again.Err) != operator.CodeWrongState {
		k.Errorf("a second retry: %v", again.Err)
	}
	next := k.again(p, at)
	next.DerivedKey = "another"
	r = k.won(next)
	if r.Attempt != 2 || r.Generation != 2 {
		k.Errorf("then attempt %d, generation %d", r.Attempt, r.Generation)
	}
	_, err = k.Store.Complete(k.ctx, k.done(next, 2, at))
	k.ok(err)
	attempts, err := k.ops().Attempts(k.ctx, p.Key)
	k.ok(err)
	if len(attempts) != 1 || attempts[0].State != idempo.StateCompleted || attempts[0].Result.Status != 402 || !attempts[0].Result.Failing || attempts[0].Generation != 1 {
		k.Errorf("earlier attempts %+v", attempts)
	}
	if r = k.state(p.Key, at, idempo.StateCompleted); r.Generation != 2 || r.Result.Status != 201 {
		k.Errorf("at last %+v", r)
	}
}

func settledOnce(k *K) {
	for _, to := range []idempo.State{idempo.StateCompleted, idempo.StateFailed} {
		p := k.claim(k.key())
		r := k.released(p, idempo.StateInDoubt)
		at := k.t0.Add(time.Minute)
		r = k.look(p.Key, at)
		var t tally
		k.race(racers, func(i int, s idempo.Store) {
			c := k.asked(resolveTo(to), r, p.Key)
			c.Actor = fmt.Sprint("operator ", i)
			done, err := s.(operator.Changer).Change(k.ctx, operator.ChangeParams{Changes: []operator.Change{c}, Now: at})
			switch {
			case err != nil:
				t.add(err.Error())
			case done[0].Err == nil:
				t.add("done")
			default:
				t.add(operator.CodeOf(done[0].Err))
			}
		})
		if t.n["done"] != 1 || t.n["moved"] != racers-1 {
			k.Errorf("%v, want one done, the rest moved", t.n)
		}
		page, err := k.ops().Audit(k.ctx, operator.AuditParams{Key: p.Key})
		k.ok(err)
		if len(page.Entries) != racers || len(slices.DeleteFunc(page.Entries, func(e operator.Entry) bool { return e.Outcome != operator.OutcomeDone })) != 1 {
			k.Errorf("%d audit rows", len(page.Entries))
		}
		k.state(p.Key, at, to)
	}
}

func releasedOnce(k *K) {
	for range 5 {
		p := k.claim(k.key())
		r := k.won(p)
		at := k.t0.Add(time.Second)
		var released, completed string
		k.race(2, func(i int, s idempo.Store) {
			if i == 0 {
				_, err := s.Complete(k.ctx, k.done(p, r.Attempt, at))
				completed = codeOf(err)
				return
			}
			c := k.asked(operator.Change{Action: operator.ActionRelease, To: idempo.StateFailed, Retention: retention}, r, p.Key)
			done, err := s.(operator.Changer).Change(k.ctx, operator.ChangeParams{Changes: []operator.Change{c}, Now: at})
			if err != nil {
				released = err.Error()
				return
			}
			released = operator.CodeOf(done[0].Err)
		})
		switch after := k.look(p.Key, at); {
		case after.State == idempo.StateCompleted && completed == "" && released == operator.CodeMoved:
		case after.State == idempo.StateFailed && completed == "lease_lost" && released == "":
		default:
			k.Errorf("%s: completion %q, release %q", after.State, completed, released)
		}
	}
}

func changedTogether(k *K) {
	at := k.t0.Add(time.Second)
	var all []operator.Change
	var want []string
	add := func(p idempo.AcquireParams, c operator.Change, code string) {
		all, want = append(all, k.asked(c, k.look(p.Key, at), p.Key)), append(want, code)
	}
	for range 3 {
		doubt, done := k.claim(k.key()), k.claim(k.key())
		k.released(doubt, idempo.StateInDoubt)
		k.completed(done)
		add(doubt, resolveTo(idempo.StateFailed), "")
		add(done, resolveTo(idempo.StateFailed), operator.CodeWrongState)
		add(k.claim(k.key()), resolveTo(idempo.StateFailed), operator.CodeNotFound)
	}
	got, err := k.ops().Change(k.ctx, operator.ChangeParams{Changes: all, Now: at})
	k.ok(err)
	for i, g := range got {
		if operator.CodeOf(g.Err) != want[i] {
			k.Errorf("change %d: %v, want %q", i, g.Err, want[i])
		}
		if want[i] == "" {
			k.state(all[i].Key, at, idempo.StateFailed)
		}
		k.audited(all[i].Key, g.Entry)
	}
}

func auditPages(k *K) {
	at := k.t0.Add(time.Second)
	const n = 7
	var keys []idempo.Key
	for i := range n {
		p := k.claim(k.key())
		k.released(p, idempo.StateFailed)
		c := k.asked(operator.Change{Action: operator.ActionPurge}, k.look(p.Key, at), p.Key)
		c.Actor = fmt.Sprint("operator ", i%2)
		k.change(c, at.Add(time.Duration(i)*time.Second))
		keys = append(keys, p.Key)
	}
	read := func(p operator.AuditParams) (out []operator.Entry) {
		k.Helper()
		if p.Key.Tenant == "" && p.Tenants == nil {
			p.Key.Tenant = k.tenant
		}
		for {
			page, err := k.ops().Audit(k.ctx, p)
			k.ok(err)
			if len(page.Entries) > max(p.Limit, 100) {
				k.Fatalf("a page of %d", len(page.Entries))
			}
			if out = append(out, page.Entries...); page.Next == "" {
				return out
			}
			p.After = page.Next
		}
	}
	ids := func(es []operator.Entry) (out []string) {
		for _, e := range es {
			out = append(out, e.Key.Ref())
		}
		return out
	}
	var oldest []string
	for _, key := range keys {
		oldest = append(oldest, key.Ref())
	}
	newest := slices.Clone(oldest)
	slices.Reverse(newest)
	for _, limit := range []int{1, 3, n, 0} {
		if got := ids(read(operator.AuditParams{Limit: limit})); !slices.Equal(got, oldest) {
			k.Errorf("by %d: %v, want %v", limit, got, oldest)
		}
		if got := ids(read(operator.AuditParams{Limit: limit, Newest: true})); !slices.Equal(got, newest) {
			k.Errorf("by %d, the newest first: %v, want %v", limit, got, newest)
		}
	}
	count := func(want int, p operator.AuditParams) {
		k.Helper()
		if got := read(p); len(got) != want {
			k.Errorf("%+v finds %d, want %d", p, len(got), want)
		}
	}
	count(4, operator.AuditParams{Actor: "operator 0"})
	count(0, operator.AuditParams{Actor: "operator"})
	count(n, operator.AuditParams{Action: operator.ActionPurge, Outcome: operator.OutcomeDone})
	count(0, operator.AuditParams{Action: operator.ActionRetry})
	count(0, operator.AuditParams{Outcome: operator.OutcomeRefused})
	count(n-2, operator.AuditParams{Since: at.Add(2 * time.Second)})
	count(2, operator.AuditParams{Until: at.Add(2 * time.Second)})
	count(1, operator.AuditParams{Ref: []byte(keys[2].ID[:16])})
	count(1, operator.AuditParams{Ref: []byte(keys[2].ID[:16]), Newest: true})
	count(1, operator.AuditParams{Key: keys[3]})
	count(0, operator.AuditParams{Key: idempo.Key{Tenant: k.tenant, Operation: "another"}})
	count(n, operator.AuditParams{Tenants: []string{"another", k.tenant}})
	count(0, operator.AuditParams{Tenants: []string{"another", k.tenant + "x"}})
	count(0, operator.AuditParams{Tenants: []string{}})
	for _, bad := range []operator.AuditParams{{After: "-"}, {Action: "drop"}, {Outcome: "fine"}, {Limit: -1}} {
		if _, err := k.ops().Audit(k.ctx, bad); err == nil {
			k.Errorf("%+v is accepted", bad)
		}
	}
}

func auditedRefusals(k *K) {
	p := k.claim(k.key())
	r := k.released(p, idempo.StateInDoubt)
	at := k.t0.Add(time.Second)
	c := k.asked(resolveTo(idempo.StateFailed), k.look(p.Key, at), p.Key)
	c.Refused, c.Role = operator.CodeForbidden, operator.RoleViewer
	got := k.change(c, at)
	k.refusal(got, c, operator.CodeForbidden, r)
	k.audited(p.Key, got.Entry)
	k.same("the row", k.look(p.Key, at), r)
	c.Key, c.Attempt, c.Refused, c.Actor = idempo.Key{}, 0, operator.CodeNotFound, "nobody "+k.tenant
	got = k.change(c, at)
	page, err := k.ops().Audit(k.ctx, operator.AuditParams{Actor: c.Actor})
	k.ok(err)
	if operator.CodeOf(got.Err) != operator.CodeNotFound || len(page.Entries) != 1 || page.Entries[0].Key != (idempo.Key{}) || page.Entries[0].Code != operator.CodeNotFound {
		k.Errorf("%v, then %+v", got.Err, page.Entries)
	}
}

func attemptsKept(k *K) {
	p := k.claim(k.key())
	p.OnCrash = idempo.OnCrashRerun
	k.won(p)
	at := k.t0.Add(lease)
	second := k.again(p, at)
	k.won(second) // taken over
	k.ok(func() error {
		_, err := k.Store.Release(k.ctx, k.release(second, idempo.StateInDoubt, at))
		return err
	}())
	got := k.change(k.asked(resolveTo(idempo.StateCompleted), k.look(p.Key, at), p.Key), at)
	k.ok(got.Err)
	got = k.change(k.asked(operator.Change{Action: operator.ActionRetry, Force: true}, k.look(p.Key, at), p.Key), at)
	k.ok(got.Err)
	k.won(k.again(p, at))
	attempts, err := k.ops().Attempts(k.ctx, p.Key)
	k.ok(err)
	var seen []string
	for _, a := range attempts {
		seen = append(seen, fmt.Sprintf("%d %s %s", a.Attempt, a.State, a.Owner))
	}
	if want := []string{"1 pending " + p.Owner, "2 in_doubt " + second.Owner}; !slices.Equal(seen, want) {
		k.Errorf("earlier attempts %q, want %q", seen, want)
	}
	if none, err := k.ops().Attempts(k.ctx, k.key()); err != nil || len(none) != 0 {
		k.Errorf("an unknown key has %d attempts, %v", len(none), err)
	}
}

func purgedAliases(k *K) {
	p := k.claim(k.key())
	p.Aliases = []string{k.key().ID}
	k.completed(p)
	at := k.t0.Add(time.Second)
	got := k.change(k.asked(operator.Change{Action: operator.ActionPurge, Tombstones: true}, k.look(p.Key, at), p.Key), at)
	k.ok(got.Err)
	alias := k.again(p, at)
	alias.Key.ID, alias.Aliases, alias.Hash = p.Aliases[0], nil, digest("another request")
	if r := k.won(alias); r.Attempt != 1 {
		k.Errorf("the alias of a removed record is at attempt %d", r.Attempt)
	}
}

func changeInTx(k *K) {
	p := k.claim(k.key())
	r := k.released(p, idempo.StateInDoubt)
	c := k.asked(resolveTo(idempo.StateFailed), r, p.Key)
	err := k.inTx(func(in tx) error {
		_, err := k.ops().Change(in.ctx, operator.ChangeParams{Changes: []operator.Change{c}, Now: k.t0})
		k.code(err, "misuse")
		return nil
	})
	k.ok(err)
	k.state(p.Key, k.t0, idempo.StateInDoubt)
}

func counts(k *K) {
	for range 3 {
		k.completed(k.claim(k.key()))
	}
	doubt, late, running, old := k.claim(k.key()), k.claim(k.key()), k.claim(k.key()), k.claim(k.key())
	k.released(doubt, idempo.StateInDoubt)
	old.Now = k.t0.Add(-2 * retention)
	k.completed(old)
	late.Now = k.t0.Add(-2 * lease)
	k.won(late)
	k.won(running)
	young := k.claim(k.key())
	young.Now = k.t0.Add(time.Second)
	k.won(young)
	other := k.claim(k.key())
	other.Key.Tenant = k.tenant + "x"
	k.completed(other)
	at := k.t0.Add(2 * time.Second)
	count := func(p operator.CountParams, want string) operator.Stats {
		k.Helper()
		p.Now = at
		s, err := k.ops().Count(k.ctx, p)
		k.ok(err)
		var got strings.Builder
		for i, c := range s.Counts {
			if c.State != operator.States()[i] || c.Estimate {
				k.Errorf("count %d is %+v", i, c)
			}
			fmt.Fprintf(&got, "%s %d, ", c.State, c.Records)
		}
		if got.String() != want {
			k.Errorf("%+v: %s; want %s", p, got.String(), want)
		}
		return s
	}
	s := count(operator.CountParams{Tenant: k.tenant}, "issued 0, pending 2, completed 3, failed 0, in_doubt 2, expired 1, ")
	count(operator.CountParams{Tenant: k.tenant, Operation: "create-order"}, "issued 0, pending 2, completed 3, failed 0, in_doubt 2, expired 1, ")
	count(operator.CountParams{Tenant: k.tenant, Operation: "another"}, "issued 0, pending 0, completed 0, failed 0, in_doubt 0, expired 0, ")
	count(operator.CountParams{}, "issued 0, pending 2, completed 4, failed 0, in_doubt 2, expired 1, ")
	if s.OldestInDoubt.Key != late.Key || !s.OldestInDoubt.Since.Equal(k.t0.Add(-lease)) || s.OldestPending.Key != running.Key || !s.OldestPending.Since.Equal(k.t0) {
		k.Errorf("the oldest are %+v and %+v", s.OldestInDoubt, s.OldestPending)
	}
}
