package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
)

// inboxActCommand makes a changing verb over messages.
func (a *app) inboxActCommand(action operator.Action) *cobra.Command {
	var m messageFlags
	var d deed
	var accept bool
	c := &cobra.Command{Use: string(action) + " [NUMBER|REFERENCE]", Args: cobra.MaximumNArgs(1),
		Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE:        func(c *cobra.Command, args []string) error { return a.inboxAct(c, action, m, &d, accept, args) }}
	switch action {
	case operator.ActionRetry:
		c.Short = "let dead and parked messages run again"
		c.Long = "Let dead, parked and retrying messages run again: attempts from 0, in the order of their lanes, as soon as a worker of\nthe inbox comes to them. One that is done, running or stored is left alone. With filters it is every one that matches."
		c.Example = "idempo inbox retry 7 --reason \"tax table fixed\" --dry-run\nidempo inbox retry --subscriber billing --status dead --reason \"tax table fixed\" --dry-run"
		c.Flags().BoolVar(&accept, "accept", false, "also what is parked since another body was handled under its id")
	case operator.ActionSkip:
		c.Short = "complete messages without their effect"
		c.Long = "Complete messages without their effect: copies are duplicates from then on, and their lanes go on. A worker of the inbox\ndoes it when it comes to them. A message without identity of its own can only be discarded."
		c.Example = "idempo inbox skip 7 --reason \"refunded by hand\" --dry-run\nidempo inbox skip --subscriber billing --lane order-81 --reason \"cancelled\" --dry-run"
	case operator.ActionDiscard:
		c.Short = "forget messages, body and all"
		c.Long = "Forget messages, body and all, and let their lanes go on. A copy that still comes is a new message, and runs. It cannot\nbe taken back; skip is what remembers that the message was there."
		c.Example = "idempo inbox discard 7 --reason \"garbage of a test\" --dry-run\nidempo inbox discard --because unparsable --older-than 30d --reason \"house rule 7\" --dry-run"
	}
	d.why(c)
	m.register(a, c, true)
	d.far(c)
	a.storeFlags(c)
	return c
}

func (a *app) inboxAct(c *cobra.Command, action operator.Action, m messageFlags, d *deed, accept bool, args []string) error {
	find, one, err := m.find(args)
	if err == nil && !one && find == (operator.FindMessages{}) {
		err = &failure{exit: exitUsage, code: "usage", message: "name the message, or say by filters which ones", hint: "see: " + c.CommandPath() + " --help"}
	}
	if err == nil {
		err = d.check(a)
	}
	if err != nil {
		return err
	}
	find.After = d.after
	return a.atDeskOf(c, d.actor, false, func(ctx context.Context, stop <-chan struct{}, at *desk) error {
		p := operator.MessagesParams{By: at.by, Find: find, Action: action, Accept: accept, One: one, Evidence: d.evidence, Limit: d.limit, Stop: stop}
		if one { // what was seen is what is changed
			page, err := at.Messages(ctx, operator.ListMessagesParams{By: at.by, Find: find})
			if err != nil {
				return err
			}
			if len(page.Messages) == 1 {
				p.On = page.Messages[0].Rev
			}
		}
		done := map[operator.Action]string{operator.ActionRetry: "retried", operator.ActionSkip: "skipped", operator.ActionDiscard: "discarded"}[action]
		meaning := map[operator.Action]string{operator.ActionRetry: "runs again when a worker comes to it, attempts from 0", operator.ActionSkip: "is completed without its effect when a worker comes to it",
			operator.ActionDiscard: "is gone for good; a copy that still comes runs"}[action]
		return actMany(ctx, stop, a, d, many[inbox.Receipt]{noun: "messages", verb: string(action), done: done, meaning: meaning, one: one,
			row: a.messageRow, obj: func(r inbox.Receipt) any { return operator.MessageRowOf(r) },
			act: func(ctx context.Context, dry bool, _ <-chan struct{}, tick func(operator.Handled[inbox.Receipt])) (operator.Handled[inbox.Receipt], error) {
				p.DryRun, p.ProgressFunc, p.Reason = dry, tick, d.reason
				return at.ActMessages(ctx, p)
			}})
	})
}

func (a *app) inboxReleaseCommand() *cobra.Command {
	var d deed
	p := operator.ReleaseLaneParams{}
	c := &cobra.Command{
		Use: "release", Short: "let a lane with a gap go on",
		Long: "Let a lane of an inbox that runs versions one after the other go on from the lowest version that is held in it, whatever\n" +
			"is missing before. A missing version that still comes is skipped as stale.",
		Example:     "idempo inbox release --subscriber billing --lane order-81 --reason \"7 was never sent\" --dry-run\nidempo inbox release --subscriber billing --tenant acme --lane o-81 --reason \"lost\" --dry-run",
		Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			if p.Subscriber == "" || p.Lane == "" {
				return usage("name the lane: --subscriber and --lane")
			}
			if err := d.check(a); err != nil {
				return err
			}
			return a.atDeskOf(c, d.actor, false, func(ctx context.Context, _ <-chan struct{}, at *desk) error { return a.inboxRelease(ctx, at, &d, p) })
		},
	}
	f := c.Flags()
	f.StringVar(&p.Subscriber, "subscriber", "", "`name` of the inbox")
	f.StringVar(&p.Tenant, "tenant", "default", "`tenant` of the lane")
	f.StringVar(&p.Lane, "lane", "", "`lane`")
	_ = c.RegisterFlagCompletionFunc("subscriber", a.completeSubscribers)
	d.why(c)
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) inboxRelease(ctx context.Context, at *desk, d *deed, p operator.ReleaseLaneParams) error {
	p.By, p.DryRun, p.Reason = at.by, true, d.reason
	from, err := at.ReleaseLane(ctx, p)
	if err != nil {
		if operator.CodeOf(err) == operator.CodeNotFound && !d.dryRun {
			p.DryRun = false
			_, err = at.ReleaseLane(ctx, p) // so that it is written down
		}
		return err
	}
	if !d.dryRun {
		a.err.printf("the lane goes on from version %s; versions before it that still come are skipped\n", escape(from))
		if err := d.ask(a, "Release it?"); err != nil {
			return err
		}
		p.DryRun, p.Reason = false, d.reason
		if from, err = at.ReleaseLane(ctx, p); err != nil {
			return err
		}
	}
	if a.json {
		return a.out.object(struct {
			Schema     int    `json:"schema"`
			Action     string `json:"action"`
			Subscriber string `json:"subscriber"`
			Lane       string `json:"lane"`
			Version    string `json:"version"`
			DryRun     bool   `json:"dry_run"`
		}{1, "release", p.Subscriber, p.Lane, from, d.dryRun})
	}
	text := "lane " + escape(p.Lane) + " of " + escape(p.Subscriber) + " goes on from version " + escape(from)
	if d.dryRun {
		text += "  (dry run)"
	}
	a.out.line(text)
	return a.out.failed
}
