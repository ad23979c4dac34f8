package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/webhook"
)

// region: service
func service(ctx context.Context, engine *idempo.Engine, effect webhook.HandlerFunc) (http.Handler, error) {
	rcv, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{{
		Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromEnv("2026a", "GH_HOOK"), webhook.FromFile("old", "/run/secrets/gh")},
	}}})
	if err != nil {
		return nil, err // every mistake of every source at once, each with what to do
	}
	rcv.Handle("gh", "push", effect) // "*" takes every other type
	go rcv.Run(ctx)                  // runs what was stored, until ctx ends
	mux := http.NewServeMux()
	mux.Handle("/hooks/{source}", rcv)
	return mux, nil
}

// end: service

var _ = service // the guide shows it

func ExampleNew() {
	ctx := context.Background()
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("32 random bytes, from your secrets")}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("1", "made up")}}
	rcv, err := webhook.New(webhook.Config{Engine: engine, Sources: []webhook.Source{source}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rcv.Handle("gh", "push", func(ctx context.Context, ev *webhook.Event) error {
		memstore.OnCommit(ctx, func() { fmt.Printf("%s %s\n", ev.Type, ev.Body) }) // with SQL: postgres.Tx(ctx).ExecContext …
		return nil
	})
	mux := http.NewServeMux()
	mux.Handle("/hooks/{source}", rcv)

	for range 3 { // the provider sends it again and again
		sent, _ := webhook.Sign(source, webhook.SignParams{Body: []byte(`{"ref":"main"}`), ID: "72d3162e", Type: "push", At: time.Now()})
		req := httptest.NewRequest(sent.Method, "/hooks/gh", bytes.NewReader(sent.Body))
		req.Header = sent.Header
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, req)
		fmt.Println(w.Code)
	}
	n, err := webhook.Once(ctx, rcv, "gh") // in a service: go rcv.Run(ctx)
	fmt.Println(n, err)
	// Output:
	// 200
	// 200
	// 200
	// push {"ref":"main"}
	// 1 <nil>
}

func ExampleVerify() {
	source := webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("2026a", "made up")}}
	v, err := webhook.NewVerifier(source)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	sent, _ := webhook.Sign(source, webhook.SignParams{Body: []byte(`{"ref":"main"}`), ID: "72d3162e", Type: "push", At: now})

	verdict, err := webhook.Verify(v, sent.Request(), now)
	fmt.Println(verdict.Scheme, verdict.SecretID, err)

	sent.Body = []byte(`{"ref":"evil"}`)
	_, err = webhook.Verify(v, sent.Request(), now)
	fmt.Println(err)
	// Output:
	// hmac sha256 2026a <nil>
	// webhook gh: mismatch: no code fits
}

func ExampleNewVerifier() {
	_, err := webhook.NewVerifier(webhook.Source{Name: "payments", Provider: "stripo", Secrets: []webhook.Secret{webhook.FromEnv("1", "STRIPE_HOOK")}})
	fmt.Println(err)
	// Output:
	// webhooks.sources.payments.provider: "stripo" is no provider, did you mean stripe; idempo webhooks providers lists them, and webhooks.providers adds one of your own
}

func ExampleAccept() {
	source := webhook.Source{Name: "chat", Provider: "line", Secrets: []webhook.Secret{webhook.FromText("1", "made up")}}
	v, err := webhook.NewVerifier(source)
	if err != nil {
		fmt.Println(err)
		return
	}
	body := []byte(`{"events":[{"webhookEventId":"A","source":{"userId":"u1"},"timestamp":1},{"webhookEventId":"B"}]}`)
	sent, _ := webhook.Sign(source, webhook.SignParams{Body: body, At: time.Now()})
	got, err := webhook.Accept(v, sent.Request(), time.Now(), 1<<20)
	for _, e := range got.Delivery.Events {
		fmt.Println(e.IDs[0].Text, e.Lane, string(e.Body))
	}
	fmt.Println(err)
	// Output:
	// A u1 {"webhookEventId":"A","source":{"userId":"u1"},"timestamp":1}
	// B  {"webhookEventId":"B"}
	// <nil>
}

// region: receiver
func receiver(source webhook.Source, store func([]webhook.Event) error) (http.Handler, error) {
	v, err := webhook.NewVerifier(source)
	if err != nil {
		return nil, err // every mistake at once, each with what to do
	}
	limit := v.Profile().MaxBody
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		got, err := webhook.Accept(v, webhook.RequestOf(r, body), time.Now(), limit)
		if _, refused := webhook.IsRefusal(err); refused {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err != nil || store(got.Delivery.Events) != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // the provider comes again
			return
		}
		w.WriteHeader(http.StatusOK) // only now: a provider that hears success forgets the event
	}), nil
}

// end: receiver

func ExampleRequestOf() {
	source := webhook.Source{Name: "gh", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("1", "made up")}}
	handler, err := receiver(source, func(events []webhook.Event) error {
		fmt.Println("stored:", events[0].IDs[0].Text, events[0].Type)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, by := range []string{"made up", "somebody else"} {
		source.Secrets = []webhook.Secret{webhook.FromText("1", by)}
		sent, _ := webhook.Sign(source, webhook.SignParams{Body: []byte("{}"), ID: "d1", Type: "push", At: time.Now()})
		req := httptest.NewRequest(sent.Method, "/in", bytes.NewReader(sent.Body))
		req.Header = sent.Header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		fmt.Println(w.Code)
	}
	// Output:
	// stored: d1 push
	// 200
	// 401
}
