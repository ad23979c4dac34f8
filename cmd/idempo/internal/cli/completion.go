package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idempo/idempo/operator"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "print the completion script of bash, zsh, fish or powershell",
		Example:   "idempo completion bash > /etc/bash_completion.d/idempo\nidempo completion zsh > _idempo",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("idempo completion: name one shell: bash zsh fish powershell")
			}
			if f := checkWord("idempo completion", args[0], "bash", "zsh", "fish", "powershell"); f != nil {
				return f
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.out)
		},
	}
}

// completeWords completes a flag whose values are known.
func completeWords(c *cobra.Command, flag string, words ...string) {
	// An error means that there is no such flag, which a test of every command would see.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// operationPatience is how long a person at the TAB key waits for names from the store.
const operationPatience = time.Second

// quietly opens the operator service for a person at the TAB key: for a second at most, and without any word.
func (a *app) quietly(c *cobra.Command, f func(context.Context, *desk)) {
	ctx, cancel := context.WithTimeout(c.Context(), operationPatience)
	defer cancel()
	said := a.err
	a.err = &stream{w: io.Discard}
	defer func() { a.err = said }()
	if d, err := a.desk(ctx, c, "", false); err == nil {
		defer d.close()
		f(ctx, d)
	}
}

// completeOperations completes names of operations from the store: those it has within a second, and never an error.
func (a *app) completeOperations(c *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	a.quietly(c, func(ctx context.Context, d *desk) {
		after := ""
		for range 200 { // each step passes over all keys of one tenant and operation
			page, err := d.List(ctx, operator.ListParams{By: d.by, Find: operator.FindParams{Limit: 1, After: after}})
			if err != nil || len(page.Records) == 0 {
				break
			}
			key := page.Records[0].Key
			if strings.HasPrefix(key.Operation, prefix) && !slices.Contains(names, key.Operation) {
				names = append(names, key.Operation)
			}
			key.ID = strings.Repeat("\xff", 33) // behind every digest
			after = operator.Cursor(key)
		}
	})
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
