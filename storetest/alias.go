package storetest

import (
	"time"

	"github.com/idempo/idempo"
)

func aliasCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: "[stores/E23] " + name, needs: needAliases, run: run}
	}
	return []testCase{
		c("one claim occupies all its digests", aliasesOccupied),
		c("processes one rotation step apart never both win", rotationStep),
		c("a claim that meets its key under another digest follows it", followAlias),
		c("the follower of another digest writes under the record's own key", writeByRecordKey),
		c("a taken-over record is occupied under the newcomer's digests, too", takeoverAddsAliases),
		c("a losing claim occupies nothing", loserOccupiesNothing),
		c("alias rows leave with their record", aliasesLeave),
		{name: "[stores/E23] a completion occupies the digests of its atomic claim", needs: needAliases | needTx, run: atomicAliases},
	}
}

// under returns p as sent by a process whose first digest of the key is ids[0], its others the rest.
func (k *K) under(p idempo.AcquireParams, ids ...string) idempo.AcquireParams {
	p = k.again(p, p.Now)
	p.Key.ID, p.Aliases = ids[0], ids[1:]
	return p
}

func (k *K) digests() (a, b, c string) { return k.key().ID, k.key().ID, k.key().ID }

func aliasesOccupied(k *K) {
	a, b, c := k.digests()
	p := k.under(k.claim(k.key()), a, b, c)
	want := k.won(p)
	for _, id := range []string{a, b, c} {
		k.verdict(k.under(p, id), idempo.VerdictInProgress)
		other := p.Key
		other.ID = id
		got := k.look(other, k.t0)
		k.same("looked up by "+other.Ref(), got, want)
	}
	foreign := k.under(p, b)
	foreign.Key.Tenant += "-other"
	k.won(foreign)
}

func rotationStep(k *K) {
	old, now, next := k.digests()
	// The processes before, in and after a rotation, each pair one step apart.
	for _, pair := range [][2][]string{
		{{old}, {old, now}}, {{old, now}, {now, old}}, {{now, old}, {now}}, {{now}, {now, next}}, {{now, next}, {next, now}},
	} {
		for _, flip := range []bool{false, true} {
			first, second := pair[0], pair[1]
			if flip {
				first, second = second, first
			}
			p := k.claim(k.key())
			p.Key.Tenant += p.Key.Ref() // the digests are used again, by another tenant
			p = k.under(p, first...)
			k.won(p)
			k.verdict(k.under(p, second...), idempo.VerdictInProgress)
			_, err := k.Store.Complete(k.ctx, k.done(p, 1, k.t0))
			k.ok(err)
			k.verdict(k.under(p, second...), idempo.VerdictReplay)
		}
	}
}

func followAlias(k *K) {
	a, b, _ := k.digests()
	p := k.under(k.claim(k.key()), a)
	want := k.completed(p)
	k.same("a newer process replays", k.verdict(k.under(p, b, a), idempo.VerdictReplay).Record, want)
	r, err := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: k.under(p, b).Key, Aliases: []string{a}, Now: k.t0})
	k.ok(err)
	k.same("a newer process looks up", r, want)
	other := k.under(p, b, a)
	other.Hash = digest("another request")
	k.verdict(other, idempo.VerdictMismatch)
}

func writeByRecordKey(k *K) {
	for _, write := range []func(p idempo.AcquireParams) (idempo.Record, error){
		func(p idempo.AcquireParams) (idempo.Record, error) { return k.Store.Renew(k.ctx, k.renew(p, k.t0)) },
		func(p idempo.AcquireParams) (idempo.Record, error) {
			return k.Store.Complete(k.ctx, k.done(p, 2, k.t0))
		},
		func(p idempo.AcquireParams) (idempo.Record, error) {
			return k.Store.Release(k.ctx, k.release(p, idempo.StateFailed, k.t0))
		},
	} {
		a, b, _ := k.digests()
		p := k.under(k.claim(k.key()), a)
		k.released(p, idempo.StateFailed)
		next := k.under(p, b, a)
		r := k.won(next)
		if r.Key.ID != a {
			k.Fatal("the record changed its key")
		}
		next.Key = r.Key
		r, err := write(next)
		k.ok(err)
		for _, id := range []string{a, b} {
			key := p.Key
			key.ID = id
			k.same("the row", k.look(key, k.t0), r)
		}
	}
}

func takeoverAddsAliases(k *K) {
	a, b, _ := k.digests()
	p := k.under(k.claim(k.key()), a)
	k.released(p, idempo.StateFailed)
	next := k.under(p, b, a)
	r := k.won(next)
	if r.Attempt != 2 {
		k.Errorf("attempt %d, want 2", r.Attempt)
	}
	k.verdict(k.under(p, b), idempo.VerdictInProgress)
	k.verdict(k.under(p, a), idempo.VerdictInProgress)
	next.Key = r.Key
	_, err := k.Store.Complete(k.ctx, k.done(next, 2, k.t0))
	k.ok(err)
	k.verdict(k.under(p, a), idempo.VerdictReplay)
	k.verdict(k.under(p, b), idempo.VerdictReplay)
}

func loserOccupiesNothing(k *K) {
	a, b, c := k.digests()
	p := k.under(k.claim(k.key()), a)
	k.won(p)
	k.verdict(k.under(p, b, a, c), idempo.VerdictInProgress)
	k.won(k.under(p, c))
	k.won(k.under(p, b))
}

func aliasesLeave(k *K) {
	a, b, _ := k.digests()
	p := k.under(k.claim(k.key()), a, b)
	k.released(p, idempo.StateIssued) // forgotten
	if r := k.won(k.under(p, b)); r.Attempt != 1 {
		k.Errorf("attempt %d under a forgotten alias", r.Attempt)
	}
	k.won(k.under(p, a))

	a, b, _ = k.digests()
	p = k.under(k.claim(k.key()), a, b)
	k.completed(p)
	gone := k.under(p, b)
	gone.Now = k.t0.Add(retention + tombstone)
	k.won(gone)
}

func atomicAliases(k *K) {
	a, b, _ := k.digests()
	p := k.under(k.atomic(), a, b)
	k.ok(k.commit(p, nil))
	k.verdictInTx(k.under(p, b), idempo.VerdictReplay)
	k.verdictInTx(k.under(p, a), idempo.VerdictReplay)
	q := k.claim(p.Key)
	q.Key.ID = b
	q.Now = k.t0.Add(time.Second)
	k.verdict(q, idempo.VerdictReplay)
}
