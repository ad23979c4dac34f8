package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

func (a *app) outboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "outbox", Short: "events of committed transactions: what is published, waits, is dead",
		Long:    "Events that leave when their transaction has committed: how each group of relays stands, what holds it up, and what\nwaits for a person.",
		Example: "idempo outbox status\nidempo outbox list --status dead"}
	c.AddCommand(a.outboxStatusCommand(), a.outboxListCommand(), a.outboxShowCommand(), a.outboxAppendCommand(), a.outboxActCommand(operator.ActionRetry),
		a.outboxActCommand(operator.ActionSkip), a.outboxActCommand(operator.ActionDiscard), a.outboxReplayCommand(), a.outboxPauseCommand(outbox.GroupPause),
		a.outboxPauseCommand(outbox.GroupResume), a.outboxGroupsCommand(), a.outboxAdoptCommand(), a.outboxCDCCommand())
	return c
}

// eventFlags say which events are meant.
type eventFlags struct {
	group, tenant, status, key, keyRef, older, newer string
	ids, topics, types                               []string
}

func (e *eventFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&e.group, "group", "main", "`name` of the group whose states are meant")
	f.StringVar(&e.tenant, "tenant", "", "`tenant`")
	f.StringVar(&e.status, "status", "", "`status` in the group: pending published waiting dead skipped")
	f.StringSliceVar(&e.ids, "id", nil, "`id` of an event; may be repeated")
	f.StringSliceVar(&e.topics, "topic", nil, "`topic`, * is any text; may be repeated")
	f.StringSliceVar(&e.types, "type", nil, "`type` of the event; may be repeated")
	f.StringVar(&e.key, "key", "", "`key` that order is kept within")
	f.StringVar(&e.keyRef, "key-ref", "", "`reference` of the claim that the event was appended in")
	f.StringVar(&e.older, "older-than", "", "appended at least this `long` ago")
	f.StringVar(&e.newer, "newer-than", "", "appended less than this `long` ago")
	completeWords(c, "status", eventStateWords()...)
}

func eventStateWords() (words []string) {
	for _, s := range operator.EventStates() {
		words = append(words, string(s))
	}
	return words
}

// find checks the filters, and how one event is named, before any store is opened. Ages count from this machine's clock.
func (e eventFlags) find(args []string) (p operator.FindEvents, err error) {
	p = operator.FindEvents{Group: e.group, Tenant: e.tenant, State: outbox.State(e.status), IDs: e.ids, Topics: e.topics, Types: e.types, Key: e.key, KeyRef: e.keyRef}
	if e.group == "" {
		return p, usage("--group: must not be empty")
	}
	if e.status != "" {
		if f := checkWord("--status", e.status, eventStateWords()...); f != nil {
			return p, f
		}
	}
	for _, d := range []struct {
		flag, text string
		to         *time.Time
	}{{"--older-than", e.older, &p.Until}, {"--newer-than", e.newer, &p.Since}} {
		if d.text == "" {
			continue
		}
		v, err := config.ParseDuration(d.text)
		if err != nil {
			return p, usage("%s: %v", d.flag, err)
		}
		*d.to = time.Now().Add(-v)
	}
	p.IDs = append(p.IDs, args...)
	return p, nil
}

// filtered says whether anything but the group is given.
func filtered(p operator.FindEvents) bool {
	return p.Tenant != "" || len(p.IDs) > 0 || len(p.Topics) > 0 || len(p.Types) > 0 || p.Key != "" || p.KeyRef != "" || p.State != "" || !p.Since.IsZero() || !p.Until.IsZero()
}

// outboxFailure gives the errors of an outbox their places in the table of exit codes.
func outboxFailure(err error) error {
	for _, e := range []struct {
		is         error
		exit       int
		code, hint string
	}{
		{is: outbox.ErrForeignDatabase, exit: exitUnsafe, code: "foreign_database", hint: "idempo outbox adopt"},
		{is: outbox.ErrEnvironment, exit: exitUnsafe, code: "environment", hint: "start the relay with the environment of its database, or against the right one"},
		{is: outbox.ErrFrom, exit: exitUsage, code: "from_needed", hint: "add --from beginning or --from now"},
		{is: outbox.ErrGroup, exit: exitNo, code: "group", hint: "idempo outbox groups lists them"},
		{is: outbox.ErrKept, exit: exitNo, code: "not_kept", hint: ""},
		{is: outbox.ErrStandby, exit: exitUnreachable, code: "standby", hint: ""},
	} {
		if errors.Is(err, e.is) {
			return &failure{exit: e.exit, code: e.code, message: err.Error(), hint: e.hint}
		}
	}
	return err
}

func (a *app) outboxStatusCommand() *cobra.Command {
	var group string
	c := &cobra.Command{
		Use: "status", Short: "tell how each group stands, and what holds it up",
		Long: "Tell for each group how many events wait to be published, since when, and who holds them up: a dead event, a destination,\n" +
			"a partition without a relay, a pause. Sessions and replication slots that keep rows are named, and topics that nobody takes.",
		Example:     "idempo outbox status\nidempo outbox status --group main --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.atDesk(c, func(ctx context.Context, d *desk) error {
				s, err := d.OutboxStatus(ctx, operator.OutboxStatusParams{By: d.by, Group: group})
				if err != nil {
					return outboxFailure(err)
				}
				return a.sayOutbox(s)
			})
		},
	}
	c.Flags().StringVar(&group, "group", "", "`name` of the group; without it all")
	c.Flags().Bool("json", false, "one JSON object per group")
	a.storeFlags(c)
	return c
}

func (a *app) sayOutbox(s outbox.Status) error {
	for i, g := range s.Groups {
		if a.json {
			if err := a.out.object(operator.GroupRowOf(g)); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			a.out.printf("%-20s %9s %8s %8s %8s %8s %7s\n", "GROUP", "PENDING", "OLDEST", "WAITING", "DEAD", "BLOCKED", "RELAYS")
		}
		oldest := "–"
		if g.Oldest > 0 {
			oldest = ago(g.Oldest)
		}
		a.out.printf("%-20s %9d %8s %8d %8d %8d %7d\n", escape(g.Name), g.Pending, oldest, g.Waiting, g.Dead, g.BlockedKeys, len(g.Relays))
		if g.Paused {
			a.out.line("  paused: idempo outbox resume --group " + escape(g.Name))
		}
		if len(g.PausedTopics) > 0 {
			a.out.line("  paused topics: " + escape(strings.Join(g.PausedTopics, " ")))
		}
		if g.Foreign {
			a.out.line("  published from another database last: idempo outbox adopt")
		}
		for _, h := range g.Holders {
			a.out.line("  held by " + escape(holderText(h)))
		}
	}
	if a.json {
		return a.out.failed
	}
	if len(s.Groups) == 0 {
		a.err.line("no group publishes from this outbox yet; the first relay makes one: idempo relay --to …")
	}
	a.out.printf("log: %d rows, %d bytes", s.Rows, s.Bytes)
	if !s.Kept.IsZero() {
		a.out.printf(", since %s", a.moment(s.Kept))
	}
	a.out.line("")
	if s.Environment != "" {
		a.out.line("environment: " + escape(s.Environment))
	}
	if s.Standby {
		a.out.line("read from a standby, or a read-only server")
	}
	for _, t := range s.Unmatched {
		a.out.printf("no group takes topic %s: %d rows, %d bytes, the oldest %s\n", escape(t.Topic), t.Rows, t.Bytes, ago(t.Oldest))
	}
	for _, h := range s.Holders {
		a.out.line("kept by " + escape(holderText(h)))
	}
	return a.out.failed
}

func holderText(h outbox.Holder) string {
	text := h.Kind
	if h.Text != "" {
		text += " " + h.Text
	}
	if h.Age > 0 {
		text += ", for " + strings.TrimSuffix(ago(h.Age), " ago")
	}
	return text
}

func (a *app) outboxListCommand() *cobra.Command {
	var e eventFlags
	var limit int
	var after string
	c := &cobra.Command{
		Use: "list", Short: "list events, each with its status in a group",
		Long: "List events of the log and those that were set aside, in the order in which they were appended; all filters that are\n" +
			"given must match. The list is complete as far as events are kept, and holds no page in memory.",
		Example:     "idempo outbox list --status dead\nidempo outbox list --topic 'orders.*' --newer-than 1h --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			find, err := e.find(nil)
			if err == nil && limit < 0 {
				err = usage("--limit: must not be negative")
			}
			if err != nil {
				return err
			}
			find.After = after
			return a.atDesk(c, func(ctx context.Context, d *desk) error { return outboxFailure(a.outboxList(ctx, d, find, limit)) })
		},
	}
	e.register(c)
	f := c.Flags()
	f.IntVar(&limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

func (a *app) outboxList(ctx context.Context, d *desk, find operator.FindEvents, limit int) error {
	var now time.Time
	return pages(a, "events", 500, limit, find.After, func(limit int, after string) ([]outbox.Aside, string, error) {
		find.Limit, find.After = limit, after
		page, err := d.Events(ctx, operator.ListEventsParams{By: d.by, Find: find})
		now = page.Now
		return page.Events, page.Next, err
	}, func(e outbox.Aside, first bool) error {
		if a.json {
			return a.out.object(operator.EventRowOf(e))
		}
		if first {
			a.out.printf(eventFormat, "ID", "STATUS", "APPENDED", "TOPIC")
		}
		a.out.line(a.eventRow(e, now))
		return a.out.failed
	})
}

const eventFormat = "%-36s  %-9s  %8s  %s\n"

// eventRow is an event in a list.
func (a *app) eventRow(e outbox.Aside, now time.Time) string {
	text := fmt.Sprintf("%-9s", operator.EventRowOf(e).Status)
	on := a.colors(a.p.Out)
	switch e.State {
	case outbox.StateDead:
		text = paint(on, "31", text)
	case outbox.StateWaiting:
		text = paint(on, "1;33", text)
	case outbox.StatePublished:
		text = paint(on, "32", text)
	}
	return fmt.Sprintf("%-36s  %s  %8s  %s", e.ID, text, ago(now.Sub(e.Time)), escape(e.Topic))
}

func (a *app) outboxShowCommand() *cobra.Command {
	var group string
	var payload bool
	c := &cobra.Command{
		Use: "show ID", Short: "show one event: its status, failures, what can be done",
		Long:        "Show one event by its id. Its payload is shown with --payload only, byte for byte.",
		Example:     "idempo outbox show 0190b5b2-7c3e-7a41-9d2f-2f6d1c7f0a11\nidempo outbox show 0190b5b2-7c3e-7a41-9d2f-2f6d1c7f0a11 --group erp --json",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			return a.atDesk(c, func(ctx context.Context, d *desk) error {
				shown, err := d.Event(ctx, operator.ShowEventParams{By: d.by, Group: group, ID: strings.ToLower(args[0]), Payload: payload})
				switch {
				case err != nil:
					return outboxFailure(err)
				case payload && shown.Event.Sealed != "":
					return &failure{exit: exitNo, code: "result_unreadable", message: "the payload is encrypted and cannot be opened here", hint: "its key is " + shown.Event.Sealed}
				case payload:
					_, err = a.out.Write(shown.Event.Payload)
					return err
				case a.json:
					return a.out.object(operator.EventDetailOf(shown))
				}
				a.printEvent(shown)
				return a.out.failed
			})
		},
	}
	c.Flags().StringVar(&group, "group", "main", "`name` of the group whose states are meant")
	c.Flags().BoolVar(&payload, "payload", false, "write the payload, nothing else")
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

// printEvent writes an event for a person.
func (a *app) printEvent(shown operator.ShownEvent) {
	e := shown.Event
	row := func(name, format string, args ...any) {
		a.out.line(fmt.Sprintf("%-12s ", name) + escape(fmt.Sprintf(format, args...)))
	}
	maybe := func(name, text string) {
		if text != "" {
			row(name, "%s", text)
		}
	}
	row("event", "%s", e.ID)
	row("topic", "%s", e.Topic)
	row("type", "%s", e.Type)
	row("source", "%s", e.Source)
	row("tenant", "%s", e.Tenant)
	maybe("key", e.Key)
	row("status", "%s in group %s", operator.EventRowOf(e).Status, shown.Group)
	maybe("cause", e.Trace.KeyRef)
	row("number", "%d, partition %d", e.Seq, e.Partition)
	row("appended", "%s", a.moment(e.Time))
	if !e.FirstAt.IsZero() {
		row("set aside", "%s, %d attempts", a.moment(e.FirstAt), e.Attempts)
		if e.Holds {
			row("", "later events of its key wait for it")
		}
	}
	if !e.NextAt.IsZero() {
		row("due", "%s", a.moment(e.NextAt))
	}
	maybe("first error", e.FirstError)
	maybe("last error", e.LastError)
	a.printAudit(shown.Audit)
	a.printNext(shown.Next)
}
