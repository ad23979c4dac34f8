package gateway

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/idempo/idempo/internal/safedial"
)

// forwardAuth asks an endpoint about each keyed request. Nothing is remembered.
type forwardAuth struct {
	config    ForwardAuth
	principal string
	client    *http.Client
}

func newForwardAuth(c ForwardAuth, principal string, d safedial.Dialer) *forwardAuth {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	return &forwardAuth{config: c, principal: principal, client: safedial.NewClient(safedial.Options{Dialer: d, Timeout: c.Timeout})}
}

func (f *forwardAuth) identify(r *http.Request) (caller, error) {
	// A timeout of its own, not the request's: a caller who leaves must not look like an endpoint that is down.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), f.config.Timeout)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, f.config.URL, nil)
	if err != nil {
		return caller{}, fmt.Errorf("%w: %w", errTenantUnavailable, err)
	}
	for _, name := range f.config.Headers {
		if values := r.Header.Values(name); len(values) > 0 {
			ask.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if _, ok := ask.Header["User-Agent"]; !ok {
		ask.Header["User-Agent"] = nil // none of ours
	}
	res, err := f.client.Do(ask)
	if err != nil {
		return caller{}, fmt.Errorf("%w: no answer", errTenantUnavailable) // the cause names addresses
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return caller{}, fmt.Errorf("%w: no whole answer", errTenantUnavailable)
	}
	switch {
	case res.StatusCode/100 == 2:
		c, err := callerOf(res.Header, f.config.TenantHeader, f.principal)
		if err != nil {
			return caller{}, fmt.Errorf("%w: answer without exactly one tenant", errTenantUnavailable)
		}
		return c, nil
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		h := http.Header{}
		for _, name := range []string{"Content-Type", "Www-Authenticate"} {
			if v := res.Header.Values(name); len(v) > 0 {
				h[name] = v
			}
		}
		return caller{}, &answerError{status: res.StatusCode, header: h, body: body}
	}
	return caller{}, fmt.Errorf("%w: status %d", errTenantUnavailable, res.StatusCode)
}
