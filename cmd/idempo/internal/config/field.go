package config

import "strings"

// kind says what may stand at a key.
type kind int

const (
	section  kind = iota // a fixed set of names
	mapping              // names of the user's own, each with an item
	list                 // items
	text                 // any text; something shaped like a number or a boolean needs quotes
	path                 // a file or folder, relative to the configuration file
	whole                // a whole number
	truth                // true or false
	duration             // 30s, 1h30m, 7d
	size                 // 64KiB
	word                 // one of field.words
	anything             // any single JSON value: text, number, boolean, null
)

// field is one row of the schema: a key, what may stand there, and what it means.
type field struct {
	name     string
	kind     kind
	doc      string   // one or two sentences; stands in the example file and the JSON Schema
	def      string   // the default as one would write it; empty: none
	defDoc   string   // the default in words, where it is not one fixed value
	sample   string   // what the example file shows where there is no default
	words    []string // kind word; for a mapping: the only names it may have; for a section: what may stand there instead
	min, max string   // inclusive, as written; empty: no limit
	forever  bool     // kind duration: the word forever is allowed
	secret   bool     // the value is never printed
	required bool     // must be there once its section is
	later    string   // not in this version: what is missing
	fields   []field  // kind section
	item     *field   // kinds mapping and list
	check    func(string) error
}

func (f *field) child(name string) *field {
	for i := range f.fields {
		if f.fields[i].name == name {
			return &f.fields[i]
		}
	}
	return nil
}

func (f *field) names() []string {
	names := make([]string, 0, len(f.fields))
	for i := range f.fields {
		names = append(names, f.fields[i].name)
	}
	return names
}

func (f *field) composite() bool { return f.kind == section || f.kind == mapping || f.kind == list }

// walk calls visit for every field below f with its path: items of lists are name[], items of mappings are name.*.
func (f *field) walk(prefix string, visit func(path string, f *field)) {
	for i := range f.fields {
		c := &f.fields[i]
		p := join(prefix, c.name)
		visit(p, c)
		c.below(p, visit)
	}
}

func (f *field) below(p string, visit func(path string, f *field)) {
	if f.later != "" {
		return
	}
	switch f.kind {
	case section:
		f.walk(p, visit)
	case list:
		if f.item.composite() {
			f.item.below(p+"[]", visit)
		}
	case mapping:
		if f.item.composite() {
			f.item.below(p+".*", visit)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// shape removes what differs from file to file: routes[3].outcomes.404 becomes routes[].outcomes.*.
func (v *value) shape() string {
	var parts []string
	for ; v.parent != nil; v = v.parent {
		switch v.parent.field.kind {
		case list:
			parts = append(parts, "[]")
		case mapping:
			parts = append(parts, ".*")
		default:
			parts = append(parts, "."+v.field.name)
		}
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
	}
	return strings.TrimPrefix(b.String(), ".")
}
