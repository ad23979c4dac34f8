package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// Source says what a configuration is made from, in the order of precedence: overrides, file, defaults.
type Source struct {
	File      string // as named by the user; empty: no file, defaults only
	Content   []byte // not nil: instead of reading File
	DataDir   string // where data without a path of its own lives
	Overrides []Override
	LookupEnv func(name string) (string, bool) // for ${env:NAME}; nil: nothing is set
}

// Override is one setting from a flag or from its environment mirror. It replaces what the file says.
type Override struct {
	Path   string // a key of the schema outside lists and mappings: listen.gateway; or store, upstream
	Value  string // taken literally
	Origin string // "flag --listen", "env IDEMPO_LISTEN"
}

// Load reads, checks and decodes a configuration. The error is Problems, with everything that is wrong; warnings are things
// that work and should not stay. Nothing but the file and the files named in it is opened, and nothing is written.
func Load(s Source) (*Settings, Problems, error) {
	root, r, err := read(s)
	if err != nil {
		return nil, nil, err
	}
	r.combine(root)
	if len(r.problems) > 0 {
		r.problems.sort()
		return nil, r.warnings, r.problems
	}
	r.warnings.sort()
	return decode(root, s, r), r.warnings, nil
}

// read builds the tree of a source: checked values, defaults and overrides.
func read(s Source) (*value, *reader, error) {
	r := &reader{file: s.File, outside: outside{dir: filepath.Dir(s.File), lookup: s.LookupEnv}}
	if r.outside.lookup == nil {
		r.outside.lookup = func(string) (string, bool) { return "", false }
	}
	if dir, err := filepath.Abs(r.outside.dir); err == nil {
		r.outside.dir = dir
	}
	f := schema()
	root := absent(f, nil, "")
	if s.File != "" {
		node, err := r.node(s)
		if err != nil {
			return nil, nil, err
		}
		root = r.value(node, f, nil, "")
	}
	for _, o := range s.Overrides {
		r.override(root, o)
	}
	return root, r, nil
}

// node reads the file into the node of its one document.
func (r *reader) node(s Source) (*yaml.Node, error) {
	content := s.Content
	if content == nil {
		f, err := os.Open(s.File)
		if err != nil {
			return nil, Problems{{File: s.File, Message: "cannot be read: " + reason(err).Error()}}
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil {
			if st.IsDir() {
				return nil, Problems{{File: s.File, Message: "cannot be read: is a directory"}}
			}
			r.open = worldReadable(st)
		}
		if content, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil {
			return nil, Problems{{File: s.File, Message: "cannot be read: " + reason(err).Error()}}
		}
	}
	node, problem := document(s.File, content)
	if problem != nil {
		return nil, Problems{*problem}
	}
	return node, nil
}

// override replaces a value. The store may be given as a path or as a URL; its other spelling in the file then does not count.
func (r *reader) override(root *value, o Override) {
	if o.Path == "upstream" {
		r.overrideUpstream(root, o)
		return
	}
	if o.Path == "store" {
		store := root.at("store")
		for _, name := range []string{"sqlite", "postgres", "mysql"} {
			*store.at(name) = *absent(store.field.child(name), store, name)
		}
		o.Path = "store.sqlite"
		if checkPostgres(o.Value) == nil {
			o.Path = "store.postgres"
		} else if scheme := urlScheme(o.Value); scheme == "mysql" || scheme == "mariadb" {
			o.Path = "store.mysql"
		} else if scheme := urlScheme(o.Value); scheme != "" {
			r.problems = append(r.problems, Problem{File: o.Origin, Path: "store", Message: fmt.Sprintf("not in this version: a %s store; give a path, a postgres:// or a mysql:// URL", scheme)})
			return
		}
	}
	v := root.find(o.Path)
	if v == nil {
		panic("config: override of unknown key " + o.Path)
	}
	*v = value{field: v.field, parent: v.parent, name: v.name, path: v.path, set: true, origin: o.Origin, text: o.Value}
	var err error
	switch {
	case o.Value == "":
		err = fmt.Errorf("%s wanted, nothing found", v.field.wanted())
	case v.field.kind == word && !contains(v.field.words, o.Value):
		err = fmt.Errorf("unknown word%s", r.hint(o.Value, v.field.words))
	case v.field.kind != word:
		v.num, err = v.field.read(o.Value)
	}
	if err != nil {
		r.bad = append(r.bad, v.path)
		r.problems = append(r.problems, Problem{File: o.Origin, Path: v.path, Message: err.Error()})
	}
}

// overrideUpstream makes one route for everything out of --upstream (page http, P2).
func (r *reader) overrideUpstream(root *value, o Override) {
	gw := root.at("gateway")
	fail := func(err error) {
		r.problems = append(r.problems, Problem{File: o.Origin, Path: "upstream", Message: err.Error()})
	}
	if err := checkBase(o.Value); err != nil {
		fail(err)
		return
	}
	if v := gw.at("routes"); v.set {
		fail(fmt.Errorf("gateway.routes is set as well (line %d): give one of the two", v.line))
		return
	}
	root.upstream = &o
}

// find returns the value at a dotted path of sections, nil where there is none.
func (v *value) find(p string) *value {
	for _, m := range v.members {
		if m.path == p {
			return m
		}
		if m.field.kind == section {
			if f := m.find(p); f != nil {
				return f
			}
		}
	}
	return nil
}

// AsProblems returns the list inside an error of Load.
func AsProblems(err error) (Problems, bool) { return errors.AsType[Problems](err) }
