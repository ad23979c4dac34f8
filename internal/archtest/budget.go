package archtest

import (
	"cmp"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The limits. Above one: split, or ask for another in docs/decisions/.
const (
	maxRootNames        = 64  // exported top-level names of the root package, constants included
	maxRequiredMethods  = 5   // methods of an interface
	maxOptionalMethods  = 1   // methods of an interface that is looked for by a type assertion
	maxCodeLines        = 600 // lines of a file
	maxTestLines        = 900
	maxFuncLines        = 90
	maxMainLines        = 25 // lines of cmd/idempo/main.go
	minTestShare        = 1.1
	aimTestShare        = 1.3
	aimFileMedian       = 130
	aimFuncMedian       = 10
	aimFuncNinetyth     = 40
	mainFile            = "cmd/idempo/main.go"
	ruleSize, ruleNames = "size", "names"
)

// CheckBudgets finds what is larger than it may be, and what is missing or must not be there. Its findings carry these
// rules: size, names, interface, comment, doc.go, init, variable, nolint, skip.
func (s *Source) CheckBudgets() []Finding {
	var fs findings
	s.checkRootNames(&fs)
	s.checkDocs(&fs)
	s.checkInterfaces(&fs)
	for _, f := range s.Files {
		s.checkSize(f, &fs)
		s.checkWords(f, &fs)
		if !f.Test {
			s.checkComments(f, &fs)
			s.checkVariables(f, &fs)
		}
	}
	return fs.sorted()
}

func (s *Source) checkRootNames(fs *findings) {
	names := map[string]bool{}
	for _, f := range s.Files {
		if f.Dir != "." || f.Test {
			continue
		}
		f.specs(func(_ *ast.GenDecl, spec ast.Spec) {
			for _, id := range specNames(spec) {
				names[id.Name] = id.IsExported()
			}
		})
		f.funcs(func(fn *ast.FuncDecl) {
			if fn.Recv == nil {
				names[fn.Name.Name] = fn.Name.IsExported()
			}
		})
	}
	maps.DeleteFunc(names, func(_ string, exported bool) bool { return !exported })
	if n := len(names); n > maxRootNames {
		fs.add(ruleNames, ".", "the root package exports %d names, limit %d: %s", n, maxRootNames,
			strings.Join(slices.Sorted(maps.Keys(names)), " "))
	}
}

func specNames(spec ast.Spec) []*ast.Ident {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{s.Name}
	case *ast.ValueSpec:
		return s.Names
	default:
		return nil
	}
}

func (s *Source) checkDocs(fs *findings) {
	has, want := map[string]bool{}, map[string]bool{}
	for _, f := range s.Files {
		if path.Base(f.Path) == "doc.go" && f.ast.Doc != nil {
			has[f.Dir] = true
		}
		if !f.Test {
			want[f.Dir] = true
		}
	}
	for dir := range want {
		if !has[dir] {
			fs.add("doc.go", dir, "the package has no doc.go with a package comment")
		}
	}
}

func (s *Source) checkSize(f *File, fs *findings) {
	limit := maxCodeLines
	if f.Test {
		limit = maxTestLines
	}
	if f.Path == mainFile {
		limit = maxMainLines
	}
	if f.Lines > limit {
		fs.add(ruleSize, f.Path, "%d lines, limit %d: split it by noun", f.Lines, limit)
	}
	f.funcs(func(fn *ast.FuncDecl) {
		s.checkFunc(fn, fn.Name.Name, f.Test || f.Kit, fs)
		if fn.Recv == nil && fn.Name.Name == "init" && !f.Cmd {
			fs.add("init", s.at(fn), "func init outside cmd: what happens at import cannot be tested or avoided")
		}
	})
}

// checkFunc counts the lines of a function. In tests a function that takes a *testing.T and is handed over, to t.Run or to
// what wraps it, is a test of its own and counts apart.
func (s *Source) checkFunc(fn ast.Node, name string, isTest bool, fs *findings) {
	n := s.span(fn)
	if isTest {
		ast.Inspect(fn, func(in ast.Node) bool {
			call, ok := in.(*ast.CallExpr)
			if !ok {
				return true
			}
			apart := false
			for _, arg := range call.Args {
				if sub, ok := arg.(*ast.FuncLit); ok && takesT(sub) {
					n -= s.span(sub) - 1
					s.checkFunc(sub, name+", a subtest", true, fs)
					apart = true
				}
			}
			return !apart
		})
	}
	if n > maxFuncLines {
		fs.add(ruleSize, s.at(fn), "func %s has %d lines, limit %d", name, n, maxFuncLines)
	}
}

func takesT(fn *ast.FuncLit) bool {
	params := fn.Type.Params.List
	if len(params) == 0 {
		return false
	}
	return slices.Contains([]string{"testing.T", "testing.B", "testing.F", "testing.TB"}, exprText(params[0].Type))
}

var (
	bareNolint = regexp.MustCompile(`^//\s*nolint(:\S+)?\s*$`)
	emptySkip  = regexp.MustCompile(`^(Skip|SkipNow|Skipf)$`)
)

// checkWords looks for exceptions without a reason: a nolint, a skipped test.
func (s *Source) checkWords(f *File, fs *findings) {
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if bareNolint.MatchString(c.Text) {
				fs.add("nolint", s.at(c), "nolint without a reason; write //nolint:name // why")
			}
		}
	}
	if !f.Test && !f.Kit {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) > 0 {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && emptySkip.MatchString(sel.Sel.Name) {
			if id, ok := sel.X.(*ast.Ident); ok && slices.Contains([]string{"t", "b", "f", "tb"}, id.Name) {
				fs.add("skip", s.at(call), "a test is skipped without a reason; name what is missing and the command that supplies it")
			}
		}
		return true
	})
}

// checkComments looks for exported names that nobody explained: top-level names, methods, methods of interfaces.
func (s *Source) checkComments(f *File, fs *findings) {
	missing := func(n ast.Node, name string) {
		fs.add("comment", s.at(n), "exported %s has no comment", name)
	}
	f.funcs(func(fn *ast.FuncDecl) {
		if fn.Doc == nil && fn.Name.IsExported() && ast.IsExported(cmp.Or(receiver(fn), "X")) {
			missing(fn, fn.Name.Name)
		}
	})
	f.specs(func(group *ast.GenDecl, spec ast.Spec) {
		var own, line *ast.CommentGroup
		switch sp := spec.(type) {
		case *ast.TypeSpec:
			own, line = sp.Doc, sp.Comment
			if it, ok := sp.Type.(*ast.InterfaceType); ok && sp.Name.IsExported() {
				for _, m := range it.Methods.List {
					if len(m.Names) == 1 && m.Names[0].IsExported() && m.Doc == nil && m.Comment == nil && len(it.Methods.List) > 1 {
						missing(m, sp.Name.Name+"."+m.Names[0].Name)
					}
				}
			}
		case *ast.ValueSpec:
			own, line = sp.Doc, sp.Comment
		}
		for _, id := range specNames(spec) {
			if id.IsExported() && group.Doc == nil && own == nil && line == nil {
				missing(id, id.Name)
			}
		}
	})
}

// receiver is the name of the type that a method belongs to, "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	return lastName(fn.Recv.List[0].Type)
}

// checkVariables looks for package variables that somebody could change.
func (s *Source) checkVariables(f *File, fs *findings) {
	f.specs(func(group *ast.GenDecl, spec ast.Spec) {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || group.Tok.String() != "var" {
			return
		}
		for i, id := range v.Names {
			var value ast.Expr
			if i < len(v.Values) {
				value = v.Values[i]
			}
			if !fixedVariable(f, id.Name, v.Type, value) {
				fs.add("variable", s.at(id), "package variable %s: only error sentinels, embed.FS, _ guards and unexported "+
					"regular expressions and templates are allowed; use a constant, a switch function or a field", id.Name)
			}
		}
	})
}

func fixedVariable(f *File, name string, typ, value ast.Expr) bool {
	switch {
	case name == "_", strings.HasPrefix(name, "Err"), strings.HasPrefix(name, "err"):
		return true
	case name == "version" && f.Cmd:
		return true // stamped by the linker
	case typ != nil:
		switch exprText(typ) {
		case "embed.FS":
			return true
		case "regexp.Regexp", "template.Template":
			return !ast.IsExported(name)
		}
	}
	// The call at the bottom of regexp.MustCompile(…) or template.Must(template.New(…).Parse(…)).
	call, ok := value.(*ast.CallExpr)
	if !ok || ast.IsExported(name) {
		return false
	}
	return slices.Contains([]string{"regexp.MustCompile", "template.Must"}, exprText(call.Fun))
}

// exprText writes a name or a qualified name, without the stars before it.
func exprText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exprText(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return exprText(e.X) + "." + e.Sel.Name
	default:
		return ""
	}
}
