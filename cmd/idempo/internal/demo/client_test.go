package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
)

func TestClientPersists(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "k" || r.Method != "POST" {
			t.Errorf("%s %v", r.Method, r.Header)
		}
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Idempotency-Status", "released")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, `{"code":"outcome_unknown"}`)
		case 2, 3:
			w.Header().Set("Idempotency-Status", "in_doubt")
			w.WriteHeader(http.StatusConflict)
		case 4:
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Idempotency-Status", "replayed")
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer srv.Close()
	between := 0
	tries := request{url: srv.URL, key: "k", amount: 1}.persist(t.Context(), func() { between++ })
	if len(tries) != 5 || between != 4 {
		t.Fatalf("%d tries, %d pauses", len(tries), between)
	}
	if got, want := words(tries), []string{"in_doubt", "no_answer", "replayed"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := answers(tries), []string{"502 in_doubt", "409 in_doubt", "no answer", "201 replayed"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestClientStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	if tries := (request{url: srv.URL, key: "k", amount: 1}).persist(ctx, nil); len(tries) != 1 {
		t.Errorf("%d tries", len(tries))
	}
}

func TestOutcomeClaim(t *testing.T) {
	t.Parallel()
	side := func(n int) Side { return Side{Charges: n} }
	one := side(1)
	two := side(2)
	ok := func(o Outcome) {
		t.Helper()
		if !o.OK() {
			t.Errorf("%+v is refused", o)
		}
	}
	bad := func(o Outcome) {
		t.Helper()
		if o.OK() {
			t.Errorf("%+v is accepted", o)
		}
	}
	ok(Outcome{Scene: "lost", Intents: 1, Bare: two, Guarded: one})
	ok(Outcome{Scene: "changed", Intents: 1, Bare: one, Guarded: one})
	ok(Outcome{Scene: "crash", Intents: 1, Bare: two, Guarded: one, Library: &one})
	bad(Outcome{Scene: "lost", Intents: 1, Bare: one, Guarded: one})
	bad(Outcome{Scene: "lost", Intents: 1, Bare: two, Guarded: two})
	bad(Outcome{Scene: "lost", Intents: 1, Bare: two, Guarded: side(0)})
	bad(Outcome{Scene: "crash", Intents: 1, Bare: two, Guarded: one, Library: &two})
	for _, name := range Names() {
		if Story(name) == "" {
			t.Errorf("%s has no story", name)
		}
	}
	if cents(1205) != "12.05 EUR" {
		t.Error(cents(1205))
	}
}
