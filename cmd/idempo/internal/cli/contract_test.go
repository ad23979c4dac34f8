package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

const contractConfig = `version: 1
gateway:
  tenant: {header: X-Account}
  trusted_proxies: ["127.0.0.1"]
  upstreams: {pay: {urls: ["http://127.0.0.1:9000"], health_check: {path: /up}}}
  routes:
    - {match: "/", upstream: pay}
    - {match: "POST /v1/payments", upstream: pay, operation: create-payment, retention: 48h}
webhooks:
  sources:
    shop: {provider: github, secrets: [{id: s1, value: {env: HOOK}}], forward: {url: "http://127.0.0.1:9000/h", allow: ["127.0.0.0/8"], ports: [9000], target_dedups: true}}
listen: {gateway: "127.0.0.1:0", admin: "127.0.0.1:0"}
`

func contractShell(t *testing.T) *shell {
	s := newShell(t)
	s.env = append(s.env, "HOOK=a-secret-of-the-hook-itself")
	s.file("idempo.yaml", contractConfig)
	return s
}

func TestContractPrint(t *testing.T) {
	t.Parallel()
	forms := []string{"openapi", "asyncapi", "markdown", "json"}
	t.Run("[operations/CD1] from a configuration and from a running server: the same; what changes there changes the document", func(t *testing.T) {
		t.Parallel()
		s := contractShell(t)
		said := map[string]string{}
		for _, f := range forms {
			r := s.run("contract", "print", "--format", f)
			if r.code != 0 || r.err != "" || r.out == "" {
				t.Fatalf("%s: %+v", f, r)
			}
			said[f] = r.out
		}
		for f, want := range map[string]string{"openapi": "retention: P2D", "asyncapi": "X-Github-Delivery", "markdown": "2 days (P2D)", "json": `"retention": "P2D"`} {
			if !strings.Contains(said[f], want) {
				t.Errorf("%s does not say %s:\n%s", f, want, said[f])
			}
		}
		c, _, err := config.Load(config.Source{File: filepath.Join(s.dir, "idempo.yaml"), DataDir: s.dir, LookupEnv: func(string) (string, bool) { return "a-secret-of-the-hook-itself", true }})
		if err != nil {
			t.Fatal(err)
		}
		srv := server.New(c, server.Options{Version: "dev"})
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer srv.Stop(t.Context())
		token, err := os.ReadFile(server.TokenFile(c))
		if err != nil {
			t.Fatal(err)
		}
		at := "http://" + srv.AdminAddr().String()
		if r := s.run("contract", "print", "--server", at); r.code != exitNo || !strings.Contains(r.err, "does not let this caller in") || r.out != "" {
			t.Errorf("without a token: %+v", r)
		}
		s.env = append(s.env, "IDEMPO_TOKEN="+strings.TrimSpace(string(token)))
		for _, f := range forms {
			if r := s.run("contract", "print", "--format", f, "--server", at); r.code != 0 || r.out != said[f] {
				t.Errorf("%s: exit %d, %s\n%s", f, r.code, r.err, r.out)
			}
		}
		for to, from := range map[string]string{"retention: 24h": "retention: 48h", "mismatch_status: 409": "retention: 48h", "operation: create-payment, on_crash: rerun, upstream_honours_key: true,": "operation: create-payment,"} {
			s.file("idempo.yaml", strings.Replace(contractConfig, from, to, 1))
			if r := s.run("contract", "print"); r.code != 0 || r.out == said["openapi"] {
				t.Errorf("%s: %+v", to, r)
			}
		}
	})
	t.Run("--upstream, no configuration, wrong words", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		if r := s.run("contract", "print", "--upstream", "http://127.0.0.1:9", "--format", "markdown"); r.code != 0 || !strings.Contains(r.out, "optional: without it a repeat runs again") {
			t.Errorf("%+v", r)
		}
		s.want(125, "", "idempo: no configuration file: nothing is declared that could be promised\n  name one with --config, or give --upstream URL\n", "contract", "print")
		s.want(125, "", "idempo: --format: unknown value \"markdwon\"\n  did you mean markdown?\n", "contract", "print", "--format", "markdwon")
		s.want(125, "", "idempo: --write changes the document of --merge, and there is none\n", "contract", "print", "--write")
		if r := s.run("contract", "print", "--server", "http://127.0.0.1:1"); r.code != exitUnreachable || !strings.Contains(r.err, "nothing was asked") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a token goes nowhere else", func(t *testing.T) {
		t.Parallel()
		stolen := ""
		thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") }))
		defer thief.Close()
		srv := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusFound))
		defer srv.Close()
		s := newShell(t)
		s.env = append(s.env, "IDEMPO_TOKEN=secret")
		if r := s.run("contract", "print", "--server", srv.URL); r.code != exitUnreachable || stolen != "" || strings.Contains(r.err, "secret") {
			t.Errorf("%+v %q", r, stolen)
		}
	})
	t.Run("[operations/CD2] --merge --write changes the file, and a second time nothing", func(t *testing.T) {
		t.Parallel()
		s := contractShell(t)
		file := s.file("api.yaml", "openapi: 3.1.0 # ours\ninfo: {title: x, version: '1'}\npaths:\n  /v1/payments:\n    post:\n      responses:\n        '201': {description: made}\n")
		if r := s.run("contract", "print", "--merge", "api.yaml", "--write"); r.code != 0 || r.out != "" || r.err != "" {
			t.Fatalf("%+v", r)
		}
		one, _ := os.ReadFile(file)
		if r := s.run("contract", "print", "--merge", "api.yaml"); r.code != 0 || r.out != string(one) || !strings.HasPrefix(r.out, "openapi: 3.1.0 # ours\n") {
			t.Errorf("%+v", r)
		}
		if r := s.run("contract", "lint", "api.yaml"); r.code != 0 || r.out != "" || r.err != "api.yaml: 0 errors, 0 warnings\n" {
			t.Errorf("%+v", r)
		}
		s.file("other.json", `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{}}`)
		if r := s.run("contract", "print", "--merge", "other.json"); r.code != 0 || !strings.Contains(r.err, "has no POST /v1/payments") {
			t.Errorf("%+v", r)
		}
	})
}

func TestContractLint(t *testing.T) {
	t.Parallel()
	const bare = "openapi: 3.0.3\npaths:\n  /p:\n    post:\n      responses: {}\n"
	t.Run("[operations/CD7] FILE:LINE:COL RULE severity message, JSON, SARIF; exit 1 on errors", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("api.yaml", bare)
		const said = "no key is declared: state one in x-idempotency, or natural or supported: false, each with its reason"
		s.want(1, "api.yaml:4:5 C01 error POST /p: "+said+"\n", "api.yaml: 1 errors, 0 warnings\n", "contract", "lint", "api.yaml")
		var one struct {
			Schema, Line, Column          int
			Rule, Severity, Message, File string
		}
		r := s.run("contract", "lint", "api.yaml", "--json")
		if err := json.Unmarshal([]byte(r.out), &one); err != nil || r.code != 1 || one.Schema != 1 || one.Line != 4 || one.Column != 5 || one.Rule != "C01" || one.Severity != "error" || one.Message != said || one.File != "api.yaml" {
			t.Errorf("%v %+v", err, r)
		}
		r = s.run("contract", "lint", "api.yaml", "--sarif")
		if r.code != 1 || !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"ruleId": "C01"`) {
			t.Errorf("%+v", r)
		}
		// An AsyncAPI document goes through the rules A01 to A06, and the rest of C: package contract has each of them.
		s.file("events.yaml", "asyncapi: 3.0.0\noperations:\n  got: {action: receive}\n")
		if r := s.run("contract", "lint", "events.yaml"); r.code != 1 || !strings.HasPrefix(r.out, "events.yaml:3:3 A01 error got: ") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/CD8] severities from the configuration", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("api.yaml", bare)
		s.file("idempo.yaml", "version: 1\ncontract: {lint: {C01: warning}}\n")
		if r := s.run("contract", "lint", "api.yaml"); r.code != 0 || !strings.Contains(r.out, "C01 warning") {
			t.Errorf("%+v", r)
		}
		if r := s.run("contract", "lint", "api.yaml", "--strict"); r.code != exitWarnings {
			t.Errorf("%+v", r)
		}
		s.file("idempo.yaml", "version: 1\ncontract:\n  lint: {C99: off}\n")
		if r := s.run("contract", "lint", "api.yaml"); r.code != 125 || !strings.Contains(r.err, "idempo.yaml:3:10: contract.lint") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/CD10] an unknown member has its line; other files are read, the network is not asked unless allowed", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("api.yaml", "openapi: 3.0.3\npaths:\n  /p:\n    post:\n      x-idempotency:\n        retentoin: P1D\n")
		s.want(125, "", "api.yaml:6:9: unknown member \"retentoin\" of x-idempotency: did you mean retention?\n", "contract", "lint", "api.yaml")
		s.file("v2/api.yaml", "openapi: 3.1.0\npaths:\n  /p: {$ref: paths/p.json}\n")
		s.file("v2/paths/p.json", `{"parameters":[{"$ref":"../key.yaml#/key"}],"put":{"x-idempotency":{"key":{"in":"header","name":"Key","required":true},"keyedBy":["key"]}}}`)
		s.file("v2/key.yaml", "key: {name: Key, in: header, required: true, schema: {$ref: '#/schema'}}\nschema: {type: string, example: order-1}\n")
		if r := s.run("contract", "lint", "v2/api.yaml"); r.code != 1 || !strings.Contains(r.out, "v2/key.yaml:2:33 C03 error PUT /p: ") || strings.Contains(r.out, "C02") {
			t.Errorf("%+v", r)
		}
		asked := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = w.Write([]byte(`{"get":{}}`))
		}))
		defer srv.Close()
		s.file("net.yaml", "openapi: 3.1.0\npaths:\n  /p: {$ref: '"+srv.URL+"/p.json'}\n")
		if r := s.run("contract", "lint", "net.yaml"); r.code != 125 || asked != 0 || !strings.Contains(r.err, "net.yaml:3:14: ") || !strings.Contains(r.err, "--allow-fetch") {
			t.Errorf("%d %+v", asked, r)
		}
		if r := s.run("contract", "lint", "net.yaml", "--allow-fetch"); r.code != 0 || asked != 1 {
			t.Errorf("%d %+v", asked, r)
		}
	})
	t.Run("[operations/CD12] 3.0 is read, 2.0 refused with the reason, YAML and JSON alike; broken: a line, 125; 5,000 operations with progress", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("old.yaml", "swagger: '2.0'\n")
		if r := s.run("contract", "lint", "old.yaml"); r.code != 125 || !strings.Contains(r.err, "old.yaml:1:10: Swagger 2.0 is not read") {
			t.Errorf("%+v", r)
		}
		s.file("a.yaml", bare)
		s.file("a.json", `{"openapi":"3.0.3","paths":{"/p":{"post":{"responses":{}}}}}`)
		a, b := s.run("contract", "lint", "a.yaml"), s.run("contract", "lint", "a.json")
		if _, x, _ := strings.Cut(a.out, " C01"); a.code != 1 || b.code != 1 || !strings.HasSuffix(b.out, x) {
			t.Errorf("%+v %+v", a, b)
		}
		s.file("broken.json", "{\n  \"openapi\": tru\n}")
		s.file("broken.yaml", "a: 1\n  b: 2\n")
		for _, f := range []string{"broken.json", "broken.yaml"} {
			if r := s.run("contract", "lint", f, "--json"); r.code != 125 || !strings.Contains(r.err, `"code":"document_invalid"`) || !strings.Contains(r.err, `"line":2`) {
				t.Errorf("%+v", r)
			}
		}
		var text strings.Builder
		text.WriteString("openapi: 3.0.3\npaths:\n")
		for i := range 5000 {
			text.WriteString("  /p" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + ":\n    post: {x-idempotency: {natural: {reason: sets}}}\n")
		}
		s.file("many.yaml", text.String())
		r := s.run("contract", "lint", "many.yaml", "--progress", "json")
		if r.code != 0 || !strings.Contains(r.err, `"done":5000,"total":5000`) || r.out != "" {
			t.Errorf("%d %.300s", r.code, r.err)
		}
		file, err := os.Create(filepath.Join(s.dir, "huge.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Truncate(64 << 20)
		_ = file.Close()
		if r := s.run("contract", "lint", "huge.yaml"); r.code != 125 || !strings.Contains(r.err, "over 32 MiB") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[operations/OP4] a document cannot write to the terminal", func(t *testing.T) {
		t.Parallel()
		s := newShell(t)
		s.file("api.json", `{"openapi":"3.0.3","paths":{"/\u001b[31m":{"post":{}}}}`)
		if r := s.run("contract", "lint", "api.json"); r.code != 1 || strings.Contains(r.out, "\x1b") {
			t.Errorf("%q", r.out)
		}
	})
}

func TestContractDiff(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	doc := func(retention string) string {
		return "openapi: 3.1.0\npaths:\n  /p:\n    post:\n      x-idempotency: {key: {in: header, name: Key}, retention: " + retention + "}\n"
	}
	s.file("old.yaml", doc("P1D"))
	s.file("same.yaml", doc("PT24H"))
	s.file("longer.yaml", doc("P2D"))
	s.file("shorter.yaml", doc("PT1H"))
	s.want(0, "", "0 changes, 0 of them breaking\n", "contract", "diff", "old.yaml", "same.yaml")
	s.want(0, "longer.yaml:5:64 compatible POST /p: retention is longer: P1D is now P2D\n", "1 changes, 0 of them breaking\n", "contract", "diff", "old.yaml", "longer.yaml")
	s.want(1, "shorter.yaml:5:64 breaking POST /p: retention is shorter: P1D is now PT1H\n", "1 changes, 1 of them breaking\n", "contract", "diff", "old.yaml", "shorter.yaml")
	if r := s.run("contract", "diff", "old.yaml", "shorter.yaml", "--json"); r.code != 1 || !strings.HasPrefix(r.out, `{"schema":1,"breaking":true,"operation":"POST /p","member":"retention"`) || r.err != "" {
		t.Errorf("%+v", r)
	}
	s.file("events.yaml", "asyncapi: 3.0.0\n")
	if r := s.run("contract", "diff", "old.yaml", "events.yaml"); r.code != 125 || !strings.Contains(r.err, "of two kinds") {
		t.Errorf("%+v", r)
	}
}
