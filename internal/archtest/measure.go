package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// Measures are the figures of a tree that have no place in it. Medians are aims: TestBudgets prints them, and a reader
// decides. The share of test lines has a limit.
type Measures struct {
	CodeLines, TestLines                 int
	FileMedian, FuncMedian, FuncNinetyth int // of code, in lines
}

// Measure counts the tree. Test lines are those of _test.go files, test kits and internal/storecheck. Lines that only
// explain count on neither side, and neither do bench and examples, which are measured and read, not shipped.
func (s *Source) Measure() Measures {
	var m Measures
	var fileLines, funcLines []int
	for _, f := range s.Files {
		if f.Test || f.Kit {
			m.TestLines += f.Code
			continue
		}
		if !within(f.Dir, "bench") && !within(f.Dir, "examples") {
			m.CodeLines += f.Code
		}
		fileLines = append(fileLines, f.Lines)
		f.funcs(func(fn *ast.FuncDecl) { funcLines = append(funcLines, s.span(fn)) })
	}
	m.FileMedian = quantile(fileLines, 50)
	m.FuncMedian, m.FuncNinetyth = quantile(funcLines, 50), quantile(funcLines, 90)
	return m
}

func within(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// Share is test lines ÷ code lines; 0 for a tree without code.
func (m Measures) Share() float64 {
	if m.CodeLines == 0 {
		return 0
	}
	return float64(m.TestLines) / float64(m.CodeLines)
}

// Check is the one figure with a limit.
func (m Measures) Check() []Finding {
	var fs findings
	if m.Share() < minTestShare {
		fs.add("share", ".", "%d test lines ÷ %d code lines = %.2f, limit %.1f", m.TestLines, m.CodeLines, m.Share(), minTestShare)
	}
	return fs
}

// String is the line that is printed, with the aims.
func (m Measures) String() string {
	return fmt.Sprintf("test lines ÷ code lines %d ÷ %d = %.2f (aim %.1f) · file median %d (aim ≤ %d) · func median %d (aim ≤ %d) · func p90 %d (aim ≤ %d)",
		m.TestLines, m.CodeLines, m.Share(), aimTestShare, m.FileMedian, aimFileMedian,
		m.FuncMedian, aimFuncMedian, m.FuncNinetyth, aimFuncNinetyth)
}

// quantile is the value that percent of the numbers do not exceed; 0 for none.
func quantile(ns []int, percent int) int {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return ns[(len(ns)-1)*percent/100]
}
