package webhook_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// account is a source of a provider with secrets made for it: what verifies, and what signs.
type account struct {
	verify, sign webhook.Source
	body         string
	form         bool
}

func ours(provider string) account {
	seed := []byte("0123456789abcdef0123456789abcdef")
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	a := account{body: `{"id":"evt-1","type":"paid","event_id":"e1"}`}
	secret := "a text of no meaning"
	private := ""
	switch provider {
	case "standard-webhooks", "svix", "openai", "clerk", "resend", "replicate", "gitlab":
		secret = "whsec_" + base64.StdEncoding.EncodeToString(seed)
	case "adyen":
		secret = hex.EncodeToString(seed)
		a.body = `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"p1","eventCode":"PAID","success":"true","amount":{"value":7,"currency":"EUR"}}}]}`
	case "discord":
		secret, private = hex.EncodeToString(public), hex.EncodeToString(seed)
		a.body = `{"id":"7","type":2}`
	case "telegram":
		secret = "tok_1"
	case "twilio":
		a.body, a.form = "MessageSid=SM1&MessageStatus=sent", true
	case "linear":
		a.body = `{"webhookTimestamp":1,"data":{"id":"i"}}`
	}
	s := webhook.Source{Name: "ours", Provider: provider, Secrets: []webhook.Secret{webhook.FromText("1", secret)}}
	switch provider {
	case "twilio", "square", "hubspot":
		s.PublicURL = "https://hooks.example.com/in"
	}
	a.verify, a.sign = s, s
	if private != "" {
		a.sign.Secrets = []webhook.Secret{webhook.FromText("1", private)}
	}
	return a
}

func (a account) signed(tb testing.TB, at time.Time) webhook.Request {
	tb.Helper()
	s, err := webhook.Sign(a.sign, webhook.SignParams{Body: []byte(a.body), ID: "delivery-1", Type: "paid", At: at, Query: "a=1", Form: a.form})
	if err != nil {
		tb.Fatal(err)
	}
	return s.Request()
}

func ready(tb testing.TB, s webhook.Source, own ...webhook.Profile) *webhook.Verifier {
	tb.Helper()
	v, err := webhook.NewVerifier(s, own...)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// cannotSign are the providers that sign with what only they have, and the one whose token is part of each item.
func cannotSign(provider string) bool {
	return slices.Contains([]string{"paypal", "aws-sns", "sendgrid", "msgraph"}, provider)
}

func at() time.Time { return time.Unix(1_800_000_000, 0) }

func TestSign(t *testing.T) {
	t.Parallel()
	for _, p := range webhook.Providers() {
		t.Run(fmt.Sprintf("[webhooks/RP14] %s %s", p.Row, p.Name), func(t *testing.T) {
			a := ours(p.Name)
			if cannotSign(p.Name) {
				_, err := webhook.Sign(webhook.Source{Name: "x", Provider: p.Name, Secrets: []webhook.Secret{webhook.FromText("1", "k")}, Topics: []string{"arn"}},
					webhook.SignParams{Body: []byte("{}"), At: at()})
				if err == nil || !strings.Contains(err.Error(), "cannot sign for "+p.Name) {
					t.Errorf("error %v", err)
				}
				return
			}
			v, req := ready(t, a.verify), a.signed(t, at())
			verdict, err := webhook.Verify(v, req, at())
			if err != nil {
				t.Fatal(err)
			}
			if verdict.SecretID != "1" || verdict.Scheme == "" {
				t.Errorf("verdict %+v", verdict)
			}
			other := a.verify
			other.Secrets = []webhook.Secret{webhook.FromText("1", swap(a.verify))}
			if _, err := webhook.Verify(ready(t, other), req, at()); err == nil {
				t.Error("another secret verifies it too")
			}
			if w := v.Tolerance(); w > 0 {
				for _, ok := range []time.Duration{w, -w} {
					if _, err := webhook.Verify(v, req, at().Add(ok)); err != nil && p.Name != "linear" {
						t.Errorf("[webhooks/V9] at the edge %v: %v", ok, err)
					}
				}
				wantReason(t, v, req, at().Add(w+time.Second), webhook.ReasonTooOld)
				wantReason(t, v, req, at().Add(-w-time.Second), webhook.ReasonTooNew)
			}
			req.Header = http.Header{}
			if _, err := webhook.Verify(v, req, at()); err == nil && p.Name != "adyen" && p.Name != "mailgun" {
				t.Error("accepted without a header")
			}
		})
	}
}

// swap gives another secret of the same form.
func swap(s webhook.Source) string {
	switch s.Provider {
	case "adyen":
		return strings.Repeat("ab", 32)
	case "discord":
		return hex.EncodeToString(ed25519.NewKeyFromSeed([]byte("another seed of 32 bytes, really")).Public().(ed25519.PublicKey))
	case "standard-webhooks", "svix", "openai", "clerk", "resend", "replicate", "gitlab":
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte("another key of 32 bytes, really!"))
	case "telegram":
		return "tok_2"
	}
	return "another text"
}

func wantReason(t *testing.T, v *webhook.Verifier, req webhook.Request, now time.Time, want webhook.Reason) {
	t.Helper()
	_, err := webhook.Verify(v, req, now)
	if reason, ok := webhook.IsRefusal(err); !ok || reason != want {
		t.Errorf("want %s, got %v", want, err)
	}
}

func TestSignStandardEd25519(t *testing.T) {
	t.Parallel()
	seed := []byte("0123456789abcdef0123456789abcdef")
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	s := webhook.Source{Name: "s", Provider: "standard-webhooks", Secrets: []webhook.Secret{webhook.FromText("k", "whsk_"+base64.StdEncoding.EncodeToString(seed))}}
	out, err := webhook.Sign(s, webhook.SignParams{Body: []byte("{}"), ID: "m1", At: at()})
	if err != nil {
		t.Fatal(err)
	}
	s.Secrets = []webhook.Secret{webhook.FromText("k", "whpk_"+base64.StdEncoding.EncodeToString(public))}
	t.Run("[webhooks/V40] a public key verifies v1a", func(t *testing.T) {
		verdict, err := webhook.Verify(ready(t, s), out.Request(), at())
		if err != nil || verdict.Scheme != "standard v1a" {
			t.Errorf("%+v %v", verdict, err)
		}
	})
	t.Run("[webhooks/V5] a right v1 beside a wrong v1a does not count where both keys are known", func(t *testing.T) {
		hmacKey := "whsec_" + base64.StdEncoding.EncodeToString(seed)
		weak := s
		weak.Secrets = []webhook.Secret{webhook.FromText("h", hmacKey)}
		signed, err := webhook.Sign(weak, webhook.SignParams{Body: []byte("{}"), ID: "m1", At: at()})
		if err != nil {
			t.Fatal(err)
		}
		both := s
		both.Secrets = append(slices.Clone(s.Secrets), webhook.FromText("h", hmacKey))
		req := signed.Request()
		good := req.Header.Get("webhook-signature")
		if _, err := webhook.Verify(ready(t, both), req, at()); err != nil {
			t.Error("v1 alone: ", err)
		}
		req.Header.Set("webhook-signature", good+" v1a,"+base64.StdEncoding.EncodeToString(make([]byte, 64)))
		wantReason(t, ready(t, both), req, at(), webhook.ReasonMismatch)
	})
}
