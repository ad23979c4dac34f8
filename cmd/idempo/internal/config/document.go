package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile    = 1 << 20
	maxDepth   = 50
	maxAliases = 10_000
)

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document parses content into the root node of its one document. The limits are kept before anything is built from it:
// a file over 1 MiB is not parsed, and nesting and aliases are counted on the parsed nodes, before aliases are followed.
func document(file string, content []byte) (*yaml.Node, *Problem) {
	at := func(line, col int, format string, args ...any) *Problem {
		return &Problem{File: file, Line: line, Col: col, Message: fmt.Sprintf(format, args...)}
	}
	if len(content) > maxFile {
		return nil, at(1, 1, "file too large: at most 1 MiB")
	}
	if line, col, bad := badText(content); bad != "" {
		return nil, at(line, col, "%s", bad)
	}
	if line, col := deepFlow(content); line > 0 {
		return nil, at(line, col, "nested too deep: at most %d levels", maxDepth)
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return nil, at(1, 1, "empty file: write at least version: 1")
	case err != nil:
		line, message := yamlError(err)
		return nil, at(line, 1, "%s", message)
	}
	var more yaml.Node
	if err := d.Decode(&more); err == nil {
		return nil, at(more.Line, more.Column, "second document: a configuration file holds one")
	} else if !errors.Is(err, io.EOF) {
		line, message := yamlError(err)
		return nil, at(line, 1, "%s", message)
	}
	root := doc.Content[0]
	m := measure{}
	if n := m.node(root, 1, false); n != nil {
		return nil, at(n.Line, n.Column, "%s", m.what)
	}
	return root, nil
}

// yamlError takes the line out of the parser's message. The parser gives no column.
func yamlError(err error) (line int, message string) {
	s := err.Error()
	m := yamlLine.FindStringSubmatch(s)
	if m == nil {
		return 1, s
	}
	line, _ = strconv.Atoi(m[1])
	return max(line, 1), "not YAML: " + s[len(m[0]):]
}

// badText finds what the parser would report less clearly or not at all: tabs used as indentation, other control characters,
// bytes that are not UTF-8.
func badText(content []byte) (line, col int, message string) {
	for i, text := range strings.Split(string(content), "\n") {
		indent, column := true, 0
		for _, r := range strings.TrimSuffix(text, "\r") {
			column++
			switch {
			case r == '\t' && indent:
				return i + 1, column, "tab: indent with spaces"
			case r == utf8.RuneError && !utf8.ValidString(text):
				return i + 1, column, "not UTF-8"
			case r < ' ' && r != '\t', r == 0x7f:
				return i + 1, column, "control character"
			}
			indent = indent && r == ' '
		}
	}
	return 0, 0, ""
}

// deepFlow counts brackets that open in a row. The parser recurses per bracket, so absurd depths are refused before it runs;
// what quotes or comments hide from this count is refused by measure.
func deepFlow(content []byte) (line, col int) {
	depth := 0
	line, col = 1, 0
	for _, c := range content {
		col++
		switch c {
		case '\n':
			line, col = line+1, 0
		case '[', '{':
			if depth++; depth > 20*maxDepth {
				return line, col
			}
		case ']', '}':
			depth--
		}
	}
	return 0, 0
}

// measure walks a document as it will be read, aliases followed, and stops at the first node over a limit.
type measure struct {
	expanded int
	what     string
}

func (m *measure) node(n *yaml.Node, depth int, alias bool) *yaml.Node {
	if depth > maxDepth {
		m.what = fmt.Sprintf("nested too deep: at most %d levels", maxDepth)
		return n
	}
	if alias {
		if m.expanded++; m.expanded > maxAliases {
			m.what = fmt.Sprintf("aliases expand to over %d nodes", maxAliases)
			return n
		}
	}
	if n.Kind == yaml.AliasNode {
		if bad := m.node(n.Alias, depth+1, true); bad != nil {
			return n
		}
		return nil
	}
	for _, c := range n.Content {
		if bad := m.node(c, depth+1, alias); bad != nil {
			return bad
		}
	}
	return nil
}
