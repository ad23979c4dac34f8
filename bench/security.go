package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
)

// with is engine with what change makes of its settings.
func (p *pg) with(ctx context.Context, change func(*idempo.Config)) (*idempo.Engine, error) {
	store, err := p.store(ctx)
	if err != nil {
		return nil, err
	}
	cfg := settingsOf()
	change(&cfg)
	return idempo.New(store, cfg)
}

// answering is an atomic call of one row that keeps an answer of body.
func answering(e *idempo.Engine, name, tenant string, body []byte) contender {
	return contender{name, func(ctx context.Context, n int64) error {
		req := requestOf("create-order", n)
		req.Key.Tenant = tenant
		return wantRun(e.Do(ctx, req, rowAnd(body)))
	}}
}

// replaying is the replay of one of the replayed calls up to base.
func replaying(e *idempo.Engine, name, tenant string, base int64) contender {
	return contender{name, func(ctx context.Context, n int64) error {
		req := requestOf("create-order", base-n%replayed)
		req.Key.Tenant = tenant
		b, err := e.Do(ctx, req, nil)
		if err == nil && b.Verdict != idempo.VerdictReplay {
			err = fmt.Errorf("verdict %s", b.Verdict)
		}
		return err
	}}
}

// variant is one setting beside the plain ones: what its id, its name and its bars are.
type variant struct {
	id, what           string
	change             func(*idempo.Config)
	first, replay      float64
	firstBar, replyBar string
}

func secureEngines(ctx context.Context, s settings) ([]result, error) {
	return besidePlain(ctx, s,
		variant{"SEC91", "with encryption, answers of 1 KiB", func(c *idempo.Config) {
			c.EncryptionKeys = []idempo.Secret{{ID: "e1", Value: []byte("fedcba9876543210fedcba9876543210")[:32]}}
		}, 0.95, 0.95, "≥ 0.95", "≥ 0.95"},
		variant{"SEC94", "with two digest keys listed", func(c *idempo.Config) {
			c.DigestKeys = append([]idempo.Secret{{ID: "d2", Value: []byte("another 0123456789abcdef01234567")}}, c.DigestKeys...)
		}, 0.85, 0.95, "≥ 0.85", "≥ 0.95"},
		variant{"SEC92", "with quotas", func(c *idempo.Config) {
			c.Quota = idempo.Quota{InFlight: 1000, NewPerSecond: 1e6, Burst: 1e6}
		}, 0.98, 0.98, "≥ 0.98", "≥ 0.98"})
}

// besidePlain compares first calls and replays of engines on one store with those of a plain one.
func besidePlain(ctx context.Context, s settings, variants ...variant) ([]result, error) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 64)
	var out []result
	for _, v := range variants {
		err := func() error {
			p, err := openPg(ctx)
			if err != nil {
				return err
			}
			defer p.close(ctx)
			plain, err := p.with(ctx, func(*idempo.Config) {})
			if err != nil {
				return err
			}
			other, err := p.with(ctx, v.change)
			if err != nil {
				return err
			}
			base := s.n.Add(replayed)
			for tenant, e := range map[string]*idempo.Engine{"plain": plain, "other": other} {
				do := answering(e, "", tenant, body)
				for i := range int64(replayed) {
					if err := do.do(ctx, base-i); err != nil {
						return err
					}
				}
			}
			names := []string{"plain", v.what}
			first, err := compare(ctx, s, 16, answering(plain, names[0], "plain", body), answering(other, names[1], "other", body))
			if err != nil {
				return err
			}
			again, err := compare(ctx, s, 16, replaying(plain, names[0], "plain", base), replaying(other, names[1], "other", base))
			if err != nil {
				return err
			}
			f, r := ratio(first[1], first[0]), ratio(again[1], again[0])
			out = append(out, result{v.id, "first calls, idempgx, 16 clients, " + v.what + " ÷ without", f, "", v.firstBar, f >= v.first, note(names, first)},
				result{v.id, "replays, the same", r, "", v.replyBar, r >= v.replay, note(names, again)})
			return nil
		}()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.id, err)
		}
	}
	return append(out, quotaAllocations()), nil
}

// quotaAllocations counts what a quota adds to a first call on memstore.
func quotaAllocations() result {
	per := func(q idempo.Quota) float64 {
		cfg := settingsOf()
		cfg.Quota = q
		e, err := idempo.New(memstore.New(memstore.Options{}), cfg)
		if err != nil {
			panic(err) // the same settings have made an engine before
		}
		n := int64(0)
		return testing.AllocsPerRun(500, func() {
			n++
			_, _ = e.Do(context.Background(), requestOf("send-parcel", n), func(context.Context, *idempo.Claim) (idempo.Result, error) { return idempo.Result{}, nil })
		})
	}
	added := per(idempo.Quota{InFlight: 1000, NewPerSecond: 1e6, Burst: 1e6}) - per(idempo.Quota{})
	return result{"SEC92", "allocations that quotas add to a first call, memstore", added, "allocations", "≤ 2", added <= 2, ""}
}

// neighbours measures one tenant's calls while another, within its quota, brings all it can: ever new keys, and 10,000
// duplicates of one running key.
func neighbours(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	e, err := p.with(ctx, func(c *idempo.Config) { c.Quota = idempo.Quota{InFlight: 100, NewPerSecond: 50, Burst: 50} })
	if err != nil {
		return nil, err
	}
	quiet, err := p.with(ctx, func(*idempo.Config) {})
	if err != nil {
		return nil, err
	}
	b := answering(quiet, "tenant B", "acct_b", []byte(answerBody))
	alone, beside := []float64{}, map[string][]float64{}
	floods := []struct {
		what string
		run  func(ctx context.Context, s settings, e *idempo.Engine) (calls func() int64, wait func())
	}{{"sends 1,000 new keys a second", newKeys}, {"holds 10,000 duplicates of one running key", duplicates}}
	for range s.rounds {
		r, err := throughput(ctx, s.n, s.each, 4, b)
		if err != nil {
			return nil, err
		}
		alone = append(alone, r)
		for _, f := range floods {
			flood, stop := context.WithCancel(ctx)
			calls, wait := f.run(flood, s, e)
			r, err := throughput(ctx, s.n, s.each, 4, b)
			stop()
			wait()
			if err != nil {
				return nil, err
			}
			if calls() == 0 {
				return nil, fmt.Errorf("the other tenant made no call")
			}
			beside[f.what] = append(beside[f.what], r)
		}
	}
	var out []result
	for _, f := range floods {
		r := ratio(beside[f.what], alone)
		out = append(out, result{"SEC47 SEC90", "calls of tenant B, idempgx, 4 clients, while A " + f.what + " ÷ alone", r, "", "≥ 0.90", r >= 0.9,
			fmt.Sprintf("alone %.0f/s · beside %.0f/s", median(alone), median(beside[f.what]))})
	}
	return out, nil
}

// newKeys brings 1,000 new keys a second; most are over the quota.
func newKeys(ctx context.Context, s settings, e *idempo.Engine) (calls func() int64, wait func()) {
	return flooding(func(count func()) {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			req := requestOf("create-order", s.n.Add(1))
			req.Key.Tenant = "acct_a"
			_, _ = e.Do(ctx, req, rowAnd([]byte(answerBody))) // refused or done, both are the point
			count()
		}
	})
}

// duplicates holds 10,000 callers at one key that runs, each asking again a second after it was told so. It returns once
// all have asked.
func duplicates(ctx context.Context, s settings, e *idempo.Engine) (calls func() int64, wait func()) {
	req := requestOf("send-parcel", s.n.Add(1))
	req.Key.Tenant = "acct_d"
	running := make(chan error, 1)
	var asked sync.WaitGroup
	asked.Add(10_000)
	calls, wait = flooding(func(count func()) {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := e.Do(ctx, req, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				running <- nil
				<-ctx.Done()
				return idempo.Result{}, idempo.NothingHappened(ctx.Err())
			})
			running <- err
		})
		if err := <-running; err != nil {
			asked.Add(-10_000) // count was never called: the measure fails
			return
		}
		for range 10_000 {
			wg.Go(func() {
				for first := true; first || ctx.Err() == nil; first = false {
					_, err := e.Do(ctx, req, nil)
					if errors.Is(err, idempo.ErrInProgress) {
						count()
					}
					if first {
						asked.Done()
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			})
		}
		wg.Wait()
	})
	asked.Wait()
	return calls, wait
}

// flooding runs f beside the measure: calls is how often it has called count, wait returns when f has.
func flooding(f func(count func())) (calls func() int64, wait func()) {
	var n atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { f(func() { n.Add(1) }) })
	return n.Load, wg.Wait
}
