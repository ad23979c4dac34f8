package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

func (a *app) migrateCommand() *cobra.Command {
	c := &cobra.Command{Use: "migrate", Short: "bring the schema of the configured store up, or look at it",
		Example: "idempo migrate status --store ./idempo.db\nidempo migrate up --store ./idempo.db"}
	c.AddCommand(a.migrateStatusCommand(), a.migrateUpCommand(), a.migratePrintCommand(), a.migrateDownCommand())
	return c
}

// schema is the schema of the configured store, and how it is.
type schema struct {
	*database.Schema
	store config.Store
	was   database.Status
}

// onSchema opens the schema of the configured store, looks at it and does do; a signal ends the context.
func (a *app) onSchema(c *cobra.Command, do func(ctx context.Context, s schema) error) error {
	settings, err := a.settings(c)
	if err != nil {
		return err
	}
	m, err := database.Schemas(settings.Store)
	if err != nil {
		return storeFailure(err)
	}
	defer m.Close()
	ctx, cancel := a.interruptible(c)
	defer cancel()
	was, err := m.Status(ctx)
	if err != nil {
		return storeFailure(err)
	}
	return do(ctx, schema{m, settings.Store, was})
}

func (a *app) migrateStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "show which migrations are applied and which are missing; exit 1 if any is",
		Example:     "idempo migrate status --store ./idempo.db\nidempo migrate status --store ./idempo.db --json",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onSchema(c, func(_ context.Context, s schema) error { return a.migrateStatus(s) })
		},
	}
	c.Flags().Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

// migrateStatus prints the status; what does not fit, or is missing, decides the exit code.
func (a *app) migrateStatus(s schema) error {
	if err := a.printStatus(s.store, s.was); err != nil {
		return err
	}
	switch {
	case s.was.Newer || s.was.Problem != nil:
		message := "the schema is of a newer release"
		if s.was.Problem != nil {
			message = s.was.Problem.Error()
		}
		return &failure{exit: exitUnsafe, code: "schema_new", message: message}
	case len(s.was.Pending) > 0:
		return &failure{exit: exitNo, silent: true}
	}
	return nil
}

func (a *app) printStatus(store config.Store, st database.Status) error {
	if a.json {
		type applied struct {
			Version   int       `json:"version"`
			Name      string    `json:"name"`
			AppliedAt time.Time `json:"applied_at"`
			AppliedBy string    `json:"applied_by"`
		}
		out := struct {
			Schema  int       `json:"schema"`
			Store   string    `json:"store"`
			Version int       `json:"version"`
			Known   int       `json:"known"`
			Applied []applied `json:"applied"`
			Pending []string  `json:"pending"`
		}{Schema: 1, Store: database.Name(store), Version: st.Version, Known: st.Known, Applied: []applied{}, Pending: st.Pending}
		for _, m := range st.Applied {
			out.Applied = append(out.Applied, applied{m.Version, m.Name, m.At.UTC(), m.By})
		}
		if out.Pending == nil {
			out.Pending = []string{}
		}
		return a.out.object(out)
	}
	a.out.printf("store    %s\nschema   version %d, this binary knows %d\n", escape(database.Name(store)), st.Version, st.Known)
	for _, m := range st.Applied {
		a.out.line(fmt.Sprintf("applied  %04d_%s  %s by %s", m.Version, escape(m.Name), a.moment(m.At), escape(m.By)))
	}
	for _, name := range st.Pending {
		a.out.line("pending  " + escape(name))
	}
	return nil
}

func (a *app) migrateUpCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "up", Short: "apply the missing migrations; any number of processes may do so at once",
		Example:     "idempo migrate up --store ./idempo.db\nidempo migrate up --config idempo.yaml",
		Annotations: exits(exitUnreachable, exitUnsafe, exitInterrupted),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onSchema(c, a.migrateUp)
		},
	}
	a.storeFlags(c)
	return c
}

func (a *app) migrateUp(ctx context.Context, s schema) error {
	if s.was.Newer || s.was.Problem != nil {
		return &failure{exit: exitUnsafe, code: "schema_new", message: fmt.Sprintf("the schema has version %d, this binary knows %d: nothing was done", s.was.Version, s.was.Known)}
	}
	if err := s.Up(ctx); err != nil {
		if ctx.Err() != nil {
			return &failure{exit: exitInterrupted, code: "interrupted", message: "stopped; what is applied stays, and another migrate up goes on"}
		}
		return storeFailure(err)
	}
	if s.was.Version >= s.was.Known {
		a.out.printf("schema version %d, nothing to do\n", s.was.Version)
		return nil
	}
	a.out.printf("schema version %d, was %d\n", s.was.Known, s.was.Version)
	return nil
}

func (a *app) migratePrintCommand() *cobra.Command {
	var from, to int
	var grants string
	c := &cobra.Command{
		Use: "print", Short: "print the migrations as SQL, for another role or tool; no store is opened",
		Example: "idempo migrate print --store ./idempo.db\nidempo migrate print --store postgres://127.0.0.1/app --grants app",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.settings(c)
			if err != nil {
				return err
			}
			text, err := database.Script(s.Store, from, to, grants)
			if err != nil {
				return &failure{exit: exitUsage, code: "usage", message: err.Error()}
			}
			a.out.printf("%s", text)
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&from, "from", 0, "the `version` that is there already")
	f.IntVar(&to, "to", 0, "the `version` to reach; 0: the newest")
	f.StringVar(&grants, "grants", "", "give this `role` the rights that serve needs (PostgreSQL; MySQL: NAME or NAME@HOST)")
	a.storeFlags(c)
	return c
}

func (a *app) migrateDownCommand() *cobra.Command {
	var q asking
	c := &cobra.Command{
		Use: "down", Short: "take the newest migration back, unless rows would be lost",
		Example:     "idempo migrate down --store ./idempo.db --yes\nidempo migrate down --config idempo.yaml --yes",
		Annotations: exits(exitNo, exitUnreachable, exitUnsafe),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.onSchema(c, func(ctx context.Context, s schema) error { return a.migrateDown(ctx, s, q) })
		},
	}
	c.Flags().BoolVar(&q.yes, "yes", false, "do not ask")
	a.storeFlags(c)
	return c
}

func (a *app) migrateDown(ctx context.Context, s schema, q asking) error {
	if s.was.Version == 0 {
		return &failure{exit: exitNo, code: "wrong_state", message: "no migration is applied; nothing was done"}
	}
	last := s.was.Applied[len(s.was.Applied)-1]
	if f := a.confirm(fmt.Sprintf("Take back migration %04d_%s of %s?", last.Version, last.Name, database.Name(s.store)), q); f != nil {
		return f
	}
	if err := s.Down(ctx); err != nil {
		return &failure{exit: exitNo, code: "wrong_state", message: err.Error()}
	}
	a.out.printf("schema version %d, was %d\n", s.was.Version-1, s.was.Version)
	return nil
}
