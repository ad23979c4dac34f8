package webhook_test

import (
	"fmt"
	"time"

	"github.com/idempo/idempo/webhook"
)

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
