package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The Go version that every go.mod and go.work states.
const goVersion = "1.26.0"

// CheckImports compares the tree with the policy. Its findings carry the letter of the rule:
//
//	a  a package of the root module has no row, or a row has no package
//	b  an import of our own module that the row does not allow
//	c  a third-party import in the root module, tests included
//	d  a denied standard package that is reached, even through others
//	e  a test kit in code that is not a test
//	f  a requirement in the root; a replace, a toolchain or another Go version anywhere; a requirement without checksum
//	g  an internal package of another module (its test kits: outside tests of modules under internal/); a contrib module that imports another; a module without packages, or one
//	   that go.work does not use
//	list  the go command could not read a package; no other rule can be trusted until it can
func (t *Tree) CheckImports(p Policy) []Finding {
	var fs findings
	t.checkRows(p, &fs)
	for _, pkg := range t.Packages {
		for _, f := range pkg.faults() {
			fs.add("list", pkg.ImportPath, "%s", strings.TrimSpace(f.Err))
		}
		t.checkKits(p, pkg, &fs)
		if name, ok := t.rel(pkg.ImportPath); ok {
			t.checkRootPackage(p, name, pkg, &fs)
		} else {
			t.checkOtherPackage(p, pkg, &fs)
		}
	}
	t.checkModules(&fs)
	return fs.sorted()
}

// checkRows is rule a.
func (t *Tree) checkRows(p Policy, fs *findings) {
	seen := map[string]bool{}
	for _, pkg := range t.Packages {
		name, ok := t.rel(pkg.ImportPath)
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		if _, ok := p.rows[name]; ok {
			continue
		}
		advice := p.later[name]
		if advice == "" {
			advice = fmt.Sprintf("adapter %s : %s", name, strings.Join(t.ownImports(pkg), " "))
		}
		fs.add("a", pkg.ImportPath, "the package has no row; add this line to internal/archtest/policy.txt: %q", advice)
	}
	for name := range p.rows {
		if !seen[name] {
			fs.add("a", name, "the row of internal/archtest/policy.txt has no package; remove the row")
		}
	}
}

func (t *Tree) ownImports(pkg Package) []string {
	var own []string
	for _, imp := range pkg.Imports {
		if name, ok := t.rel(imp); ok {
			own = append(own, name)
		}
	}
	return own
}

// checkRootPackage is rules b, c and d.
func (t *Tree) checkRootPackage(p Policy, name string, pkg Package, fs *findings) {
	row, known := p.rows[name]
	for _, imp := range t.ownImports(pkg) {
		if known && !slices.Contains(row.May, imp) {
			fs.add("b", pkg.ImportPath, "imports %s, which its row in internal/archtest/policy.txt does not allow", imp)
		}
	}
	for _, imp := range slices.Concat(pkg.Imports, pkg.TestImports, pkg.XTestImports) {
		if t.thirdParty(imp) {
			fs.add("c", pkg.ImportPath, "imports %s: the root module, its tests included, uses the standard library alone", imp)
		}
	}
	for _, denied := range row.Layer.denies() {
		if slices.Contains(pkg.Deps, denied) {
			fs.add("d", pkg.ImportPath, "reaches %s on %s, which is denied to layer %s; go mod why or go list -deps shows the way",
				denied, pkg.Platform, row.Layer)
		}
	}
}

// thirdParty says whether an import comes from outside: its first element has a dot, and it is not ours.
func (t *Tree) thirdParty(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	_, ours := t.owner(imp)
	return strings.Contains(first, ".") && !ours
}

// checkKits is rule e.
func (t *Tree) checkKits(p Policy, pkg Package, fs *findings) {
	for _, imp := range t.ownImports(pkg) {
		if p.IsKit(imp) {
			fs.add("e", pkg.ImportPath, "imports the test kit %s outside a _test.go file: its users would link it", imp)
		}
	}
}

// checkOtherPackage is the part of rule g that is about imports. An internal test kit of the root may be used by the
// tests of modules that stand under internal/ themselves: they are this repository's own checks and are never released.
func (t *Tree) checkOtherPackage(p Policy, pkg Package, fs *findings) {
	own, _ := t.owner(pkg.ImportPath)
	for _, imp := range slices.Concat(pkg.Imports, pkg.TestImports, pkg.XTestImports) {
		other, ours := t.owner(imp)
		if !ours || other.Path == own.Path {
			continue
		}
		name, _ := t.rel(imp)
		if p.IsKit(name) && strings.HasPrefix(own.Rel, "internal/") && !slices.Contains(pkg.Imports, imp) {
			continue
		}
		inside := strings.TrimPrefix(imp, other.Path)
		if other.Rel == "." && slices.Contains(strings.Split(inside, "/"), "internal") ||
			other.Rel != "." && slices.Contains(strings.Split(strings.TrimPrefix(imp, t.Root()), "/"), "internal") {
			fs.add("g", pkg.ImportPath, "imports %s, which is internal to another module", imp)
		}
		if strings.HasPrefix(own.Rel, "contrib/") && strings.HasPrefix(other.Rel, "contrib/") {
			fs.add("g", pkg.ImportPath, "imports its sibling %s: a contrib module has one technology", imp)
		}
	}
}

// checkModules is rule f, and the part of g that is about the workspace.
func (t *Tree) checkModules(fs *findings) {
	for _, m := range t.Modules {
		where := strings.TrimPrefix(m.Rel+"/go.mod", "./")
		t.checkModFile(where, m.file, fs)
		if m.Rel == "." {
			for _, r := range m.file.Require {
				fs.add("f", where, "requires %s: the root module requires nothing", r.Path)
			}
			for _, tool := range m.file.Tool {
				fs.add("f", where, "has the tool %s: a tool is a requirement; run it at a pinned version from the Makefile", tool.Path)
			}
		}
		if _, err := os.Stat(filepath.Join(m.Dir, "go.sum")); err != nil && len(m.file.Require) > 0 {
			fs.add("f", where, "requires modules without pinning their checksums: there is no go.sum")
		}
		if !slices.ContainsFunc(t.Packages, func(p Package) bool { return p.Module.Path == m.Path }) {
			fs.add("g", where, "the module has no packages")
		}
	}
	t.checkModFile("go.work", t.work, fs)
	for _, file := range t.unused {
		fs.add("g", file, "go.work does not use this module")
	}
}

func (t *Tree) checkModFile(where string, m modFile, fs *findings) {
	for _, r := range m.Replace {
		fs.add("f", where, "replaces %s: nothing that is installed may replace a module", r.Old.Path)
	}
	if m.Toolchain != "" {
		fs.add("f", where, "names the toolchain %s: the user chooses it", m.Toolchain)
	}
	if m.Go != goVersion {
		fs.add("f", where, "says go %s, want go %s", m.Go, goVersion)
	}
}
