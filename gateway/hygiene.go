package gateway

import (
	"net/http"
	"net/textproto"
	"strings"
)

// headerNames are the header names that a gateway keeps for itself, in canonical form.
type headerNames struct {
	keys    map[string]bool // key headers, those that net/http takes for one included
	guarded map[string]bool // key, tenant and principal headers
}

func (c Config) headerNames() headerNames {
	n := headerNames{keys: map[string]bool{}, guarded: map[string]bool{}}
	add := func(names ...string) {
		for _, name := range names {
			if name != "" {
				n.guarded[textproto.CanonicalMIMEHeaderKey(name)] = true
			}
		}
	}
	key := func(names ...string) {
		add(names...)
		for _, name := range names {
			n.keys[textproto.CanonicalMIMEHeaderKey(name)] = true
		}
	}
	key("Idempotency-Key", "X-Idempotency-Key")
	add(c.Tenant.Header)
	if c.Tenant.Header != "" {
		add(c.Tenant.Principal)
	}
	if f := c.Tenant.ForwardAuth; f != nil {
		add(f.TenantHeader, c.Tenant.Principal)
	}
	for _, r := range c.Routes {
		key(r.Key.Headers...)
		if r.UpstreamKeyHeader != "" {
			key(r.UpstreamKeyHeader)
		}
		if r.Key.Profile == "paypal" {
			key("PayPal-Request-Id")
		}
	}
	return n
}

// own tells idempo's headers of an answer; a client that sends one is lying, or replaying an answer.
func own(name string) bool {
	switch name {
	case "Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Key-Next":
		return true
	}
	return strings.HasPrefix(name, "Idempo-")
}

// forwarding tells the headers that say who a request came from.
func forwarding(name string) bool {
	return name == "Forwarded" || strings.HasPrefix(name, "X-Forwarded-")
}

// protected tells the names that no other spelling may stand for.
func (n headerNames) protected(name string) bool {
	switch name {
	case "Authorization", "Host", "Content-Length", "Transfer-Encoding":
		return true
	}
	return n.guarded[name] || own(name) || forwarding(name)
}

// clean takes out of a request's headers what the upstream must not take for something else: idempo's own headers,
// names that are a protected one with "_" for "-", upgrades to another HTTP, and, unless allowed, method overrides.
func (n headerNames) clean(h http.Header, allowOverride bool) {
	if upgradesHTTP(h) {
		delete(h, "Upgrade")
		delete(h, "Http2-Settings")
	}
	for name := range h {
		switch name {
		case "X-Http-Method-Override", "X-Method-Override", "X-Http-Method":
			if !allowOverride {
				delete(h, name)
			}
			continue
		}
		if own(name) {
			delete(h, name)
			continue
		}
		if strings.IndexByte(name, '_') < 0 {
			continue
		}
		dashed := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		override := dashed == "X-Http-Method-Override" || dashed == "X-Method-Override" || dashed == "X-Http-Method"
		if n.protected(dashed) || (override && !allowOverride) {
			delete(h, name)
		}
	}
}

// upgradesHTTP tells an upgrade after which requests of HTTP would pass unseen: h2c, or another version.
func upgradesHTTP(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for token := range strings.SplitSeq(strings.ToLower(line), ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(token), "/")
			if name == "h2c" || name == "h2" || name == "http" {
				return true
			}
		}
	}
	return false
}

// cleanTrailer drops trailers that would matter in a head: they come too late to be judged.
func (n headerNames) cleanTrailer(t http.Header) {
	for name := range t {
		if n.protected(textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
			delete(t, name)
		}
	}
}

// checkConnection refuses a Connection header that would make a hop drop what the gateway needs or sets (row SEC55).
func (n headerNames) checkConnection(h http.Header) *refusal {
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if name := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(token)); n.protected(name) {
				return malformed("The Connection header names a header that must reach the other end.")
			}
		}
	}
	return nil
}

// removeHopByHop drops the headers of one connection (RFC 9110 7.6.1), "Te: trailers" excepted.
func removeHopByHop(h http.Header) {
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" {
				h.Del(token)
			}
		}
	}
	trailers := false
	for _, line := range h["Te"] {
		trailers = trailers || strings.Contains(strings.ToLower(line), "trailers")
	}
	for _, name := range [...]string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		delete(h, name)
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
}
