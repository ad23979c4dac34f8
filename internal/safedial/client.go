package safedial

import (
	"crypto/tls"
	"io"
	"net/http"
	"time"
)

// Options of a [NewClient]. The zero value is the strictest.
type Options struct {
	// Dialer opens the connections.
	Dialer Dialer
	// Timeout bounds a whole exchange, the body included; 0 means 10 s.
	Timeout time.Duration
	// MaxBody bounds the bytes of an answer's body; 0 means 64 KiB.
	MaxBody int64
	// TLS is used for https; nil means the system's authorities. It is cloned.
	TLS *tls.Config
}

// NewClient makes a client whose connections are guarded, that follows no redirect (the 3xx is the answer), ignores
// the environment's proxies, keeps no cookie, and bounds time and bytes. Reading past MaxBody gives [ErrTooLarge].
// It is safe for concurrent use; its idle connections close after 30 s.
func NewClient(o Options) *http.Client {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 64 << 10
	}
	dialer := o.Dialer
	return &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: limited{max: o.MaxBody, next: &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        o.TLS.Clone(),
			TLSHandshakeTimeout:    o.Timeout,
			ResponseHeaderTimeout:  o.Timeout,
			MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout:        30 * time.Second,
			MaxIdleConnsPerHost:    4,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // so that MaxBody counts what is kept in memory
		}},
	}
}

// limited bounds the bodies of answers.
type limited struct {
	next http.RoundTripper
	max  int64
}

// RoundTrip is that of the guarded transport, with a bounded body.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &limitedBody{ReadCloser: res.Body, left: l.max}
	return res, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (l limited) CloseIdleConnections() {
	if c, ok := l.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read passes at most the limit on. One byte more is asked for, so that a body of exactly the limit still ends well.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, ErrTooLarge
	}
	return n, err
}
