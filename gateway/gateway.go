package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/internal/safedial"
)

// Gateway is the handler. Its methods are safe for concurrent use.
type Gateway struct {
	config     Config // with defaults
	log        *slog.Logger
	trusted    networks
	names      headerNames
	connLimits connLimits
	peerLimit  int
	tlsConfig  *tls.Config // nil: plain text
	tenants    tenants     // nil: no route is guarded
	upstreams  map[string]*upstream
	router     *router
	buffers    *bufferPool
	cors       cors
	engine     *idempo.Engine       // nil: no route is guarded
	guards     *idemhttp.Middleware // over engine
	ignored    atomic.Int64         // ill-formed instructions of upstreams
	draining   atomic.Bool
	successor  bool // of a gateway over the same engine: its operations may be declared with other settings

	stop context.CancelFunc
	work sync.WaitGroup
}

// assemble makes everything that needs no engine.
func assemble(c Config) (*Gateway, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	g := &Gateway{config: c, log: c.Log, names: c.headerNames(), peerLimit: c.Limits.ConnectionsPerPeer, buffers: &bufferPool{},
		connLimits: connLimits{head: c.Limits.Head, readHeader: c.Timeouts.ReadHeader, write: c.Timeouts.Write},
		upstreams:  map[string]*upstream{}}
	g.cors = newCORS(c.CORS.Origins, g.names)
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.trusted = parseNetworks(c.TrustedProxies)
	var errs []error
	var err error
	if g.tlsConfig, err = c.serverTLS(); err != nil {
		errs = append(errs, err)
	}
	if g.tenants, err = g.newTenants(); err != nil {
		errs = append(errs, err)
	}
	for name, u := range c.Upstreams {
		up, err := newUpstream(name, u, g.observe)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		g.upstreams[name] = up
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

// run starts the health checks.
func (g *Gateway) run() {
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	for _, u := range g.upstreams {
		if u.config.HealthCheck != nil {
			g.work.Go(func() { u.watchHealth(ctx) })
		}
	}
}

// Close ends what runs beside requests and closes idle connections to upstreams. Requests that still run are not
// touched; [Gateway.Drain] waits for them.
func (g *Gateway) Close() {
	g.stop()
	g.work.Wait()
	if t, ok := g.tenants.(*jwtTenant); ok {
		if k, ok := t.source.(*remoteKeys); ok {
			k.close()
		}
	}
	for _, u := range g.upstreams {
		u.close()
	}
}

// Drain answers new keyed requests with 503 and tells connections to close. It returns when the running ones are settled
// and answered, those included whose caller is gone; or, when ctx ends, how many are left. It is not undone.
func (g *Gateway) Drain(ctx context.Context) (left int) {
	g.draining.Store(true)
	if g.guards == nil {
		return 0
	}
	return g.guards.Drain(ctx)
}

// Status is what a gateway is like at this moment.
type Status struct {
	Draining  bool             `json:"draining"`
	Upstreams []UpstreamStatus `json:"upstreams"` // by name
	Ignored   int64            `json:"ignored"`   // ill-formed Idempo- headers of upstreams, since the start
}

// UpstreamStatus is what one upstream is like.
type UpstreamStatus struct {
	Name    string `json:"name"`
	Breaker string `json:"breaker"` // closed, open, half_open
	Well    int    `json:"well"`    // addresses that do not rest and pass their health check
	Total   int    `json:"total"`   // addresses
}

// Status tells the state of the breakers and addresses, for /readyz and metrics. It asks nobody.
func (g *Gateway) Status() Status {
	s := Status{Draining: g.draining.Load(), Ignored: g.ignored.Load()}
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(g.upstreams)) {
		u := UpstreamStatus{Name: name, Breaker: g.upstreams[name].breaker.state(), Total: len(g.upstreams[name].targets)}
		for _, t := range g.upstreams[name].targets {
			if t.well(now) {
				u.Well++
			}
		}
		s.Upstreams = append(s.Upstreams, u)
	}
	return s
}

// Server is an *http.Server with this gateway as its handler and the configured time-outs and limits. Serve it on a
// [Gateway.Listener]; each call gives a new one.
func (g *Gateway) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:                      g,
		ReadHeaderTimeout:            g.config.Timeouts.ReadHeader,
		IdleTimeout:                  g.config.Timeouts.Idle,
		MaxHeaderBytes:               g.config.Limits.Head,
		Protocols:                    protocols,
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: g.config.Limits.H2Streams, WriteByteTimeout: g.config.Timeouts.Write,
			MaxReceiveBufferPerConnection: h2Receive, MaxReceiveBufferPerStream: h2Receive},
		ErrorLog: log.New(io.Discard, "", 0), // net/http's lines quote peers' bytes
	}
}

// ServeHTTP judges the request, finds its route and serves it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		if c := connOf(r); c != nil {
			if bad := c.refused.Load(); bad != nil && bad.target != "" && r.RequestURI == bad.target {
				g.refuse(w, r, bad)
				return
			}
			if r.Header["Upgrade"] != nil {
				// A handler that has taken the connection has decided already.
				defer c.switching.CompareAndSwap(switchOpen, switchBack)
				w = switchable{w, c}
			}
		}
	} else {
		c := connOf(r)
		w = newPaced(w, g.connLimits.write, c)
		if c != nil {
			c.arrived(r)
			defer c.departed(r)
			if r.Body != nil && r.Body != http.NoBody {
				r.Body = counted{r.Body, c}
			}
		}
	}
	if g.draining.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	if bad := g.check(r); bad != nil {
		g.refuse(w, r, bad)
		return
	}
	r = g.withBody(w, r)
	g.names.clean(r.Header, g.config.AllowMethodOverride)
	if name := g.config.Tenant.Header; name != "" && !g.trusted.contain(addrOf(r.RemoteAddr)) {
		g.dropUntrusted(r, name)
	}
	rt := g.router.find(r)
	if rt == nil || r.Method == http.MethodConnect {
		g.writeProblem(w, r, idemhttp.NewProblem("no_route"))
		return
	}
	if g.cors.answer(w, r) {
		return
	}
	rt.ServeHTTP(w, r)
}

// check refuses what the gateway and an upstream could read as two different requests.
func (g *Gateway) check(r *http.Request) *refusal {
	guards := func(path string) bool { return g.router.guards(r, path) }
	if r.ProtoMajor != 1 {
		if bad := checkTarget(r); bad != nil {
			return bad
		}
	}
	if bad := checkPath(rawPath(r), guards); bad != nil {
		return bad
	}
	if bad := checkMethod(r, guards); bad != nil {
		return bad
	}
	return g.names.checkConnection(r.Header)
}

// dropUntrusted takes the tenant and principal headers of a peer that may not set them.
func (g *Gateway) dropUntrusted(r *http.Request, name string) {
	if r.Header.Get(name) != "" {
		g.log.Warn("tenant header of a peer that is not in trusted_proxies", "header", name, "peer", addrOf(r.RemoteAddr).String())
	}
	delete(r.Header, textproto.CanonicalMIMEHeaderKey(name))
	delete(r.Header, textproto.CanonicalMIMEHeaderKey(g.config.Tenant.Principal))
}

// refuse answers a request that nothing is done about, and ends its connection.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, bad *refusal) {
	p := idemhttp.NewProblem("malformed_request")
	p.Status, p.Detail = bad.status, bad.detail
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	g.writeProblem(w, r, p)
}

func (g *Gateway) writeProblem(w http.ResponseWriter, r *http.Request, p idemhttp.Problem) {
	if g.config.DocsURL != "" {
		w.Header().Add("Link", "<"+g.config.DocsURL+"#"+p.Code+`>; rel="describedby"`)
	}
	p.Write(w)
}

// keyed tells a request that carries a key in one of the headers any route, or net/http, takes for one.
func (g *Gateway) keyed(h http.Header) bool {
	for name := range g.names.keys {
		if h[name] != nil {
			return true
		}
	}
	return false
}

func (g *Gateway) observe(e Event) {
	if g.config.Observe == nil {
		return
	}
	defer func() { _ = recover() }() // an observer's panic changes nothing
	g.config.Observe(e)
}

// guardedDialer reaches public addresses, and what "outbound" allows.
func (g *Gateway) guardedDialer() safedial.Dialer {
	return safedial.Dialer{Allow: parseNetworks(g.config.Outbound.Allow), Ports: g.config.Outbound.Ports, Timeout: 5 * time.Second}
}

// parseNetworks reads networks that Validate has accepted.
func parseNetworks(list []string) networks {
	var n networks
	for _, s := range list {
		if p, err := parseNetwork(s); err == nil {
			n = append(n, p)
		}
	}
	return n
}

// bufferPool lends the buffers in which bodies are copied.
type bufferPool struct{ pool sync.Pool }

// Get lends 32 KiB.
func (b *bufferPool) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

// Put takes them back.
func (b *bufferPool) Put(p []byte) { b.pool.Put(&p) }
