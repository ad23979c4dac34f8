package gateway

import (
	"context"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// forwardHeaders writes who the request came from (row P22): what a trusted proxy said, extended by the peer; else the
// peer alone. in is the request as it came; out are the headers to send, a copy of its own.
func (g *Gateway) forwardHeaders(in *http.Request, out http.Header) {
	peer := addrOf(in.RemoteAddr)
	trusted := g.trusted.contain(peer)
	if !trusted {
		for name := range out {
			if forwarding(name) {
				delete(out, name)
			}
		}
	}
	from, node := peer.String(), `"unknown"`
	if peer.IsValid() {
		if node = from; peer.Is6() {
			node = `"[` + from + `]"`
		}
	} else if from, _, _ = net.SplitHostPort(in.RemoteAddr); from == "" {
		from = "unknown"
	}
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	join := func(name, value string) {
		if prior := in.Header[name]; trusted && len(prior) > 0 {
			value = strings.Join(prior, ", ") + ", " + value
		}
		out[name] = []string{value}
	}
	join("X-Forwarded-For", from)
	join("Forwarded", "for="+node+`;host="`+strings.NewReplacer(`\`, "", `"`, "").Replace(in.Host)+`";proto=`+proto)
	keep := func(name, value string) {
		if prior := in.Header[name]; trusted && len(prior) > 0 {
			out[name] = prior // ReverseProxy has taken them out
			return
		}
		out[name] = []string{value}
	}
	keep("X-Forwarded-Host", in.Host)
	keep("X-Forwarded-Proto", proto)
}

// targetURL is the address of t with the path and query of in, byte by byte.
func targetURL(in *http.Request, t *target) *url.URL {
	return &url.URL{Scheme: t.url.Scheme, Host: t.url.Host, Opaque: rawPath(in), RawQuery: in.URL.RawQuery, ForceQuery: in.URL.ForceQuery}
}

// guardedRequest makes the request that a guarded route sends: the caller's method, path, host and headers, less those of
// the connection, with the key that the route is configured to send.
func (g *Gateway) guardedRequest(ctx context.Context, in *http.Request, rt *route, t *target, key string) *http.Request {
	out := (&http.Request{
		Method: in.Method, URL: targetURL(in, t), Host: in.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: in.Header.Clone(), Body: in.Body, ContentLength: in.ContentLength, GetBody: nil,
	}).WithContext(ctx)
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if in.ContentLength == 0 || in.Body == http.NoBody {
		out.Body, out.ContentLength = nil, 0
	}
	removeHopByHop(out.Header)
	out.Header.Del("Expect")
	g.forwardHeaders(in, out.Header)
	rt.sendKey(out.Header, key)
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // none of ours
	}
	return out
}

// sendKey leaves exactly the header that the route sends its key in. A key header under another name than the accepted
// ones is none of ours and stays.
func (rt *route) sendKey(h http.Header, key string) {
	if rt.config.UpstreamKey == "forward" && rt.config.UpstreamKeyHeader == "" {
		return // as sent, under the name it was sent in
	}
	for _, name := range rt.keyHeaders {
		delete(h, textproto.CanonicalMIMEHeaderKey(name))
	}
	name := rt.config.UpstreamKeyHeader
	if name == "" {
		name = "Idempotency-Key"
	}
	delete(h, textproto.CanonicalMIMEHeaderKey(name))
	if key != "" && rt.config.UpstreamKey != "none" {
		h.Set(name, key)
	}
}
