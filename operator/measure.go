package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Measured is what was counted in a window.
type Measured struct {
	Window     Window
	All        bool      // over all processes; else of this one, which began at Since
	Since      time.Time // this process counts
	Now        time.Time
	Processes  int   // that have counted anything in the window, those that ended included
	Bars       []Bar // the oldest first
	Total      Tally
	RunTimes   Spread              // how long work ran
	WaitTimes  Spread              // how long duplicates waited
	Operations []MeasuredOperation // the busiest first
}

// Bar is one stretch of a window.
type Bar struct {
	At time.Time
	Tally
}

// MeasuredOperation is what was counted of one operation.
type MeasuredOperation struct {
	Name string
	Tally
	RunTimes, WaitTimes, Ages Spread // Ages: of the records that calls were answered from
}

// seenBars is a measurement that everybody who looks within seenFor gets.
type seenBars struct {
	at  time.Time
	got Measured
}

const seenFor = 5 * time.Second

// Measure returns what was counted in a window, from what all processes have written to the store and what this one has not
// written yet; of this one alone where the store keeps no counters. Any number of callers cost one query in five seconds. On
// error it returns what this process has counted as well.
func (m *Meter) Measure(ctx context.Context, w Window) (Measured, error) {
	i := max(slices.IndexFunc(Windows(), func(o Window) bool { return o.Bar == w.Bar }), 0)
	w = Windows()[i]
	m.mu.Lock()
	m.fold()
	now := m.config.Clock().Add(m.skew).UTC()
	if seen := m.seen[i]; seen != nil && now.Sub(seen.at) < seenFor && !now.Before(seen.at) {
		m.mu.Unlock()
		return seen.got, nil
	}
	first := now.Truncate(w.Bar).Add(-w.Bar * time.Duration(w.Bars-1))
	out := Measured{Window: w, Since: m.since, Now: now}
	bars := make([]counts, w.Bars)
	put := func(start int64, c counts) {
		if at := (start - first.Unix()) / int64(w.Bar/time.Second); at >= 0 && at < int64(w.Bars) {
			if bars[at] == nil {
				bars[at] = counts{}
			}
			bars[at].merge(c)
		}
	}
	own := false
	for _, s := range m.slots[i] {
		put(s.start, s.counts)
		own = own || s.start >= first.Unix()
	}
	m.mu.Unlock()
	if own {
		out.Processes = 1
	}
	var err error
	if m.keeper != nil {
		var kept KeptCounters
		if kept, err = m.keeper.KeepCounters(ctx, KeepCountersParams{Read: []CounterRange{{Span: w.Bar, Start: first}}}); err == nil {
			out.All = true
			out.Processes += m.others(kept.Slots, put)
		}
	}
	out.sum(first, bars)
	if err == nil {
		m.mu.Lock()
		m.seen[i] = &seenBars{now, out}
		m.mu.Unlock()
	}
	return out, err
}

// others puts what other processes have counted, and returns how many they are. What cannot be read is left out: a newer
// release may have written it.
func (m *Meter) others(slots []CounterSlot, put func(int64, counts)) int {
	who := map[string]bool{}
	for _, s := range slots {
		var c counts
		if s.Process == m.process || json.Unmarshal(s.Data, &c) != nil {
			continue
		}
		who[s.Process] = true
		put(s.Start.Unix(), c)
	}
	return len(who)
}

// sum fills m from what was counted in each bar.
func (m *Measured) sum(first time.Time, bars []counts) {
	m.RunTimes, m.WaitTimes = Spread{}, Spread{}
	all := counts{}
	for i, c := range bars {
		b := Bar{At: first.Add(m.Window.Bar * time.Duration(i))}
		for _, o := range c {
			b.Add(o.N)
		}
		all.merge(c)
		m.Bars = append(m.Bars, b)
		m.Total.Add(b.Tally)
	}
	for name, c := range all {
		m.RunTimes.merge(c.Run)
		m.WaitTimes.merge(c.Wait)
		m.Operations = append(m.Operations, MeasuredOperation{Name: name, Tally: c.N, RunTimes: c.Run, WaitTimes: c.Wait, Ages: c.Age})
	}
	slices.SortFunc(m.Operations, func(a, b MeasuredOperation) int {
		return cmp.Or(cmp.Compare(b.All(), a.All()), cmp.Compare(a.Name, b.Name))
	})
}

// Advice is what the counters say of one operation's retention.
type Advice struct {
	Operation string
	Retention time.Duration // as declared
	AgeP999   time.Duration // of replayed records: at most one in a thousand was older
	Replays   int64
	Late      int64         // calls that came when the result was gone
	Short     bool          // AgeP999 is over 80 % of Retention, or calls came late
	Suggest   time.Duration // zero: leave it
}

// Advise compares the retention that an operation declares with the ages at which duplicates came. Under 20 replays, and without
// a late call, there is nothing to say: false.
func Advise(o MeasuredOperation, retention time.Duration) (Advice, bool) {
	a := Advice{Operation: o.Name, Retention: retention, AgeP999: o.Ages.Quantile(0.999), Replays: o.Replay, Late: o.Expired}
	if retention <= 0 || o.Replay < 20 && o.Expired == 0 {
		return a, false
	}
	a.Short = a.Late > 0 || float64(a.AgeP999) > 0.8*float64(retention)
	if a.Short {
		a.Suggest = whole(2 * max(a.AgeP999, retention))
	}
	return a, true
}

// whole rounds up to hours, or to days from two days on.
func whole(d time.Duration) time.Duration {
	unit := time.Hour
	if d > 48*time.Hour {
		unit = 24 * time.Hour
	}
	return (d + unit - 1).Truncate(unit)
}
