package errorpage_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo/idemhttp"
)

const repository = "../../.."

// sections are the parts of the page by the code in their heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "guides", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		code, body, _ := strings.Cut(part, "\n")
		if _, twice := all[code]; twice {
			t.Errorf("the page has two sections %s", code)
		}
		all[code] = body
	}
	return all
}

// tableCodes are the cases of the table of problems, read from its source.
func tableCodes(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, "idemhttp", "problem.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(f, func(n ast.Node) bool {
		fn, ok := n.(*ast.FuncDecl)
		if ok && !strings.HasSuffix(strings.ToLower(fn.Name.Name), "problemrow") {
			return false
		}
		if c, ok := n.(*ast.CaseClause); ok {
			for _, e := range c.List {
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					codes = append(codes, strings.Trim(lit.Value, `"`))
				}
			}
		}
		return true
	})
	if len(codes) < 30 {
		t.Fatalf("only %d codes were found in the table", len(codes))
	}
	return codes
}

func TestEveryCodeHasItsSection(t *testing.T) {
	t.Parallel()
	page, codes := sections(t), tableCodes(t)
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	for _, code := range codes {
		body, ok := page[code]
		if !ok {
			t.Errorf("docs/guides/errors.md has no section ## %s", code)
			continue
		}
		p := idemhttp.NewProblem(code)
		for _, want := range []string{
			fmt.Sprintf("**%d %s.** %s", p.Status, p.Title, p.Detail),
			fmt.Sprintf("retryable: %s · same key: %s", yes(p.Retryable), yes(p.SameKey)),
		} {
			if !strings.Contains(body, want) {
				t.Errorf("section %s lacks what the source says: %s", code, want)
			}
		}
		if _, advice, _ := strings.Cut(body, "same key: "); !strings.Contains(advice, "Client") && !strings.Contains(advice, "Operator") {
			t.Errorf("section %s says neither to the client nor to the operator what to do", code)
		}
	}
	for code := range page {
		if !slices.Contains(codes, code) {
			t.Errorf("section %s stands for no code", code)
		}
	}
}
