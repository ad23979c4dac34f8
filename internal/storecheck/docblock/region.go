package docblock

import (
	"fmt"
	"strings"
)

// Region cuts a named part out of a source text: the lines between "// region: name" and "// end: name", without the
// indent that they share. An empty name is the whole text.
func Region(source, name string) (string, error) {
	if name == "" {
		return source, nil
	}
	var lines []string
	inside, closed := false, false
	for l := range strings.Lines(source) {
		switch strings.TrimSpace(l) {
		case "// region: " + name:
			inside = true
		case "// end: " + name:
			closed = inside
			inside = false
		default:
			if inside {
				lines = append(lines, l)
			}
		}
	}
	if !closed {
		return "", fmt.Errorf("there is no \"// region: %[1]s\" with \"// end: %[1]s\"", name)
	}
	indent := sharedIndent(lines)
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, indent)
	}
	return strings.Join(lines, ""), nil
}

func sharedIndent(lines []string) string {
	indent, first := "", true
	for _, l := range lines {
		if strings.TrimSpace(l) == "" {
			continue
		}
		own := l[:len(l)-len(strings.TrimLeft(l, "\t "))]
		if first {
			indent, first = own, false
		}
		for !strings.HasPrefix(own, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	return indent
}
