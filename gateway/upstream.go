package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// restTime is how long an address that could not be reached is asked last.
const restTime = 5 * time.Second

// upstream is one service behind the gateway.
type upstream struct {
	name      string
	config    Upstream
	targets   []*target
	turn      atomic.Uint32
	transport *http.Transport // of requests that need no care; its pool may send again what is safe
	breaker   *breaker        // nil: off
}

// target is one address of an upstream.
type target struct {
	url     *url.URL
	links   *links
	mu      sync.Mutex
	rest    time.Time // asked last until then
	unwell  bool      // its health check failed
	checked bool
}

func newUpstream(name string, c Upstream, observe func(Event)) (*upstream, error) {
	secure, err := c.clientTLS()
	if err != nil {
		return nil, fmt.Errorf("upstreams.%s: %w", name, err)
	}
	u := &upstream{name: name, config: c}
	dialer := &net.Dialer{Timeout: c.ConnectTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &notSentError{err}
		}
		w := &wire{Conn: conn}
		noteWire(ctx, w)
		return w, nil
	}
	u.transport = &http.Transport{
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			config := secure.Clone()
			if config.ServerName == "" {
				config.ServerName, _, _ = net.SplitHostPort(address)
			}
			ctx, cancel := context.WithTimeout(ctx, c.TLSTimeout)
			defer cancel()
			tc := tls.Client(conn, config)
			if err := tc.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, &notSentError{err}
			}
			return tc, nil
		},
		TLSClientConfig:        secure, // its NextProtos make net/http speak HTTP/2
		ForceAttemptHTTP2:      true,
		ResponseHeaderTimeout:  c.HeaderTimeout,
		IdleConnTimeout:        c.IdleTimeout,
		MaxIdleConnsPerHost:    256,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
	for _, raw := range c.URLs {
		at := upstreamURL(raw)
		port := at.Port()
		if port == "" {
			port = "80"
			if at.Scheme == "https" {
				port = "443"
			}
		}
		u.targets = append(u.targets, &target{url: at, links: &links{
			transport: u.transport, scheme: at.Scheme, address: net.JoinHostPort(at.Hostname(), port), idle: c.IdleTimeout,
		}})
	}
	if c.Breaker == nil || *c.Breaker {
		u.breaker = newBreaker(func(state string) { observe(Event{Upstream: name, Breaker: state}) })
	}
	return u, nil
}

// clientTLS is how the upstream is spoken to over https. Its certificate is always verified.
func (c Upstream) clientTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, NextProtos: []string{"h2", "http/1.1"}}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
	}
	if c.Cert != "" {
		store, err := newCertificate(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return store.get() }
	}
	return config, nil
}

// order gives the targets in the order to try: round robin, those that rest or are unwell last.
func (u *upstream) order() []*target {
	n := len(u.targets)
	if n == 1 {
		return u.targets
	}
	start := int(u.turn.Add(1) % uint32(n))
	now := time.Now()
	well, others := make([]*target, 0, n), make([]*target, 0, n)
	for i := range n {
		t := u.targets[(start+i)%n]
		if t.well(now) {
			well = append(well, t)
		} else {
			others = append(others, t)
		}
	}
	return append(well, others...)
}

func (t *target) well(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.unwell && !now.Before(t.rest)
}

func (t *target) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = time.Now().Add(restTime)
}

// once sends a request to the targets in turn until one has got a byte of it, and never again after that. outgoing makes
// the request for a target; it is called once per target, and may say that there is nothing left to send.
//
// The class of an error is proven for ClassNotSent: no target got anything.
func (u *upstream) once(ctx context.Context, fresh bool, outgoing func(context.Context, *target) (*http.Request, error)) (*http.Response, Class, error) {
	var last error
	for _, t := range u.order() {
		for force := fresh; ; force = true {
			l, reused, err := t.links.take(ctx, force)
			if err != nil {
				t.failed()
				last = err
				break
			}
			watched, s := watch(ctx, l.wire)
			r, err := outgoing(watched, t)
			if err != nil {
				l.conn.Release()
				return nil, ClassNotSent, errors.Join(last, err)
			}
			res, err := l.conn.RoundTrip(r)
			if err == nil {
				return res, ClassAnswered, nil
			}
			if s.classify(err) == ClassUnknown {
				return nil, ClassUnknown, err
			}
			last = err
			if !reused { // a connection that had died idle says nothing about the address
				t.failed()
				break
			}
		}
	}
	if last == nil {
		last = errors.New("no address")
	}
	return nil, ClassNotSent, last
}

// watchHealth asks every target until ctx ends.
func (u *upstream) watchHealth(ctx context.Context) {
	h := u.config.HealthCheck
	if h == nil {
		return
	}
	tick := time.NewTicker(h.Every)
	defer tick.Stop()
	for {
		var round sync.WaitGroup
		for _, t := range u.targets {
			round.Go(func() { t.check(ctx, u.transport, h) })
		}
		round.Wait()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (t *target) check(ctx context.Context, rt http.RoundTripper, h *HealthCheck) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url.String()+h.Path, nil)
	healthy := false
	if err == nil {
		if res, err := rt.RoundTrip(r); err == nil {
			res.Body.Close()
			healthy = res.StatusCode/100 == 2
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unwell = !healthy
	if healthy && t.checked {
		t.rest = time.Time{}
	}
	t.checked = true
}

func (u *upstream) close() {
	u.transport.CloseIdleConnections()
	for _, t := range u.targets {
		t.links.close()
	}
}
