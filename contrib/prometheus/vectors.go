package idemprometheus

import "github.com/prometheus/client_golang/prometheus"

// vectors are all metrics, with their labels. Names end in units as Prometheus wants them.
type vectors struct {
	begin, replay, conflict, complete *prometheus.CounterVec
	invalidKey, passthrough           *prometheus.CounterVec
	execution, wait, replayAge        *prometheus.HistogramVec
	inflight, waiting                 *prometheus.GaugeVec
	leaseLost, renewFailures, fenced  *prometheus.CounterVec
	settled, resolution               *prometheus.CounterVec
	storeSeconds                      *prometheus.HistogramVec
	storeErrors, storeRetries         *prometheus.CounterVec
	upstream, reload                  *prometheus.CounterVec
	upstreamSeconds                   *prometheus.HistogramVec
	breaker, build                    *prometheus.GaugeVec
	swept                             prometheus.Counter
	freshKey, audit                   *prometheus.CounterVec

	hookRequests, hookRefused, hookSecret     *prometheus.CounterVec
	hookAnswer                                *prometheus.HistogramVec
	hookHeard                                 *prometheus.Desc
	published, republished, window            *prometheus.CounterVec
	publish, publishAge                       *prometheus.HistogramVec
	owned, outboxPending, outboxDead, noRoute *prometheus.GaugeVec
	outboxOldest, blocked, horizon            *prometheus.GaugeVec
	retained                                  prometheus.Gauge
}

// Buckets in seconds. Runs and waits are bounded by minutes, store calls by the acquire time-out, ages by the retention.
func runBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
}

func storeBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

func ageBuckets() []float64 {
	const hour, day = 3600, 86400
	return []float64{.1, 1, 5, 15, 60, 300, 900, hour, 3 * hour, 6 * hour, 12 * hour, 18 * hour, day, 36 * hour, 2 * day, 3 * day, 5 * day, 7 * day, 10 * day, 14 * day, 21 * day, 30 * day}
}

func newVectors() vectors {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	return vectors{
		begin:           counter("idempo_begin_total", "Calls by verdict: run replay in_progress mismatch in_doubt expired error. The sum is all calls.", "operation", "surface", "verdict"),
		replay:          counter("idempo_replay_total", "Calls answered from the record: duplicates avoided.", "operation", "surface"),
		conflict:        counter("idempo_conflict_total", "Calls refused because of what the record says.", "operation", "surface", "reason"),
		complete:        counter("idempo_complete_total", "Attempts by how they ended: completed completed_failing failed in_doubt lost.", "operation", "surface", "outcome"),
		invalidKey:      counter("idempo_invalid_key_total", "Requests refused for their key.", "operation", "reason"),
		passthrough:     counter("idempo_passthrough_total", "Requests that ran unguarded.", "operation", "reason"),
		execution:       histogram("idempo_execution_seconds", "How long the work of a won key ran.", runBuckets(), "operation"),
		wait:            histogram("idempo_wait_seconds", "How long duplicates waited for the running call.", runBuckets(), "operation"),
		replayAge:       histogram("idempo_replay_age_seconds", "Age of the records that calls were answered from.", ageBuckets(), "operation"),
		inflight:        gauge("idempo_inflight", "Claims that this process is working on.", "operation"),
		waiting:         gauge("idempo_waiting", "Duplicates that wait in this process.", "operation"),
		leaseLost:       counter("idempo_lease_lost_total", "Leases that ended under their owner.", "operation"),
		renewFailures:   counter("idempo_lease_renew_failures_total", "Renewals that failed.", "operation"),
		fenced:          counter("idempo_fenced_writes_total", "Late writes of a lost claim that were refused.", "operation"),
		settled:         counter("idempo_commit_unanswered_total", "Commits without an answer, by what was found: committed rolled_back open.", "settled"),
		resolution:      counter("idempo_resolution_total", "Doubts that were settled.", "operation", "outcome", "by"),
		storeSeconds:    histogram("idempo_store_seconds", "Duration of store calls.", storeBuckets(), "op"),
		storeErrors:     counter("idempo_store_errors_total", "Store calls that failed, by class.", "op", "class"),
		storeRetries:    counter("idempo_store_retries_total", "Transactions run again after the database gave them up.", "op", "cause"),
		upstream:        counter("idempo_gateway_upstream_total", "Forwarded requests by what is known of them: answered not_sent sent_unknown.", "operation", "class"),
		upstreamSeconds: histogram("idempo_gateway_upstream_seconds", "Duration of forwarded requests.", runBuckets(), "operation"),
		reload:          counter("idempo_config_reload_total", "Reloads of the configuration by outcome: ok invalid refused.", "outcome"),
		breaker:         gauge("idempo_breaker_open", "1 while a breaker refuses calls.", "client"),
		build:           gauge("idempo_build_info", "Always 1; the labels say what runs.", "version", "revision", "goversion"),
		freshKey:        counter("idempo_fresh_key_repeat_total", "New keys for a request that had run under at least two others within ten minutes: clients that make a key per attempt.", "operation"),
		audit:           counter("idempo_audit_total", "What operators did in this process, or were refused.", "action", "outcome"),
		hookRequests:    counter("idempo_webhook_requests_total", "Webhook requests by what became of them.", "source", "outcome"),
		hookRefused:     counter("idempo_webhook_refused_total", "Webhook requests that were refused, by reason.", "source", "reason"),
		hookSecret:      counter("idempo_webhook_secret_used_total", "Verified webhook requests, by the secret that verified them.", "source", "secret"),
		hookAnswer:      histogram("idempo_webhook_answer_seconds", "How long webhook requests took to be answered.", runBuckets(), "source"),
		hookHeard:       prometheus.NewDesc("idempo_webhook_last_event_age_seconds", "How long ago this process last had an event of the source: take the minimum over processes.", []string{"source"}, nil),
		published:       counter("idempo_outbox_published_total", "Events sent, by outcome: acked duplicate_ack refused unknown failed no_route unavailable later.", "group", "outcome"),
		republished:     counter("idempo_outbox_republished_total", "Sends of events that had been sent before.", "group"),
		window:          counter("idempo_outbox_window_exceeded_total", "Sends older than the window in which the broker removes duplicates.", "group"),
		publish:         histogram("idempo_outbox_publish_seconds", "From a send to its answer.", runBuckets(), "group"),
		publishAge:      histogram("idempo_outbox_commit_to_publish_seconds", "From the append of an event to the answer of the broker.", runBuckets(), "group"),
		owned:           gauge("idempo_outbox_partitions_owned", "Partitions that relays of this process have.", "group"),
		outboxPending:   gauge("idempo_outbox_pending", "Events that the group has not published: take the maximum over processes.", "group"),
		outboxDead:      gauge("idempo_outbox_dead", "Events that a person has to look at.", "group"),
		noRoute:         gauge("idempo_outbox_noroute", "Events that no target takes.", "group"),
		outboxOldest:    gauge("idempo_outbox_oldest_seconds", "Age of the oldest event that is not published.", "group"),
		blocked:         gauge("idempo_outbox_blocked_keys", "Event keys that wait for a failed event before them.", "group"),
		horizon:         gauge("idempo_outbox_horizon_seconds", "Age of the oldest open snapshot, by what holds it: session prepared slot group.", "group", "holder"),
		retained:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "idempo_outbox_retained_bytes", Help: "Size of the log of events."}),
		swept:           prometheus.NewCounter(prometheus.CounterOpts{Name: "idempo_swept_rows_total", Help: "Overdue rows that this process swept."}),
	}
}

func (v *vectors) all() []prometheus.Collector {
	return []prometheus.Collector{
		v.begin, v.replay, v.conflict, v.complete, v.invalidKey, v.passthrough, v.execution, v.wait, v.replayAge,
		v.inflight, v.waiting, v.leaseLost, v.renewFailures, v.fenced, v.settled, v.resolution, v.storeSeconds,
		v.storeErrors, v.storeRetries, v.upstream, v.upstreamSeconds, v.reload, v.breaker, v.build, v.swept,
		v.freshKey, v.audit, v.hookRequests, v.hookRefused, v.hookSecret, v.hookAnswer, v.published, v.republished, v.window, v.publish, v.publishAge,
		v.owned, v.outboxPending, v.outboxDead, v.noRoute, v.outboxOldest, v.blocked, v.horizon, v.retained,
	}
}
