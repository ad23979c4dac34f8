package contract_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

// TestMembers has a case for every member of x-idempotency: what may stand there, and what may not.
func TestMembers(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, text string) error {
		t.Helper()
		_, err := contract.Load("doc.json", []byte(text), contract.Files{})
		return err
	}
	t.Run("[operations/CD10] of an operation", func(t *testing.T) {
		ok := func(said string) {
			t.Helper()
			if err := check(t, doc(`{"x-idempotency":{`+said+`}}`)); err != nil {
				t.Errorf("%s: %v", said, err)
			}
			if err := check(t, `{"openapi":"3.0.3","x-idempotency":{`+said+`}}`); err != nil {
				t.Errorf("%s at the root: %v", said, err)
			}
		}
		ok(`"profile":"stripe"`)
		ok(`"operation":"create-payment"`)
		ok(`"guard":"atomic"`)
		ok(`"guard":"leased"`)
		ok(`"guard":"upstream"`)
		ok(`"onCrash":"rollback"`)
		ok(`"onCrash":"hold"`)
		ok(`"onCrash":"probe"`)
		ok(`"onCrash":"rerun"`)
		ok(`"effects":"local"`)
		ok(`"effects":"outside"`)
		ok(`"keyedBy":["tenant","key"]`)
		ok(`"keyedBy":[]`)
		ok(`"retention":"PT24H"`)
		ok(`"retention":"forever"`)
		ok(`"tombstone":"P10D"`)
		ok(`"staleResult":"original"`)
		ok(`"staleResult":"current"`)
		ok(`"key":{}`)
		ok(`"key":{"in":"header","name":"Idempotency-Key"}`)
		ok(`"key":{"in":"query","name":"token"}`)
		ok(`"key":{"in":"body","name":"/id"}`)
		ok(`"key":{"in":"path","name":"id"}`)
		ok(`"key":{"in":"parts","name":"a + b"}`)
		ok(`"key":{"required":true}`)
		ok(`"key":{"format":"uuid"}`)
		ok(`"key":{"minLength":1,"maxLength":255}`)
		ok(`"key":{"issued":true}`)
		ok(`"missing":{"status":400}`)
		ok(`"mismatch":{"status":422}`)
		ok(`"mismatch":{"covers":["method","body"]}`)
		ok(`"mismatch":{"ignores":["/sent_at"]}`)
		ok(`"inProgress":{"status":409,"retryAfter":true,"wait":"PT0S","max":"PT1M"}`)
		ok(`"inDoubt":{"status":409}`)
		ok(`"expired":{"status":410,"resource":true}`)
		ok(`"replayed":{"statuses":[200,"201","2XX","4xx"]}`)
		ok(`"replayed":{"headers":["Location"]}`)
		ok(`"replayed":{"marker":{"header":"Idempotent-Replayed","value":true}}`)
		ok(`"notKept":["5XX",429]`)
		ok(`"supported":false,"reason":"logs"`)
		ok(`"natural":{"reason":"sets it"}`)
	})
	t.Run("[operations/CD10] of an operation, refused", func(t *testing.T) {
		bad := func(said, why string) {
			t.Helper()
			if err := check(t, doc(`{"x-idempotency":{`+said+`}}`)); err == nil || !strings.Contains(err.Error(), why) || !strings.HasPrefix(err.Error(), "doc.json:1:") {
				t.Errorf("%s: %v, want %s", said, err, why)
			}
		}
		bad(`"profil":"stripe"`, "did you mean profile?")
		bad(`"Guard":"atomic"`, "did you mean guard?")
		bad(`"somethingElse":1`, `unknown member "somethingElse" of x-idempotency`)
		bad(`"profile":[]`, "text wanted, found a list")
		bad(`"operation":{}`, "text wanted, found a set of members")
		bad(`"guard":"exactly-once"`, "one of atomic leased upstream wanted")
		bad(`"guard":null`, "found nothing")
		bad(`"onCrash":"retry"`, "one of rollback hold probe rerun wanted")
		bad(`"effects":"none"`, "one of local outside wanted")
		bad(`"keyedBy":"tenant"`, "a list wanted")
		bad(`"keyedBy":[true]`, "text wanted, found true")
		bad(`"retention":"24h"`, "no ISO 8601 duration")
		bad(`"retention":86400`, "an ISO 8601 duration wanted, found 86400")
		bad(`"tombstone":"ever"`, "no ISO 8601 duration")
		bad(`"staleResult":"new"`, "one of original current wanted")
		bad(`"key":"Idempotency-Key"`, "a set of members wanted")
		bad(`"key":{"in":"cookie"}`, "one of header query path body parts wanted")
		bad(`"key":{"nmae":"x"}`, "did you mean name?")
		bad(`"key":{"required":"yes"}`, "true or false wanted")
		bad(`"key":{"maxLength":-1}`, "a whole number wanted")
		bad(`"key":{"maxLength":1.5}`, "a whole number wanted")
		bad(`"key":{"maxLength":"255"}`, "a whole number wanted")
		bad(`"missing":{"status":99}`, "a status from 200 to 599 wanted")
		bad(`"missing":{"status":600}`, "a status from 200 to 599 wanted")
		bad(`"missing":400`, "a set of members wanted")
		bad(`"mismatch":{"covers":"body"}`, "a list wanted")
		bad(`"inProgress":{"wait":"5s"}`, "no ISO 8601 duration")
		bad(`"inProgress":{"retryAfter":1}`, "true or false wanted")
		bad(`"expired":{"resource":"id"}`, "true or false wanted")
		bad(`"replayed":{"statuses":"2XX"}`, "a list wanted")
		bad(`"replayed":{"statuses":["1XX"]}`, "a class such as 2XX wanted")
		bad(`"replayed":{"statuses":[1000]}`, "a class such as 2XX wanted")
		bad(`"replayed":{"statuses":[[]]}`, "a class such as 2XX wanted")
		bad(`"replayed":{"marker":"Replayed"}`, "a set of members wanted")
		bad(`"notKept":"5XX"`, "a list wanted")
		bad(`"supported":0`, "true or false wanted")
		bad(`"natural":true`, "a set of members wanted")
	})
	t.Run("[operations/CD10] of a message", func(t *testing.T) {
		text := func(said string) string {
			return `{"asyncapi":"3.0.0","operations":{"r":{"action":"receive","x-idempotency":{` + said + `}}}}`
		}
		ok := func(said string) {
			t.Helper()
			if err := check(t, text(said)); err != nil {
				t.Errorf("%s: %v", said, err)
			}
		}
		bad := func(said, why string) {
			t.Helper()
			if err := check(t, text(said)); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %s", said, err, why)
			}
		}
		ok(`"id":{"in":"header","name":"ce-id","required":true}`)
		ok(`"id":{"in":"payload","name":"/id"}`)
		ok(`"id":{"in":"broker","name":"offset"}`)
		ok(`"keyedBy":["source","id"]`)
		ok(`"guard":"leased"`)
		ok(`"retention":"P7D"`)
		ok(`"sameIdOtherBody":"park"`)
		ok(`"sameIdOtherBody":"duplicate"`)
		ok(`"missingId":"digest"`)
		ok(`"order":"serial","orderKey":"/entity"`)
		ok(`"attempts":10,"deadLetter":"orders.dead"`)
		ok(`"duplicates":"possible","window":"PT2M"`)
		ok(`"supported":false,"reason":"metrics"`)

		bad(`"id":"ce-id"`, "a set of members wanted")
		bad(`"id":{"in":"cookie"}`, "one of header payload broker wanted")
		bad(`"guard":"upstream"`, "one of atomic leased wanted")
		bad(`"retention":"7d"`, "no ISO 8601 duration")
		bad(`"sameIdOtherBody":"ignore"`, "one of park duplicate reject run wanted")
		bad(`"missingId":"guess"`, "one of park digest position reject run wanted")
		bad(`"order":"fifo"`, "one of none serial latest contiguous wanted")
		bad(`"attempts":"ten"`, "a whole number wanted")
		bad(`"duplicates":true`, "one of possible none wanted")
		bad(`"key":{}`, `unknown member "key"`)
	})
	t.Run("every mistake at once, in the order of the document", func(t *testing.T) {
		err := check(t, "{\"openapi\":\"3.1.0\",\"x-idempotency\":{\"guard\":1},\n\"paths\":{\"/a\":{\"post\":{\n\"x-idempotency\":{\"retention\":1,\n\"kye\":{}}}}}}")
		if err == nil {
			t.Fatal("no error")
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "doc.json:1:") || !strings.HasPrefix(lines[1], "doc.json:3:") || !strings.HasPrefix(lines[2], "doc.json:4:") {
			t.Errorf("%s", err)
		}
	})
}

// TestDefaults: the root's member holds where an operation says nothing of it.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const text = `{
  "openapi": "3.1.0",
  "x-idempotency": {
    "key": {
      "in": "header",
      "name": "Idempotency-Key",
      "required": true
    },
    "retention": "PT24H",
    "keyedBy": ["tenant", "key"]
  },
  "paths": {
    "/plain": {
      "post": {}
    },
    "/longer": {
      "post": {
        "x-idempotency": {
          "retention": "P7D",
          "key": {
            "required": false
          }
        }
      }
    },
    "/out": {
      "post": {
        "x-idempotency": {
          "supported": false,
          "reason": "logs"
        }
      }
    },
    "/natural": {
      "put": {
        "x-idempotency": {
          "natural": {
            "reason": "sets it"
          }
        }
      }
    }
  }
}`
	d := load(t, text)
	none := load(t, `{"openapi":"3.1.0","paths":{}}`)
	gone := map[string]string{}
	for _, c := range contract.Diff(d, none) {
		gone[c.Where] = c.Why
	}
	if len(gone) != 2 || gone["POST /plain"] == "" || gone["POST /longer"] == "" {
		t.Errorf("keyed by the root: %v", gone)
	}
	shorter := load(t, strings.Replace(text, `"retention": "PT24H"`, `"retention": "PT1H"`, 1))
	changes := contract.Diff(d, shorter)
	if len(changes) != 1 || changes[0].Where != "POST /plain" || changes[0].Line != 9 {
		t.Errorf("only what the operation does not say itself: %v", changes)
	}
	required := load(t, strings.Replace(text, `"required": false`, `"required": true`, 1))
	changes = contract.Diff(d, required)
	if len(changes) != 1 || changes[0].Where != "POST /longer" || changes[0].Member != "key.required" {
		t.Errorf("merged member by member: %v", changes)
	}
}
