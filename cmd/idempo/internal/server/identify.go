package server

import (
	"context"
	"crypto/rand"
	"net/http"
)

type identityKey struct{}

// identity is what ties the lines of one request together.
type identity struct{ request, correlation string }

// identified gives every request an id, and a correlation id, and sends both to the upstream and with the answer. An id from
// the caller is kept if it is visible ASCII of at most 128 bytes; otherwise one is made. Without a correlation id of its own a
// request has its request id.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := identity{request: r.Header.Get("X-Request-Id"), correlation: r.Header.Get("X-Correlation-Id")}
		if !visible(id.request) {
			id.request = rand.Text()
		}
		if !visible(id.correlation) {
			id.correlation = id.request
		}
		r.Header.Set("X-Request-Id", id.request)
		r.Header.Set("X-Correlation-Id", id.correlation)
		w.Header().Set("X-Request-Id", id.request)
		w.Header().Set("X-Correlation-Id", id.correlation)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
}

func visible(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
