package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/around"
)

// patience with a claim: a busy machine is not an unavailable store.
const patience = 20 * time.Second

func faultCases() []testCase {
	return []testCase{
		{name: "engine: [stores/CT30] atomic: the Nth store call fails, for every N: one effect after the retries, and errors that admit it",
			needs: needTx | needEffect, run: nthAtomic},
		{name: "engine: [stores/CT30] leased: the Nth store call fails, for every N: at most one effect, and errors that admit it", run: nthLeased},
		{name: "engine: [stores/CT15] every call sent twice does no harm", needs: needTx | needEffect, run: sentTwice},
	}
}

// Twice returns s as seen through a driver that sends every statement twice: each call is made two times, and the second
// answer counts. Left out are whole transactions, and Forget: what is gone cannot recognise its owner, and a second
// Forget is told, harmlessly, that the lease is lost.
func Twice(s idempo.Store) idempo.Store {
	return around.Store(s, func(op string, call func() error) error {
		if op != "tx" && op != "forget" {
			_ = call()
		}
		return call()
	})
}

// eachFault calls f with an engine whose nth store call fails, for n = 1, 2, … until a run has no failure.
func (k *K) eachFault(f func(e *idempo.Engine, what string)) {
	for _, when := range []string{"before", "after"} {
		for n := 1; n < 100; n++ {
			fault := &around.Fault{N: n, After: when == "after"}
			e := k.engine(around.Store(k.Store, fault.Through), idempo.Config{})
			f(e, fmt.Sprintf("call %d fails %s it took effect", n, when))
			if left := e.Drain(k.ctx); left > 0 {
				k.Errorf("%d claims are left where call %d failed %s it took effect", left, n, when)
			}
			if fault.Op == "" {
				break
			}
		}
	}
}

func nthAtomic(k *K) {
	_, other := k.two()
	k.eachFault(func(e *idempo.Engine, what string) {
		req := k.request("pay")
		committed := func() int {
			n, err := k.Count(k.ctx, name(req))
			k.ok(err)
			return n
		}
		for try := 0; ; try++ {
			before := committed()
			b, err := e.Do(k.ctx, req, k.local(req, answer(), nil))
			if err == nil {
				if !b.Record.Result.Equal(answer()) {
					k.Errorf("%s: %s of %+v", what, b.Verdict, b.Record.Result)
				}
				break
			}
			if committed() > before && !idempo.MayHaveHappened(err) {
				k.Errorf("%s: it happened, and the error denies it: %v", what, err)
			}
			if try > 10 {
				k.Fatalf("%s: still %v", what, err)
			}
		}
		k.count(req, 1)
		k.do(other, req, stray(k), idempo.VerdictReplay)
	})
}

func nthLeased(k *K) {
	_, other := k.two()
	k.eachFault(func(e *idempo.Engine, what string) {
		req := k.request("send")
		var n atomic.Int64
		for range 10 {
			before := n.Load()
			b, err := e.Do(k.ctx, req, outside(&n, answer(), nil))
			if err == nil {
				if !b.Record.Result.Equal(answer()) {
					k.Errorf("%s: %s of %+v", what, b.Verdict, b.Record.Result)
				}
				k.do(other, req, stray(k), idempo.VerdictReplay)
				break
			}
			if n.Load() > before && !idempo.MayHaveHappened(err) {
				k.Errorf("%s: it happened, and the error denies it: %v", what, err)
			}
			if b.Verdict == idempo.VerdictInDoubt {
				break
			}
		}
		if n.Load() > 1 {
			k.Errorf("%s: %d effects", what, n.Load())
		}
	})
}

func sentTwice(k *K) {
	one, two := k.engine(Twice(k.Store), idempo.Config{}), k.engine(Twice(k.Again), idempo.Config{})
	pay, send := k.request("pay"), k.request("send")
	k.do(one, pay, k.local(pay, answer(), nil), idempo.VerdictRun)
	k.do(two, pay, stray(k), idempo.VerdictReplay)
	k.count(pay, 1)
	var n atomic.Int64
	k.do(one, send, outside(&n, answer(), nil), idempo.VerdictRun)
	if k.do(two, send, stray(k), idempo.VerdictReplay); n.Load() != 1 {
		k.Errorf("%d effects", n.Load())
	}
	failed := k.request("send")
	k.ok(k.begin(one, failed).Release(k.ctx, "refused"))
	c := k.begin(two, failed)
	k.ok(c.Renew(k.ctx))
	k.ok(c.Doubt(k.ctx, "no answer"))
	if b, _ := one.Begin(k.ctx, failed); b.Verdict != idempo.VerdictInDoubt {
		k.Errorf("%q, want in doubt", b.Verdict)
	}
	shared := k.request("pay")
	if runs := k.together(one, two, shared, k.local(shared, answer(), nil)); runs != 1 {
		k.Errorf("%d runs", runs)
	}
	k.count(shared, 1)
}
