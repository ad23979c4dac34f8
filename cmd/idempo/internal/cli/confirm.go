package cli

import (
	"bufio"
	"strings"
)

// confirm asks on the terminal. Without a terminal nothing is assumed: the answer is an error that names the flag.
func (a *app) confirm(question string) *failure {
	if !terminal(a.p.In) {
		return &failure{exit: exitUsage, code: "confirm_needed", message: "this needs a confirmation, and there is no terminal to ask on; nothing was done", hint: "add --yes"}
	}
	a.err.printf("%s [y/N] ", escape(question))
	line, err := bufio.NewReader(a.p.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return &failure{exit: exitNo, code: "confirm_needed", message: "not confirmed; nothing was done"}
	}
	return nil
}
