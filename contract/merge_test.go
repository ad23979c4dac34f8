package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

// added are the lines of after that before does not have; it fails if a line of before is gone.
func added(t *testing.T, before, after string) (lines []string) {
	t.Helper()
	rest := strings.Split(before, "\n")
	for line := range strings.SplitSeq(after, "\n") {
		if len(rest) > 0 && line == rest[0] {
			rest = rest[1:]
			continue
		}
		lines = append(lines, line)
	}
	if len(rest) > 0 && strings.TrimSpace(strings.Join(rest, "")) != "" {
		t.Errorf("changed or gone: %q", rest[0])
	}
	return lines
}

const prettyDoc = `{
  "openapi": "3.1.0",
  "info": {"title": "Shop",   "version": "1"},
  "paths": {
    "/v1/payments": {
      "summary": "money",
      "post": {
        "x-own": [1, 2],
        "parameters": [
          {"name": "trace", "in": "header", "schema": {"type": "string"}}
        ],
        "responses": {
          "201": {
            "description": "made"
          },
          "409": {"description": "ours"}
        }
      }
    }
  }
}
`

func TestMerge(t *testing.T) {
	t.Parallel()
	c := shop(t)
	merge := func(t *testing.T, text string) (string, []string) {
		t.Helper()
		b, missing, err := contract.Merge("doc.json", []byte(text), contract.Files{}, c)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return string(b), missing
	}
	t.Run("every line stays, the promise is there, and a second time changes nothing", func(t *testing.T) {
		one, missing := merge(t, prettyDoc)
		added(t, prettyDoc, one)
		if two, _ := merge(t, one); two != one {
			t.Error("the second merge changes something")
		}
		d := load(t, one)
		post := d.Root.Get("paths", "/v1/payments", "post")
		if len(post.Get("parameters").Items) != 2 || post.Get("responses", "201", "headers", "Idempotent-Replayed") == nil || post.Get("responses", "422") == nil ||
			post.Get("x-idempotency", "operation").Value != "create-payment" || d.Root.Get("components", "schemas", "IdempotencyProblem") == nil {
			t.Error(one)
		}
		if post.Get("responses", "409", "content") != nil {
			t.Error("an answer that the document describes itself was changed")
		}
		if fmt.Sprint(missing) != "[POST /v1/accounts/{account}/mails/{rest} PUT /v1/settings]" {
			t.Error(missing)
		}
	})
	t.Run("an old promise is updated", func(t *testing.T) {
		one, _ := merge(t, prettyDoc)
		old := strings.Replace(one, `"retention": "PT24H"`, `"retention": "PT1H"`, 1)
		if old == one {
			t.Fatal("void")
		}
		if two, _ := merge(t, old); two != one {
			t.Errorf("%s", two)
		}
	})
	t.Run("on one line", func(t *testing.T) {
		flat := `{"openapi":"3.0.0","info":{"title":"x","version":"1"},"paths":{"/v1/payments":{"post":{"responses":{}}}}}`
		one, _ := merge(t, flat)
		if two, _ := merge(t, one); two != one || strings.Contains(one, "\n") {
			t.Error(one)
		}
	})
	t.Run("a marker behind a reference is declared once, where it stands", func(t *testing.T) {
		doc := `{"openapi":"3.0.0","info":{"title":"x","version":"1"},"paths":{"/v1/payments":{"post":{"responses":{"201":{"$ref":"#/components/responses/made"}}}},
"/v1/settings":{"put":{"responses":{"200":{"$ref":"#/components/responses/made"}}}}},"components":{"responses":{"made":{"description":"m"}}}}`
		one, _ := merge(t, doc)
		if strings.Count(one, `"Idempotent-Replayed":{`) != 1 || load(t, one).Root.Get("components", "responses", "made", "headers") == nil {
			t.Error(one)
		}
	})
	t.Run("a parameter that is not required as it should be", func(t *testing.T) {
		doc := strings.Replace(prettyDoc, `{"name": "trace", "in": "header", "schema": {"type": "string"}}`, `{"name": "idempotency-key", "in": "header", "required": false, "schema": {"type": "string"}}`, 1)
		one, _ := merge(t, doc)
		p := load(t, one).Root.Get("paths", "/v1/payments", "post", "parameters")
		if len(p.Items) != 1 || p.Items[0].Get("required").Value != "true" {
			t.Error(one)
		}
	})
	t.Run("what cannot be merged is an error, and nothing comes back", func(t *testing.T) {
		for _, text := range []string{"", "{", `{"swagger":"2.0"}`, `{"asyncapi":"3.0.0"}`} {
			if b, _, err := contract.Merge("doc.json", []byte(text), contract.Files{}, c); err == nil || b != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte(prettyDoc))
	f.Add([]byte(`{"openapi":"3.1.0","paths":{"/v1/payments":{"post":{"responses":{"200":{"headers":{}}},"parameters":[]}}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := contract.New("x", "1")
		c.Natural("POST /v1/payments", "r")
		one, _, err := contract.Merge("doc.json", doc, contract.Files{}, c)
		if err != nil {
			return
		}
		two, _, err := contract.Merge("doc.json", one, contract.Files{}, c)
		if err != nil || string(two) != string(one) {
			t.Errorf("a second merge: %v\n%s\n%s", err, one, two)
		}
	})
}
