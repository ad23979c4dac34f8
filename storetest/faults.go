package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/idempo/idempo"
)

func faultCases() []testCase {
	return []testCase{
		{name: "engine: [stores/CT30] atomic: the Nth store call fails, for every N: one effect after the retries, and errors that admit it",
			needs: needTx | needEffect, run: nthAtomic},
		{name: "engine: [stores/CT30] leased: the Nth store call fails, for every N: at most one effect, and errors that admit it", run: nthLeased},
		{name: "engine: [stores/CT15] every call sent twice does no harm", needs: needTx | needEffect, run: sentTwice},
	}
}

// passing wraps a store: through stands around every call.
type passing struct {
	idempo.Store
	through func(op string, call func() error) error
}

// passingTx is passing for a store with transactions.
type passingTx struct {
	passing
	tx interface {
		idempo.Transactor
		idempo.Joiner
	}
}

// around returns s with through around every call; it has transactions exactly if s has.
func around(s idempo.Store, through func(op string, call func() error) error) idempo.Store {
	p := passing{s, through}
	if tx, ok := s.(interface {
		idempo.Transactor
		idempo.Joiner
	}); ok {
		return passingTx{p, tx}
	}
	return p
}

func (s passing) Acquire(ctx context.Context, p idempo.AcquireParams) (a idempo.Acquired, err error) {
	err = s.through("acquire", func() (err error) { a, err = s.Store.Acquire(ctx, p); return err })
	return a, err
}

func (s passing) Renew(ctx context.Context, p idempo.RenewParams) (r idempo.Record, err error) {
	err = s.through("renew", func() (err error) { r, err = s.Store.Renew(ctx, p); return err })
	return r, err
}

func (s passing) Complete(ctx context.Context, p idempo.CompleteParams) (r idempo.Record, err error) {
	err = s.through("complete", func() (err error) { r, err = s.Store.Complete(ctx, p); return err })
	return r, err
}

func (s passing) Release(ctx context.Context, p idempo.ReleaseParams) (r idempo.Record, err error) {
	op := "release"
	if p.To == idempo.StateIssued {
		op = "forget"
	}
	err = s.through(op, func() (err error) { r, err = s.Store.Release(ctx, p); return err })
	return r, err
}

func (s passing) Lookup(ctx context.Context, p idempo.LookupParams) (r idempo.Record, err error) {
	err = s.through("lookup", func() (err error) { r, err = s.Store.Lookup(ctx, p); return err })
	return r, err
}

func (s passingTx) InTx(ctx context.Context, fn func(context.Context) error) error {
	return s.through("tx", func() error { return s.tx.InTx(ctx, fn) })
}

func (s passingTx) Joined(ctx context.Context) (bool, bool, error) { return s.tx.Joined(ctx) }

// Twice returns s as seen through a driver that sends every statement twice: each call is made two times, and the second
// answer counts. Left out are whole transactions, and Forget: what is gone cannot recognise its owner, and a second
// Forget is told, harmlessly, that the lease is lost.
func Twice(s idempo.Store) idempo.Store {
	return around(s, func(op string, call func() error) error {
		if op != "tx" && op != "forget" {
			_ = call()
		}
		return call()
	})
}

// A fault lets the nth call fail, before or after it took effect; calls inside a transaction count before its commit.
type fault struct {
	mu    sync.Mutex
	n, at int
	after bool
	hit   string // the call that failed
}

func (f *fault) through(op string, call func() error) error {
	f.mu.Lock()
	f.n++
	now := f.n == f.at
	if now {
		f.hit = op
	}
	f.mu.Unlock()
	if !now {
		return call()
	}
	if f.after {
		if err := call(); err != nil {
			return err
		}
	}
	return &idempo.Error{Op: op, Code: "unavailable", Unknown: f.after, Err: errors.New("connection reset")}
}

// eachFault calls f with an engine whose nth store call fails, for n = 1, 2, … until a run has no failure.
func (k *K) eachFault(f func(e *idempo.Engine, what string)) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			if n > 50 {
				k.Fatal("a call of the store's makes 50")
			}
			flt := &fault{at: n, after: after}
			e := k.engine(around(k.Store, flt.through), idempo.Config{})
			when := "before"
			if after {
				when = "after"
			}
			f(e, when)
			if left := e.Drain(k.ctx); left > 0 {
				k.Errorf("%d claims are left when call %d failed %s it took effect", left, n, when)
			}
			if flt.hit == "" {
				break
			}
		}
	}
}

func nthAtomic(k *K) {
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
	})
}

func nthLeased(k *K) {
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
