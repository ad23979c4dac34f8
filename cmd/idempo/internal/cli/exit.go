package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/operator"
)

// Exit codes, one table for every command.
const (
	exitOK          = 0
	exitNo          = 1
	exitWarnings    = 2
	exitUnreachable = 69
	exitBusy        = 75
	exitUnsafe      = 78
	exitUsage       = 125
	exitInterrupted = 130
	exitPipe        = 141
)

// exitMeaning is the table as help prints it.
func exitMeaning(code int) string {
	switch code {
	case exitOK:
		return "done, or the answer is yes"
	case exitNo:
		return "finished, the answer is no: not found, findings, moved"
	case exitWarnings:
		return "only warnings, and --strict was given"
	case exitUnreachable:
		return "store or target unreachable; nothing was done"
	case exitBusy:
		return "busy; try again later"
	case exitUnsafe:
		return "refused for safety: schema, digest key, database identity do not fit"
	case exitUsage:
		return "usage, settings, environment or a fault of idempo; nothing was done"
	case exitInterrupted:
		return "stopped by Ctrl-C"
	case exitPipe:
		return "reader of stdout went away"
	}
	return ""
}

// docsURL is where messages link to.
const docsURL = "https://github.com/idempo/idempo/blob/main/docs/guides/command-errors.md"

// failure is an outcome other than success: an exit code, a stable word and what a person needs to go on.
type failure struct {
	exit    int
	code    string // stable: config_invalid, store_unavailable …
	message string // what happened, what is known
	hint    string // the command or change that helps
	lines   config.Problems
	silent  bool // everything has been said already
}

// Error is the message with its hint.
func (f *failure) Error() string {
	if f.hint != "" {
		return f.message + "\n  " + f.hint
	}
	return f.message
}

func usage(format string, args ...any) *failure {
	return &failure{exit: exitUsage, code: "usage", message: fmt.Sprintf(format, args...)}
}

// asFailure gives any error its place in the table. An error that nobody classified is a fault of idempo.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if ps, ok := config.AsProblems(err); ok {
		return &failure{exit: exitUsage, code: "config_invalid", message: ps.Error(), lines: ps}
	}
	if e, ok := errors.AsType[*operator.Error](err); ok {
		return refusal(e)
	}
	if f, ok := denied(err); ok {
		return f
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok && e.Code == "unavailable" {
		return &failure{exit: exitUnreachable, code: "store_unavailable", message: err.Error()}
	}
	return &failure{exit: exitUsage, code: "failed", message: err.Error()}
}

// report says on stderr what went wrong and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	f := asFailure(err)
	if f.silent {
		return f.exit
	}
	if !a.json {
		lines := strings.Split(f.Error(), "\n")
		for i, l := range lines {
			if i == 0 && f.lines == nil && !strings.HasPrefix(l, "idempo: ") && !strings.HasPrefix(l, "idempo ") {
				l = "idempo: " + l
			}
			a.err.line(escape(l))
		}
		return f.exit
	}
	type place struct {
		File    string `json:"file"`
		Line    int    `json:"line,omitempty"`
		Column  int    `json:"column,omitempty"`
		Path    string `json:"path,omitempty"`
		Message string `json:"message"`
	}
	body := struct {
		Schema int `json:"schema"`
		Error  struct {
			Code     string  `json:"code"`
			Message  string  `json:"message"`
			Hint     string  `json:"hint,omitempty"`
			Docs     string  `json:"docs"`
			Problems []place `json:"problems,omitempty"`
		} `json:"error"`
	}{Schema: 1}
	body.Error.Code, body.Error.Message, body.Error.Hint, body.Error.Docs = f.code, f.message, f.hint, docsURL+"#"+f.code
	for _, p := range f.lines {
		body.Error.Problems = append(body.Error.Problems, place{p.File, p.Line, p.Col, p.Path, p.Message})
	}
	b, merr := json.Marshal(body)
	if merr != nil {
		b = []byte(`{"schema":1,"error":{"code":"failed"}}`)
	}
	a.err.line(string(b))
	return f.exit
}
