package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
)

// panel is one picture: what it asks, and in which unit.
type panel struct {
	title, about string
	unit         string // of Grafana: s, bytes, percentunit, short, ops
	asks         []ask
	kind         string // timeseries by default, stat, heatmap
}

type ask struct{ expr, legend string }

// row is a line of panels.
type row struct {
	title  string
	panels []panel
}

const (
	op  = `{operation=~"$operation"}`
	per = "[$__rate_interval]"
)

func rate(by, metric, labels string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s%s%s))", by, metric, labels, per)
}

func quantile(q float64, by, metric, labels string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (%s, le) (rate(%s_bucket%s%s)))", q, by, metric, labels, per)
}

func most(by, metric, labels string) string {
	return fmt.Sprintf("max by (%s) (%s%s)", by, metric, labels)
}

// times shows half and 99 of 100.
func times(by, legend, metric, labels string) []ask {
	return []ask{{quantile(0.5, by, metric, labels), legend + " p50"}, {quantile(0.99, by, metric, labels), legend + " p99"}}
}

func rows() []row {
	return []row{
		{"What needs a person", []panel{
			{"In doubt", "Keys of which nobody knows whether they happened. The same in every process: max.", "short", []ask{{"sum(" + most("operation", "idempo_in_doubt", op) + ")", "in doubt"}}, "stat"},
			{"Oldest doubt", "", "s", []ask{{"max(idempo_in_doubt_oldest_seconds" + op + ")", "oldest"}}, "stat"},
			{"Longest-held key", "At work in the store, or in an open transaction.", "s", []ask{{"max(idempo_pending_oldest_seconds" + op + ")", "longest"}}, "stat"},
			{"Duplicates avoided", "Calls that were answered from the record in the time that is shown.", "short", []ask{{"sum(increase(idempo_replay_total" + op + "[$__range]))", "avoided"}}, "stat"},
			{"In doubt, by operation", "", "short", []ask{{most("operation", "idempo_in_doubt", op), "{{operation}}"}}, ""},
			{"Settled", "Doubts that were settled, by whom.", "ops", []ask{{rate("by, outcome", "idempo_resolution_total", op), "{{by}}: {{outcome}}"}}, ""},
		}},
		{"Calls", []panel{
			{"Calls by verdict", "", "ops", []ask{{rate("verdict", "idempo_begin_total", op), "{{verdict}}"}}, ""},
			{"Share of duplicates", "", "percentunit", []ask{{rate("operation", "idempo_replay_total", op) + " / " + rate("operation", "idempo_begin_total", op), "{{operation}}"}}, ""},
			{"Refused", "", "ops", []ask{{rate("operation, reason", "idempo_conflict_total", op), "{{operation}}: {{reason}}"}}, ""},
			{"How attempts ended", "", "ops", []ask{{rate("outcome", "idempo_complete_total", op), "{{outcome}}"}}, ""},
			{"Keys that were refused", "Missing, malformed, given twice.", "ops", []ask{{rate("operation, reason", "idempo_invalid_key_total", op), "{{operation}}: {{reason}}"}}, ""},
			{"Unguarded", "Requests that ran without a guard: declared so, or the store was away.", "ops", []ask{{rate("operation, reason", "idempo_passthrough_total", op), "{{operation}}: {{reason}}"}}, ""},
			{"A key per attempt", "The same request came under three new keys or more within ten minutes: that client is not protected.", "ops", []ask{{rate("operation", "idempo_fresh_key_repeat_total", op), "{{operation}}"}}, ""},
			{"Age of replayed records", "How late duplicates come, beside how long answers are kept.", "s", []ask{{quantile(0.999, "operation", "idempo_replay_age_seconds", op), "{{operation}} p99.9"}, {most("operation", "idempo_retention_seconds", op), "{{operation}} kept"}}, ""},
		}},
		{"Work", []panel{
			{"Run time", "", "s", times("operation", "{{operation}}", "idempo_execution_seconds", op), ""},
			{"Wait of duplicates", "", "s", times("operation", "{{operation}}", "idempo_wait_seconds", op), ""},
			{"At work and waiting", "In all processes together.", "short", []ask{{"sum by (operation) (idempo_inflight" + op + ")", "{{operation}} at work"}, {"sum by (operation) (idempo_waiting" + op + ")", "{{operation}} waiting"}}, ""},
			{"Leases", "", "ops", []ask{{rate("operation", "idempo_lease_lost_total", op), "{{operation}} lost"}, {rate("operation", "idempo_lease_renew_failures_total", op), "{{operation}} not renewed"}, {rate("operation", "idempo_fenced_writes_total", op), "{{operation}} late writes refused"}}, ""},
			{"Upstreams", "Forwarded requests by what is known of them.", "ops", []ask{{rate("operation, class", "idempo_gateway_upstream_total", op), "{{operation}}: {{class}}"}}, ""},
			{"Upstream time", "", "s", times("operation", "{{operation}}", "idempo_gateway_upstream_seconds", op), ""},
			{"Breakers", "1 while new calls are refused.", "short", []ask{{most("client", "idempo_breaker_open", ""), "{{client}}"}}, ""},
		}},
		{"Store", []panel{
			{"Store calls", "", "s", times("op", "{{op}}", "idempo_store_seconds", ""), ""},
			{"Errors", "", "ops", []ask{{rate("op, class", "idempo_store_errors_total", ""), "{{op}}: {{class}}"}}, ""},
			{"Transactions run again", "", "ops", []ask{{rate("cause", "idempo_store_retries_total", ""), "{{cause}}"}}, ""},
			{"Commits without an answer", "", "ops", []ask{{rate("settled", "idempo_commit_unanswered_total", ""), "{{settled}}"}}, ""},
			{"Records by state", "Above 10,000 an estimate.", "short", []ask{{most("state", "idempo_records", ""), "{{state}}"}}, ""},
			{"Size", "", "bytes", []ask{{"max(idempo_stored_bytes)", "store"}}, ""},
			{"Sweeping", "", "short", []ask{{"sum(rate(idempo_swept_rows_total" + per + "))", "rows a second"}}, ""},
			{"Behind with sweeping", "", "s", []ask{{"max(idempo_purge_lag_seconds)", "oldest"}}, ""},
		}},
		{"Outbox", []panel{
			{"Published", "", "ops", []ask{{rate("group, outcome", "idempo_outbox_published_total", ""), "{{group}}: {{outcome}}"}, {rate("group", "idempo_outbox_republished_total", ""), "{{group}} again"}, {rate("group", "idempo_outbox_window_exceeded_total", ""), "{{group}} beyond the broker's window"}}, ""},
			{"Not published", "", "short", []ask{{most("group", "idempo_outbox_pending", ""), "{{group}}"}, {most("group", "idempo_outbox_dead", ""), "{{group}} given up"}, {most("group", "idempo_outbox_noroute", ""), "{{group}} without a target"}, {most("group", "idempo_outbox_blocked_keys", ""), "{{group}} blocked keys"}}, ""},
			{"Oldest event, and what holds it", "", "s", []ask{{most("group", "idempo_outbox_oldest_seconds", ""), "{{group}}"}, {most("group, holder", "idempo_outbox_horizon_seconds", ""), "{{group}}: {{holder}}"}}, ""},
			{"From commit to broker", "", "s", append(times("group", "{{group}}", "idempo_outbox_commit_to_publish_seconds", ""), times("group", "{{group}} send", "idempo_outbox_publish_seconds", "")...), ""},
			{"Partitions", "", "short", []ask{{"sum by (group) (idempo_outbox_partitions_owned)", "{{group}}"}}, ""},
			{"Log", "", "bytes", []ask{{"max(idempo_outbox_retained_bytes)", "log"}}, ""},
		}},
		{"Webhooks", []panel{
			{"Requests", "", "ops", []ask{{rate("source, outcome", "idempo_webhook_requests_total", ""), "{{source}}: {{outcome}}"}}, ""},
			{"Refused, by reason", "", "ops", []ask{{rate("source, reason", "idempo_webhook_refused_total", ""), "{{source}}: {{reason}}"}}, ""},
			{"Time to answer", "", "s", times("source", "{{source}}", "idempo_webhook_answer_seconds", ""), ""},
			{"Last event", "", "s", []ask{{"min by (source) (idempo_webhook_last_event_age_seconds)", "{{source}}"}}, ""},
			{"Secrets in use", "An old secret that is not used any more can go.", "ops", []ask{{rate("source, secret", "idempo_webhook_secret_used_total", ""), "{{source}}: {{secret}}"}}, ""},
		}},
		{"Operators and processes", []panel{
			{"What operators did", "", "short", []ask{{"sum by (action, outcome) (increase(idempo_audit_total[$__range]))", "{{action}} {{outcome}}"}}, ""},
			{"Configuration", "", "short", []ask{{"sum by (outcome) (increase(idempo_config_reload_total[$__range]))", "{{outcome}}"}}, ""},
			{"Live pages", "", "short", []ask{{"sum(idempo_dashboard_clients)", "open"}}, ""},
			{"Versions", "", "short", []ask{{"count by (version, revision, goversion) (idempo_build_info)", "{{version}} {{goversion}}"}}, ""},
		}},
	}
}

type object = map[string]any

// Grafana returns the dashboard as deploy/grafana/idempo.json has it: for Grafana 9 or newer, with the data source and the operations
// as variables. The same bytes every time.
func Grafana() ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, r := range rows() {
		panels = append(panels, object{"id": next(), "type": "row", "title": r.title, "collapsed": false, "panels": []object{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x, high := 0, 0
		for _, p := range r.panels {
			w, h := 12, 8
			if p.kind == "stat" {
				w, h = 6, 4
			}
			if x+w > 24 {
				x, y, high = 0, y+high, 0
			}
			panels = append(panels, p.object(next(), object{"x": x, "y": y, "w": w, "h": h}, source))
			x, high = x+w, max(high, h)
		}
		y += high
	}
	variable := func(name, label, kind string, more object) object {
		v := object{"name": name, "label": label, "type": kind, "hide": 0, "skipUrlSync": false}
		maps.Copy(v, more)
		return v
	}
	all := object{
		"title": "idempo", "uid": "idempo", "tags": []string{"idempo"}, "schemaVersion": 38, "version": 1, "editable": true, "graphTooltip": 1,
		"refresh": "30s", "time": object{"from": "now-6h", "to": "now"}, "timezone": "", "links": []object{}, "annotations": object{"list": []object{}},
		"panels": panels,
		"templating": object{"list": []object{
			variable("datasource", "Data source", "datasource", object{"query": "prometheus", "refresh": 1, "regex": "", "multi": false, "includeAll": false, "options": []object{}}),
			variable("operation", "Operation", "query", object{"datasource": source, "query": object{"query": "label_values(idempo_begin_total, operation)", "refId": "operation"},
				"definition": "label_values(idempo_begin_total, operation)", "refresh": 2, "regex": "", "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "options": []object{},
				"current": object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}}),
		}},
	}
	b, err := json.MarshalIndent(all, "", "  ")
	return append(b, '\n'), err
}

func (p panel) object(id int, at, source object) object {
	var targets []object
	for i, a := range p.asks {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": a.expr, "legendFormat": a.legend, "editorMode": "code", "range": true})
	}
	kind := p.kind
	if kind == "" {
		kind = "timeseries"
	}
	o := object{"id": id, "type": kind, "title": p.title, "description": p.about, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}}}
	if kind == "stat" {
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "value", "graphMode": "area", "textMode": "auto"}
		return o
	}
	o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	return o
}
