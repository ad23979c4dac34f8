package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

func modelCases() []testCase {
	return []testCase{{name: "[stores/CT45] random calls, memstore as the model: equal answers, equal rows", run: modelRandom}}
}

// run of so many steps have keys of their own.
const stretch = 100

// modelRandom plays Caps.Steps random steps on the store and on a memstore, and wants no difference.
func modelRandom(k *K) {
	seed := k.caps.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	k.Logf("seed %d; Caps.Seed repeats it", seed)
	rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a seed is meant to be repeatable
	total := k.caps.Steps
	if total == 0 {
		total = 2000
	}
	for n := 0; n < total; n += stretch {
		steps := randomSteps(rnd, stretch, k.caps)
		bad := k.playBoth(steps, fmt.Sprint(n))
		if k.ctx.Err() != nil {
			k.Fatalf("seed %d: %d steps took too long", seed, n)
		}
		if bad != "" {
			steps, bad = k.shrink(steps, bad)
			k.Fatalf("seed %d, shrunk to %d steps:\n%s\n%s", seed, len(steps), strings.Join(texts(steps), "\n"), bad)
		}
	}
}

// A step is one call, as data: it can be played again, on other stores and other keys.
type step struct {
	call    string // claim issue enqueue renew complete release take lookup tx
	id      int    // its token, for the steps that want one of their own
	key     int
	token   int           // of an earlier claim: whose write this is
	at      time.Duration // since t0
	lease   time.Duration
	hash    int
	onCrash idempo.OnCrash
	to      idempo.State
	result  int
	flag    bool // claim: StartMark · renew: Start · complete: Issue · tx: commits
	swap    bool // the key's second digest comes first
	demand  bool // RequireIssued
	unique  int  // 0: none
	inner   []step
}

func texts(steps []step) (out []string) {
	for _, s := range steps {
		out = append(out, fmt.Sprintf("  %+v", s))
	}
	return out
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

func randomSteps(rnd *rand.Rand, n int, c Caps) []step {
	var steps []step
	var at time.Duration
	claims := map[int][]int{} // key: ids of claims
	next := 1
	one := func(calls ...string) step {
		s := step{call: pick(rnd, calls...), id: next, key: rnd.IntN(4), at: at, lease: pick(rnd, time.Second, 10*time.Second, time.Minute), hash: rnd.IntN(8) / 7,
			onCrash: pick(rnd, idempo.OnCrashHold, idempo.OnCrashProbe, idempo.OnCrashRerun, idempo.OnCrashRerun), result: rnd.IntN(5), flag: rnd.IntN(2) == 0,
			to: pick(rnd, idempo.StateFailed, idempo.StateFailed, idempo.StateInDoubt, idempo.StateIssued), swap: rnd.IntN(2) == 0, demand: rnd.IntN(6) == 0}
		next++
		if rnd.IntN(6) == 0 {
			s.unique = 1 + rnd.IntN(2)
		}
		if s.call == "claim" || s.call == "take" {
			claims[s.key] = append(claims[s.key], s.id)
		} else if of := claims[s.key]; len(of) > 0 {
			s.token = of[len(of)-1]
			if rnd.IntN(4) == 0 {
				s.token = pick(rnd, of...)
			}
		}
		return s
	}
	calls := []string{"claim", "claim", "claim", "renew", "complete", "complete", "release", "release", "lookup", "issue", "enqueue"}
	if c.Take {
		calls = append(calls, "take")
	}
	if c.Tx {
		calls = append(calls, "tx", "tx")
	}
	for range n {
		at += pick(rnd, 0, 0, time.Microsecond, 500*time.Millisecond, time.Second, 9*time.Second, time.Minute, time.Hour, 25*time.Hour)
		if rnd.IntN(50) == 0 {
			at += 300 * time.Hour // past a tombstone
		}
		s := one(calls...)
		if s.call == "tx" {
			s.flag = rnd.IntN(4) > 0
			for range 1 + rnd.IntN(3) {
				in := one("claim", "claim", "claim", "renew", "complete", "release", "enqueue")
				if len(s.inner) > 0 {
					in.unique = 0 // what its own transaction completed is neither running nor done for an identity
				}
				s.inner = append(s.inner, in)
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// A play is a run of steps on one store.
type playing struct {
	k     *K
	s     idempo.Store
	salt  string // makes its keys and tokens
	won   map[int]idempo.AcquireParams
	key   map[int]idempo.Key // of the record that a claim won
	count map[int]int64
}

// operation is of these steps only, so that a take finds no others.
func (p *playing) operation() string { return "model-" + p.salt }

func (p *playing) digest(parts ...any) string {
	d := sha256.Sum256(fmt.Append(nil, append([]any{p.salt, " "}, parts...)...))
	return string(d[:])
}

func (p *playing) token(id int) (t idempo.Token) {
	if id > 0 {
		binary.BigEndian.PutUint64(t[:], uint64(id)) //nolint:gosec // small and positive
		d := p.digest("token")
		copy(t[8:], d)
	}
	return t
}

func (p *playing) params(s step) idempo.AcquireParams {
	a := idempo.AcquireParams{Guard: idempo.GuardLeased, OnCrash: s.onCrash, Token: p.token(s.id), Lease: s.lease, StartMark: s.flag, RequireIssued: s.demand,
		Key:  idempo.Key{Tenant: p.k.tenant, Operation: p.operation(), ID: p.digest("key", s.key)},
		Hash: digest(fmt.Sprint("request", s.hash)), Recipe: "http-1/k1", DerivedKey: fmt.Sprint("derived ", s.id), Snapshot: fmt.Append(nil, "snapshot ", s.id),
		Surface: "http", Owner: fmt.Sprint("owner ", s.id), Now: p.k.t0.Add(s.at)}
	if !p.k.caps.SingleAlias {
		a.Aliases = []string{p.digest("alias", s.key)}
		if s.swap {
			a.Key.ID, a.Aliases[0] = a.Aliases[0], a.Key.ID
		}
		if s.unique > 0 && s.call == "claim" {
			a.Unique = []string{p.digest("identity", s.unique)}
		}
	}
	switch s.call {
	case "issue":
		a.Issue, a.Hash, a.Recipe, a.Snapshot, a.RequireIssued = time.Hour, nil, "", nil, false
	case "enqueue":
		a.Due, a.StartMark, a.RequireIssued = a.Now.Add(time.Minute), true, false
	}
	return a
}

// call plays s and returns what a caller sees, as something that can be compared.
func (p *playing) call(ctx context.Context, s step, guard idempo.Guard) (seen []any, err error) {
	now := p.k.t0.Add(s.at)
	key, ok := p.key[s.token]
	if !ok {
		key = idempo.Key{Tenant: p.k.tenant, Operation: p.operation(), ID: p.digest("key", s.key)}
	}
	var r idempo.Record
	switch s.call {
	case "claim", "issue", "enqueue":
		a := p.params(s)
		a.Guard = guard
		if s.call == "issue" {
			a.Guard = idempo.GuardLeased
		}
		got, err := p.s.Acquire(ctx, a)
		if err == nil && got.Verdict == idempo.VerdictRun && s.call == "claim" {
			p.won[s.id], p.key[s.id], p.count[s.id] = a, got.Record.Key, got.Record.Attempt
		}
		if got.Verdict == idempo.VerdictRun && guard == idempo.GuardAtomic {
			got.Record = idempo.Record{Attempt: got.Record.Attempt} // it may not be written yet
		}
		return []any{codeOf(err), got.Verdict, got.Lapsed, got.RetryAfter.Truncate(time.Microsecond), p.named(got.Record)}, err
	case "renew":
		r, err = p.s.Renew(ctx, idempo.RenewParams{Key: key, Token: p.token(s.token), Lease: s.lease, Start: s.flag, Now: now})
	case "complete":
		c := idempo.CompleteParams{Key: key, Token: p.token(s.token), Won: p.won[s.token], Attempt: p.count[s.token], Result: results()[s.result+8], Kept: true,
			Retention: 24 * time.Hour, Tombstone: 240 * time.Hour, Now: now}
		c.Result.Failing = s.result == 4
		c.Won.Guard = guard
		if s.flag && s.demand {
			next := p.params(step{call: "issue", id: s.id, key: 10 + s.key, at: s.at, onCrash: idempo.OnCrashHold})
			c.Issue = &next
		}
		r, err = p.s.Complete(ctx, c)
		if guard == idempo.GuardAtomic {
			r = idempo.Record{} // decided at the commit
		}
	case "release":
		r, err = p.s.Release(ctx, idempo.ReleaseParams{Key: key, Token: p.token(s.token), To: s.to, Note: "note", Retention: time.Hour, Due: time.Duration(s.result) * time.Minute,
			Free: p.won[s.token].Unique, Now: now})
	case "take":
		got, err := p.s.(idempo.Taker).Take(ctx, idempo.TakeParams{Operations: []string{p.operation()}, Limit: 100, Token: p.token(s.id), Lease: s.lease, Owner: "taker", Now: now})
		slices.SortFunc(got, func(a, b idempo.Record) int { return strings.Compare(p.named(a).Key.ID, p.named(b).Key.ID) })
		seen := []any{codeOf(err)}
		for _, r := range got {
			p.key[s.id] = r.Key
			seen = append(seen, p.named(r))
		}
		return seen, err
	case "lookup":
	case "tx":
		return p.tx(ctx, s)
	}
	if err != nil {
		r = idempo.Record{}
	}
	return []any{codeOf(err), p.named(r)}, err
}

// named is r by its key's first digest: which of its digests a record has that is claimed anew after it was gone is the
// store's to choose.
func (p *playing) named(r idempo.Record) idempo.Record {
	for key := range 4 {
		if r.Key.ID == p.digest("alias", key) {
			r.Key.ID = p.digest("key", key)
		}
	}
	return r
}

// keyOf is the key that a write reaches: that of its token's claim, whatever the step says.
func (p *playing) keyOf(s step) int {
	for key := range 4 {
		if id := p.key[s.token].ID; id == p.digest("key", key) || id == p.digest("alias", key) {
			return key
		}
	}
	return s.key
}

// tx plays the inner steps of s in one transaction. Its atomic claims are completed at once, or never.
func (p *playing) tx(ctx context.Context, s step) (seen []any, err error) {
	err = p.s.(idempo.Transactor).InTx(ctx, func(ctx context.Context) error {
		used := map[int]bool{}
		for _, in := range s.inner {
			in.at = s.at
			if in.call != "claim" {
				in.key = p.keyOf(in)
			}
			if used[in.key] || in.call != "claim" && p.won[in.token].Guard == idempo.GuardAtomic {
				continue // a key twice is nested, which the engine refuses; an atomic claim ended with its transaction
			}
			used[in.key] = true
			if in.call == "complete" {
				in.result %= 4 // whether a leased claim's failing result undoes what it joined is nobody's rule
			}
			guard := idempo.GuardLeased
			if in.call == "claim" {
				guard = idempo.GuardAtomic
			}
			got, err := p.call(ctx, in, guard)
			if seen = append(seen, got...); err != nil {
				return err
			}
			if w, ok := p.won[in.id]; ok && w.Guard == idempo.GuardAtomic && (in.result > 0 || p.k.caps.Written) {
				in.call, in.token = "complete", in.id
				got, err := p.call(ctx, in, idempo.GuardAtomic)
				if seen = append(seen, got...); err != nil {
					return err
				}
			}
		}
		if !s.flag {
			return errUndo
		}
		return nil
	})
	return append(seen, codeOf(err)), err
}

// playBoth plays steps on the store and on the model, on keys of their own, and returns the first difference.
func (k *K) playBoth(steps []step, salt string) string {
	var plays [2]*playing
	for i, s := range []idempo.Store{k.Store, memstore.New(memstore.Options{})} {
		plays[i] = &playing{k: k, s: s, salt: salt, won: map[int]idempo.AcquireParams{}, key: map[int]idempo.Key{}, count: map[int]int64{}}
	}
	for n, s := range steps {
		var seen [2][]any
		for i, p := range plays {
			if atomic := p.won[s.token].Guard == idempo.GuardAtomic; atomic && s.call != "claim" && s.call != "tx" {
				continue // it ended with its transaction
			}
			seen[i], _ = p.call(k.ctx, s, idempo.GuardLeased)
			keys := []int{s.key}
			for _, in := range s.inner {
				keys = append(keys, in.key)
			}
			for key := range 4 {
				if slices.Contains(keys, key) || n%20 == 19 || n == len(steps)-1 {
					seen[i] = append(seen[i], p.row(p.digest("key", key), s.at))
				}
				if n%20 == 19 || n == len(steps)-1 {
					seen[i] = append(seen[i], p.row(p.digest("alias", key), s.at), p.row(p.digest("key", 10+key), s.at))
				}
			}
		}
		if d := unlike(seen[0], seen[1]); d != "" {
			return fmt.Sprintf("step %d, %s of key %d, differs from the model: %s", n+1, s.call, s.key, d)
		}
	}
	return ""
}

// row is the record under a digest after a step.
func (p *playing) row(id string, at time.Duration) any {
	key := idempo.Key{Tenant: p.k.tenant, Operation: p.operation(), ID: id}
	r, err := p.s.Lookup(p.k.ctx, idempo.LookupParams{Key: key, Now: p.k.t0.Add(at)})
	if err != nil {
		return codeOf(err)
	}
	if r.State == "" {
		return idempo.Record{}
	}
	return p.named(r)
}

// unlike says where what was seen differs.
func unlike(got, want []any) string {
	for i := range min(len(got), len(want)) {
		r, ok := got[i].(idempo.Record)
		if m, both := want[i].(idempo.Record); ok && both {
			if d := diff(r, m); len(d) > 0 {
				return strings.Join(d, "; ")
			}
			continue
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Sprintf("%q, the model says %q", got[i], want[i])
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d things seen, the model has %d", len(got), len(want))
	}
	return ""
}

// shrink leaves out steps as long as a difference remains.
func (k *K) shrink(steps []step, bad string) ([]step, string) {
	for range 3 {
		smaller := false
		for i := len(steps) - 1; i >= 0 && k.ctx.Err() == nil; i-- {
			less := slices.Delete(slices.Clone(steps), i, i+1)
			k.n++
			if still := k.playBoth(less, fmt.Sprint("shrunk-", k.n)); still != "" {
				steps, bad, smaller = less, still, true
			}
		}
		if !smaller {
			break
		}
	}
	return steps, bad
}
