package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyOf returns a command and all below it that people use, in the order of the table.
func everyOf(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			all = append(all, everyOf(sub)...)
		}
	}
	return all
}

// writeMan writes a man page of every command to a folder.
func (a *app) writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return usage("--man: %v", err)
	}
	for _, c := range everyOf(root) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(manPage(c)), 0o644); err != nil { //nolint:gosec // a manual is for everybody
			return usage("--man: %v", err)
		}
	}
	return nil
}

// manPage is the help of a command in roff.
func manPage(c *cobra.Command) string {
	b := &strings.Builder{}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(b, ".TH %s 1 \"\" idempo \"idempo manual\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(name), roff(name), roff(c.Short), roff(c.UseLine()))
	fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", roff(firstUpper(orElse(c.Long, c.Short))))
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	b.WriteString(".SH OPTIONS\n")
	option := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, text := pflag.UnquoteUsage(f)
		fmt.Fprintf(b, ".TP\n.B \\-\\-%s\n", roff(strings.TrimSpace(f.Name+" "+strings.ToUpper(kind))))
		b.WriteString(roff(text) + "\n")
	}
	c.NonInheritedFlags().VisitAll(option)
	c.InheritedFlags().VisitAll(option)
	b.WriteString(".SH EXIT STATUS\n")
	for _, code := range exitCodes(c) {
		fmt.Fprintf(b, ".TP\n.B %d\n%s\n", code, roff(exitMeaning(code)))
	}
	b.WriteString(".SH EXAMPLES\n.nf\n")
	for line := range strings.SplitSeq(c.Example, "\n") {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n.SH SEE ALSO\n")
	var also []string
	if p := c.Parent(); p != nil {
		also = append(also, p.CommandPath())
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			also = append(also, sub.CommandPath())
		}
	}
	for i, path := range also {
		also[i] = ".BR " + roff(strings.ReplaceAll(path, " ", "-")) + " (1)"
	}
	b.WriteString(strings.Join(also, "\n") + "\n")
	return b.String()
}

// roff escapes text: nothing in it is a command.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// commandTable is every command with what it does, for the guide.
func commandTable(root *cobra.Command) string {
	b := &strings.Builder{}
	for _, c := range everyOf(root)[1:] {
		if c.HasAvailableSubCommands() {
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n```\n\n| flag | what it says |\n|---|---|\n", c.CommandPath(), markdown(firstUpper(orElse(c.Long, c.Short))), c.UseLine())
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			kind, text := pflag.UnquoteUsage(f)
			fmt.Fprintf(b, "| `%s` | %s |\n", strings.TrimSpace("--"+f.Name+" "+strings.ToUpper(kind)), markdown(text))
		})
		var codes []string
		for _, code := range exitCodes(c) {
			codes = append(codes, fmt.Sprint(code))
		}
		fmt.Fprintf(b, "\nExit codes: %s.\n", strings.Join(codes, " "))
	}
	return b.String()
}

// markdown is text on one line, with nothing in it that Markdown would read.
func markdown(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`, "*", `\*`, "<", "&lt;", "_", `\_`).Replace(text)
}
