package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// contender does one operation; n is unique over the whole run.
type contender struct {
	name string
	do   func(ctx context.Context, n int64) error
}

// compare lets the contenders take turns for s.rounds rounds of clients each, and returns the throughput per second of
// each round, by contender. The order turns with each round, so that nobody always runs in another's wake.
func compare(ctx context.Context, s settings, clients int, cs ...contender) ([][]float64, error) {
	out := make([][]float64, len(cs))
	for _, c := range cs { // warm up: connections, prepared statements, caches
		if _, err := throughput(ctx, s.n, s.each/4, clients, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for round := range s.rounds {
		for i := range cs {
			k := (i + round) % len(cs)
			t, err := throughput(ctx, s.n, s.each, clients, cs[k])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cs[k].name, err)
			}
			out[k] = append(out[k], t)
		}
	}
	return out, nil
}

// throughput counts the operations of clients in d. Each has a context of its own that can end, as that of a request has.
func throughput(ctx context.Context, next *atomic.Int64, d time.Duration, clients int, c contender) (float64, error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	var failed atomic.Pointer[error]
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(start) < d && failed.Load() == nil {
				call, done := context.WithCancel(ctx)
				err := c.do(call, next.Add(1))
				done()
				if err != nil {
					failed.Store(&err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n.Load()) / time.Since(start).Seconds(), nil
}

// ratio is the median over the rounds of a ÷ b.
func ratio(a, b []float64) float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return median(r)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// machine says what the figures were made on.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return fmt.Sprintf("Machine: %d cores, %s, %s/%s, %s.", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
