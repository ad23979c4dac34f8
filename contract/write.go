package contract

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// JSON writes a node as indented JSON with a line end.
func JSON(n *Node) []byte { return append(appendJSON(nil, n, 0), '\n') }

// YAML writes a node as YAML in block style, which every YAML 1.1 and 1.2 parser reads alike: whatever looks like anything but text is
// quoted.
func YAML(n *Node) []byte {
	if len(n.Members)+len(n.Items) == 0 {
		return append(yamlScalar(nil, n), '\n')
	}
	return appendYAML(nil, n, 0)
}

// quote is a text as JSON has it, and YAML reads it.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

// appendJSON writes n; indent is the level of its line, or −1: all on one line.
func appendJSON(b []byte, n *Node, indent int) []byte {
	line := func(level int) {
		if indent >= 0 {
			b = append(b, '\n')
			b = append(b, strings.Repeat("  ", level)...)
		}
	}
	deeper := indent
	if indent >= 0 {
		deeper++
	}
	switch n.Kind {
	case Null:
		return append(b, "null"...)
	case Bool, Number:
		return append(b, n.Value...)
	case Text:
		return append(b, quote(n.Value)...)
	case List:
		b = append(b, '[')
		for i, v := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			line(deeper)
			b = appendJSON(b, v, deeper)
		}
		if len(n.Items) > 0 {
			line(indent)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, m := range n.Members {
		if i > 0 {
			b = append(b, ',')
		}
		line(deeper)
		b = append(append(b, quote(m.Name)...), ':')
		if indent >= 0 {
			b = append(b, ' ')
		}
		b = appendJSON(b, m.Value, deeper)
	}
	if len(n.Members) > 0 {
		line(indent)
	}
	return append(b, '}')
}

var (
	plainText  = regexp.MustCompile(`^[A-Za-z/_][A-Za-z0-9_./()+'*=;,-]*( [A-Za-z0-9_./()+'*=;,-]+)*$`)
	notText    = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|y|n|null|nan|inf)$`)
	looksTyped = regexp.MustCompile(`^[0-9.+-]`)
)

func yamlScalar(b []byte, n *Node) []byte {
	switch n.Kind {
	case Text:
		return append(b, yamlText(n.Value)...)
	case List, Map:
		return appendJSON(b, n, -1) // empty
	}
	return appendJSON(b, n, -1)
}

func yamlText(s string) string {
	if plainText.MatchString(s) && !notText.MatchString(s) && !looksTyped.MatchString(s) && !strings.HasSuffix(s, ":") {
		return s
	}
	return quote(s)
}

// short says that a list reads best on one line.
func short(n *Node) bool {
	size := 0
	for _, v := range n.Items {
		if v.Kind == List || v.Kind == Map {
			return false
		}
		size += len(v.Value) + 4
	}
	return size <= 80
}

func appendYAML(b []byte, n *Node, indent int) []byte {
	pad := strings.Repeat(" ", indent)
	for _, v := range n.Items {
		b = append(append(b, pad...), "- "...)
		if len(v.Members)+len(v.Items) == 0 {
			b = append(yamlScalar(b, v), '\n')
			continue
		}
		inner := appendYAML(nil, v, indent+2)
		b = append(b, inner[indent+2:]...)
	}
	for _, m := range n.Members {
		b = append(append(append(b, pad...), yamlText(m.Name)...), ':')
		switch v := m.Value; {
		case len(v.Members)+len(v.Items) == 0:
			b = append(yamlScalar(append(b, ' '), v), '\n')
		case v.Kind == List && short(v):
			b = append(b, ' ', '[')
			for i, item := range v.Items {
				if i > 0 {
					b = append(b, ", "...)
				}
				if item.Kind == Text && strings.ContainsAny(item.Value, ",[]{}") {
					b = append(b, quote(item.Value)...)
					continue
				}
				b = yamlScalar(b, item)
			}
			b = append(b, ']', '\n')
		default:
			b = appendYAML(append(b, '\n'), v, indent+2)
		}
	}
	return b
}
