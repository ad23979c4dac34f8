package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

func (a *app) serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "guard an HTTP service: gateway, dashboard, health and metrics",
		Long: "Stand in front of an HTTP service, so that repeated calls have no second effect. Without a\n" +
			"configuration file --upstream is all it takes: every POST and PATCH with an Idempotency-Key is\n" +
			"guarded, records live in an SQLite file, and only this machine can connect.\n" +
			"SIGHUP, or a changed configuration file, is taken over without a restart where it can be.\n" +
			"SIGTERM or Ctrl-C drains: running requests finish first. A second signal ends at once.",
		Example:     "idempo serve --upstream http://127.0.0.1:9000\nidempo serve --upstream http://127.0.0.1:9000 --store ./idempo.db --admin-listen 127.0.0.1:0",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe),
		RunE:        func(c *cobra.Command, _ []string) error { return a.serve(c) },
	}
	f := c.Flags()
	f.StringVar(&a.flags.upstream, "upstream", "", "guard the service at this `url`, one route for everything")
	f.StringVar(&a.flags.listen, "listen", "", "`address` for callers; else listen.gateway, 127.0.0.1:8080")
	f.StringVar(&a.flags.adminListen, "admin-listen", "", "`address` of dashboard, health and metrics; else listen.admin, 127.0.0.1:7070")
	a.storeFlags(c)
	return c
}

func (a *app) serve(c *cobra.Command) error {
	settings, err := a.settings(c)
	if err != nil {
		return err
	}
	b := a.build()
	s := server.New(settings, server.Options{Log: a.err, Terminal: terminal(a.p.Err), Version: b.Version, Revision: b.Commit,
		Load: func() (*config.Settings, config.Problems, error) { return config.Load(a.source(c)) }})
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	starting, cancel := a.interruptible(c)
	err = s.Start(starting)
	cancel()
	if err != nil {
		if starting.Err() != nil && errors.Is(err, context.Canceled) {
			return &failure{exit: exitInterrupted, silent: true}
		}
		return startFailure(err)
	}
	a.err.printf("%s", s.Banner())
	for running := true; running; {
		select {
		case <-hangup:
			_ = s.Reload() // said in the log
		case got := <-a.signals:
			if running = got == syscall.SIGHUP; running {
				_ = s.Reload()
			}
		}
	}
	a.err.line("draining; a second signal ends at once")
	ctx, cancel := a.interruptible(c)
	defer cancel()
	if left := s.Stop(ctx); left > 0 {
		return &failure{exit: exitNo, code: "cut", message: "stopped with requests still running; they settle by their on_crash", hint: "idempo keys list --state in_doubt"}
	}
	return nil
}

// startFailure gives the reasons of a start that failed their places in the table of exit codes.
func startFailure(err error) error {
	if e, ok := errors.AsType[*server.PortInUse](err); ok {
		return &failure{exit: exitUsage, code: "port_in_use", message: e.Error(), hint: "give another one: --listen, --admin-listen"}
	}
	return storeFailure(err)
}

// storeFailure does the same for every command that opens the store.
func storeFailure(err error) error {
	if e, ok := errors.AsType[*database.Unreachable](err); ok {
		return &failure{exit: exitUnreachable, code: "store_unavailable", message: e.Error()}
	}
	if e, ok := errors.AsType[*database.Unfit](err); ok {
		f := &failure{exit: exitUnsafe, code: e.Code, message: e.Text}
		if e.Code == "schema_old" {
			f.hint = "idempo migrate up"
		}
		return f
	}
	if e, ok := errors.AsType[*server.Refused](err); ok {
		return &failure{exit: exitUnsafe, code: e.Code, message: e.Text}
	}
	return err
}
