package archtest

import (
	"go/ast"
	"path"
	"strings"
)

// iface is a named interface of the tree.
type iface struct {
	file  *File
	node  *ast.TypeSpec
	typ   *ast.InterfaceType
	asked string // where a type assertion looks for it; "" if nowhere
}

// checkInterfaces holds interfaces small. One that is looked for by `x, ok := y.(T)` is an optional ability: one method.
// A value out of a context or of another call is no such question.
func (s *Source) checkInterfaces(fs *findings) {
	all := s.interfaces()
	for _, f := range s.Files {
		if f.Test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			as, ok := n.(*ast.TypeAssertExpr)
			if !ok || as.Type == nil {
				return true
			}
			if _, fromCall := as.X.(*ast.CallExpr); fromCall {
				return true
			}
			if i := all[s.resolve(f, as.Type)]; i != nil && i.asked == "" {
				i.asked = s.at(as)
			}
			return true
		})
	}
	for name, i := range all {
		n := s.methods(all, i, name)
		switch {
		case s.foreign(all, i):
			// It repeats what somebody else's type has, such as a driver's connection; nobody is asked to write one.
		case n > maxRequiredMethods:
			fs.add("interface", s.at(i.node), "%s has %d methods, limit %d: make the rest optional interfaces", i.node.Name.Name, n, maxRequiredMethods)
		case i.asked != "" && n > maxOptionalMethods:
			fs.add("interface", s.at(i.node), "%s is an optional ability (asked for at %s) with %d methods, limit %d",
				i.node.Name.Name, i.asked, n, maxOptionalMethods)
		}
	}
}

// interfaces finds the named interfaces outside tests, by folder and name. Type sets are no interfaces in this sense.
func (s *Source) interfaces() map[string]*iface {
	all := map[string]*iface{}
	for _, f := range s.Files {
		if f.Test {
			continue
		}
		f.specs(func(_ *ast.GenDecl, spec ast.Spec) {
			if ts, ok := spec.(*ast.TypeSpec); ok {
				if it, ok := ts.Type.(*ast.InterfaceType); ok {
					all[f.Dir+"."+ts.Name.Name] = &iface{file: f, node: ts, typ: it}
				}
			}
		})
	}
	return all
}

// resolve names the type that an expression means, as the map of interfaces does.
func (s *Source) resolve(f *File, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return f.Dir + "." + e.Name
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, imp := range f.imports() {
			if f.importName(imp) != id.Name {
				continue
			}
			if imp == s.module {
				return ".." + e.Sel.Name
			}
			if dir, ours := strings.CutPrefix(imp, s.module+"/"); ours {
				return path.Clean(dir) + "." + e.Sel.Name
			}
		}
	}
	return ""
}

// foreign says that an unexported interface only embeds interfaces that are not ours.
func (s *Source) foreign(all map[string]*iface, i *iface) bool {
	for _, m := range i.typ.Methods.List {
		if len(m.Names) > 0 || all[s.resolve(i.file, m.Type)] != nil {
			return false
		}
	}
	return !i.node.Name.IsExported()
}

// methods counts the methods of an interface, those of embedded interfaces of ours included; any other counts as one.
func (s *Source) methods(all map[string]*iface, i *iface, name string) int {
	n := 0
	for _, m := range i.typ.Methods.List {
		if len(m.Names) > 0 {
			n += len(m.Names)
			continue
		}
		embedded := s.resolve(i.file, m.Type)
		if in := all[embedded]; in != nil && embedded != name {
			n += s.methods(all, in, embedded)
		} else {
			n++
		}
	}
	return n
}
