package webhook_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/idempo/idempo/webhook"
)

func greet(t *testing.T, s webhook.Source, method, query string) *webhook.Reply {
	t.Helper()
	a, err := webhook.Accept(ready(t, s), webhook.Request{Method: method, Query: query, Header: http.Header{}}, at(), 1<<20)
	if err != nil {
		return nil
	}
	return a.Reply
}

func TestUnsignedHandshakes(t *testing.T) {
	t.Parallel()
	token := text("v", "tok en")
	meta := webhook.Source{Name: "m", Provider: "meta", Secrets: []webhook.Secret{text("1", "k")}, VerifyToken: &token}
	t.Run("[webhooks/HS1] meta: the challenge as it is, or 403 and nothing", func(t *testing.T) {
		good := []string{"hub.mode", "subscribe", "hub.verify_token", "tok en", "hub.challenge", "<a&b>"}
		if r := greet(t, meta, http.MethodGet, query(good...)); r == nil || r.Status != http.StatusOK || string(r.Body) != "<a&b>" || r.ContentType != "text/plain" {
			t.Errorf("%+v", r)
		}
		for name, q := range map[string]string{
			"mode":      query("hub.mode", "unsubscribe", "hub.verify_token", "tok en", "hub.challenge", "c"),
			"token":     query("hub.mode", "subscribe", "hub.verify_token", "token", "hub.challenge", "c"),
			"missing":   query("hub.mode", "subscribe", "hub.challenge", "c"),
			"challenge": query("hub.mode", "subscribe", "hub.verify_token", "tok en"),
			"repeated":  query(append(good, "hub.verify_token", "tok en")...),
			"broken":    query(good...) + "&%zz",
			"none":      "",
		} {
			if r := greet(t, meta, http.MethodGet, q); r == nil || r.Status != http.StatusForbidden || len(r.Body) > 0 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		open := meta
		open.VerifyToken = nil
		if r := greet(t, open, http.MethodGet, query("hub.mode", "subscribe", "hub.verify_token", "", "hub.challenge", "c")); r.Status != http.StatusForbidden {
			t.Errorf("no token is configured: %+v", r)
		}
	})
	x := webhook.Source{Name: "x", Provider: "x", Secrets: []webhook.Secret{text("1", "k")}}
	t.Run("[webhooks/HS2] x: HMAC of the token as JSON", func(t *testing.T) {
		r := greet(t, x, http.MethodGet, "crc_token=abc")
		if r == nil || r.ContentType != "application/json" || !strings.HasPrefix(string(r.Body), `{"response_token":"sha256=`) {
			t.Errorf("%+v", r)
		}
		for _, q := range []string{"", "crc_token=", "crc_token=a&crc_token=b", "crc_token=" + strings.Repeat("a", 5000)} {
			if r := greet(t, x, http.MethodGet, q); r.Status != http.StatusBadRequest || len(r.Body) > 0 {
				t.Errorf("%.20s: %+v", q, r)
			}
		}
	})
	graph := webhook.Source{Name: "g", Provider: "msgraph", Secrets: []webhook.Secret{text("1", "k")}}
	t.Run("[webhooks/HS3] msgraph: the decoded token as plain text, over 4 KiB 400", func(t *testing.T) {
		token := "Validation: <b>x</b> +/="
		if r := greet(t, graph, http.MethodPost, "validationToken="+url.QueryEscape(token)); r == nil || string(r.Body) != token || r.ContentType != "text/plain" {
			t.Errorf("%+v", r)
		}
		for _, q := range []string{"validationToken=", "validationToken=a&validationToken=b", "validationToken=" + strings.Repeat("a", 4097)} {
			if r := greet(t, graph, http.MethodPost, q); r == nil || r.Status != http.StatusBadRequest || len(r.Body) > 0 {
				t.Errorf("%.20s: %+v", q, r)
			}
		}
	})
	t.Run("[webhooks/HS9] the form of a handshake, sent to who has none, is echoed by nobody", func(t *testing.T) {
		for _, p := range webhook.Providers() {
			s := ours(p.Name).verify
			switch p.Name {
			case "paypal", "sendgrid", "aws-sns":
				continue // need keys of their own
			}
			for _, c := range []struct{ method, query, owner string }{
				{http.MethodGet, query("hub.mode", "subscribe", "hub.verify_token", "", "hub.challenge", "echo-me"), "meta whatsapp"},
				{http.MethodGet, "crc_token=echo-me", "x"},
				{http.MethodPost, "validationToken=echo-me", "msgraph"},
			} {
				r := greet(t, s, c.method, c.query)
				if r != nil && !strings.Contains(c.owner, p.Name) && (r.Status != http.StatusMethodNotAllowed && r.Status != http.StatusForbidden && r.Status != http.StatusBadRequest || len(r.Body) > 0) {
					t.Errorf("%s %s: %+v", p.Name, c.query, r)
				}
			}
		}
	})
}

func TestSignedHandshakes(t *testing.T) {
	t.Parallel()
	take := func(provider, body string, headers ...string) (webhook.Accepted, error) {
		t.Helper()
		a := ours(provider)
		a.body = body
		req := a.signed(t, at())
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return webhook.Accept(ready(t, a.verify), req, at(), 1<<20)
	}
	reply := func(want, provider, body string, headers ...string) {
		t.Helper()
		for range 2 { // each time
			a, err := take(provider, body, headers...)
			if err != nil || a.Reply == nil || string(a.Reply.Body) != want {
				t.Errorf("%s: %+v %v", provider, a.Reply, err)
			}
		}
	}
	t.Run("[webhooks/HS4] [webhooks/HS9] slack and twitch: the challenge, each time", func(t *testing.T) {
		reply("ch", "slack", `{"type":"url_verification","challenge":"ch"}`)
		reply("ch", "twitch", `{"challenge":"ch"}`, "Twitch-Eventsub-Message-Type", "webhook_callback_verification")
		if a, err := take("slack", `{"type":"event_callback","challenge":"ch"}`); err != nil || a.Reply != nil {
			t.Errorf("%+v %v", a, err)
		}
	})
	t.Run("[webhooks/HS5] zoom: plain and encrypted token", func(t *testing.T) {
		a, err := take("zoom", `{"event":"endpoint.url_validation","event_ts":1,"payload":{"plainToken":"p\"q"}}`)
		if err != nil || a.Reply == nil || !strings.HasPrefix(string(a.Reply.Body), `{"encryptedToken":"`) || !strings.Contains(string(a.Reply.Body), `"plainToken":"p\"q"`) {
			t.Errorf("%+v %v", a.Reply, err)
		}
	})
	t.Run("[webhooks/HS6] discord: PING of interactions and of events", func(t *testing.T) {
		reply(`{"type":1}`, "discord", `{"id":"1","type":1}`)
		a, err := take("discord", `{"version":1,"type":0}`)
		if err != nil || a.Reply == nil || a.Reply.Status != http.StatusNoContent {
			t.Errorf("%+v %v", a.Reply, err)
		}
		for _, body := range []string{`{"version":1,"type":1,"event":{"type":"x"}}`, `{"id":"1","type":2}`} {
			if a, err := take("discord", body); err != nil || a.Reply != nil {
				t.Errorf("%s: %+v %v", body, a.Reply, err)
			}
		}
	})
	t.Run("[webhooks/HS4] nothing is answered before the code is right", func(t *testing.T) {
		for _, provider := range []string{"slack", "twitch", "zoom", "discord"} {
			a := ours(provider)
			a.body = `{"type":"url_verification","challenge":"echo-me","event":"endpoint.url_validation","payload":{"plainToken":"echo-me"}}`
			req := a.signed(t, at())
			req.Header.Set("Twitch-Eventsub-Message-Type", "webhook_callback_verification")
			req.Body = append(req.Body, ' ')
			if got, err := webhook.Accept(ready(t, a.verify), req, at(), 1<<20); err == nil {
				t.Errorf("%s: %+v", provider, got)
			}
		}
	})
	t.Run("[webhooks/HS7] sns: a pinned URL to confirm, and only for an accepted topic", func(t *testing.T) {
		v := named(t, "sns-confirm")
		s, _ := v.source()
		a, err := webhook.Accept(ready(t, s), v.request(), v.now(), 1<<20)
		if err != nil || a.Reply == nil || a.Confirm != "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&Token=tok" {
			t.Fatalf("%+v %v", a, err)
		}
		s.Topics = []string{"arn:aws:sns:us-east-1:123456789012:other"}
		wantReason(t, ready(t, s), v.request(), v.now(), webhook.ReasonMismatch)
	})
}
