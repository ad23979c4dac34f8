// Package gateway guards any HTTP service, in any language, with idempo's contract.
//
// A [Gateway] is an http.Handler that stands in front of one or more upstreams. A route that names an operation is
// guarded: its keyed requests are claimed, forwarded once, and answered from the record ever after. Every other route
// passes through untouched: streams, server-sent events, upgrades, trailers, interim answers, HTTP/2.
//
//	g, err := gateway.New(engine, gateway.Config{
//		Tenant:    gateway.Tenant{Global: true},
//		Upstreams: map[string]gateway.Upstream{"pay": {URLs: []string{"http://127.0.0.1:9000"}}},
//		Routes: []gateway.Route{
//			{Match: "/", Upstream: "pay"},
//			{Match: "POST /v1/payments", Upstream: "pay", Operation: "create-payment"},
//		},
//	})
//	ln, err := net.Listen("tcp", "127.0.0.1:8080")
//	srv := g.Server() // an *http.Server with the time-outs and limits of the Config
//	err = srv.Serve(g.Listener(ln))
//
// [Gateway.Listener] reads each HTTP/1 request head on the connection and refuses what two readers could read in two
// ways, before net/http parses it. Without it the gateway works and is only as strict as net/http.
//
// What the gateway never promises: that an upstream acted exactly once. It sends a keyed request at most once per
// claim, tells "never sent" from "sent, no answer", and calls the second one in doubt unless a probe, an upstream that
// honours the key, or a person says otherwise. It does not join an upstream's transaction.
//
// Layer: adapter. It imports the root, retry, idemhttp and internal/safedial.
package gateway
