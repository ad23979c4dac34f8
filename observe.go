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

// Event is one thing that happened. Kind says which; fields that do not belong to it are zero.
//
//	begin        Verdict, or "" with Class for an error; Age of the record with replay
//	inflight     Count +1, -1: running claims
//	waiting      Count +1, -1: waiting duplicates; Took with -1
//	execute      Took: the work ran
//	complete     Outcome: completed completed_failing failed in_doubt lost
//	store        Op: acquire renew complete release lookup sweep take tx; Took; Class "" or of the error
//	retry        Class: tx_conflict: the work runs again
//	renew_failed, lease_lost, fenced (a late write refused)
//	settled      Outcome: committed rolled_back open: a COMMIT without an answer
//	resolve      Outcome: completed failed in_doubt: what a probe said
//	swept        Count rows
//	passthrough  Class: declared fail_open: a keyed request ran unguarded
//	invalid_key  Class: missing multiple empty malformed length not_issued: a key was refused
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
	Trace     string // of the run that made a replayed result
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
	ev.Operation, ev.Surface, ev.Guard, ev.KeyRef = c.op.Name, c.req.Surface, c.op.Guard, c.ref()
	c.e.observe(c.ctx, ev)
}
