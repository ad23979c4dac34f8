package idemhttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/idempo/idempo"
)

// keyStatus is what a caller may ask about a key of its own. It holds no stored answer.
type keyStatus struct {
	State          idempo.State     `json:"state"`
	KeyRef         string           `json:"key_ref"`
	Since          *time.Time       `json:"since,omitempty"`
	RetryAfter     int              `json:"retry_after,omitempty"`
	ExpiresAt      *time.Time       `json:"expires_at,omitempty"`
	OriginalStatus int              `json:"original_status,omitempty"`
	Resource       *ProblemResource `json:"resource,omitempty"`
}

// Status makes the handler that tells what is known of a key: GET with the key where the operation's header is, no body → 200
// {state, key_ref, since, retry_after, expires_at, original_status, resource}. It claims and writes nothing. A key that nobody
// used and a key of another tenant get the same 404. ReplayFunc of the operation's rules is asked before a finished one is told.
//
// The operation must be wrapped, with its key in a header. Set Rules.StatusURL to where the handler is mounted.
func (m *Middleware) Status(operation string) (http.Handler, error) {
	var found *guard
	m.mu.Lock()
	for _, g := range m.guards {
		if g.op.Name == operation && len(g.keys.headers) > 0 {
			found = g
			break
		}
	}
	m.mu.Unlock()
	if found == nil {
		return nil, fmt.Errorf("status: operation %q is not wrapped with a key in a header; wrap it first", operation)
	}
	return http.HandlerFunc(found.serveStatus), nil
}

func (g *guard) serveStatus(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	x := &exchange{g: g, w: w, r: withoutOwnHeaders(r, g.m.config.ReplayHeader)}
	key := x.readKey()
	if !x.tenant() || !x.step5(key) {
		return
	}
	x.past = false // nothing is done with the request: no Idempotency-Status
	rec, err := g.m.engine.LookupFor(r.Context(), x.key, x.principal)
	if err != nil {
		p := problemFor(err)
		if p.Code == "not_found" {
			p.KeyRef = ""
		}
		x.send(p)
		return
	}
	if f := g.rules.ReplayFunc; f != nil && (rec.State == idempo.StateCompleted || rec.State == idempo.StateExpired) {
		if err := f(x.r, rec); err != nil {
			x.refuse("replay_forbidden")
			return
		}
	}
	writeJSON(w, http.StatusOK, statusOfRecord(rec))
}

func statusOfRecord(rec idempo.Record) keyStatus {
	s := keyStatus{State: rec.State, KeyRef: rec.Ref(), Resource: resourceOf(rec.Result.Resource)}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	switch rec.State {
	case idempo.StatePending:
		s.Since = at(rec.ClaimedAt)
		s.RetryAfter = seconds(rec.RetryAfter(rec.Now))
	case idempo.StateCompleted, idempo.StateExpired:
		s.Since, s.ExpiresAt, s.OriginalStatus = at(rec.CompletedAt), at(rec.ExpiresAt), rec.Result.Status
	case idempo.StateIssued:
		s.Since, s.ExpiresAt = at(rec.CreatedAt), at(rec.ExpiresAt)
	case idempo.StateInDoubt:
		s.Since = at(rec.ClaimedAt)
		if wait := rec.DueAt.Sub(rec.Now); !rec.DueAt.IsZero() && wait > 0 {
			s.RetryAfter = seconds(wait)
		}
	default:
		s.Since = at(rec.ChangedAt)
	}
	return s
}
