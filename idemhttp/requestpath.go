package idemhttp

import (
	"net/http"
	"net/url"
	"strings"
)

// normalPath is an escaped path whose needless escapes, those of unreserved characters (RFC 3986, 2.3), are decoded and whose
// other escapes have upper-case digits. Nothing else is touched: %2F stays apart from a slash, // from /.
func normalPath(escaped string) string {
	if strings.IndexByte(escaped, '%') < 0 {
		return escaped
	}
	var b strings.Builder
	b.Grow(len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c != '%' || i+2 >= len(escaped) || !hexDigit(escaped[i+1]) || !hexDigit(escaped[i+2]) {
			b.WriteByte(c)
			continue
		}
		if plain := hexValue(escaped[i+1])<<4 | hexValue(escaped[i+2]); unreserved(plain) {
			b.WriteByte(plain)
		} else {
			b.WriteString(strings.ToUpper(escaped[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// wildcardValues are the values of the wildcards of the pattern that matched r, in the order of the pattern. ok is false where
// no pattern is known.
func wildcardValues(r *http.Request) (values []string, ok bool) {
	pattern := r.Pattern
	for {
		_, rest, found := strings.Cut(pattern, "{")
		if !found {
			return values, r.Pattern != ""
		}
		name, after, _ := strings.Cut(rest, "}")
		pattern = after
		if name == "$" {
			continue
		}
		if single, multi := strings.CutSuffix(name, "..."); multi {
			// ServeMux decodes the rest of the path as a whole, which makes %2F a slash.
			values = append(values, normalPath(escapedTail(r.URL, r.PathValue(single))))
			continue
		}
		values = append(values, r.PathValue(name))
	}
}

// escapedTail is the end of the path of u, as sent, that decodes to value; or value, if the path does not end so.
func escapedTail(u *url.URL, value string) string {
	if !strings.HasSuffix(u.Path, value) {
		return value
	}
	escaped := u.EscapedPath()
	for range len(u.Path) - len(value) {
		switch {
		case escaped == "":
			return value
		case escaped[0] == '%' && len(escaped) >= 3:
			escaped = escaped[3:]
		default:
			escaped = escaped[1:]
		}
	}
	return escaped
}
