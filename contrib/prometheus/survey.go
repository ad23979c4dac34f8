package idemprometheus

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// StoreView is what is known of the store without asking it. *operator.Meter fits.
type StoreView interface {
	// Survey is what some process last found in the store; false: nobody knows.
	Survey() (operator.Survey, bool)
	// OldestRun is how long the longest atomic run of this process has been at work, by operation.
	OldestRun() map[string]time.Duration
}

// ShowStore adds the gauges of the whole store: keys in doubt, the oldest, records by state, bytes, what the sweeper has left.
// They are the same in every process, so take their maximum and never their sum; only the longest atomic run is of this process.
// They are absent while nobody knows. dashboard_clients is shown if clients is not nil. It may be called at any time.
func (m *Metrics) ShowStore(s StoreView, clients func() int) {
	m.shown.Store(&shown{s, clients})
}

// ShowOperations adds how long the answers of each declared operation are kept, which the age of replays is held against.
func (m *Metrics) ShowOperations(declared func() []idempo.Operation) { m.declared.Store(&declared) }

// retentions shows what is declared, as far as operations have series of their own.
func (m *Metrics) retentions(ch chan<- prometheus.Metric) {
	declared := m.declared.Load()
	if declared == nil {
		return
	}
	for _, o := range (*declared)() {
		if name := m.label(o.Name); name != other {
			ch <- prometheus.MustNewConstMetric(m.descs.retention, prometheus.GaugeValue, o.Retention.Seconds(), name)
		}
	}
}

type shown struct {
	store   StoreView
	clients func() int
}

// storeDescs describe what is computed from a survey when somebody scrapes.
type storeDescs struct {
	inDoubt, doubtOldest, pendingOldest, records, bytes, lag, clients, retention *prometheus.Desc
}

func newStoreDescs() storeDescs {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return storeDescs{
		inDoubt:       d("idempo_in_doubt", "Keys in doubt, in the whole store: take the maximum over processes.", "operation"),
		doubtOldest:   d("idempo_in_doubt_oldest_seconds", "Age of the oldest doubt, in the whole store.", "operation"),
		pendingOldest: d("idempo_pending_oldest_seconds", "How long the longest-held key is at work, in the whole store or in an open transaction of this process.", "operation"),
		records:       d("idempo_records", "Records by state, in the whole store; above 10,000 an estimate.", "state"),
		bytes:         d("idempo_stored_bytes", "Size of the store."),
		lag:           d("idempo_purge_lag_seconds", "Age of the oldest row that is due to be swept and is not."),
		retention:     d("idempo_retention_seconds", "How long the answers of an operation are kept, as declared.", "operation"),
		clients:       d("idempo_dashboard_clients", "Live pages of the dashboard in this process."),
	}
}

func (d storeDescs) describe(ch chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.inDoubt, d.doubtOldest, d.pendingOldest, d.records, d.bytes, d.lag, d.clients, d.retention} {
		ch <- one
	}
}

// surveyed is what an operation shows.
type surveyed struct{ doubts, doubt, pending float64 }

// collect makes the gauges of the store. It reads memory only.
func (m *Metrics) collect(ch chan<- prometheus.Metric) {
	at := m.shown.Load()
	if at == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if at.clients != nil {
		gauge(m.descs.clients, float64(at.clients()))
	}
	by := map[string]*surveyed{}
	of := func(name string) *surveyed {
		name = m.label(name)
		if by[name] == nil {
			by[name] = &surveyed{}
		}
		return by[name]
	}
	s, known := at.store.Survey()
	if known {
		for _, o := range s.Operations {
			one := of(o.Name)
			one.doubts += float64(o.InDoubt)
			one.doubt, one.pending = max(one.doubt, o.Doubt.Seconds()), max(one.pending, o.Pending.Seconds())
		}
		m.seen(of)
		for _, c := range s.States {
			gauge(m.descs.records, float64(c.Records), state(c.State))
		}
		if s.Weighed {
			gauge(m.descs.bytes, float64(s.Bytes))
			gauge(m.descs.lag, s.Overdue.Seconds())
		}
	}
	for name, d := range at.store.OldestRun() {
		one := of(name)
		one.pending = max(one.pending, d.Seconds())
	}
	for name, one := range by {
		if known {
			gauge(m.descs.inDoubt, one.doubts, name)
			gauge(m.descs.doubtOldest, one.doubt, name)
		}
		gauge(m.descs.pendingOldest, one.pending, name)
	}
}

// seen shows a zero for operations that have series and nothing in the survey: an alert then ends when the doubt does.
func (m *Metrics) seen(of func(string) *surveyed) {
	m.mu.Lock()
	names := make([]string, 0, len(m.operations))
	for name := range m.operations {
		names = append(names, name)
	}
	m.mu.Unlock()
	for _, name := range names {
		of(name)
	}
}

func state(s idempo.State) string {
	if slices.Contains(operator.States(), s) {
		return string(s)
	}
	return other
}

// CountAction counts what an operator did, or was refused. It fits operator.Config.ObserveFunc.
func (m *Metrics) CountAction(a operator.Action, outcome string) {
	action := other
	for _, known := range operator.Actions() {
		if a == known {
			action = string(a)
		}
	}
	if outcome != operator.OutcomeDone {
		outcome = "refused"
	}
	m.vectors.audit.WithLabelValues(action, outcome).Inc()
}
