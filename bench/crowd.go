package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/memstore"
)

// counting counts the calls that reach a store.
type counting struct {
	idempo.Store
	reads, renewals atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	c.reads.Add(1)
	return c.Store.Acquire(ctx, p)
}

func (c *counting) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	c.reads.Add(1)
	return c.Store.Lookup(ctx, p)
}

func (c *counting) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	c.renewals.Add(1)
	return c.Store.Renew(ctx, p)
}

func heapNow() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// over makes an engine of leased parcels with a lease of its own.
func over(store idempo.Store, lease time.Duration) (*idempo.Engine, error) {
	cfg := settingsOf()
	cfg.Operations, cfg.MaxWaiters, cfg.Quota = []idempo.Operation{{Name: "send-parcel", Guard: idempo.GuardLeased, Lease: lease}}, 1000, idempo.Quota{InFlight: 100_000}
	return idempo.New(store, cfg)
}

// waiters holds 1,000 callers at 10 keys that run in another process, and counts what they ask of the store.
func waiters(ctx context.Context, s settings) ([]result, error) {
	const callers, keys = 1000, 10
	shared := memstore.New(memstore.Options{})
	owner, err := over(shared, time.Minute)
	if err != nil {
		return nil, err
	}
	store := &counting{Store: shared}
	e, err := over(store, time.Minute)
	if err != nil {
		return nil, err
	}
	base := s.n.Add(keys)
	for k := range int64(keys) {
		if b, err := owner.Begin(ctx, requestOf("send-parcel", base-k)); err != nil || b.Verdict != idempo.VerdictRun {
			return nil, errors.Join(errors.New("the key was not won"), err)
		}
	}
	before := heapNow()
	waiting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range int64(callers) {
		wg.Go(func() {
			req := requestOf("send-parcel", base-i%keys)
			req.Wait = time.Minute
			if _, err := e.Do(waiting, req, nil); err != nil && waiting.Err() == nil {
				refused.Add(1)
			}
		})
	}
	pauseFor(ctx, max(s.each, 200*time.Millisecond)) // all have asked, and the pauses have grown
	asked, window := store.reads.Load(), max(time.Duration(s.rounds)*s.each, time.Second)
	memory := (heapNow() - before) / callers
	pauseFor(ctx, window)
	rate := float64(store.reads.Load()-asked) / window.Seconds()
	stop()
	wg.Wait()
	if refused.Load() > 0 {
		return nil, fmt.Errorf("%d callers did not wait", refused.Load())
	}
	return []result{
		{"E38", "1,000 waiters on 10 keys of another process: store reads per second", rate, "a second", "≤ 60", rate <= 60, ""},
		{"E38", "the same: memory per waiter, goroutine included", memory / 1024, "KiB", "≤ 8", memory <= 8192, ""},
	}, nil
}

// running holds 10,000 claims and counts what they cost.
func running(ctx context.Context, s settings) ([]result, error) {
	const claims = 10_000
	lease := max(3*s.each, 3*time.Second)
	store := &counting{Store: memstore.New(memstore.Options{})}
	e, err := over(store, lease)
	if err != nil {
		return nil, err
	}
	threads, before := runtime.NumGoroutine(), heapNow()
	held := make([]*idempo.Claim, claims)
	for i := range held {
		b, err := e.Begin(ctx, requestOf("send-parcel", s.n.Add(1)))
		if err != nil || b.Claim == nil {
			return nil, errors.Join(errors.New("the key was not won"), err)
		}
		held[i] = b.Claim
	}
	records := memstoreBytes(ctx, claims)
	memory := (heapNow() - before) / claims
	more := runtime.NumGoroutine() - threads
	pauseFor(ctx, lease/3+lease/30) // the first renewals are due at different times of the first third
	renewed := store.renewals.Load()
	pauseFor(ctx, lease)
	per := float64(store.renewals.Load()-renewed) / claims / 3
	most := more
	for _, c := range held {
		most = max(most, runtime.NumGoroutine()-threads)
		if err := c.Release(ctx, "measured"); err != nil {
			return nil, err
		}
	}
	own := max(memory-records, 0)
	return []result{
		{"E39", "10,000 running claims: renewals per claim and third of its lease", per, "renewals", "≤ 1", per < 1.005, "each pause is a third of the lease ± 10 %"},
		{"E39", "the same: goroutines", float64(most), "goroutines", "≤ 64", most <= 64, ""},
		{"E39", "the same: memory per claim, less the store's record", own / 1024, "KiB", "≤ 2", own <= 2048, fmt.Sprintf("%.0f B with the record, %.0f B the record", memory, records)},
	}, nil
}

// memstoreBytes is what memstore keeps per pending record.
func memstoreBytes(ctx context.Context, n int) float64 {
	store := memstore.New(memstore.Options{})
	before := heapNow()
	for i := range n {
		p := idempo.AcquireParams{Key: idempo.Key{Tenant: "acct_7", Operation: "send-parcel", ID: fmt.Sprintf("%032d", i)}, Hash: digestOf(int64(i)), Recipe: "input1;k=d1",
			Guard: idempo.GuardLeased, OnCrash: idempo.OnCrashHold, Token: idempo.Token{1, byte(i), byte(i >> 8)}, Lease: time.Minute, Surface: "http", Owner: "host/1234 version",
			DerivedKey: "6be8f39f-c03c-4adc-b47a-d559a3522431"}
		_, _ = store.Acquire(ctx, p)
	}
	per := (heapNow() - before) / float64(n)
	runtime.KeepAlive(store)
	return per
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// strangers measures an unrelated key while 200 duplicates of a running key come, from one process and from three, each with
// ten connections.
func strangers(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	if _, err := p.engine(ctx); err != nil {
		return nil, err
	}
	process := func() (*idempo.Engine, func(), error) {
		cfg := p.pool.Config()
		cfg.MaxConns = 10
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		store, err := idempgx.New(ctx, pool, idempgx.Options{Schema: p.schema})
		if err != nil {
			return nil, nil, err
		}
		e, err := engineOver(store)
		return e, pool.Close, err
	}
	var engines []*idempo.Engine
	for range 3 {
		e, closePool, err := process()
		if err != nil {
			return nil, err
		}
		defer closePool()
		engines = append(engines, e)
	}
	held, err := engines[0].Begin(ctx, requestOf("send-parcel", s.n.Add(1)))
	if err != nil || held.Claim == nil {
		return nil, errors.Join(errors.New("the key was not won"), err)
	}
	key := held.Claim.Key()
	call := leasedCall(engines[0])
	beside := func(processes int) (float64, error) {
		var all []float64
		for range s.rounds {
			without, err := latencies(ctx, s.n, s.each, 4, call)
			if err != nil {
				return 0, err
			}
			crowd, stop := context.WithCancel(ctx)
			var wg sync.WaitGroup
			var asked atomic.Int64
			for i := range 200 {
				wg.Go(func() {
					req := requestOf("send-parcel", 0)
					req.Key, req.Wait = key, time.Minute
					asked.Add(1)
					_, _ = engines[i%processes].Do(crowd, req, nil)
				})
			}
			with, err := latencies(ctx, s.n, s.each, 4, call)
			stop()
			wg.Wait()
			if err != nil || asked.Load() != 200 {
				return 0, errors.Join(err, errors.New("the crowd did not come: "+strconv.FormatInt(asked.Load(), 10)))
			}
			all = append(all, at(0.99, with)/at(0.99, without))
		}
		return median(all), nil
	}
	var out []result
	for _, processes := range []int{1, 3} {
		r, err := beside(processes)
		if err != nil {
			return nil, err
		}
		out = append(out, result{"E31", fmt.Sprintf("p99 of unrelated keys beside 200 duplicates of a running key, pool 10, processes: %d ÷ without", processes), r, "", "≤ 2", r <= 2, ""})
	}
	return out, held.Claim.Release(ctx, "measured")
}
