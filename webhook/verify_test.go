package webhook_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// github is a source of the plainest profile: one HMAC over the body.
func github(secrets ...webhook.Secret) webhook.Source {
	return webhook.Source{Name: "gh", Provider: "github", Secrets: secrets}
}

func text(id, value string) webhook.Secret { return webhook.FromText(id, value) }

// sign signs with the first secret of s.
func sign(tb testing.TB, s webhook.Source, body string, own ...webhook.Profile) webhook.Request {
	tb.Helper()
	out, err := webhook.Sign(s, webhook.SignParams{Body: []byte(body), ID: "d1", At: at()}, own...)
	if err != nil {
		tb.Fatal(err)
	}
	return out.Request()
}

func TestComparison(t *testing.T) {
	t.Parallel()
	s := github(text("old", "first text"), text("new", "second text"))
	t.Run("[webhooks/V2] [webhooks/RP17] every secret is tried, and the verdict says which one fits", func(t *testing.T) {
		for _, secret := range s.Secrets {
			req := sign(t, github(secret), "{}")
			verdict, err := webhook.Verify(ready(t, s), req, at())
			if err != nil || verdict.SecretID != secret.ID() {
				t.Errorf("%+v %v", verdict, err)
			}
		}
	})
	stripe := webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("1", "k")}}
	t.Run("[webhooks/V2] every code of a header is tried, the seventeenth is refused", func(t *testing.T) {
		v, req := ready(t, stripe), sign(t, stripe, "{}")
		good := req.Header.Get("Stripe-Signature")
		ts, code, _ := strings.Cut(good, ",")
		wrong := ",v1=" + strings.Repeat("00", 32)
		req.Header.Set("Stripe-Signature", ts+strings.Repeat(wrong, 15)+","+code)
		if _, err := webhook.Verify(v, req, at()); err != nil {
			t.Error("the sixteenth:", err)
		}
		req.Header.Set("Stripe-Signature", ts+strings.Repeat(wrong, 16)+","+code)
		wantReason(t, v, req, at(), webhook.ReasonMalformedHeader)
	})
	t.Run("[webhooks/V3] two lines of a header that counts are refused, whatever the case of the name", func(t *testing.T) {
		v := ready(t, s)
		req := sign(t, s, "{}")
		good := req.Header.Get("X-Hub-Signature-256")
		req.Header.Add("x-hub-signature-256", good)
		wantReason(t, v, req, at(), webhook.ReasonDuplicateHeader)
		req.Header.Del("X-HUB-SIGNATURE-256")
		req.Header.Set("x-HUB-signature-256", good)
		if _, err := webhook.Verify(v, req, at()); err != nil {
			t.Error(err)
		}
		slack := webhook.Source{Name: "sl", Provider: "slack", Secrets: []webhook.Secret{text("1", "k")}}
		req = sign(t, slack, "{}")
		req.Header.Add("X-Slack-Request-Timestamp", req.Header.Get("X-Slack-Request-Timestamp"))
		wantReason(t, ready(t, slack), req, at(), webhook.ReasonDuplicateHeader)
	})
	t.Run("[webhooks/V4] prefix and version are exact", func(t *testing.T) {
		v, req := ready(t, s), sign(t, s, "{}")
		good := strings.TrimPrefix(req.Header.Get("X-Hub-Signature-256"), "sha256=")
		for _, prefix := range []string{"", "SHA256=", "sha1=", " sha256=", "sha256 =", "sha256:"} {
			req.Header.Set("X-Hub-Signature-256", prefix+good)
			if _, err := webhook.Verify(v, req, at()); err == nil {
				t.Errorf("prefix %q is accepted", prefix)
			}
		}
		v, req = ready(t, stripe), sign(t, stripe, "{}")
		header := req.Header.Get("Stripe-Signature")
		for _, other := range []string{"V1=", "v2=", "v1 =", "="} {
			req.Header.Set("Stripe-Signature", strings.Replace(header, "v1=", other, 1))
			if _, err := webhook.Verify(v, req, at()); err == nil {
				t.Errorf("tag %q is accepted", other)
			}
		}
		req.Header.Set("Stripe-Signature", "x,,v9=zz,scheme=1,"+header)
		if _, err := webhook.Verify(v, req, at()); err != nil {
			t.Error("unknown versions and entries without a tag are skipped:", err)
		}
	})
	t.Run("[webhooks/V6] a code is hex of full length, nothing else", func(t *testing.T) {
		v, req := ready(t, s), sign(t, s, "{}")
		good := strings.TrimPrefix(req.Header.Get("X-Hub-Signature-256"), "sha256=")
		set := func(code string) { req.Header.Set("X-Hub-Signature-256", "sha256="+code) }
		set(strings.ToUpper(good))
		if _, err := webhook.Verify(v, req, at()); err != nil {
			t.Error("upper case:", err)
		}
		for _, code := range []string{good[:62], good[:63], good + "00", good + " ", " " + good, "0x" + good[2:], good[:32] + "zz" + good[34:]} {
			set(code)
			wantReason(t, v, req, at(), webhook.ReasonMalformedHeader)
		}
		set("")
		wantReason(t, v, req, at(), webhook.ReasonMissingHeader)
	})
	t.Run("[webhooks/V6] base64 is padded, base64url is not", func(t *testing.T) {
		shop := webhook.Source{Name: "s", Provider: "shopify", Secrets: []webhook.Secret{text("1", "k")}}
		v, req := ready(t, shop), sign(t, shop, "{}")
		good := req.Header.Get("X-Shopify-Hmac-Sha256")
		for _, code := range []string{strings.TrimRight(good, "="), good + "=", good[:10] + "\n" + good[10:], good[:4], strings.Repeat("A", 4000)} {
			req.Header.Set("X-Shopify-Hmac-Sha256", code)
			wantReason(t, v, req, at(), webhook.ReasonMalformedHeader)
		}
		sanity := webhook.Source{Name: "s", Provider: "sanity", Secrets: []webhook.Secret{text("1", "k")}}
		v, req = ready(t, sanity), sign(t, sanity, "{}")
		req.Header.Set("sanity-webhook-signature", req.Header.Get("sanity-webhook-signature")+"=")
		wantReason(t, v, req, at(), webhook.ReasonMalformedHeader)
	})
}

func TestStrength(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/V5] [webhooks/V71] hook0: a right v0 beside a wrong v1 does not count", func(t *testing.T) {
		v := named(t, "hook0-v0")
		r, req := v.ready(t), v.request()
		req.Header.Set("X-Hook0-Signature", req.Header.Get("X-Hook0-Signature")+",h=x-event-id,v1="+strings.Repeat("00", 32))
		wantReason(t, r, req, v.now(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V5] [webhooks/V42] gitlab: a signature beside a right token never falls back to the token", func(t *testing.T) {
		v := named(t, "gitlab-token")
		r, req := v.ready(t), v.request()
		for _, code := range []string{"", "v1," + strings.Repeat("A", 43) + "=", "nonsense"} {
			req.Header.Set("webhook-signature", code)
			if _, err := webhook.Verify(r, req, v.now()); err == nil {
				t.Errorf("accepted with %q", code)
			}
		}
	})
	t.Run("[webhooks/V5] [webhooks/V65] hubspot: a right v2 beside a wrong v3 does not count, and min_version refuses v2", func(t *testing.T) {
		v := named(t, "hubspot-v2-post")
		s, _ := v.source()
		req := v.request()
		s.MinVersion = "v3"
		wantReason(t, ready(t, s), req, v.now(), webhook.ReasonUnknownVersion)
		s.MinVersion = "v2"
		if _, err := webhook.Verify(ready(t, s), req, v.now()); err != nil {
			t.Error(err)
		}
		req.Header.Set("X-HubSpot-Signature-v3", strings.Repeat("A", 43)+"=")
		req.Header.Set("X-HubSpot-Request-Timestamp", fmt.Sprint(v.now().UnixMilli()))
		wantReason(t, ready(t, s), req, v.now(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V17] a version that the sender names must be known", func(t *testing.T) {
		v := named(t, "hubspot-v2-post")
		req := v.request()
		for _, version := range []string{"v4", "v02", "V2", "none"} {
			req.Header.Set("X-HubSpot-Signature-Version", version)
			wantReason(t, v.ready(t), req, v.now(), webhook.ReasonUnknownVersion)
		}
		pp := named(t, "paypal-derived")
		req = pp.request()
		req.Header.Set("PAYPAL-AUTH-ALGO", "SHA1withRSA")
		wantReason(t, pp.ready(t), req, pp.now(), webhook.ReasonUnknownVersion)
		sns := named(t, "sns-v2")
		req = sns.request()
		req.Body = []byte(strings.Replace(sns.Body, `"SignatureVersion": "2"`, `"SignatureVersion": "3"`, 1))
		wantReason(t, sns.ready(t), req, sns.now(), webhook.ReasonUnknownVersion)
	})
}

func TestTime(t *testing.T) {
	t.Parallel()
	stripe := webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("1", "k")}}
	t.Run("[webhooks/V8] a time is 1 to 19 digits within 63 bits, once", func(t *testing.T) {
		v := ready(t, stripe)
		for _, ts := range []string{"", "-1", "+1", " 1", "1 ", "1.0", "1e9", "0x1", "٣", "9223372036854775808", "00000000000000000001", "NaN"} {
			req := sign(t, stripe, "{}")
			_, code, _ := strings.Cut(req.Header.Get("Stripe-Signature"), ",")
			req.Header.Set("Stripe-Signature", "t="+ts+","+code)
			_, err := webhook.Verify(v, req, at())
			if reason, _ := webhook.IsRefusal(err); reason != webhook.ReasonMalformedTime && !(ts == " 1" || ts == "1 ") {
				t.Errorf("%q: %v", ts, err)
			}
			if err == nil {
				t.Errorf("%q is accepted", ts)
			}
		}
		req := sign(t, stripe, "{}")
		header := req.Header.Get("Stripe-Signature")
		ts, _, _ := strings.Cut(header, ",")
		req.Header.Set("Stripe-Signature", ts+","+header)
		wantReason(t, v, req, at(), webhook.ReasonMalformedTime)
	})
	t.Run("[webhooks/V8] differences do not overflow", func(t *testing.T) {
		v := ready(t, stripe)
		for ts, want := range map[string]webhook.Reason{"9223372036854775807": webhook.ReasonTooNew, "0": webhook.ReasonTooOld, "99999999999": webhook.ReasonTooNew} {
			req := sign(t, stripe, "{}")
			_, code, _ := strings.Cut(req.Header.Get("Stripe-Signature"), ",")
			req.Header.Set("Stripe-Signature", "t="+ts+","+code)
			wantReason(t, v, req, at(), want)
		}
	})
	t.Run("[webhooks/V9] the window is inclusive to the nanosecond, past and future", func(t *testing.T) {
		v, req := ready(t, stripe), sign(t, stripe, "{}")
		for _, off := range []time.Duration{0, 300 * time.Second, -300 * time.Second} {
			verdict, err := webhook.Verify(v, req, at().Add(off))
			if err != nil || verdict.Skew != off || !verdict.SignedAt.Equal(at()) {
				t.Errorf("%v: %+v %v", off, verdict, err)
			}
		}
		wantReason(t, v, req, at().Add(300*time.Second+1), webhook.ReasonTooOld)
		wantReason(t, v, req, at().Add(-300*time.Second-1), webhook.ReasonTooNew)
	})
	t.Run("[webhooks/V9] where a time is not stamped anew, a window below the horizon is raised, and said", func(t *testing.T) {
		s := webhook.Source{Name: "z", Provider: "zoom", Tolerance: 5 * time.Minute, Secrets: []webhook.Secret{text("1", "k")}}
		v := ready(t, s)
		if v.Tolerance() != 85*time.Minute || len(v.Warnings()) != 1 || !strings.Contains(v.Warnings()[0], "5m0s is less than the 1h25m0s") {
			t.Errorf("%v %v", v.Tolerance(), v.Warnings())
		}
		for _, p := range webhook.Providers() {
			if p.Time.Class != webhook.TimePerAttempt && p.Time.Tolerance > 0 && p.Time.Tolerance < p.Retries {
				t.Errorf("%s: the window %v is below the horizon %v", p.Name, p.Time.Tolerance, p.Retries)
			}
		}
	})
	t.Run("[webhooks/V62] linear: the time inside the body is judged after the code", func(t *testing.T) {
		v := named(t, "linear-basic")
		req := v.request()
		wantReason(t, v.ready(t), req, v.now().Add(61*time.Second), webhook.ReasonTooOld)
		req.Body = []byte(strings.Replace(v.Body, "1780000000000", "1", 1))
		wantReason(t, v.ready(t), req, v.now(), webhook.ReasonMismatch)
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/V10] a signed id that could be cut in two ways is refused", func(t *testing.T) {
		v := named(t, "sw-v1")
		for _, id := range []string{"a.b", strings.Repeat("x", 256), "a\x7fb", "é"} {
			req := v.request()
			req.Header.Set("webhook-id", id)
			wantReason(t, v.ready(t), req, v.now(), webhook.ReasonAmbiguousID)
		}
		req := v.request()
		req.Header.Del("webhook-id")
		wantReason(t, v.ready(t), req, v.now(), webhook.ReasonMissingHeader)
	})
	t.Run("[webhooks/V10] moving bytes from the id to the time does not verify", func(t *testing.T) {
		s := webhook.Source{Name: "s", Provider: "standard-webhooks", Secrets: []webhook.Secret{text("1", "whsec_"+strings.Repeat("A", 32))}}
		out, err := webhook.Sign(s, webhook.SignParams{Body: []byte("7.{}"), ID: "m", At: at()})
		if err != nil {
			t.Fatal(err)
		}
		req := out.Request()
		req.Header.Set("webhook-id", "m."+req.Header.Get("webhook-timestamp"))
		req.Header.Set("webhook-timestamp", "7")
		req.Body = []byte("{}")
		wantReason(t, ready(t, s), req, at(), webhook.ReasonAmbiguousID)
	})
	t.Run("[webhooks/V57] adyen: an item whose id holds the separator is refused", func(t *testing.T) {
		a := ours("adyen")
		a.body = strings.Replace(a.body, `"p1"`, `"p1:x"`, 1)
		if _, err := webhook.Sign(a.sign, webhook.SignParams{Body: []byte(a.body), At: at()}); err == nil {
			t.Error("signed")
		}
		v := named(t, "adyen-docs")
		req := v.request()
		req.Body = []byte(strings.Replace(v.Body, `"7914073381342284"`, `"7914073381342284:"`, 1))
		wantReason(t, v.ready(t), req, v.now(), webhook.ReasonAmbiguousID)
	})
	t.Run("[webhooks/V64] sns: only the message may hold a line end", func(t *testing.T) {
		v := named(t, "sns-v2")
		req := v.request()
		req.Body = []byte(strings.Replace(v.Body, `"Type": "Notification"`, `"Type": "Notification", "Subject": "a\nTimestamp\nb"`, 1))
		wantReason(t, v.ready(t), req, v.now(), webhook.ReasonAmbiguousID)
	})
	t.Run("[webhooks/V15] one bad item refuses the request", func(t *testing.T) {
		a := ours("adyen")
		req := a.signed(t, at())
		twice := strings.Replace(string(req.Body), `{"notificationItems":[`, "", 1)
		twice = strings.TrimSuffix(twice, "]}")
		good := `{"notificationItems":[` + twice + "," + twice + "]}"
		req.Body = []byte(good)
		if _, err := webhook.Verify(ready(t, a.verify), req, at()); err != nil {
			t.Fatal(err)
		}
		cut := strings.LastIndex(good, `"value":7`)
		req.Body = []byte(good[:cut] + `"value":8` + good[cut+9:])
		wantReason(t, ready(t, a.verify), req, at(), webhook.ReasonMismatch)
	})
}

func TestSignedURL(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/V14] [webhooks/V56] the public URL counts, not Host or what a proxy says", func(t *testing.T) {
		v := named(t, "square-basic")
		req := v.request()
		req.Header.Set("Host", "evil.example")
		req.Header.Set("X-Forwarded-Host", "evil.example")
		req.Header.Set("X-Forwarded-Proto", "http")
		if _, err := webhook.Verify(v.ready(t), req, v.now()); err != nil {
			t.Error(err)
		}
		s, _ := v.source()
		s.PublicURL += "/"
		wantReason(t, ready(t, s), req, v.now(), webhook.ReasonMismatch)
		req.Query = "x=1"
		wantReason(t, v.ready(t), req, v.now(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V58] twilio signs the URL with or without the default port", func(t *testing.T) {
		v := named(t, "twilio-docs")
		s, _ := v.source()
		s.PublicURL = strings.Replace(s.PublicURL, "mycompany.com", "mycompany.com:443", 1)
		if _, err := webhook.Verify(ready(t, s), v.request(), v.now()); err != nil {
			t.Error(err)
		}
		s.PublicURL = strings.Replace(s.PublicURL, ":443", ":8443", 1)
		wantReason(t, ready(t, s), v.request(), v.now(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V58] twilio: a body that nothing covers is refused", func(t *testing.T) {
		a := ours("twilio")
		a.form, a.body = false, `{"a":1}`
		req := a.signed(t, at())
		if _, err := webhook.Verify(ready(t, a.verify), req, at()); err != nil {
			t.Fatal(err)
		}
		other := req
		other.Body = []byte(`{"a":2}`)
		wantReason(t, ready(t, a.verify), other, at(), webhook.ReasonMismatch)
		a.body = ""
		bare := a.signed(t, at())
		bare.Body = []byte(`{"a":1}`)
		wantReason(t, ready(t, a.verify), bare, at(), webhook.ReasonMissingHeader)
	})
	t.Run("[webhooks/V65] hubspot v3 decodes the characters that its page lists, and no others", func(t *testing.T) {
		a := ours("hubspot")
		for query, decoded := range map[string]string{"u=a%3Ab%2Fc%40%21%2A": "u=a:b/c@!*", "u=%20%25%26": "u=%20%25%26"} {
			out, err := webhook.Sign(a.sign, webhook.SignParams{Body: []byte("[]"), At: at(), Query: decoded})
			if err != nil {
				t.Fatal(err)
			}
			req := out.Request()
			req.Query = query
			if _, err := webhook.Verify(ready(t, a.verify), req, at()); err != nil {
				t.Errorf("%s: %v", query, err)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/V18] errors name source, reason and place, and wrap what was found", func(t *testing.T) {
		s := github(text("1", "a very secret text"))
		req := sign(t, s, "{}")
		req.Body = []byte("{} ")
		_, err := webhook.Verify(ready(t, s), req, at())
		e, ok := errors.AsType[*webhook.Error](err)
		if !ok || e.Source != "gh" || e.Reason != webhook.ReasonMismatch || errors.Unwrap(e) == nil {
			t.Fatalf("%#v", err)
		}
		for _, hidden := range []string{"a very secret text", strings.TrimPrefix(sign(t, s, "{} ").Header.Get("X-Hub-Signature-256"), "sha256=")} {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), hidden) {
				t.Error("the error shows what must stay hidden")
			}
		}
	})
	t.Run("[webhooks/V1] an empty body is legal", func(t *testing.T) {
		s := github(text("1", "k"))
		if _, err := webhook.Verify(ready(t, s), sign(t, s, ""), at()); err != nil {
			t.Error(err)
		}
	})
	t.Run("[webhooks/V53] msgraph: no item, no proof", func(t *testing.T) {
		v := named(t, "msgraph-clientstate")
		for _, body := range []string{"", "{}", `{"value":[]}`, `{"value":{}}`, `{"value":[{}]}`, `{"value":[{"clientState":"graph-secret"}]}x`,
			`{"value":[{"clientState":"graph-secret","clientState":"graph-secret"}]}`} {
			req := v.request()
			req.Body = []byte(body)
			wantReason(t, v.ready(t), req, v.now(), webhook.ReasonWrongToken)
		}
	})
	t.Run("[webhooks/V21] a media type with parameters is one", func(t *testing.T) {
		v := named(t, "twilio-docs")
		req := v.request()
		req.Header.Set("Content-Type", "Application/X-WWW-Form-urlencoded ; charset=utf-8")
		if _, err := webhook.Verify(v.ready(t), req, v.now()); err != nil {
			t.Error(err)
		}
	})
}
