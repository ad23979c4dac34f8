package webhook_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/idempo/idempo/webhook"
)

// Each row of the table of profiles accepts one request and refuses another.
func TestRows(t *testing.T) {
	t.Parallel()
	// vectors of the published file: one that is accepted, one that is refused
	pair := func(name, good, bad string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			yes, no := named(t, good), named(t, bad)
			if yes.Valid == nil || no.Valid == nil || !*yes.Valid || *no.Valid {
				t.Fatal("the pair is none")
			}
			for _, v := range []vector{yes, no} {
				_, err := webhook.Accept(v.ready(t), v.request(), v.now(), 1<<20)
				if (err == nil) != *v.Valid {
					t.Errorf("%s: %v", v.ID, err)
				}
			}
		})
	}
	pair("[webhooks/V40] standard-webhooks", "sw-v1", "sw-version-missing")
	pair("[webhooks/V41] github", "github-docs", "github-docs-neg-body")
	pair("[webhooks/V42] gitlab", "gitlab-token", "gitlab-token-wrong")
	pair("[webhooks/V43] bitbucket", "bitbucket-cloud-docs", "bitbucket-cloud-docs-neg-secret")
	pair("[webhooks/V43] bitbucket-server", "bitbucket-server-smallest", "bitbucket-server-smallest-neg-body")
	pair("[webhooks/V44] gitea", "gitea-smallest", "gitea-smallest-neg-body")
	pair("[webhooks/V44] gogs", "gogs-create", "gogs-create-neg-missing")
	pair("[webhooks/V45] stripe", "stripe-basic", "stripe-tampered")
	pair("[webhooks/V46] slack", "slack-docs", "slack-old")
	pair("[webhooks/V47] discord", "discord-ping", "discord-ts-swapped")
	pair("[webhooks/V48] telegram", "telegram-basic", "telegram-wrong")
	pair("[webhooks/V50] twitch", "twitch-challenge", "twitch-challenge-neg-body")
	pair("[webhooks/V51] meta", "meta-post", "meta-post-decoded")
	pair("[webhooks/V53] msgraph", "msgraph-clientstate", "msgraph-clientstate-one-bad")
	pair("[webhooks/V54] shopify", "shopify-go", "shopify-go-neg-body")
	pair("[webhooks/V55] paypal", "paypal-derived", "paypal-tampered")
	pair("[webhooks/V56] square", "square-basic", "square-basic-neg-secret")
	pair("[webhooks/V57] adyen", "adyen-docs", "adyen-tampered")
	pair("[webhooks/V58] twilio", "twilio-docs", "twilio-wrong-order")
	pair("[webhooks/V59] sendgrid", "sendgrid-single", "sendgrid-single-trimmed")
	pair("[webhooks/V60] mailgun", "mailgun-basic", "mailgun-wrong")
	pair("[webhooks/V61] paddle", "paddle-basic", "paddle-tampered")
	pair("[webhooks/V62] linear", "linear-basic", "linear-tampered")
	pair("[webhooks/V64] aws-sns", "sns-v2", "sns-tampered")
	pair("[webhooks/V66] pagerduty", "pagerduty-basic", "pagerduty-basic-neg-secret")
	pair("[webhooks/V67] razorpay", "razorpay-basic", "razorpay-basic-neg-body")
	pair("[webhooks/V68] circleci", "circleci-1", "circleci-1-neg-body")
	pair("[webhooks/V71] hook0", "hook0-v1", "hook0-missing-covered")

	// requests signed here, and the same with one byte of the body, or the time, changed
	made := func(name, provider, header string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := ours(provider)
			v, req := ready(t, a.verify), a.signed(t, at())
			if _, err := webhook.Verify(v, req, at()); err != nil {
				t.Fatal(err)
			}
			for _, change := range []func(*webhook.Request){
				func(r *webhook.Request) { r.Body[0] ^= 1 },
				func(r *webhook.Request) { r.Header.Del(header) },
				func(r *webhook.Request) { r.Header.Set(header, strings.ToUpper(r.Header.Get(header))+"0") },
				func(r *webhook.Request) { r.Header.Add(header, r.Header.Get(header)) },
			} {
				other := req
				other.Header, other.Body = req.Header.Clone(), []byte(string(req.Body))
				change(&other)
				if _, err := webhook.Verify(v, other, at()); err == nil {
					t.Errorf("accepted: %+v", other.Header)
				}
			}
		})
	}
	made("[webhooks/V40] clerk", "clerk", "Webhook-Signature")
	made("[webhooks/V44] forgejo", "forgejo", "X-Forgejo-Signature")
	made("[webhooks/V49] line", "line", "X-Line-Signature")
	made("[webhooks/V51] whatsapp", "whatsapp", "X-Hub-Signature-256")
	made("[webhooks/V52] x", "x", "X-Twitter-Webhooks-Signature")
	made("[webhooks/V63] zoom", "zoom", "X-Zm-Signature")
	made("[webhooks/V65] hubspot", "hubspot", "X-Hubspot-Signature-V3")
	made("[webhooks/V69] sanity", "sanity", "Sanity-Webhook-Signature")
	made("[webhooks/V70] workos", "workos", "Workos-Signature")

	t.Run("[webhooks/V61] paddle: while a secret is replaced either of two codes counts, and the separator is a semicolon", func(t *testing.T) {
		v := named(t, "paddle-basic")
		req := v.request()
		good := req.Header.Get("Paddle-Signature")
		req.Header.Set("Paddle-Signature", good+";h1="+strings.Repeat("00", 32))
		if _, err := webhook.Verify(v.ready(t), req, v.now()); err != nil {
			t.Error(err)
		}
		req.Header.Set("Paddle-Signature", strings.ReplaceAll(good, ";", ","))
		if _, err := webhook.Verify(v.ready(t), req, v.now()); err == nil {
			t.Error("a comma counts")
		}
	})
	t.Run("[webhooks/V60] mailgun: the code of a parent account counts for a subaccount", func(t *testing.T) {
		a := ours("mailgun")
		out, err := webhook.Sign(a.sign, webhook.SignParams{Body: []byte(`{}`), ID: "token", At: at()})
		if err != nil {
			t.Fatal(err)
		}
		req := out.Request()
		req.Body = []byte(strings.Replace(string(req.Body), `"signature":"`, `"signature":"`+strings.Repeat("0", 64)+`","parent-signature":"`, 1))
		if _, err := webhook.Verify(ready(t, a.verify), req, at()); err != nil {
			t.Error(err)
		}
		req.Body = []byte(strings.Replace(string(req.Body), `"parent-signature":"`, `"other-signature":"`, 1))
		wantReason(t, ready(t, a.verify), req, at(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V48] telegram: no header, no event", func(t *testing.T) {
		a := ours("telegram")
		wantReason(t, ready(t, a.verify), webhook.Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte("{}")}, at(), webhook.ReasonMissingHeader)
	})
}
