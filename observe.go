package idempo

import (
	"context"
	"time"
)

// Observer learns what the engine does: one Event per store call, verdict, run, completion, failed renewal, lost
// lease, settled COMMIT and swept batch. It is called synchronously and must be quick and safe for concurrent use; its
// panic is recovered and changes nothing.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Tracer is an Observer that makes spans. It is looked for once, by New; without it the work runs in the context that it would
// have anyway, and records keep Request.Trace.
type Tracer interface {
	// Trace is called with Kind begin before a call is judged, and with Kind execute before its work runs; Operation and
	// Surface are set. The work gets the context that it returns, which must descend from ctx, and the execute event is observed
	// under it. trace, of Kind begin, is kept with the record as the trace context of the run, at most 512 bytes: a W3C
	// traceparent; "": Request.Trace is. It must be quick and safe for concurrent use. A nil work is ctx, and its panic is
	// recovered and counts as ctx and "".
	Trace(ctx context.Context, e Event) (work context.Context, trace string)
}

// Event is one thing that happened. Kind says which; fields that do not belong to it are zero.
//
//	begin        Verdict, or "" with Class for an error; Age of the record with replay; At, Took until the verdict was known
//	inflight     Count +1, -1: running claims
//	waiting      Count +1, -1: waiting duplicates; Took with -1
//	execute      At, Took: the work ran
//	complete     Outcome: completed completed_failing failed in_doubt lost; At, Took to store it
//	store        Op: acquire renew complete release lookup sweep take tx; Took; Class "" or of the error
//	retry        Class: tx_conflict: the work runs again
//	renew_failed, lease_lost, fenced (a late write refused)
//	settled      Outcome: committed rolled_back open: a COMMIT without an answer
//	resolve      Outcome: completed failed in_doubt; Class: who said so: "" a probe, operator, downstream
//	swept        Count rows
//	passthrough  Class: declared fail_open: a keyed request ran unguarded
//	invalid_key  Class: missing multiple empty malformed length not_issued: a key was refused
//	differs      Members: what differs from the request that the key stands for, after the begin event of a mismatch
//	fresh_key    Count: the same request of one tenant has run under so many new keys, at least 3, within ten minutes: a
//	             client that makes a key for each attempt. It is never refused for that. Known per process, of the last 4,096
type Event struct {
	Kind      string
	Operation string
	Surface   string
	KeyRef    string
	Guard     Guard
	Verdict   Verdict
	Outcome   string
	Op        string
	Class     string // code of the error: unavailable tx_conflict …
	Attempt   int64
	Count     int
	Took, Age time.Duration
	At        time.Time // when it began, on this process's clock; zero: not told
	Trace     string    // of the run that made a replayed result, or that left what was resolved
	TenantRef string    // `t_` and 26 characters of a keyed digest: the only form of a tenant in logs
	Tenant    string    // of begin; for pages behind a login, never for a log, label or span
	Members   []string
	Err       error
}

// Report passes an event of a surface on to the Observer, as the engine does with its own.
func (e *Engine) Report(ctx context.Context, ev Event) { e.observe(ctx, ev) }

func (e *Engine) observe(ctx context.Context, ev Event) {
	if e.cfg.Observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer's panic changes nothing
	e.cfg.Observer.Observe(ctx, ev)
}

// trace asks the Tracer, if there is one.
func (e *Engine) trace(ctx context.Context, ev Event) (work context.Context, trace string) {
	if e.tracer == nil {
		return ctx, ""
	}
	defer func() {
		if recover() != nil {
			trace = ""
		}
		if work == nil {
			work = ctx
		}
	}()
	work, trace = e.tracer.Trace(ctx, ev)
	if len(trace) > 512 {
		trace = ""
	}
	return work, trace
}

// timed runs one store call and observes it.
func (e *Engine) timed(ctx context.Context, op, operation string, fn func() error) error {
	if e.cfg.Observer == nil {
		return fn()
	}
	start := time.Now()
	err := fn()
	ev := Event{Kind: "store", Op: op, Operation: operation, Took: time.Since(start)}
	if err != nil {
		if ev.Class, ev.Err = codeOf(err), err; ev.Class == "" {
			ev.Class = "other"
		}
	}
	e.observe(ctx, ev)
	return err
}

func (c *call) observe(ev Event) {
	if c.e.cfg.Observer == nil {
		return
	}
	ev.Operation, ev.Surface, ev.Guard, ev.KeyRef, ev.TenantRef = c.op.Name, c.req.Surface, c.op.Guard, c.ref(), c.e.ring.tenantRef(c.key.Tenant)
	c.e.observe(c.ctx, ev)
}
