package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func listCases() []testCase {
	c := func(name string, needs need, run func(k *K)) testCase {
		return testCase{name: name, needs: needLister | needs, alone: true, run: run}
	}
	return []testCase{
		c("[operations/OP18] filters intersect, on the effective state", 0, listFilters),
		c("[operations/OP18] a list skips nothing and repeats nothing while rows come and go", 0, listPages),
		c("[operations/OP19] a reference finds its record, also by an alias", needAliases, listRefs),
		{name: "[operations/OP19] what was made, what was referred to, and a trace find their records, the newest first", needs: needScanner, alone: true, run: scans},
	}
}

// list follows a list to its end.
func (k *K) list(p operator.FindParams) (out []idempo.Record) {
	k.Helper()
	for {
		page, err := k.Store.(operator.Lister).List(k.ctx, p)
		k.ok(err)
		out = append(out, page.Records...)
		if page.Next == "" {
			return out
		}
		if p.Limit > 0 && len(page.Records) != p.Limit {
			k.Errorf("a page of %d that is not the last, limit %d", len(page.Records), p.Limit)
		}
		p.After = page.Next
	}
}

func listFilters(k *K) {
	with := func(tenant, operation, surface string) idempo.AcquireParams {
		p := k.claim(k.key())
		p.Key.Tenant, p.Key.Operation, p.Surface = tenant, operation, surface
		return p
	}
	k.completed(with("a", "pay", "http"))
	no := with("a", "ship", "http")
	_, err := k.Store.Complete(k.ctx, k.failing(no, k.won(no).Attempt))
	k.ok(err)
	k.completed(with("b", "pay", "run"))
	pending := k.won(with("b", "ship", "http"))
	now, soon, late := k.t0.Add(time.Second), k.t0.Add(30*time.Minute), k.t0.Add(retention+time.Minute)
	count := func(want int, p operator.FindParams) {
		k.Helper()
		if p.Now.IsZero() {
			p.Now = now
		}
		got := k.list(p)
		if len(got) != want {
			k.Errorf("%+v finds %d, want %d", p, len(got), want)
		}
		for _, r := range got {
			if r.Result.Body != nil || r.Snapshot != nil {
				k.Error("a list carries bodies")
			}
		}
	}
	count(4, operator.FindParams{})
	count(2, operator.FindParams{Tenant: "a"})
	count(0, operator.FindParams{Tenant: "c"})
	count(2, operator.FindParams{Operation: "pay"})
	count(1, operator.FindParams{Operation: "pay", Tenant: "b"})
	count(1, operator.FindParams{Operation: "pay", Surface: "run", Tenant: "b", Outcome: operator.OutcomeCompleted})
	count(0, operator.FindParams{Operation: "pay", Surface: "run", Tenant: "a"})
	count(1, operator.FindParams{Outcome: operator.OutcomeFailing})
	count(1, operator.FindParams{State: idempo.StatePending})
	count(0, operator.FindParams{State: idempo.StatePending, Now: soon})
	count(1, operator.FindParams{State: idempo.StateInDoubt, Now: soon})
	count(0, operator.FindParams{State: idempo.StateInDoubt})
	count(3, operator.FindParams{State: idempo.StateExpired, Now: late})
	count(0, operator.FindParams{State: idempo.StateExpired, Now: soon})
	count(2, operator.FindParams{Reference: answer().Resource})
	count(4, operator.FindParams{OlderThan: 20 * time.Minute, Now: soon})
	count(0, operator.FindParams{OlderThan: 40 * time.Minute, Now: soon})
	count(4, operator.FindParams{NewerThan: 40 * time.Minute, Now: soon})
	count(1, operator.FindParams{Ref: pending.Ref()})
	count(0, operator.FindParams{Ref: pending.Ref(), Tenant: "a"})
	for _, p := range []operator.FindParams{{State: "done"}, {After: "x"}, {Ref: "k_x"}} {
		if _, err := k.Store.(operator.Lister).List(k.ctx, p); err == nil {
			k.Errorf("%+v is accepted", p)
		}
	}
}

func listPages(k *K) {
	const stay = 700 // more than a batch of any store
	want := map[string]bool{}
	for i := range stay {
		p := k.claim(k.key())
		p.Key.Tenant = fmt.Sprintf("t%d", i%3)
		k.won(p)
		want[p.Key.Ref()] = true
	}
	ctx, cancel := context.WithCancel(k.ctx)
	var wg sync.WaitGroup
	coming := make([]idempo.AcquireParams, 20)
	for i := range coming {
		coming[i] = k.claim(k.key())
		coming[i].Key.Tenant = fmt.Sprintf("t%d", i%3)
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p := coming[i%len(coming)]
			if _, err := k.Store.Acquire(ctx, p); err != nil {
				return
			}
			_, _ = k.Store.Release(ctx, idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateIssued, Now: k.t0})
		}
	})
	defer wg.Wait()
	defer cancel()
	for _, limit := range []int{7, 100, 0} {
		seen := map[string]int{}
		for _, r := range k.list(operator.FindParams{Limit: limit, Now: k.t0}) {
			seen[r.Ref()]++
		}
		for ref := range want {
			if seen[ref] != 1 {
				k.Fatalf("limit %d: %s is listed %d times", limit, ref, seen[ref])
			}
		}
	}
	got := k.list(operator.FindParams{State: idempo.StatePending, Tenant: "t1", Limit: 50, Now: k.t0})
	got = slices.DeleteFunc(got, func(r idempo.Record) bool { return !want[r.Ref()] })
	if len(got) != 233 {
		k.Errorf("%d of tenant t1, want 233", len(got))
	}
	if !slices.IsSortedFunc(got, func(a, b idempo.Record) int { return strings.Compare(a.Key.ID, b.Key.ID) }) {
		k.Error("not in the order of the key")
	}
}

func listRefs(k *K) {
	p := k.claim(k.key())
	p.Aliases = []string{k.key().ID}
	k.won(p)
	alias := p.Key
	alias.ID = p.Aliases[0]
	for _, ref := range []string{p.Key.Ref(), alias.Ref()} {
		if got := k.list(operator.FindParams{Ref: ref, Now: k.t0}); len(got) != 1 || got[0].Attempt != 1 || got[0].Ref() != p.Key.Ref() {
			k.Errorf("%s finds %+v", ref, got)
		}
	}
}

func scans(k *K) {
	at := func(d time.Duration) idempo.AcquireParams {
		p := k.claim(k.key())
		p.Now, p.Trace = k.t0.Add(-d), fmt.Sprintf("00-%032x-b7ad6b7169203331-01", int(d/time.Minute))
		return p
	}
	old, made, referred, other := at(100*24*time.Hour), at(time.Hour), at(5*time.Minute), at(time.Minute)
	for _, p := range []idempo.AcquireParams{old, made} {
		k.completed(p)
	}
	k.won(referred)
	r := k.renew(referred, referred.Now)
	r.Refer = answer().Resource
	_, err := k.Store.Renew(k.ctx, r)
	k.ok(err)
	c := k.done(other, k.won(other).Attempt, other.Now)
	c.Result.Resource = idempo.Resource{Type: "order", ID: "99"}
	_, err = k.Store.Complete(k.ctx, c)
	k.ok(err)
	scan := func(p operator.ScanParams) (found []string) {
		k.Helper()
		p.Now = k.t0
		for steps := 0; ; steps++ {
			got, err := k.Store.(operator.Scanner).Scan(k.ctx, p)
			k.ok(err)
			for _, r := range got.Records {
				if r.Result.Body != nil || r.Snapshot != nil {
					k.Error("a scan carries bodies")
				}
				found = append(found, r.Ref())
			}
			if got.Next == "" && !got.Back.IsZero() || steps > 10_000 {
				k.Fatalf("step %d: next %q, looked back to %s", steps, got.Next, got.Back)
			}
			if got.Next == "" {
				return found
			}
			p.After = got.Next
		}
	}
	want := func(p operator.ScanParams, keys ...idempo.AcquireParams) {
		k.Helper()
		var refs []string
		for _, key := range keys {
			refs = append(refs, key.Key.Ref())
		}
		if got := scan(p); !slices.Equal(got, refs) {
			k.Errorf("%+v finds %q, want %q", p, got, refs)
		}
	}
	order := operator.ScanParams{Resource: answer().Resource}
	want(order, referred, made) // the tombstone of long ago is over
	want(operator.ScanParams{Resource: idempo.Resource{Type: "order", ID: "99"}}, other)
	want(operator.ScanParams{Resource: idempo.Resource{Type: "order", ID: "0"}})
	want(operator.ScanParams{Trace: fmt.Sprintf("%032X", 60)}, made)
	want(operator.ScanParams{Trace: fmt.Sprintf("%032x", 61)})
	order.Tenant = k.tenant + "x"
	want(order)
}
