package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
)

func raceCases() []testCase {
	effects := func(name string, run func(k *K)) testCase {
		return testCase{name: name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		{name: "[stores/CT24] identical calls at once: one run, the rest in progress or replay, no error", run: raceFirst},
		{name: "[stores/L5] callers at a lapsed record: exactly one take-over, no error for the rest", run: raceTakeover},
		{name: "[stores/T5] claims at the moment a tombstone ends: exactly one run", run: raceGone},
		{name: "[stores/E18] one-time key, many claims at once: one run", run: raceIssued},
		{name: "[stores/CT29] take-over and late completion at once: one wins, the row is one of the two", run: raceLate},
		{name: "[stores/CT29] completion, release and renewal by one owner at once: the row is one of them", run: raceOwner},
		{name: "[stores/CT29] completions with different results at once: the first stays, the others are wrong", run: raceResults},
		{name: "[stores/E23] processes one rotation step apart at once: one run", needs: needAliases, run: raceRotation},
		{name: "distinct keys at once: all run", run: raceDistinct},
		effects("[stores/CT24] atomic: identical calls at once have one effect, counted outside", raceAtomic),
		effects("[stores/CT24] atomic: the owner rolls back with claimants about: exactly one next owner", raceRollback),
		effects("[stores/E20, CT29] two keys claimed in opposite orders: no deadlock surfaces, one effect each", raceOrders),
		effects("an atomic and a leased claim of one key at once: one owner", raceGuards),
		effects("a bounded wait ends with the owner's commit: replay", raceWait),
	}
}

// race runs f in n goroutines that begin together, every other on the second handle, and waits for them.
func (k *K) race(n int, f func(i int, s idempo.Store)) {
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		s := k.Store
		if i%2 == 1 {
			s = k.Again
		}
		wg.Go(func() {
			<-start
			f(i, s)
		})
	}
	close(start)
	wg.Wait()
}

// A tally counts words.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(word string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[word]++
}

// outcome is the verdict, or the error's code.
func word(a idempo.Acquired, err error) string {
	if err != nil {
		return "error " + codeOf(err)
	}
	return string(a.Verdict)
}

const racers = 48

// raceAcquire sends n claims like p at once, and wants one run and otherwise only the verdicts named.
func (k *K) raceAcquire(p idempo.AcquireParams, others ...idempo.Verdict) {
	k.Helper()
	var t tally
	k.race(racers, func(_ int, s idempo.Store) {
		t.add(word(s.Acquire(k.ctx, k.again(p, p.Now))))
	})
	rest := racers - t.n["run"]
	for _, v := range others {
		rest -= t.n[string(v)]
	}
	if t.n["run"] != 1 || rest != 0 {
		k.Errorf("verdicts %v, want one run, otherwise %v", t.n, others)
	}
}

func raceFirst(k *K) {
	for range 5 {
		p := k.claim(k.key())
		k.raceAcquire(p, idempo.VerdictInProgress)
		if r := k.state(p.Key, k.t0, idempo.StatePending); r.Attempt != 1 {
			k.Errorf("attempt %d", r.Attempt)
		}
	}
	var t tally // with completions among them
	p := k.claim(k.key())
	k.race(racers, func(_ int, s idempo.Store) {
		q := k.again(p, k.t0)
		a, err := s.Acquire(k.ctx, q)
		t.add(word(a, err))
		if err == nil && a.Verdict == idempo.VerdictRun {
			if _, err := s.Complete(k.ctx, k.done(q, a.Record.Attempt, k.t0)); err != nil {
				t.add("error " + codeOf(err))
			}
		}
	})
	if t.n["run"] != 1 || t.n["replay"]+t.n["in_progress"] != racers-1 {
		k.Errorf("verdicts %v", t.n)
	}
	k.state(p.Key, k.t0, idempo.StateCompleted)
}

func raceTakeover(k *K) {
	for _, c := range []idempo.OnCrash{idempo.OnCrashRerun, idempo.OnCrashProbe} {
		p := k.claim(k.key())
		p.OnCrash = c
		k.won(p)
		p.Now = k.t0.Add(lease)
		k.raceAcquire(p, idempo.VerdictInProgress)
		if r := k.state(p.Key, p.Now, idempo.StatePending); r.Attempt != 2 {
			k.Errorf("attempt %d, want 2", r.Attempt)
		}
	}
	p := k.claim(k.key())
	k.released(p, idempo.StateFailed)
	k.raceAcquire(p, idempo.VerdictInProgress)
}

func raceGone(k *K) {
	for range 3 {
		p := k.claim(k.key())
		k.completed(p)
		p.Now = k.t0.Add(retention + tombstone)
		k.raceAcquire(p, idempo.VerdictInProgress)
	}
}

func raceIssued(k *K) {
	k.raceAcquire(k.demand(k.issued()), idempo.VerdictInProgress)
}

func raceLate(k *K) {
	for range 10 {
		p := k.claim(k.key())
		p.OnCrash = idempo.OnCrashRerun
		k.won(p)
		at := k.t0.Add(lease)
		next := k.again(p, at)
		var took, late string
		k.race(2, func(i int, s idempo.Store) {
			if i == 0 {
				took = word(s.Acquire(k.ctx, next))
				return
			}
			_, err := s.Complete(k.ctx, k.done(p, 1, at))
			late = codeOf(err)
		})
		r := k.look(p.Key, at)
		switch {
		case took == "run" && late == "lease_lost" && r.State == idempo.StatePending && r.Token == next.Token && r.Attempt == 2:
		case took == "replay" && late == "" && r.State == idempo.StateCompleted && r.Token == p.Token && r.Attempt == 1:
		default:
			k.Errorf("take-over %q, late completion %q, row %s attempt %d", took, late, r.State, r.Attempt)
		}
	}
}

func raceOwner(k *K) {
	for range 10 {
		p := k.claim(k.key())
		k.won(p)
		var codes [3]string
		k.race(3, func(i int, s idempo.Store) {
			var err error
			switch i {
			case 0:
				_, err = s.Complete(k.ctx, k.done(p, 1, k.t0))
			case 1:
				_, err = s.Release(k.ctx, k.release(p, idempo.StateFailed, k.t0))
			case 2:
				_, err = s.Renew(k.ctx, k.renew(p, k.t0))
			}
			codes[i] = codeOf(err)
		})
		r := k.look(p.Key, k.t0)
		completed := r.State == idempo.StateCompleted && codes[0] == "" && codes[1] == "wrong_state"
		released := r.State == idempo.StateFailed && codes[0] == "wrong_state" && codes[1] == ""
		if !completed && !released || codes[2] != "" && codes[2] != "lease_lost" {
			k.Errorf("complete %q, release %q, renew %q, row %s", codes[0], codes[1], codes[2], r.State)
		}
	}
}

func raceResults(k *K) {
	p := k.claim(k.key())
	k.won(p)
	var t tally
	var first atomic.Int64
	k.race(racers, func(i int, s idempo.Store) {
		c := k.done(p, 1, k.t0)
		c.Result.Status = 200 + i
		_, err := s.Complete(k.ctx, c)
		t.add("code " + codeOf(err))
		if err == nil {
			first.Store(int64(c.Result.Status))
		}
	})
	if r := k.look(p.Key, k.t0); t.n["code "] != 1 || t.n["code wrong_state"] != racers-1 || int64(r.Result.Status) != first.Load() {
		k.Errorf("%v; status %d stored, %d accepted", t.n, r.Result.Status, first.Load())
	}
}

func raceRotation(k *K) {
	for range 3 {
		old, now, _ := k.digests()
		p := k.claim(k.key())
		var t tally
		k.race(racers, func(i int, s idempo.Store) {
			q := k.under(p, now, old)
			if i/2%2 == 0 {
				q = k.under(p, old, now)
			}
			t.add(word(s.Acquire(k.ctx, q)))
		})
		if t.n["run"] != 1 || t.n["in_progress"] != racers-1 {
			k.Errorf("verdicts %v", t.n)
		}
		a, err1 := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: k.under(p, old).Key, Now: k.t0})
		b, err2 := k.Store.Lookup(k.ctx, idempo.LookupParams{Key: k.under(p, now).Key, Now: k.t0})
		k.ok(errors.Join(err1, err2))
		k.same("one record under both digests", a, b)
	}
}

func raceDistinct(k *K) {
	var t tally
	keys := make([]idempo.AcquireParams, racers)
	for i := range keys {
		keys[i] = k.claim(k.key())
	}
	k.race(racers, func(i int, s idempo.Store) {
		a, err := s.Acquire(k.ctx, keys[i])
		t.add(word(a, err))
		if err == nil {
			_, err = s.Complete(k.ctx, k.done(keys[i], a.Record.Attempt, k.t0))
		}
		if err != nil {
			t.add("error " + codeOf(err))
		}
	})
	if t.n["run"] != racers || len(t.n) != 1 {
		k.Errorf("verdicts %v", t.n)
	}
}

// attempt plays one atomic call on s: claim, effect, completion. Conflicts that an engine would try again are
// "conflict".
func (k *K) attempt(s idempo.Store, p idempo.AcquireParams) string {
	var a idempo.Acquired
	err := k.inTxOf(s, func(in tx) (err error) {
		if a, err = s.Acquire(in.ctx, p); err != nil {
			return err
		}
		if a.Verdict != idempo.VerdictRun {
			return errUndo
		}
		if err := k.effect(p.Key)(in.ctx); err != nil {
			return err
		}
		return in.complete(p, a.Record.Attempt)
	})
	switch codeOf(err) {
	case "", errUndo.Error():
		return string(a.Verdict)
	case "tx_conflict", "lease_lost":
		return "conflict"
	}
	return fmt.Sprintf("error %v", err)
}

func raceAtomic(k *K) {
	for range 5 {
		p := k.atomic()
		var t tally
		k.race(racers, func(_ int, s idempo.Store) {
			for k.ctx.Err() == nil {
				w := k.attempt(s, k.again(p, k.t0))
				t.add(w)
				if w != "in_progress" && w != "conflict" {
					return
				}
				runtime.Gosched()
			}
		})
		if t.n["run"] != 1 || t.n["replay"] != racers-1 {
			k.Errorf("verdicts %v", t.n)
		}
		k.effects(p.Key, 1)
		if r := k.state(p.Key, k.t0, idempo.StateCompleted); r.Attempt != 1 {
			k.Errorf("attempt %d", r.Attempt)
		}
	}
}

func raceRollback(k *K) {
	p := k.atomic()
	held, let, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { // the first owner has its effect, and rolls back among the claimants
		ended <- k.inTx(func(in tx) error {
			defer close(held)
			a, err := in.s.Acquire(in.ctx, p)
			if err != nil || a.Verdict != idempo.VerdictRun {
				return fmt.Errorf("the first owner: %s, %w", a.Verdict, err)
			}
			if err := k.effect(p.Key)(in.ctx); err != nil {
				return err
			}
			held <- struct{}{}
			<-let
			return errUndo
		})
	}()
	<-held
	var t tally
	k.race(racers, func(i int, s idempo.Store) {
		t.add("first " + k.attempt(s, k.again(p, k.t0)))
		if i == 0 {
			close(let)
		}
		for k.ctx.Err() == nil {
			w := k.attempt(s, k.again(p, k.t0))
			if w != "in_progress" && w != "conflict" {
				t.add(w)
				return
			}
			runtime.Gosched()
		}
	})
	if err := <-ended; !errors.Is(err, errUndo) {
		k.Errorf("the first owner: %v", err)
	}
	if t.n["run"]+t.n["first run"] != 1 || t.n["run"]+t.n["replay"] != racers {
		k.Errorf("verdicts %v", t.n)
	}
	k.effects(p.Key, 1)
}

func raceOrders(k *K) {
	for range 10 {
		keys := []idempo.AcquireParams{k.atomic(), k.atomic()}
		var t tally
		k.race(6, func(i int, s idempo.Store) {
			order := []int{i % 2, 1 - i%2}
			for k.ctx.Err() == nil {
				finished := true
				err := k.inTxOf(s, func(in tx) error {
					for _, n := range order {
						q := k.again(keys[n], k.t0)
						a, err := s.Acquire(in.ctx, q)
						if err != nil {
							return err
						}
						switch a.Verdict {
						case idempo.VerdictReplay:
						case idempo.VerdictRun:
							if err := errors.Join(k.effect(q.Key)(in.ctx), in.complete(q, a.Record.Attempt)); err != nil {
								return err
							}
						default:
							finished = false
							return errUndo // an engine would roll back and answer in progress
						}
					}
					return nil
				})
				switch code := codeOf(err); {
				case code == "" && finished:
					return
				case code != "" && code != errUndo.Error() && code != "tx_conflict" && code != "lease_lost":
					t.add(code)
					return
				}
				runtime.Gosched()
			}
		})
		if len(t.n) > 0 {
			k.Errorf("errors %v", t.n)
		}
		k.effects(keys[0].Key, 1)
		k.effects(keys[1].Key, 1)
	}
}

func raceGuards(k *K) {
	for range 10 {
		p := k.atomic()
		var words [2]string
		k.race(2, func(i int, s idempo.Store) {
			if i == 0 {
				words[i] = k.attempt(s, p)
				return
			}
			q := k.again(p, k.t0)
			q.Guard = idempo.GuardLeased
			words[i] = word(s.Acquire(k.ctx, q))
		})
		n, err := k.Count(k.ctx, p.Key.Ref())
		k.ok(err)
		r := k.look(p.Key, k.t0)
		atomicWon := words[0] == "run" && words[1] != "run" && n == 1 && r.State == idempo.StateCompleted
		leasedWon := words[0] != "run" && words[1] == "run" && n == 0 && r.State == idempo.StatePending
		neither := words[0] == "conflict" && words[1] == "in_progress" && n == 0
		if !atomicWon && !leasedWon && !neither {
			k.Errorf("atomic %q, leased %q, %d effects, row %s", words[0], words[1], n, r.State)
		}
	}
}

func raceWait(k *K) {
	p := k.atomic()
	held, ended := make(chan struct{}), make(chan string, 1)
	go func() {
		err := k.inTxOf(k.Again, func(in tx) error {
			a, err := in.s.Acquire(in.ctx, p)
			if err != nil {
				close(held)
				return err
			}
			close(held)
			return errors.Join(k.effect(p.Key)(in.ctx), in.complete(p, a.Record.Attempt))
		})
		ended <- codeOf(err)
	}()
	<-held
	q := k.again(p, k.t0)
	q.Guard, q.Wait = idempo.GuardLeased, 20*time.Second
	ctx, cancel := context.WithTimeout(k.ctx, time.Minute)
	defer cancel()
	var a idempo.Acquired
	var err error
	for range 200 { // a store may say in progress before the wait is over
		if a, err = k.Store.Acquire(ctx, q); err != nil || a.Verdict != idempo.VerdictInProgress {
			break
		}
	}
	if code := <-ended; code != "" || err != nil || a.Verdict != idempo.VerdictReplay {
		k.Errorf("owner %q; waiter %q, %v; want replay", code, a.Verdict, err)
	}
	k.effects(p.Key, 1)
}
