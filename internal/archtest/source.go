package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Source is the parsed Go code of a tree, generated files left out.
type Source struct {
	Files  []*File
	fset   *token.FileSet
	module string // path of the root module
}

// File is one parsed Go file.
type File struct {
	Path  string // relative to the tree, with slashes
	Dir   string // of Path; "." for the root package
	Lines int    // all of them
	Code  int    // those that hold code, and not only a comment or nothing
	Test  bool   // a _test.go file
	Kit   bool   // part of a test kit, or of internal/storecheck
	Cmd   bool   // under cmd/
	ast   *ast.File
}

// ReadSource parses each Go file of the tree, whatever its build constraints. Kits are the packages that p calls so.
// It returns an error for a file that does not parse.
func (t *Tree) ReadSource(p Policy) (*Source, error) {
	s := &Source{fset: token.NewFileSet(), module: t.Root()}
	err := walk(t.Dir, func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(t.Dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(parsed) {
			return nil
		}
		dir := path.Dir(name)
		s.Files = append(s.Files, &File{
			Path: name, Dir: dir, ast: parsed,
			Lines: bytes.Count(text, []byte("\n")),
			Code:  codeLines(text),
			Test:  strings.HasSuffix(name, "_test.go"),
			Kit:   p.IsKit(dir) || dir == "internal/storecheck" || strings.HasPrefix(dir, "internal/storecheck/"),
			Cmd:   strings.HasPrefix(name, "cmd/"),
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	return s, nil
}

// codeLines counts the lines that a token stands on, comments left out.
func codeLines(text []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var sc scanner.Scanner
	sc.Init(file, text, nil, 0)
	count, last := 0, 0
	for {
		pos, tok, lit := sc.Scan()
		if tok == token.EOF {
			return count
		}
		if tok == token.SEMICOLON && lit != ";" {
			continue // put in at the end of a line, or of the file
		}
		from := file.Line(pos)
		to := from + strings.Count(lit, "\n")
		count += max(0, to-max(from, last+1)+1)
		last = max(last, to)
	}
}

// at is the place of a node, as file:line.
func (s *Source) at(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// span is how many lines a node takes, its first and last included.
func (s *Source) span(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

// funcs calls visit for each function and method that the file declares.
func (f *File) funcs(visit func(*ast.FuncDecl)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			visit(fn)
		}
	}
}

// specs calls visit for each type, constant and variable that the file declares at top level, with its group.
func (f *File) specs(visit func(*ast.GenDecl, ast.Spec)) {
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok != token.IMPORT {
			for _, s := range g.Specs {
				visit(g, s)
			}
		}
	}
}

// imports lists the import paths of the file.
func (f *File) imports() []string {
	var all []string
	for _, i := range f.ast.Imports {
		all = append(all, strings.Trim(i.Path.Value, "\"`"))
	}
	return all
}

// importName is the name under which the file knows the package, or "" if it does not import it.
func (f *File) importName(importPath string) string {
	for _, i := range f.ast.Imports {
		if strings.Trim(i.Path.Value, "\"`") != importPath {
			continue
		}
		if i.Name != nil {
			return i.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}
