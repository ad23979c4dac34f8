package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// acting is one changing verb of keys: what it was asked to do, to which keys, and how.
type acting struct {
	showFlags
	deed
	list   listFlags
	action operator.Action
	rate   int

	completed, failed, probe bool   // resolve
	result, resource         string // resolve --completed
	status, exit             int
	nothing                  bool // release
	force                    bool // retry
	tombstones, doubts       bool // purge
}

// actCommand makes a changing verb; own adds its own flags.
func (a *app) actCommand(action operator.Action, short, long, example string, own func(c *cobra.Command, v *acting)) *cobra.Command {
	v := &acting{action: action}
	c := &cobra.Command{
		Use: string(action) + " [REFERENCE]", Short: short, Long: long, Example: example,
		Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		Args:        cobra.MaximumNArgs(1),
		RunE:        func(c *cobra.Command, args []string) error { return a.act(c, v, args) },
	}
	f := c.Flags()
	own(c, v)
	v.why(c)
	f.StringVar(&v.id, "id", "", "the `key` as the caller sent it, with --tenant and --operation")
	f.StringVar(&v.principal, "principal", "", "`principal` of the key, where keys are kept apart by it")
	v.list.filters(a, c, action)
	v.far(c)
	a.storeFlags(c)
	return c
}

func (a *app) keysResolveCommand() *cobra.Command {
	return a.actCommand(operator.ActionResolve, "settle a key in doubt: it happened, or nothing did",
		"Settle a key that is in doubt: somebody has found out what happened. On a terminal a form shows what is known and what "+
			"each choice will do. With filters in place of a reference it settles all that match.",
		"idempo keys resolve k_mfrggzdfmztwq2lknnwg23tpoa --failed --reason \"not at the bank\" --dry-run\n"+
			"idempo keys resolve --failed --operation ship --reason \"the carrier was down\" --dry-run",
		func(c *cobra.Command, v *acting) {
			f := c.Flags()
			f.BoolVar(&v.completed, "completed", false, "it happened: calls with this key are answered from now on")
			f.BoolVar(&v.failed, "failed", false, "nothing happened: the next call with this key runs")
			f.BoolVar(&v.probe, "probe", false, "ask the declared probe, and apply what it says")
			f.StringVar(&v.result, "result", "", "with --completed: the answer, or `@file`, byte for byte")
			f.IntVar(&v.status, "status", 0, "with --completed: `status` of the answer")
			f.IntVar(&v.exit, "exit", -1, "with --completed, of a command: its exit `code`; 0 is success")
			f.StringVar(&v.resource, "resource", "", "with --completed: what was made, `type:id`")
		})
}

func (a *app) keysReleaseCommand() *cobra.Command {
	return a.actCommand(operator.ActionRelease, "take a running key from its owner",
		"Take a running key from its owner, whose later result is refused. The key is in doubt then, unless you know "+
			"that nothing happened, or it never started.",
		"idempo keys release k_mfrggzdfmztwq2lknnwg23tpoa --reason \"the host is gone\" --dry-run\n"+
			"idempo keys release --stuck --nothing-happened --reason \"never reached the bank\" --dry-run",
		func(c *cobra.Command, v *acting) {
			c.Flags().BoolVar(&v.nothing, "nothing-happened", false, "you know that it had no effect: the next call runs")
		})
}

func (a *app) keysRetryCommand() *cobra.Command {
	return a.actCommand(operator.ActionRetry, "let the next call with a finished key run again",
		"Let the next call with a finished key, and the same request, run again: as the next generation, with other keys for "+
			"the services behind. What was done so far stays in the history. Of a success it is severe: it happens twice.",
		"idempo keys retry k_mfrggzdfmztwq2lknnwg23tpoa --reason \"the card is valid now\" --dry-run\n"+
			"idempo keys retry --operation pay --outcome completed_failing --reason \"wrong limit\" --dry-run",
		func(c *cobra.Command, v *acting) {
			c.Flags().BoolVar(&v.force, "force", false, "also where it was a success: severe")
		})
}

func (a *app) keysPurgeCommand() *cobra.Command {
	return a.actCommand(operator.ActionPurge, "remove stored answers; a tombstone stays",
		"Remove what is kept of finished keys: answers, snapshots, digests of members. A tombstone stays and says that it "+
			"happened; with --with-tombstones that goes as well, and a late retry runs. Running keys are never purged.",
		"idempo keys purge --tenant acct_7 --reason \"the customer asked for it\" --dry-run\n"+
			"idempo keys purge --older-than 30d --state completed --reason \"house rule 7\" --dry-run",
		func(c *cobra.Command, v *acting) {
			f := c.Flags()
			f.BoolVar(&v.tombstones, "with-tombstones", false, "also forget that it happened: late retries run; severe")
			f.BoolVar(&v.doubts, "include-in-doubt", false, "also keys in doubt: severe")
			f.IntVar(&v.rate, "rate", 5000, "keys a second at `most`")
		})
}

// check refuses what makes no sense before any store is opened.
func (v *acting) check(a *app, args []string) error {
	choices := 0
	for _, chosen := range []bool{v.completed, v.failed, v.probe} {
		if chosen {
			choices++
		}
	}
	answers := v.result != "" || v.status != 0 || v.exit >= 0 || v.resource != ""
	switch {
	case v.action != operator.ActionResolve:
	case choices > 1:
		return usage("--completed, --failed, --probe: choose one")
	case choices == 0 && !v.bulk(args) && a.talks(v.q):
	case choices == 0:
		return &failure{exit: exitUsage, code: "usage", message: "say what happened", hint: "add --completed, --failed or --probe"}
	case answers && !v.completed:
		return usage("--result, --status, --exit, --resource: only with --completed")
	case v.exit >= 0 && (v.status != 0 || v.result != ""):
		return usage("--exit is for commands, --status and --result for calls: choose one")
	case v.probe && v.bulk(args):
		return usage("--probe asks for one key: name it")
	case v.status != 0 && (v.status < 100 || v.status > 599):
		return usage("--status: 100 to 599")
	}
	if v.rate < 0 {
		return usage("--rate: must not be negative")
	}
	return v.deed.check(a)
}

// bulk says whether filters are given in place of one key.
func (v *acting) bulk(args []string) bool { return len(args) == 0 && v.id == "" }

func (a *app) act(c *cobra.Command, v *acting, args []string) error {
	var target operator.Target
	var find operator.FindParams
	var err error
	if v.bulk(args) {
		v.list.after = v.after
		if find, err = v.list.params(); err == nil && (find == operator.FindParams{}) && !v.list.stuck {
			err = &failure{exit: exitUsage, code: "usage", message: "name the key, or say by filters which ones", hint: "see: " + c.CommandPath() + " --help"}
		}
	} else {
		v.showFlags.tenant, v.showFlags.operation = v.list.tenant, v.list.operation
		target, err = v.target(args)
	}
	if err != nil {
		return err
	}
	if err := v.check(a, args); err != nil {
		return err
	}
	result, err := v.answer(a)
	if err != nil {
		return err
	}
	if v.bulk(args) {
		return a.actBulk(c, v, find, result)
	}
	ctx, cancel := a.interruptible(c)
	defer cancel()
	d, err := a.desk(ctx, c, v.actor, true)
	if err != nil {
		return err
	}
	defer d.close()
	err = a.actOne(ctx, d, v, target, result)
	return interrupted(ctx, err)
}

// answer is the result of a resolve to completed.
func (v *acting) answer(a *app) (r idempo.Result, err error) {
	r.Status = v.status
	if v.completed && v.status == 0 && v.exit < 0 {
		r.Status = 200
	}
	if v.exit >= 0 {
		r.Status, r.Failing = v.exit, v.exit != 0
	} else {
		r.Failing = r.Status >= 400
	}
	if v.resource != "" {
		if r.Resource, err = parseResource("--resource", v.resource); err != nil {
			return r, err
		}
	}
	if name, isFile := strings.CutPrefix(v.result, "@"); isFile {
		file, err := os.Open(a.path(name))
		if err != nil {
			return r, usage("--result: %v", err)
		}
		defer file.Close()
		if r.Body, err = io.ReadAll(io.LimitReader(file, 64<<20+1)); err != nil || len(r.Body) > 64<<20 {
			return r, usage("--result: cannot be read, or is over 64 MiB")
		}
	} else if v.result != "" {
		r.Body = []byte(v.result)
	}
	return r, nil
}

func parseResource(flag, text string) (idempo.Resource, error) {
	kind, id, ok := strings.Cut(text, ":")
	if !ok || kind == "" || id == "" {
		return idempo.Resource{}, usage("%s: write TYPE:ID, as in charge:ch_91", flag)
	}
	return idempo.Resource{Type: kind, ID: id}, nil
}

// actOne does it to one key.
func (a *app) actOne(ctx context.Context, d *desk, v *acting, target operator.Target, result idempo.Result) error {
	shown, err := d.Show(ctx, operator.ShowParams{By: d.by, Target: target})
	w := operator.Why{By: d.by, Target: target, Reason: v.reason, Evidence: v.evidence, DryRun: v.dryRun, Confirm: v.q.confirm}
	if operator.CodeOf(err) == operator.CodeNotFound { // the attempt has its audit row, too
		w.On.State = idempo.StateInDoubt
		_, err = v.do(ctx, d, w, result)
		return err
	} else if err != nil {
		return err
	}
	r := shown.Record
	w.On = operator.SeenOf(r)
	if !v.dryRun {
		if err := a.guide(v, shown, &w, &result); err != nil {
			return err
		}
	}
	planned := w
	planned.DryRun = true
	after, err := v.do(ctx, d, planned, result)
	if err != nil { // refused: once more, so that it is written down
		if !v.dryRun && !v.probe {
			_, err = v.do(ctx, d, w, result)
		}
		return err
	}
	if v.dryRun {
		return a.sayDone(v, r, after, true)
	}
	severe := operator.Severe(v.change(result), r)
	if severe != "" {
		if f := a.confirmTyped(severe, r.Ref(), v.q); f != nil {
			return f
		}
		w.Confirm = r.Ref()
	} else if f := a.confirmOne(v, r, after.Record); f != nil {
		return f
	}
	if after, err = v.do(ctx, d, w, result); err != nil {
		return err
	}
	return a.sayDone(v, r, after, false)
}

// confirmOne asks before one key is changed.
func (a *app) confirmOne(v *acting, before, after idempo.Record) *failure {
	if a.talks(v.q) && !v.q.yes {
		a.err.printf("%s of %s\n  %s → %s: %s\n", before.Ref(), escape(before.Key.Operation), before.State, orElse(string(after.State), "removed"), consequence(after))
	}
	return a.confirm(firstUpper(string(v.action))+" it?", v.q)
}

// change is what the flags ask for, as the service judges it.
func (v *acting) change(result idempo.Result) operator.Change {
	c := operator.Change{Action: v.action, Force: v.force, Tombstones: v.tombstones, InDoubt: v.doubts}
	switch {
	case v.completed:
		c.To, c.Done.Result = idempo.StateCompleted, result
	case v.failed, v.nothing:
		c.To = idempo.StateFailed
	case v.action == operator.ActionRelease:
		c.To = idempo.StateInDoubt
	}
	return c
}

// do asks the service.
func (v *acting) do(ctx context.Context, d *desk, w operator.Why, result idempo.Result) (operator.Changed, error) {
	switch v.action {
	case operator.ActionResolve:
		return d.Resolve(ctx, operator.ResolveParams{Why: w, To: v.change(result).To, Probe: v.probe, Result: result})
	case operator.ActionRelease:
		return d.Release(ctx, operator.ReleaseParams{Why: w, NothingHappened: v.nothing})
	case operator.ActionRetry:
		return d.Retry(ctx, operator.RetryParams{Why: w, Force: v.force})
	}
	return d.Purge(ctx, operator.PurgeParams{Why: w, Tombstones: v.tombstones, InDoubt: v.doubts})
}

// consequence says what calls with a key in this state get.
func consequence(r idempo.Record) string {
	switch r.State {
	case idempo.StateCompleted:
		return "calls with it get this answer"
	case idempo.StateFailed:
		return "the next call with it runs"
	case idempo.StateInDoubt:
		return "calls with it are told that nobody knows"
	case idempo.StateExpired:
		return "calls with it are told that it happened"
	case "":
		return "the next call with it runs as if it were new"
	}
	return "it stays " + string(r.State)
}

// sayDone says on stdout what became of one key, or would.
func (a *app) sayDone(v *acting, before idempo.Record, done operator.Changed, dry bool) error {
	if a.json {
		return a.out.object(struct {
			Schema     int    `json:"schema"`
			KeyRef     string `json:"key_ref"`
			Action     string `json:"action"`
			Outcome    string `json:"outcome"`
			Before     string `json:"before"`
			After      string `json:"after"`
			Attempt    int64  `json:"attempt"`
			Generation int64  `json:"generation"`
			Actor      string `json:"actor"`
			DryRun     bool   `json:"dry_run"`
		}{1, before.Ref(), string(v.action), done.Entry.Outcome, string(before.State), string(done.Record.State), before.Attempt, max(done.Record.Generation, before.Generation), done.Entry.Actor, dry})
	}
	text := fmt.Sprintf("%s  %s → %s", before.Ref(), before.State, orElse(string(done.Record.State), "removed"))
	if dry {
		text += "  (dry run)"
	}
	a.out.printf("%s\n  %s\n", text, consequence(done.Record))
	return a.out.failed
}
