package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/webhook"
)

// sourceRow is a source of webhooks, as JSON.
type sourceRow struct {
	Schema     int          `json:"schema"`
	Source     string       `json:"source"`
	Provider   string       `json:"provider"`
	LastEvent  string       `json:"last_event,omitempty"`
	Secrets    []secretUsed `json:"secrets"`
	Stored     int64        `json:"stored"`
	Retrying   int64        `json:"retrying"`
	Dead       int64        `json:"dead"`
	Parked     int64        `json:"parked"`
	InDoubt    int64        `json:"in_doubt"`
	Blocked    int64        `json:"blocked_lanes"`
	Configured bool         `json:"configured"`
}

type secretUsed struct {
	ID       string `json:"id"`
	LastUsed string `json:"last_used,omitempty"` // among the latest 1,000 events
}

func (a *app) webhooksSourcesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "sources", Short: "how the sources stand: last event, secrets in use, what waits",
		Long: "Show for each source when an event last came, which secret verified lately, and how many events wait. When a secret was\n" +
			"last used is read from the latest 1,000 events; refusals write nothing, and are counted in the metrics.",
		Example:     "idempo webhooks sources\nidempo webhooks sources --json",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.atDeskOf(c, "", true, func(ctx context.Context, _ <-chan struct{}, d *desk) error { return a.listSources(ctx, d) })
		},
	}
	c.Flags().Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

func (a *app) listSources(ctx context.Context, d *desk) error {
	rows, err := sourcesOf(ctx, d)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if a.json {
			if err := a.out.object(r); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			a.out.printf("%-16s %-14s %-25s %6s %6s %6s %6s  %s\n", "SOURCE", "PROVIDER", "LAST EVENT", "STORED", "RETRY", "DEAD", "PARKED", "SECRETS")
		}
		var secrets []string
		for _, s := range r.Secrets {
			secrets = append(secrets, s.ID+map[bool]string{true: " (unused)"}[s.LastUsed == ""])
		}
		last := "–"
		if t, err := time.Parse(time.RFC3339Nano, r.LastEvent); err == nil {
			last = a.moment(t)
		}
		a.out.printf("%-16s %-14s %-25s %6d %6d %6d %6d  %s\n", escape(r.Source), escape(r.Provider), last, r.Stored, r.Retrying, r.Dead, r.Parked, escape(strings.Join(secrets, ", ")))
	}
	if len(rows) == 0 && !a.json {
		a.err.line("no source is configured, and none has left anything in the store")
	}
	return a.out.failed
}

// sourcesOf joins what is configured with what the store has.
func sourcesOf(ctx context.Context, d *desk) ([]sourceRow, error) {
	counted, err := d.Subscribers(ctx, operator.SubscribersParams{By: d.by})
	if err != nil {
		return nil, err
	}
	var rows []sourceRow
	for _, s := range d.settings.Webhooks.Config.Sources {
		row := sourceRow{Schema: 1, Source: s.Name, Provider: s.Provider, Secrets: []secretUsed{}, Configured: true}
		for _, secret := range s.Secrets {
			row.Secrets = append(row.Secrets, secretUsed{ID: secret.ID()})
		}
		rows = append(rows, row)
	}
	for _, c := range counted {
		name, ok := strings.CutPrefix(c.Subscriber, "webhook:")
		if !ok {
			continue
		}
		i := slices.IndexFunc(rows, func(r sourceRow) bool { return r.Source == name })
		if i < 0 {
			i = len(rows)
			rows = append(rows, sourceRow{Schema: 1, Source: name, Secrets: []secretUsed{}})
		}
		row := &rows[i]
		row.Stored, row.Retrying, row.Dead = c.Statuses[inbox.StatusStored], c.Statuses[inbox.StatusRetrying], c.Statuses[inbox.StatusDead]
		row.Parked, row.InDoubt, row.Blocked = c.Statuses[inbox.StatusParked], c.Statuses[inbox.StatusInDoubt], c.BlockedLanes
		page, err := d.Hooks(ctx, operator.HooksParams{By: d.by, Find: operator.FindHooks{Source: name, Newest: true, Limit: 1000}})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Messages {
			row.saw(webhook.ItemOf(r))
		}
	}
	slices.SortFunc(rows, func(a, b sourceRow) int { return strings.Compare(a.Source, b.Source) })
	return rows, nil
}

// saw takes an event into account; the newest comes first.
func (r *sourceRow) saw(it webhook.Item) {
	if r.LastEvent == "" {
		r.LastEvent = hookTime(it.ReceivedAt)
	}
	if r.Provider == "" {
		r.Provider = it.Provider
	}
	if it.Secret == "" {
		return
	}
	i := slices.IndexFunc(r.Secrets, func(s secretUsed) bool { return s.ID == it.Secret }) // not secret: its id
	if i < 0 {
		i = len(r.Secrets)
		r.Secrets = append(r.Secrets, secretUsed{ID: it.Secret})
	}
	if r.Secrets[i].LastUsed == "" {
		r.Secrets[i].LastUsed = hookTime(it.ReceivedAt)
	}
}
