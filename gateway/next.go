package gateway

import (
	"fmt"
	"reflect"
)

// Next makes the gateway that takes over from g with another configuration, over the same engine. g goes on as it is:
// whoever hands requests out sends new ones to the next gateway, lets g finish (Drain) and closes it. Connections stay
// where they are, on g's listener. Any number of both may run side by side, in one process or several: the store decides
// every race, whatever the configuration.
//
// It refuses, as a whole and with nothing changed, what takes a restart: what belongs to the listener (tls, limits, the
// time-outs of connections), and what makes other keys of the same requests (tenant, the operation of a pattern, where
// its key comes from, its fingerprint). The error's parts are *[FieldError].
func (g *Gateway) Next(c Config) (*Gateway, error) {
	next, err := assemble(c)
	if err != nil {
		return nil, err
	}
	if err := g.config.fixed(next.config); err != nil {
		return nil, err
	}
	if next.engine = g.engine; next.engine == nil {
		return next.ready()
	}
	before := g.engine.Operations()
	next.successor = true
	ready, err := next.ready()
	if err != nil {
		if back := g.engine.Redeclare(before...); back != nil {
			return nil, fmt.Errorf("%w; and the settings before it could not be restored: %w", err, back)
		}
		return nil, err
	}
	return ready, nil
}

// fixed tells what of a configuration may not change while its gateway runs. Both have their defaults.
func (c Config) fixed(next Config) error {
	f := &findings{}
	same := func(path string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			f.add(path, "changes; that takes a restart")
		}
	}
	same("tls", c.TLS, next.TLS)
	same("limits", c.Limits, next.Limits)
	same("timeouts.read_header", c.Timeouts.ReadHeader, next.Timeouts.ReadHeader)
	same("timeouts.idle", c.Timeouts.Idle, next.Timeouts.Idle)
	same("timeouts.write", c.Timeouts.Write, next.Timeouts.Write)
	if c.guarded() || next.guarded() {
		same("tenant", c.Tenant, next.Tenant)
	}
	old := map[string]Route{}
	for _, r := range c.Routes {
		old[r.Match] = r
	}
	for i, b := range next.Routes {
		a, ok := old[b.Match]
		if !ok || !a.guarded() || !b.guarded() {
			continue // a new route, or one that begins or ends to be guarded: no key of it changes
		}
		path := index("routes", i)
		same(at(path, "operation"), a.Operation, b.Operation)
		same(at(path, "guard"), a.Guard, b.Guard)
		keyA, keyB := a.Key, b.Key
		keyA.Required, keyB.Required = nil, nil
		same(at(path, "key"), keyA, keyB)
		same(at(path, "fingerprint"), fingerprintOf(a), fingerprintOf(b))
	}
	return f.err()
}

// fingerprintOf is the part of a route that decides whether two requests are the same.
func fingerprintOf(r Route) Route {
	return Route{Fingerprint: r.Fingerprint, Exclude: r.Exclude, Include: r.Include, Headers: r.Headers, PathValues: r.PathValues,
		Defaults: r.Defaults, UniqueBy: r.UniqueBy}
}
