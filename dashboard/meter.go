package dashboard

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// Meter counts what one process does: calls by verdict and operation, how long work and waiting took. It is an idempo.Observer of
// bounded memory, and forgets what is older than an hour. Make one with NewMeter.
type Meter struct {
	mu      sync.Mutex
	now     func() time.Time
	since   time.Time
	minutes [60]minute
	ops     map[string]*tally
}

var _ idempo.Observer = (*Meter)(nil)

// maxMetered is how many operations have a line of their own; the rest are _other.
const maxMetered = 200

// minute is what happened in one minute.
type minute struct {
	at   int64 // minutes since 1970
	n    tally
	run  spread
	wait spread
}

// tally counts calls: what ran, what was answered from the record, what was refused.
type tally struct{ Run, Replay, Refused, Error int64 }

// spread is a histogram of durations: bucket i holds those whose microseconds have i binary digits.
type spread [40]int64

// NewMeter returns a meter that begins now. clock nil: the system's.
func NewMeter(clock func() time.Time) *Meter {
	if clock == nil {
		clock = time.Now
	}
	return &Meter{now: clock, since: clock(), ops: map[string]*tally{}}
}

// Observe implements idempo.Observer.
func (m *Meter) Observe(_ context.Context, e idempo.Event) {
	switch e.Kind {
	case "begin", "execute":
	case "waiting":
		if e.Count > 0 {
			return
		}
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.now().Unix() / 60
	cur := &m.minutes[at%60]
	if cur.at != at {
		*cur = minute{at: at}
	}
	switch e.Kind {
	case "begin":
		cur.n.add(e.Verdict)
		m.operation(e.Operation).add(e.Verdict)
	case "execute":
		cur.run.add(e.Took)
	case "waiting":
		cur.wait.add(e.Took)
	}
}

func (m *Meter) operation(name string) *tally {
	if t := m.ops[name]; t != nil {
		return t
	}
	if len(m.ops) >= maxMetered {
		name = "_other"
	}
	t := m.ops[name]
	if t == nil {
		t = &tally{}
		m.ops[name] = t
	}
	return t
}

func (t *tally) add(v idempo.Verdict) {
	switch v {
	case idempo.VerdictRun:
		t.Run++
	case idempo.VerdictReplay:
		t.Replay++
	case "":
		t.Error++
	default:
		t.Refused++
	}
}

// All is every call.
func (t tally) All() int64 { return t.Run + t.Replay + t.Refused + t.Error }

func (s *spread) add(d time.Duration) {
	s[min(bits.Len64(uint64(max(d, 0).Microseconds())), len(s)-1)]++
}

// quantile is a duration that the share q of all was not above, as far as buckets that double can tell; 0: there were none.
func (s *spread) quantile(q float64) time.Duration {
	var all, seen int64
	for _, n := range s {
		all += n
	}
	for i, n := range s {
		seen += n
		if n > 0 && float64(seen) >= q*float64(all) {
			return time.Duration(1<<i) * time.Microsecond
		}
	}
	return 0
}

// Measured is what a Meter has counted.
type Measured struct {
	Since      time.Time // the process counts
	Now        time.Time
	Minutes    []MeasuredMinute // the last 60, the oldest first
	Hour       tally
	RunP99     time.Duration // of the hour; buckets double, so it is at most that
	WaitP99    time.Duration
	Operations []MeasuredOperation // since Since, the busiest first
}

// MeasuredMinute are the calls of one minute.
type MeasuredMinute struct {
	At time.Time
	tally
}

// MeasuredOperation are the calls of one operation.
type MeasuredOperation struct {
	Name string
	tally
}

// Measure returns what was counted so far.
func (m *Meter) Measure() Measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	out := Measured{Since: m.since, Now: now}
	var run, wait spread
	for at := now.Unix()/60 - 59; at <= now.Unix()/60; at++ {
		cur := MeasuredMinute{At: time.Unix(at*60, 0).UTC()}
		if got := &m.minutes[at%60]; got.at == at {
			cur.tally = got.n
			for i := range run {
				run[i] += got.run[i]
				wait[i] += got.wait[i]
			}
		}
		out.Hour.Run, out.Hour.Replay = out.Hour.Run+cur.Run, out.Hour.Replay+cur.Replay
		out.Hour.Refused, out.Hour.Error = out.Hour.Refused+cur.Refused, out.Hour.Error+cur.Error
		out.Minutes = append(out.Minutes, cur)
	}
	out.RunP99, out.WaitP99 = run.quantile(0.99), wait.quantile(0.99)
	for name, t := range m.ops {
		out.Operations = append(out.Operations, MeasuredOperation{name, *t})
	}
	slices.SortFunc(out.Operations, func(a, b MeasuredOperation) int {
		return cmp.Or(cmp.Compare(b.All(), a.All()), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// plot is the last hour as bars, in a box of 600 by 120.
type plot struct {
	Bars []bar
	Top  int64 // calls of the highest minute
	Any  bool
}

// bar is one minute: parts stand on each other, from the bottom.
type bar struct {
	X                                float64
	RunY, RunH, ReplayY, ReplayH     float64
	RefusedY, RefusedH               float64
	Label                            string
	RunN, ReplayN, RefusedN, ErrorsN int64
	At                               time.Time
}

const plotWidth, plotHeight = 600.0, 120.0

func plotOf(m Measured) *plot {
	p := &plot{}
	for _, one := range m.Minutes {
		p.Top = max(p.Top, one.All())
	}
	p.Any = p.Top > 0
	scale := plotHeight / float64(max(p.Top, 1))
	for i, one := range m.Minutes {
		b := bar{X: float64(i) * plotWidth / 60, At: one.At, RunN: one.Run, ReplayN: one.Replay, RefusedN: one.Refused, ErrorsN: one.Error}
		b.RunH, b.ReplayH, b.RefusedH = float64(one.Run)*scale, float64(one.Replay)*scale, float64(one.Refused+one.Error)*scale
		b.RunY = plotHeight - b.RunH
		b.ReplayY = b.RunY - b.ReplayH
		b.RefusedY = b.ReplayY - b.RefusedH
		p.Bars = append(p.Bars, b)
	}
	return p
}
