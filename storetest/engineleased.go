package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
)

// outside is work whose effect happens at once, anywhere, counted by n.
func outside(n *atomic.Int64, res idempo.Result, err error) work {
	return func(context.Context, *idempo.Claim) (idempo.Result, error) {
		n.Add(1)
		return res, err
	}
}

func doLeased(k *K) {
	one, two := k.two()
	var n atomic.Int64
	req := k.request("send")
	k.do(one, req, outside(&n, answer(), nil), idempo.VerdictRun)
	if b := k.do(two, req, stray(k), idempo.VerdictReplay); !b.Record.Result.Equal(answer()) || n.Load() != 1 {
		k.Errorf("replayed %+v, %d effects", b.Record.Result, n.Load())
	}

	refused := idempo.NothingHappened(errors.New("connection refused"))
	unclear := errors.New("connection reset")
	for _, c := range []struct {
		name    string
		err     error
		nothing bool
	}{
		{"nothing happened", refused, true}, {"wrapped", fmt.Errorf("post: %w", fmt.Errorf("dial: %w", refused)), true},
		{"joined, all nothing", errors.Join(refused, refused), true}, {"unclear", unclear, false}, {"joined, one unclear", errors.Join(refused, unclear), false},
		{"deadline", context.DeadlineExceeded, false},
	} {
		req := k.request("send")
		_, err := one.Do(k.ctx, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, c.err })
		if err == nil || errors.Is(err, idempo.ErrInDoubt) == c.nothing || idempo.MayHaveHappened(err) == c.nothing {
			k.Errorf("%s: %v", c.name, err)
		}
		if !c.nothing {
			if b, err := two.Do(k.ctx, req, stray(k)); b.Verdict != idempo.VerdictInDoubt || !errors.Is(err, idempo.ErrInDoubt) {
				k.Errorf("%s: then %q, %v", c.name, b.Verdict, err)
			}
			continue
		}
		if b := k.do(two, req, outside(&n, answer(), nil), idempo.VerdictRun); b.Record.Attempt != 2 {
			k.Errorf("%s: attempt %d, want 2", c.name, b.Record.Attempt)
		}
	}
}

func doLeasedPanics(k *K) {
	one, two := k.two()
	for _, how := range []string{"panic", "Goexit"} {
		req := k.request("send")
		recovered := end(func() {
			_, _ = one.Do(k.ctx, req, func(context.Context, *idempo.Claim) (idempo.Result, error) {
				if how == "panic" {
					panic("boom")
				}
				runtime.Goexit()
				return idempo.Result{}, nil
			})
		})
		if how == "panic" && recovered != "boom" {
			k.Errorf("recovered %v", recovered)
		}
		if b, _ := two.Do(k.ctx, req, stray(k)); b.Verdict != idempo.VerdictInDoubt {
			k.Errorf("after a %s: %q, want in doubt", how, b.Verdict)
		}
	}
}

func engineMismatch(k *K) {
	one, two := k.two()
	ops := []string{"send"}
	if k.caps.Tx {
		ops = append(ops, "pay")
	}
	check := func(what string, req idempo.Request) {
		k.Helper()
		req.Input = [][]byte{[]byte("another body")}
		for _, e := range []*idempo.Engine{one, two} {
			b, err := e.Do(k.ctx, req, stray(k))
			if b.Verdict != idempo.VerdictMismatch || !errors.Is(err, idempo.ErrMismatch) || b.Record.Result.Status != 0 || b.Record.Result.Body != nil {
				k.Errorf("%s: %q, %v, result %+v", what, b.Verdict, err, b.Record.Result)
			}
		}
	}
	for _, op := range ops {
		req := k.request(op)
		k.do(one, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return answer(), nil }, idempo.VerdictRun)
		check(op+" completed", req)
		k.do(two, req, stray(k), idempo.VerdictReplay)
	}
	running := k.request("send")
	claim := k.begin(one, running)
	check("running", running)
	k.ok(claim.Doubt(k.ctx, "no answer"))
	check("in doubt", running)
	failed := k.request("send")
	k.ok(k.begin(one, failed).Release(k.ctx, "refused"))
	check("failed", failed)
	split := k.request("send") // the fields count, not their sum
	split.Input = [][]byte{[]byte("ab"), []byte("c")}
	k.do(one, split, func(context.Context, *idempo.Claim) (idempo.Result, error) { return answer(), nil }, idempo.VerdictRun)
	split.Input = [][]byte{[]byte("a"), []byte("bc")}
	if b, _ := two.Do(k.ctx, split, stray(k)); b.Verdict != idempo.VerdictMismatch {
		k.Errorf("split elsewhere: %q, want mismatch", b.Verdict)
	}
}

func engineTwice(k *K) {
	one, two := k.two()
	req := k.request("send")
	c := k.begin(one, req)
	k.ok(c.Complete(k.ctx, answer()))
	k.ok(c.Complete(k.ctx, answer()))
	other := answer()
	other.Status = 202
	k.code(c.Complete(k.ctx, other), "wrong_state")
	k.code(c.Release(k.ctx, "no"), "wrong_state")
	if b := k.do(two, req, stray(k), idempo.VerdictReplay); !b.Record.Result.Equal(answer()) {
		k.Errorf("replayed %+v", b.Record.Result)
	}
	req = k.request("send")
	c = k.begin(one, req)
	k.ok(c.Release(k.ctx, "no"))
	k.ok(c.Release(k.ctx, "no"))
	k.code(c.Complete(k.ctx, answer()), "wrong_state")
	k.do(two, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return answer(), nil }, idempo.VerdictRun)
}

func engineResults(k *K) {
	one, two := k.two()
	ops := []string{"send"}
	if k.caps.Tx {
		ops = append(ops, "pay")
	}
	for _, op := range ops {
		for i, want := range results() {
			req := k.request(op)
			req.Snapshot = want.Body
			b := k.do(one, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return want, nil }, idempo.VerdictRun)
			if !b.Record.Result.Equal(want) {
				k.Errorf("%s, result %d: run answered %#v", op, i, b.Record.Result)
			}
			if b := k.do(two, req, stray(k), idempo.VerdictReplay); !b.Record.Result.Equal(want) {
				k.Errorf("%s, result %d: replayed %#v", op, i, b.Record.Result)
			}
		}
	}
}

func engineKeys(k *K) {
	one, two := k.two()
	var every [256]byte
	for i := range every {
		every[i] = byte(i)
	}
	ids := []string{"a", "A", "a ", " a", "a\x00", "\x00", "\x00\x00", "\xff", "\xfe", "\xc3\x28", "é", "e\u0301", "'", `"`, `\`, "%", "_", "*", "null", "0", "00", string(every[:])}
	for i, id := range ids {
		req := k.request("send")
		req.Key.ID = id
		res := idempo.Result{Status: 200 + i}
		k.do(one, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return res, nil }, idempo.VerdictRun)
	}
	for i, id := range ids {
		req := k.request("send")
		req.Key.ID = id
		if b := k.do(two, req, stray(k), idempo.VerdictReplay); b.Record.Result.Status != 200+i {
			k.Errorf("key %q was answered from another's record", id)
		}
	}
}

func engineMaxResult(k *K) {
	one, two := k.two()
	for body, kept := range map[string]bool{"12345678": true, "123456789": false} {
		req := k.request("small")
		res := idempo.Result{Status: 200, Body: []byte(body)}
		k.do(one, req, func(context.Context, *idempo.Claim) (idempo.Result, error) { return res, nil }, idempo.VerdictRun)
		r := k.do(two, req, stray(k), idempo.VerdictReplay).Record
		sum := sha256.Sum256([]byte(body))
		if r.BodyKept != kept || r.BodySize != int64(len(body)) || kept != r.Result.Equal(res) || !kept && (r.Result.Body != nil || string(r.BodySHA256) != string(sum[:])) {
			k.Errorf("%d bytes: kept %t, size %d, body %q", len(body), r.BodyKept, r.BodySize, r.Result.Body)
		}
	}
}

func engineIssued(k *K) {
	one, two := k.two()
	req := k.request("once")
	_, err := one.Do(k.ctx, req, stray(k))
	k.code(err, "not_issued")
	_, err = one.Issue(k.ctx, req.Key)
	k.ok(err)
	_, err = two.Issue(k.ctx, req.Key)
	k.ok(err)
	c := k.begin(one, req)
	k.ok(c.Forget(k.ctx))
	other := req
	other.Input = [][]byte{[]byte("another body")}
	next := k.request("once")
	k.do(two, other, func(_ context.Context, c *idempo.Claim) (idempo.Result, error) {
		return answer(), c.IssueNext(next.Key.ID)
	}, idempo.VerdictRun)
	k.do(one, other, stray(k), idempo.VerdictReplay)
	k.do(one, next, func(context.Context, *idempo.Claim) (idempo.Result, error) { return answer(), nil }, idempo.VerdictRun)
}

func engineDerive(k *K) {
	one, two := k.two()
	req := k.request("rerun")
	c := k.begin(one, req)
	first := c.Derive("")
	k.ok(c.Doubt(k.ctx, "no answer"))
	b, err := two.Begin(k.ctx, req)
	if err != nil || b.Verdict != idempo.VerdictRun {
		k.Fatalf("rerun: %q, %v", b.Verdict, err)
	}
	if got := b.Claim.Derive(""); got != first || b.Record.DerivedKey != first || b.Claim.Attempt() != 2 || !b.Claim.Lapsed() {
		k.Errorf("derived %s, stored %s, first %s; attempt %d", got, b.Record.DerivedKey, first, b.Claim.Attempt())
	}
	if b.Claim.Derive("refund") == first {
		k.Error("every label derives the same key")
	}
	k.ok(b.Claim.Complete(k.ctx, answer()))
	k.code(c.Release(k.ctx, "late"), "wrong_state")
}

func engineProbe(k *K) {
	for _, found := range []idempo.State{idempo.StateCompleted, idempo.StateFailed} {
		var probes, runs atomic.Int64
		op := idempo.Operation{Name: "ask-" + string(found), Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashProbe,
			ProbeFunc: func(_ context.Context, r idempo.Record) (idempo.State, idempo.Result, error) {
				probes.Add(1)
				if r.DerivedKey == "" || string(r.Snapshot) != "what to ask for" {
					k.Errorf("the probe got derived key %q, snapshot %q", r.DerivedKey, r.Snapshot)
				}
				return found, answer(), nil
			}}
		e := k.engine(k.Store, idempo.Config{ProbeEvery: time.Millisecond}, op)
		req := k.request(op.Name)
		req.Snapshot = []byte("what to ask for")
		k.ok(k.begin(e, req).Doubt(k.ctx, "no answer"))
		var b idempo.Begun
		var err error
		for k.ctx.Err() == nil { // until the probe is due
			if b, err = e.Do(k.ctx, req, outside(&runs, answer(), nil)); b.Verdict != idempo.VerdictInDoubt {
				break
			}
			runtime.Gosched()
		}
		k.ok(err)
		want, run := idempo.VerdictReplay, int64(0)
		if found == idempo.StateFailed {
			want, run = idempo.VerdictRun, 1
		}
		if b.Verdict != want || runs.Load() != run || probes.Load() != 1 || !b.Record.Result.Equal(answer()) {
			k.Errorf("%s: %q, %d runs, %d probes", found, b.Verdict, runs.Load(), probes.Load())
		}
	}
}

func engineRefer(k *K) {
	one, two := k.two()
	req := k.request("send")
	c := k.begin(one, req)
	k.ok(c.Refer(k.ctx, "charge", "ch_1"))
	k.ok(c.Refer(k.ctx, "charge", "ch_2"))
	check := func(s idempo.State) {
		k.Helper()
		r, err := two.Lookup(k.ctx, req.Key)
		k.ok(err)
		if r.State != s || len(r.References) != 2 || r.References[0].ID != "ch_1" || r.References[1].ID != "ch_2" {
			k.Errorf("%s, references %v", r.State, r.References)
		}
	}
	check(idempo.StatePending)
	k.ok(c.Complete(k.ctx, answer()))
	check(idempo.StateCompleted)
	k.code(c.Refer(k.ctx, "charge", "late"), "lease_lost")
	check(idempo.StateCompleted)

	if !k.caps.Tx {
		return
	}
	req = k.request("pay")
	k.do(one, req, func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		return answer(), errors.Join(c.Refer(ctx, "charge", "ch_1"), c.Refer(ctx, "charge", "ch_2"))
	}, idempo.VerdictRun)
	check(idempo.StateCompleted)
}

func doLeasedTogether(k *K) {
	one, two := k.two()
	for range 3 {
		var n atomic.Int64
		req := k.request("send")
		if runs := k.together(one, two, req, outside(&n, answer(), nil)); runs != 1 || n.Load() != 1 {
			k.Errorf("%d runs, %d effects", runs, n.Load())
		}
	}
}
