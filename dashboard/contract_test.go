package dashboard_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

// promise has an endpoint of each group, and a consumer.
const promise = `{
  "schema": 1,
  "title": "Shop",
  "version": "1",
  "endpoints": [
    {
      "method": "POST",
      "path": "/v1/payments",
      "x-idempotency": {
        "operation": "create-payment",
        "guard": "leased",
        "onCrash": "probe",
        "key": {
          "in": "header",
          "name": "Idempotency-Key",
          "required": true
        },
        "keyedBy": [
          "tenant",
          "key"
        ],
        "retention": "P2D",
        "tombstone": "forever",
        "mismatch": {
          "status": 422
        },
        "inProgress": {
          "status": 409,
          "wait": "PT5S"
        }
      },
      "refusals": [
        {
          "status": 409,
          "codes": [
            "in_progress"
          ]
        }
      ]
    },
    {
      "method": "POST",
      "path": "/v1/mails",
      "x-idempotency": {
        "operation": "mail",
        "guard": "atomic",
        "onCrash": "rollback",
        "key": {
          "in": "header",
          "name": "Idempotency-Key"
        }
      }
    },
    {
      "method": "PUT",
      "path": "/v1/settings",
      "x-idempotency": {
        "natural": {
          "reason": "<b>sets</b> it"
        }
      }
    },
    {
      "method": "",
      "path": "/{rest}",
      "subtree": true,
      "x-idempotency": {
        "supported": false,
        "reason": "passes"
      }
    }
  ],
  "consumers": [
    {
      "name": "shop",
      "channel": "/hooks/shop",
      "x-idempotency": {
        "id": {
          "in": "header",
          "name": "X-Id"
        },
        "retention": "P385D",
        "order": "serial"
      }
    }
  ]
}`

func promised(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := contract.FromJSON([]byte(promise))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestContract(t *testing.T) {
	t.Parallel()
	report := []byte(`{
  "schema": 1,
  "target": "http://shop.test",
  "at": "2026-05-04T03:02:01Z",
  "operations": [
    {
      "operation": "POST /v1/payments",
      "level": "deviates",
      "verdicts": [
        {
          "probe": "P01",
          "verdict": "PASS"
        },
        {
          "probe": "M01",
          "verdict": "FAIL",
          "expected": "422",
          "observed": "200"
        }
      ]
    }
  ]
}`)
	var broken error
	b := newBed(t, func(c *dashboard.Config) {
		c.Contract = func() *contract.Contract { return promised(t) }
		c.Report = func() (*contract.Report, error) {
			if broken != nil {
				return nil, broken
			}
			return contract.ReadReport(report)
		}
	})
	b.be(as(operator.RoleViewer, "acme"))
	t.Run("three groups, what each promises, and what was seen", func(t *testing.T) {
		a := b.get("/contract")
		says(t, a, 200, "A repeat is recognised", "/v1/payments", "in doubt, a probe asks", "2 d", "for ever", "waits 5 s, then 409", "Twice is once", "&lt;b&gt;sets&lt;/b&gt; it", "A repeat is a second call", "any method",
			"/hooks/shop", "deviates", "M01 FAIL: expected 422, observed 200", "not tried", "http://shop.test", "2026-05-04")
		if strings.Contains(a.body, "P01") || !strings.Contains(b.get("/").body, `href="/ops/idempo/contract"`) {
			t.Error(a.body)
		}
	})
	t.Run("as documents and as JSON", func(t *testing.T) {
		for file, want := range map[string]string{"openapi.yaml": "openapi: \"3.1.0\"", "asyncapi.yaml": "asyncapi: \"3.0.0\"", "RETRIES.md": "# Shop: what a retry does"} {
			if a := b.get("/contract/" + file); !strings.HasPrefix(a.body, want) || !strings.Contains(a.head.Get("Content-Disposition"), "attachment") {
				t.Errorf("%s: %+v", file, a)
			}
		}
		says(t, b.get("/contract/other"), 404)
		var doc document
		if err := json.Unmarshal([]byte(b.get("/api/v1/openapi.json").body), &doc); err != nil {
			t.Fatal(err)
		}
		a := b.get("/api/v1/contract")
		doc.check(t, "GET", "/contract", a)
		if back, err := contract.FromJSON([]byte(a.body)); err != nil || len(back.Endpoints) != 4 {
			t.Error(err, a.body)
		}
	})
	t.Run("a report that cannot be read is said, and the rest stands", func(t *testing.T) {
		broken = errors.New("no such file: /etc/secret-place")
		a := b.get("/contract")
		says(t, a, 200, "cannot be read", "/v1/payments")
		if strings.Contains(a.body, "secret-place") {
			t.Error("the page shows a path of the machine")
		}
	})
	t.Run("without a contract there is no such page, and nothing leads there", func(t *testing.T) {
		b := newBed(t, nil)
		says(t, b.get("/contract"), 404)
		says(t, b.get("/contract/openapi.yaml"), 404)
		says(t, b.get("/api/v1/contract"), 404)
		if strings.Contains(b.get("/").body, "/contract") {
			t.Error("a link")
		}
	})
	t.Run("an empty one", func(t *testing.T) {
		b := newBed(t, func(c *dashboard.Config) { c.Contract = func() *contract.Contract { return contract.New("x", "1") } })
		says(t, b.get("/contract"), 200, "Nothing is promised yet")
	})
	t.Run("reports of another form", func(t *testing.T) {
		for _, text := range []string{"", "[]", `{"schema":2}`} {
			if _, err := contract.ReadReport([]byte(text)); err == nil {
				t.Errorf("%q is read", text)
			}
		}
		if r, err := contract.ReadReport(report); err != nil || !r.At.Equal(time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)) || (*contract.Report)(nil).Of(contract.Endpoint{}) != nil {
			t.Error(err)
		}
	})
}
