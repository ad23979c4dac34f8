package promise

import (
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/contract"
)

func read(t *testing.T, text string) *contract.Contract {
	t.Helper()
	s, _, err := config.Load(config.Source{File: "idempo.yaml", Content: []byte(text), DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(s, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func endpoint(t *testing.T, c *contract.Contract, method, path string) contract.Endpoint {
	t.Helper()
	i := slices.IndexFunc(c.Endpoints, func(e contract.Endpoint) bool { return e.Method == method && e.Path == path })
	if i < 0 {
		t.Fatalf("no %s %s: %s", method, path, c.JSON())
	}
	return c.Endpoints[i]
}

const head = `version: 1
gateway:
  upstreams:
    pay:
      urls: ["http://127.0.0.1:9000"]
      health_check: {path: /up}
      ca: nowhere.pem
  routes:
    - match: "/"
      upstream: pay
    - match: "GET /v1/payments"
      upstream: pay
    - match: "POST /v1/payments"
      upstream: pay
      operation: create-payment
`

func TestRead(t *testing.T) {
	t.Parallel()
	const tenant = `  tenant: {jwt: {jwks_file: nowhere.json, algorithms: [RS256], claim: account}}
  tls: {cert: nowhere.pem, key: nowhere.pem}
`
	t.Run("nothing is opened: certificates, key sets and upstreams are none of the promise", func(t *testing.T) {
		c := read(t, head+tenant)
		e := endpoint(t, c, "POST", "/v1/payments")
		if got := strings.Join(e.Statement.KeyedBy, " "); got != "tenant operation key" {
			t.Error(got)
		}
		if e.Statement.Operation != "create-payment" || e.Statement.Guard != "leased" || e.Statement.OnCrash != "hold" || e.Statement.Retention != "PT24H" || e.Statement.Tombstone != "P10D" {
			t.Errorf("%+v", e.Statement)
		}
		if rest := endpoint(t, c, "", "/{rest}"); rest.Statement.Group() != "out" || !rest.Subtree {
			t.Errorf("%+v", rest)
		}
		if len(c.Endpoints) != 2 || c.Version != "1.2.3" {
			t.Errorf("GET is no matter: %s", c.JSON())
		}
	})
	t.Run("a principal, or one key space for all", func(t *testing.T) {
		c := read(t, head+strings.Replace(tenant, "tenant: {", "tenant: {principal: sub, ", 1))
		if got := strings.Join(endpoint(t, c, "POST", "/v1/payments").Statement.KeyedBy, " "); got != "tenant principal operation key" {
			t.Error(got)
		}
		c = read(t, head+"  tenant: {global: true}\n")
		if got := strings.Join(endpoint(t, c, "POST", "/v1/payments").Statement.KeyedBy, " "); got != "operation key" {
			t.Error(got)
		}
	})
	t.Run("what the file says for all routes, and what a route says", func(t *testing.T) {
		text := head + `      wait: 3s
      max_run: 20s
      lease: 10s
      mismatch_status: 409
      key: {required: false, profile: strict}
  tenant: {global: true}
retention: {result: 48h, tombstone: forever}
`
		s := endpoint(t, read(t, text), "POST", "/v1/payments").Statement
		if s.Retention != "P2D" || s.Tombstone != "forever" || s.InProgress.Wait != "PT3S" || s.InProgress.Max != "PT30S" || s.Mismatch.Status != 409 || s.Missing != nil || s.Key.Format != "sf-string" || *s.Key.Required {
			t.Errorf("%+v %+v %+v", s, s.InProgress, s.Key)
		}
	})
	t.Run("an upstream that guards itself", func(t *testing.T) {
		s := endpoint(t, read(t, head+"      guard: upstream\n  tenant: {global: true}\n"), "POST", "/v1/payments").Statement
		if s.Guard != "upstream" || s.Retention != "" || s.Replayed != nil || s.Key.Name != "Idempotency-Key" || s.Missing.Status != 400 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("no routes", func(t *testing.T) {
		if c := read(t, "version: 1\n"); len(c.Endpoints) != 0 || len(c.Consumers) != 0 {
			t.Errorf("%s", c.JSON())
		}
	})
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	const forward = `      forward:
        url: "http://127.0.0.1:9000/h"
        allow: ["127.0.0.0/8"]
        ports: [9000]
        target_dedups: true
`
	source := func(t *testing.T, name, more string) contract.Message {
		t.Helper()
		c := read(t, "version: 1\nwebhooks:\n  sources:\n    "+name+":\n      secrets: [{id: s1, value: a-secret-of-sixteen-bytes}]\n"+more+forward)
		if len(c.Consumers) != 1 || c.Consumers[0].Name != name || c.Consumers[0].Channel != "/hooks/"+name {
			t.Fatalf("%s", c.JSON())
		}
		d, err := contract.Load("d.json", contract.JSON(c.AsyncAPI()), contract.Files{})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := d.Lint(contract.LintOptions{}); err != nil || len(found) > 0 {
			t.Errorf("%v %v", err, found)
		}
		return c.Consumers[0].Message
	}
	t.Run("identity and lane of the provider", func(t *testing.T) {
		m := source(t, "code", "      provider: github\n")
		if m.ID.In != "header" || m.ID.Name != "X-Github-Delivery" || m.Order != "serial" || m.OrderKey == "" || m.MissingID != "park" || m.Attempts != 12 || m.Guard != "leased" {
			t.Errorf("%+v %+v", m, m.ID)
		}
	})
	t.Run("an identity in the body", func(t *testing.T) {
		m := source(t, "money", "      provider: stripe\n")
		if m.ID.In != "payload" || m.ID.Name != "/id" {
			t.Errorf("%+v", m.ID)
		}
	})
	t.Run("what the source says itself", func(t *testing.T) {
		m := source(t, "code", "      provider: github\n      retention: 48d\n      missing_id: refuse\n      retry: {attempts: 3}\n      order: {mode: none}\n")
		if m.Retention != "P528D" || m.MissingID != "reject" || m.Attempts != 3 || m.Order != "none" {
			t.Errorf("%+v", m)
		}
	})
}
