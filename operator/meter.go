package operator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// MeterConfig of a Meter. The zero value counts in memory.
type MeterConfig struct {
	// Store keeps the counters of all processes, if it is a CounterKeeper, and is surveyed. nil: neither.
	Store idempo.Store
	// FlushEvery is how often Run writes to the store. Default 10s.
	FlushEvery time.Duration
	// SurveyEvery is how old a survey of the store may be before a process makes another, for all. Default 30s.
	SurveyEvery time.Duration
	// Clock is this process's clock. Default time.Now.
	Clock func() time.Time
	// Log is told when the store does not take counters, and when it does again. Default: none.
	Log *slog.Logger
}

// Window is a stretch of time up to now, cut into bars.
type Window struct {
	Name string // hour, day, month
	Bar  time.Duration
	Bars int
}

// Windows are those that are counted: an hour, a day, thirty days.
func Windows() []Window {
	return []Window{{"hour", time.Minute, 60}, {"day", 15 * time.Minute, 96}, {"month", 6 * time.Hour, 120}}
}

// Meter counts what one process does: calls by verdict and operation, how long work and waiting took, how old replayed records
// were. It is an idempo.Observer of bounded memory that does no I/O. Run writes what was counted to the store, a few rows every
// ten seconds whatever the traffic, so that Measure adds up over all processes and over those that ended; of one that was killed
// the last ten seconds may be missing. It is safe for concurrent use. Make one with NewMeter.
type Meter struct {
	config  MeterConfig
	keeper  CounterKeeper // nil: none
	process string
	since   time.Time

	mu         sync.Mutex
	skew       time.Duration // the store's clock less this process's
	fresh      counts        // counted since it was folded into slots
	minute     int64         // of fresh, since 1970
	slots      [3][]*slot    // of each of Windows, the oldest first
	running    map[string]held
	mismatches []Mismatch // a ring
	at         int        // in mismatches
	seen       [3]*seenBars

	surveying
}

// slot is what this process has counted in one bar of a window.
type slot struct {
	start  int64 // seconds since 1970
	counts counts
	change int // grows
	kept   int // change that the store has
}

// held is an atomic claim at work: its record is not committed, so that only its process knows of it.
type held struct {
	operation string
	since     time.Time
}

var _ idempo.Observer = (*Meter)(nil)

// Bounds of a Meter.
const (
	maxMismatches = 1000
	maxRunning    = 10_000
	maxMembers    = 64
)

// NewMeter returns a Meter that begins now.
func NewMeter(c MeterConfig) *Meter {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.FlushEvery <= 0 {
		c.FlushEvery = 10 * time.Second
	}
	if c.SurveyEvery <= 0 {
		c.SurveyEvery = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m := &Meter{config: c, process: rand.Text(), since: c.Clock(), fresh: counts{}, running: map[string]held{}}
	m.keeper, _ = c.Store.(CounterKeeper)
	return m
}

// Observe implements idempo.Observer.
func (m *Meter) Observe(_ context.Context, e idempo.Event) {
	switch e.Kind {
	case "begin", "execute", "fresh_key", "inflight", "differs":
	case "waiting":
		if e.Count > 0 {
			return
		}
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Clock()
	if minute := now.Add(m.skew).Unix() / 60; minute != m.minute {
		m.fold()
		m.minute = minute
	}
	switch e.Kind {
	case "begin":
		o := m.fresh.of(e.Operation)
		o.N.count(e.Verdict)
		switch e.Verdict {
		case idempo.VerdictReplay:
			o.Age.add(e.Age)
		case idempo.VerdictMismatch:
			m.mismatch(Mismatch{At: now.UTC(), Operation: e.Operation, Tenant: e.Tenant, Ref: e.KeyRef})
		}
	case "execute":
		m.fresh.of(e.Operation).Run.add(e.Took)
	case "waiting":
		m.fresh.of(e.Operation).Wait.add(e.Took)
	case "fresh_key":
		m.fresh.of(e.Operation).N.FreshKey++
	case "inflight":
		m.hold(e, now)
	case "differs":
		m.differs(e)
	}
}

func (m *Meter) hold(e idempo.Event, now time.Time) {
	switch {
	case e.Count < 0:
		delete(m.running, e.KeyRef)
	case e.Guard == idempo.GuardAtomic && len(m.running) < maxRunning:
		m.running[e.KeyRef] = held{e.Operation, now}
	}
}

// OldestRun says for each operation how long the longest of its atomic claims in this process has been at work: they are not
// committed, so the store cannot tell.
func (m *Meter) OldestRun() map[string]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, out := m.config.Clock(), map[string]time.Duration{}
	for _, h := range m.running {
		out[h.operation] = max(out[h.operation], now.Sub(h.since))
	}
	return out
}

// Mismatch is a call that was refused because its key stands for another request. Nothing of it is written to the store.
type Mismatch struct {
	At        time.Time
	Operation string
	Tenant    string
	Ref       string
	Members   []string // what differs, by name, where the operation keeps digests of members
}

func (m *Meter) mismatch(one Mismatch) {
	if len(m.mismatches) < maxMismatches {
		m.mismatches = append(m.mismatches, one)
		return
	}
	m.mismatches[m.at] = one
	m.at = (m.at + 1) % maxMismatches
}

// differs adds what differs to the mismatch it belongs to: the last one of its key.
func (m *Meter) differs(e idempo.Event) {
	n := len(m.mismatches)
	for i := range n {
		one := &m.mismatches[(m.at+n-1-i)%n]
		if one.Ref == e.KeyRef && one.Members == nil {
			one.Members = slices.Clone(e.Members[:min(len(e.Members), maxMembers)])
			return
		}
	}
}

// Mismatches are the latest 1,000 of this process, the newest first.
func (m *Meter) Mismatches() []Mismatch {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.mismatches)
	out := make([]Mismatch, n)
	for i := range n {
		out[i] = m.mismatches[(m.at+n-1-i)%n]
	}
	return out
}

// fold puts what was counted of one minute into the bars that it belongs to.
func (m *Meter) fold() {
	if len(m.fresh) == 0 {
		return
	}
	for i, w := range Windows() {
		bar := int64(w.Bar / time.Second)
		start := m.minute * 60 / bar * bar
		list := m.slots[i]
		at := slices.IndexFunc(list, func(s *slot) bool { return s.start == start })
		if at < 0 {
			list = append(list, &slot{start: start, counts: counts{}})
			if len(list) > w.Bars {
				list = list[1:]
			}
			at = len(list) - 1
		}
		list[at].counts.merge(m.fresh)
		list[at].change++
		m.slots[i] = list
	}
	m.fresh = counts{}
}

// Run writes what was counted to the store every FlushEvery, and surveys the store, until ctx ends; then it writes once more.
func (m *Meter) Run(ctx context.Context) error {
	if m.config.Store == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(m.config.FlushEvery)
	defer tick.Stop()
	failing := false
	for {
		err := m.Flush(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			m.config.Log.Warn("counters are not written to the store; this process shows its own", "error", err.Error())
		} else if err == nil && failing {
			m.config.Log.Info("counters are written to the store again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			_ = m.write(last)
			return nil
		case <-tick.C:
		}
	}
}

const flushTime = 5 * time.Second

// Flush writes what was counted since, and makes a survey if the last one is too old. Run calls it.
func (m *Meter) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := m.write(ctx); err != nil {
		return err
	}
	return m.survey(ctx)
}

// write puts the slots that have changed, and hears what time it is and what was surveyed.
func (m *Meter) write(ctx context.Context) error {
	if m.keeper == nil {
		return nil
	}
	type sent struct {
		s      *slot
		change int
	}
	var all []sent
	p := KeepCountersParams{Read: []CounterRange{{}}}
	m.mu.Lock()
	m.fold()
	now := m.config.Clock().Add(m.skew)
	for i, w := range Windows() {
		for _, s := range m.slots[i] {
			if s.kept == s.change {
				continue
			}
			data, err := json.Marshal(s.counts)
			if err == nil {
				p.Put = append(p.Put, CounterSlot{Span: w.Bar, Start: time.Unix(s.start, 0).UTC(), Process: m.process, Data: data})
				all = append(all, sent{s, s.change})
			}
		}
		p.Forget = append(p.Forget, CounterRange{Span: w.Bar, Start: now.Add(-w.Bar * time.Duration(w.Bars+8))})
	}
	m.mu.Unlock()
	if len(p.Put) == 0 {
		p.Forget = nil // who counts nothing writes nothing
	}
	began := m.config.Clock()
	kept, err := m.keeper.KeepCounters(ctx, p)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range all {
		one.s.kept = one.change
	}
	m.skew = kept.Now.Sub(began).Round(time.Second)
	m.surveyed(kept.Slots)
	return nil
}
