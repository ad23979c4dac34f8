package gateway

import (
	"cmp"
	"time"
)

// withDefaults fills what a Config leaves at zero. It shares no map or slice with c that it writes to.
func (c Config) withDefaults() Config {
	c.Timeouts.ReadHeader = cmp.Or(c.Timeouts.ReadHeader, 10*time.Second)
	c.Timeouts.ReadBody = cmp.Or(c.Timeouts.ReadBody, 60*time.Second)
	c.Timeouts.Idle = cmp.Or(c.Timeouts.Idle, 120*time.Second)
	c.Timeouts.Write = cmp.Or(c.Timeouts.Write, 60*time.Second)
	c.Limits.Head = cmp.Or(c.Limits.Head, 32<<10)
	c.Limits.ConnectionsPerPeer = cmp.Or(c.Limits.ConnectionsPerPeer, 1000)
	c.Limits.H2Streams = cmp.Or(c.Limits.H2Streams, 250)
	upstreams := make(map[string]Upstream, len(c.Upstreams))
	for name, u := range c.Upstreams {
		u.ConnectTimeout = cmp.Or(u.ConnectTimeout, 2*time.Second)
		u.TLSTimeout = cmp.Or(u.TLSTimeout, 5*time.Second)
		u.HeaderTimeout = cmp.Or(u.HeaderTimeout, 30*time.Second)
		u.IdleTimeout = cmp.Or(u.IdleTimeout, time.Second)
		if u.HealthCheck != nil {
			h := *u.HealthCheck
			h.Every, h.Timeout = cmp.Or(h.Every, 5*time.Second), cmp.Or(h.Timeout, 2*time.Second)
			u.HealthCheck = &h
		}
		upstreams[name] = u
	}
	c.Upstreams = upstreams
	routes := make([]Route, len(c.Routes))
	for i, r := range c.Routes {
		r.Guard = cmp.Or(r.Guard, "leased")
		r.OnCrash = cmp.Or(r.OnCrash, "hold")
		r.MaxRun = cmp.Or(r.MaxRun, 60*time.Second)
		r.UpstreamKey = cmp.Or(r.UpstreamKey, "forward")
		if r.Probe != nil {
			p := *r.Probe
			p.Timeout, p.Settle = cmp.Or(p.Timeout, 5*time.Second), cmp.Or(p.Settle, 60*time.Second)
			p.Every, p.Attempts = cmp.Or(p.Every, 5*time.Second), cmp.Or(p.Attempts, 20)
			r.Probe = &p
		}
		routes[i] = r
	}
	c.Routes = routes
	return c
}
