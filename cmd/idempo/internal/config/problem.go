package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake, or one thing to be warned of, and where it stands.
type Problem struct {
	File    string // as named by the user; the origin (flag --listen) for a value that is not from the file
	Line    int    // 1-based; 0 where the value is not from the file
	Col     int    // 1-based, in characters
	Path    string // gateway.routes[1].match; empty for the file as a whole
	Message string // never holds a secret or a value from outside the file
}

// String is the form FILE:LINE:COL: path: message, without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems is everything wrong with a configuration, in the order of the file.
type Problems []Problem

// Error is one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col), strings.Compare(a.Path, b.Path))
	})
}
