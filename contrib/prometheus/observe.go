package idemprometheus

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idempo/idempo"
)

type callKey struct{ operation, surface string }

// callSeries are the series of one operation on one surface, made at once so that counting looks nothing up.
type callSeries struct {
	begin    [7]prometheus.Counter // verdictIndex
	replay   prometheus.Counter
	conflict [4]prometheus.Counter // in_progress mismatch in_doubt expired
	complete [5]prometheus.Counter // outcomeIndex
}

// operationSeries are the series of one operation.
type operationSeries struct {
	execution, wait, replayAge       prometheus.Observer
	inflight, waiting                prometheus.Gauge
	leaseLost, renewFailures, fenced prometheus.Counter
}

type storeSeries struct{ seconds prometheus.Observer }

func verdictWords() [7]string {
	return [7]string{"run", "replay", "in_progress", "mismatch", "in_doubt", "expired", "error"}
}

func outcomeWords() [5]string {
	return [5]string{"completed", "completed_failing", "failed", "in_doubt", "lost"}
}

func verdictIndex(v idempo.Verdict) int {
	switch v {
	case idempo.VerdictRun:
		return 0
	case idempo.VerdictReplay:
		return 1
	case idempo.VerdictInProgress:
		return 2
	case idempo.VerdictMismatch:
		return 3
	case idempo.VerdictInDoubt:
		return 4
	case idempo.VerdictExpired:
		return 5
	}
	return 6
}

func outcomeIndex(outcome string) int {
	switch outcome {
	case "completed":
		return 0
	case "completed_failing":
		return 1
	case "failed":
		return 2
	case "in_doubt":
		return 3
	}
	return 4
}

// Observe implements idempo.Observer. Events of a kind it does not know count for nothing.
func (m *Metrics) Observe(_ context.Context, e idempo.Event) {
	switch e.Kind {
	case "begin":
		m.begin(e)
	case "complete":
		m.call(e.Operation, e.Surface).complete[outcomeIndex(e.Outcome)].Inc()
	case "inflight":
		m.named(e.Operation).inflight.Add(float64(e.Count))
	case "waiting":
		s := m.named(e.Operation)
		s.waiting.Add(float64(e.Count))
		if e.Count < 0 {
			s.wait.Observe(e.Took.Seconds())
		}
	case "execute":
		m.named(e.Operation).execution.Observe(e.Took.Seconds())
	case "store":
		m.store(e)
	case "retry":
		m.vectors.storeRetries.WithLabelValues("tx", retryCause(e.Err)).Inc()
	case "renew_failed":
		m.named(e.Operation).renewFailures.Inc()
	case "lease_lost":
		m.named(e.Operation).leaseLost.Inc()
	case "fenced":
		m.named(e.Operation).fenced.Inc()
	case "settled":
		m.vectors.settled.WithLabelValues(settledWord(e.Outcome)).Inc()
	case "resolve":
		if e.Outcome == "completed" || e.Outcome == "failed" {
			m.vectors.resolution.WithLabelValues(m.label(e.Operation), e.Outcome, resolver(e.Class)).Inc()
		}
	case "invalid_key":
		m.InvalidKey(e.Operation, strings.TrimPrefix(e.Class, "key_"))
	case "passthrough":
		m.Passthrough(e.Operation, e.Class)
	case "fresh_key":
		m.vectors.freshKey.WithLabelValues(m.label(e.Operation)).Inc()
	case "swept":
		m.vectors.swept.Add(float64(e.Count))
	}
}

func (m *Metrics) begin(e idempo.Event) {
	s := m.call(e.Operation, e.Surface)
	i := verdictIndex(e.Verdict)
	s.begin[i].Inc()
	switch {
	case e.Verdict == idempo.VerdictReplay:
		count(s.replay, e.Trace)
		m.named(e.Operation).replayAge.Observe(e.Age.Seconds())
	case i >= 2 && i <= 5:
		s.conflict[i-2].Inc()
	}
}

// count increments c, with the trace id of a W3C traceparent as exemplar where there is one.
func count(c prometheus.Counter, traceparent string) {
	if a, ok := c.(prometheus.ExemplarAdder); ok && traceparent != "" {
		if parts := strings.Split(traceparent, "-"); len(parts) >= 4 && len(parts[1]) == 32 && hex(parts[1]) {
			a.AddWithExemplar(1, prometheus.Labels{"trace_id": parts[1]})
			return
		}
	}
	c.Inc()
}

func hex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

func (m *Metrics) store(e idempo.Event) {
	op := storeOp(e.Op)
	v, ok := m.byStore.Load(op)
	if !ok {
		v, _ = m.byStore.LoadOrStore(op, &storeSeries{seconds: m.vectors.storeSeconds.WithLabelValues(op)})
	}
	v.(*storeSeries).seconds.Observe(e.Took.Seconds())
	if class := errorClass(e.Class, e.Err); class != "" {
		m.vectors.storeErrors.WithLabelValues(op, class).Inc()
	}
}

func storeOp(op string) string {
	switch op {
	case "acquire", "renew", "complete", "release", "lookup", "sweep", "take", "tx":
		return op
	}
	return other
}

// errorClass turns the code of a store error into the label; "" for answers that are no failure of the store.
func errorClass(code string, err error) string {
	switch code {
	case "", "lease_lost", "wrong_state", "moved", "not_issued", "not_found", "misuse", "nested", "invalid", "quota_exceeded",
		"mismatch", "in_progress", "in_doubt", "expired", "tx_conflict", "tx_ended", "tx_aborted":
		return ""
	case "unavailable":
		if errors.Is(err, context.DeadlineExceeded) {
			return "timeout"
		}
		return "unavailable"
	}
	return "other"
}

// retryCause reads why a database gave a transaction up; drivers of Postgres tell by SQLState.
func retryCause(err error) string {
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		if s.SQLState() == "40P01" {
			return "deadlock"
		}
		return "serialization"
	}
	if err != nil && (strings.Contains(err.Error(), "busy") || strings.Contains(err.Error(), "locked")) {
		return "busy"
	}
	return "serialization"
}

// resolver is who settled a doubt.
func resolver(class string) string {
	switch class {
	case "operator", "downstream", "journal":
		return class
	}
	return "probe"
}

func settledWord(s string) string {
	if s == "committed" || s == "rolled_back" {
		return s
	}
	return "open"
}

// label is operation with the lock that it needs.
func (m *Metrics) label(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.operation(name)
}

// call returns the series of an operation on a surface, made on first use.
func (m *Metrics) call(operation, surfaceName string) *callSeries {
	if v, ok := m.byCall.Load(callKey{operation, surfaceName}); ok {
		return v.(*callSeries)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	op, sf := m.operation(operation), surface(surfaceName)
	if op != operation || sf != surfaceName { // names beyond the limit share series, and are not remembered one by one
		if v, ok := m.byCall.Load(callKey{op, sf}); ok {
			return v.(*callSeries)
		}
	}
	s := &callSeries{replay: m.vectors.replay.WithLabelValues(op, sf)}
	for i, word := range verdictWords() {
		s.begin[i] = m.vectors.begin.WithLabelValues(op, sf, word)
		if i >= 2 && i <= 5 {
			s.conflict[i-2] = m.vectors.conflict.WithLabelValues(op, sf, word)
		}
	}
	for i, word := range outcomeWords() {
		s.complete[i] = m.vectors.complete.WithLabelValues(op, sf, word)
	}
	m.byCall.Store(callKey{op, sf}, s)
	return s
}

// named returns the series of an operation, made on first use.
func (m *Metrics) named(operation string) *operationSeries {
	if v, ok := m.byName.Load(operation); ok {
		return v.(*operationSeries)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	op := m.operation(operation)
	if v, ok := m.byName.Load(op); ok {
		return v.(*operationSeries)
	}
	v := &m.vectors
	s := &operationSeries{
		execution: v.execution.WithLabelValues(op), wait: v.wait.WithLabelValues(op), replayAge: v.replayAge.WithLabelValues(op),
		inflight: v.inflight.WithLabelValues(op), waiting: v.waiting.WithLabelValues(op),
		leaseLost: v.leaseLost.WithLabelValues(op), renewFailures: v.renewFailures.WithLabelValues(op), fenced: v.fenced.WithLabelValues(op),
	}
	m.byName.Store(op, s)
	return s
}
