package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// RunEngine runs the cases that look at a store through idempo.Engine. Run contains them; wrappers that change what a
// single call sees (a driver that sends twice, an encrypting store) run these alone.
func RunEngine(t *testing.T, open func(t testing.TB) Subject, c Caps) {
	t.Helper()
	shared := open(t)
	for i, one := range append(engineCases(), faultCases()...) {
		t.Run(one.name, func(t *testing.T) {
			if why := one.skip(c, shared); why != "" {
				t.Skip("skipped by caps: " + why)
			}
			one.run(newK(t, shared, c, i, 2*time.Minute))
		})
	}
}

func engineCases() []testCase {
	c := func(name string, run func(k *K)) testCase { return testCase{name: "engine: " + name, run: run} }
	tx := func(name string, run func(k *K)) testCase {
		return testCase{name: "engine: " + name, needs: needTx | needEffect, run: run}
	}
	return []testCase{
		tx("[stores/E5, E8] atomic: committed before Do returns, replayed byte for byte by another process", doAtomic),
		tx("[stores/E8, CT9] atomic: error, panic, Goexit, time over: rolled back, the retry runs", doAtomicFails),
		tx("[stores/E8] atomic: a failing result undoes the effects and is answered again", doAtomicFailing),
		tx("[stores/E13] atomic: a conflict in the work runs the whole of it again, one effect", doConflict),
		tx("[stores/E20] InTx: several keys are settled together or not at all", engineInTx),
		tx("[stores/E4, E20] nested and misplaced Begins are refused, nothing written", engineMisuse),
		tx("[stores/CT24, L7] atomic: identical calls at once over two processes: one effect, the rest replay", doTogether),
		tx("[stores/CT24, L8] atomic: the owner rolls back with waiters in and out of process: one effect", doRollbackTogether),
		{name: "engine: [stores/E10] atomic: in the caller's own transaction nothing is committed or undone", needs: needTx | needEffect | needOwn, run: engineOwn},
		{name: "engine: [stores/E12] atomic: the work ends the transaction itself: tx_ended, never success", needs: needTx | needEffect | needEnd, run: engineEnded},
		{name: "engine: [stores/E12] atomic: the work swallows a failed statement: tx_aborted, no effect", needs: needTx | needEffect | needPoison, run: engineAborted},
		tx("[stores/E12] atomic: the transaction used after the work returned: an error, no stray write", engineStray),
		c("[stores/E9] leased: completed; nothing happened; in doubt", doLeased),
		c("[stores/E9, CT9] leased: panic and Goexit leave a doubt", doLeasedPanics),
		c("[stores/E6] other input is a mismatch in every state, and shows nothing", engineMismatch),
		c("[stores/E15] a claim settled twice", engineTwice),
		c("[stores/E16] any result comes back equal through the engine", engineResults),
		c("[stores/E1] keys of any bytes, told apart by any byte", engineKeys),
		c("[stores/E17] a body over MaxResult: completed, size and digest", engineMaxResult),
		c("[stores/E18] one-time keys: issued, used, forgotten, the next one", engineIssued),
		c("[stores/E19] the derived key is the same on every attempt and process", engineDerive),
		c("[stores/E21] a doubt under probe: happened is replayed, not happened runs", engineProbe),
		c("[stores/E27] references survive the doubt and the completion", engineRefer),
		c("[stores/CT24, L7] leased: identical calls at once over two processes: one run", doLeasedTogether),
		{name: "engine: [stores/E22] Enqueue joins the transaction of its context, and Take leases it", needs: needTx | needTake, run: engineEnqueue},
		{name: "engine: [stores/E23] digest keys are rotated one step at a time", needs: needAliases, run: engineRotation},
	}
}

func digestKey(id string) idempo.Secret {
	return idempo.Secret{ID: id, Value: []byte(strings.Repeat(id+".", 16))}
}

// operations of the engine cases.
func (k *K) operations() []idempo.Operation {
	ops := []idempo.Operation{
		{Name: "send", Guard: idempo.GuardLeased},
		{Name: "rerun", Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true},
		{Name: "once", Guard: idempo.GuardLeased, Issued: true},
		{Name: "small", Guard: idempo.GuardLeased, MaxResult: 8},
	}
	if k.caps.Tx {
		ops = append(ops, idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}, idempo.Operation{Name: "brief", Guard: idempo.GuardAtomic, MaxRun: time.Millisecond})
	}
	return ops
}

// engine is one process over s.
func (k *K) engine(s idempo.Store, c idempo.Config, ops ...idempo.Operation) *idempo.Engine {
	k.Helper()
	if c.DigestKeys == nil {
		c.DigestKeys = []idempo.Secret{digestKey("d1")}
	}
	c.AcquireTimeout = patience
	c.Operations = append(k.operations(), ops...)
	e, err := idempo.New(s, c)
	k.ok(err)
	return e
}

// two returns an engine on each handle of the store: two processes.
func (k *K) two(ops ...idempo.Operation) (*idempo.Engine, *idempo.Engine) {
	k.Helper()
	return k.engine(k.Store, idempo.Config{}, ops...), k.engine(k.Again, idempo.Config{}, ops...)
}

// request is an intent of its own.
func (k *K) request(op string) idempo.Request {
	k.n++
	return idempo.Request{Key: idempo.Key{Tenant: k.tenant, Operation: op, ID: fmt.Sprintf("o-%d", k.n)}, Input: [][]byte{[]byte("body")}, Surface: "http"}
}

func name(req idempo.Request) string {
	return req.Key.Tenant + "/" + req.Key.Operation + "/" + req.Key.ID
}

type work = func(context.Context, *idempo.Claim) (idempo.Result, error)

// local is work whose effect commits with its transaction.
func (k *K) local(req idempo.Request, res idempo.Result, err error) work {
	return func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
		if err := k.Effect(ctx, name(req)); err != nil {
			return idempo.Result{}, err
		}
		return res, err
	}
}

// count wants n committed effects of req, counted outside.
func (k *K) count(req idempo.Request, n int) {
	k.Helper()
	if got, err := k.Count(k.ctx, name(req)); err != nil || got != n {
		k.Errorf("%d effects, %v; want %d", got, err, n)
	}
}

// do wants the verdict v of Do.
func (k *K) do(e *idempo.Engine, req idempo.Request, fn work, v idempo.Verdict) idempo.Begun {
	k.Helper()
	b, err := e.Do(k.ctx, req, fn)
	if b.Verdict != v || err != nil && (v == idempo.VerdictRun || v == idempo.VerdictReplay) {
		k.Fatalf("Do: %q, %v; want %s", b.Verdict, err, v)
	}
	return b
}

// begin wants a claim.
func (k *K) begin(e *idempo.Engine, req idempo.Request) *idempo.Claim {
	k.Helper()
	b, err := e.Begin(k.ctx, req)
	if err != nil || b.Verdict != idempo.VerdictRun {
		k.Fatalf("Begin: %q, %v; want run", b.Verdict, err)
	}
	return b.Claim
}

func stray(k *K) work {
	return func(context.Context, *idempo.Claim) (idempo.Result, error) {
		k.Error("the work ran again")
		return idempo.Result{}, nil
	}
}

func doAtomic(k *K) {
	one, two := k.two()
	req := k.request("pay")
	b := k.do(one, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		r, err := k.local(req, answer(), nil)(ctx, c)
		k.count(req, 0)
		return r, err
	}, idempo.VerdictRun)
	k.count(req, 1)
	if !b.Record.Result.Equal(answer()) {
		k.Errorf("run answered %+v", b.Record.Result)
	}
	for _, e := range []*idempo.Engine{one, two, one, two} {
		b := k.do(e, req, stray(k), idempo.VerdictReplay)
		if !b.Record.Result.Equal(answer()) || b.Record.Attempt != 1 || b.Record.CompletedAt.IsZero() || !b.Record.ExpiresAt.Equal(b.Record.CompletedAt.Add(24*time.Hour)) {
			k.Errorf("replayed %+v", b.Record)
		}
	}
	k.count(req, 1)
}

// end runs fn in a goroutine of its own, which it may end or panic out of.
func end(fn func()) (recovered any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		fn()
	}()
	<-done
	return recovered
}

func doAtomicFails(k *K) {
	boom := errors.New("boom")
	for _, how := range []string{"error", "panic", "Goexit", "time over"} {
		one, two := k.two()
		op := "pay"
		if how == "time over" {
			op = "brief"
		}
		req := k.request(op)
		var err error
		recovered := end(func() {
			_, err = one.Do(k.ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
				if e := k.Effect(ctx, name(req)); e != nil && op == "pay" {
					return idempo.Result{}, e
				}
				switch how {
				case "panic":
					panic(boom)
				case "Goexit":
					runtime.Goexit()
				case "time over":
					<-ctx.Done()
					return idempo.Result{}, ctx.Err()
				}
				return idempo.Result{}, boom
			})
		})
		switch {
		case how == "error" && (!errors.Is(err, boom) || idempo.MayHaveHappened(err)):
			k.Errorf("error: %v, may have happened %t", err, idempo.MayHaveHappened(err))
		case how == "panic" && recovered != boom:
			k.Errorf("recovered %v", recovered)
		case how == "time over" && err == nil:
			k.Error("time over, and no error")
		}
		k.count(req, 0)
		if op == "brief" {
			continue // its retry would be out of time as well
		}
		if b := k.do(two, req, k.local(req, answer(), nil), idempo.VerdictRun); b.Record.Attempt != 1 {
			k.Errorf("%s: attempt %d: something remained", how, b.Record.Attempt)
		}
		k.count(req, 1)
	}
}

func doAtomicFailing(k *K) {
	one, two := k.two()
	req := k.request("pay")
	no := idempo.Result{Status: 422, Body: []byte("declined"), Failing: true}
	k.do(one, req, k.local(req, no, nil), idempo.VerdictRun)
	k.count(req, 0)
	if b := k.do(two, req, stray(k), idempo.VerdictReplay); !b.Record.Result.Equal(no) {
		k.Errorf("replayed %+v", b.Record.Result)
	}
}

func doConflict(k *K) {
	one, two := k.two()
	req := k.request("pay")
	tries := 0
	k.do(one, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		r, err := k.local(req, answer(), nil)(ctx, c)
		if tries++; err == nil && tries < 3 {
			err = &idempo.Error{Op: "insert", Code: "tx_conflict"}
		}
		return r, err
	}, idempo.VerdictRun)
	if tries != 3 {
		k.Errorf("the work ran %d times, want 3", tries)
	}
	k.count(req, 1)
	k.do(two, req, stray(k), idempo.VerdictReplay)
}

func engineInTx(k *K) {
	one, two := k.two()
	fail := errors.New("the second one fails")
	for _, bad := range []error{fail, nil} {
		a, b := k.request("pay"), k.request("pay")
		err := one.InTx(k.ctx, func(ctx context.Context) error {
			for i, req := range []idempo.Request{b, a} { // any order
				begun, err := one.Begin(ctx, req)
				if err != nil || begun.Verdict != idempo.VerdictRun {
					return fmt.Errorf("begin: %q, %w", begun.Verdict, err)
				}
				if err := k.Effect(ctx, name(req)); err != nil {
					return err
				}
				if i == 1 && bad != nil {
					return bad
				}
				if err := begun.Claim.Complete(ctx, answer()); err != nil {
					return err
				}
			}
			return nil
		})
		if !errors.Is(err, bad) {
			k.Fatalf("%v, want %v", err, bad)
		}
		for _, req := range []idempo.Request{a, b} {
			if bad != nil {
				k.count(req, 0)
				k.do(two, req, k.local(req, answer(), nil), idempo.VerdictRun)
			}
			k.count(req, 1)
			k.do(two, req, stray(k), idempo.VerdictReplay)
		}
	}
}

func engineMisuse(k *K) {
	one, _ := k.two()
	pay, send := k.request("pay"), k.request("send")
	_, err := one.Begin(k.ctx, pay)
	k.code(err, "misuse")
	undeclared := k.request("nobody-declared-this")
	_, err = one.Begin(k.ctx, undeclared)
	k.code(err, "misuse")
	err = one.InTx(k.ctx, func(ctx context.Context) error {
		_, err := one.Begin(ctx, send)
		k.code(err, "misuse")
		k.code(one.InTx(ctx, func(context.Context) error { return nil }), "misuse")
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		k.Errorf("%v", err)
	}
	_, err = one.Lookup(k.ctx, send.Key)
	k.code(err, "not_found")
	k.do(one, pay, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		_, err := one.Do(ctx, pay, stray(k))
		k.code(err, "nested")
		return k.local(pay, answer(), nil)(ctx, c)
	}, idempo.VerdictRun)
	k.count(pay, 1)
}

const callers = 60

// together sends the same request n times at once over both engines and wants each to run or replay; it returns how
// often it ran.
func (k *K) together(one, two *idempo.Engine, req idempo.Request, fn work) (runs int) {
	k.Helper()
	req.Wait = time.Minute
	var t tally
	k.race(callers, func(i int, _ idempo.Store) {
		e := one
		if i%2 == 1 {
			e = two
		}
		b, err := e.Do(k.ctx, req, fn)
		switch {
		case err != nil:
			t.add("error " + err.Error())
		case b.Verdict == idempo.VerdictReplay && !b.Record.Result.Equal(answer()):
			t.add(fmt.Sprintf("replay of %+v", b.Record.Result))
		default:
			t.add(string(b.Verdict))
		}
	})
	if t.n["run"]+t.n["replay"] != callers {
		k.Errorf("%v", t.n)
	}
	return t.n["run"]
}

func doTogether(k *K) {
	one, two := k.two()
	for range 3 {
		req := k.request("pay")
		if runs := k.together(one, two, req, k.local(req, answer(), nil)); runs != 1 {
			k.Errorf("%d runs", runs)
		}
		k.count(req, 1)
	}
}

func doRollbackTogether(k *K) {
	one, two := k.two()
	req := k.request("pay")
	var mu sync.Mutex
	tries := 0
	fails := errors.New("the first owner rolls back")
	req.Wait = time.Minute
	var t tally
	k.race(callers, func(i int, _ idempo.Store) {
		e := one
		if i%2 == 1 {
			e = two
		}
		b, err := e.Do(k.ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
			mu.Lock()
			tries++
			first := tries == 1
			mu.Unlock()
			r, err := k.local(req, answer(), nil)(ctx, c)
			if first && err == nil {
				err = fails
			}
			return r, err
		})
		switch {
		case errors.Is(err, fails):
			t.add("rolled back")
		case err != nil:
			t.add("error " + err.Error())
		default:
			t.add(string(b.Verdict))
		}
	})
	if t.n["rolled back"] != 1 || t.n["run"] != 1 || t.n["replay"] != callers-2 {
		k.Errorf("%v", t.n)
	}
	k.count(req, 1)
}

func engineOwn(k *K) {
	one, two := k.two()
	for _, keep := range []bool{false, true} {
		req := k.request("pay")
		ctx, commit, rollback, err := k.Own(k.ctx)
		k.ok(err)
		b, err := one.Begin(ctx, req)
		if err != nil || b.Verdict != idempo.VerdictRun {
			k.Fatalf("%q, %v", b.Verdict, err)
		}
		k.ok(k.Effect(ctx, name(req)))
		k.ok(b.Claim.Complete(ctx, answer()))
		k.count(req, 0)
		if keep {
			k.ok(commit())
			k.count(req, 1)
			k.do(two, req, stray(k), idempo.VerdictReplay)
			continue
		}
		k.ok(rollback())
		k.count(req, 0)
		k.do(two, req, k.local(req, answer(), nil), idempo.VerdictRun)
		k.count(req, 1)
	}
}

func engineEnded(k *K) {
	one, two := k.two()
	req := k.request("pay")
	b, err := one.Do(k.ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		r, err := k.local(req, answer(), nil)(ctx, c)
		return r, errors.Join(err, k.End(ctx))
	})
	if codeOf(err) != "tx_ended" {
		k.Errorf("%q, %v; want tx_ended", b.Verdict, err)
	}
	if n, err := k.Count(k.ctx, name(req)); err != nil || n > 1 {
		k.Errorf("%d effects, %v", n, err)
	}
	b, err = two.Do(k.ctx, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return answer(), nil })
	if k.caps.Written && b.Verdict == idempo.VerdictInProgress {
		return // what the careless commit left
	}
	if err != nil || b.Verdict != idempo.VerdictRun {
		k.Errorf("the retry: %q, %v", b.Verdict, err)
	}
}

func engineAborted(k *K) {
	one, two := k.two()
	req := k.request("pay")
	b, err := one.Do(k.ctx, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		r, err := k.local(req, answer(), nil)(ctx, c)
		k.Poison(ctx)
		return r, err
	})
	if codeOf(err) != "tx_aborted" || idempo.MayHaveHappened(err) {
		k.Errorf("%q, %v; want tx_aborted", b.Verdict, err)
	}
	k.count(req, 0)
	k.do(two, req, k.local(req, answer(), nil), idempo.VerdictRun)
	k.count(req, 1)
}

func engineStray(k *K) {
	one, _ := k.two()
	req := k.request("pay")
	var over context.Context
	k.do(one, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		over = context.WithoutCancel(ctx)
		return k.local(req, answer(), nil)(ctx, c)
	}, idempo.VerdictRun)
	if err := k.Effect(over, name(req)); err == nil {
		k.Error("an effect in a transaction that is over is no error")
	}
	k.count(req, 1)
}

func engineRotation(k *K) {
	engines := []*idempo.Engine{}
	for _, ids := range [][]string{{"d1"}, {"d1", "d2"}, {"d2", "d1"}, {"d2"}} {
		var keys []idempo.Secret
		for _, id := range ids {
			keys = append(keys, digestKey(id))
		}
		engines = append(engines, k.engine(k.Store, idempo.Config{DigestKeys: keys}))
	}
	for i := range engines[1:] {
		for _, flip := range []int{0, 1} {
			first, second := engines[i+flip], engines[i+1-flip]
			req := k.request("send")
			claim := k.begin(first, req)
			if b, err := second.Begin(k.ctx, req); err != nil || b.Verdict != idempo.VerdictInProgress {
				k.Errorf("step %d: %q, %v; want in progress", i, b.Verdict, err)
			}
			k.ok(claim.Complete(k.ctx, answer()))
			k.do(second, req, stray(k), idempo.VerdictReplay)
			req.Input = [][]byte{[]byte("another body")}
			if b, _ := second.Do(k.ctx, req, stray(k)); b.Verdict != idempo.VerdictMismatch {
				k.Errorf("step %d: %q, want mismatch", i, b.Verdict)
			}
		}
	}
}

func engineEnqueue(k *K) {
	e, _ := k.two(idempo.Operation{Name: "later", Guard: idempo.GuardLeased})
	undone, done := k.request("later"), k.request("later")
	err := e.InTx(k.ctx, func(ctx context.Context) error {
		_, err := e.Enqueue(ctx, undone, time.Unix(1, 0))
		return errors.Join(err, errUndo)
	})
	if !errors.Is(err, errUndo) || errors.Unwrap(err) == nil {
		k.Errorf("%v", err)
	}
	_, err = e.Lookup(k.ctx, undone.Key)
	k.code(err, "not_found")
	k.ok(e.InTx(k.ctx, func(ctx context.Context) error { _, err := e.Enqueue(ctx, done, time.Unix(1, 0)); return err }))
	if b, err := e.Enqueue(k.ctx, done, time.Unix(1, 0)); err != nil || b.Verdict != idempo.VerdictInProgress {
		k.Errorf("enqueued again: %q, %v", b.Verdict, err)
	}
	want, err := e.Lookup(k.ctx, done.Key)
	k.ok(err)
	found := 0
	for {
		got, err := k.Store.(idempo.Taker).Take(k.ctx, idempo.TakeParams{Operations: []string{"later"}, Limit: 10, Token: k.token(), Lease: time.Minute})
		k.ok(err)
		for _, r := range got {
			if r.Key == want.Key {
				found++
			}
		}
		if len(got) == 0 {
			break
		}
	}
	if found != 1 {
		k.Errorf("taken %d times", found)
	}
}
