package main

import (
	"net/http/httptest"
	"testing"
)

func TestEveryCallPays(t *testing.T) {
	t.Parallel()
	mux := service()
	for range 2 {
		r := httptest.NewRequest("POST", "/v1/payments", nil)
		r.Header.Set("Idempotency-Key", "order-81")
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/v1/payments", nil))
	if w.Body.String() != "2 payments\n" {
		t.Error(w.Body.String())
	}
}
