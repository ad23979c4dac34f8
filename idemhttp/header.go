package idemhttp

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// maxKeptHeaders bounds the names and values kept with an answer, in bytes.
const maxKeptHeaders = 16 << 10

// Names of idempo's own headers. ReplayHeader of Config renames the first.
const (
	headerReplayed = "Idempotent-Replayed"
	headerStatus   = "Idempotency-Status"
	headerExpires  = "Idempotency-Expires"
	headerKeyNext  = "Idempotency-Key-Next"
)

// headerResult is an internal header of a stored result. No handler's answer can carry it: Idempo- headers are never kept.
const headerResult = "Idempo-Result"

// ResultNotKept is the value of the stored header Idempo-Result by which a probe says that the effect happened and that
// nobody knows the answer: a replay is then 410 result_not_kept. Such a result has a status all the same, of any success.
const ResultNotKept = "not_kept"

// neverKept says whether a header is never stored or replayed, whatever the rules say: it belongs to a connection, a
// request, a caller's credentials or a cache, and not to the answer. name must be in canonical form.
func neverKept(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date", "Age", "Via",
		"Server", "Set-Cookie", "Set-Cookie2", "Cookie", "Authorization", "Www-Authenticate", "Authentication-Info",
		"Clear-Site-Data", "Vary", "Alt-Svc", "Server-Timing", "Strict-Transport-Security", "Traceparent", "Tracestate",
		"Baggage", "X-Request-Id", "X-Correlation-Id",
		headerReplayed, headerStatus, headerExpires, headerKeyNext, "Cache-Control":
		return true
	}
	for _, prefix := range [...]string{"Proxy-", "Access-Control-", "Ratelimit", "X-Ratelimit-", "X-Trace-", "X-B3-", "Idempo-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// ownRequestHeader says whether a request header is one of idempo's answers or of an upstream's instructions to the gateway.
// A client that sends one is lying, or replaying an answer. name must be in canonical form.
func ownRequestHeader(name, replayHeader string) bool {
	switch name {
	case headerReplayed, headerStatus, headerExpires, headerKeyNext, replayHeader:
		return true
	}
	return strings.HasPrefix(name, "Idempo-")
}

// withoutOwnHeaders is r, or a copy without idempo's own headers where the client sent some.
func withoutOwnHeaders(r *http.Request, replayHeader string) *http.Request {
	found := false
	for name := range r.Header {
		if ownRequestHeader(textproto.CanonicalMIMEHeaderKey(name), replayHeader) {
			found = true
			break
		}
	}
	if !found {
		return r
	}
	c := new(http.Request)
	*c = *r
	c.Header = r.Header.Clone()
	for name := range c.Header {
		if ownRequestHeader(textproto.CanonicalMIMEHeaderKey(name), replayHeader) {
			delete(c.Header, name)
		}
	}
	return c
}

// headerRules decide what is kept of the headers of an answer.
type headerRules struct {
	deny, keep []string // canonical; keep nil: everything
	replay     string   // the name of the replay marker
}

func newHeaderRules(deny, keep []string, replayHeader string) headerRules {
	canonical := func(names []string) []string {
		out := make([]string, 0, len(names))
		for _, n := range names {
			out = append(out, textproto.CanonicalMIMEHeaderKey(n))
		}
		return out
	}
	h := headerRules{deny: canonical(deny), replay: replayHeader}
	if len(keep) > 0 {
		h.keep = canonical(keep)
	}
	return h
}

// keeps says whether a header of an answer is stored and replayed. name must be in canonical form.
func (h headerRules) keeps(name string) bool {
	if neverKept(name) || name == h.replay || slices.Contains(h.deny, name) {
		return false
	}
	return h.keep == nil || slices.Contains(h.keep, name)
}

// kept lists what is stored of the headers of an answer, by name, the lines of a name in their order. outer holds what was
// set for this request before the handler ran: a header that is unchanged since is not the handler's. Trailers follow under
// names that begin with http.TrailerPrefix, which no header can have. refused counts lines that could not be written on a
// connection as they are; size is the sum of names and values in bytes.
func (h headerRules) kept(answer, outer, trailer http.Header) (pairs [][2]string, size int64, refused int) {
	named := connectionNames(answer)
	add := func(prefix string, set http.Header) {
		names := make([]string, 0, 16)
		for name, values := range set {
			canonical := textproto.CanonicalMIMEHeaderKey(name)
			if len(values) == 0 || !h.keeps(canonical) || slices.Contains(named, canonical) {
				continue
			}
			if prefix == "" && slices.Equal(values, outer[name]) {
				continue
			}
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			for _, value := range set[name] {
				if !writable(name, value) {
					refused++
					continue
				}
				if pairs == nil {
					pairs = make([][2]string, 0, len(names))
				}
				pairs = append(pairs, [2]string{prefix + textproto.CanonicalMIMEHeaderKey(name), value})
				size += int64(len(prefix) + len(name) + len(value))
			}
		}
	}
	add("", answer)
	if len(trailer) > 0 {
		add(http.TrailerPrefix, trailer)
	}
	return pairs, size, refused
}

// replayInto adds stored header lines to an answer. A header that is already there was set for this request and wins, and no
// name is doubled. A line that could split the answer, or that is never replayed, is left out even where the record holds
// it: the row may have been changed. It returns the stored trailers.
func (h headerRules) replayInto(dst http.Header, pairs [][2]string) (trailer http.Header) {
	last, skip := "", false
	for _, pair := range pairs {
		name, value := pair[0], pair[1]
		plain, isTrailer := strings.CutPrefix(name, http.TrailerPrefix)
		canonical := textproto.CanonicalMIMEHeaderKey(plain)
		if !writable(plain, value) || neverKept(canonical) || canonical == h.replay || slices.Contains(h.deny, canonical) {
			continue
		}
		if isTrailer {
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[canonical] = append(trailer[canonical], value)
			continue
		}
		if canonical != last {
			_, skip = dst[canonical]
			last = canonical
		}
		if !skip {
			dst[canonical] = append(dst[canonical], value)
		}
	}
	return trailer
}

// connectionNames are the headers that Connection names, which belong to the connection like itself.
func connectionNames(h http.Header) (names []string) {
	for name, values := range h {
		if textproto.CanonicalMIMEHeaderKey(name) != "Connection" {
			continue
		}
		for _, value := range values {
			for token := range strings.SplitSeq(value, ",") {
				names = append(names, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(token)))
			}
		}
	}
	return names
}

// writable says whether a line can stand in a header as it is: a token as name, and no CR, LF or NUL that could end the line.
func writable(name, value string) bool {
	if name == "" || strings.ContainsAny(value, "\r\n\x00") {
		return false
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return false
		}
	}
	return true
}

func tokenByte(b byte) bool {
	switch {
	case b >= '0' && b <= '9', b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}
