package gateway

import (
	"slices"

	"github.com/idempo/idempo/idemhttp"
)

// DeclaredRoute is one route as callers see it.
type DeclaredRoute struct {
	// Match is the pattern, of net/http's ServeMux.
	Match string
	// Guarded says that Declared is set; otherwise requests pass untouched, and the gateway promises nothing.
	Guarded bool
	// Declared is what the gateway promises. Its operation has the name that the configuration gives it, without OperationPrefix.
	Declared idemhttp.Declared
}

// Declared returns the routes in the order of the configuration. Safe for concurrent use.
func (g *Gateway) Declared() []DeclaredRoute {
	var wrapped []idemhttp.Declared
	if g.guards != nil {
		wrapped = g.guards.Declared()
	}
	out := make([]DeclaredRoute, 0, len(g.config.Routes))
	for _, r := range g.config.Routes {
		d := DeclaredRoute{Match: r.Match, Guarded: r.guarded() && len(wrapped) > 0}
		if d.Guarded { // routes are wrapped in their order
			d.Declared, wrapped = wrapped[0], wrapped[1:]
			d.Declared.Operation.Name = r.Operation
			if g.config.Tenant.Global {
				d.Declared.KeyedBy = slices.DeleteFunc(d.Declared.KeyedBy, func(s string) bool { return s == "tenant" })
			}
		}
		out = append(out, d)
	}
	return out
}
