package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

func counted(s idempo.Store) bool { _, ok := s.(operator.CounterKeeper); return ok }

func weighed(s idempo.Store) bool { _, ok := s.(operator.Weigher); return ok }

func counterCases() []testCase {
	c := func(name string, run func(k *K)) testCase {
		return testCase{name: name, needs: needCounters, alone: true, run: run}
	}
	return []testCase{
		c("what a process has counted stands in its slot, is written again in its place, and is read by every handle", keepCounters),
		c("counters of processes that write at once are all there", keepTogether),
		{name: "a store says how big it is, and since when its sweeper has something to do", needs: needWeigher | needSweep, alone: true, run: weigh},
	}
}

func (k *K) kept(s idempo.Store, p operator.KeepCountersParams) operator.KeptCounters {
	k.Helper()
	got, err := s.(operator.CounterKeeper).KeepCounters(k.ctx, p)
	k.ok(err)
	if got.Now.IsZero() {
		k.Error("the store does not say what time it is")
	}
	return got
}

func keepCounters(k *K) {
	at := func(n int) time.Time { return time.Date(2026, 3, 1, 12, n, 0, 0, time.UTC) }
	slot := func(span time.Duration, n int, process, data string) operator.CounterSlot {
		return operator.CounterSlot{Span: span, Start: at(n), Process: process, Data: []byte(data)}
	}
	any := "\x00\xff'\"\\{}\n" + string(bytes.Repeat([]byte("x"), 100_000))
	p := operator.KeepCountersParams{Put: []operator.CounterSlot{slot(time.Minute, 2, "b", any), slot(time.Minute, 1, "a", ""), slot(time.Hour, 1, "a", "hour"), slot(time.Minute, 2, "a", "first")}}
	k.kept(k.Store, p)
	k.kept(k.Again, p)
	k.kept(k.Store, operator.KeepCountersParams{Put: []operator.CounterSlot{slot(time.Minute, 2, "a", "second")}})
	want := func(p operator.KeepCountersParams, want ...operator.CounterSlot) {
		k.Helper()
		for _, s := range []idempo.Store{k.Store, k.Again} {
			same := func(a, b operator.CounterSlot) bool {
				return a.Span == b.Span && a.Start.Equal(b.Start) && a.Process == b.Process && bytes.Equal(a.Data, b.Data)
			}
			if got := k.kept(s, p).Slots; !slices.EqualFunc(got, want, same) {
				k.Errorf("%d slots, want %d: %.300v", len(got), len(want), got)
			}
		}
	}
	minutes := operator.CounterRange{Span: time.Minute, Start: at(1)}
	want(operator.KeepCountersParams{})
	want(operator.KeepCountersParams{Read: []operator.CounterRange{minutes}}, slot(time.Minute, 1, "a", ""), slot(time.Minute, 2, "a", "second"), slot(time.Minute, 2, "b", any))
	want(operator.KeepCountersParams{Read: []operator.CounterRange{{Span: time.Minute, Start: at(2)}, {Span: time.Hour}}},
		slot(time.Minute, 2, "a", "second"), slot(time.Minute, 2, "b", any), slot(time.Hour, 1, "a", "hour"))
	want(operator.KeepCountersParams{Forget: []operator.CounterRange{{Span: time.Minute, Start: at(2)}}, Read: []operator.CounterRange{minutes, {Span: time.Hour}}},
		slot(time.Minute, 2, "a", "second"), slot(time.Minute, 2, "b", any), slot(time.Hour, 1, "a", "hour"))
}

func keepTogether(k *K) {
	const processes, rounds = 8, 5
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			s := []idempo.Store{k.Store, k.Again}[p%2]
			for r := range rounds {
				put := operator.CounterSlot{Span: time.Minute, Start: start, Process: fmt.Sprint("p", p), Data: fmt.Append(nil, r)}
				if _, err := s.(operator.CounterKeeper).KeepCounters(k.ctx, operator.KeepCountersParams{Put: []operator.CounterSlot{put}}); err != nil {
					k.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := k.kept(k.Store, operator.KeepCountersParams{Read: []operator.CounterRange{{Span: time.Minute, Start: start}}}).Slots
	for _, c := range got {
		if string(c.Data) != fmt.Sprint(rounds-1) {
			k.Errorf("%s has %s", c.Process, c.Data)
		}
	}
	if len(got) != processes {
		k.Errorf("%d of %d processes", len(got), processes)
	}
}

func weigh(k *K) {
	at := func(now time.Time) operator.Weight {
		k.Helper()
		w, err := k.Store.(operator.Weigher).Weigh(k.ctx, operator.WeighParams{Now: now})
		k.ok(err)
		if w.Now.IsZero() || !now.IsZero() && !w.Now.Equal(now) {
			k.Errorf("weighed at %v, want %v", w.Now, now)
		}
		return w
	}
	k.completed(k.claim(k.key()))
	later := k.claim(k.key())
	later.Now = k.t0.Add(time.Hour)
	_, err := k.Store.Complete(k.ctx, k.done(later, k.won(later).Attempt, later.Now))
	k.ok(err)
	if w := at(time.Time{}); w.Bytes <= 0 {
		k.Errorf("%+v", w)
	}
	due := func(now time.Time, want time.Time) {
		k.Helper()
		if got := at(now).OldestDue; !got.Equal(want) {
			k.Errorf("at %v due since %v, want %v", now, got, want)
		}
	}
	due(k.t0.Add(time.Minute), time.Time{})
	due(k.t0.Add(retention-time.Minute), time.Time{})
	r := k.look(later.Key, later.Now)
	due(k.t0.Add(retention+2*time.Hour), r.ExpiresAt.Add(-time.Hour)) // of the first, which was completed an hour before
	doubt := k.claim(k.key())
	k.won(doubt) // started, and its owner is never heard of again
	due(k.t0.Add(time.Hour), k.t0.Add(lease))
}
