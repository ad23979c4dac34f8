package archtest

import (
	"cmp"
	"fmt"
	"slices"
)

// Finding is one departure from the rules.
type Finding struct {
	Rule  string // what was broken: a letter of the import policy, or the name of a budget
	Where string // the package, module or file:line it was found in, relative to the tree
	Text  string // what is there, and what to do
}

// String is the line that a test prints.
func (f Finding) String() string {
	return fmt.Sprintf("%s: rule %s: %s", f.Where, f.Rule, f.Text)
}

// findings collects; sorted gives them in the order in which people look for them, each once.
type findings []Finding

func (fs *findings) add(rule, where, format string, args ...any) {
	*fs = append(*fs, Finding{Rule: rule, Where: where, Text: fmt.Sprintf(format, args...)})
}

func (fs findings) sorted() []Finding {
	slices.SortFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(fs)
}
