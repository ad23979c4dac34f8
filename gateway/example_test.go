package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/gateway"
	"github.com/idempo/idempo/memstore"
)

func Example() {
	calls := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"payment":%d}`, calls)
	}))
	defer service.Close()

	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: bytes.Repeat([]byte("keep me secret. "), 2)}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := gateway.New(engine, gateway.Config{
		Tenant:    gateway.Tenant{Global: true},
		Upstreams: map[string]gateway.Upstream{"pay": {URLs: []string{service.URL}}},
		Routes: []gateway.Route{
			{Match: "/", Upstream: "pay"},
			{Match: "POST /v1/payments", Upstream: "pay", Operation: "create-payment"},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := g.Server()
	go srv.Serve(g.Listener(ln))
	defer srv.Close()

	for range 2 {
		r, _ := http.NewRequest("POST", "http://"+ln.Addr().String()+"/v1/payments", strings.NewReader(`{"amount":1200}`))
		r.Header.Set("Idempotency-Key", "order-81")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		fmt.Println(res.StatusCode, string(body), res.Header.Get("Idempotency-Status"))
	}
	fmt.Println("left running:", g.Drain(context.Background()))
	// Output:
	// 201 {"payment":1} executed
	// 201 {"payment":1} replayed
	// left running: 0
}

func ExampleConfig_Validate() {
	err := gateway.Config{
		Upstreams: map[string]gateway.Upstream{"pay": {URLs: []string{"http://10.0.0.5:9000"}}},
		Routes:    []gateway.Route{{Match: "POST /v1/payments", Upstream: "pya", Operation: "create-payment"}},
	}.Validate()
	fmt.Println(err)
	// Output:
	// tenant: is not set, and a route is guarded; set one of header, jwt, mtls, forward_auth, global
	// routes[0].upstream: is "pya", which is not under upstreams
}

func ExampleForUpstream() {
	c := gateway.ForUpstream("http://127.0.0.1:9000")
	fmt.Println(c.CheckListen("127.0.0.1:8080", false))
	fmt.Println(c.CheckListen(":8080", false))
	// Output:
	// <nil>
	// tenant: is not set and :8080 is not a loopback address; name a tenant source, or tenant: {global: true} if all callers are one
}
