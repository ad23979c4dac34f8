package archtest

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	claimShape = regexp.MustCompile(`\[(test|bench): ([^\]]+)\]`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
)

// CheckClaims reads README.md and docs/**/*.md and finds each [test: pkg.TestName] and [bench: name] that names nothing.
// pkg is a package's folder relative to the root module, or idempo for the root package; several names stand apart with
// commas. The name of a bench is a Benchmark function or a string of a file under bench/. In docs/guarantees.md each row
// of a table must end with a claim. Code blocks and `spans` are not read. The rule of its findings is claim.
func (s *Source) CheckClaims(dir string) ([]Finding, error) {
	var fs findings
	tests, benches := s.proofs()
	err := walk(dir, func(name string) error {
		if name != "README.md" && (!strings.HasPrefix(name, "docs/") || path.Ext(name) != ".md") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		for _, l := range prose(string(text)) {
			where := fmt.Sprintf("%s:%d", name, l.number)
			claims := claimShape.FindAllStringSubmatch(codeSpan.ReplaceAllString(l.text, ""), -1)
			for _, c := range claims {
				for id := range strings.SplitSeq(c[2], ",") {
					id = strings.TrimSpace(id)
					if c[1] == "test" && !tests[id] || c[1] == "bench" && !benches[id] {
						fs.add("claim", where, "there is no %s %s", c[1], id)
					}
				}
			}
			if name == "docs/guarantees.md" && l.row && len(claims) == 0 {
				fs.add("claim", where, "the guarantee names no [test: …] or [bench: …]")
			}
		}
		return nil
	})
	return fs.sorted(), err
}

// proofs are the names that a claim may cite.
func (s *Source) proofs() (tests, benches map[string]bool) {
	tests, benches = map[string]bool{}, map[string]bool{}
	for _, f := range s.Files {
		pkg := f.Dir
		if pkg == "." {
			pkg = path.Base(s.module)
		}
		if f.Test {
			f.funcs(func(fn *ast.FuncDecl) {
				switch name := fn.Name.Name; {
				case fn.Recv != nil:
				case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"), strings.HasPrefix(name, "Example"):
					tests[pkg+"."+name] = true
				case strings.HasPrefix(name, "Benchmark"):
					benches[name] = true
				}
			})
		}
		if pkg == "bench" || strings.HasPrefix(pkg, "bench/") {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok {
					benches[strings.Trim(lit.Value, "\"`")] = true
				}
				return true
			})
		}
	}
	return tests, benches
}

// line is one line of prose; row says that it is a row of a table, and not its head.
type line struct {
	number int
	text   string
	row    bool
}

// prose is a Markdown text without its fenced blocks.
func prose(text string) []line {
	var all []line
	fenced, inTable := false, false
	number := 0
	for l := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(l)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		bar := strings.HasPrefix(trimmed, "|")
		rule := bar && strings.Trim(trimmed, "|-: ") == ""
		all = append(all, line{number: number, text: l, row: bar && inTable && !rule})
		inTable = bar && (inTable || rule)
	}
	return all
}
