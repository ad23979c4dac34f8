package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/operator"
)

// actBulk does it to all keys that the filters find: it counts, asks, does it in batches and says how it went.
func (a *app) actBulk(c *cobra.Command, v *acting, find operator.FindParams, result idempo.Result) error {
	ctx, stop, cancel := a.twice(c)
	defer cancel()
	d, err := a.desk(ctx, c, v.actor, true)
	if err != nil {
		return err
	}
	defer d.close()
	p := operator.BulkParams{By: d.by, Find: find, Stuck: v.list.stuck, Do: v.change(result), Reason: strings.TrimSpace(v.reason), Evidence: v.evidence,
		Limit: v.limit, Rate: v.rate, DryRun: true, Stop: stop}
	plan, err := d.Bulk(ctx, p)
	if err != nil {
		return interrupted(ctx, err)
	}
	if v.dryRun || plan.OK == 0 {
		return a.sayBulk(v, plan, true)
	}
	if !a.json || !v.q.yes {
		a.sayPlan(v, plan)
	}
	if p.Reason == "" {
		answer, ok := a.ask("Reason, for the audit: ")
		if !ok || answer == "" {
			return notConfirmed()
		}
		p.Reason = answer
	}
	if plan.Severe != "" {
		if f := a.confirmTyped(plan.Severe, string(v.action), v.q); f != nil {
			return f
		}
		p.Confirm = string(v.action)
	} else if f := a.confirm(fmt.Sprintf("%s %d keys?", firstUpper(string(v.action)), plan.OK), v.q); f != nil {
		return f
	}
	bar := a.progress(v.progress, string(v.action), plan.OK)
	p.DryRun, p.ProgressFunc = false, func(b operator.Bulked) { bar.at(b.OK + b.Failed) }
	done, err := d.Bulk(ctx, p)
	bar.end()
	if err != nil && ctx.Err() == nil {
		a.sayTotals(v, done, false)
		return err
	}
	if err != nil {
		done.Stopped = true
	}
	if err := a.sayBulk(v, done, false); err != nil {
		return err
	}
	return bulkEnd(done.Stopped, done.Failed)
}

// sayPlan shows on stderr what a bulk will do before it asks.
func (a *app) sayPlan(v *acting, plan operator.Bulked) {
	a.sayTotals(v, plan, true)
	for _, r := range plan.Sample {
		a.err.printf("  %s  %-9s  %s\n", r.Ref(), r.State, escape(r.Key.Operation))
	}
	if plan.OK > len(plan.Sample) {
		a.err.printf("  and %d more\n", plan.OK-len(plan.Sample))
	}
}

// sayTotals counts on stderr.
func (a *app) sayTotals(v *acting, b operator.Bulked, dry bool) {
	verb := map[operator.Action]string{operator.ActionResolve: "resolved", operator.ActionRelease: "released", operator.ActionRetry: "retried", operator.ActionPurge: "purged"}[v.action]
	if dry {
		a.err.printf("%d keys to be %s", b.OK, verb)
	} else {
		a.err.printf("%d keys %s, %d had moved", b.OK, verb, b.Failed)
	}
	a.passedOver(b.Skipped)
}

// sayBulk says how a bulk went, and how it goes on where it ended early.
func (a *app) sayBulk(v *acting, b operator.Bulked, dry bool) error {
	if a.json {
		type one struct {
			KeyRef string `json:"key_ref"`
			Code   string `json:"code"`
			State  string `json:"state"`
		}
		failures := []one{}
		for _, f := range b.Failures {
			failures = append(failures, one{f.Record.Ref(), operator.CodeOf(f.Err), string(f.Record.State)})
		}
		return a.out.object(tally{1, string(v.action), b.Looked, b.OK, b.Failed, b.Skipped, failures, b.Next, dry})
	}
	if dry {
		a.sayPlan(v, b)
	} else {
		a.sayTotals(v, b, false)
	}
	for _, f := range b.Failures {
		a.out.printf("%s  %s  is now %s\n", f.Record.Ref(), operator.CodeOf(f.Err), f.Record.State)
	}
	return a.goesOn(b.Next, b.Stopped)
}

// again is this command line with a cursor, so that it goes on where it ended. No password is repeated.
func (a *app) again(cursor string) string {
	words := []string{"idempo"}
	args := slices.Clone(a.p.Args)
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		if name == "--after" {
			if !joined {
				i++
			}
			continue
		}
		switch {
		case name == "--store" && strings.Contains(value, "://"):
			args[i] = name + "=" + config.MaskURL(value)
		case i > 0 && args[i-1] == "--store" && strings.Contains(args[i], "://"):
			args[i] = config.MaskURL(args[i])
		}
		words = append(words, shellWord(args[i]))
	}
	return strings.Join(append(words, "--after", cursor), " ")
}

// shellWord quotes a word for a POSIX shell where it needs it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(escape(s), "'", `'\''`) + "'"
}
