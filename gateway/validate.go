package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// operationName is rule E1 of the engine, less the room that "gateway." takes.
var operationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,191}$`)

// Validate tells every mistake that can be told without opening a file or a connection: a joined error whose parts are
// *[FieldError], or nil. [New] calls it.
func (c Config) Validate() error {
	f := &findings{}
	for i, p := range c.TrustedProxies {
		if _, err := parseNetwork(p); err != nil {
			f.add(index("trusted_proxies", i), "is %q; write an address or a network such as 10.0.0.0/8", p)
		}
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		f.add("tls", "needs both cert and key")
	}
	c.validateTenant(f)
	for _, t := range []struct {
		path string
		d    int64
	}{
		{"timeouts.read_header", int64(c.Timeouts.ReadHeader)}, {"timeouts.read_body", int64(c.Timeouts.ReadBody)},
		{"timeouts.idle", int64(c.Timeouts.Idle)}, {"timeouts.write", int64(c.Timeouts.Write)},
		{"limits.head", int64(c.Limits.Head)}, {"limits.connections_per_peer", int64(c.Limits.ConnectionsPerPeer)},
		{"limits.h2_streams", int64(c.Limits.H2Streams)},
	} {
		if t.d < 0 {
			f.add(t.path, "is negative")
		}
	}
	for i, a := range c.Outbound.Allow {
		if _, err := parseNetwork(a); err != nil {
			f.add(index("outbound.allow", i), "is %q; write a network such as 10.0.0.0/8", a)
		}
	}
	for i, p := range c.Outbound.Ports {
		if p < 1 || p > 65535 {
			f.add(index("outbound.ports", i), "is %d; ports are 1 to 65535", p)
		}
	}
	for i, o := range c.CORS.Origins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "") {
			f.add(index("cors.origins", i), "is %q; write scheme and host as browsers do, such as https://shop.example", o)
		}
	}
	names := make([]string, 0, len(c.Upstreams))
	for name := range c.Upstreams {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c.Upstreams[name].validate(f, "upstreams."+name)
	}
	if len(c.Routes) == 0 {
		f.add("routes", `is empty; a first one is {match: "/", upstream: NAME}`)
	}
	for i := range c.Routes {
		c.validateRoute(f, i)
	}
	c.validatePatterns(f)
	c.validateOperations(f)
	return f.err()
}

// CheckListen refuses an address that is wider than the configuration is safe for: without a tenant source of the
// file's own, the gateway may only listen on a loopback address.
func (c Config) CheckListen(address string, explicitTenant bool) error {
	if explicitTenant {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", address, err)
	}
	if ip, err := netip.ParseAddr(host); (err == nil && ip.Unmap().IsLoopback()) || host == "localhost" {
		return nil
	}
	return &FieldError{Path: "tenant", Problem: fmt.Sprintf(
		"is not set and %s is not a loopback address; name a tenant source, or tenant: {global: true} if all callers are one", address)}
}

// ForUpstream is the configuration of `idempo serve --upstream rawURL`: one route for everything, on which a key is
// optional for POST and PATCH, one operation "upstream", on hold after a crash, one tenant for all. It belongs on a
// loopback listener only, see [Config.CheckListen].
func ForUpstream(rawURL string) Config {
	optional := false
	return Config{
		Tenant:    Tenant{Global: true},
		Upstreams: map[string]Upstream{"upstream": {URLs: []string{rawURL}}},
		Routes: []Route{{Match: "/", Upstream: "upstream", Operation: "upstream", OnCrash: "hold",
			Key: KeyRules{Required: &optional}}},
	}
}

func (c Config) guarded() bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool { return r.guarded() })
}

func (c Config) validateTenant(f *findings) {
	t := c.Tenant
	var set []string
	for _, s := range []struct {
		name string
		on   bool
	}{{"header", t.Header != ""}, {"jwt", t.JWT != nil}, {"mtls", t.MTLS != nil}, {"forward_auth", t.ForwardAuth != nil}, {"global", t.Global}} {
		if s.on {
			set = append(set, s.name)
		}
	}
	switch {
	case len(set) > 1:
		f.add("tenant", "names %s; name one source", strings.Join(set, " and "))
	case len(set) == 0 && c.guarded():
		f.add("tenant", "is not set, and a route is guarded; set one of header, jwt, mtls, forward_auth, global")
	}
	if t.Header != "" {
		if !validName(t.Header) {
			f.add("tenant.header", "is %q, which is no header name", t.Header)
		}
		if len(c.TrustedProxies) == 0 {
			f.pair("tenant.header", "trusted_proxies", "is believed from trusted proxies only, and none is named")
		}
	}
	if t.Principal != "" && (t.Global || t.MTLS != nil) {
		f.add("tenant.principal", "goes with header, jwt or forward_auth")
	}
	if j := t.JWT; j != nil {
		if (j.JWKSFile == "") == (j.JWKSURL == "") {
			f.add("tenant.jwt", "needs one of jwks_file and jwks_url")
		}
		if j.JWKSURL != "" {
			validOutbound(f, "tenant.jwt.jwks_url", j.JWKSURL, "https")
		}
		if len(j.Algorithms) == 0 {
			f.add("tenant.jwt.algorithms", "is empty; name those your tokens use, such as [RS256]")
		}
		for i, a := range j.Algorithms {
			if _, ok := algorithmOf(a); !ok {
				f.add(index("tenant.jwt.algorithms", i), "is %q; public-key signatures only: RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA", a)
			}
		}
		if j.Claim == "" {
			f.add("tenant.jwt.claim", "is not set; name the claim that holds the tenant, such as sub")
		}
	}
	if m := t.MTLS; m != nil {
		f.word("tenant.mtls.from", m.From, "cn", "san_dns", "san_uri", "san_email")
		if m.CA == "" {
			f.add("tenant.mtls.ca", "is not set; name the file of the authorities whose client certificates are accepted")
		}
		if c.TLS.Cert == "" {
			f.pair("tenant.mtls", "tls", "needs a TLS listener of the gateway's own")
		}
	}
	if a := t.ForwardAuth; a != nil {
		validOutbound(f, "tenant.forward_auth.url", a.URL, "http", "https")
		if !validName(a.TenantHeader) {
			f.add("tenant.forward_auth.tenant_header", "is %q, which is no header name", a.TenantHeader)
		}
		for i, h := range a.Headers {
			if !validName(h) {
				f.add(index("tenant.forward_auth.headers", i), "is %q, which is no header name", h)
			}
		}
		f.duration("tenant.forward_auth.timeout", a.Timeout)
	}
}

func (u Upstream) validate(f *findings, path string) {
	if len(u.URLs) == 0 {
		f.add(at(path, "urls"), "is empty")
	}
	for i, raw := range u.URLs {
		p, err := url.Parse(raw)
		switch {
		case err != nil || (p.Scheme != "http" && p.Scheme != "https") || p.Hostname() == "" || p.Opaque != "":
			f.add(index(at(path, "urls"), i), "is not an http or https address such as http://10.0.0.5:9000")
		case p.User != nil || p.RawQuery != "" || p.Fragment != "" || (p.Path != "" && p.Path != "/"):
			f.add(index(at(path, "urls"), i), "has more than scheme, host and port; the path forwarded is the one received")
		}
	}
	f.duration(at(path, "connect_timeout"), u.ConnectTimeout)
	f.duration(at(path, "tls_timeout"), u.TLSTimeout)
	f.duration(at(path, "header_timeout"), u.HeaderTimeout)
	f.duration(at(path, "idle_timeout"), u.IdleTimeout)
	if (u.Cert == "") != (u.Key == "") {
		f.add(path, "needs both cert and key, or neither")
	}
	if h := u.HealthCheck; h != nil {
		if !strings.HasPrefix(h.Path, "/") {
			f.add(at(path, "health_check.path"), "is %q; it starts with /", h.Path)
		}
		f.duration(at(path, "health_check.every"), h.Every)
		f.duration(at(path, "health_check.timeout"), h.Timeout)
	}
}

// validatePatterns registers each pair of patterns alone, since a ServeMux names only the second of two that conflict.
func (c Config) validatePatterns(f *findings) {
	type entry struct{ pattern, path string }
	var all []entry
	for i, r := range c.Routes {
		for _, e := range []entry{{r.Match, at(index("routes", i), "match")}, {r.Issue, at(index("routes", i), "issue")}, {r.Status, at(index("routes", i), "status")}} {
			if e.pattern == "" {
				continue
			}
			if problem := register(http.NewServeMux(), e.pattern); problem != "" {
				f.add(e.path, "is %q, which is no pattern: %s", e.pattern, problem)
				continue
			}
			for _, earlier := range all {
				mux := http.NewServeMux()
				register(mux, earlier.pattern)
				if register(mux, e.pattern) != "" {
					f.pair(earlier.path, e.path, "both match one request and neither is more specific: %q and %q", earlier.pattern, e.pattern)
				}
			}
			all = append(all, e)
		}
	}
}

// register adds a pattern and tells what the mux found wrong with it, or "".
func register(mux *http.ServeMux, pattern string) (problem string) {
	defer func() {
		if v := recover(); v != nil {
			problem = strings.ReplaceAll(fmt.Sprint(v), "\n", " ")
		}
	}()
	mux.Handle(plainPattern(pattern), http.NotFoundHandler())
	return ""
}

func validOutbound(f *findings, path, raw string, schemes ...string) {
	u, err := url.Parse(raw)
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		f.add(path, "is not an address that starts with %s://", strings.Join(schemes, ":// or "))
	}
}

// parseNetwork reads an address or a network; an address is the network of itself alone.
func parseNetwork(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func validName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return true
}
