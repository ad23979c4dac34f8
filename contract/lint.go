package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is how much a finding matters. Of a rule, off turns it off.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
	SeverityOff     Severity = "off"
)

// Rule is one question that lint asks of a document.
type Rule struct {
	ID       string
	Severity Severity // unless LintOptions say otherwise
	Asks     string   // what holds where it finds nothing
}

// Rules are all rules, by id.
func Rules() []Rule {
	return []Rule{
		{"A01", SeverityError, "a message has an identity, or opts out with a reason"},
		{"A02", SeverityError, "it is stated how long a message is recognised, and not shorter than the broker keeps it"},
		{"A03", SeverityWarning, "it is stated what another body under a known identity, and a message without one, get"},
		{"A04", SeverityError, "no fixed example of the identity"},
		{"A05", SeverityError, "an order key is stated where order is promised"},
		{"A06", SeverityWarning, "the guard is stated"},
		{"C01", SeverityError, "an unsafe operation declares a key, is natural, or opts out with a reason"},
		{"C02", SeverityError, "it is stated whether the key is required, the same everywhere"},
		{"C03", SeverityError, "no fixed example, default, const or one-value enum on the key"},
		{"C04", SeverityWarning, "format and length of the key are stated"},
		{"C05", SeverityError, "it is stated how long the answer is kept, and what follows"},
		{"C06", SeverityError, "answers for missing, mismatch and in progress are declared"},
		{"C07", SeverityWarning, "the marker of a repeat is declared on every 2xx, and exposed to browsers"},
		{"C08", SeverityWarning, "it is stated which statuses are given again"},
		{"C09", SeverityWarning, "it is stated what a key is scoped to"},
		{"C10", SeverityWarning, "it is stated whether a repeat waits or is refused while the first request runs, and how long at most"},
		{"C11", SeverityError, "nothing broke against the baseline"},
		{"C12", SeverityWarning, "hints for SDKs agree with the statement"},
		{"C13", SeverityError, "the key is no tracing or attempt id"},
	}
}

// Finding is one answer of lint.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Col      int      `json:"column"`
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Where    string   `json:"operation,omitempty"` // POST /v1/payments
	Message  string   `json:"message"`
}

// String is FILE:LINE:COL RULE severity message.
func (f Finding) String() string {
	where := ""
	if f.Where != "" {
		where = f.Where + ": "
	}
	return fmt.Sprintf("%s:%d:%d %s %s %s%s", f.File, f.Line, f.Col, f.Rule, f.Severity, where, f.Message)
}

// LintOptions say what lint looks at.
type LintOptions struct {
	// Severities of rules by id, in place of their own.
	Severities map[string]Severity
	// Baseline is the document as it was; nil: C11 is not asked.
	Baseline *Document
	// Progress, if set, is told after each operation how many are done of how many.
	Progress func(done, total int)
}

// linter collects findings.
type linter struct {
	d        *Document
	options  LintOptions
	severity map[string]Severity
	findings []Finding
	problems Problems
	off      map[string]bool // by the document, for all of it
}

// Lint asks every rule of the document. Findings stand in the order of the document. The error lists what makes the questions themselves
// wrong: a severity of a rule that does not exist, an x-idempotency-lint with an unknown rule or without a reason.
func (d *Document) Lint(o LintOptions) ([]Finding, error) {
	l := &linter{d: d, options: o, severity: map[string]Severity{}}
	for _, r := range Rules() {
		l.severity[r.ID] = r.Severity
	}
	for id, s := range o.Severities {
		if _, ok := l.severity[id]; !ok {
			return nil, fmt.Errorf("contract: no rule %q: %s", id, ruleNames())
		}
		if !slices.Contains([]Severity{SeverityError, SeverityWarning, SeverityNote, SeverityOff}, s) {
			return nil, fmt.Errorf("contract: rule %s: no severity %q: one of error warning note off", id, s)
		}
		l.severity[id] = s
	}
	l.off = l.inline(d.Root)
	if d.Async {
		l.async()
	} else {
		l.http()
	}
	if o.Baseline != nil {
		l.baseline()
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	slices.SortStableFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Col-b.Col, strings.Compare(a.Rule, b.Rule))
	})
	return l.findings, nil
}

func ruleNames() string {
	var names []string
	for _, r := range Rules() {
		names = append(names, r.ID)
	}
	return "there are " + strings.Join(names, " ")
}

// inline reads x-idempotency-lint of a node: {off: [C07], reason: …}.
func (l *linter) inline(n *Node) map[string]bool {
	x := n.Get("x-idempotency-lint")
	if x == nil {
		return nil
	}
	out := map[string]bool{}
	list := x.Get("off")
	if list == nil || list.Kind != List || len(x.members()) > 2 || len(x.members()) == 2 && x.Get("reason") == nil {
		l.problems = append(l.problems, x.problem("x-idempotency-lint is written {off: [C07], reason: …}"))
		return nil
	}
	if strings.TrimSpace(x.text("reason")) == "" {
		l.problems = append(l.problems, x.problem("x-idempotency-lint turns rules off without a reason: say why"))
	}
	for _, v := range list.Items {
		if _, ok := l.severity[v.Value]; !ok {
			l.problems = append(l.problems, v.problem("x-idempotency-lint: no rule %s: %s", v.words(), ruleNames()))
			continue
		}
		out[v.Value] = true
	}
	return out
}

// place is where something stands.
type place func(path ...string) (file string, line, col int)

func at(n *Node) place {
	return func(...string) (string, int, int) { return n.File, n.Line, n.Col }
}

// report gives a way to report findings of one operation.
func (l *linter) report(where string, off map[string]bool, here place) func(id string, path []string, format string, args ...any) {
	return func(id string, path []string, format string, args ...any) {
		l.add(id, "", where, off, here, path, format, args...)
	}
}

func (l *linter) add(id string, severity Severity, where string, off map[string]bool, here place, path []string, format string, args ...any) {
	severity = cmp.Or(severity, l.severity[id])
	if l.severity[id] == SeverityOff || off[id] || l.off[id] {
		return
	}
	file, line, col := here(path...)
	l.findings = append(l.findings, Finding{file, line, col, id, severity, where, fmt.Sprintf(format, args...)})
}

// baseline is C11: what broke since.
func (l *linter) baseline() {
	for _, c := range Diff(l.options.Baseline, l.d) {
		if c.Breaking {
			l.add("C11", "", c.Where, nil, func(...string) (string, int, int) { return c.File, c.Line, c.Col }, nil, "%s", c.text())
		}
	}
}
