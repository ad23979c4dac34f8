package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/operator"
)

func (a *app) keysCommand() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "list keys, and show what became of one",
		Example: "idempo keys list --state in_doubt\nidempo keys list --operation gateway.upstream --json"}
	c.AddCommand(a.keysListCommand(), a.keysShowCommand())
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
	f := c.Flags()
	f.StringVar(&l.state, "state", "", "`state`: issued pending completed failed in_doubt expired")
	f.StringVar(&l.operation, "operation", "", "`name` of the operation; the gateway's begin with gateway.")
	f.StringVar(&l.tenant, "tenant", "", "`tenant`")
	f.StringVar(&l.surface, "surface", "", "where the call came in: `surface` http grpc inbox webhook saga run task client mcp")
	f.StringVar(&l.outcome, "outcome", "", "`outcome` of a finished key: completed completed_failing")
	f.StringVar(&l.older, "older-than", "", "last changed at least this `long` ago")
	f.StringVar(&l.newer, "newer-than", "", "last changed less than this `long` ago")
	f.BoolVar(&l.stuck, "stuck", false, "pending longer than three times the operation's usual time")
	f.StringVar(&l.reference, "resource", "", "what was made or referred to: `type:id`")
	f.IntVar(&l.limit, "limit", 0, "stop after this `many`; 0: all")
	f.StringVar(&l.after, "after", "", "go on after this `cursor`")
	f.Bool("json", false, "one JSON object per line")
	a.storeFlags(c)
	return c
}

func surfaces() []string {
	return []string{"http", "grpc", "inbox", "webhook", "saga", "run", "task", "client", "mcp"}
}

// params checks the filters before any store is opened.
func (l listFlags) params() (operator.FindParams, error) {
	p := operator.FindParams{Tenant: l.tenant, Operation: l.operation, Surface: l.surface, State: idempo.State(l.state), Outcome: operator.Outcome(l.outcome), After: l.after}
	states := make([]string, 0, 6)
	for _, s := range operator.States() {
		states = append(states, string(s))
	}
	if l.state != "" {
		if f := checkWord("--state", l.state, states...); f != nil {
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
	for _, d := range []struct {
		flag, text string
		to         *time.Duration
	}{{"--older-than", l.older, &p.OlderThan}, {"--newer-than", l.newer, &p.NewerThan}} {
		if d.text == "" {
			continue
		}
		v, err := config.ParseDuration(d.text)
		if err != nil {
			return p, usage("%s: %v", d.flag, err)
		}
		*d.to = v
	}
	if l.reference != "" {
		kind, id, ok := strings.Cut(l.reference, ":")
		if !ok || kind == "" || id == "" {
			return p, usage("--resource: write TYPE:ID, as in charge:ch_91")
		}
		p.Reference = idempo.Resource{Type: kind, ID: id}
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
	_, store, err := a.opened(ctx, c)
	if err != nil {
		return err
	}
	defer store.Close()
	lister, ok := store.Store.(operator.Lister)
	if !ok {
		return &failure{exit: exitUsage, code: "usage", message: "this store cannot list its keys"}
	}
	w := &keyWriter{a: a, stuck: l.stuck, lister: lister, usual: map[string]usualTime{}}
	for {
		page, err := lister.List(ctx, p)
		if err != nil {
			return interrupted(ctx, err)
		}
		for _, r := range page.Records {
			if l.limit > 0 && w.shown == l.limit {
				a.err.printf("more: --after %s\n", operator.Cursor(w.last))
				return w.end()
			}
			if err := w.row(ctx, r); err != nil {
				return interrupted(ctx, err)
			}
		}
		if page.Next == "" {
			return w.end()
		}
		p.After = page.Next
	}
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &failure{exit: exitInterrupted, silent: true}
	}
	return err
}

type usualTime struct {
	d     time.Duration
	known bool
}

// keyWriter writes a list row by row.
type keyWriter struct {
	a      *app
	lister operator.Lister
	stuck  bool
	usual  map[string]usualTime
	shown  int
	last   idempo.Key
}

const keyRow = "%-28s  %-9s  %8s  %s\n"

func (w *keyWriter) row(ctx context.Context, r idempo.Record) error {
	w.last = r.Key
	if w.stuck {
		u, ok := w.usual[r.Key.Operation]
		if !ok {
			var err error
			if u.d, u.known, err = operator.Usual(ctx, w.lister, r.Key.Operation); err != nil {
				return err
			}
			w.usual[r.Key.Operation] = u
		}
		if !operator.Stuck(r, u.d, u.known) {
			return nil
		}
	}
	w.shown++
	if w.a.json {
		return w.a.out.object(listedOf(r))
	}
	if w.shown == 1 {
		w.a.out.printf(keyRow, "KEY", "STATE", "CHANGED", "OPERATION")
	}
	w.a.out.printf(keyRow, r.Ref(), r.State, ago(r.Now.Sub(r.ChangedAt)), escape(r.Key.Operation))
	return w.a.out.failed
}

func (w *keyWriter) end() error {
	if w.shown == 0 && !w.a.json {
		w.a.err.line("no keys match")
	}
	return nil
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
