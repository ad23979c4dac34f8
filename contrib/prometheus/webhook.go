package idemprometheus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idempo/idempo/webhook"
)

// Webhooks counts the requests of a receiver. It fits webhook.Config.Observer. Labels are sources as configured: a request to none of
// them counts as "_other".
func (m *Metrics) Webhooks() webhook.Observer { return webhooks{m} }

type webhooks struct{ m *Metrics }

// Observe implements webhook.Observer.
func (w webhooks) Observe(_ context.Context, o webhook.Observation) {
	v := &w.m.vectors
	source := o.Source
	if source == "" {
		source = other
	}
	outcome := o.Outcome
	if !slices.Contains([]string{"stored", "duplicate", "late_duplicate", "conflict", "suspect_replay", "handshake", "refused", "too_large", "store_error", "overload"}, outcome) {
		outcome = other
	}
	v.hookRequests.WithLabelValues(source, outcome).Inc()
	v.hookAnswer.WithLabelValues(source).Observe(o.Took.Seconds())
	if outcome == "refused" {
		v.hookRefused.WithLabelValues(source, string(o.Reason)).Inc()
	}
	if o.Secret != "" {
		v.hookSecret.WithLabelValues(source, o.Secret).Inc()
	}
	switch outcome {
	case "stored", "duplicate", "late_duplicate":
		w.m.heard.Store(source, time.Now())
	}
}

// collectHeard shows how long ago each source was last heard of in this process.
func collectHeard(heard *sync.Map, d *prometheus.Desc, ch chan<- prometheus.Metric) {
	heard.Range(func(source, at any) bool {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, time.Since(at.(time.Time)).Seconds(), source.(string))
		return true
	})
}
