package operator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/operator"
)

// watched is a store whose counting calls are counted, and can fail.
type watched struct {
	*memstore.Store
	mu     sync.Mutex
	counts int // of operator.Counter
	keeps  int
	writes int // slots put
	down   error
	after  error // fails after the work is done
}

func (w *watched) Count(ctx context.Context, p operator.CountParams) (operator.Stats, error) {
	w.mu.Lock()
	w.counts++
	w.mu.Unlock()
	return w.Store.Count(ctx, p)
}

func (w *watched) KeepCounters(ctx context.Context, p operator.KeepCountersParams) (operator.KeptCounters, error) {
	w.mu.Lock()
	w.keeps++
	w.writes += len(p.Put)
	down, after := w.down, w.after
	w.mu.Unlock()
	if down != nil {
		return operator.KeptCounters{}, down
	}
	kept, err := w.Store.KeepCounters(ctx, p)
	if after != nil {
		return operator.KeptCounters{}, after
	}
	return kept, err
}

// hands is a clock that a test moves.
type hands struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hands) read() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hands) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// meters returns a maker of meters over one store and one clock.
func meters() (*hands, *watched, func() *operator.Meter) {
	clock := &hands{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s := &watched{Store: memstore.New(memstore.Options{Clock: clock.read})}
	return clock, s, func() *operator.Meter {
		return operator.NewMeter(operator.MeterConfig{Store: s, Clock: clock.read})
	}
}

func begun(m *operator.Meter, op string, v idempo.Verdict, n int) {
	for range n {
		m.Observe(context.Background(), idempo.Event{Kind: "begin", Operation: op, Verdict: v, Age: time.Hour})
	}
}

func measured(t *testing.T, m *operator.Meter, window int) operator.Measured {
	t.Helper()
	got, err := m.Measure(t.Context(), operator.Windows()[window])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestMeterOverProcesses(t *testing.T) {
	t.Parallel()
	flush := func(t *testing.T, m *operator.Meter) {
		t.Helper()
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("counts of all processes add up, of those that ended too", func(t *testing.T) {
		t.Parallel()
		clock, _, process := meters()
		a := process()
		begun(a, "pay", "run", 3)
		begun(a, "pay", "replay", 2)
		flush(t, a) // and it ends
		clock.move(20 * time.Minute)
		b, c := process(), process()
		begun(b, "pay", "run", 10)
		begun(b, "ship", "mismatch", 4)
		flush(t, b)
		begun(c, "pay", "", 5) // not written yet: its own page has it
		for i, name := range []string{"hour", "day", "month"} {
			got := measured(t, c, i)
			want := operator.Tally{Run: 13, Replay: 2, Mismatch: 4, Error: 5}
			if got.Window.Name != name || !got.All || got.Total != want || got.Processes != 3 || len(got.Bars) != got.Window.Bars {
				t.Errorf("%s: all %v, %d processes, %d bars, %+v, want %+v", name, got.All, got.Processes, len(got.Bars), got.Total, want)
			}
			var sum operator.Tally
			for _, bar := range got.Bars {
				sum.Add(bar.Tally)
			}
			if sum != want || got.Operations[0].Name != "pay" || got.Operations[0].All() != 20 || got.Operations[1].Mismatch != 4 {
				t.Errorf("%s: %+v %+v", name, sum, got.Operations)
			}
		}
		hour := measured(t, c, 0)
		if first, last := hour.Bars[39].Tally, hour.Bars[59].Tally; first.Run != 3 || last.Run != 10 {
			t.Errorf("the bars are %+v and %+v", first, last)
		}
		clock.move(50 * time.Minute)
		if got := measured(t, c, 0).Total; got.Run != 10 {
			t.Errorf("after an hour: %+v", got)
		}
		if got := measured(t, c, 1).Total; got.Run != 13 {
			t.Errorf("of the day: %+v", got)
		}
	})
	t.Run("what is written twice, or of which no answer came, counts once", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		a, other := process(), process()
		begun(a, "pay", "run", 7)
		s.after = errors.New("the answer was lost")
		if err := a.Flush(t.Context()); err == nil {
			t.Fatal("no error")
		}
		s.after = nil
		flush(t, a)
		begun(a, "pay", "run", 1)
		clock.move(10 * time.Second)
		flush(t, a)
		flush(t, a)
		if got := measured(t, other, 0).Total.Run; got != 8 {
			t.Errorf("%d, want 8", got)
		}
	})
	t.Run("a store that was away gets what was counted meanwhile", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		a, other := process(), process()
		flush(t, a)
		s.down = errors.New("away")
		for range 30 {
			begun(a, "pay", "run", 2)
			clock.move(time.Minute)
			if err := a.Flush(t.Context()); !errors.Is(err, s.down) {
				t.Fatal(err)
			}
		}
		if got, err := a.Measure(t.Context(), operator.Windows()[0]); !errors.Is(err, s.down) || got.All || got.Total.Run != 60 {
			t.Errorf("without the store: %v, all %v, %+v", err, got.All, got.Total)
		}
		s.down = nil
		flush(t, a)
		if got := measured(t, other, 0).Total.Run; got != 60 {
			t.Errorf("%d, want 60", got)
		}
	})
	t.Run("a process of whose counters nothing was written loses those alone", func(t *testing.T) {
		t.Parallel()
		clock, _, process := meters()
		a := process()
		begun(a, "pay", "run", 5)
		flush(t, a)
		clock.move(5 * time.Second)
		begun(a, "pay", "run", 2) // killed here
		if got := measured(t, process(), 0).Total.Run; got != 5 {
			t.Errorf("%d, want 5", got)
		}
	})
	t.Run("a clock that is wrong counts by the store's", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		wrong := operator.NewMeter(operator.MeterConfig{Store: s, Clock: func() time.Time { return clock.read().Add(-3 * time.Hour) }})
		flush(t, wrong)
		begun(wrong, "pay", "run", 5)
		flush(t, wrong)
		if got := measured(t, process(), 0).Bars[59].Run; got != 5 {
			t.Errorf("%d in this minute", got)
		}
	})
	t.Run("what is older than its window is removed from the store", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		a := process()
		for range 40 * 4 { // forty days
			begun(a, "pay", "run", 1)
			flush(t, a)
			clock.move(6 * time.Hour)
		}
		kept, err := s.Store.KeepCounters(t.Context(), operator.KeepCountersParams{Read: []operator.CounterRange{{Span: time.Minute}, {Span: 15 * time.Minute}, {Span: 6 * time.Hour}}})
		if err != nil || len(kept.Slots) > 140 || len(kept.Slots) < 120 {
			t.Errorf("%d slots, %v", len(kept.Slots), err)
		}
	})
	t.Run("who counts nothing writes nothing", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		a := process()
		flush(t, a)
		before := s.writes
		for range 2 {
			clock.move(10 * time.Second)
			flush(t, a)
		}
		if s.writes != before {
			t.Errorf("%d slots written", s.writes-before)
		}
	})
	t.Run("any number of pages cost one query in five seconds", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		a := process()
		flush(t, a)
		before := s.keeps
		for range 100 {
			measured(t, a, 2)
		}
		clock.move(6 * time.Second)
		measured(t, a, 2)
		if s.keeps != before+2 {
			t.Errorf("%d queries", s.keeps-before)
		}
	})
	t.Run("what another release wrote is left out", func(t *testing.T) {
		t.Parallel()
		_, s, process := meters()
		a := process()
		begun(a, "pay", "run", 1)
		at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		for i, data := range []string{"", "{", `[]`, `{"pay":null}`, `{"pay":{"n":{"run":"x"}}}`, `{"pay":{"run":{"-5":3,"9999":4}}}`} {
			put := operator.CounterSlot{Span: time.Minute, Start: at, Process: fmt.Sprint("p", i), Data: []byte(data)}
			if _, err := s.Store.KeepCounters(t.Context(), operator.KeepCountersParams{Put: []operator.CounterSlot{put}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := measured(t, a, 0); got.Total.Run != 1 || got.RunTimes.Count() != 0 {
			t.Errorf("%+v %v", got.Total, got.RunTimes)
		}
	})
}

func TestMeterRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &watched{Store: memstore.New(memstore.Options{})}
		m := operator.NewMeter(operator.MeterConfig{Store: s})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		synctest.Wait()
		begun(m, "pay", "run", 3)
		time.Sleep(11 * time.Second)
		other := operator.NewMeter(operator.MeterConfig{Store: s})
		if got := measured(t, other, 0).Total.Run; got != 3 {
			t.Errorf("after ten seconds: %d", got)
		}
		begun(m, "pay", "run", 4)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Second)
		if got := measured(t, other, 0).Total.Run; got != 7 {
			t.Errorf("after it was told to end: %d", got)
		}
	})
}

func TestMeterAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("without a store it shows its own", func(t *testing.T) {
		t.Parallel()
		m := operator.NewMeter(operator.MeterConfig{})
		begun(m, "pay", "run", 2)
		if got := measured(t, m, 0); got.All || got.Total.Run != 2 || got.Processes != 1 {
			t.Errorf("%+v", got)
		}
		if _, ok := m.Survey(); ok {
			t.Error("a survey of nothing")
		}
	})
	t.Run("operations beyond 200 are counted together", func(t *testing.T) {
		t.Parallel()
		m := operator.NewMeter(operator.MeterConfig{})
		for i := range 500 {
			begun(m, fmt.Sprint("op", i), "run", 1)
		}
		got := measured(t, m, 0)
		if n := len(got.Operations); n < 200 || n > 201 || got.Operations[0].Name != "_other" || got.Total.Run != 500 {
			t.Errorf("%d operations, the first %s; %+v", len(got.Operations), got.Operations[0].Name, got.Total)
		}
	})
	t.Run("durations come back at most a quarter too long", func(t *testing.T) {
		t.Parallel()
		m := operator.NewMeter(operator.MeterConfig{})
		r := rand.New(rand.NewPCG(1, 2))
		var all []time.Duration
		for range 1000 {
			d := time.Duration(r.Int64N(int64(40*24*time.Hour))) >> r.IntN(40)
			all = append(all, d)
			m.Observe(ctx, idempo.Event{Kind: "execute", Operation: "pay", Took: d})
		}
		slices.Sort(all)
		got := measured(t, m, 0).RunTimes
		for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
			want, has := all[min(int(q*1000), 999)], got.Quantile(q)
			if low := all[max(int(q*1000)-2, 0)]; has < low || float64(has) > 1.26*float64(want)+2e3 {
				t.Errorf("q %v: %v, of %v", q, has, want)
			}
		}
		if operator.Spread(nil).Quantile(0.5) != 0 {
			t.Error("a quantile of nothing")
		}
	})
	t.Run("the latest mismatches, with the names of what differs", func(t *testing.T) {
		t.Parallel()
		m := operator.NewMeter(operator.MeterConfig{})
		for i := range 1200 {
			ref := fmt.Sprintf("k_%d", i)
			m.Observe(ctx, idempo.Event{Kind: "begin", Operation: "pay", Verdict: "mismatch", KeyRef: ref, Tenant: "acme"})
			if i%2 == 0 {
				m.Observe(ctx, idempo.Event{Kind: "differs", Operation: "pay", KeyRef: ref, Members: []string{"body", "/amount"}})
			}
		}
		got := m.Mismatches()
		if len(got) != 1000 || got[0].Ref != "k_1199" || got[999].Ref != "k_200" || got[0].Members != nil || got[0].Tenant != "acme" {
			t.Fatalf("%d, %+v … %+v", len(got), got[0], got[len(got)-1])
		}
		if !reflect.DeepEqual(got[1].Members, []string{"body", "/amount"}) {
			t.Errorf("%+v", got[1])
		}
	})
	t.Run("the longest atomic run of this process", func(t *testing.T) {
		t.Parallel()
		clock := &hands{now: time.Now()}
		m := operator.NewMeter(operator.MeterConfig{Clock: clock.read})
		run := func(ref string, guard idempo.Guard, n int) {
			m.Observe(ctx, idempo.Event{Kind: "inflight", Operation: "pay", KeyRef: ref, Guard: guard, Count: n})
		}
		run("k_1", idempo.GuardAtomic, 1)
		run("k_0", idempo.GuardLeased, 1)
		clock.move(time.Minute)
		run("k_2", idempo.GuardAtomic, 1)
		clock.move(time.Minute)
		if got := m.OldestRun(); len(got) != 1 || got["pay"] != 2*time.Minute {
			t.Errorf("%v", got)
		}
		run("k_1", idempo.GuardAtomic, -1)
		if got := m.OldestRun(); got["pay"] != time.Minute {
			t.Errorf("%v", got)
		}
	})
	t.Run("advice on retention", func(t *testing.T) {
		t.Parallel()
		of := func(replays int64, age time.Duration, expired int64) operator.MeasuredOperation {
			m := operator.NewMeter(operator.MeterConfig{})
			for range replays {
				m.Observe(ctx, idempo.Event{Kind: "begin", Operation: "pay", Verdict: "replay", Age: age})
			}
			begun(m, "pay", "expired", int(expired))
			return measured(t, m, 0).Operations[0]
		}
		advice := func(o operator.MeasuredOperation, told, short bool, suggest time.Duration) {
			t.Helper()
			a, ok := operator.Advise(o, 24*time.Hour)
			if ok != told || a.Short != short || a.Suggest != suggest {
				t.Errorf("%v %+v", ok, a)
			}
		}
		advice(of(19, 23*time.Hour, 0), false, false, 0)
		advice(of(20, time.Hour, 0), true, false, 0)
		advice(of(20, 23*time.Hour, 0), true, true, 48*time.Hour)
		advice(of(1, time.Hour, 1), true, true, 48*time.Hour)
	})
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, s idempo.Store, id, op, surface string, at time.Time) idempo.AcquireParams {
		t.Helper()
		var token idempo.Token
		copy(token[:], id)
		p := idempo.AcquireParams{Key: idempo.Key{Tenant: "acme", Operation: op, ID: (id + "--------------------------------")[:32]}, Hash: []byte("h"), Recipe: "r", Guard: idempo.GuardLeased,
			OnCrash: idempo.OnCrashHold, Token: token, Lease: time.Minute, Surface: surface, Now: at}
		if a, err := s.Acquire(t.Context(), p); err != nil || a.Verdict != idempo.VerdictRun {
			t.Fatal(a.Verdict, err)
		}
		return p
	}
	t.Run("[operations/M4] one process asks, all show the same, whatever has changed since", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		all := []*operator.Meter{process(), process(), process()}
		claim(t, s, "a", "pay", "http", clock.read())
		clock.move(2 * time.Minute) // its lease is over: in doubt for a minute
		claim(t, s, "b", "pay", "http", clock.read())
		claim(t, s, "c", "tidy", "task", clock.read())
		clock.move(10 * time.Second)
		var first operator.Survey
		for i, m := range all {
			if err := m.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, ok := m.Survey()
			if !ok {
				t.Fatal("no survey")
			}
			if i == 0 {
				first = got
			}
			if !reflect.DeepEqual(got, first) {
				t.Errorf("process %d shows %+v, the first %+v", i, got, first)
			}
			claim(t, s, fmt.Sprint("new", i), "pay", "http", clock.read())
		}
		want := []operator.SurveyedOperation{{Name: "pay", InDoubt: 1, Doubt: 70 * time.Second, Pending: 10 * time.Second}}
		if !reflect.DeepEqual(first.Operations, want) || s.counts != 1 || !first.Weighed || first.Bytes <= 0 {
			t.Errorf("%+v, %d counts", first, s.counts)
		}
		for _, one := range first.States {
			if want := map[idempo.State]int64{"pending": 2, "in_doubt": 1}[one.State]; one.Records != want {
				t.Errorf("%s: %d, want %d", one.State, one.Records, want)
			}
		}
		clock.move(31 * time.Second)
		for range 3 {
			for _, m := range all {
				if err := m.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, _ := all[2].Survey(); s.counts != 2 || got.Operations[0].InDoubt != 1 || got.Operations[0].Pending != 41*time.Second {
			t.Errorf("later: %+v, %d counts", got, s.counts)
		}
	})
	t.Run("a survey of long ago is none", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		m := process()
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.down = errors.New("away")
		clock.move(4 * time.Minute)
		if _, ok := m.Survey(); m.Flush(t.Context()) == nil || ok {
			t.Error("still shown")
		}
	})
	t.Run("however many operations are stuck, the survey stays small", func(t *testing.T) {
		t.Parallel()
		clock, s, process := meters()
		for i := range 300 {
			claim(t, s, fmt.Sprint(i), fmt.Sprint("op", i), "http", clock.read())
		}
		m := process()
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.Survey(); len(got.Operations) != 201 || got.Operations[0].Name != "_other" {
			t.Errorf("%d operations", len(got.Operations))
		}
	})
}
