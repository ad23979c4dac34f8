package archtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is a repository as `go list` sees it: a root module and the modules that its go.work ties to it.
// It is read once by Open and not changed afterwards, so it is safe for concurrent use.
type Tree struct {
	Dir      string   // absolute
	Modules  []Module // by path; the root module first
	Packages []Package
	unused   []string // go.mod files of the tree that go.work does not use
	work     modFile
}

// Module is one module of the workspace.
type Module struct {
	Path string
	Dir  string
	Rel  string // its folder relative to the tree; "." for the root module
	file modFile
}

// Package is one package on one platform.
type Package struct {
	ImportPath   string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Module       struct{ Path string }
	Error        *fault
	DepsErrors   []fault
	Platform     string // such as "linux"
}

// fault is why the go command could not read a package.
type fault struct{ Err string }

// faults are the reasons why nothing may be concluded from the package. That it has no file for a platform is none.
func (p Package) faults() []fault {
	all := p.DepsErrors
	if p.Error != nil {
		all = append(slices.Clone(all), *p.Error)
	}
	return slices.DeleteFunc(slices.Clone(all), func(f fault) bool {
		return strings.Contains(f.Err, "build constraints exclude all Go files")
	})
}

// modFile is what `go mod edit -json` and `go work edit -json` tell.
type modFile struct {
	Go        string
	Toolchain string
	Require   []struct{ Path, Version string }
	Replace   []struct{ Old struct{ Path string } }
	Tool      []struct{ Path string }
}

// platforms are the systems that the binary runs on; `go list` sees one at a time.
func platforms() []string { return []string{"linux", "darwin", "windows"} }

// Open lists the modules and packages of the tree under dir, for each platform. It returns an error when the go command
// fails or the workspace has no module; what is wrong inside a module is left to the checks.
func Open(ctx context.Context, dir string) (*Tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	t := &Tree{Dir: abs}
	if err := t.readModules(ctx); err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	for _, platform := range platforms() {
		if err := t.listPackages(ctx, platform); err != nil {
			return nil, fmt.Errorf("open tree for %s: %w", platform, err)
		}
	}
	return t, nil
}

// Root is the path of the root module.
func (t *Tree) Root() string { return t.Modules[0].Path }

// rel names a package of the root module relative to it; ok is false for any other import.
func (t *Tree) rel(importPath string) (name string, ok bool) {
	m, found := t.owner(importPath)
	if !found || m.Rel != "." {
		return "", false
	}
	name = strings.TrimPrefix(strings.TrimPrefix(importPath, m.Path), "/")
	return cmp.Or(name, "."), true
}

// owner is the module of the workspace that an import belongs to: the longest path wins.
func (t *Tree) owner(importPath string) (Module, bool) {
	var best Module
	for _, m := range t.Modules {
		if (importPath == m.Path || strings.HasPrefix(importPath, m.Path+"/")) && len(m.Path) > len(best.Path) {
			best = m
		}
	}
	return best, best.Path != ""
}

func (t *Tree) readModules(ctx context.Context) error {
	out, err := t.goCommand(ctx, t.workspace(), "list", "-m", "-json=Path,Dir")
	if err != nil {
		return err
	}
	if t.Modules, err = decodeAll[Module](out); err != nil {
		return err
	}
	t.Modules = slices.DeleteFunc(t.Modules, func(m Module) bool { return m.Dir == "" })
	if len(t.Modules) == 0 {
		return errors.New("the workspace has no modules")
	}
	for i := range t.Modules {
		m := &t.Modules[i]
		if m.Rel, err = t.relDir(m.Dir); err != nil {
			return err
		}
		if err := t.editJSON(ctx, &m.file, "mod", filepath.Join(m.Dir, "go.mod")); err != nil {
			return err
		}
	}
	slices.SortFunc(t.Modules, func(a, b Module) int { return cmp.Compare(a.Rel, b.Rel) })
	if t.Modules[0].Rel != "." {
		return errors.New("go.work does not use the root module")
	}
	if err := t.editJSON(ctx, &t.work, "work", filepath.Join(t.Dir, "go.work")); err != nil {
		return err
	}
	return t.findUnused()
}

func (t *Tree) editJSON(ctx context.Context, into *modFile, kind, file string) error {
	out, err := t.goCommand(ctx, nil, kind, "edit", "-json", file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// findUnused looks for go.mod files that the workspace does not use.
func (t *Tree) findUnused() error {
	return walk(t.Dir, func(file string) error {
		if path.Base(file) != "go.mod" {
			return nil
		}
		dir := path.Dir(file)
		if !slices.ContainsFunc(t.Modules, func(m Module) bool { return m.Rel == dir }) {
			t.unused = append(t.unused, file)
		}
		return nil
	})
}

// listPackages asks twice: the root module alone, as its users get it, and the others inside the workspace. A pattern
// such as ./contrib/... matches nothing from the root and would pass on emptiness, so each module is named.
func (t *Tree) listPackages(ctx context.Context, platform string) error {
	args := []string{"list", "-e", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,Deps,Module,Error,DepsErrors"}
	rest := slices.Clone(args)
	for _, m := range t.Modules[1:] {
		rest = append(rest, "./"+m.Rel+"/...")
	}
	out, err := t.goCommand(ctx, []string{"GOOS=" + platform, "GOWORK=off"}, append(args, "./...")...)
	if err != nil {
		return err
	}
	if len(t.Modules) > 1 {
		more, err := t.goCommand(ctx, append(t.workspace(), "GOOS="+platform), rest...)
		if err != nil {
			return err
		}
		out = append(out, more...)
	}
	found, err := decodeAll[Package](out)
	for i := range found {
		found[i].Platform = platform
	}
	t.Packages = append(t.Packages, found...)
	return err
}

func (t *Tree) workspace() []string { return []string{"GOWORK=" + filepath.Join(t.Dir, "go.work")} }

// goCommand runs the go command in the tree and returns its standard output.
func (t *Tree) goCommand(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.Dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s %s: %w: %s", args[0], args[1], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

func (t *Tree) relDir(dir string) (string, error) {
	// The go command may answer with the real folder behind a link.
	base, err := filepath.EvalSymlinks(t.Dir)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	rel, err := filepath.Rel(base, dir)
	return filepath.ToSlash(rel), err
}

// decodeAll reads JSON values that stand one after the other.
func decodeAll[T any](data []byte) ([]T, error) {
	var all []T
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var one T
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		all = append(all, one)
	}
}

// walk calls visit for each file under dir that belongs to the project, by its slash path relative to dir. What git and
// builds leave behind, and test data, is left out.
func walk(dir string, visit func(file string) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || slices.Contains([]string{"testdata", "bin", "tmp", "dist"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(name)
	})
}
