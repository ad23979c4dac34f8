package cli

import "github.com/spf13/cobra"

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
