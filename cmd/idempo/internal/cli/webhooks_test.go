package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// hooks is a shell with a secret and a captured request that it signed.
func hooks(t *testing.T, change func(*webhook.Request)) *shell {
	t.Helper()
	s := newShell(t)
	s.env = append(s.env, "GH_HOOK=never to be shown", "OTHER=another text")
	out, err := webhook.Sign(webhook.Source{Name: "x", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("1", "never to be shown")}},
		webhook.SignParams{Body: []byte("{\"ref\":\"r\"}\n"), ID: "d1", Type: "push", At: time.Unix(1_800_000_000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	req := out.Request()
	if change != nil {
		change(&req)
	}
	var head strings.Builder
	head.WriteString("POST /hooks/gh HTTP/1.1\r\nHost: hooks.example.com\r\n")
	if err := req.Header.Write(&head); err != nil {
		t.Fatal(err)
	}
	s.file("captured.http", head.String()+"\r\n"+string(req.Body))
	return s
}

// hooked gives the shell what the examples of webhooks name.
func (s *shell) hooked() {
	s.env = append(s.env, "GH_HOOK=k", "GH=k", "S=k", "OTHER=k2")
	for _, name := range []string{"captured.http", "r.http"} {
		s.file(name, "POST /hooks/gh HTTP/1.1\r\nHost: x\r\n\r\n{}")
	}
	s.file("vectors.json", "[]")
	s.file("st.txt", "k")
	s.file("b", "{}")
	s.file("idempo.yaml", hookFile)
}

const hookFile = `version: 1
listen: {gateway: "127.0.0.1:8080", admin: "127.0.0.1:7070"}
store: {sqlite: idempo.db}
security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}]}
webhooks:
  sources:
    gh: {provider: github, secrets: [{id: "2026a", value: {env: GH_HOOK}}], forward: {url: "http://t.example/", target_dedups: true}}
    test: {provider: github, secrets: [{id: t, value: {env: OTHER}}], forward: {url: "http://t.example/", target_dedups: true}}
    own: {provider: crm, secrets: [{id: "1", value: {env: OTHER}}], forward: {url: "http://t.example/", target_dedups: true}}
  providers:
    crm: {header: X-Crm-Signature, id: [{header: X-Crm-Id}]}
`

func TestWebhooksDoctor(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/RP10] an accepted request: a line for each step, exit 0", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, nil)
		s.want(0, `source: ok this, provider github, family hmac
headers: ok all that the profile reads are there, once each
secret: ok GH_HOOK (environment variable GH_HOOK)
time: skip none is signed
code: ok hmac sha256, secret GH_HOOK
handshake: skip an ordinary delivery
id: ok d1 (unsigned)
duplicate: skip needs the store
order: ok lane "" version ""
answer: ok 200
verdict: accepted
`, "", "webhooks", "doctor", "--provider", "github", "--secret-env", "GH_HOOK", "--request", "captured.http")
		s.file("secret", "never to be shown\n")
		if r := s.run("webhooks", "doctor", "--provider", "github", "--secret-file", "secret", "--request", "captured.http", "--json"); r.code != 0 ||
			!strings.HasPrefix(r.out, `{"schema":1,"accepted":true,"steps":[{"step":"source","state":"ok"`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[webhooks/RP11] [webhooks/RP13] a refused one: what would fit, exit 1, no secret", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, func(r *webhook.Request) { r.Body = []byte(`{"ref":"r"}`) })
		r := s.run("webhooks", "doctor", "--provider", "github", "--secret-env", "GH_HOOK", "--request", "captured.http")
		if r.code != exitNo || !strings.Contains(r.out, "near: the line end at the end of the body was lost") || !strings.HasSuffix(r.out, "verdict: refused (mismatch)\n") {
			t.Errorf("%+v", r)
		}
		if strings.Contains(r.out+r.err, "never to be shown") {
			t.Error("the secret is shown")
		}
		r = s.run("webhooks", "doctor", "--provider", "github", "--secret-env", "OTHER", "--request", "captured.http", "--json")
		if r.code != exitNo || !strings.Contains(r.out, `"reason":"mismatch"`) || !strings.Contains(r.out, `"near":["nothing that was tried fits`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[webhooks/RP10] a vector brings its own secret and clock, --now replaces the clock", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		raw := firstVector(t, "stripe-basic")
		s.file("v.json", string(raw))
		if r := s.run("webhooks", "doctor", "--request", "v.json"); r.code != 0 || !strings.HasSuffix(r.out, "verdict: accepted\n") {
			t.Errorf("%+v", r)
		}
		for _, now := range []string{"1780000301", "2026-05-28T20:31:41Z"} {
			if r := s.run("webhooks", "doctor", "--request", "v.json", "--now", now); r.code != exitNo || !strings.HasSuffix(r.out, "verdict: refused (too_old)\n") {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("[webhooks/RP12] every vector of a file; those that differ are named", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		file, err := filepath.Abs("../../../../webhook/testdata/vectors.json")
		if err != nil {
			t.Fatal(err)
		}
		s.want(0, "168 agree, 0 differ, 1 state nothing\n", "", "webhooks", "doctor", "--vectors", file)
		s.file("v.json", "["+strings.Replace(string(firstVector(t, "stripe-basic")), `"valid": true`, `"valid": false`, 1)+"]")
		s.want(exitNo, "stripe-basic: accepted, and should be refused\n0 agree, 1 differ, 0 state nothing\n", "", "webhooks", "doctor", "--vectors", "v.json")
	})
	t.Run("[webhooks/RP10] [webhooks/RP11] --source takes the configuration, and knows the secrets of the other sources", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, nil)
		s.file("idempo.yaml", hookFile)
		r := s.run("webhooks", "doctor", "--source", "gh", "--request", "captured.http")
		if r.code != 0 || !strings.HasPrefix(r.out, "source: ok gh, provider github") || !strings.Contains(r.out, "secret: ok 2026a (env GH_HOOK)") {
			t.Errorf("%+v", r)
		}
		r = s.run("webhooks", "doctor", "--source", "test", "--request", "captured.http")
		if r.code != exitNo || !strings.Contains(r.out, "near: secret 2026a of source gh fits: the secrets are swapped (test and live?)") || strings.Contains(r.out, "never to be shown") {
			t.Errorf("%+v", r)
		}
		if r := s.run("webhooks", "doctor", "--source", "hg", "--request", "captured.http"); r.code != exitUsage || !strings.Contains(r.err, "did you mean gh?") {
			t.Errorf("%+v", r)
		}
		if r := s.run("webhooks", "doctor", "--source", "gh", "--provider", "github", "--request", "captured.http"); r.code != exitUsage || !strings.Contains(r.err, "give one or the other") {
			t.Errorf("%+v", r)
		}
		s.file("idempo.yaml", strings.Replace(hookFile, "provider: crm", "provider: crn", 1))
		if r := s.run("webhooks", "doctor", "--source", "gh", "--request", "captured.http"); r.code != exitUsage || !strings.Contains(r.err, ":9:21: webhooks.sources.own.provider: ") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("what is missing is named", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, nil)
		s.file("broken.http", "GET\n\n")
		for want, args := range map[string][]string{
			"name what to look at with --request FILE":                  {},
			"or the provider with --provider":                           {"--request", "captured.http"},
			"did you mean github?":                                      {"--request", "captured.http", "--provider", "githbu"},
			"secrets: is empty, so that nothing could be verified":      {"--request", "captured.http", "--provider", "github"},
			"environment variable UNSET cannot be read: it is not set":  {"--request", "captured.http", "--provider", "github", "--secret-env", "UNSET"},
			"public_url: is missing, and square signs the URL":          {"--request", "captured.http", "--provider", "square", "--secret-env", "OTHER"},
			"name two places of one secret":                             {"--request", "captured.http", "--provider", "github", "--secret-env", "A", "--secret-file", "B"},
			"broken.http: the first line is no request line":            {"--request", "broken.http", "--provider", "github", "--secret-env", "OTHER"},
			"missing.http cannot be read: no such file or directory":    {"--request", "missing.http"},
			`"soon" is neither unix seconds nor an RFC 3339 time`:       {"--request", "captured.http", "--provider", "github", "--secret-env", "OTHER", "--now", "soon"},
			"--vectors and --request are two questions; ask one":        {"--request", "captured.http", "--vectors", "x"},
			"captured.http: no array of vectors":                        {"--vectors", "captured.http"},
			"topics: is missing, and every account of AWS can sign":     {"--request", "captured.http", "--provider", "aws-sns"},
			"min_version: \"v2\" is no version of github; only hubspot": {"--request", "captured.http", "--provider", "github", "--secret-env", "OTHER", "--min-version", "v2"},
		} {
			if r := s.run(append([]string{"webhooks", "doctor"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
}

// firstVector is the raw text of one vector of the published file.
func firstVector(t *testing.T, id string) []byte {
	t.Helper()
	file, err := os.ReadFile("../../../../webhook/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(file, &list); err != nil {
		t.Fatal(err)
	}
	for _, raw := range list {
		if strings.Contains(string(raw), `"id": "`+id+`"`) {
			return raw
		}
	}
	t.Fatal("no vector", id)
	return nil
}

func TestWebhooksProviders(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	t.Run("[webhooks/RP9] profiles as data", func(t *testing.T) {
		r := s.run("webhooks", "providers")
		if r.code != 0 || strings.Count(r.out, "\n") != len(webhook.Providers())+1 || !strings.Contains(r.out, "\nstripe             list      5m       30d       35d       20") {
			t.Errorf("%+v", r)
		}
		if r := s.run("webhooks", "providers", "paddle"); r.code != 0 || !strings.Contains(r.out, "by hand for    90d\n") || !strings.Contains(r.out, "keys kept      95d\n") ||
			!strings.Contains(r.out, "window         5m A\n") || !strings.Contains(r.out, "delivery ids   /event_id S\n") {
			t.Errorf("%+v", r)
		}
		if r := s.run("webhooks", "providers", "telegram"); !strings.Contains(r.out, "body           not signed\n") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[webhooks/RP9] as JSON, one object for each", func(t *testing.T) {
		r := s.run("webhooks", "providers", "--json")
		for line := range strings.Lines(r.out) {
			var p provider
			if err := json.Unmarshal([]byte(line), &p); err != nil || p.Schema != 1 || p.Name == "" || p.Retention == "" || p.Checked == "" || p.IDs == nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
	t.Run("an unknown one names the nearest", func(t *testing.T) {
		if r := s.run("webhooks", "providers", "strip"); r.code != exitUsage || !strings.Contains(r.err, "did you mean stripe?") {
			t.Errorf("%+v", r)
		}
	})
}

// receiver verifies what it gets and counts.
type receiver struct {
	*httptest.Server
	mu        sync.Mutex
	good, bad int
	ids       map[string]int
}

func newReceiver(t *testing.T, s webhook.Source, status int) *receiver {
	t.Helper()
	v, err := webhook.NewVerifier(s)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ids: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		_, err := webhook.Verify(v, webhook.RequestOf(req, body), time.Now())
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.bad++
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.good++
		r.ids[req.Header.Get("X-Github-Delivery")]++
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func TestWebhooksSend(t *testing.T) {
	t.Parallel()
	gh := webhook.Source{Name: "x", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("1", "never to be shown")}}
	t.Run("[webhooks/RP14] signs as the provider would, sends, prints status, time and id", func(t *testing.T) {
		t.Parallel()
		s, r := hooks(t, nil), newReceiver(t, gh, http.StatusOK)
		s.file("b.json", `{"a":1}`)
		got := s.run("webhooks", "send", "--provider", "github", "--secret-env", "GH_HOOK", "--body", "b.json", "--type", "push", "--id", "d7", "--to", r.URL+"/in", "--repeat", "20", "--parallel", "5")
		if got.code != 0 || strings.Count(got.out, "  d7\n") != 20 || r.good != 20 || r.bad != 0 || r.ids["d7"] != 20 {
			t.Errorf("%+v, %d good, %d bad", got, r.good, r.bad)
		}
	})
	t.Run("[webhooks/RP14] a refusal is exit 1, no answer is exit 69", func(t *testing.T) {
		t.Parallel()
		s, r := hooks(t, nil), newReceiver(t, gh, http.StatusOK)
		s.file("b.json", "{}")
		got := s.run("webhooks", "send", "--provider", "github", "--secret-env", "OTHER", "--body", "b.json", "--to", r.URL)
		if got.code != exitNo || !strings.HasPrefix(got.out, "401  ") || r.good != 0 {
			t.Errorf("%+v", got)
		}
		r.Close()
		got = s.run("webhooks", "send", "--provider", "github", "--secret-env", "OTHER", "--body", "b.json", "--to", r.URL)
		if got.code != exitUnreachable || !strings.HasPrefix(got.out, "no answer  ") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("[webhooks/RP14] --source signs with its secret, by a provider of one's own too, and goes where serve takes it", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, nil)
		s.file("b.json", "{}")
		r := newReceiver(t, gh, http.StatusOK)
		at := strings.TrimPrefix(r.URL, "http://")
		s.file("idempo.yaml", strings.Replace(hookFile, "127.0.0.1:8080", at, 1))
		if got := s.run("webhooks", "send", "--source", "gh", "--body", "b.json", "--id", "d1"); got.code != 0 || r.good != 1 || r.ids["d1"] != 1 {
			t.Errorf("%+v", got)
		}
		got := s.run("webhooks", "send", "--source", "own", "--body", "b.json", "--id", "d1", "--print")
		if got.code != 0 || !strings.Contains(got.out, "'http://"+at+"/hooks/own'") || !strings.Contains(got.out, "X-Crm-Signature: ") || !strings.Contains(got.out, "X-Crm-Id: d1") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("[webhooks/RP14] --print is a line that a shell sends byte for byte", func(t *testing.T) {
		t.Parallel()
		s, r := hooks(t, nil), newReceiver(t, gh, http.StatusOK)
		s.file("b.json", "@{\"it's\": \"$HOME `x`\"}\r\n")
		got := s.run("webhooks", "send", "--provider", "github", "--secret-env", "GH_HOOK", "--body", "b.json", "--to", r.URL+"/in?a=1&b=2", "--print")
		if got.code != 0 || !strings.HasPrefix(got.out, "curl -sS -X POST ") || strings.Contains(got.out, "never to be shown") || r.good+r.bad != 0 {
			t.Fatalf("%+v", got)
		}
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("curl is not installed")
		}
		if out, err := exec.Command("sh", "-c", got.out).CombinedOutput(); err != nil || r.good != 1 {
			t.Errorf("%s %v, %d good, %d bad", out, err, r.good, r.bad)
		}
	})
	t.Run("[webhooks/RP14] certificate schemes cannot be signed for, exit 125", func(t *testing.T) {
		t.Parallel()
		s := hooks(t, nil)
		s.file("b.json", "{}")
		for want, args := range map[string][]string{
			"cannot sign for paypal":                   {"--provider", "paypal", "--secret-env", "OTHER", "--to", "http://127.0.0.1:1"},
			"cannot sign for github: there is no":      {"--provider", "github", "--to", "http://127.0.0.1:1"},
			`"ftp://x" is no http or https URL`:        {"--provider", "github", "--to", "ftp://x"},
			"name the body with --body FILE":           {"--provider", "github"},
			"--repeat is at least 1":                   {"--provider", "github", "--to", "http://127.0.0.1:1", "--repeat", "0"},
			"did you mean slack?":                      {"--provider", "slak", "--to", "http://127.0.0.1:1"},
			"is neither unix seconds nor":              {"--provider", "slack", "--secret-env", "OTHER", "--to", "http://127.0.0.1:1", "--at", "x"},
			"cannot sign for standard-webhooks":        {"--provider", "standard-webhooks", "--to", "http://127.0.0.1:1"},
			"topics: is missing, and every account of": {"--provider", "aws-sns", "--to", "http://127.0.0.1:1"},
		} {
			if r := s.run(append([]string{"webhooks", "send", "--body", "b.json"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
				t.Errorf("%v: %+v", args, r)
			}
		}
	})
}
