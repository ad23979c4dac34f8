package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
)

// auditFlags are the filters of keys audit.
type auditFlags struct {
	tenant, operation, by, action, outcome string
	older, newer                           string
	newest                                 bool
	limit                                  int
	after                                  string
}

func (a *app) keysAuditCommand() *cobra.Command {
	var l auditFlags
	c := &cobra.Command{
		Use: "audit [REFERENCE]", Short: "list what operators did, and what they were refused",
		Long: "List the audit: every settling, release, retry, purge and reveal, by whom and why, the oldest first. Rows are " +
			"committed with the change, are never altered, and outlive their keys. With --json this is the export.",
		Example:     "idempo keys audit --newest --limit 20\nidempo keys audit --outcome refused --newer-than 7d --json",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		Args:        cobra.MaximumNArgs(1),
		RunE:        func(c *cobra.Command, args []string) error { return a.keysAudit(c, l, args) },
	}
	f := c.Flags()
	f.StringVar(&l.tenant, "tenant", "", "`tenant`")
	f.StringVar(&l.operation, "operation", "", "`name` of the operation")
	f.StringVar(&l.by, "by", "", "`actor`")
	f.StringVar(&l.action, "action", "", "`action`: resolve release retry purge reveal")
	f.StringVar(&l.outcome, "outcome", "", "`outcome`: done refused")
	f.StringVar(&l.older, "older-than", "", "at least this `long` ago")
	f.StringVar(&l.newer, "newer-than", "", "less than this `long` ago")
	f.BoolVar(&l.newest, "newest", false, "the newest first")
	f.IntVar(&l.limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&l.after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

// params checks the filters before any store is opened. Ages count from this machine's clock.
func (l auditFlags) params(args []string) (p operator.ReadAuditParams, err error) {
	find := operator.AuditParams{Key: idempo.Key{Tenant: l.tenant, Operation: l.operation}, Actor: l.by, Action: operator.Action(l.action),
		Outcome: l.outcome, Newest: l.newest, After: l.after, Limit: 500}
	if l.action != "" {
		var words []string
		for _, a := range operator.Actions() {
			words = append(words, string(a))
		}
		if f := checkWord("--action", l.action, words...); f != nil {
			return p, f
		}
	}
	if l.outcome != "" {
		if f := checkWord("--outcome", l.outcome, operator.OutcomeDone, operator.OutcomeRefused); f != nil {
			return p, f
		}
	}
	back := func(to *time.Time) func(time.Duration) {
		return func(d time.Duration) { *to = time.Now().Add(-d) }
	}
	if err := ages(l.older, l.newer, back(&find.Until), back(&find.Since)); err != nil {
		return p, err
	}
	if l.limit < 0 {
		return p, usage("--limit: must not be negative")
	}
	if _, err := find.WithDefaults(); err != nil {
		return p, usage("--after: %v", err)
	}
	p.Find = find
	if len(args) == 1 {
		if _, err := operator.ParseRef(args[0]); err != nil {
			return p, usage("%s is %v", quoteWord(args[0]), err)
		}
		p.KeyOf.Ref = args[0]
	}
	return p, nil
}

func (a *app) keysAudit(c *cobra.Command, l auditFlags, args []string) error {
	p, err := l.params(args)
	if err != nil {
		return err
	}
	ctx, cancel := a.interruptible(c)
	defer cancel()
	d, err := a.desk(ctx, c, "", false)
	if err != nil {
		return err
	}
	defer d.close()
	p.By = d.by
	return pages(a, "audit rows", 500, l.limit, p.Find.After, func(limit int, after string) ([]operator.Entry, string, error) {
		p.Find.Limit, p.Find.After = limit, after
		page, err := d.Audit(ctx, p)
		if err != nil {
			return nil, "", interrupted(ctx, err)
		}
		return page.Entries, page.Next, nil
	}, func(e operator.Entry, _ bool) error { return a.printEntry(e) })
}

// printEntry writes an audit row: for a person two lines or more, of 80 columns where the data allows it.
func (a *app) printEntry(e operator.Entry) error {
	if a.json {
		return a.out.object(operator.EntryRowOf(e))
	}
	outcome := e.Outcome
	if e.Code != "" {
		outcome = e.Code
	}
	a.out.printf("%s  %-7s  %-28s  %s\n", a.moment(e.At), e.Action, orDash(e.Key.Ref()), escape(outcome))
	a.out.line(wrap(escape(entryText(e)), "  ", 80))
	return a.out.failed
}

// entryText is what changed, by whom and why.
func entryText(e operator.Entry) string {
	after := e.After
	if after == "" {
		after = "removed"
	}
	text := "by " + e.Actor
	if e.Outcome == operator.OutcomeDone && e.Action != operator.ActionReveal {
		text = fmt.Sprintf("%s → %s, attempt %d, %s", e.Before, after, e.Attempt, text)
	} else if e.Before != "" {
		text = fmt.Sprintf("%s, attempt %d, %s", e.Before, e.Attempt, text)
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Evidence != "" {
		text += " (" + e.Evidence + ")"
	}
	return text
}
