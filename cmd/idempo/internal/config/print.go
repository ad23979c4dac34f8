package config

import (
	"fmt"
	"net/url"
	"strings"
)

// Setting is one effective value and where it comes from.
type Setting struct {
	Path   string `json:"path"`
	Value  string `json:"value"`  // as one would write it; secrets, and what came from outside the file, are ***
	Origin string `json:"origin"` // default · FILE:LINE · flag --x · env IDEMPO_X
}

// List is every effective setting in the order of the schema: what is set, and the defaults of what is not.
func (c *Settings) List() []Setting {
	var out []Setting
	if c.Upstream != "" {
		out = append(out, Setting{Path: "upstream", Value: c.Upstream, Origin: c.tree.upstream.Origin})
	}
	c.tree.list(c.File, &out)
	return out
}

func (v *value) list(file string, out *[]Setting) {
	f := v.field
	switch {
	case f.later != "":
	case f.kind == list && v.set && !f.item.composite():
		*out = append(*out, Setting{v.path, v.shown(), v.from(file)})
	case f.composite() && len(v.members) > 0:
		if f.kind == section && !v.set && v.parent != nil && v.parent.parent != nil && !allDefaults(v) {
			return // a section that is not there, and would need more than defaults
		}
		for _, m := range v.members {
			m.list(file, out)
		}
	case f.composite():
	case v.set || f.def != "" || f.defDoc != "":
		*out = append(*out, Setting{v.path, v.shown(), v.from(file)})
	}
}

// allDefaults says whether a section works without being written down.
func allDefaults(v *value) bool {
	for _, m := range v.members {
		if m.field.required {
			return false
		}
	}
	return true
}

// shown is the value as it may be printed.
func (v *value) shown() string {
	switch {
	case v.set && len(v.sources) > 0:
		return "***"
	case v.field.secret && v.text != "":
		if u := MaskURL(v.text); u != "" {
			return u
		}
		return "***"
	case v.field.kind == list:
		var parts []string
		for _, m := range v.members {
			parts = append(parts, m.shown())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case !v.set && v.field.def == "":
		return "(" + v.field.defDoc + ")"
	case v.field.kind == text || v.field.kind == path || v.field.kind == anything && v.any == v.text:
		return quoteYAML(v.text)
	}
	return v.text
}

func (v *value) from(file string) string {
	origin := "default"
	switch {
	case v.origin != "":
		origin = v.origin
	case v.set && v.line > 0:
		origin = fmt.Sprintf("%s:%d", file, v.line)
	}
	if len(v.sources) > 0 {
		origin += ", " + strings.Join(v.sources, ", ")
	}
	return origin
}

// quoteYAML writes text so that YAML reads it as the same text.
func quoteYAML(s string) string {
	if s == "" || strings.ContainsAny(s, "\"'\\{}[],&*#?|<>=!%@`\n\t ") || strings.Contains(s, ": ") || strings.HasPrefix(s, "-") || strings.HasSuffix(s, ":") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// MaskURL returns a URL with *** for its password and for every parameter that may hold a secret; "" if s is no URL.
func MaskURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	const stars = "xxMASKEDxx" // stars would be percent-escaped
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), stars)
	}
	q := u.Query()
	for name := range q {
		if name == "password" || name == "sslpassword" || strings.Contains(name, "secret") || strings.Contains(name, "token") {
			q.Set(name, stars)
		}
	}
	u.RawQuery = q.Encode()
	return strings.ReplaceAll(u.String(), stars, "***")
}
