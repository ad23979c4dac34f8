package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
)

// phase is how far a process is.
type phase int32

const (
	starting phase = iota
	serving
	draining
)

// admin answers health and metrics. It asks nothing but memory: the state of the store is what the last calls found.
type admin struct {
	phase    atomic.Int32
	store    func() bool // whether the store answers
	breakers func() map[string]string
	requires bool   // ready.requires_store
	token    string // "": open
	digest   string // of the configuration
	metrics  http.Handler
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
	default:
		http.Error(w, "not found; here are /healthz /readyz /metrics", http.StatusNotFound)
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
	if a.token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(a.token))
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
	}{Store: "up", Draining: p == draining}
	if !up {
		body.Store = "down"
	}
	body.Ready = p == serving && (up || !a.requires)
	if a.token != "" && a.authorised(r) || a.token == "" && loopbackPeer(r) {
		body.Config, body.Breakers = a.digest, a.breakers()
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

func loopbackPeer(r *http.Request) bool {
	return strings.HasPrefix(r.RemoteAddr, "127.") || strings.HasPrefix(r.RemoteAddr, "[::1]")
}
