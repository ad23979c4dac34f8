package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/operator"
)

func (a *app) keysCommand() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "find keys, explain what became of one, settle it",
		Example: "idempo keys list --state in_doubt\nidempo keys list --operation gateway.upstream --json"}
	c.AddCommand(a.keysListCommand(), a.keysShowCommand(), a.keysResolveCommand(), a.keysReleaseCommand(), a.keysRetryCommand(), a.keysPurgeCommand(),
		a.keysAuditCommand())
	return c
}

// opened opens the configured store for reading. Its schema is not touched.
func (a *app) opened(ctx context.Context, c *cobra.Command) (*config.Settings, *database.Store, error) {
	s, err := a.settings(c)
	if err != nil {
		return nil, nil, err
	}
	s.Store.AutoMigrate = false
	store, err := database.Open(ctx, s.Store, nil)
	if err != nil {
		return nil, nil, storeFailure(err)
	}
	return s, store, nil
}

// listFlags are the filters of keys list.
type listFlags struct {
	state, operation, tenant, surface, outcome, reference string
	older, newer                                          string
	stuck                                                 bool
	limit                                                 int
	after                                                 string
}

func (a *app) keysListCommand() *cobra.Command {
	var l listFlags
	c := &cobra.Command{
		Use: "list", Short: "list keys, filtered; all filters must match",
		Long: "List keys by state, operation, tenant, age and more; all filters that are given must match.\n" +
			"The list is in the order of tenant, operation and key, is complete, and holds no page in memory.",
		Example: "idempo keys list --state in_doubt --older-than 5m\nidempo keys list --operation gateway.upstream --newer-than 1h\n" +
			"idempo keys list --stuck --json",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE:        func(c *cobra.Command, _ []string) error { return a.keysList(c, l) },
	}
	l.filters(a, c, "")
	f := c.Flags()
	f.IntVar(&l.limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&l.after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

// filters adds the flags that say which keys are meant. --resource of a resolve is what was made.
func (l *listFlags) filters(a *app, c *cobra.Command, action operator.Action) {
	f := c.Flags()
	f.StringVar(&l.state, "state", "", "`state`: issued pending completed failed in_doubt expired")
	f.StringVar(&l.operation, "operation", "", "`name` of the operation; the gateway's begin with gateway.")
	f.StringVar(&l.tenant, "tenant", "", "`tenant`; the gateway's global one is default")
	f.StringVar(&l.surface, "surface", "", "where the call came in: `surface` http grpc inbox webhook saga run task client mcp")
	f.StringVar(&l.outcome, "outcome", "", "`outcome` of a finished key: completed completed_failing")
	f.StringVar(&l.older, "older-than", "", "last changed at least this `long` ago")
	f.StringVar(&l.newer, "newer-than", "", "last changed less than this `long` ago")
	f.BoolVar(&l.stuck, "stuck", false, "pending longer than three times the operation's usual time")
	completeWords(c, "state", stateWords()...)
	completeWords(c, "surface", surfaces()...)
	completeWords(c, "outcome", string(operator.OutcomeCompleted), string(operator.OutcomeFailing))
	_ = c.RegisterFlagCompletionFunc("operation", a.completeOperations)
	if action != operator.ActionResolve {
		f.StringVar(&l.reference, "resource", "", "what was made or referred to: `type:id`")
	}
}

func stateWords() (words []string) {
	for _, s := range operator.States() {
		words = append(words, string(s))
	}
	return words
}

func surfaces() []string {
	return []string{"http", "grpc", "inbox", "webhook", "saga", "run", "task", "client", "mcp"}
}

// ages reads the flags --older-than and --newer-than; what is not given is not set.
func ages(older, newer string, setOlder, setNewer func(time.Duration)) error {
	for _, d := range []struct {
		flag, text string
		set        func(time.Duration)
	}{{"--older-than", older, setOlder}, {"--newer-than", newer, setNewer}} {
		if d.text == "" {
			continue
		}
		v, err := config.ParseDuration(d.text)
		if err != nil {
			return usage("%s: %v", d.flag, err)
		}
		d.set(v)
	}
	return nil
}

// params checks the filters before any store is opened.
func (l listFlags) params() (operator.FindParams, error) {
	p := operator.FindParams{Tenant: l.tenant, Operation: l.operation, Surface: l.surface, State: idempo.State(l.state), Outcome: operator.Outcome(l.outcome), After: l.after}
	if l.state != "" {
		if f := checkWord("--state", l.state, stateWords()...); f != nil {
			return p, f
		}
	}
	if l.surface != "" {
		if f := checkWord("--surface", l.surface, surfaces()...); f != nil {
			return p, f
		}
	}
	if l.outcome != "" {
		if f := checkWord("--outcome", l.outcome, string(operator.OutcomeCompleted), string(operator.OutcomeFailing)); f != nil {
			return p, f
		}
	}
	if err := ages(l.older, l.newer, func(d time.Duration) { p.OlderThan = d }, func(d time.Duration) { p.NewerThan = d }); err != nil {
		return p, err
	}
	if l.reference != "" {
		ref, err := parseResource("--resource", l.reference)
		if err != nil {
			return p, err
		}
		p.Reference = ref
	}
	if l.stuck {
		if l.state != "" && l.state != string(idempo.StatePending) {
			return p, usage("--stuck: only pending keys can be stuck, and --state is %s", l.state)
		}
		p.State = idempo.StatePending
	}
	if l.limit < 0 {
		return p, usage("--limit: must not be negative")
	}
	if _, err := p.WithDefaults(); err != nil {
		return p, usage("--after: %v", err)
	}
	return p, nil
}

func (a *app) keysList(c *cobra.Command, l listFlags) error {
	p, err := l.params()
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
	return pages(a, "keys", 500, l.limit, p.After, func(limit int, after string) ([]idempo.Record, string, error) {
		p.Limit, p.After = limit, after
		page, err := d.List(ctx, operator.ListParams{By: d.by, Find: p, Stuck: l.stuck})
		if err != nil {
			return nil, "", interrupted(ctx, err)
		}
		if n := len(page.Records); page.Next != "" && n == limit { // right behind what was shown
			page.Next = operator.Cursor(page.Records[n-1].Key)
		}
		return page.Records, page.Next, nil
	}, a.printListed)
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &failure{exit: exitInterrupted, silent: true}
	}
	return err
}

const keyRow = "%-28s  %-9s  %8s  %s\n"

// printListed writes a row of a list, its heading before the first.
func (a *app) printListed(r idempo.Record, first bool) error {
	if a.json {
		return a.out.object(operator.RowOf(r))
	}
	if first {
		a.out.printf(keyRow, "KEY", "STATE", "CHANGED", "OPERATION")
	}
	on := a.colors(a.p.Out)
	a.out.printf("%s  %s  %8s  %s\n", r.Ref(), paintState(on, r.State, 9), ago(r.Now.Sub(r.ChangedAt)), escape(r.Key.Operation))
	return a.out.failed
}

// paintState is a state, padded, in a colour that says whether anybody has to do something.
func paintState(on bool, s idempo.State, width int) string {
	text := fmt.Sprintf("%-*s", width, s)
	switch s {
	case idempo.StateInDoubt:
		return paint(on, "1;33", text)
	case idempo.StateFailed, operator.StateUnreadable:
		return paint(on, "31", text)
	case idempo.StatePending:
		return paint(on, "36", text)
	case idempo.StateCompleted:
		return paint(on, "32", text)
	}
	return text
}

// ago is an age in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}
