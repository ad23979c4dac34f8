package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// checkPath refuses paths that two readers could take for different ones (row SEC57): "//", dot segments, backslashes
// and NUL, plain or encoded; and an encoded slash where the decoded path would be a guarded one. guards tells whether a
// guarded route matches a request for that path.
func checkPath(raw string, guards func(path string) bool) *refusal {
	const detail = "The path could be read in more than one way."
	if raw == "*" {
		return nil
	}
	if strings.Contains(raw, "//") || strings.Contains(raw, `\`) {
		return malformed(detail)
	}
	escaped := strings.Contains(raw, "%")
	if !escaped && !strings.Contains(raw, "/.") {
		return nil
	}
	for segment := range strings.SplitSeq(raw, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || strings.ContainsAny(plain, "\\\x00") {
			return malformed(detail)
		}
		// Servers that know path parameters read "..;x" as "..".
		if name, _, _ := strings.Cut(plain, ";"); name == "." || name == ".." {
			return malformed(detail)
		}
		// An encoded slash makes segments of its own; dots among them move the path for whoever decodes it.
		if strings.Contains(plain, "/") {
			for inner := range strings.SplitSeq(plain, "/") {
				if inner == "." || inner == ".." {
					return malformed(detail)
				}
			}
		}
	}
	if !escaped || !strings.Contains(strings.ToLower(raw), "%2f") {
		return nil
	}
	decoded, err := url.PathUnescape(raw)
	if err != nil || guards(collapse(decoded)) {
		return malformed(detail)
	}
	return nil
}

// checkTarget holds the target and authority of a request over HTTP/2 to what a request line over HTTP/1.1 can hold: any other byte would
// make two targets of it, or a shorter one, for the upstream.
func checkTarget(r *http.Request) *refusal {
	if r.Method == http.MethodConnect {
		return nil // it never has a route
	}
	if !validHost([]byte(r.Host)) {
		return malformed("The authority is not valid.")
	}
	target := r.RequestURI
	if target != "*" && !strings.HasPrefix(target, "/") {
		return malformed("The request target is not in a known form.")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return malformed("The request target has a byte that must be escaped.")
		}
	}
	return nil
}

// checkMethod refuses a method that is a guarded one in other letters: some servers fold them.
func checkMethod(r *http.Request, guards func(path string) bool) *refusal {
	if strings.ToUpper(r.Method) == r.Method || !guards(r.URL.Path) {
		return nil
	}
	return malformed("The method is not in upper-case letters.")
}

// collapse joins runs of slashes, as many readers do.
func collapse(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// rawPath is the path as it stood in the request line, byte by byte; for a target in absolute form, its path part.
func rawPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if strings.HasPrefix(path, "/") || path == "*" {
		return path
	}
	if _, rest, ok := strings.Cut(path, "://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return "/"
	}
	return path
}
