package gateway

import (
	"net/http"
	"slices"
	"strings"
)

// cors answers preflights and marks answers for the configured origins (row P23).
type cors struct {
	origins []string
	any     bool
}

func newCORS(origins []string) cors {
	return cors{origins: origins, any: slices.Contains(origins, "*")}
}

func (c cors) on() bool { return len(c.origins) > 0 }

func (c cors) allows(origin string) bool {
	return origin != "" && (c.any || slices.Contains(c.origins, origin))
}

// answer marks the answer to r, and gives the whole answer to a preflight; true: nothing is left to do.
func (c cors) answer(w http.ResponseWriter, r *http.Request) bool {
	if !c.on() {
		return false
	}
	origin := r.Header.Get("Origin")
	if !c.allows(origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", strings.Join(exposed(), ", "))
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if want := r.Header.Get("Access-Control-Request-Headers"); want != "" {
		h.Set("Access-Control-Allow-Headers", want)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func exposed() []string {
	return []string{"Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Key-Next", "Retry-After"}
}
