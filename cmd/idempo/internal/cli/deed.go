package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/operator"
)

// deed is what every changing verb is told besides what it changes: why, by whom, whether to ask, how far to go.
type deed struct {
	q        asking
	reason   string
	evidence string
	actor    string
	dryRun   bool
	progress string
	limit    int
	after    string
}

// why adds the flags that say why and whether to ask.
func (d *deed) why(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&d.reason, "reason", "", "`why`; it stays in the audit; required")
	f.StringVar(&d.evidence, "evidence", "", "`url` of what proves it")
	f.StringVar(&d.actor, "actor", "", "`who` decided it; else the user of this system at this host")
	f.BoolVar(&d.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.BoolVar(&d.q.yes, "yes", false, "do not ask")
	f.StringVar(&d.q.confirm, "confirm", "", "`text` that a severe action wants to be typed: the reference, in bulk the verb")
	f.BoolVar(&d.q.noInput, "no-input", false, "never ask: what needs an answer is an error")
}

// far adds the flags that say how far a bulk goes.
func (d *deed) far(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&d.limit, "limit", 0, "in bulk, stop after this `many`; 0: 1,000")
	f.StringVar(&d.after, "after", "", "in bulk, go on after this `cursor`")
	f.StringVar(&d.progress, "progress", "auto", "`how` to say how far it is: auto, json or none")
	f.Bool("json", false, "one JSON object")
}

// check refuses what makes no sense before any store is opened.
func (d *deed) check(a *app) error {
	if d.progress != "" {
		if f := checkWord("--progress", d.progress, "auto", "json", "none"); f != nil {
			return f
		}
	}
	if strings.TrimSpace(d.reason) == "" && !a.talks(d.q) && !d.dryRun {
		return &failure{exit: exitUsage, code: "usage", message: "a reason is required: it stays in the audit", hint: "add --reason \"why\""}
	}
	if d.limit < 0 {
		return usage("--limit: must not be negative")
	}
	return nil
}

// ask has the reason and the confirmation given on the terminal where the flags do not say them.
func (d *deed) ask(a *app, question string) error {
	if strings.TrimSpace(d.reason) == "" {
		answer, ok := a.ask("Reason, for the audit: ")
		if !ok || answer == "" {
			return notConfirmed()
		}
		d.reason = answer
	}
	if f := a.confirm(question, d.q); f != nil {
		return f
	}
	return nil
}

// many is a verb over messages or events.
type many[T any] struct {
	noun, verb, done string // messages, retry, retried
	meaning          string // what it means for them
	one              bool   // exactly one was named
	// act does it, or with dry only says what it would do.
	act func(ctx context.Context, dry bool, stop <-chan struct{}, tick func(operator.Handled[T])) (operator.Handled[T], error)
	row func(T) string // on a terminal
	obj func(T) any    // as JSON
}

// actMany counts, shows what it means, asks, does it in batches and says how it went.
func actMany[T any](ctx context.Context, stop <-chan struct{}, a *app, d *deed, m many[T]) error {
	plan, err := m.act(ctx, true, stop, nil)
	if err != nil && m.one && !d.dryRun { // refused: once more, so that it is written down
		if e, ok := errors.AsType[*operator.Error](err); ok && strings.TrimSpace(d.reason) != "" && e.Code != operator.CodeUnsupported {
			_, err = m.act(ctx, false, stop, nil)
		}
	}
	if err != nil {
		return interrupted(ctx, err)
	}
	if d.dryRun || plan.OK == 0 {
		return sayMany(a, d, m, plan, true)
	}
	if !a.json || !d.q.yes {
		planMany(a, m, plan)
	}
	if err := d.ask(a, firstUpper(m.verb)+" "+count(plan.OK, m.noun)+"?"); err != nil {
		return err
	}
	bar := a.progress(d.progress, m.verb, plan.OK)
	got, err := m.act(ctx, false, stop, func(h operator.Handled[T]) { bar.at(h.OK + h.Failed) })
	bar.end()
	switch {
	case err != nil && ctx.Err() == nil:
		if !m.one {
			totalMany(a, m, got, false)
		}
		return err
	case err != nil:
		got.Stopped = true
	}
	if err := sayMany(a, d, m, got, false); err != nil {
		return err
	}
	return bulkEnd(got.Stopped, got.Failed)
}

// planMany shows on stderr what will be done before it asks.
func planMany[T any](a *app, m many[T], plan operator.Handled[T]) {
	totalMany(a, m, plan, true)
	for _, x := range plan.Sample {
		a.err.printf("  %s\n", m.row(x))
	}
	if plan.OK > len(plan.Sample) {
		a.err.printf("  and %d more\n", plan.OK-len(plan.Sample))
	}
	if plan.OK > 0 {
		a.err.printf("each %s\n", m.meaning)
	}
}

// totalMany counts on stderr.
func totalMany[T any](a *app, m many[T], h operator.Handled[T], dry bool) {
	if dry {
		a.err.printf("%s to be %s", count(h.OK, m.noun), m.done)
	} else {
		a.err.printf("%s %s, %d had moved", count(h.OK, m.noun), m.done, h.Failed)
	}
	a.passedOver(h.Skipped)
}

// sayMany says how it went, and how it goes on where it ended early.
func sayMany[T any](a *app, d *deed, m many[T], h operator.Handled[T], dry bool) error {
	if a.json {
		type one struct {
			Item  any    `json:"item"`
			Code  string `json:"code"`
			State string `json:"state"`
		}
		failures := []one{}
		for _, f := range h.Failures {
			failures = append(failures, one{m.obj(f.Item), f.Err.Code, string(f.Err.State)})
		}
		return a.out.object(tally{1, m.verb, h.Looked, h.OK, h.Failed, h.Skipped, failures, h.Next, dry})
	}
	if dry {
		planMany(a, m, h)
	} else {
		totalMany(a, m, h, false)
	}
	for _, f := range h.Failures {
		a.out.printf("%s  %s: is now %s\n", m.row(f.Item), f.Err.Code, f.Err.State)
	}
	return a.goesOn(h.Next, h.Stopped)
}

// tally is how a bulk of keys, messages or events went, as JSON. The code and state of each of Failures stand beside what it was.
type tally struct {
	Schema   int    `json:"schema"`
	Action   string `json:"action"`
	Matched  int    `json:"matched"`
	OK       int    `json:"ok"`
	Failed   int    `json:"failed"`
	Skipped  int    `json:"skipped"`
	Failures any    `json:"failures"`
	Next     string `json:"next,omitempty"`
	DryRun   bool   `json:"dry_run"`
}

// passedOver ends a line of totals.
func (a *app) passedOver(skipped int) {
	if skipped > 0 {
		a.err.printf(", %d passed over: their state does not allow it", skipped)
	}
	a.err.line("")
}

// goesOn says on stderr how a bulk goes on that ended early.
func (a *app) goesOn(next string, stopped bool) error {
	if next != "" {
		why := "there are more"
		if stopped {
			why = "stopped"
		}
		a.err.printf("%s; this goes on:\n  %s\n", why, a.again(next))
	}
	return a.out.failed
}

// bulkEnd is the exit of a bulk.
func bulkEnd(stopped bool, failed int) error {
	switch {
	case stopped:
		return &failure{exit: exitInterrupted, silent: true}
	case failed > 0:
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}

// count is a number of things, in words: 1 message, 2 messages.
func count(n int, noun string) string {
	if n == 1 {
		noun = strings.TrimSuffix(noun, "s")
	}
	return strconv.Itoa(n) + " " + noun
}
