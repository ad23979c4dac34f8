package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idempo/idempo/cmd/idempo/internal/spell"
)

// root builds the command tree of one run.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "idempo",
		Short: "one business intent, one effect, however often it arrives",
		Long: "idempo guards services, so that a repeated call has no second effect, and shows operators\n" +
			"what became of every key.",
		Example: "idempo demo --once\nidempo serve --upstream http://127.0.0.1:9000\nidempo keys list --state in_doubt\nidempo config check",
	}
	root.SetIn(a.p.In)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"})
	root.PersistentFlags().StringVar(&a.color, "color", "auto", "colours: auto, always or never")
	for _, c := range []*cobra.Command{
		a.serveCommand(), a.demoCommand(), a.demoChild(), a.keysCommand(), a.reconcileCommand(), a.contractCommand(), a.inboxCommand(), a.outboxCommand(), a.relayCommand(),
		a.webhooksCommand(), a.migrateCommand(), a.configCommand(), a.doctorCommand(), a.completionCommand(), a.versionCommand(), a.helpCommand(root),
	} {
		root.AddCommand(c)
	}
	prepare(a, root)
	return root
}

// prepare gives every command the same manners: errors and usage are ours, groups refuse unknown words, help has one form.
func prepare(a *app, c *cobra.Command) {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.DisableAutoGenTag = true
	c.SetHelpFunc(func(c *cobra.Command, _ []string) { a.help(c) })
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		a.json = a.json || wantsJSON(c, a.p.Args)
		return flagFailure(c, err)
	})
	c.Flags().SortFlags = false
	c.InitDefaultHelpFlag()
	if h := c.Flags().Lookup("help"); h != nil {
		h.Usage = "show this text"
	}
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	inner := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if c.HasAvailableSubCommands() && len(args) > 0 {
			return a.unknownCommand(c, args[0])
		}
		if err := inner(c, args); err != nil {
			a.json = a.json || wantsJSON(c, a.p.Args)
			if f, ok := errors.AsType[*failure](err); ok {
				return f
			}
			return &failure{exit: exitUsage, code: "usage", message: c.CommandPath() + ": " + err.Error(), hint: "usage: " + c.UseLine()}
		}
		return nil
	}
	if c.HasAvailableSubCommands() && c.RunE == nil {
		c.RunE = func(c *cobra.Command, _ []string) error {
			if c.Parent() == nil {
				a.help(c)
				return nil
			}
			return &failure{exit: exitUsage, code: "usage", message: c.CommandPath() + ": name what to do: " + strings.Join(words(c), " "), hint: c.CommandPath() + " --help"}
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			a.json = wantsJSON(c, nil)
			if f := checkWord("--color", a.color, "auto", "always", "never"); f != nil {
				return f
			}
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		prepare(a, sub)
	}
}

// wantsJSON says whether errors are to be JSON: the flag was read, or stands unread in the arguments of a broken line.
func wantsJSON(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup("json")
	if f == nil {
		return false
	}
	if f.Changed && f.Value.String() == "true" {
		return true
	}
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == "--json" {
			return true
		}
	}
	return false
}

func words(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	return names
}

func (a *app) unknownCommand(c *cobra.Command, word string) *failure {
	f := &failure{exit: exitUsage, code: "usage", message: c.CommandPath() + ": unknown command " + quoteWord(word)}
	if near := spell.Nearest(word, words(c)); near != "" {
		f.hint = "did you mean: " + c.CommandPath() + " " + near
	} else {
		f.hint = "known are: " + strings.Join(words(c), " ")
	}
	return f
}

// flagFailure names the flag that was meant.
func flagFailure(c *cobra.Command, err error) *failure {
	f := &failure{exit: exitUsage, code: "usage", message: c.CommandPath() + ": " + err.Error()}
	name := ""
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name = e.GetSpecifiedName()
		f.message = c.CommandPath() + ": unknown flag --" + escape(name)
		if len(name) == 1 {
			f.message = c.CommandPath() + ": unknown flag -" + escape(name)
		}
	}
	var names []string
	c.Flags().VisitAll(func(fl *pflag.Flag) {
		if !fl.Hidden {
			names = append(names, fl.Name)
		}
	})
	if near := spell.Nearest(name, names); name != "" && near != "" {
		f.hint = "did you mean --" + near + "?"
	} else {
		f.hint = "see: " + c.CommandPath() + " --help"
	}
	return f
}

// checkWord refuses a value that is none of words, naming the nearest.
func checkWord(flag, value string, words ...string) *failure {
	if slices.Contains(words, value) {
		return nil
	}
	f := usage("%s: unknown value %s", flag, quoteWord(value))
	if near := spell.Nearest(value, words); near != "" {
		f.hint = "did you mean " + near + "?"
	} else {
		f.hint = "one of: " + strings.Join(words, " ")
	}
	return f
}

func quoteWord(s string) string { return `"` + escape(s) + `"` }
