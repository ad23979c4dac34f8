package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// cors answers preflights and marks answers for the configured origins (row P23).
type cors struct {
	origins []string
	any     bool
	keys    []string // names of key headers
}

func newCORS(origins []string, names headerNames) cors {
	return cors{origins: origins, any: slices.Contains(origins, "*"), keys: slices.Sorted(maps.Keys(names.keys))}
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
		h.Set("Access-Control-Allow-Headers", want) // the origin is the operator's own: what its pages send is theirs to say
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// merge fits an upstream's answer to r in: what it says about a configured origin gives way to ours; else, where it lists
// headers for browsers, idempo's names are added.
func (c cors) merge(r *http.Request, h http.Header) {
	ours := c.on() && c.allows(r.Header.Get("Origin"))
	if ours {
		delete(h, "Access-Control-Allow-Origin")
	}
	if listed := h["Access-Control-Expose-Headers"]; listed != nil {
		h["Access-Control-Expose-Headers"] = []string{strings.Join(append(slices.Clone(listed), exposed()...), ", ")}
	}
	if ours {
		return
	}
	if listed := h["Access-Control-Allow-Headers"]; listed != nil {
		h["Access-Control-Allow-Headers"] = []string{strings.Join(append(slices.Clone(listed), c.keys...), ", ")}
	}
}

func exposed() []string {
	return []string{"Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires", "Idempotency-Key-Next", "Retry-After"}
}
