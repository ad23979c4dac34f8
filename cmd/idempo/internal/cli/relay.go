package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/publish"
	"github.com/idempo/idempo/cmd/idempo/internal/relaying"
	"github.com/idempo/idempo/outbox"
)

// relayFlags are those of idempo relay; the settings of a relay stand in config.RelaySettings.
type relayFlags struct {
	stores                     []string
	to, environment, retention string
	once                       bool
	settings                   map[string]*string
}

func (a *app) relayCommand() *cobra.Command {
	r := &relayFlags{settings: map[string]*string{}}
	c := &cobra.Command{
		Use: "relay", Short: "publish the events of committed transactions",
		Long: "Publish the events of committed transactions until told to stop: to what --to names, or to the relays of the configuration\n" +
			"file. Any number of relays of one group share the work; events of one key keep their order; a repeat carries the same id.\n" +
			"While the store or the destination is away it asks again. SIGTERM or Ctrl-C finishes what is sent; a second one ends at once.",
		Example:     "idempo relay --to stdout: --once\nidempo relay --to null: --once --group measure --from beginning",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe, exitInterrupted, exitPipe),
		RunE:        func(c *cobra.Command, _ []string) error { return a.relay(c, r) },
	}
	f := c.Flags()
	f.StringVar(&r.to, "to", "", "`destination`: nats:// kafka:// amqp:// https:// stdout: null:; else the relays of the file")
	f.BoolVar(&r.once, "once", false, "publish what is there, and end")
	f.StringVar(&r.environment, "environment", "", "`name` of the environment; a database of another one is refused")
	f.StringVar(&r.retention, "retention", "", "how `long` published events are kept; default 7d")
	for _, s := range config.RelaySettings() {
		value := new(string)
		doc := "`value`: " + s.Doc
		if s.Default != "" {
			doc += " Default " + s.Default + "."
		}
		f.StringVar(value, s.Flag, "", doc)
		r.settings[s.Flag] = value
		if s.Words != nil {
			completeWords(c, s.Flag, s.Words...)
		}
	}
	f.StringVar(&a.flags.config, "config", "", "configuration `file`; else $IDEMPO_CONFIG, ./idempo.yaml, the user's, the system's")
	f.StringArrayVar(&r.stores, "store", nil, "store `dsn`: a path of an SQLite file, postgres://… or mysql://…; may be repeated")
	f.StringVar(&a.flags.dataDir, "data-dir", "", "`folder` of the SQLite file and the digest key; else $IDEMPO_DATA_DIR, the user's")
	return c
}

// relayJobs are the groups to publish and their stores.
func (a *app) relayJobs(c *cobra.Command, r *relayFlags) (jobs []relaying.Job, err error) {
	var all []*config.Settings
	if len(r.stores) == 0 {
		s, err := a.settings(c)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	for _, dsn := range r.stores {
		src := a.source(c)
		src.Overrides = append(dropped(src.Overrides, "store"), config.Override{Path: "store", Value: a.storePath("store", dsn), Origin: "flag --store"})
		s, warnings, err := config.Load(src)
		for _, w := range warnings {
			a.err.line("warning: " + escape(w.String()))
		}
		if err != nil {
			return nil, err
		}
		if strings.Contains(config.MaskURL(dsn), "***") {
			a.err.line("warning: --store holds a password, and process lists show it: put it into IDEMPO_STORE or a configuration file")
		}
		all = append(all, s)
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, s := range all {
		relays, err := a.relays(c, r, s)
		if err != nil {
			return nil, err
		}
		store := s.Store
		store.AutoMigrate, store.MaxConns = false, max(1, 3/max(1, len(relays)))
		if s.Store.SQLite != "" {
			store.AutoMigrate = s.Store.AutoMigrate
		}
		for _, one := range relays {
			jobs = append(jobs, relaying.Job{Name: database.Name(s.Store), Relay: one, Log: log, Publish: publish.Options{Out: a.out, Logger: log, Allow: s.Gateway.Outbound.Allow, Ports: s.Gateway.Outbound.Ports},
				Open: func(ctx context.Context) (*database.Store, error) { return database.Open(ctx, store, log) }})
		}
	}
	return jobs, nil
}

func dropped(all []config.Override, path string) (kept []config.Override) {
	for _, o := range all {
		if o.Path != path {
			kept = append(kept, o)
		}
	}
	return kept
}

// relays are those of the command line, else those of the file.
func (a *app) relays(c *cobra.Command, r *relayFlags, s *config.Settings) ([]config.Relay, error) {
	o := s.Outbox
	if r.environment != "" {
		o.Environment = r.environment
	} else if v := a.env("IDEMPO_ENVIRONMENT"); v != "" {
		o.Environment = v
	}
	if text := orElse(r.retention, a.env("IDEMPO_RETENTION")); text != "" {
		d, err := config.ParseDuration(text)
		if err == nil && d <= 0 {
			err = errors.New("must be positive")
		}
		if err != nil {
			return nil, usage("--retention: %v", err)
		}
		o.Retention = d
	}
	given, from := map[string]string{}, map[string]string{}
	for _, x := range config.RelaySettings() {
		name := underscored(x.Flag)
		switch {
		case c.Flags().Changed(x.Flag):
			given[name], from[name] = *r.settings[x.Flag], "--"+x.Flag
		case a.env(x.Env) != "":
			given[name], from[name] = a.env(x.Env), x.Env
		}
	}
	to := orElse(r.to, a.env("IDEMPO_TO"))
	if to == "" && len(s.Relays) == 0 {
		return nil, &failure{exit: exitUsage, code: "usage", message: "say where to: --to, or relays in a configuration file", hint: "idempo relay --to stdout: --once"}
	}
	if to == "" {
		if len(given) > 0 {
			return nil, usage("settings of a relay on the command line go with --to; those of the file's relays stand in it")
		}
		for i := range s.Relays {
			s.Relays[i].Options.Environment, s.Relays[i].Options.Retention = o.Environment, o.Retention
		}
		return s.Relays, nil
	}
	from["to"] = "--to"
	relay, problems := config.RelayOf(to, given, o, func(name string) string { return from[name] })
	if len(problems) > 0 {
		return nil, usage("%s: %s", problems[0].Path, problems[0].Message)
	}
	return []config.Relay{relay}, nil
}

func underscored(flag string) string {
	b := []byte(flag)
	for i := range b {
		if b[i] == '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

func (a *app) relay(c *cobra.Command, r *relayFlags) error {
	jobs, err := a.relayJobs(c, r)
	if err != nil {
		return err
	}
	insisted, stop, cancel := a.twice(c)
	defer cancel()
	ctx, end := context.WithCancel(insisted)
	defer end()
	go func() {
		select {
		case <-stop:
			end()
		case <-ctx.Done():
		}
	}()
	for i := range jobs {
		jobs[i].Publish.Broken = func(error) { end() } // whoever read stdout is gone
	}
	if r.once {
		return a.relayOnce(ctx, jobs)
	}
	runner := relaying.Start(ctx, jobs)
	done := make(chan error, 1)
	go func() { done <- runner.Wait() }()
	told := map[string]string{}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-insisted.Done():
			return &failure{exit: exitInterrupted, silent: true}
		case err := <-done:
			return relayFailure(err)
		case <-tick.C:
			for _, s := range runner.States() {
				if at := s.Store + " " + s.Group; told[at] != s.State {
					told[at] = s.State
					a.err.printf("relay %s of %s: %s\n", escape(s.Group), escape(s.Store), s.State)
				}
			}
		}
	}
}

// relayOnce drains each job, one after the other.
func (a *app) relayOnce(ctx context.Context, jobs []relaying.Job) error {
	var left outbox.Left
	var failed error
	for _, j := range jobs {
		l, err := relaying.Once(ctx, j)
		left.Waiting, left.Dead = left.Waiting+l.Waiting, left.Dead+l.Dead
		if err != nil && failed == nil {
			failed = err
		}
	}
	switch {
	case ctx.Err() != nil && failed != nil:
		return &failure{exit: exitInterrupted, silent: true}
	case failed != nil:
		return relayFailure(failed)
	case left.Waiting+left.Dead > 0:
		return &failure{exit: exitNo, code: "left", message: fmt.Sprintf("%d events wait, %d are dead", left.Waiting, left.Dead), hint: "idempo outbox list --status dead"}
	}
	return nil
}

// relayFailure gives what stopped a relay its place in the table of exit codes.
func relayFailure(err error) error {
	switch f := outboxFailure(err).(type) { //nolint:errorlint // made right here
	case nil:
		return nil
	case *failure:
		return f
	}
	if database.ReadOnly(err) {
		return &failure{exit: exitUnreachable, code: "standby", message: err.Error()}
	}
	if _, ok := errors.AsType[*database.Unreachable](err); ok {
		return storeFailure(err)
	}
	return storeFailure(err)
}
