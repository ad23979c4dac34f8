package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/dashboard"
)

// phase is how far a process is.
type phase int32

const (
	starting phase = iota
	serving
	draining
)

// admin answers health and metrics, and hands everything else to the dashboard. Health asks nothing but memory: the state of the store is what the last calls found.
type admin struct {
	phase    atomic.Int32
	store    func() bool // whether the store answers
	breakers func() map[string]string
	problem  func() error // why the last reload changed nothing; nil: it did, or there was none
	reload   func() error
	live     atomic.Pointer[adminLive]
	metrics  http.Handler
	pages    atomic.Pointer[dashboard.Handler] // nil: not yet
}

// adminLive is what a reload may change.
type adminLive struct {
	requires bool   // ready.requires_store
	token    string // "": open
	digest   string // of the configuration
}

func (a *admin) use(c *config.Settings) {
	a.live.Store(&adminLive{requires: c.Ready.RequiresStore, token: string(c.Metrics.Token), digest: digest(c)})
}

func (a *admin) set(p phase) { a.phase.Store(int32(p)) }

// ServeHTTP routes the few paths there are.
func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch r.URL.Path {
	case "/healthz":
		if allowed(w, r) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte("ok\n"))
		}
	case "/readyz":
		if allowed(w, r) {
			a.ready(w, r)
		}
	case "/metrics":
		if !allowed(w, r) {
			return
		}
		if !a.authorised(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="idempo"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		a.metrics.ServeHTTP(w, r)
	case "/-/reload":
		a.takeOver(w, r)
	default:
		if ui := a.pages.Load(); ui != nil {
			ui.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "starting; /healthz and /readyz answer already", http.StatusServiceUnavailable)
	}
}

func allowed(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// authorised compares digests of the tokens, so that neither length nor bytes show in the time it takes.
func (a *admin) authorised(r *http.Request) bool {
	token := a.live.Load().token
	if token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return ok && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// ready says whether traffic should come. A store that is down changes that only if the configuration says so.
func (a *admin) ready(w http.ResponseWriter, r *http.Request) {
	p, up := phase(a.phase.Load()), a.store()
	body := struct {
		Ready    bool              `json:"ready"`
		Store    string            `json:"store"`
		Draining bool              `json:"draining"`
		Breakers map[string]string `json:"breakers,omitempty"`
		Config   string            `json:"config_digest,omitempty"`
		Problem  string            `json:"reload_error,omitempty"`
	}{Store: "up", Draining: p == draining}
	if !up {
		body.Store = "down"
	}
	live := a.live.Load()
	body.Ready = p == serving && (up || !live.requires)
	if a.trusted(r) {
		body.Config, body.Breakers = live.digest, a.breakers()
		if err := a.problem(); err != nil {
			body.Problem = err.Error()
		}
	}
	status := http.StatusOK
	if !body.Ready {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(body)
	}
}

// trusted reports whether r may see detail and reload: it brings the token, or comes from this machine where there is none.
func (a *admin) trusted(r *http.Request) bool {
	if a.live.Load().token != "" {
		return a.authorised(r)
	}
	return loopbackPeer(r)
}

// takeOver reloads the configuration. A page in a browser cannot ask for it, even where no token is set.
func (a *admin) takeOver(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	case !a.trusted(r):
		w.Header().Set("WWW-Authenticate", `Bearer realm="idempo"`)
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		http.Error(w, "cross_origin: this is no request for a browser", http.StatusForbidden)
		return
	}
	body, status := struct {
		Outcome string `json:"outcome"`
		Error   string `json:"error,omitempty"`
	}{Outcome: "ok"}, http.StatusOK
	if err := a.reload(); err != nil {
		body.Outcome, body.Error, status = "invalid", err.Error(), http.StatusUnprocessableEntity
		if no, ok := errors.AsType[*NotReloaded](err); ok && no.Outcome == "refused" {
			body.Outcome, status = "refused", http.StatusConflict
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func loopbackPeer(r *http.Request) bool {
	return strings.HasPrefix(r.RemoteAddr, "127.") || strings.HasPrefix(r.RemoteAddr, "[::1]")
}
