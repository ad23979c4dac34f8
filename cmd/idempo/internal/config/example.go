package config

import (
	"fmt"
	"strings"
)

const exampleHead = `# idempo.example.yaml: every key of a configuration file, with its default.
# Made by: idempo config check --example
#
# Lines that begin with # and a key show keys without a single default, and those below a name of your own.
# Durations are whole numbers with ms s m h d w, also joined (1h30m); sizes carry B kB KiB MB MiB GB GiB TB TiB.
# Any text may hold ${env:NAME} or ${file:PATH}, and any value may be {env: NAME} or {file: PATH};
# $${ is a literal ${.

`

// Example returns a configuration file that sets every key to its default and explains it.
func Example() string {
	e := &example{}
	e.b.WriteString(exampleHead)
	for i := range schema().fields {
		if i > 0 {
			e.b.WriteString("\n")
		}
		e.field(&schema().fields[i], 0, false)
	}
	return e.b.String()
}

type example struct{ b strings.Builder }

// line writes one line; off puts it into a comment.
func (e *example) line(indent int, off bool, s string) {
	if off {
		e.b.WriteString("# ")
	}
	e.b.WriteString(strings.Repeat("  ", indent) + s + "\n")
}

func (e *example) doc(indent int, off bool, s string) {
	width := 104 - 2*indent
	for s != "" {
		cut := len(s)
		if cut > width {
			if cut = strings.LastIndexByte(s[:width], ' '); cut < 0 {
				cut = len(s)
			}
		}
		e.line(indent, off, "# "+s[:cut])
		s = strings.TrimLeft(s[cut:], " ")
	}
}

func (e *example) field(f *field, indent int, off bool) {
	doc := f.doc
	if f.defDoc != "" {
		doc += " Default: " + f.defDoc + "."
	}
	if f.later != "" {
		e.doc(indent, off, doc+" Not in this version: "+f.later+".")
		e.line(indent, true, f.name+":")
		return
	}
	if f.required && f.def == "" {
		doc += " Required."
	}
	e.doc(indent, off, strings.TrimSpace(doc))
	switch {
	case f.kind == section:
		off = off || !f.standsAlone()
		e.line(indent, off, f.name+":")
		e.members(f.fields, indent+1, off)
	case f.kind == mapping && f.item.kind == section:
		e.line(indent, true, f.name+":")
		e.line(indent+1, true, "NAME:")
		e.members(f.item.fields, indent+2, true)
	case f.kind == list && f.item.kind == section:
		e.line(indent, true, f.name+":")
		e.line(indent+1, true, "-")
		e.members(f.item.fields, indent+2, true)
	case f.def != "":
		e.line(indent, off, fmt.Sprintf("%s: %s", f.name, f.def))
	default:
		e.line(indent, true, fmt.Sprintf("%s: %s", f.name, f.sample))
	}
}

func (e *example) members(fields []field, indent int, off bool) {
	for i := range fields {
		e.field(&fields[i], indent, off)
	}
}

// standsAlone says whether a section may be written down with nothing but defaults in it.
func (f *field) standsAlone() bool {
	alone := false
	for i := range f.fields {
		c := &f.fields[i]
		if c.required && c.def == "" {
			return false
		}
		alone = alone || c.def != "" || (c.kind == section && c.standsAlone())
	}
	return alone
}
