package cli

import (
	"bufio"
	"io"
	"strings"
)

// asking is how a command asks before it does something that cannot be taken back.
type asking struct {
	yes     bool   // --yes
	noInput bool   // --no-input
	confirm string // --confirm
}

// lines are the answers on the terminal; there is one reader for all of them, since it reads ahead.
func (a *app) lines() *bufio.Reader {
	if a.input == nil {
		in := a.p.In
		if in == nil {
			in = strings.NewReader("")
		}
		a.input = bufio.NewReader(in)
	}
	return a.input
}

// talks says whether there is somebody to ask.
func (a *app) talks(q asking) bool { return !q.noInput && terminal(a.p.In) && terminal(a.p.Err) }

// ask asks one question and returns the answer; false: the other end is gone.
func (a *app) ask(question string) (string, bool) {
	a.err.printf("%s", question)
	line, err := a.lines().ReadString('\n')
	return strings.TrimSpace(line), err == nil || err == io.EOF && line != ""
}

// confirm asks on the terminal. Without a terminal nothing is assumed: the answer is an error that names the flag.
func (a *app) confirm(question string, q asking) *failure {
	if q.yes {
		return nil
	}
	if !a.talks(q) {
		return &failure{exit: exitUsage, code: "confirm_needed", message: "this needs a confirmation, and there is no terminal to ask on; nothing was done", hint: "add --yes"}
	}
	answer, ok := a.ask(escape(question) + " [y/N] ")
	if answer = strings.ToLower(answer); !ok || answer != "y" && answer != "yes" {
		return &failure{exit: exitNo, code: "confirm_needed", message: "not confirmed; nothing was done"}
	}
	return nil
}

// confirmTyped asks for a text to be typed, since --yes is not enough for what is severe.
func (a *app) confirmTyped(severe, text string, q asking) *failure {
	if q.confirm == text {
		return nil
	}
	if q.confirm != "" || !a.talks(q) {
		return &failure{exit: exitUsage, code: "confirm_needed", message: "severe: " + severe + "; nothing was done", hint: "add --confirm " + text}
	}
	answer, ok := a.ask("Severe: " + escape(severe) + ". Type " + text + " to go on: ")
	if !ok || answer != text {
		return &failure{exit: exitNo, code: "confirm_needed", message: "not confirmed; nothing was done"}
	}
	return nil
}
