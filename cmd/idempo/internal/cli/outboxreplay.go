package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/publish"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

func (a *app) outboxReplayCommand() *cobra.Command {
	var e eventFlags
	var d deed
	var to string
	var rate int
	c := &cobra.Command{
		Use: "replay [ID…]", Args: cobra.ArbitraryArgs,
		Short: "publish events once more, with the same ids",
		Long: "Publish events once more that a group has published before: the same ids, in the order of their keys, to the same or another\n" +
			"destination. Consumers with an inbox know them; the broker does not swallow them. No place in the log moves.",
		Example: "idempo outbox replay --topic 'billing.*' --newer-than 2h --to stdout: --reason \"lost\" --dry-run\n" +
			"idempo outbox replay --key o-81 --to stdout: --reason \"check\" --dry-run",
		Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			find, err := e.find(args)
			switch {
			case err != nil:
				return err
			case !filtered(find):
				return &failure{exit: exitUsage, code: "usage", message: "name the event, or say by filters which ones", hint: "see: " + c.CommandPath() + " --help"}
			case rate < 0:
				return usage("--rate: must not be negative")
			}
			if err := publish.Check(to); err != nil {
				return usage("--to: %v", err)
			}
			if err := d.check(a); err != nil {
				return err
			}
			find.After = d.after
			return a.atDeskOf(c, d.actor, false, func(ctx context.Context, stop <-chan struct{}, at *desk) error {
				dest, err := publish.Open(ctx, to, publish.Options{Out: a.out})
				if err != nil {
					return usage("--to: %v", err)
				}
				defer dest.Close(ctx)
				p := operator.ReplayParams{By: at.by, Find: find, To: dest, Limit: d.limit, Rate: rate, Stop: stop}
				now := time.Now()
				m := many[outbox.Aside]{noun: "events", verb: "replay", done: "replayed", meaning: "is published once more, with the same id",
					row: func(x outbox.Aside) string { return a.eventRow(x, now) }, obj: func(x outbox.Aside) any { return operator.EventRowOf(x) },
					act: func(ctx context.Context, dry bool, _ <-chan struct{}, tick func(operator.Handled[outbox.Aside])) (operator.Handled[outbox.Aside], error) {
						p.DryRun, p.ProgressFunc, p.Reason = dry, tick, d.reason
						return at.Replay(ctx, p)
					}}
				return outboxFailure(actMany(ctx, stop, a, &d, m))
			})
		},
	}
	e.register(c)
	f := c.Flags()
	f.StringVar(&to, "to", "", "`destination`, as of idempo relay; required")
	f.IntVar(&rate, "rate", 0, "events a second at `most`; 0: 5,000")
	d.why(c)
	d.far(c)
	a.storeFlags(c)
	return c
}
