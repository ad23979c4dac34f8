package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
)

func (a *app) inboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "inbox", Short: "messages that failed, wait, or wait for a person",
		Long:    "Messages of inboxes that did not have their effect at once: those that are retried, wait for their turn, or wait for a\nperson. What had its effect leaves nothing here: keys list --surface inbox has it.",
		Example: "idempo inbox status\nidempo inbox list --status dead"}
	c.AddCommand(a.inboxStatusCommand(), a.inboxListCommand(), a.inboxShowCommand(), a.inboxActCommand(operator.ActionRetry), a.inboxActCommand(operator.ActionSkip),
		a.inboxActCommand(operator.ActionDiscard), a.inboxReleaseCommand())
	return c
}

// messageFlags say which messages are meant.
type messageFlags struct {
	subscriber, tenant, status, reason, lane, source, id, older, newer string
}

func (m *messageFlags) register(a *app, c *cobra.Command, acts bool) {
	f := c.Flags()
	f.StringVar(&m.subscriber, "subscriber", "", "`name` of the inbox; without it all")
	f.StringVar(&m.tenant, "tenant", "", "`tenant`")
	f.StringVar(&m.status, "status", "", "`status`: retrying stored dead parked in_doubt; started done skipped")
	name := "reason"
	if acts {
		name = "because" // --reason is why it is done
	}
	f.StringVar(&m.reason, name, "", "`why` it is dead, parked or stored: attempts permanent conflict missing_id bad_id unparsable too_old gap lane later skip")
	f.StringVar(&m.lane, "lane", "", "`lane`")
	f.StringVar(&m.source, "source", "", "`source` of the message")
	f.StringVar(&m.id, "id", "", "`id` of the message")
	f.StringVar(&m.older, "older-than", "", "received at least this `long` ago")
	f.StringVar(&m.newer, "newer-than", "", "received less than this `long` ago")
	completeWords(c, "status", messageStatusWords()...)
	_ = c.RegisterFlagCompletionFunc("subscriber", a.completeSubscribers)
}

func messageStatusWords() (words []string) {
	for _, s := range operator.MessageStatuses() {
		words = append(words, string(s))
	}
	return words
}

// find checks the filters, and how one message is named, before any store is opened.
func (m messageFlags) find(args []string) (p operator.FindMessages, one bool, err error) {
	p = operator.FindMessages{Subscriber: m.subscriber, Tenant: m.tenant, Status: inbox.Status(m.status), Reason: m.reason, Lane: m.lane, Source: m.source, ID: m.id}
	if m.status != "" {
		if f := checkWord("--status", m.status, messageStatusWords()...); f != nil {
			return p, false, f
		}
	}
	if err := ages(m.older, m.newer, func(d time.Duration) { p.OlderThan = d }, func(d time.Duration) { p.NewerThan = d }); err != nil {
		return p, false, err
	}
	if len(args) == 0 {
		return p, false, nil
	}
	if n, err := strconv.ParseInt(args[0], 10, 64); err == nil && n > 0 {
		p.Number = n
		return p, true, nil
	}
	if _, err := operator.ParseRef(args[0]); err != nil {
		return p, false, usage("%s is neither the number of a message, as idempo inbox list shows it, nor a reference", quoteWord(args[0]))
	}
	p.Ref = strings.ToLower(args[0])
	return p, true, nil
}

// completeSubscribers completes names of inboxes from the store, and never with an error.
func (a *app) completeSubscribers(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	a.quietly(c, func(ctx context.Context, d *desk) {
		all, _ := d.Subscribers(ctx, operator.SubscribersParams{By: d.by})
		for _, s := range all {
			if strings.HasPrefix(s.Subscriber, prefix) {
				names = append(names, s.Subscriber)
			}
		}
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) inboxStatusCommand() *cobra.Command {
	var m messageFlags
	c := &cobra.Command{
		Use: "status", Short: "count what inboxes keep",
		Long:        "Count, for each inbox, the messages that are retried, stored behind others, dead or parked, and the lanes that wait for\na person. The age is that of the oldest message that waits for anything.",
		Example:     "idempo inbox status\nidempo inbox status --subscriber billing --json",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.atDesk(c, func(ctx context.Context, d *desk) error { return a.inboxStatus(ctx, d, m) })
		},
	}
	f := c.Flags()
	f.StringVar(&m.subscriber, "subscriber", "", "`name` of the inbox; without it all")
	f.StringVar(&m.tenant, "tenant", "", "`tenant`")
	_ = c.RegisterFlagCompletionFunc("subscriber", a.completeSubscribers)
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

func (a *app) inboxStatus(ctx context.Context, d *desk, m messageFlags) error {
	all, err := d.Subscribers(ctx, operator.SubscribersParams{By: d.by, Tenant: m.tenant, Subscriber: m.subscriber})
	if err != nil {
		return err
	}
	for i, s := range all {
		if a.json {
			if err := a.out.object(operator.SubscriberRowOf(s)); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			a.out.printf("%-20s %8s %8s %8s %8s %8s %8s %8s\n", "SUBSCRIBER", "RETRYING", "STORED", "DEAD", "PARKED", "IN DOUBT", "BLOCKED", "OLDEST")
		}
		oldest := "–"
		if !s.Oldest.IsZero() {
			oldest = ago(s.Now.Sub(s.Oldest))
		}
		a.out.printf("%-20s %8d %8d %8d %8d %8d %8d %8s\n", escape(s.Subscriber), s.Statuses[inbox.StatusRetrying], s.Statuses[inbox.StatusStored], s.Statuses[inbox.StatusDead],
			s.Statuses[inbox.StatusParked], s.Statuses[inbox.StatusInDoubt], s.BlockedLanes, oldest)
	}
	if len(all) == 0 && !a.json {
		a.err.line("no inbox keeps anything")
	}
	return a.out.failed
}

func (a *app) inboxListCommand() *cobra.Command {
	var m messageFlags
	var limit int
	var after string
	c := &cobra.Command{
		Use: "list", Short: "list messages that failed, wait, or wait for a person",
		Long: "List messages that did not have their effect at once; all filters that are given must match. The list is by inbox, each\n" +
			"in the order in which they came, is complete, and holds no page in memory.",
		Example:     "idempo inbox list --status dead\nidempo inbox list --subscriber billing --status parked --reason conflict --json",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			find, _, err := m.find(nil)
			if err == nil && limit < 0 {
				err = usage("--limit: must not be negative")
			}
			if err != nil {
				return err
			}
			find.After = after
			return a.atDesk(c, func(ctx context.Context, d *desk) error { return a.inboxList(ctx, d, find, limit) })
		},
	}
	m.register(a, c, false)
	f := c.Flags()
	f.IntVar(&limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

func (a *app) inboxList(ctx context.Context, d *desk, find operator.FindMessages, limit int) error {
	return pages(a, "messages", 500, limit, find.After, func(limit int, after string) ([]inbox.Receipt, string, error) {
		find.Limit, find.After = limit, after
		page, err := d.Messages(ctx, operator.ListMessagesParams{By: d.by, Find: find})
		return page.Messages, page.Next, err
	}, func(r inbox.Receipt, first bool) error {
		if a.json {
			return a.out.object(operator.MessageRowOf(r))
		}
		if first {
			a.out.printf(messageFormat, "NUMBER", "STATUS", "RECEIVED", "SUBSCRIBER", "ID")
		}
		a.out.line(a.messageRow(r))
		return a.out.failed
	})
}

const messageFormat = "%-8s  %-18s  %8s  %-14s  %s\n"

// messageRow is a message in a list.
func (a *app) messageRow(r inbox.Receipt) string {
	status := string(r.Status)
	if r.Reason != "" {
		status += " " + r.Reason
	}
	text := fmt.Sprintf("%-18s", escape(status))
	on := a.colors(a.p.Out)
	switch r.Status {
	case inbox.StatusDead:
		text = paint(on, "31", text)
	case inbox.StatusParked, inbox.StatusInDoubt:
		text = paint(on, "1;33", text)
	case inbox.StatusRetrying:
		text = paint(on, "36", text)
	}
	return fmt.Sprintf("%-8d  %s  %8s  %-14s  %s", r.Seq, text, ago(r.Now.Sub(r.ReceivedAt)), escape(r.Subscriber), orDash(escape(r.Message.ID)))
}

func (a *app) inboxShowCommand() *cobra.Command {
	var m messageFlags
	var body bool
	c := &cobra.Command{
		Use: "show [NUMBER|REFERENCE]", Short: "show one message: why it is here, its failures, what can be done",
		Long: "Show one message, by its number as lists print it, its reference as the audit prints it, or the first that the filters\n" +
			"find. Its body is shown with --body only, byte for byte.",
		Example:     "idempo inbox show 7\nidempo inbox show --subscriber billing --id m-1 --json",
		Args:        cobra.MaximumNArgs(1),
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, args []string) error {
			find, one, err := m.find(args)
			if err == nil && !one && find == (operator.FindMessages{}) {
				err = &failure{exit: exitUsage, code: "usage", message: "name the message: its number, or by filters", hint: "idempo inbox list shows the numbers"}
			}
			if err != nil {
				return err
			}
			return a.atDeskOf(c, "", body, func(ctx context.Context, _ <-chan struct{}, d *desk) error {
				shown, err := d.Message(ctx, operator.ShowMessageParams{By: d.by, Find: find})
				switch {
				case err != nil:
					return err
				case body && shown.Receipt.Unreadable != nil:
					return &failure{exit: exitNo, code: "result_unreadable", message: "the body is encrypted and cannot be opened", hint: "name its key in security.encryption_keys"}
				case body:
					_, err = a.out.Write(shown.Receipt.Message.Body)
					return err
				case a.json:
					return a.out.object(operator.MessageDetailOf(shown))
				}
				a.printMessage(shown)
				return a.out.failed
			})
		},
	}
	m.register(a, c, false)
	c.Flags().BoolVar(&body, "body", false, "write the body, nothing else")
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

// printMessage writes a message for a person.
func (a *app) printMessage(shown operator.ShownMessage) {
	r, m := shown.Receipt, shown.Receipt.Message
	row := func(name, format string, args ...any) {
		a.out.line(fmt.Sprintf("%-12s ", name) + escape(fmt.Sprintf(format, args...)))
	}
	maybe := func(name, text string) {
		if text != "" {
			row(name, "%s", text)
		}
	}
	row("message", "%d, %s", r.Seq, operator.MessageKey(r).Ref())
	row("subscriber", "%s", r.Subscriber)
	row("tenant", "%s", m.Tenant)
	row("source", "%s", orDash(m.Source))
	row("id", "%s", orDash(m.ID))
	maybe("type", m.Type)
	maybe("lane", m.Lane)
	maybe("version", m.Version)
	maybe("position", m.Position)
	status := string(r.Status)
	if r.Reason != "" {
		status += ", " + r.Reason
	}
	row("status", "%s, since %s", status, ago(r.Now.Sub(r.ChangedAt)))
	if r.Holds && m.Lane != "" {
		row("", "later messages of its lane wait for it")
	}
	row("received", "%s", a.moment(r.ReceivedAt))
	if !r.NextAt.IsZero() {
		row("due", "%s", a.moment(r.NextAt))
	}
	switch {
	case r.Sealed != "":
		row("body", "encrypted under %s", r.Sealed)
	case r.Bodiless():
		row("body", "gone since %s", a.moment(r.BodyUntil))
	default:
		row("body", "%d bytes, %d headers", len(m.Body), len(m.Headers))
	}
	if r.Seen > 0 {
		row("came again", "%d times, last %s", r.Seen, a.moment(r.SeenAt))
	}
	row("attempts", "%d", r.Attempts)
	for _, f := range r.Failures {
		row("failure", "%s", a.moment(f.At))
		a.out.line(wrap(escape(f.Error), strings.Repeat(" ", 13), 80))
	}
	a.printAudit(shown.Audit)
	a.printNext(shown.Next)
}
