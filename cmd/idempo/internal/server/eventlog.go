package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/gateway"
)

// eventLog writes what an engine does as log lines. Keys appear as references, tenants and bodies not at all.
type eventLog struct{ log *slog.Logger }

var _ idempo.Observer = eventLog{}

// Observe implements idempo.Observer.
func (l eventLog) Observe(ctx context.Context, e idempo.Event) {
	level, message := lineOf(e)
	if message == "" || !l.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 14)
	add := func(name, v string) {
		if v != "" {
			attrs = append(attrs, slog.String(name, v))
		}
	}
	add("key_ref", e.KeyRef)
	if id, ok := ctx.Value(identityKey{}).(identity); ok {
		add("request_id", id.request)
		add("correlation_id", id.correlation)
	}
	add("operation", e.Operation)
	add("tenant_ref", e.TenantRef)
	add("surface", e.Surface)
	add("guard", string(e.Guard))
	add("verdict", string(e.Verdict))
	add("state", stateOf(e))
	add("op", e.Op)
	if e.Kind == "fresh_key" {
		attrs = append(attrs, slog.Int("keys", e.Count))
	}
	if e.Attempt > 0 {
		attrs = append(attrs, slog.Int64("attempt", e.Attempt))
	}
	if e.Took > 0 {
		attrs = append(attrs, slog.Float64("duration_ms", float64(e.Took)/float64(time.Millisecond)))
	}
	if p := strings.Split(e.Trace, "-"); len(p) >= 4 {
		add("trace_id", p[1])
		add("span_id", p[2])
	}
	add("error_code", e.Class)
	add("error", shown(e.Err))
	l.log.LogAttrs(ctx, level, message, attrs...)
}

// shown is the text of an error of idempo, which is made to be read by operators. Foreign errors may hold values of any kind:
// their class is in error_code, their text is not logged.
func shown(err error) string {
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e.Error()
	}
	return ""
}

// lineOf is the table of levels: what is normal is DEBUG, what a person may want to know INFO, what needs an eye WARN, what
// needs hands ERROR. Events without a message are for metrics only.
func lineOf(e idempo.Event) (slog.Level, string) {
	switch e.Kind {
	case "begin":
		switch e.Verdict {
		case idempo.VerdictRun, idempo.VerdictReplay, idempo.VerdictInProgress, idempo.VerdictExpired:
			return slog.LevelDebug, "verdict"
		case idempo.VerdictMismatch:
			return slog.LevelInfo, "verdict"
		case idempo.VerdictInDoubt:
			return slog.LevelWarn, "verdict"
		}
		if e.Class == "unavailable" || e.Class == "record_unreadable" {
			return slog.LevelError, "begin failed"
		}
		return slog.LevelInfo, "begin refused"
	case "complete":
		if e.Outcome == "in_doubt" {
			return slog.LevelWarn, "in doubt"
		}
		return slog.LevelDebug, "settled"
	case "resolve":
		if e.Class == "" {
			return slog.LevelInfo, "doubt resolved by probe"
		}
		return slog.LevelInfo, "doubt resolved"
	case "fresh_key":
		if e.Count == 3 { // once for each time that it begins
			return slog.LevelInfo, "one request came under several new keys: this client makes a key per attempt"
		}
	case "renew_failed":
		return slog.LevelWarn, "lease renewal failed"
	case "lease_lost":
		return slog.LevelError, "lease lost"
	case "fenced":
		return slog.LevelError, "late write refused"
	case "settled":
		if e.Outcome == "open" {
			return slog.LevelError, "commit without an answer"
		}
		return slog.LevelWarn, "commit without an answer"
	case "store":
		if storeFailed(e.Class) {
			return slog.LevelError, "store call failed"
		}
	case "passthrough":
		if e.Class == "fail_open" {
			return slog.LevelWarn, "ran unguarded: the store is down"
		}
	}
	return 0, ""
}

// storeFailed tells failures of a store from its answers.
func storeFailed(class string) bool {
	switch class {
	case "unavailable", "record_unreadable", "other":
		return true
	}
	return false
}

// stateOf is the state that an event leaves its record in, where it tells.
func stateOf(e idempo.Event) string {
	switch {
	case e.Kind == "complete" && (e.Outcome == "completed" || e.Outcome == "completed_failing"):
		return string(idempo.StateCompleted)
	case (e.Kind == "complete" || e.Kind == "resolve") && e.Outcome != "lost":
		return e.Outcome
	case e.Kind == "settled":
		return e.Outcome
	}
	return ""
}

// gatewayLog writes what a gateway met: breakers at WARN, requests of unknown outcome at WARN.
func gatewayLog(log *slog.Logger, e gateway.Event) {
	switch {
	case e.Breaker != "":
		log.Warn("breaker", "upstream", e.Upstream, "state", e.Breaker)
	case e.Class == gateway.ClassUnknown:
		log.Warn("sent, and no complete answer", "operation", e.Operation, "upstream", e.Upstream, "duration_ms", float64(e.Took)/float64(time.Millisecond))
	}
}

// observers calls several observers one after the other.
type observers []idempo.Observer

// Observe implements idempo.Observer.
func (o observers) Observe(ctx context.Context, e idempo.Event) {
	for _, one := range o {
		one.Observe(ctx, e)
	}
}
