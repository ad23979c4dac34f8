package webhook

import (
	"net/http"
	"net/textproto"
	"strings"
)

// Request is a delivery as it was received. Nothing in it has been decoded, trimmed or encoded again.
type Request struct {
	Method string
	Query  string // the raw query, without "?"
	Header http.Header
	Body   []byte
}

// RequestOf takes method, query and headers from r, and the body from body, the bytes that were read from it.
func RequestOf(r *http.Request, body []byte) Request {
	return Request{Method: r.Method, Query: r.URL.RawQuery, Header: r.Header, Body: body}
}

// header is the one value of a header that verification uses.
func (r *Request) header(name string) (string, error) {
	values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", refuse(ReasonMissingHeader, name)
	case len(values) > 1:
		return "", refuse(ReasonDuplicateHeader, name)
	}
	return values[0], nil
}

// has tells whether a header is there at all, empty or not.
func (r *Request) has(name string) bool {
	return len(r.Header[textproto.CanonicalMIMEHeaderKey(name)]) > 0
}

// isForm tells whether the body is a form, whatever parameters follow the media type.
func (r *Request) isForm() bool {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded")
}
