package sqlkit

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	identifier  = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)
	placeholder = regexp.MustCompile(`\{(table|name|schema|columns|packed|when)(?: ([^{}]+))?\}`)
)

// Names is where a store's tables live and how its database quotes names.
type Names struct {
	Schema string // "": the database has no schemas, or the connection's is used
	Prefix string // before every table, index, function and constraint
	Quote  byte   // '"' or '`'
}

// Check refuses a schema or prefix that is not [a-z_][a-z0-9_]{0,39}; either may be empty.
func (n Names) Check() error {
	for _, p := range [][2]string{{"schema", n.Schema}, {"prefix", n.Prefix}} {
		if p[1] != "" && !identifier.MatchString(p[1]) {
			return fmt.Errorf("%s must match [a-z_][a-z0-9_]{0,39}", p[0])
		}
	}
	return nil
}

// Table returns the quoted, qualified name of a table or function.
func (n Names) Table(name string) string {
	if n.Schema == "" {
		return n.Name(name)
	}
	return n.quote(n.Schema) + "." + n.Name(name)
}

// Name returns the quoted name of an index or constraint, without schema.
func (n Names) Name(name string) string { return n.quote(n.Prefix + name) }

func (n Names) quote(s string) string {
	q := string(n.Quote)
	return q + s + q
}

// Expand fills in the placeholders of a query or migration: {table records} is Table("records"), {name records_ref} is
// Name("records_ref"), {schema} the quoted schema, {columns} the column list, {columns r} the same led by "r.",
// {columns -response_body} the list with NULL in that column's place. {when X} becomes when(X), and so do the times in
// {columns}, for a database whose times are read by an expression. {packed} takes the words of {columns}, see Row.Unpack. An unknown placeholder is an error.
func (n Names) Expand(sql string, when func(string) string) (string, error) {
	var bad error
	out := placeholder.ReplaceAllStringFunc(sql, func(m string) string {
		p := placeholder.FindStringSubmatch(m)
		switch word, arg := p[1], p[2]; {
		case word == "table" && arg != "":
			return n.Table(arg)
		case word == "name" && arg != "":
			return n.Name(arg)
		case word == "schema" && n.Schema != "":
			return n.quote(n.Schema)
		case word == "columns":
			return columns(strings.Fields(arg), when)
		case word == "packed":
			return packed(strings.Fields(arg))
		case word == "when" && arg != "" && when != nil:
			return when(arg)
		}
		bad = fmt.Errorf("placeholder %s cannot be filled in", m)
		return m
	})
	return out, bad
}

// columns lists Columns; words are an alias, or names led by "-" that are replaced by NULL.
func columns(words []string, when func(string) string) string {
	lead, drop := leadAndDrop(words)
	cols := Columns()
	for i, c := range cols {
		switch {
		case drop[c]:
			cols[i] = "null"
		case when != nil && (strings.HasSuffix(c, "_at") || strings.HasSuffix(c, "_until")):
			cols[i] = when(lead + c)
		default:
			cols[i] = lead + c
		}
	}
	return strings.Join(cols, ", ")
}

func leadAndDrop(words []string) (lead string, drop map[string]bool) {
	drop = map[string]bool{}
	for _, w := range words {
		if name, ok := strings.CutPrefix(w, "-"); ok {
			drop[name] = true
		} else {
			lead = w + "."
		}
	}
	return lead, drop
}

// Queries reads every *.sql file of dir, strips comment lines and indentation, fills in the placeholders, and returns
// the texts by file name without ending.
func (n Names) Queries(files fs.FS, dir string, when func(string) string) (map[string]string, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, fmt.Errorf("queries: %w", err)
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".sql")
		if !ok {
			continue
		}
		b, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("query %s: %w", name, err)
		}
		if out[name], err = n.Expand(Strip(string(b)), when); err != nil {
			return nil, fmt.Errorf("query %s: %w", name, err)
		}
	}
	return out, nil
}

// Strip removes comment lines, indentation and a last semicolon, so that no more than the statement travels.
func Strip(sql string) string {
	var keep []string
	for line := range strings.Lines(sql) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			keep = append(keep, line)
		}
	}
	return strings.TrimSuffix(strings.Join(keep, "\n"), ";")
}

// Identifier reports whether s needs no more than quotes to be a name: [a-z_][a-z0-9_]{0,39}.
func Identifier(s string) bool { return identifier.MatchString(s) }
