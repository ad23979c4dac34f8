package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
)

// Survey is what a store holds, as one process found it for all of them.
type Survey struct {
	At         time.Time           `json:"at"`     // on the store's clock
	States     []SurveyedState     `json:"states"` // one for each of States; none where the store cannot count
	Operations []SurveyedOperation `json:"operations,omitempty"`
	Weighed    bool                `json:"weighed,omitempty"` // Bytes and Overdue are known
	Bytes      int64               `json:"bytes,omitempty"`
	Overdue    time.Duration       `json:"overdue,omitempty"` // how long the oldest row has been due to be swept
}

// SurveyedState is how many records are in a state; above ExactCounts an estimate.
type SurveyedState struct {
	State   idempo.State `json:"state"`
	Records int64        `json:"records"`
}

// SurveyedOperation is what needs an eye in one operation, at most 200 of them; beyond, "_other".
type SurveyedOperation struct {
	Name    string        `json:"name"`
	InDoubt int64         `json:"in_doubt,omitempty"`
	Doubt   time.Duration `json:"doubt,omitempty"`   // of the oldest
	Pending time.Duration `json:"pending,omitempty"` // of the longest-held key; sagas, tasks and commands' journals left out
}

// surveying is what a Meter knows of the store.
type surveying struct {
	last atomic.Pointer[Survey]
}

// surveyProcess is under whose name a survey stands among the counters.
const surveyProcess = "survey"

// maxSurveyed bounds how many running and how many doubtful records a survey looks at.
const maxSurveyed = ExactCounts

// Survey returns the last survey: made by this process or another one, at most SurveyEvery and FlushEvery old. False: there is
// none yet, or none in three minutes, since the store does not answer.
func (m *Meter) Survey() (Survey, bool) {
	s := m.last.Load()
	if s == nil {
		return Survey{}, false
	}
	m.mu.Lock()
	now := m.config.Clock().Add(m.skew)
	m.mu.Unlock()
	return *s, now.Sub(s.At) < 3*time.Minute
}

// surveyed takes the survey that stands in the store. The Meter is locked.
func (m *Meter) surveyed(slots []CounterSlot) {
	for _, c := range slots {
		s := &Survey{}
		if c.Process == surveyProcess && json.Unmarshal(c.Data, s) == nil {
			m.last.Store(s)
		}
	}
}

// survey makes a survey if there is none that is young enough, and writes it for all.
func (m *Meter) survey(ctx context.Context) error {
	m.mu.Lock()
	now := m.config.Clock().Add(m.skew)
	m.mu.Unlock()
	if s := m.last.Load(); s != nil && now.Sub(s.At) < m.config.SurveyEvery {
		return nil
	}
	s, err := TakeSurvey(ctx, m.config.Store)
	if err != nil {
		return err
	}
	if s.At.IsZero() {
		s.At = now.UTC()
	}
	if m.keeper != nil {
		data, err := json.Marshal(s)
		if err != nil {
			return err
		}
		put := CounterSlot{Start: time.Unix(0, 0).UTC(), Process: surveyProcess, Data: data}
		if _, err := m.keeper.KeepCounters(ctx, KeepCountersParams{Put: []CounterSlot{put}}); err != nil {
			return err
		}
	}
	m.last.Store(&s)
	return nil
}

// TakeSurvey asks a store for what a survey says, as far as it can tell: it counts as Counter does, and looks at no more than
// 10,000 running and 10,000 doubtful records.
func TakeSurvey(ctx context.Context, store idempo.Store) (s Survey, err error) {
	if c, ok := store.(Counter); ok {
		stats, err := c.Count(ctx, CountParams{})
		if err != nil {
			return Survey{}, err
		}
		s.At = stats.Now
		for _, one := range stats.Counts {
			s.States = append(s.States, SurveyedState{one.State, one.Records})
		}
	}
	if w, ok := store.(Weigher); ok {
		weight, err := w.Weigh(ctx, WeighParams{})
		if err != nil {
			return Survey{}, err
		}
		s.At, s.Weighed, s.Bytes = weight.Now, true, weight.Bytes
		if !weight.OldestDue.IsZero() {
			s.Overdue = max(weight.Now.Sub(weight.OldestDue), 0)
		}
	}
	if l, ok := store.(Lister); ok {
		ops := map[string]*SurveyedOperation{}
		for _, state := range []idempo.State{idempo.StateInDoubt, idempo.StatePending} {
			if err := look(ctx, l, state, ops); err != nil {
				return Survey{}, err
			}
		}
		for _, o := range ops {
			s.Operations = append(s.Operations, *o)
		}
		slices.SortFunc(s.Operations, func(a, b SurveyedOperation) int { return cmp.Compare(a.Name, b.Name) })
	}
	return s, nil
}

// look goes through the records of a state.
func look(ctx context.Context, l Lister, state idempo.State, ops map[string]*SurveyedOperation) error {
	find := FindParams{State: state, Limit: 1000}
	for seen := 0; seen < maxSurveyed; {
		page, err := l.List(ctx, find)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			note(ops, r)
		}
		if seen += len(page.Records); page.Next == "" {
			return nil
		}
		find.After = page.Next
	}
	return nil
}

// note counts r where it belongs.
func note(ops map[string]*SurveyedOperation, r idempo.Record) {
	pending := r.State == idempo.StatePending
	if pending && (r.ClaimedAt.IsZero() || r.Surface == "saga" || r.Surface == "task" || r.Surface == "run") {
		return // they have gauges of their own, or nobody has begun
	}
	name := r.Key.Operation
	if ops[name] == nil && len(ops) >= maxMetered {
		name = otherOperations
	}
	o := ops[name]
	if o == nil {
		o = &SurveyedOperation{Name: name}
		ops[name] = o
	}
	if pending {
		o.Pending = max(o.Pending, r.Now.Sub(r.ClaimedAt))
		return
	}
	o.InDoubt++
	o.Doubt = max(o.Doubt, r.Now.Sub(DoubtfulSince(r)))
}
