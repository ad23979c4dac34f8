package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/idempo/idempo/cmd/idempo/internal/spell"
)

// reader turns yaml nodes into checked values and collects every mistake on the way.
type reader struct {
	file     string // as named by the user
	open     bool   // others can read the file
	outside  outside
	problems Problems
	warnings Problems
	bad      []string // paths that could not be read: nothing further is said of them
}

func (r *reader) fail(n *yaml.Node, path, format string, args ...any) {
	r.bad = append(r.bad, path)
	r.problems = append(r.problems, r.problem(n.Line, n.Column, path, format, args...))
}

func (r *reader) problem(line, col int, path, format string, args ...any) Problem {
	return Problem{File: r.file, Line: line, Col: col, Path: path, Message: fmt.Sprintf(format, args...)}
}

func newValue(f *field, parent *value, name string) *value {
	v := &value{field: f, parent: parent, name: name, path: name}
	if parent != nil {
		switch {
		case parent.field.kind == list:
			v.path = parent.path + name
		default:
			v.path = join(parent.path, name)
		}
	}
	return v
}

// absent builds the value of a key that is not in the file: its default, or the defaults of its members.
func absent(f *field, parent *value, name string) *value {
	v := newValue(f, parent, name)
	switch f.kind {
	case section:
		for i := range f.fields {
			v.members = append(v.members, absent(&f.fields[i], v, f.fields[i].name))
		}
	case list, mapping:
	default:
		if f.def != "" {
			v.text = f.def
			v.num, _ = f.read(f.def) // a test reads the default of every field
			if f.def == `""` {
				v.text = ""
			}
		}
	}
	return v
}

func (r *reader) value(n *yaml.Node, f *field, parent *value, name string) *value {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	v := newValue(f, parent, name)
	v.set, v.line, v.col = true, n.Line, n.Column
	if f.later != "" {
		r.fail(n, v.path, "not in this version: %s", f.later)
		return v
	}
	if n.Style&yaml.TaggedStyle != 0 {
		r.fail(n, v.path, "explicit tag: remove it")
		return r.broken(v)
	}
	switch f.kind {
	case section:
		r.section(v, n)
	case mapping:
		r.mapping(v, n)
	case list:
		r.list(v, n)
	default:
		r.scalar(v, n)
	}
	return v
}

// broken gives a value that could not be read its default members, so that reading goes on.
func (r *reader) broken(v *value) *value {
	v.members = absent(v.field, v.parent, v.name).members
	for _, m := range v.members {
		m.parent = v
	}
	return v
}

// wants reports whether n is of the wanted kind, and complains if it is not.
func (r *reader) wants(v *value, n *yaml.Node, kind yaml.Kind, what string) bool {
	if n.Kind == kind {
		return true
	}
	got := "text"
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a set of keys"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.ShortTag() == "!!null":
		got = "nothing"
	}
	r.fail(n, v.path, "%s wanted, %s found", what, got)
	return false
}

// pairs calls each for every key of a mapping node that is a plain scalar and not a repetition.
func (r *reader) pairs(v *value, n *yaml.Node, each func(key, item *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			r.fail(key, v.path, "a key must be a single word")
			continue
		}
		if line, ok := seen[key.Value]; ok {
			r.fail(n.Content[i], join(v.path, key.Value), "key twice: lines %d and %d", line, n.Content[i].Line)
			continue
		}
		seen[key.Value] = n.Content[i].Line
		each(key, item)
	}
}

func (r *reader) section(v *value, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && contains(v.field.words, n.Value) { // a word instead of the keys
		r.broken(v)
		v.text = n.Value
		return
	}
	if !r.wants(v, n, yaml.MappingNode, "a set of keys ("+strings.Join(v.field.names(), " ")+")") {
		r.broken(v)
		return
	}
	found := map[string]*value{}
	r.pairs(v, n, func(key, item *yaml.Node) {
		f := v.field.child(key.Value)
		if f == nil {
			r.fail(key, join(v.path, key.Value), "unknown key%s", r.hint(key.Value, v.field.names()))
			return
		}
		found[f.name] = r.value(item, f, v, f.name)
	})
	for i := range v.field.fields {
		f := &v.field.fields[i]
		m := found[f.name]
		if m == nil {
			if f.required {
				r.fail(n, join(v.path, f.name), "missing: %s", firstSentence(f.doc))
			}
			m = absent(f, v, f.name)
		}
		v.members = append(v.members, m)
	}
}

func (r *reader) hint(got string, names []string) string {
	if near := spell.Nearest(got, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ": known here are " + strings.Join(names, " ")
}

func (r *reader) mapping(v *value, n *yaml.Node) {
	if !r.wants(v, n, yaml.MappingNode, "a set of names") {
		return
	}
	r.pairs(v, n, func(key, item *yaml.Node) {
		if v.field.words != nil && !contains(v.field.words, key.Value) {
			r.fail(key, join(v.path, key.Value), "unknown name%s", r.hint(key.Value, v.field.words))
			return
		}
		if v.field.check != nil {
			if err := v.field.check(key.Value); err != nil {
				r.fail(key, join(v.path, key.Value), "%v", err)
				return
			}
		}
		v.members = append(v.members, r.value(item, v.field.item, v, key.Value))
	})
}

func (r *reader) list(v *value, n *yaml.Node) {
	if !r.wants(v, n, yaml.SequenceNode, "a list") {
		return
	}
	for i, item := range n.Content {
		v.members = append(v.members, r.value(item, v.field.item, v, fmt.Sprintf("[%d]", i)))
	}
}

func (r *reader) scalar(v *value, n *yaml.Node) {
	s, quoted, err := r.resolve(v, n)
	if err == nil && len(v.sources) == 0 {
		err = v.field.typed(n, quoted)
	}
	if err == nil {
		err = r.assign(v, n, s)
	}
	if err != nil {
		r.fail(n, v.path, "%v", err)
		return
	}
	if v.field.secret && len(v.sources) == 0 && r.open {
		r.warnings = append(r.warnings, r.problem(v.line, v.col, v.path, "secret in a file that others can read: chmod 600, or {file: …}"))
	}
	for _, source := range v.sources {
		if name, ok := strings.CutPrefix(source, "env "); ok && v.field.secret && strings.HasPrefix(v.path, "security.") {
			r.warnings = append(r.warnings, r.problem(v.line, v.col, v.path, "secret in the environment variable %s: process lists can show it, and child processes get it; {file: …} keeps it closer", name))
		}
	}
}

// resolve returns the text of a scalar, references followed.
func (r *reader) resolve(v *value, n *yaml.Node) (s string, quoted bool, err error) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && (n.Content[0].Value == "env" || n.Content[0].Value == "file") {
		how, name := n.Content[0].Value, n.Content[1]
		if name.Kind != yaml.ScalarNode || name.Value == "" || name.ShortTag() == "!!null" {
			return "", false, fmt.Errorf("{%s: …} wants a name", how)
		}
		s, open, err := r.outside.read(how, name.Value)
		if err != nil {
			return "", false, err
		}
		v.sources = []string{how + " " + name.Value}
		r.warnOpen(v, open, name.Value)
		return s, false, nil
	}
	if n.Kind != yaml.ScalarNode {
		return "", false, fmt.Errorf("%s wanted, a list or a set of keys found", v.field.wanted())
	}
	quoted = n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	s, sources, open, err := r.outside.expand(n.Value)
	if err != nil {
		return "", false, err
	}
	v.sources = sources
	for _, file := range open {
		r.warnOpen(v, true, file)
	}
	return s, quoted, nil
}

func (r *reader) warnOpen(v *value, open bool, file string) {
	if open && v.field.secret {
		r.warnings = append(r.warnings, r.problem(v.line, v.col, v.path, "others can read the secret file %s: chmod 600 %s", file, file))
	}
}

// typed refuses a scalar whose spelling says another type than the field's.
func (f *field) typed(n *yaml.Node, quoted bool) error {
	tag := n.ShortTag()
	switch {
	case tag == "!!null" && f.kind != anything:
		return fmt.Errorf("%s wanted, nothing found", f.wanted())
	case quoted && (f.kind == whole || f.kind == truth):
		return fmt.Errorf("%s wanted, text found: remove the quotes", f.wanted())
	case !quoted && (f.kind == text || f.kind == path) && tag != "!!str":
		return fmt.Errorf("text wanted, %s found: put it in quotes", tagName(tag))
	}
	return nil
}

func tagName(tag string) string {
	switch tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	}
	return "something else"
}

func (f *field) wanted() string {
	switch f.kind {
	case whole:
		return "a whole number"
	case truth:
		return "true or false"
	case duration:
		return "a duration"
	case size:
		return "a size"
	case word:
		return "one of " + strings.Join(f.words, " ")
	case anything:
		return "a single value"
	}
	return "text"
}

// assign gives v the meaning of s. Errors never repeat a value that came from outside, nor a secret.
func (r *reader) assign(v *value, n *yaml.Node, s string) (err error) {
	f := v.field
	v.text = s
	switch f.kind {
	case word:
		if !contains(f.words, s) {
			if len(v.sources) > 0 {
				return fmt.Errorf("the value of %s is not %s", strings.Join(v.sources, ", "), f.wanted())
			}
			return fmt.Errorf("unknown word%s", r.hint(s, f.words))
		}
		return nil
	case path:
		if s == "" {
			return errors.New("empty path")
		}
		v.text = r.outside.path(s)
	case anything:
		v.any = s
		if len(v.sources) == 0 && n.Kind == yaml.ScalarNode {
			v.any, err = scalarOf(n, s)
		}
		return err
	}
	v.num, err = f.read(s)
	if err != nil && len(v.sources) > 0 {
		return fmt.Errorf("the value of %s: %w", strings.Join(v.sources, ", "), err)
	}
	return err
}

// scalarOf is the JSON meaning of a plain YAML scalar. Numbers keep their digits.
func scalarOf(n *yaml.Node, s string) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		if s != "true" && s != "false" {
			return nil, errors.New("booleans are written true and false")
		}
		return s == "true", nil
	case "!!int", "!!float":
		if !json.Valid([]byte(s)) {
			return nil, errors.New("not a JSON number: put it in quotes if text is meant")
		}
		return json.Number(s), nil
	}
	return s, nil
}

func contains(words []string, w string) bool {
	return slices.Contains(words, w)
}

func firstSentence(doc string) string {
	if before, _, ok := strings.Cut(doc, ". "); ok {
		return before
	}
	return strings.TrimSuffix(doc, ".")
}
