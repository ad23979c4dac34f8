package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/webhook"
)

// replaying is what replay and skip are told besides which events.
type replaying struct {
	deed
	action                     operator.Action
	again, accept, ignoreOrder bool
	rate                       string
}

func (a *app) webhooksReplayCommand() *cobra.Command {
	var e hookEventFlags
	v := replaying{action: operator.ActionRetry}
	c := &cobra.Command{
		Use: "replay [RECEIPT[/ITEM]]", Short: "run events again",
		Long: "Let dead, parked and retrying events run again: attempts from 0, the oldest first, as soon as a worker comes to them. No\n" +
			"signature or time is checked again, and the verdict stays. What was handled is left alone, unless --again says to run\n" +
			"it a second time, with a new key downstream. Done again from the beginning it repeats nothing.",
		Example: "idempo webhooks replay 01KC5YEE800123456789ABCDEF --reason \"parser fixed\" --dry-run\nidempo webhooks replay --source gh --status dead --since 2d --reason \"parser fixed\" --dry-run",
		Args:    cobra.MaximumNArgs(1), Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error { return a.replay(c, e, &v, args) },
	}
	f := c.Flags()
	f.BoolVar(&v.again, "again", false, "also what was handled, a second time: severe")
	f.BoolVar(&v.accept, "accept", false, "also what is parked as conflict or suspect-replay")
	f.BoolVar(&v.ignoreOrder, "ignore-order", false, "whatever the version of its lane is")
	f.StringVar(&v.rate, "rate", "50/s", "at most so `many` a second")
	a.replayFlags(c, &e, &v)
	return c
}

func (a *app) webhooksSkipCommand() *cobra.Command {
	var e hookEventFlags
	v := replaying{action: operator.ActionSkip, rate: "5000/s"}
	c := &cobra.Command{
		Use: "skip [RECEIPT[/ITEM]]", Short: "complete events without their effect",
		Long: "Complete dead, parked, retrying and held events without their effect: what comes again is a duplicate from then on, and\n" +
			"their lanes go on. A worker does it when it comes to them; what never was started is skipped at once.",
		Example: "idempo webhooks skip 01KC5YEE800123456789ABCDEF --reason \"refunded by hand\" --dry-run\nidempo webhooks skip --source gh --status parked --reason-code no-id --reason \"pings\" --dry-run",
		Args:    cobra.MaximumNArgs(1), Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error { return a.replay(c, e, &v, args) },
	}
	a.replayFlags(c, &e, &v)
	return c
}

func (a *app) replayFlags(c *cobra.Command, e *hookEventFlags, v *replaying) {
	v.why(c)
	e.register(a, c)
	v.far(c)
	a.storeFlags(c)
}

// perSecond reads 50/s, or 50.
func perSecond(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(text, "/s"))
	if err != nil || n < 1 {
		return 0, usage("--rate: write a number such as 50/s")
	}
	return n, nil
}

func (a *app) replay(c *cobra.Command, e hookEventFlags, v *replaying, args []string) error {
	find, err := e.find(args)
	if err == nil && len(args) == 0 && !e.named() {
		err = &failure{exit: exitUsage, code: "usage", message: "name the receipt, or say by filters which events", hint: "see: " + c.CommandPath() + " --help"}
	}
	rate := 0
	if err == nil {
		rate, err = perSecond(v.rate)
	}
	if err == nil {
		err = v.check(a)
	}
	if err != nil {
		return err
	}
	find.After = v.after
	return a.atDeskOf(c, v.actor, true, func(ctx context.Context, stop <-chan struct{}, d *desk) error {
		if err := e.byKey(d, &find); err != nil {
			return err
		}
		p := operator.MessagesParams{By: d.by, Hooks: &find, Action: v.action, Accept: v.accept, Again: v.again, IgnoreOrder: v.ignoreOrder, Evidence: v.evidence,
			Limit: v.limit, Rate: rate, Stop: stop}
		if len(args) > 0 { // what was seen is what is changed
			page, err := d.Hooks(ctx, operator.HooksParams{By: d.by, Find: find})
			if err != nil {
				return err
			}
			if len(page.Messages) < 2 {
				p.One = true
			}
			if len(page.Messages) == 1 {
				p.On = page.Messages[0].Rev
			}
		}
		if v.again && !v.dryRun {
			what := "replay"
			if len(args) > 0 {
				what = strings.ToUpper(args[0])
			}
			if f := a.confirmTyped("what was handled runs a second time", what, v.q); f != nil {
				return f
			}
			p.Confirm, v.q.yes = what, true
		}
		verb, done, meaning := "replay", "replayed", "runs again when a worker comes to it, attempts from 0"
		if v.action == operator.ActionSkip {
			verb, done, meaning = "skip", "skipped", "is completed without its effect"
		}
		err := actMany(ctx, stop, a, &v.deed, many[inbox.Receipt]{noun: "events", verb: verb, done: done, meaning: meaning, one: p.One,
			row: a.hookLine, obj: func(r inbox.Receipt) any { return hookRowOf(webhook.ItemOf(r)) },
			act: func(ctx context.Context, dry bool, _ <-chan struct{}, tick func(operator.Handled[inbox.Receipt])) (operator.Handled[inbox.Receipt], error) {
				p.DryRun, p.ProgressFunc, p.Reason = dry, tick, v.reason
				return d.ActMessages(ctx, p)
			}})
		return hookRefusal(err)
	})
}

// hookRefusal says in the words of events why one was refused.
func hookRefusal(err error) error {
	e, ok := errors.AsType[*operator.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Code == operator.CodeNotFound:
		return &failure{exit: exitNo, code: e.Code, message: "no such event", hint: "idempo webhooks list shows what there is"}
	case e.Code == operator.CodeWrongState && e.Hint != "":
		f := &failure{exit: exitNo, code: e.Code, message: e.Hint}
		if e.Flag != "" && !strings.Contains(e.Hint, e.Flag) {
			f.hint = "add " + e.Flag
		}
		return f
	}
	return err
}
