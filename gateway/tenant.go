package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// tenants tells who the caller of a keyed request is. It is asked for every such request, replays included, and caches
// no decision.
type tenants interface {
	// identify gives the caller, or errNoTenant (401), or an *answerError (that answer), or another error (503).
	identify(r *http.Request) (caller, error)
}

// caller is the account, and who acts for it where principals are kept apart.
type caller struct{ tenant, principal string }

// answerError is a refusal in somebody else's words.
type answerError struct {
	status int
	header http.Header
	body   []byte
}

func (e *answerError) Error() string { return fmt.Sprintf("caller refused with status %d", e.status) }

func (g *Gateway) newTenants() (tenants, error) {
	t := g.config.Tenant
	switch {
	case t.Global:
		return globalTenant{}, nil
	case t.Header != "":
		return &headerTenant{name: t.Header, principal: t.Principal, trusted: g.trusted, log: g.log}, nil
	case t.JWT != nil:
		return newJWTTenant(*t.JWT, t.Principal, g.guardedDialer())
	case t.MTLS != nil:
		return mtlsTenant{from: t.MTLS.From}, nil
	case t.ForwardAuth != nil:
		return newForwardAuth(*t.ForwardAuth, t.Principal, g.guardedDialer()), nil
	}
	return nil, nil
}

// globalTenant puts everybody into the tenant "default".
type globalTenant struct{}

func (globalTenant) identify(*http.Request) (caller, error) { return caller{tenant: "default"}, nil }

// headerTenant believes a header, of a trusted peer only.
type headerTenant struct {
	name, principal string
	trusted         networks
	log             *slog.Logger
}

func (h *headerTenant) identify(r *http.Request) (caller, error) {
	if peer := addrOf(r.RemoteAddr); !h.trusted.contain(peer) {
		h.log.Warn("tenant header of a peer that is not in trusted_proxies", "header", h.name, "peer", peer.String())
		return caller{}, errNoTenant
	}
	return callerOf(r.Header, h.name, h.principal)
}

// callerOf takes the tenant, and the principal where it has a name, from headers that each stand there exactly once.
func callerOf(h http.Header, tenant, principal string) (c caller, err error) {
	if c.tenant, err = single(h, tenant); err != nil {
		return caller{}, err
	}
	if principal != "" {
		if c.principal, err = single(h, principal); err != nil {
			return caller{}, err
		}
	}
	return c, nil
}

func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	if len(values) != 1 || strings.TrimSpace(values[0]) == "" {
		return "", errNoTenant
	}
	return values[0], nil
}

// mtlsTenant takes the tenant from the certificate that the listener has verified.
type mtlsTenant struct{ from string }

func (m mtlsTenant) identify(r *http.Request) (caller, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return caller{}, errNoTenant
	}
	leaf := r.TLS.PeerCertificates[0]
	var values []string
	switch m.from {
	case "san_dns":
		values = leaf.DNSNames
	case "san_email":
		values = leaf.EmailAddresses
	case "san_uri":
		for _, u := range leaf.URIs {
			values = append(values, u.String())
		}
	default:
		values = []string{leaf.Subject.CommonName}
	}
	if len(values) != 1 || values[0] == "" {
		return caller{}, errNoTenant
	}
	return caller{tenant: values[0]}, nil
}

var (
	errTenantUnavailable = errors.New("tenant source unavailable")
	errNoTenant          = errors.New("no tenant")
)
