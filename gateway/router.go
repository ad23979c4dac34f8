package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// router finds the route of a request by the rules of net/http's ServeMux, but never redirects: what the upstream would
// answer for a path without its last slash is the upstream's affair.
type router struct {
	mux *http.ServeMux
	// without[p] is the mux without the subtree patterns whose path is that of p: asked when p made the mux redirect.
	without map[string]*http.ServeMux
}

type routed struct {
	pattern string
	route   *route
}

func newRouter(all []routed) *router {
	rt := &router{mux: http.NewServeMux(), without: map[string]*http.ServeMux{}}
	for i := range all {
		all[i].pattern = plainPattern(all[i].pattern)
	}
	for _, r := range all {
		rt.mux.Handle(r.pattern, found{r.route})
	}
	for _, subtree := range all {
		path := pathOf(subtree.pattern)
		if !strings.HasSuffix(path, "/") || path == "/" {
			continue
		}
		mux := http.NewServeMux()
		for _, r := range all {
			if pathOf(r.pattern) != path {
				mux.Handle(r.pattern, found{r.route})
			}
		}
		rt.without[subtree.pattern] = mux
	}
	return rt
}

// pathOf is a pattern without its method, its host included.
func pathOf(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		return strings.TrimSpace(rest)
	}
	return pattern
}

// found is what the mux holds: it notes the route in the writer it is given, which is a catch.
type found struct{ route *route }

func (f found) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if c, ok := w.(*catch); ok {
		c.route = f.route
	}
}

// catch is the writer that the mux is asked with.
type catch struct {
	route  *route
	header http.Header
}

func (c *catch) Header() http.Header {
	if c.header == nil {
		c.header = http.Header{}
	}
	return c.header
}
func (c *catch) Write(p []byte) (int, error) { return len(p), nil }
func (c *catch) WriteHeader(int)             {}

// plainPattern is a pattern whose host is spelled as [plainHost] spells those of requests.
func plainPattern(pattern string) string {
	path := pathOf(pattern)
	host, _, ok := strings.Cut(path, "/")
	if !ok || host == "" {
		return pattern
	}
	return strings.TrimSuffix(pattern, path) + plainHost(host) + path[len(host):]
}

// plainHost is a host in lower case and without the dot of the root: names are equal in either spelling to whoever serves
// them, and a ServeMux compares bytes. A port stays.
func plainHost(host string) string {
	host = strings.ToLower(host)
	if !strings.HasSuffix(host, ".") && !strings.Contains(host, ".:") {
		return host
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i:]
	}
	return strings.TrimRight(name, ".") + port
}

// find gives the route, or nil, and sets the pattern and path values of r.
func (rt *router) find(r *http.Request) *route {
	var c catch
	sent := r.Host
	r.Host = plainHost(sent)
	defer func() { r.Host = sent }()
	rt.mux.ServeHTTP(&c, r)
	if c.route == nil && c.header != nil && c.header.Get("Location") != "" {
		if mux := rt.without[r.Pattern]; mux != nil {
			mux.ServeHTTP(&c, r)
		}
	}
	return c.route
}

// guards tells whether a guarded route would match r at another path, its method in upper case.
func (rt *router) guards(r *http.Request, path string) bool {
	h, _ := rt.mux.Handler(&http.Request{Method: strings.ToUpper(r.Method), Host: plainHost(r.Host), URL: &url.URL{Path: path}})
	f, ok := h.(found)
	return ok && f.route.guard != nil
}
