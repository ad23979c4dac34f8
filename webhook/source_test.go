package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// refused makes a verifier that must not start, and gives what it says.
func refused(t *testing.T, s webhook.Source, own ...webhook.Profile) string {
	t.Helper()
	v, err := webhook.NewVerifier(s, own...)
	if err == nil {
		t.Errorf("%+v starts", v.Source())
		return ""
	}
	if _, ok := errors.AsType[*webhook.Fault](err); !ok {
		t.Errorf("no Fault: %v", err)
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "webhooks.sources."+s.Name+".") || !strings.Contains(line, "; ") {
			t.Errorf("no place or no way out: %s", line)
		}
	}
	return err.Error()
}

func wants(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in %q", part, got)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	t.Run("every fault at once", func(t *testing.T) {
		got := refused(t, webhook.Source{Name: "A b", Provider: "square", MissingID: "guess", MinVersion: "v2", Tolerance: -1, MaxItems: -1,
			Secrets: []webhook.Secret{text("", "k"), text("2", " ")}})
		wants(t, got, ".name:", ".public_url:", ".missing_id:", ".min_version:", ".tolerance:", ".max_items:", ".secrets[0]", ".secrets[1] 2:")
	})
	t.Run("unknown provider: the nearest known one and the command", func(t *testing.T) {
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "githb"}), "did you mean github", "idempo webhooks providers")
		if got := refused(t, webhook.Source{Name: "a", Provider: "something-else-entirely"}); strings.Contains(got, "did you mean") {
			t.Error(got)
		}
	})
	t.Run("[webhooks/V14] [webhooks/V64] what is needed, and an example line", func(t *testing.T) {
		for _, provider := range []string{"twilio", "square", "hubspot"} {
			wants(t, refused(t, webhook.Source{Name: "a", Provider: provider, Secrets: []webhook.Secret{text("1", "k")}}),
				".public_url: is missing, and "+provider+" signs the URL", "write public_url: https://")
		}
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "aws-sns"}), ".topics: is missing", `write topics: ["arn:aws:sns:`)
		for _, u := range []string{"hooks.example.com", "https://a/?x=1", "https://a/#f", "ftp://a/", "https://a/?", "://"} {
			wants(t, refused(t, webhook.Source{Name: "a", Provider: "github", PublicURL: u, Secrets: []webhook.Secret{text("1", "k")}}), ".public_url:")
		}
	})
	t.Run("[webhooks/V11] a secret that is empty, blank or decodes to nothing does not start", func(t *testing.T) {
		for _, value := range []string{"", " ", "\n", "\t\r\n"} {
			wants(t, refused(t, github(text("1", value))), "is empty")
		}
		for _, value := range []string{"whsec_", "whsec_=", "whpk_", "whpk_AAAA", "whsec_***"} {
			wants(t, refused(t, webhook.Source{Name: "a", Provider: "standard-webhooks", Secrets: []webhook.Secret{text("1", value)}}), "does not decode", "whsec_ and base64")
		}
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "github"}), ".secrets: is empty")
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "adyen", Secrets: []webhook.Secret{text("1", "xyz")}}), "hex digits")
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "discord", Secrets: []webhook.Secret{text("1", "abcd")}}), "64 hex digits")
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "sendgrid", Secrets: []webhook.Secret{text("1", "AAAA")}}), "P-256 public key")
		for _, value := range []string{"with space", strings.Repeat("a", 257), "ä"} {
			wants(t, refused(t, webhook.Source{Name: "a", Provider: "telegram", Secrets: []webhook.Secret{text("1", value)}}), "1 to 256 of A-Z")
		}
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "aws-sns", Topics: []string{"t"}, Secrets: []webhook.Secret{text("1", "k")}}), "has none")
	})
	t.Run("[webhooks/V12] what looks like a signature entry is no secret", func(t *testing.T) {
		wants(t, refused(t, webhook.Source{Name: "a", Provider: "standard-webhooks", Secrets: []webhook.Secret{text("1", "v1,whsec_"+strings.Repeat("A", 32))}}),
			"looks like a signature entry: drop the text before whsec_")
	})
	t.Run("[webhooks/V12] whsec_ is dropped for Standard Webhooks only, and a short key is a warning", func(t *testing.T) {
		v := ready(t, webhook.Source{Name: "a", Provider: "standard-webhooks", Secrets: []webhook.Secret{text("1", "whsec_AAAA")}})
		if w := v.Warnings(); len(w) != 1 || !strings.Contains(w[0], "holds 3 bytes, Standard Webhooks wants 24 to 64") {
			t.Error(w)
		}
		stripe := webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("1", "whsec_AAAA")}}
		bare := stripe
		bare.Secrets = []webhook.Secret{text("1", "AAAA")}
		wantReason(t, ready(t, bare), sign(t, stripe, "{}"), at(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/D17] missing_id: content is said at start", func(t *testing.T) {
		s := github(text("1", "k"))
		s.MissingID = "content"
		wants(t, strings.Join(ready(t, s).Warnings(), "\n"), "events with the same bytes and no id count as one")
	})
}

func TestOwnProfiles(t *testing.T) {
	t.Parallel()
	crm := webhook.Profile{Name: "crm", Header: "X-Crm-Signature", Prefix: "sha256=", Content: "{h:X-Crm-Time}.{body}",
		Time: webhook.Time{Header: "X-Crm-Time", Tolerance: 5 * time.Minute, Class: webhook.TimePerAttempt},
		Shape: webhook.Shape{IDs: []webhook.ID{{Parts: []webhook.Part{{Header: "X-Crm-Id"}}}},
			Tracks: []webhook.Track{{Lane: []webhook.Part{{JSON: "/object/id"}}, Version: webhook.Part{JSON: "/at"}}}, Mask: []string{"/attempt"}},
		Items: []webhook.Items{{At: "/events"}}}
	s := webhook.Source{Name: "c", Provider: "crm", Secrets: []webhook.Secret{text("1", "k")}}
	t.Run("[webhooks/V19] a scheme of one's own verifies and refuses", func(t *testing.T) {
		v, req := ready(t, s, crm), sign(t, s, `{"events":[{"object":{"id":"o1"},"at":3}]}`, crm)
		a, err := webhook.Accept(v, req, at(), 1<<20)
		if err != nil || len(a.Delivery.Events) != 1 || a.Delivery.Events[0].Lane != "o1" || a.Delivery.Events[0].Version != "3" {
			t.Fatalf("%+v %v", a.Delivery, err)
		}
		req.Body = append(req.Body, ' ')
		wantReason(t, v, req, at(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/V19] hashes, encodings and lists", func(t *testing.T) {
		for _, alg := range []webhook.Alg{webhook.AlgSHA1, webhook.AlgSHA256, webhook.AlgSHA512} {
			for _, e := range []webhook.Encoding{webhook.EncodingHex, webhook.EncodingBase64, webhook.EncodingBase64URL} {
				for _, list := range []webhook.List{{}, {Separator: ",", Tag: "v1"}} {
					p := crm
					p.Alg, p.Encoding, p.List = alg, e, list
					if list.Tag != "" {
						p.Family = webhook.FamilyList
					}
					if _, err := webhook.Verify(ready(t, s, p), sign(t, s, "{}", p), at()); err != nil {
						t.Errorf("%s %s %v: %v", alg, e, list, err)
					}
				}
			}
		}
	})
	bad := func(want string, change func(p *webhook.Profile)) {
		t.Helper()
		p := crm
		change(&p)
		wants(t, refused(t, s, p), want)
	}
	t.Run("[webhooks/V19] nothing falls back to no check", func(t *testing.T) {
		bad("{bdoy} is unknown; the placeholders are {body} {url} {method} {ts} {h:Name}", func(p *webhook.Profile) { p.Content = "{bdoy}" })
		bad("a { has no }", func(p *webhook.Profile) { p.Content = "{body" })
		bad("{h:} is unknown", func(p *webhook.Profile) { p.Content = "{h:}{body}" })
		bad("has no {body}", func(p *webhook.Profile) { p.Content = "{h:X-Crm-Time}" })
		bad("write one of: sha1, sha256, sha512", func(p *webhook.Profile) { p.Alg = "none" })
		bad("write one of: hex, base64, base64url", func(p *webhook.Profile) { p.Encoding = "plain" })
		bad("write one of: s, ms, rfc3339", func(p *webhook.Profile) { p.Time.Unit = "us" })
		bad("write one of: text, base64, hex", func(p *webhook.Profile) { p.SecretForm = webhook.FormNone })
		bad("write one of: hmac, list", func(p *webhook.Profile) { p.Family = "none" })
		bad("is no name of a header", func(p *webhook.Profile) { p.Header = "X Crm" })
		bad("needs separator and tag", func(p *webhook.Profile) { p.Family = webhook.FamilyList })
		bad("is not signed: content does not hold it", func(p *webhook.Profile) { p.Content = "{body}" })
		bad("no time is configured", func(p *webhook.Profile) { p.Time = webhook.Time{}; p.Content = "{ts}{body}" })
		bad("is no JSON pointer", func(p *webhook.Profile) { p.Mask = []string{"attempt"} })
		bad("has two places", func(p *webhook.Profile) { p.Time.JSON = "/at" })
		bad("is missing, and crm signs the URL", func(p *webhook.Profile) { p.Content = "{url}{h:X-Crm-Time}{body}" })
		p := crm
		p.Content, p.BodyUnsigned = "{h:X-Crm-Time}", true
		ready(t, s, p)
	})
	t.Run("[webhooks/V10] a header before a separator must not hold it", func(t *testing.T) {
		p := crm
		p.Content, p.Time = "{h:X-Crm-Id}.{body}", webhook.Time{}
		req := sign(t, s, "{}", p)
		req.Header.Set("X-Crm-Id", "a.b")
		wantReason(t, ready(t, s, p), req, at(), webhook.ReasonAmbiguousID)
	})
	t.Run("a source may replace what its provider says", func(t *testing.T) {
		old := github(text("1", "k"))
		old.Profile = webhook.Profile{Header: "X-Hub-Signature", Prefix: "sha1=", Alg: webhook.AlgSHA1}
		req := sign(t, old, "{}")
		if !strings.HasPrefix(req.Header.Get("X-Hub-Signature"), "sha1=") {
			t.Fatal(req.Header)
		}
		if _, err := webhook.Verify(ready(t, old), req, at()); err != nil {
			t.Error(err)
		}
		t.Log("[webhooks/V41] the SHA-1 header never counts by itself")
		wantReason(t, ready(t, github(text("1", "k"))), req, at(), webhook.ReasonMissingHeader)
	})
}

func TestProviders(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range webhook.Providers() {
		if seen[p.Name] {
			t.Errorf("%s is there twice", p.Name)
		}
		seen[p.Name] = true
		if _, err := time.Parse(time.DateOnly, p.Checked); err != nil {
			t.Errorf("%s: when was it last checked? %v", p.Name, err)
		}
		if !regexp.MustCompile(`^V[4-7][0-9]$`).MatchString(p.Row) {
			t.Errorf("%s: row %q", p.Name, p.Row)
		}
		t.Run("[webhooks/D14] retention of "+p.Name, func(t *testing.T) {
			const day = 24 * time.Hour
			timed := p.Time.Tolerance > 0
			switch {
			case p.Retention == 8*day && (p.Horizon() == 0 || p.Horizon() > 7*day || !timed):
				t.Errorf("8 days need a horizon of at most 7 days and a signed time: %v", p.Horizon())
			case p.Retention < p.Horizon():
				t.Errorf("retention %v is below the horizon %v", p.Retention, p.Horizon())
			case p.Retention != 8*day && p.Retention < 35*day:
				t.Errorf("retention %v", p.Retention)
			}
		})
	}
	for name := range strings.FieldsSeq("standard-webhooks svix openai clerk resend replicate github gitlab bitbucket bitbucket-server gitea forgejo gogs stripe slack" +
		" discord telegram line twitch meta whatsapp x msgraph shopify paypal square adyen twilio sendgrid mailgun paddle linear zoom aws-sns hubspot pagerduty razorpay" +
		" circleci sanity workos hook0") {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
		delete(seen, name)
	}
	if len(seen) > 0 {
		t.Errorf("no row of the page has %v", seen)
	}
}

func TestSecrets(t *testing.T) {
	t.Setenv("IDEMPO_TEST_HOOK", "from the environment")
	file := filepath.Join(t.TempDir(), "secret")
	write := func(value string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("from the file\n")
	s := github(webhook.FromEnv("new", "IDEMPO_TEST_HOOK"), webhook.FromFile("old", file))
	v := ready(t, s)
	accepts := func(value, id string) {
		t.Helper()
		verdict, err := webhook.Verify(v, sign(t, github(text("x", value)), "{}"), at())
		if err != nil || verdict.SecretID != id {
			t.Errorf("%s: %+v %v", id, verdict, err)
		}
	}
	t.Run("[webhooks/RP16] from the environment and from a file, whose line end does not count", func(t *testing.T) {
		accepts("from the environment", "new")
		accepts("from the file", "old")
	})
	t.Run("[webhooks/RP16] [webhooks/RP17] a changed file counts after a refresh, a removed secret no longer", func(t *testing.T) {
		write("another text\r\n")
		if err := v.Refresh(); err != nil {
			t.Fatal(err)
		}
		accepts("another text", "old")
		wantReason(t, v, sign(t, github(text("x", "from the file")), "{}"), at(), webhook.ReasonMismatch)
	})
	t.Run("[webhooks/RP17] a refresh that fails keeps what was read before", func(t *testing.T) {
		for _, value := range []string{"", " \n", strings.Repeat("x", 70<<10)} {
			write(value)
			err := v.Refresh()
			if err == nil || !strings.Contains(err.Error(), "secrets[1] old") || !strings.Contains(err.Error(), file) {
				t.Errorf("%v", err)
			}
			accepts("another text", "old")
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := v.Refresh(); err == nil {
			t.Error("a missing file is no error")
		}
		accepts("another text", "old")
	})
	t.Run("[webhooks/RP17] until ends a secret", func(t *testing.T) {
		v := ready(t, github(text("old", "k").Until(at()), text("new", "k2")))
		req := sign(t, github(text("x", "k")), "{}")
		if _, err := webhook.Verify(v, req, at().Add(-1)); err != nil {
			t.Error(err)
		}
		wantReason(t, v, req, at(), webhook.ReasonMismatch)
		wantReason(t, ready(t, github(text("old", "k").Until(at()))), req, at(), webhook.ReasonNoSecret)
	})
	t.Run("an unset variable is named", func(t *testing.T) {
		wants(t, refused(t, github(webhook.FromEnv("a", "IDEMPO_TEST_UNSET"))), "environment variable IDEMPO_TEST_UNSET is not set")
	})
	t.Run("[webhooks/V18] a secret prints as its id and origin", func(t *testing.T) {
		hidden := text("id-1", "never to be seen")
		asJSON, err := json.Marshal(map[string]any{"s": hidden})
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", hidden, "all", github(hidden))
		got := fmt.Sprintf("%v %+v %#v %s %q %x %d %v %+v", hidden, hidden, hidden, hidden, hidden, hidden, hidden, github(hidden), github(hidden)) + string(asJSON) + log.String()
		if strings.Contains(got, "never to be seen") || strings.Contains(got, fmt.Sprintf("%x", "never to be seen")) {
			t.Error(got)
		}
		wants(t, got, "id-1 (given as text)")
	})
}
