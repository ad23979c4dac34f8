package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/webhook"
)

// hookEventFlags say which events are meant.
type hookEventFlags struct {
	source, tenant, status, reason, kind, key, since, until string
	blocked                                                 bool
}

func hookWords() []string {
	return []string{"stored", "running", "handled", "skipped", "stale", "retrying", "held", "in_doubt", "dead", "parked"}
}

func (e *hookEventFlags) register(a *app, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&e.source, "source", "", "`name` of the source; without it all")
	f.StringVar(&e.tenant, "tenant", "", "`tenant`")
	f.StringVar(&e.status, "status", "", "`status`: "+strings.Join(hookWords(), " "))
	f.StringVar(&e.reason, "reason-code", "", "`why`: attempts permanent gone conflict suspect-replay no-id unparsable no-version stale filtered asked …")
	f.StringVar(&e.kind, "type", "", "`type` of the event")
	f.StringVar(&e.key, "key", "", "delivery `id` as the provider wrote it")
	f.StringVar(&e.since, "since", "", "received at or after this `time`, or so long ago")
	f.StringVar(&e.until, "until", "", "received before this `time`, or so long ago")
	completeWords(c, "status", hookWords()...)
	_ = c.RegisterFlagCompletionFunc("source", a.completeSources)
}

// completeSources completes names of sources from the store, and never with an error.
func (a *app) completeSources(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	a.quietly(c, func(ctx context.Context, d *desk) {
		all, _ := d.Subscribers(ctx, operator.SubscribersParams{By: d.by})
		for _, s := range all {
			if name, ok := strings.CutPrefix(s.Subscriber, "webhook:"); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// instant reads a moment, or how long ago it was.
func hookInstant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil {
		return time.Time{}, usage("%s: write a moment as 2026-12-31T00:00:00Z, or how long ago: %v", flag, err)
	}
	return time.Now().Add(-d), nil
}

// find checks the filters before any store is opened.
func (e hookEventFlags) find(args []string) (p operator.FindHooks, err error) {
	p = operator.FindHooks{Source: e.source, Tenant: e.tenant}
	if len(args) > 0 {
		p.Receipt = strings.ToUpper(args[0])
		if id, _, _ := strings.Cut(p.Receipt, "/"); len(id) != 26 {
			return p, usage("%s is no receipt, as idempo webhooks list shows it", quoteWord(args[0]))
		}
	}
	if e.status != "" {
		if f := checkWord("--status", e.status, hookWords()...); f != nil {
			return p, f
		}
	}
	if p.Since, err = hookInstant("--since", e.since); err != nil {
		return p, err
	}
	if p.Until, err = hookInstant("--until", e.until); err != nil {
		return p, err
	}
	switch e.status {
	case "":
	case "handled":
		p.Statuses = []inbox.Status{inbox.StatusDone}
	case "stale":
		p.Statuses = []inbox.Status{inbox.StatusSkipped}
	case "held", "running":
		p.Statuses = []inbox.Status{inbox.StatusStored}
	default:
		p.Statuses = []inbox.Status{inbox.Status(e.status)}
	}
	p.MatchFunc = func(r inbox.Receipt) bool {
		return (e.status == "" || webhook.ItemOf(r).Status == e.status) && (e.reason == "" || e.reason == r.Reason) && (e.kind == "" || e.kind == r.Message.Type)
	}
	return p, nil
}

// named tells whether anything says which events are meant.
func (e hookEventFlags) named() bool { return e != (hookEventFlags{}) }

// byKey finds the ids that a delivery id may stand for, from what is known of the sources.
func (e hookEventFlags) byKey(d *desk, p *operator.FindHooks) error {
	if e.key == "" {
		return nil
	}
	w := d.settings.Webhooks.Config
	profiles := slices.Concat(w.Providers, webhook.Providers())
	for _, s := range w.Sources {
		if e.source != "" && s.Name != e.source {
			continue
		}
		for _, profile := range profiles {
			if profile.Name == s.Provider {
				p.IDs = append(p.IDs, profile.KeysOf(e.key)...)
			}
		}
	}
	if len(p.IDs) == 0 { // the configuration knows nothing of it: whatever any provider could mean
		for _, profile := range profiles {
			p.IDs = append(p.IDs, profile.KeysOf(e.key)...)
		}
	}
	slices.Sort(p.IDs)
	p.IDs = slices.Compact(p.IDs)
	return nil
}

// hookRow is an event in a list, as JSON.
type hookRow struct {
	Schema      int    `json:"schema"`
	Receipt     string `json:"receipt"`
	Item        int    `json:"item"`
	Source      string `json:"source"`
	Provider    string `json:"provider"`
	DeliveryID  string `json:"delivery_id"`
	Type        string `json:"type"`
	Status      string `json:"status"`
	Reason      string `json:"reason"`
	Attempts    int    `json:"attempts"`
	NextAttempt string `json:"next_attempt,omitempty"`
	ReceivedAt  string `json:"received_at"`
	Seen        int64  `json:"seen"`
	Lane        string `json:"lane"`
	Version     string `json:"version"`
	FirstError  string `json:"first_error"`
	LastError   string `json:"last_error"`
	Waiting     int    `json:"waiting,omitempty"`
}

func hookTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func hookRowOf(it webhook.Item) hookRow {
	return hookRow{Schema: 1, Receipt: it.Receipt, Item: it.Index, Source: it.Source, Provider: it.Provider, DeliveryID: it.DeliveryID, Type: it.Type, Status: it.Status,
		Reason: it.Reason, Attempts: it.Attempts, NextAttempt: hookTime(it.NextAt), ReceivedAt: hookTime(it.ReceivedAt), Seen: it.Seen, Lane: it.Lane, Version: it.Version,
		FirstError: it.FirstError(), LastError: it.LastError(), Waiting: it.Waiting}
}

const hookFormat = "%-28s  %-18s  %6s  %-10s  %s\n"

// hookLine is an event in a list, for a person.
func (a *app) hookLine(r inbox.Receipt) string {
	it := webhook.ItemOf(r)
	status := it.Status
	if it.Reason != "" && it.Reason != it.Status {
		status += " " + it.Reason
	}
	text := fmt.Sprintf("%-18s", escape(status))
	on := a.colors(a.p.Out)
	switch it.Status {
	case "dead":
		text = paint(on, "31", text)
	case "parked", "in_doubt":
		text = paint(on, "1;33", text)
	case "retrying":
		text = paint(on, "36", text)
	}
	return fmt.Sprintf("%-28s  %s  %6s  %-10s  %s", it.Ref(), text, ago(r.Now.Sub(r.ReceivedAt)), escape(it.Source), orDash(escape(orElse(it.Type, it.DeliveryID))))
}

func (a *app) webhooksListCommand() *cobra.Command {
	var e hookEventFlags
	var limit int
	var after string
	c := &cobra.Command{
		Use: "list", Short: "list events that came in, the newest first",
		Long: "List events of webhooks, the newest first; all filters that are given must match. --blocked lists what lanes wait for\n" +
			"instead, the oldest first. The list is complete, and holds no page in memory.",
		Example:     "idempo webhooks list --status dead\nidempo webhooks list --source gh --since 1h --json\nidempo webhooks list --blocked",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			find, err := e.find(nil)
			if err == nil && limit < 0 {
				err = usage("--limit: must not be negative")
			}
			if err == nil && e.blocked && e.status != "" {
				err = usage("--blocked and --status do not go together")
			}
			if err != nil {
				return err
			}
			find.After, find.Newest = after, true
			return a.atDeskOf(c, "", true, func(ctx context.Context, _ <-chan struct{}, d *desk) error {
				if err := e.byKey(d, &find); err != nil {
					return err
				}
				if e.blocked {
					return a.listBlocked(ctx, d, find)
				}
				return a.listHooks(ctx, d, find, limit)
			})
		},
	}
	e.register(a, c)
	f := c.Flags()
	f.BoolVar(&e.blocked, "blocked", false, "what lanes wait for")
	f.IntVar(&limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

// printHook writes one line of a list.
func (a *app) printHook(r inbox.Receipt, first bool) error {
	if a.json {
		return a.out.object(hookRowOf(webhook.ItemOf(r)))
	}
	if first {
		a.out.printf(hookFormat, "RECEIPT", "STATUS", "AGE", "SOURCE", "TYPE OR ID")
	}
	a.out.line(a.hookLine(r))
	return a.out.failed
}

func (a *app) listHooks(ctx context.Context, d *desk, find operator.FindHooks, limit int) error {
	return pages(a, "events", 200, limit, find.After, func(limit int, after string) ([]inbox.Receipt, string, error) {
		find.Limit, find.After = limit, after
		page, err := d.Hooks(ctx, operator.HooksParams{By: d.by, Find: find})
		return page.Messages, page.Next, err
	}, a.printHook)
}

// listBlocked shows for each lane that waits what it waits for, and how many wait behind that.
func (a *app) listBlocked(ctx context.Context, d *desk, find operator.FindHooks) error {
	find.Newest, find.Limit = false, 500
	find.Statuses = []inbox.Status{inbox.StatusStored, inbox.StatusRetrying, inbox.StatusDead, inbox.StatusParked, inbox.StatusInDoubt}
	var all []inbox.Receipt
	for {
		page, err := d.Hooks(ctx, operator.HooksParams{By: d.by, Find: find})
		if err != nil {
			return err
		}
		for _, r := range page.Messages {
			if r.Holds && r.Message.Lane != "" {
				all = append(all, r)
			}
		}
		if find.After = page.Next; page.Next == "" {
			break
		}
	}
	blocked := webhook.BlockedBy(all)
	for i, it := range blocked {
		if a.json {
			if err := a.out.object(hookRowOf(it)); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			a.out.printf("%-28s  %-18s  %7s  %-10s  %s\n", "RECEIPT", "STATUS", "WAITING", "SOURCE", "LANE")
		}
		a.out.printf("%-28s  %-18s  %7d  %-10s  %s\n", it.Ref(), strings.TrimSpace(it.Status+" "+it.Reason), it.Waiting, escape(it.Source), escape(it.Lane))
	}
	if len(blocked) == 0 && !a.json {
		a.err.line("no lane waits")
	}
	return a.out.failed
}
