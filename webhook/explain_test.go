package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// explained is what the doctor says, checked for what it must never say.
func explained(t *testing.T, s webhook.Source, req webhook.Request, now time.Time, others ...*webhook.Verifier) string {
	t.Helper()
	e := webhook.Explain(ready(t, s), req, now, others...)
	got := e.String()
	_, err := webhook.Accept(ready(t, s), req, now, 1<<20)
	if (err == nil) != e.Accepted && !strings.Contains(got, "handshake: fail") {
		t.Errorf("the doctor and the verifier disagree: %v\n%s", err, got)
	}
	for _, values := range req.Header {
		for _, v := range values {
			if len(v) > 20 && strings.Contains(got, v[7:]) {
				t.Errorf("[webhooks/RP13] a received code is shown: %s", got)
			}
		}
	}
	return got
}

func TestExplainAccepted(t *testing.T) {
	t.Parallel()
	stripe := webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("live", "a secret nobody may see")}}
	got := explained(t, stripe, sign(t, stripe, `{"id":"evt_1","created":7,"data":{"object":{"id":"sub"}}}`), at().Add(2*time.Second))
	t.Run("[webhooks/RP10] a line for each step, then the verdict", func(t *testing.T) {
		const want = `source: ok st, provider stripe, family list
headers: ok all that the profile reads are there, once each
secret: ok live (given as text)
time: ok signed 2027-01-15T08:00:00Z, 2 s ago, window 5m0s
code: ok list sha256, secret live
handshake: skip an ordinary delivery
id: ok evt_1 (signed)
duplicate: skip needs the store
order: ok lane "sub" version "7"
answer: ok 200
verdict: accepted
`
		if got != want {
			t.Errorf("\n%s", got)
		}
	})
	t.Run("[webhooks/RP10] every vector is explained, and ends as it is stated", func(t *testing.T) {
		for _, v := range vectors(t) {
			s, own := v.source()
			r, err := webhook.NewVerifier(s, own...)
			if err != nil || v.Valid == nil {
				continue
			}
			e := webhook.Explain(r, v.request(), v.now())
			if e.Accepted != *v.Valid || len(e.Steps) != 10 {
				t.Errorf("%s: %s", v.ID, e)
			}
			if len(v.Secret) > 8 && strings.Contains(e.String(), v.Secret) {
				t.Errorf("[webhooks/RP13] %s: the secret is shown", v.ID)
			}
		}
	})
}

func TestExplainRefused(t *testing.T) {
	t.Parallel()
	const hidden = "a secret nobody may see"
	s := github(text("1", hidden))
	stripe := webhook.Source{Name: "live", Provider: "stripe", Secrets: []webhook.Secret{text("1", "whsec_live_text_of_no_use")}}
	says := func(name, got, reason string, parts ...string) {
		t.Helper()
		t.Run("[webhooks/RP11] "+name, func(t *testing.T) {
			wants(t, got, append(parts, "verdict: refused ("+reason+")")...)
			for _, never := range []string{hidden, "whsec_live_text_of_no_use", "test_text_of_no_use"} {
				if strings.Contains(got, never) {
					t.Errorf("[webhooks/RP13] a secret is shown: %s", got)
				}
			}
		})
	}
	body := func(change func([]byte) []byte) string {
		t.Helper()
		req := sign(t, s, "{\"b\": 1, \"a\": \"h\u00e9/\"}")
		req.Body = change(req.Body)
		return explained(t, s, req, at())
	}
	says("tampered body", body(func(b []byte) []byte { return bytes.Replace(b, []byte("1"), []byte("2"), 1) }), "mismatch",
		"code: fail", "nothing that was tried fits: the body is another one than was signed, or the secret is")
	says("newline added", body(func(b []byte) []byte { return append(b, '\n') }), "mismatch", "a line end was added at the end of the body")
	says("re-encoded by Go", body(func(b []byte) []byte { return []byte(`{"a":"hé/","b":1}`) }), "mismatch", "nothing that was tried fits")
	t.Run("[webhooks/RP11] the ways in which proxies write the same JSON", func(t *testing.T) {
		const sent = `{"a":"h\u00e9","b":[1,2],"url":"x/y"}`
		req := sign(t, s, sent)
		for _, received := range []string{`{"a":"hé","b":[1,2],"url":"x/y"}`, `{"a": "h\u00e9", "b": [1, 2], "url": "x/y"}`, `{"a":"h\u00e9","b":[1,2],"url":"x\/y"}`,
			"{\n  \"a\": \"hé\",\n  \"b\": [\n    1,\n    2\n  ],\n  \"url\": \"x/y\"\n}", `{"b":[1,2],"url":"x/y","a":"hé"}`} {
			other := req
			other.Body = []byte(received)
			wants(t, explained(t, s, other, at()), "the JSON was decoded and encoded again on the way")
		}
	})
	req := sign(t, s, "a\r\nb")
	req.Body = []byte("a\nb")
	says("CR LF changed", explained(t, s, req, at()), "mismatch", "CR LF in the body became LF")

	test := webhook.Source{Name: "test", Provider: "stripe", Secrets: []webhook.Secret{text("1", "test_text_of_no_use")}}
	says("test and live secret swapped", explained(t, stripe, sign(t, test, "{}"), at(), ready(t, test)), "mismatch",
		"secret 1 of source test fits: the secrets are swapped (test and live?)")
	says("wrong secret", explained(t, stripe, sign(t, test, "{}"), at()), "mismatch", "nothing that was tried fits", "compare the secret at the provider first")
	ended := github(text("old", hidden).Until(at().Add(-time.Hour)), text("new", "k"))
	says("secret that has ended", explained(t, ended, sign(t, s, "{}"), at()), "mismatch", "secret old fits, and its until has passed", "ended 2027-01-15T07:00:00Z")
	says("no active secret", explained(t, github(text("old", hidden).Until(at())), sign(t, s, "{}"), at()), "no_secret", "secret: fail")

	old := explained(t, stripe, sign(t, stripe, "{}"), at().Add(301*time.Second))
	says("stale time", old, "too_old", "time: fail signed 5m1s ago, the window is 5m0s", "code: ok", "only the time is off", "off by 301 s")
	req = sign(t, test, "{}")
	says("stale time and wrong secret", explained(t, stripe, req, at().Add(301*time.Second)), "too_old", "it would not fit either")

	req = sign(t, s, "{}")
	req.Header.Del("X-Hub-Signature-256")
	says("missing header", explained(t, s, req, at()), "missing_header", "headers: fail X-Hub-Signature-256", "code: skip not reached")
	req = sign(t, s, "{}")
	req.Header.Set("X-Forwarded-Signature", req.Header.Get("X-Hub-Signature-256"))
	req.Header.Del("X-Hub-Signature-256")
	says("header renamed", explained(t, s, req, at()), "missing_header", "X-Forwarded-Signature holds what belongs there")

	req = sign(t, s, "{}")
	req.Body = []byte("{ }!")
	req.Header.Set("Content-Length", "2")
	says("cut or changed", explained(t, s, req, at()), "mismatch", "Content-Length says 2 bytes, the body has 4")
}

func TestExplainForms(t *testing.T) {
	t.Parallel()
	near := func(name, want string, s webhook.Source, req webhook.Request) {
		t.Helper()
		t.Run("[webhooks/RP11] "+name, func(t *testing.T) {
			wants(t, explained(t, s, req, at()), want)
		})
	}
	raw := "bytes that were decoded!"
	near("secret decoded or not", "secret 1 fits decoded from base64", github(text("1", base64.StdEncoding.EncodeToString([]byte(raw)))), sign(t, github(text("1", raw)), "{}"))
	near("secret with a line end", "secret 1 fits with a line end behind it", github(text("1", raw)), sign(t, github(text("1", raw+"\n")), "{}"))
	near("secret in quotes", "secret 1 fits without the quotes around it", github(text("1", `"`+raw+`"`)), sign(t, github(text("1", raw)), "{}"))

	req := sign(t, github(text("1", "k")), "{}")
	good := strings.TrimPrefix(req.Header.Get("X-Hub-Signature-256"), "sha256=")
	req.Header.Set("X-Hub-Signature-256", good)
	near("prefix", `the code fits as sha256 hex after the prefix "": the profile says sha256 hex after "sha256="`, github(text("1", "k")), req)
	other := github(text("1", "k"))
	other.Profile = webhook.Profile{Encoding: webhook.EncodingBase64, Alg: webhook.AlgSHA512}
	near("encoding and hash", `the code fits as sha512 base64`, github(text("1", "k")), sign(t, other, "{}"))

	square := ours("square")
	at := func(u string) webhook.Request {
		a := square
		a.sign.PublicURL = u
		return a.signed(t, at())
	}
	near("URL slash", "with a slash at the end of public_url", square.verify, at("https://hooks.example.com/in/"))
	near("URL scheme", "with http as the scheme of public_url", square.verify, at("http://hooks.example.com/in"))
	near("URL port", "with port 443 in public_url", square.verify, at("https://hooks.example.com:443/in"))
	req = square.signed(t, time.Unix(1_800_000_000, 0))
	bare, err := webhook.Sign(square.sign, webhook.SignParams{Body: req.Body, At: time.Unix(1_800_000_000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	added := bare.Request()
	added.Query = "from=proxy"
	near("URL query", "without the query: something on the way added it", square.verify, added)

	twilio := ours("twilio")
	twilio.form, twilio.body = false, `{"a":1}`
	req = twilio.signed(t, time.Unix(1_800_000_000, 0))
	req.Body = []byte(`{"a":2}`)
	near("tampered body where a digest shows it", "bodySHA256 in the query is not that of the body: the body was changed on the way", twilio.verify, req)
}

func TestExplainHandshake(t *testing.T) {
	t.Parallel()
	token := text("v", "tok")
	meta := webhook.Source{Name: "m", Provider: "meta", Secrets: []webhook.Secret{text("1", "k")}, VerifyToken: &token}
	t.Run("[webhooks/RP10] handshakes, methods and parked events are steps too", func(t *testing.T) {
		get := webhook.Request{Method: http.MethodGet, Query: query("hub.mode", "subscribe", "hub.verify_token", "tok", "hub.challenge", "c"), Header: http.Header{}}
		wants(t, explained(t, meta, get, at()), "handshake: ok answered", "answer: ok 200", "verdict: accepted")
		get.Query = ""
		wants(t, webhook.Explain(ready(t, meta), get, at()).String(), "handshake: fail", "answer: ok 403", "verdict: refused (wrong_token)")
		wants(t, webhook.Explain(ready(t, github(text("1", "k"))), get, at()).String(), "GET is not taken", "verdict: refused (method)")
		slack := webhook.Source{Name: "s", Provider: "slack", Secrets: []webhook.Secret{text("1", "k")}}
		wants(t, explained(t, slack, sign(t, slack, `{"type":"url_verification","challenge":"c"}`), at()), "handshake: ok answered", "id: skip no event")
		stripe := webhook.Source{Name: "s", Provider: "stripe", Secrets: []webhook.Secret{text("1", "k")}}
		wants(t, explained(t, stripe, sign(t, stripe, `{}`), at()), "id: fail parked no-id", "verdict: accepted")
	})
	t.Run("a batch shows its first events", func(t *testing.T) {
		var items []string
		for i := range 9 {
			items = append(items, fmt.Sprintf(`{"webhookEventId":"E%d"}`, i))
		}
		line := webhook.Source{Name: "l", Provider: "line", Secrets: []webhook.Secret{text("1", "k")}}
		wants(t, explained(t, line, sign(t, line, `{"events":[`+strings.Join(items, ",")+`]}`), at()), "E4 (signed) and 4 more")
	})
	t.Run("an explanation is data", func(t *testing.T) {
		e := webhook.Explain(ready(t, meta), webhook.Request{Method: http.MethodPost, Header: http.Header{}}, at())
		if _, err := json.Marshal(e); err != nil || e.Reason != webhook.ReasonMissingHeader {
			t.Errorf("%+v %v", e, err)
		}
	})
}
