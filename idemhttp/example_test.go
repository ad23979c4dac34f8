package idemhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

// exampleMiddleware is what a service sets up once; its store would be postgres, mysql or sqlite.
func exampleMiddleware() *idemhttp.Middleware {
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("thirty-two random bytes go here!")}}})
	if err != nil {
		panic(err)
	}
	m, err := idemhttp.New(engine, idemhttp.Config{
		TenantFunc: func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }, // from the session
	})
	if err != nil {
		panic(err)
	}
	return m
}

// call sends a request and prints what came back.
func call(h http.Handler, key, body string) {
	r := httptest.NewRequest("POST", "/v1/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Account", "acct_7")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Idempotency-Status"), " ", w.Header().Get("Location"))))
}

func ExampleMiddleware_Wrap() {
	m := exampleMiddleware()
	payments := 0
	h, err := m.Wrap(idempo.Operation{Name: "create-payment", Guard: idempo.GuardAtomic}, idemhttp.Rules{},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			memstore.OnCommit(r.Context(), func() { payments++ }) // a row in the transaction of the claim
			w.Header().Set("Location", "/v1/payments/1")
			w.WriteHeader(http.StatusCreated)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	call(h, "order-81", `{"amount": 1200}`)
	call(h, "order-81", `{ "amount": 1.2e3 }`)
	call(h, "order-81", `{"amount": 1300}`)
	fmt.Println(payments, "payment")
	// Output:
	// 201 executed /v1/payments/1
	// 201 replayed /v1/payments/1
	// 422 mismatch
	// 1 payment
}

func ExampleSetOutcome() {
	m := exampleMiddleware()
	h, err := m.Wrap(idempo.Operation{Name: "book-parcel", Guard: idempo.GuardLeased}, idemhttp.Rules{},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// The carrier refused before it did anything: the same key may try again.
			if err := idemhttp.SetOutcome(r.Context(), idemhttp.OutcomeRelease); err != nil {
				fmt.Println(err)
			}
			w.WriteHeader(http.StatusBadGateway)
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	call(h, "parcel-9", `{}`)
	// Output:
	// 502 released
}

func ExampleMiddleware_Issue() {
	m := exampleMiddleware()
	_, err := m.Wrap(idempo.Operation{Name: "order", Guard: idempo.GuardAtomic, Issued: true}, idemhttp.Rules{}, http.NotFoundHandler())
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := m.Issue("order")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest("POST", "/v1/orders/keys", nil)
	r.Header.Set("X-Account", "acct_7")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Cache-Control"))
	// Output:
	// 201 no-store
}

func ExampleMiddleware_Drain() {
	m := exampleMiddleware()
	left := m.Drain(context.Background()) // before http.Server.Shutdown
	fmt.Println(left, "requests left")
	// Output:
	// 0 requests left
}
