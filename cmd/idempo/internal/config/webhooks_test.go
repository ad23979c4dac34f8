package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

func hooksFile(t *testing.T, text string, env map[string]string) (*Settings, Problems, error) {
	t.Helper()
	return Load(Source{File: filepath.Join(t.TempDir(), "idempo.yaml"), Content: []byte(text), DataDir: "/d", LookupEnv: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}})
}

func TestWebhookSources(t *testing.T) {
	t.Parallel()
	const text = `version: 1
webhooks:
  path: /in
  workers: 3
  sources:
    gh:
      provider: github
      tenant: acme
      secrets: [{id: "2026a", value: {env: GH_HOOK_SECRET}}, {id: old, value: {env: OLD}, until: "2026-12-31T00:00:00Z"}]
      types: [push]
      order: {mode: none}
      retry: {attempts: 3, first: 2s}
      max_body: 2MiB
      forward: {url: "http://127.0.0.1:9000/in", target_dedups: true, allow: ["127.0.0.1/32"], ports: [9000], signing: [{id: s1, value: {env: OUT_SECRET}}]}
    c:
      provider: crm
      secrets: [{id: "1", value: {env: OLD}}]
      forward: {url: "https://a.example/in", target_dedups: false}
  providers:
    crm:
      {header: X-Crm-Signature, prefix: "sha256=", alg: sha256, encoding: hex, secret: text, content: "{h:X-Crm-Time}.{body}",
       list: {separator: ",", tag: v1}, time: {header: X-Crm-Time, unit: s, tolerance: 5m}, id: [{header: X-Crm-Id}], items: /events,
       lane: {json: /object/id}, version: {json: /at}, type: {json: /type}, mask: [/attempt], success: {status: 202, body: ok, content_type: text/plain}}
`
	env := map[string]string{"GH_HOOK_SECRET": "k1", "OLD": "k2", "OUT_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}
	c, _, err := hooksFile(t, text, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("[webhooks/RP16] [webhooks/V19] the file of the page is understood", func(t *testing.T) {
		w := c.Webhooks
		if w.Path != "/in" || w.Config.Workers != 3 || len(w.Config.Sources) != 2 {
			t.Fatalf("%+v", w)
		}
		own, gh := w.Config.Sources[0], w.Config.Sources[1]
		if own.Name != "c" {
			own, gh = gh, own
		}
		if gh.Tenant != "acme" || len(gh.Secrets) != 2 || gh.Types[0] != "push" || gh.Order.Mode != "none" || gh.Retry.Attempts != 3 || gh.Retry.First != 2*time.Second ||
			gh.Retry.Max != 2*time.Hour || gh.MaxBody != 2<<20 || !*gh.Forward.TargetDedups || gh.Forward.Ports[0] != 9000 || gh.RefuseStatus != 401 {
			t.Errorf("%+v", gh)
		}
		v, err := webhook.NewVerifier(own, w.Config.Providers...)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := webhook.Sign(own, webhook.SignParams{Body: []byte(`{"events":[{"object":{"id":"o"},"at":1,"type":"t"}]}`), ID: "d", At: time.Unix(1_800_000_000, 0)}, w.Config.Providers...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := webhook.Accept(v, signed.Request(), time.Unix(1_800_000_000, 0), 1<<20)
		if err != nil || len(got.Delivery.Events) != 1 || got.Delivery.Events[0].Lane != "o" || got.Delivery.Events[0].Type != "t" || v.Profile().Success.Status != 202 {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("[webhooks/V18] printed settings show no secret", func(t *testing.T) {
		for _, s := range c.List() {
			for _, hidden := range []string{"k1", "k2", "MDEyMzQ1"} {
				if s.Value == hidden || strings.Contains(s.Value, "MDEy") {
					t.Errorf("%s: %s", s.Path, s.Value)
				}
			}
		}
	})
	t.Run("[webhooks/RP16] a secret in a file is read again from there, relative to the configuration", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "hook"), []byte("first\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(Source{File: filepath.Join(dir, "idempo.yaml"), DataDir: "/d", Content: []byte("version: 1\nwebhooks: {sources: {gh: {provider: github, secrets: " +
			"[{id: a, value: {file: hook}}], forward: {url: \"http://a.example/\", target_dedups: true}}}}\n")})
		if err != nil {
			t.Fatal(err)
		}
		v, err := webhook.NewVerifier(c.Webhooks.Config.Sources[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"first", "second"} {
			if err := os.WriteFile(filepath.Join(dir, "hook"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := v.Refresh(); err != nil {
				t.Fatal(err)
			}
			out, err := webhook.Sign(webhook.Source{Name: "x", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("x", text)}}, webhook.SignParams{Body: []byte("{}"), ID: "1"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := webhook.Verify(v, out.Request(), time.Now()); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
	t.Run("[webhooks/RP16] a literal secret is a warning with its line", func(t *testing.T) {
		_, warnings, err := hooksFile(t, "version: 1\nwebhooks:\n  sources:\n    gh:\n      provider: github\n      secrets: [{id: a, value: literal}]\n"+
			"      forward: {url: \"http://a.example/\", target_dedups: true}\n", nil)
		if err != nil || len(warnings) != 1 || warnings[0].Line != 6 || !strings.Contains(warnings[0].Message, "secret in the file itself") {
			t.Errorf("%v %v", warnings, err)
		}
	})
}

func TestWebhookMistakes(t *testing.T) {
	t.Parallel()
	bad := func(want, text string) {
		t.Helper()
		_, _, err := hooksFile(t, "version: 1\nwebhooks:\n"+text, map[string]string{"S": "k", "STD": "v1,whsec_AAAA"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	const to = `forward: {url: "http://a.example/", target_dedups: true}`
	const secret = "secrets: [{id: a, value: {env: S}}]"
	t.Run("each mistake has its line, its path and a way out", func(t *testing.T) {
		bad(`:4:19: webhooks.sources.a.provider: "githb" is no provider, did you mean github; idempo webhooks providers lists them`,
			"  sources:\n    a: {provider: githb, "+secret+", "+to+"}\n")
		bad(`:4:8: webhooks.sources.a.public_url: is missing, and square signs the URL it was given`, "  sources:\n    a: {provider: square, "+secret+", "+to+"}\n")
		bad(`:4:8: webhooks.sources.a.topics: is missing, and every account of AWS can sign a message`, "  sources:\n    a: {provider: aws-sns, "+to+"}\n")
		bad(`:5:16: webhooks.sources.a.secrets[0]: env STD looks like a signature entry: drop the text before whsec_`,
			"  sources:\n    a: {provider: svix, "+to+",\n      secrets: [{id: a, value: {env: STD}}]}\n")
		bad(`webhooks.sources.a.forward: `, "  sources:\n    a: {provider: github, "+secret+"}\n")
		bad(`webhooks.sources.a.forward.target_dedups: `, "  sources:\n    a: {provider: github, "+secret+", forward: {url: \"http://a.example/\"}}\n")
		bad(`webhooks.sources.a.forward.url: loopback address is not allowed; write allow: ["127.0.0.1/32"]`,
			"  sources:\n    a: {provider: github, "+secret+", forward: {url: \"http://127.0.0.1/\", target_dedups: true}}\n")
		bad(`:6:45: webhooks.providers.own.content: {bdy} is unknown; the placeholders are {body} {url} {method} {ts} {h:Name}`,
			"  sources:\n    a: {provider: own, "+secret+", "+to+"}\n  providers:\n    own: {header: X-Own-Signature, content: \"{bdy}\"}\n")
		bad(`webhooks.sources.A b.name: "A b" is no name of a source`, "  sources:\n    A b: {provider: github, "+secret+", "+to+"}\n")
		bad(`webhooks.sources.a.order.mode: unknown word`, "  sources:\n    a: {provider: github, "+secret+", "+to+", order: {mode: sequence}}\n")
		bad(`webhooks.sources.a.secrets[0].until: not a moment`, "  sources:\n    a: {provider: github, secrets: [{id: a, value: {env: S}, until: soon}], "+to+"}\n")
		bad(`webhooks.path: not a path`, "  path: hooks/\n")
		bad(`environment variable UNSET is not set`, "  sources:\n    a: {provider: github, secrets: [{id: a, value: {env: UNSET}}], "+to+"}\n")
		bad(`webhooks.sources.a.retention: keys and tombstones are kept 11h0m0s`, "  sources:\n    a: {provider: stripe, retention: 1h, "+secret+", "+to+"}\n")
	})
}
