package gateway

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// fieldErrors are the parts of a joined error, as path, other and problem.
func fieldErrors(t *testing.T, err error) []*FieldError {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a joined error: %v", err)
	}
	var list []*FieldError
	for _, e := range joined.Unwrap() {
		f, ok := errors.AsType[*FieldError](e)
		if !ok {
			t.Fatalf("not a *FieldError: %v", e)
		}
		list = append(list, f)
	}
	return list
}

// good is a configuration without a mistake.
func good() Config {
	return Config{
		Tenant:    Tenant{Global: true},
		Upstreams: map[string]Upstream{"pay": {URLs: []string{"http://10.0.0.5:9000"}}},
		Routes: []Route{
			{Match: "/", Upstream: "pay"},
			{Match: "POST /v1/accounts/{account}/payments", Upstream: "pay", Operation: "create-payment"},
		},
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	ok := func(name string, change func(*Config)) {
		t.Helper()
		c := good()
		change(&c)
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := func(path, problem string, change func(*Config)) {
		t.Helper()
		c := good()
		change(&c)
		for _, f := range fieldErrors(t, c.Validate()) {
			if f.Path == path && strings.Contains(f.Problem, problem) {
				return
			}
		}
		t.Errorf("no finding at %q with %q, but %v", path, problem, c.Validate())
	}
	guarded := func(change func(*Route)) func(*Config) {
		return func(c *Config) { change(&c.Routes[1]) }
	}
	probe := func(change func(*Probe)) func(*Config) {
		return guarded(func(r *Route) {
			r.OnCrash = "probe"
			r.Probe = &Probe{Request: "GET /p?ref={derived_key}", Happened: ProbeMatch{Status: []int{200}}, NotHappened: ProbeMatch{Status: []int{404}}}
			change(r.Probe)
		})
	}

	ok("as it is", func(*Config) {})
	ok("a probe", probe(func(*Probe) {}))
	ok("a route for another method", guarded(func(r *Route) { r.Match = "PUT /x"; r.Methods = []string{"PUT"} }))
	ok("--upstream", func(c *Config) { *c = ForUpstream("http://127.0.0.1:9000") })
	bad("trusted_proxies[1]", "network", func(c *Config) { c.TrustedProxies = []string{"10.0.0.0/8", "proxy"} })
	bad("tls", "both", func(c *Config) { c.TLS.Cert = "a" })
	bad("timeouts.idle", "negative", func(c *Config) { c.Timeouts.Idle = -1 })
	bad("outbound.ports[0]", "65535", func(c *Config) { c.Outbound.Ports = []int{0} })
	bad("cors.origins[0]", "scheme", func(c *Config) { c.CORS.Origins = []string{"shop.example"} })
	bad("upstreams.pay.urls", "empty", func(c *Config) { c.Upstreams["pay"] = Upstream{} })
	bad("upstreams.pay.urls[0]", "path", func(c *Config) { c.Upstreams["pay"] = Upstream{URLs: []string{"http://h/base"}} })
	bad("upstreams.pay.urls[0]", "http", func(c *Config) { c.Upstreams["pay"] = Upstream{URLs: []string{"ftp://h"}} })
	bad("routes", "empty", func(c *Config) { c.Routes = nil })
	bad("routes[0].upstream", "upstreams", func(c *Config) { c.Routes[0].Upstream = "pya" })
	bad("routes[0]", "no operation", func(c *Config) { c.Routes[0].OnCrash = "hold" })
	bad("routes[1].operation", "letters", guarded(func(r *Route) { r.Operation = "a b" }))
	bad("routes[1].match", "never guarded; drop operation", guarded(func(r *Route) { r.Match = "GET /x" }))
	bad("routes[1].match", "add it to methods", guarded(func(r *Route) { r.Match = "PUT /x" }))
	bad("routes[1].on_crash", "hold", guarded(func(r *Route) { r.OnCrash = "holt" }))
	bad("routes[1].probe.request", "GET or HEAD", probe(func(p *Probe) { p.Request = "POST /x" }))
	bad("routes[1].probe.request", "binds no", probe(func(p *Probe) { p.Request = "GET /x/{path.id}" }))
	bad("routes[1].probe.request", "there are", probe(func(p *Probe) { p.Request = "GET /x/{kye}" }))
	bad("routes[1].probe.request", "starts with one /", probe(func(p *Probe) { p.Request = "GET http://evil/{key}" }))
	bad("routes[1].probe.happened.status", "empty", probe(func(p *Probe) { p.Happened.Status = nil }))
	bad("routes[1].probe.settle", "negative", probe(func(p *Probe) { p.Settle = -time.Second }))
	bad("routes[1].on_crash", "go together", guarded(func(r *Route) { r.OnCrash = "probe" }))

	t.Run("[http/P1] a conflict of two patterns names both places", func(t *testing.T) {
		c := good()
		c.Routes = append(c.Routes, Route{Match: "/a/{x}", Upstream: "pay"}, Route{Match: "/{y}/b", Upstream: "pay"})
		got := fieldErrors(t, c.Validate())
		if len(got) != 1 || got[0].Path != "routes[2].match" || got[0].Other != "routes[3].match" {
			t.Fatalf("got %v", got)
		}
	})
	t.Run("[http/P4] a guarded route without a tenant source, and two sources", func(t *testing.T) {
		bad("tenant", "not set", func(c *Config) { c.Tenant = Tenant{} })
		bad("tenant", "one source", func(c *Config) { c.Tenant.MTLS = &MTLS{CA: "ca"} })
		bad("tenant.header", "trusted", func(c *Config) { c.Tenant = Tenant{Header: "X-Account"} })
		bad("tenant.jwt.algorithms[0]", "public-key", func(c *Config) {
			c.Tenant = Tenant{JWT: &JWT{JWKSFile: "k", Algorithms: []string{"HS256"}, Claim: "sub"}}
		})
		bad("tenant.jwt.algorithms[0]", "public-key", func(c *Config) {
			c.Tenant = Tenant{JWT: &JWT{JWKSFile: "k", Algorithms: []string{"none"}, Claim: "sub"}}
		})
		ok("nothing guarded, no source", func(c *Config) { c.Tenant = Tenant{}; c.Routes = c.Routes[:1] })
	})
	t.Run("[http/P12] rerun without a promise of the upstream, or without the key", func(t *testing.T) {
		bad("routes[1].on_crash", "honours", guarded(func(r *Route) { r.OnCrash = "rerun" }))
		bad("routes[1].on_crash", "forward or derive", guarded(func(r *Route) {
			r.OnCrash, r.UpstreamHonoursKey, r.UpstreamKey = "rerun", true, "none"
		}))
		ok("with both", guarded(func(r *Route) { r.OnCrash, r.UpstreamHonoursKey = "rerun", true }))
	})
	t.Run("[http/P29] issued without issue", func(t *testing.T) {
		bad("routes[1].issue", "not set", guarded(func(r *Route) { r.Issued = true }))
		bad("routes[1].issued", "false", guarded(func(r *Route) { r.Issue = "POST /keys" }))
	})
	t.Run("[http/H41] a route that is guarded for methods it never gets; methods add to POST and PATCH", func(t *testing.T) {
		bad("routes[1].match", "not guarded", guarded(func(r *Route) { r.Match = "PUT /x" }))
		bad("routes[1].match", "not guarded", guarded(func(r *Route) { r.Match, r.Methods = "PUT /x", []string{"DELETE"} }))
		ok("POST beside PUT", guarded(func(r *Route) { r.Match, r.Methods = "POST /x", []string{"PUT"} }))
		ok("PATCH beside PUT", guarded(func(r *Route) { r.Match, r.Methods = "PATCH /x", []string{"PUT"} }))
	})
	t.Run("all mistakes at once", func(t *testing.T) {
		c := good()
		c.Tenant, c.Routes[0].Upstream, c.Routes[1].OnCrash = Tenant{}, "x", "y"
		if got := fieldErrors(t, c.Validate()); len(got) != 3 {
			t.Fatalf("want 3 findings, got %v", got)
		}
	})
	t.Run("one operation on two routes with other settings", func(t *testing.T) {
		c := good()
		second := c.Routes[1]
		second.Match, second.Lease = "POST /v2/payments", time.Minute
		c.Routes = append(c.Routes, second)
		if got := fieldErrors(t, c.Validate()); len(got) != 1 || got[0].Other != "routes[2]" {
			t.Fatalf("got %v", got)
		}
	})
}

func TestCheckListen(t *testing.T) {
	t.Parallel()
	t.Run("[http/P2] --upstream alone serves loopback addresses only", func(t *testing.T) {
		c := ForUpstream("http://127.0.0.1:9000")
		for _, a := range []string{"127.0.0.1:8080", "[::1]:8080", "localhost:0", "127.8.8.8:1"} {
			if err := c.CheckListen(a, false); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
		for _, a := range []string{":8080", "0.0.0.0:8080", "[::]:80", "192.0.2.1:80"} {
			err := c.CheckListen(a, false)
			if f, ok := errors.AsType[*FieldError](err); !ok || f.Path != "tenant" {
				t.Errorf("%s: want a refusal that names tenant, got %v", a, err)
			}
			if err := c.CheckListen(a, true); err != nil {
				t.Errorf("%s with an explicit tenant: %v", a, err)
			}
		}
		r := c.Routes[0]
		if r.Operation != "upstream" || r.OnCrash != "hold" || *r.Key.Required || !c.Tenant.Global || len(c.Routes) != 1 {
			t.Errorf("got %+v", c)
		}
	})
}

func TestProbeRequest(t *testing.T) {
	t.Parallel()
	parse := func(s string) probeTemplate {
		t.Helper()
		p, err := parseProbe(s, []string{"id"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ok := func(template, id, want string) {
		t.Helper()
		got, err := parse(template).render(probeValues{key: id, derivedKey: "d", tenant: id, operation: "op", path: map[string]string{"id": id}})
		if err != nil || got != want {
			t.Errorf("%s with %q: got %q, %v; want %q", template, id, got, err, want)
		}
	}
	bad := func(template, id string) {
		t.Helper()
		if got, err := parse(template).render(probeValues{key: id, tenant: id, path: map[string]string{"id": id}}); err == nil {
			t.Errorf("%s with %q: got %q", template, id, got)
		}
	}
	t.Run("[security/SEC62] a value stays inside its place", func(t *testing.T) {
		ok("GET /p/{key}/x?y={path.id}", "a/b?c#d@e:f%g\r\n", "/p/a%2Fb%3Fc%23d%40e%3Af%25g%0D%0A/x?y=a%2Fb%3Fc%23d%40e%3Af%25g%0D%0A")
		ok("GET /p?r={key}&t={tenant}", "a&t=b=c+d", "/p?r=a%26t%3Db%3Dc%2Bd&t=a%26t%3Db%3Dc%2Bd")
		ok("GET /{key}", "//evil.example", "/%2F%2Fevil.example")
		ok("HEAD /p?r={key}", "..", "/p?r=..")
		ok("GET /p/x{key}", "..", "/p/x..")
		ok("GET /{derived_key}/{operation}", "é", "/d/op")
		ok("GET /{key}", "é", "/%C3%A9")
		bad("GET /p/{key}/x", "..")
		bad("GET /p/{path.id}/x", ".")
		bad("GET /p/.{path.id}/x", ".")
		bad("GET /p/{key}/x", "")
	})
	if got := wildcards("POST /a/{b}/{c...}"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("wildcards: %v", got)
	}
}
