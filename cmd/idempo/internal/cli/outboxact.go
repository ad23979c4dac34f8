package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

// outboxActCommand makes a changing verb over events.
func (a *app) outboxActCommand(action operator.Action) *cobra.Command {
	var e eventFlags
	var d deed
	var unmatched []string
	c := &cobra.Command{Use: string(action) + " [ID…]", Args: cobra.ArbitraryArgs,
		Annotations: exits(exitNo, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			if len(unmatched) > 0 {
				return a.discardTopics(c, e.group, unmatched, &d)
			}
			return a.outboxAct(c, action, e, &d, args)
		}}
	switch action {
	case operator.ActionRetry:
		c.Short = "let dead, waiting and skipped events be published"
		c.Long = "Let events that are set aside be published again: attempts from 0, the same id, in the order of their key, at once. The\nbroker gets a fresh id of its own, so that it does not swallow them."
		c.Example = "idempo outbox retry --status dead --reason \"the topic exists now\" --dry-run\nidempo outbox retry --group erp --topic 'billing.*' --reason \"limit raised\" --dry-run"
	case operator.ActionSkip:
		c.Short = "give events up, and let their keys go on"
		c.Long = "Give events up that are set aside: they are not published, and later events of their keys go on. They stay listed, and can\nbe retried."
		c.Example = "idempo outbox skip --status dead --key o-81 --reason \"cancelled by hand\" --dry-run\nidempo outbox skip --group erp --status dead --reason \"obsolete\" --dry-run"
	case operator.ActionDiscard:
		c.Short = "remove events that are set aside, or let topics go that nobody takes"
		c.Long = "Remove events that are set aside, for good. With --unmatched it lets go of topics that no group matches, whose events are\nkept for ever otherwise."
		c.Example = "idempo outbox discard --status skipped --older-than 30d --reason \"house rule 7\" --dry-run\nidempo outbox discard --unmatched legacy.orders --reason \"nobody reads it\" --dry-run"
		c.Flags().StringSliceVar(&unmatched, "unmatched", nil, "exact `topic` that no group matches; may be repeated")
	}
	d.why(c)
	e.register(c)
	d.far(c)
	a.storeFlags(c)
	return c
}

func (a *app) outboxAct(c *cobra.Command, action operator.Action, e eventFlags, d *deed, args []string) error {
	find, err := e.find(args)
	if err == nil && !filtered(find) {
		err = &failure{exit: exitUsage, code: "usage", message: "name the event, or say by filters which ones", hint: "see: " + c.CommandPath() + " --help"}
	}
	if err == nil {
		err = d.check(a)
	}
	if err != nil {
		return err
	}
	find.After = d.after
	return a.atDeskOf(c, d.actor, false, func(ctx context.Context, stop <-chan struct{}, at *desk) error {
		p := operator.EventsParams{By: at.by, Find: find, Action: action, One: len(args) == 1, Evidence: d.evidence, Limit: d.limit, Stop: stop}
		done := map[operator.Action]string{operator.ActionRetry: "retried", operator.ActionSkip: "skipped", operator.ActionDiscard: "discarded"}[action]
		meaning := map[operator.Action]string{operator.ActionRetry: "is published at once, with the same id", operator.ActionSkip: "is not published, and its key goes on",
			operator.ActionDiscard: "is gone for good, and is not published"}[action]
		now := time.Now()
		return outboxFailure(actMany(ctx, stop, a, d, many[outbox.Aside]{noun: "events", verb: string(action), done: done, meaning: meaning, one: p.One,
			row: func(x outbox.Aside) string { return a.eventRow(x, now) }, obj: func(x outbox.Aside) any { return operator.EventRowOf(x) },
			act: func(ctx context.Context, dry bool, _ <-chan struct{}, tick func(operator.Handled[outbox.Aside])) (operator.Handled[outbox.Aside], error) {
				p.DryRun, p.ProgressFunc, p.Reason = dry, tick, d.reason
				return at.ActEvents(ctx, p)
			}}))
	})
}

func (a *app) discardTopics(c *cobra.Command, group string, topics []string, d *deed) error {
	if err := d.check(a); err != nil {
		return err
	}
	return a.atDeskOf(c, d.actor, false, func(ctx context.Context, _ <-chan struct{}, at *desk) error {
		s, err := at.OutboxStatus(ctx, operator.OutboxStatusParams{By: at.by})
		if err != nil {
			return outboxFailure(err)
		}
		rows := int64(0)
		for _, topic := range topics {
			found := false
			for _, t := range s.Unmatched {
				if t.Topic == topic {
					found, rows = true, rows+t.Rows
				}
			}
			if !found {
				return &failure{exit: exitNo, code: "not_found", message: "no such topic, or a group takes it: " + quoteWord(topic), hint: "idempo outbox status lists the topics that no group takes"}
			}
		}
		if !d.dryRun {
			a.err.printf("%d events of %s are not kept for anybody any more\n", rows, count(len(topics), "topics"))
			if err := d.ask(a, "Discard them?"); err != nil {
				return err
			}
			if err := at.DiscardTopics(ctx, at.by, group, topics, d.reason); err != nil {
				return outboxFailure(err)
			}
		}
		return a.sayGroup("discard", strings.Join(topics, " "), d.dryRun)
	})
}

// sayGroup says what became of a group, or would.
func (a *app) sayGroup(action, name string, dry bool) error {
	if a.json {
		return a.out.object(struct {
			Schema int    `json:"schema"`
			Action string `json:"action"`
			Name   string `json:"name"`
			DryRun bool   `json:"dry_run"`
		}{1, action, name, dry})
	}
	text := action + " " + escape(name) + ": done"
	if dry {
		text = action + " " + escape(name) + "  (dry run)"
	}
	a.out.line(text)
	return a.out.failed
}

// groupDeed asks for and does one change of a group.
func (a *app) groupDeed(c *cobra.Command, d *deed, g outbox.GroupParams, means, severe string) error {
	if err := d.check(a); err != nil {
		return err
	}
	return a.atDeskOf(c, d.actor, false, func(ctx context.Context, _ <-chan struct{}, at *desk) error {
		p := operator.ChangeGroupParams{By: at.by, Group: g, DryRun: true}
		if _, err := at.ChangeGroup(ctx, p, d.reason); err != nil {
			return outboxFailure(err)
		}
		if d.dryRun {
			return a.sayGroup(g.Action, g.Group, true)
		}
		a.err.line(means)
		if severe != "" {
			if f := a.confirmTyped(severe, g.Group, d.q); f != nil {
				return f
			}
			d.q.yes = true
		}
		if err := d.ask(a, firstUpper(g.Action)+" group "+g.Group+"?"); err != nil {
			return err
		}
		p.DryRun = false
		if _, err := at.ChangeGroup(ctx, p, d.reason); err != nil {
			return outboxFailure(err)
		}
		return a.sayGroup(g.Action, g.Group, false)
	})
}

func (a *app) outboxPauseCommand(action string) *cobra.Command {
	var d deed
	g := outbox.GroupParams{Action: action}
	c := &cobra.Command{
		Use: action, Short: "stop a group, or some of its topics, from being published",
		Long:        "Stop a group, or some of its topics, from being published, in every relay within two seconds and over restarts. Events\nstay where they are, in order.",
		Example:     "idempo outbox pause --group erp --reason \"the ERP is being moved\" --dry-run\nidempo outbox pause --group main --topic 'billing.*' --reason \"audit\" --dry-run",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
	}
	means := "no relay publishes them until idempo outbox resume"
	if action == outbox.GroupResume {
		c.Short = "let a group, or some of its topics, be published again"
		c.Long = "Let a group, or some of its topics, be published again after a pause, from where it stopped."
		c.Example = "idempo outbox resume --group erp --reason \"moved\" --dry-run\nidempo outbox resume --group main --topic 'billing.*' --reason \"audit is over\" --dry-run"
		means = "relays go on from where they stopped"
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return a.groupDeed(c, &d, g, means, "") }
	c.Flags().StringVar(&g.Group, "group", "main", "`name` of the group")
	c.Flags().StringSliceVar(&g.Topics, "topic", nil, "only this `topic`, * is any text; may be repeated")
	d.why(c)
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) outboxGroupsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "groups", Short: "list the groups that publish from an outbox, make or remove one",
		Long:    "A group is a destination with its own place in the log. Relays make theirs by themselves; add is for one that begins in the\nmiddle, or that somebody else publishes.",
		Example: "idempo outbox groups list\nidempo outbox groups rm old --reason \"replaced by erp\" --dry-run",
	}
	c.AddCommand(a.groupsListCommand(), a.groupsAddCommand(), a.groupsRemoveCommand())
	return c
}

func (a *app) groupsListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "list groups with their topics and relays", Long: "List the groups with the topics that they take, who publishes them, and whether they are paused.",
		Example: "idempo outbox groups list\nidempo outbox groups list --json", Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.atDesk(c, func(ctx context.Context, d *desk) error {
				s, err := d.OutboxStatus(ctx, operator.OutboxStatusParams{By: d.by})
				if err != nil {
					return outboxFailure(err)
				}
				for i, g := range s.Groups {
					if a.json {
						if err := a.out.object(operator.GroupRowOf(g)); err != nil {
							return err
						}
						continue
					}
					if i == 0 {
						a.out.printf("%-20s  %-8s  %6s  %s\n", "GROUP", "STATE", "RELAYS", "TOPICS")
					}
					state := "on"
					switch {
					case g.External:
						state = "external"
					case g.Paused:
						state = "paused"
					}
					a.out.printf("%-20s  %-8s  %6d  %s\n", escape(g.Name), state, len(g.Relays), escape(strings.Join(g.Topics, " ")))
				}
				return a.out.failed
			})
		},
	}
	c.Flags().Bool("json", false, "one JSON object per group")
	a.storeFlags(c)
	return c
}

func (a *app) groupsAddCommand() *cobra.Command {
	var d deed
	g := outbox.GroupParams{Action: outbox.GroupCreate}
	c := &cobra.Command{
		Use: "add NAME", Short: "make a group", Args: cobra.ExactArgs(1),
		Long:        "Make a group that begins at the beginning of what is kept, or with what is appended from now on. With --external somebody else\npublishes it through a replication slot, and rows are kept until the slot has passed them.",
		Example:     "idempo outbox groups add erp --from now --topic 'billing.*' --reason \"new destination\" --dry-run\nidempo outbox groups add cdc --external --slot debezium --from now --reason \"Debezium\" --dry-run",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			g.Group = args[0]
			if f := checkWord("--from", g.From, outbox.FromBeginning, outbox.FromNow); f != nil {
				return f
			}
			if g.External != (g.Slot != "") {
				return usage("--external and --slot go together")
			}
			return a.groupDeed(c, &d, g, "events that it takes are kept until it has published them", "")
		},
	}
	f := c.Flags()
	f.StringVar(&g.From, "from", "", "`where` it begins: beginning or now")
	f.StringSliceVar(&g.Topics, "topic", []string{"*"}, "`topic` that it takes, * is any text; may be repeated")
	f.BoolVar(&g.External, "external", false, "somebody else publishes it")
	f.StringVar(&g.Slot, "slot", "", "`name` of the replication slot that an external one reads by")
	completeWords(c, "from", outbox.FromBeginning, outbox.FromNow)
	d.why(c)
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) groupsRemoveCommand() *cobra.Command {
	var d deed
	g := outbox.GroupParams{Action: outbox.GroupRemove}
	c := &cobra.Command{
		Use: "rm NAME", Short: "remove a group with its place in the log", Args: cobra.ExactArgs(1),
		Long:        "Remove a group: its place in the log and what it has set aside, dead events among it. Living relays of it stop.",
		Example:     "idempo outbox groups rm old --reason \"replaced by erp\" --dry-run\nidempo outbox groups rm old --reason \"replaced by erp\" --dry-run --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			g.Group = args[0]
			return a.groupDeed(c, &d, g, "what it has not published is not published by it, and what it set aside is gone", "what the group has not published is given up")
		},
	}
	d.why(c)
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) outboxAdoptCommand() *cobra.Command {
	var d deed
	g := outbox.GroupParams{Action: outbox.GroupAdopt}
	c := &cobra.Command{
		Use: "adopt", Short: "publish from a restored or upgraded database from now on",
		Long: "Publish from this database from now on, although it is not the server that was published from last: a restored backup, an\n" +
			"upgraded cluster. What was published before is not published again, what was not is published once, in the order of its key.",
		Example:     "idempo outbox adopt --group main --reason \"moved to the new cluster\" --dry-run\nidempo outbox adopt --group main --reason \"moved to the new cluster\" --dry-run --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.groupDeed(c, &d, g, "relays publish from this database from now on; make sure that no relay publishes from the other one",
				"if the other database is still published from, events go out twice")
		},
	}
	c.Flags().StringVar(&g.Group, "group", "main", "`name` of a group; all groups of the database are adopted")
	d.why(c)
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) outboxAppendCommand() *cobra.Command {
	var d deed
	var e outbox.Event
	var payload string
	var headers []string
	c := &cobra.Command{
		Use: "append", Short: "append one event by hand",
		Long:        "Append one event in a transaction of its own, as an application would: a correction, a test of a destination. The payload is\nthe text, or @FILE, byte for byte.",
		Example:     "idempo outbox append --source /ops --topic ops.test --type Test --reason \"test\" --dry-run\nidempo outbox append --source /ops --topic o.fix --key o-81 --type Fix --reason \"lost\" --dry-run",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.check(a); err != nil {
				return err
			}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, ":")
				if !ok {
					return usage("--header: write NAME:VALUE")
				}
				e.Headers = append(e.Headers, [2]string{name, strings.TrimSpace(value)})
			}
			if e.Source == "" || e.Topic == "" || e.Type == "" {
				return usage("--source, --topic and --type are required")
			}
			if name, isFile := strings.CutPrefix(payload, "@"); isFile {
				b, f := a.readSmall(name, 64<<20)
				if f != nil {
					return f
				}
				e.Payload = b
			} else if c.Flags().Changed("payload") {
				e.Payload = []byte(payload)
			}
			return a.atDeskOf(c, d.actor, false, func(ctx context.Context, _ <-chan struct{}, at *desk) error { return a.outboxAppend(ctx, at, &d, e) })
		},
	}
	f := c.Flags()
	f.StringVar(&e.Source, "source", "", "`where` the event comes from, a URI reference; required")
	f.StringVar(&e.Topic, "topic", "", "`topic`; required")
	f.StringVar(&e.Type, "type", "", "`type`, what happened; required")
	f.StringVar(&e.Key, "key", "", "`key` that order is kept within")
	f.StringVar(&e.Tenant, "tenant", "", "`tenant`; default default")
	f.StringVar(&e.ID, "id", "", "`uuid` of the event; else a new one")
	f.StringVar(&e.ContentType, "content-type", "", "`type` of the payload")
	f.StringVar(&payload, "payload", "", "`text`, or @file; none: a tombstone")
	f.StringSliceVar(&headers, "header", nil, "`name:value`; may be repeated")
	d.why(c)
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) outboxAppend(ctx context.Context, at *desk, d *deed, e outbox.Event) error {
	if d.dryRun {
		return a.sayGroup("append", e.Topic, true)
	}
	a.err.printf("it is published to every group that takes topic %s\n", escape(e.Topic))
	if err := d.ask(a, "Append it?"); err != nil {
		return err
	}
	id, err := at.Append(ctx, operator.AppendParams{By: at.by, Event: e, Reason: d.reason})
	if err != nil {
		return outboxFailure(err)
	}
	if a.json {
		return a.out.object(struct {
			Schema int    `json:"schema"`
			Action string `json:"action"`
			ID     string `json:"id"`
		}{1, "append", id})
	}
	a.out.line(id)
	return a.out.failed
}
