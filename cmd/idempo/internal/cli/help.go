package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const helpWidth = 100

func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	var man string
	c := &cobra.Command{
		Use: "help [COMMAND …]", Short: "show the help of a command, or write the manual pages",
		Example: "idempo help keys list\nidempo help --man ./man1",
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if man != "" {
				return a.writeMan(root, a.path(man))
			}
			at := root
			for _, word := range args {
				next := (*cobra.Command)(nil)
				for _, c := range at.Commands() {
					if c.Name() == word {
						next = c
					}
				}
				if next == nil {
					return a.unknownCommand(at, word)
				}
				at = next
			}
			a.help(at)
			return nil
		},
	}
	c.Flags().StringVar(&man, "man", "", "write a manual page of every command to this `folder`")
	return c
}

// help writes the one form of help: usage, what it does, commands, flags, examples, exit codes.
func (a *app) help(c *cobra.Command) {
	b := &strings.Builder{}
	fmt.Fprintf(b, "Usage: %s\n\n", c.UseLine())
	b.WriteString(wrap(firstUpper(orElse(c.Long, c.Short)), "", helpWidth) + "\n")
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				fmt.Fprintf(b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	writeFlags(b, "Flags", c.NonInheritedFlags())
	writeFlags(b, "Global flags", c.InheritedFlags())
	b.WriteString("\nExamples:\n")
	for line := range strings.SplitSeq(c.Example, "\n") {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("\nExit codes:\n")
	for _, code := range exitCodes(c) {
		fmt.Fprintf(b, "  %3d  %s\n", code, exitMeaning(code))
	}
	fmt.Fprint(a.out, b.String())
}

// exitCodes are the codes a command can return: those it declares, and those every command has.
func exitCodes(c *cobra.Command) []int {
	codes := []int{exitOK, exitUsage, exitPipe}
	for name := range strings.FieldsSeq(c.Annotations["exit"]) {
		var code int
		fmt.Sscan(name, &code)
		codes = append(codes, code)
	}
	if c.HasAvailableSubCommands() {
		codes = append(codes, exitNo, exitWarnings, exitUnreachable, exitBusy, exitUnsafe, exitInterrupted)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// exits declares the codes of a command beside those that every command has.
func exits(codes ...int) map[string]string {
	return map[string]string{"exit": strings.Trim(fmt.Sprint(codes), "[]")}
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	var rows [][2]string
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "    --" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", --" + f.Name
		}
		kind, text := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + strings.ToUpper(kind)
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "-1" && f.DefValue != "[]" {
			text += " (" + f.DefValue + ")"
		}
		rows, width = append(rows, [2]string{name, text}), max(width, len(name))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, r := range rows {
		indent := strings.Repeat(" ", width+4)
		fmt.Fprintf(b, "  %-*s  %s\n", width, r[0], strings.TrimPrefix(wrap(r[1], indent, helpWidth), indent))
	}
}

// wrap breaks text into lines of at most width columns, each after indent. Lines that fit, and line ends, stay.
func wrap(text, indent string, width int) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		current := ""
		for word := range strings.FieldsSeq(line) {
			if current != "" && len([]rune(indent+current+" "+word)) > width {
				out = append(out, indent+current)
				current = ""
			}
			current = strings.TrimSpace(current + " " + word)
		}
		out = append(out, indent+current)
	}
	return strings.Join(out, "\n")
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func firstUpper(s string) string {
	if s == "" || strings.HasPrefix(s, "idempo ") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
