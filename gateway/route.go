package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"sync"
)

// route is one entry of the configuration, ready to serve.
type route struct {
	g          *Gateway
	config     Route
	up         *upstream
	keyHeaders []string // accepted key headers, in canonical form
	pass       *passage
	guard      http.Handler // nil: not guarded
	probe      *probe       // nil: none
	always     bool         // every request has a caller: the endpoints beside an operation
	advised    sync.Once    // P17
}

// addRoutes makes the routes; guard makes the handler of a guarded one.
func (g *Gateway) addRoutes(guard func(*route) (http.Handler, error)) error {
	passages := map[string]*passage{}
	for name, up := range g.upstreams {
		passages[name] = g.newPassage(up)
	}
	var all []routed
	var errs []error
	for i, c := range g.config.Routes {
		rt := &route{g: g, config: c, up: g.upstreams[c.Upstream], pass: passages[c.Upstream], keyHeaders: keyHeaders(c.Key)}
		if c.guarded() {
			h, err := guard(rt)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", index("routes", i), err))
			}
			rt.guard = h
		}
		all = append(all, routed{c.Match, rt})
		beside, err := g.beside(rt)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", index("routes", i), err))
		}
		all = append(all, beside...)
	}
	g.router = newRouter(all)
	return errors.Join(errs...)
}

func keyHeaders(k KeyRules) []string {
	names := k.Headers
	if len(names) == 0 {
		names = []string{"Idempotency-Key"}
		if k.Profile == "paypal" {
			names = []string{"PayPal-Request-Id"}
		}
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return out
}

// ServeHTTP serves a request that the route matches.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rt.guard == nil {
		rt.pass.ServeHTTP(w, r)
		return
	}
	rt.serveGuarded(w, r, rt.guard)
}

// beside are the endpoints that the gateway itself serves for an operation: issuing keys, telling a key's state.
func (g *Gateway) beside(rt *route) (more []routed, err error) {
	if g.guards == nil || !rt.config.leased() {
		return nil, nil
	}
	name := OperationPrefix + rt.config.Operation
	add := func(pattern string, make func(string) (http.Handler, error)) error {
		if pattern == "" {
			return nil
		}
		h, err := make(name)
		if err == nil {
			more = append(more, routed{pattern, &route{g: g, up: rt.up, guard: h, always: true}})
		}
		return err
	}
	err = errors.Join(add(rt.config.Issue, g.guards.Issue), add(rt.config.Status, g.guards.Status))
	return more, err
}
