package idemprometheus

import (
	"context"
	"slices"

	"github.com/idempo/idempo/outbox"
)

var _ outbox.Observer = (*Metrics)(nil)

// ObserveOutbox implements outbox.Observer: what relays of this process have sent, and how their groups stand. Of a group one
// relay reads the state every 15 seconds; take the maximum over processes.
func (m *Metrics) ObserveOutbox(_ context.Context, o outbox.Observation) {
	v := &m.vectors
	switch o.Kind {
	case "published":
		outcome := o.Outcome
		if !slices.Contains([]string{"acked", "duplicate_ack", "refused", "unknown", "failed", "no_route", "unavailable", "later"}, outcome) {
			outcome = other
		}
		v.published.WithLabelValues(o.Group, outcome).Add(float64(o.Count))
		v.publish.WithLabelValues(o.Group).Observe(o.Took.Seconds())
		if o.Age > 0 {
			v.publishAge.WithLabelValues(o.Group).Observe(o.Age.Seconds())
		}
	case "republished":
		v.republished.WithLabelValues(o.Group).Add(float64(o.Count))
	case "window_exceeded":
		v.window.WithLabelValues(o.Group).Add(float64(o.Count))
	case "owned":
		v.owned.WithLabelValues(o.Group).Set(float64(o.Count))
	case "blocked":
		v.blocked.WithLabelValues(o.Group).Set(float64(o.Count))
	case "status":
		m.outboxStatus(o)
	}
}

func (m *Metrics) outboxStatus(o outbox.Observation) {
	v := &m.vectors
	if g := o.Status; g != nil {
		v.outboxPending.WithLabelValues(o.Group).Set(float64(g.Pending))
		v.outboxDead.WithLabelValues(o.Group).Set(float64(g.Dead))
		v.outboxOldest.WithLabelValues(o.Group).Set(g.Oldest.Seconds())
		v.noRoute.WithLabelValues(o.Group).Set(float64(g.NoRoute))
		v.blocked.WithLabelValues(o.Group).Set(float64(g.BlockedKeys))
	}
	if o.Log == nil {
		return
	}
	v.retained.Set(float64(o.Log.Bytes))
	ages := map[string]float64{"session": 0, "prepared": 0, "slot": 0, "group": 0}
	for _, h := range o.Log.Holders {
		kind := h.Kind
		if _, known := ages[kind]; !known {
			kind = other
		}
		ages[kind] = max(ages[kind], h.Age.Seconds())
	}
	for kind, age := range ages {
		v.horizon.WithLabelValues(o.Group, kind).Set(age)
	}
}
