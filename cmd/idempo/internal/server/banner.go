package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
)

// Banner says where the server is, what it guards and what to try next. It is for a person, on stderr, after Start.
func (s *Server) Banner() string {
	c := s.settings
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "idempo %s\n", s.options.Version)
	row("gateway", "%s://%s", scheme(c.Gateway.TLS.Cert != ""), s.Addr())
	row("admin", "http://%s  (/healthz /readyz /metrics)", s.AdminAddr())
	row("store", "%s: survives a restart", s.store.Name)
	if c.File != "" {
		row("config", "%s", c.File)
	} else {
		row("config", "none; idempo config check --example shows what can be set")
	}
	s.login(row)
	if c.Metrics.Token != "" {
		row("metrics", "need the bearer token metrics.token, as readiness detail does")
	}
	if s.keys.file != "" {
		word := "digest key in"
		if s.madeKey {
			word = "digest key made:"
		}
		row("keys", "%s %s\n            keep it: every record stands under it", word, s.keys.file)
	}
	if keys := c.Encrypt.Keys; len(keys) > 0 {
		row("encrypted", "stored answers, under key %s", keys[0].ID)
	}
	s.operations(&b)
	if c.Upstream != "" {
		b.WriteString("\nEvery POST and PATCH with an Idempotency-Key now has one effect. Try it twice:\n")
		fmt.Fprintf(&b, "  curl -i -H 'Idempotency-Key: try-1' -d '{\"amount\":12}' http://%s/\n", s.Addr())
	} else {
		b.WriteString("\nNext: idempo keys list\n")
	}
	return b.String()
}

// login says how to get to the dashboard.
func (s *Server) login(row func(name, format string, args ...any)) {
	at := cmp.Or(strings.TrimSuffix(s.settings.Dashboard.PublicURL, "/"), "http://"+s.AdminAddr().String())
	switch s.settings.Dashboard.Auth {
	case "token":
		row("dashboard", "%s/login?code=%s", at, s.gate.Code())
		word := "or with the token in"
		if s.madeToken {
			word = "or with the token made in"
		}
		row("", "logs you in once, within the hour; %s\n            %s", word, TokenFile(s.settings))
	case "none":
		row("dashboard", "%s, without a login: everybody on this machine is admin", at)
	default:
		row("dashboard", "%s, login by %s", at, s.settings.Dashboard.Auth)
	}
}

func scheme(tls bool) string {
	if tls {
		return "https"
	}
	return "http"
}

// operations writes a line per guarded operation: what it is promised, in the words of the configuration.
func (s *Server) operations(b *strings.Builder) {
	c := s.settings.Gateway
	source := tenantSource(s)
	for _, op := range s.engine.Operations() {
		if strings.HasPrefix(op.Name, "webhook:") || strings.HasPrefix(op.Name, "inbox:webhook:") {
			continue // shown by source
		}
		name := strings.TrimPrefix(op.Name, "gateway.")
		var matches []string
		key, fingerprint := "Idempotency-Key", "canonical"
		for _, r := range c.Routes {
			if r.Operation != name {
				continue
			}
			match := r.Match
			if len(matches) == 0 {
				match = name + ": " + match
			}
			matches = append(matches, match)
			switch {
			case len(r.Key.Headers) > 0:
				key = strings.Join(r.Key.Headers, " or ")
			case r.Key.Pointer != "":
				key = "body:" + r.Key.Pointer
			case len(r.Key.From) > 0:
				key = strings.Join(r.Key.From, "+")
			case r.Key.Profile != "" && r.Key.Profile != "default":
				key = "profile " + r.Key.Profile
			}
			if r.Fingerprint != "" {
				fingerprint = r.Fingerprint
			}
			if r.OnStoreDown == "run" {
				fmt.Fprintf(b, "  warning   %s runs unguarded while the store is down (on_store_down: run)\n", name)
			}
			if fingerprint == "none" {
				fmt.Fprintf(b, "  warning   %s: a key answers any request (fingerprint: none)\n", name)
			}
		}
		fmt.Fprintf(b, "  guarded   %s\n            %s\n", folded(matches...), folded(string(op.Guard), "on_crash "+string(op.OnCrash), "key "+key,
			"tenant "+source, "fingerprint "+fingerprint, "kept "+span(op.Retention), "tombstone "+span(op.Tombstone)))
	}
	s.hookLines(b)
	if c.Tenant.Global && s.settings.Upstream == "" {
		b.WriteString("  warning   all callers are one tenant (gateway.tenant.global)\n")
	}
}

// folded joins parts by commas into lines of at most 80 characters, each under the first.
func folded(parts ...string) string {
	const indent, width = 12, 80
	var b strings.Builder
	column := indent
	for i, p := range parts {
		n := utf8.RuneCountInString(p)
		switch {
		case i == 0:
		case column+len(", ")+n+len(",") > width:
			b.WriteString(",\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteString(", ")
			column += len(", ")
		}
		b.WriteString(p)
		column += n
	}
	return b.String()
}

func tenantSource(s *Server) string {
	t := s.settings.Gateway.Tenant
	switch {
	case t.Header != "":
		return "header " + t.Header
	case t.JWT != nil:
		return "jwt claim " + t.JWT.Claim
	case t.MTLS != nil:
		return "mtls"
	case t.ForwardAuth != nil:
		return "forward_auth"
	}
	return "global"
}

func span(d time.Duration) string { return config.FormatDuration(d) }
