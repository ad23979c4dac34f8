package idemprometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idempo/idempo/gateway"
)

type upstreamSeries struct {
	class   [3]prometheus.Counter // answered not_sent sent_unknown
	seconds prometheus.Observer
}

// ObserveGateway counts what a gateway forwarded, and shows which breakers are open. It fits gateway.Config.Observe.
func (m *Metrics) ObserveGateway(e gateway.Event) {
	if e.Breaker != "" {
		open := 0.0
		if e.Breaker == "open" {
			open = 1
		}
		m.vectors.breaker.WithLabelValues(e.Upstream).Set(open)
	}
	if e.Class == "" {
		return
	}
	s := m.forwarded(e.Operation)
	switch e.Class {
	case gateway.ClassAnswered:
		s.class[0].Inc()
	case gateway.ClassNotSent:
		s.class[1].Inc()
	default:
		s.class[2].Inc()
	}
	s.seconds.Observe(e.Took.Seconds())
}

// CountReload counts a reload of the configuration: ok, invalid (it has faults) or refused (it takes a restart). Any other
// outcome is not counted.
func (m *Metrics) CountReload(outcome string) {
	switch outcome {
	case "ok", "invalid", "refused":
		m.vectors.reload.WithLabelValues(outcome).Inc()
	}
}

func (m *Metrics) forwarded(operation string) *upstreamSeries {
	if v, ok := m.byUpstream.Load(operation); ok {
		return v.(*upstreamSeries)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	op := m.operation(operation)
	if v, ok := m.byUpstream.Load(op); ok {
		return v.(*upstreamSeries)
	}
	s := &upstreamSeries{seconds: m.vectors.upstreamSeconds.WithLabelValues(op)}
	for i, c := range []gateway.Class{gateway.ClassAnswered, gateway.ClassNotSent, gateway.ClassUnknown} {
		s.class[i] = m.vectors.upstream.WithLabelValues(op, string(c))
	}
	m.byUpstream.Store(op, s)
	return s
}

// InvalidKey counts a request that was refused for its key: missing multiple empty malformed length not_issued.
func (m *Metrics) InvalidKey(operation, reason string) {
	switch reason {
	case "missing", "multiple", "empty", "malformed", "length", "not_issued":
	default:
		reason = other
	}
	m.vectors.invalidKey.WithLabelValues(m.label(operation), reason).Inc()
}

// Passthrough counts a request that ran unguarded: declared (unguarded by declaration) or fail_open (the store was down).
func (m *Metrics) Passthrough(operation, reason string) {
	if reason != "declared" && reason != "fail_open" {
		reason = other
	}
	m.vectors.passthrough.WithLabelValues(m.label(operation), reason).Inc()
}
