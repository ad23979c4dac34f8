package gateway

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"

	"github.com/idempo/idempo/idemhttp"
)

// passage forwards requests that nothing is kept of: unguarded routes, requests without a key, and routes whose upstream
// guards itself. Bytes leave as they come, in both directions.
type passage struct {
	g     *Gateway
	up    *upstream
	proxy *httputil.ReverseProxy
}

func (g *Gateway) newPassage(up *upstream) *passage {
	p := &passage{g: g, up: up}
	p.proxy = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     carrier{p.g, up},
		FlushInterval: -1,
		ErrorHandler:  p.failed,
		ErrorLog:      log.New(io.Discard, "", 0), // the caller's connection says it; nothing of it is ours to log
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode < 100 {
				return errStatus // net/http would panic when asked to write it
			}
			if b := incomingOf(res.Request.Context()); b != nil {
				b.answered()
			}
			g.cors.merge(res.Request, res.Header)
			return nil
		},
		BufferPool: g.buffers,
	}
	return p
}

var errStatus = errors.New("the upstream's answer has no valid status")

// ServeHTTP forwards r and whatever comes back.
func (p *passage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b := incomingOf(r.Context()); b != nil {
		b.in = r // where net/http puts the trailers of this request
	}
	p.proxy.ServeHTTP(w, r)
}

func (p *passage) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL = targetURL(in, p.up.targets[0])
	p.g.forwardHeaders(in, out.Header)
	p.g.names.cleanTrailer(out.Trailer)
	if b := incomingOf(in.Context()); b != nil {
		b.trailer = out.Trailer
	}
}

// failed answers for an upstream that gave none. A caller who has left gets nothing.
func (p *passage) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if b := incomingOf(r.Context()); b.spoilt() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	p.g.writeProblem(w, r, failureProblem(classOf(err), err))
}

// classOf is the class that the carrier has put on an error; without one the outcome is unknown.
func classOf(err error) Class {
	if _, ok := errors.AsType[*notSentError](err); ok {
		return ClassNotSent
	}
	return ClassUnknown
}

// failureProblem is the problem for a request that got no whole answer.
func failureProblem(class Class, err error) idemhttp.Problem {
	if class == ClassNotSent {
		return idemhttp.NewProblem("upstream_unreachable")
	}
	p := idemhttp.NewProblem("outcome_unknown")
	p.Status, p.RetryAfter = http.StatusBadGateway, 0
	if late(err) {
		p.Status = http.StatusGatewayTimeout
	}
	return p
}

// carrier is the transport of a passage. Requests that carry a key and may have an effect go out once, over links; all
// others through net/http's pool, to the next address where one cannot be reached.
type carrier struct {
	g  *Gateway
	up *upstream
}

// RoundTrip sends r, whose address is that of the upstream's first target, to the target whose turn it is.
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.g.keyed(r.Header) && !safe(r.Method) {
		res, class, err := c.up.once(r.Context(), c.up.config.FreshConnections, func(ctx context.Context, t *target) (*http.Request, error) {
			if incomingOf(ctx).begun() {
				return nil, errors.New("part of the body is gone")
			}
			return toward(r, t).WithContext(ctx), nil
		})
		if err != nil && class == ClassNotSent {
			err = &notSentError{err}
		}
		return res, err
	}
	if len(c.up.targets) == 1 {
		return c.up.transport.RoundTrip(r)
	}
	var last error
	for _, t := range c.up.order() {
		res, err := c.up.transport.RoundTrip(toward(r, t))
		if err == nil {
			return res, nil
		}
		last = err
		if classOf(err) != ClassNotSent {
			return nil, err
		}
		t.failed()
		if incomingOf(r.Context()).begun() {
			return nil, err
		}
	}
	return nil, last
}

// toward is r for another target.
func toward(r *http.Request, t *target) *http.Request {
	u := *r.URL
	u.Scheme, u.Host = t.url.Scheme, t.url.Host
	out := *r
	out.URL = &u
	return &out
}

// safe tells the methods without an effect.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}
