package idemhttp

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"time"

	"github.com/idempo/idempo"
)

// Issue makes the handler that hands out one-time keys of an operation: POST → 201 {"key","operation","expires_at"}. The
// tenant, and the principal where PrincipalFunc is set, are those of the request, and only they can use the key. The key has
// 192 random bits; the store gets its digest. An issued key says that the server once gave it out, not who sends it: it is no
// protection against cross-site requests. The operation must be declared at the engine and Issued.
func (m *Middleware) Issue(operation string) (http.Handler, error) {
	if err := m.issued(operation); err != nil {
		return nil, fmt.Errorf("issue: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		tenant, principal, code := m.identity(r)
		if code != "" {
			m.WriteProblem(w, r, NewProblem(code))
			return
		}
		key, until, err := m.issue(r.Context(), tenant, principal, operation)
		if err != nil {
			m.WriteProblem(w, r, problemFor(err))
			return
		}
		writeJSON(w, http.StatusCreated, struct {
			Key       string    `json:"key"`
			Operation string    `json:"operation"`
			ExpiresAt time.Time `json:"expires_at"`
		}{key, operation, until})
	}), nil
}

// Field gives the hidden input of an HTML form with a one-time key made for it, ready to be put into a page as it is. Every
// submit of that page is one intent: twice, from a second tab, after going back; a page opened anew is a new one.
//
// The operation must be Issued and wrapped with a KeyPointer, whose field the input is. Wait in its rules lets a double submit
// end at the first one's answer. The tenant is asked of TenantFunc with a request that has nothing but ctx: what is known of
// the caller must be in the context of the request that ctx comes from.
func (m *Middleware) Field(ctx context.Context, operation string) (string, error) {
	if err := m.issued(operation); err != nil {
		return "", fmt.Errorf("field: %w", err)
	}
	name := ""
	m.mu.Lock()
	for _, g := range m.guards {
		if g.op.Name == operation && len(g.keys.pointer) == 1 {
			name = g.keys.pointer[0]
		}
	}
	m.mu.Unlock()
	if name == "" {
		return "", fmt.Errorf("field: operation %q takes its key from no form field; wrap it with KeyPointer, as in \"/idempotency_key\"", operation)
	}
	r := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	tenant, principal, code := m.identity(r)
	if code != "" {
		return "", fmt.Errorf("field: %s: %w", code, ErrNoTenant)
	}
	key, _, err := m.issue(ctx, tenant, principal, operation)
	if err != nil {
		return "", fmt.Errorf("field: %w", err)
	}
	return `<input type="hidden" name="` + html.EscapeString(name) + `" value="` + key + `">`, nil
}

// issued says whether an operation hands out keys.
func (m *Middleware) issued(operation string) error {
	for _, op := range m.engine.Operations() {
		if op.Name == operation {
			if op.Issued {
				return nil
			}
			return fmt.Errorf("operation %q is not declared Issued", operation)
		}
	}
	return fmt.Errorf("operation %q is not declared; wrap it first, or name it in idempo.Config.Operations", operation)
}

func (m *Middleware) issue(ctx context.Context, tenant, principal, operation string) (key string, until time.Time, err error) {
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails since Go 1.24
	key = base64.RawURLEncoding.EncodeToString(random[:])
	rec, err := m.engine.IssueFor(ctx, idempo.Key{Tenant: tenant, Operation: operation, ID: key}, principal)
	until = rec.IssuedUntil
	if until.IsZero() {
		until = rec.ExpiresAt
	}
	return key, until.UTC(), err
}

// problemFor is the problem that an error of the engine stands for, outside of a guarded request.
func problemFor(err error) Problem {
	e, ok := errors.AsType[*idempo.Error](err)
	if !ok {
		return NewProblem("store_unavailable")
	}
	p := NewProblem(problemOf(e))
	p.KeyRef = e.KeyRef
	if e.RetryAfter > 0 {
		p.RetryAfter = seconds(e.RetryAfter)
	}
	return p
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		NewProblem("result_unreadable").Write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
