package idemotel

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idempo/idempo"
)

// instruments are the metrics of an engine.
type instruments struct {
	begin, replay, conflict, complete, invalidKey, passthrough, leaseLost, renewFailures, fenced metric.Int64Counter
	settled, resolution, storeErrors, storeRetries, swept, freshKey                              metric.Int64Counter
	execution, wait, replayAge, store                                                            metric.Float64Histogram
	inflight, waiting                                                                            metric.Int64UpDownCounter

	most       int
	mu         sync.Mutex
	operations map[string]bool
	sets       sync.Map // [4]string → metric.MeasurementOption
}

func newInstruments(m metric.Meter, most int) (*instruments, error) {
	in := &instruments{most: most, operations: map[string]bool{}}
	var errs []error
	counter := func(name, about string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, about string, bounds ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	updown := func(name, about string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	run := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
	const hour, day = 3600, 86400
	in.begin = counter("idempo.begin.total", "Calls by verdict. The sum is all calls.")
	in.replay = counter("idempo.replay.total", "Calls answered from the record: duplicates avoided.")
	in.conflict = counter("idempo.conflict.total", "Calls refused because of what the record says.")
	in.complete = counter("idempo.complete.total", "Attempts by how they ended.")
	in.invalidKey = counter("idempo.invalid.key.total", "Requests refused for their key.")
	in.passthrough = counter("idempo.passthrough.total", "Requests that ran unguarded.")
	in.leaseLost = counter("idempo.lease.lost.total", "Leases that ended under their owner.")
	in.renewFailures = counter("idempo.lease.renew.failures.total", "Renewals that failed.")
	in.fenced = counter("idempo.fenced.writes.total", "Late writes of a lost claim that were refused.")
	in.settled = counter("idempo.commit.unanswered.total", "Commits without an answer, by what was found.")
	in.resolution = counter("idempo.resolution.total", "Doubts that were settled.")
	in.storeErrors = counter("idempo.store.errors.total", "Store calls that failed.")
	in.storeRetries = counter("idempo.store.retries.total", "Transactions run again after the database gave them up.")
	in.swept = counter("idempo.swept.rows.total", "Overdue rows that this process swept.")
	in.freshKey = counter("idempo.fresh.key.repeat.total", "New keys for a request that had run under at least two others within ten minutes.")
	in.execution = seconds("idempo.execution.seconds", "How long the work of a won key ran.", run...)
	in.wait = seconds("idempo.wait.seconds", "How long duplicates waited for the running call.", run...)
	in.replayAge = seconds("idempo.replay.age.seconds", "Age of the records that calls were answered from.", .1, 1, 5, 15, 60, 300, 900, hour, 3*hour, 6*hour, 12*hour, 18*hour, day, 36*hour,
		2*day, 3*day, 5*day, 7*day, 10*day, 14*day, 21*day, 30*day)
	in.store = seconds("idempo.store.seconds", "Duration of store calls.", .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	in.inflight = updown("idempo.inflight", "Claims that this process is working on.")
	in.waiting = updown("idempo.waiting", "Duplicates that wait in this process.")
	return in, errors.Join(errs...)
}

const other = "_other"

// operation is the name of one, or "_other" beyond the limit.
func (in *instruments) operation(name string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.operations[name]:
	case name == "" || len(in.operations) >= in.most:
		return other
	default:
		in.operations[name] = true
	}
	return name
}

// set is a set of attributes, made once for each combination: kind tells which names they have.
func (in *instruments) set(kind, operation, a, b string) metric.MeasurementOption {
	at := [4]string{kind, operation, a, b}
	if v, ok := in.sets.Load(at); ok {
		return v.(metric.MeasurementOption)
	}
	names := strings.Split(kind, " ")
	values := []string{in.operation(operation), a, b}
	if names[0] != "operation" {
		values = []string{a, b}
	}
	var all []attribute.KeyValue
	for i, name := range names {
		all = append(all, attribute.String(name, values[i]))
	}
	made := metric.WithAttributeSet(attribute.NewSet(all...))
	if names[0] != "operation" || values[0] == operation { // names beyond the limit are not remembered one by one
		in.sets.Store(at, made)
	}
	return made
}

func known(word string, words string) string {
	for w := range strings.FieldsSeq(words) {
		if w == word {
			return w
		}
	}
	return other
}

const surfaces = "http grpc inbox webhook saga run task client mcp"

// count counts an event. One of a kind that it does not know counts for nothing.
func (in *instruments) count(ctx context.Context, e idempo.Event) {
	named := func() metric.MeasurementOption { return in.set("operation", e.Operation, "", "") }
	switch e.Kind {
	case "begin":
		in.begun(ctx, e)
	case "complete":
		in.complete.Add(ctx, 1, in.set("operation surface outcome", e.Operation, known(e.Surface, surfaces), known(e.Outcome, "completed completed_failing failed in_doubt lost")))
	case "inflight":
		in.inflight.Add(ctx, int64(e.Count), named())
	case "waiting":
		in.waiting.Add(ctx, int64(e.Count), named())
		if e.Count < 0 {
			in.wait.Record(ctx, e.Took.Seconds(), named())
		}
	case "execute":
		in.execution.Record(ctx, e.Took.Seconds(), named())
	case "store":
		op := known(e.Op, "acquire renew complete release lookup sweep take tx")
		in.store.Record(ctx, e.Took.Seconds(), in.set("op", "", op, ""))
		if class := errorClass(e); class != "" {
			in.storeErrors.Add(ctx, 1, in.set("op class", "", op, class))
		}
	case "retry":
		in.storeRetries.Add(ctx, 1, in.set("op", "", "tx", ""))
	case "renew_failed":
		in.renewFailures.Add(ctx, 1, named())
	case "lease_lost":
		in.leaseLost.Add(ctx, 1, named())
	case "fenced":
		in.fenced.Add(ctx, 1, named())
	case "settled":
		in.settled.Add(ctx, 1, in.set("settled", "", known(e.Outcome, "committed rolled_back open"), ""))
	case "resolve":
		if e.Outcome == "completed" || e.Outcome == "failed" {
			by := "probe"
			if e.Class != "" {
				by = known(e.Class, "operator downstream journal")
			}
			in.resolution.Add(ctx, 1, in.set("operation outcome by", e.Operation, e.Outcome, by))
		}
	case "invalid_key":
		in.invalidKey.Add(ctx, 1, in.set("operation reason", e.Operation, known(strings.TrimPrefix(e.Class, "key_"), "missing multiple empty malformed length not_issued"), ""))
	case "passthrough":
		in.passthrough.Add(ctx, 1, in.set("operation reason", e.Operation, known(e.Class, "declared fail_open"), ""))
	case "swept":
		in.swept.Add(ctx, int64(e.Count))
	case "fresh_key":
		in.freshKey.Add(ctx, 1, named())
	}
}

func (in *instruments) begun(ctx context.Context, e idempo.Event) {
	surface, verdict := known(e.Surface, surfaces), string(e.Verdict)
	if verdict == "" {
		verdict = "error"
	}
	verdict = known(verdict, "run replay in_progress mismatch in_doubt expired error")
	in.begin.Add(ctx, 1, in.set("operation surface verdict", e.Operation, surface, verdict))
	switch verdict {
	case "replay":
		in.replay.Add(ctx, 1, in.set("operation surface", e.Operation, surface, ""))
		in.replayAge.Record(ctx, e.Age.Seconds(), in.set("operation", e.Operation, "", ""))
	case "in_progress", "mismatch", "in_doubt", "expired":
		in.conflict.Add(ctx, 1, in.set("operation surface reason", e.Operation, surface, verdict))
	}
}

// errorClass tells failures of a store from its answers.
func errorClass(e idempo.Event) string {
	switch e.Class {
	case "unavailable":
		if errors.Is(e.Err, context.DeadlineExceeded) {
			return "timeout"
		}
		return "unavailable"
	case "record_unreadable", "other":
		return "other"
	}
	return ""
}
