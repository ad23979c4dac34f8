package idempo_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// faulty is a memstore whose calls can be counted, delayed and failed, before or after they took effect.
type faulty struct {
	*memstore.Store
	mu     sync.Mutex
	calls  map[string]int
	before func(op string, n int) error // n counts the calls of op from 1
	after  func(op string, n int) error
}

func newFaulty() *faulty {
	return &faulty{Store: memstore.New(memstore.Options{}), calls: map[string]int{}}
}

func (f *faulty) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *faulty) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

func through[T any](f *faulty, op string, call func() (T, error)) (out T, err error) {
	f.mu.Lock()
	f.calls[op]++
	n, before, after := f.calls[op], f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err = before(op, n); err != nil {
			return out, err
		}
	}
	if out, err = call(); err != nil || after == nil {
		return out, err
	}
	if err = after(op, n); err != nil {
		var zero T
		return zero, err
	}
	return out, nil
}

func (f *faulty) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	return through(f, "acquire", func() (idempo.Acquired, error) { return f.Store.Acquire(ctx, p) })
}

func (f *faulty) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	return through(f, "renew", func() (idempo.Record, error) { return f.Store.Renew(ctx, p) })
}

func (f *faulty) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	return through(f, "complete", func() (idempo.Record, error) { return f.Store.Complete(ctx, p) })
}

func (f *faulty) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	return through(f, "release", func() (idempo.Record, error) { return f.Store.Release(ctx, p) })
}

func (f *faulty) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	return through(f, "lookup", func() (idempo.Record, error) { return f.Store.Lookup(ctx, p) })
}

func (f *faulty) InTx(ctx context.Context, fn func(context.Context) error) error {
	_, err := through(f, "tx", func() (struct{}, error) { return struct{}{}, f.Store.InTx(ctx, fn) })
	return err
}

// away is a store that does not answer; sent says whether anything may have been written.
func away(sent bool) error {
	return &idempo.Error{Op: "store", Code: "unavailable", Unknown: sent, Err: errors.New("connection reset")}
}

func conflict() error { return &idempo.Error{Op: "store", Code: "tx_conflict"} }

func digestKeys() []idempo.Secret {
	return []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}
}

func engineOn(t *testing.T, s idempo.Store, c idempo.Config, ops ...idempo.Operation) *idempo.Engine {
	t.Helper()
	if c.DigestKeys == nil {
		c.DigestKeys = digestKeys()
	}
	c.Operations = append(c.Operations, ops...)
	e, err := idempo.New(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newEngine(t *testing.T, c idempo.Config, ops ...idempo.Operation) *idempo.Engine {
	t.Helper()
	return engineOn(t, memstore.New(memstore.Options{}), c, ops...)
}

func request(op, id, body string) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: id}, Input: [][]byte{[]byte(body)}, Surface: "http"}
}

// ledger counts effects outside of the engine.
type ledger struct{ n atomic.Int64 }

// local is work whose effect commits with its transaction; outside is work whose effect happens at once.
func (l *ledger) local(res idempo.Result, err error) func(context.Context, *idempo.Claim) (idempo.Result, error) {
	return func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
		memstore.OnCommit(ctx, func() { l.n.Add(1) })
		return res, err
	}
}

func (l *ledger) outside(res idempo.Result, err error) func(context.Context, *idempo.Claim) (idempo.Result, error) {
	return func(context.Context, *idempo.Claim) (idempo.Result, error) {
		l.n.Add(1)
		return res, err
	}
}

func (l *ledger) want(t *testing.T, n int64) {
	t.Helper()
	if got := l.n.Load(); got != n {
		t.Errorf("%d effects, want %d", got, n)
	}
}

func wantVerdict(t *testing.T, b idempo.Begun, err error, want idempo.Verdict) {
	t.Helper()
	if b.Verdict != want {
		t.Fatalf("verdict %q (%v), want %q", b.Verdict, err, want)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	e, ok := errors.AsType[*idempo.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
}

var (
	atomicOp = idempo.Operation{Name: "pay", Guard: idempo.GuardAtomic}
	leasedOp = idempo.Operation{Name: "send", Guard: idempo.GuardLeased}
	okResult = idempo.Result{Status: 201, Body: []byte("made")}
)
