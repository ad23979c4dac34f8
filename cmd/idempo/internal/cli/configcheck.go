package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "check, print and explain the configuration file",
		Example: "idempo config check\nidempo config check --example"}
	c.AddCommand(a.configCheckCommand())
	return c
}

func (a *app) configCheckCommand() *cobra.Command {
	var print, example, schema, strict bool
	c := &cobra.Command{
		Use: "check [FILE]", Short: "read the configuration as serve would, and say everything that is wrong",
		Long: "Read the configuration as serve would, and say everything that is wrong with it, each mistake\n" +
			"as FILE:LINE:COL: path: message. Without FILE the file is searched as for every command.",
		Example: "idempo config check\nidempo config check idempo.yaml --print\nidempo config check --example\nidempo config check --schema",
		Args:    cobra.MaximumNArgs(1), Annotations: exits(exitWarnings),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case example:
				a.out.printf("%s", config.Example())
				return nil
			case schema:
				_, err := a.out.Write(config.JSONSchema())
				return err
			}
			if len(args) == 1 {
				a.flags.config = args[0]
			}
			src := a.source(c)
			if src.File == "" {
				return &failure{exit: exitUsage, code: "config_invalid", message: "no configuration file: name one, or make ./idempo.yaml",
					hint: "idempo config check --example > idempo.yaml"}
			}
			s, warnings, err := config.Load(src)
			for _, w := range warnings {
				a.err.line("warning: " + escape(w.String()))
			}
			if err != nil {
				return err
			}
			if err := a.printSettings(s, print); err != nil {
				return err
			}
			if strict && len(warnings) > 0 {
				return &failure{exit: exitWarnings, silent: true}
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&print, "print", false, "show every value and where it comes from; secrets are ***")
	f.BoolVar(&example, "example", false, "show a file with every key, its meaning and its default")
	f.BoolVar(&schema, "schema", false, "show the JSON Schema of the file")
	f.BoolVar(&strict, "strict", false, "exit 2 if there are warnings")
	f.Bool("json", false, "one JSON object")
	a.storeFlags(c)
	return c
}

func (a *app) printSettings(s *config.Settings, all bool) error {
	if a.json {
		out := struct {
			Schema   int              `json:"schema"`
			File     string           `json:"file"`
			Valid    bool             `json:"valid"`
			Settings []config.Setting `json:"settings,omitempty"`
		}{Schema: 1, File: s.File, Valid: true}
		if all {
			out.Settings = s.List()
		}
		return a.out.object(out)
	}
	if !all {
		guarded := 0
		for _, r := range s.Gateway.Routes {
			if r.Operation != "" {
				guarded++
			}
		}
		a.out.printf("%s: valid, %d routes, %d of them guarded\n", escape(s.File), len(s.Gateway.Routes), guarded)
		return nil
	}
	width := 0
	list := s.List()
	lines := make([]string, len(list))
	for i, set := range list {
		lines[i] = set.Path + ": " + set.Value
		if n := len([]rune(lines[i])); n <= 60 {
			width = max(width, n)
		}
	}
	for i, set := range list {
		a.out.line(escape(fmt.Sprintf("%-*s  # %s", width, lines[i], set.Origin)))
	}
	return nil
}
