package gateway

import (
	"fmt"
	"slices"
	"strings"
)

// probeTemplate is a probe's request, cut into text and placeholders.
type probeTemplate struct {
	method string
	parts  []probePart
}

type probePart struct {
	text string // literal, or
	name string // the placeholder's name
	// query: the place is after the first "?"
	query bool
}

// probeValues are what placeholders stand for.
type probeValues struct {
	key, derivedKey, tenant, operation string
	path                               map[string]string
}

func (v probeValues) get(name string) (string, bool) {
	switch name {
	case "key":
		return v.key, true
	case "derived_key":
		return v.derivedKey, true
	case "tenant":
		return v.tenant, true
	case "operation":
		return v.operation, true
	}
	s, ok := v.path[strings.TrimPrefix(name, "path.")]
	return s, ok
}

// parseProbe reads "GET /path?query". Placeholders stand in path and query only: the target starts with "/", and every
// value is escaped, so that none reaches scheme, host or port.
func parseProbe(request string, names []string) (probeTemplate, error) {
	method, target, ok := strings.Cut(request, " ")
	if !ok || (method != "GET" && method != "HEAD") {
		return probeTemplate{}, fmt.Errorf(`is %q; write GET or HEAD, a space and a path, such as "GET /payments?ref={derived_key}"`, request)
	}
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		return probeTemplate{}, fmt.Errorf("asks %q; it starts with one / and goes to the route's upstream", target)
	}
	t := probeTemplate{method: method}
	query := false
	for rest := target; rest != ""; {
		text, after, found := strings.Cut(rest, "{")
		for i := range len(text) {
			if b := text[i]; b <= ' ' || b >= 0x7f || b == '#' || b == '\\' || b == '}' {
				return probeTemplate{}, fmt.Errorf("has a byte in %q that no request target has", text)
			}
		}
		if text != "" {
			t.parts = append(t.parts, probePart{text: text})
			query = query || strings.Contains(text, "?")
		}
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return probeTemplate{}, fmt.Errorf("has a { without }")
		}
		switch bound, isPath := strings.CutPrefix(name, "path."); {
		case isPath && slices.Contains(names, bound):
		case slices.Contains([]string{"key", "derived_key", "tenant", "operation"}, name):
		case isPath:
			return probeTemplate{}, fmt.Errorf("names {%s}, and the route's pattern binds no %q", name, bound)
		default:
			return probeTemplate{}, fmt.Errorf("names {%s}; there are {key} {derived_key} {tenant} {operation} {path.NAME}", name)
		}
		t.parts = append(t.parts, probePart{name: name, query: query})
		rest = tail
	}
	return t, nil
}

// render gives the request target. A value takes exactly its place: everything but unreserved characters is escaped.
// It fails where a value is missing, or empty in the path, or where a whole path segment would be dots: "%2E%2E" is
// still ".." to a server that normalises.
func (t probeTemplate) render(v probeValues) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		value, ok := v.get(p.name)
		if !ok || (value == "" && !p.query) {
			return "", fmt.Errorf("render probe: no value for {%s}", p.name)
		}
		escapeInto(&b, value)
	}
	path, _, _ := strings.Cut(b.String(), "?")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf("render probe: a value makes a segment of dots")
		}
	}
	return b.String(), nil
}

func escapeInto(b *strings.Builder, s string) {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '~', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}
