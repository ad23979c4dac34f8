package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

// goodPretty is an operation that no rule finds anything in.
const goodPretty = `{
  "parameters": [
    {
      "name": "Idempotency-Key",
      "in": "header",
      "required": true,
      "schema": {
        "type": "string",
        "format": "uuid",
        "maxLength": 36
      }
    }
  ],
  "responses": {
    "201": {
      "headers": {
        "Idempotent-Replayed": {}
      }
    },
    "400": {},
    "409": {},
    "422": {}
  },
  "x-idempotency": {
    "key": {
      "in": "header",
      "name": "Idempotency-Key",
      "required": true,
      "format": "uuid",
      "maxLength": 36
    },
    "keyedBy": [
      "tenant",
      "key"
    ],
    "retention": "PT24H",
    "expired": {
      "status": 410
    },
    "missing": {
      "status": 400
    },
    "mismatch": {
      "status": 422
    },
    "inProgress": {
      "status": 409,
      "max": "PT1M"
    },
    "replayed": {
      "statuses": [
        "2XX"
      ],
      "marker": {
        "header": "Idempotent-Replayed",
        "value": "true"
      }
    }
  }
}`

// finePretty is a document of messages that no rule finds anything in.
const finePretty = `{
  "asyncapi": "3.0.0",
  "channels": {
    "c": {
      "address": "a",
      "bindings": {
        "kafka": {
          "topicConfiguration": {
            "retention.ms": 86400000
          }
        }
      },
      "messages": {
        "m": {
          "headers": {
            "properties": {
              "id": {
                "type": "string"
              }
            }
          }
        }
      }
    }
  },
  "operations": {
    "receive": {
      "action": "receive",
      "channel": {
        "$ref": "#/channels/c"
      },
      "x-idempotency": {
        "id": {
          "in": "header",
          "name": "id"
        },
        "guard": "atomic",
        "retention": "P1D",
        "sameIdOtherBody": "park",
        "missingId": "park",
        "order": "serial",
        "orderKey": "k"
      }
    },
    "send": {
      "action": "send",
      "channel": {
        "$ref": "#/channels/c"
      },
      "x-idempotency": {
        "id": {
          "in": "header",
          "name": "id"
        },
        "duplicates": "possible"
      }
    }
  }
}`

// compact is a document on one line, where tests replace parts of it.
func compact(text string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		panic(err)
	}
	return b.String()
}

func rulesOf(found []contract.Finding) (ids []string) {
	for _, f := range found {
		ids = append(ids, f.Rule)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func lint(t *testing.T, text string, o contract.LintOptions) []contract.Finding {
	t.Helper()
	found, err := load(t, text).Lint(o)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLint(t *testing.T) {
	t.Parallel()
	good := compact(goodPretty)
	// only changes the good operation and expects findings of the rules, separated by spaces.
	only := func(t *testing.T, rules string, replace ...string) {
		t.Helper()
		text := strings.NewReplacer(replace...).Replace(good)
		if len(replace) > 0 && text == good {
			t.Fatalf("void: %q is not there", replace[0])
		}
		if got := strings.Join(rulesOf(lint(t, doc(text), contract.LintOptions{})), " "); got != rules {
			t.Errorf("%q: %q, want %q", replace, got, rules)
		}
	}
	t.Run("nothing", func(t *testing.T) { only(t, "") })
	t.Run("[conformance/C01] a key, natural, or an opt-out, each with its reason", func(t *testing.T) {
		ok, bad := func(x string) {
			t.Helper()
			if f := lint(t, doc(x), contract.LintOptions{}); len(f) != 0 {
				t.Error(x, f)
			}
		}, func(x string) {
			t.Helper()
			if f := lint(t, doc(x), contract.LintOptions{}); strings.Join(rulesOf(f), " ") != "C01" || f[0].Severity != contract.SeverityError {
				t.Error(x, f)
			}
		}
		ok(`{"x-idempotency":{"natural":{"reason":"sets it"}}}`)
		ok(`{"x-idempotency":{"supported":false,"reason":"logs"}}`)
		bad(`{}`)
		bad(`{"x-idempotency":{"retention":"P1D"}}`)
		bad(`{"x-idempotency":{"natural":{}}}`)
		bad(`{"x-idempotency":{"natural":{"reason":" "}}}`)
		bad(`{"x-idempotency":{"supported":false}}`)
		for method, want := range map[string]int{"get": 0, "head": 0, "options": 0, "put": 1, "delete": 1, "patch": 1} {
			if f := lint(t, strings.Replace(doc(`{}`), `"post"`, `"`+method+`"`, 1), contract.LintOptions{}); len(f) != want {
				t.Error(method, f)
			}
		}
	})
	t.Run("C02 whether it is required, stated and the same", func(t *testing.T) {
		only(t, "C02", `"in":"header","required":true,"schema"`, `"in":"header","required":false,"schema"`)
		only(t, "C02", `"parameters"`, `"x-parameters"`)
		only(t, "C02", `"x-idempotency":{"key":{"in":"header"`, `"x-idempotency":{"key":{"in":"body"`, `"name":"Idempotency-Key","required":true,"format"`, `"name":"/key","format"`)
	})
	t.Run("[conformance/C03] no fixed value, wherever it can come from", func(t *testing.T) {
		for _, v := range []string{`"example":"a"`, `"default":"a"`, `"const":"a"`, `"enum":["a"]`, `"examples":["a"]`} {
			only(t, "C03", `"maxLength":36}}]`, `"maxLength":36,`+v+`}}]`)
		}
		only(t, "", `"maxLength":36}}]`, `"maxLength":36,"enum":["a","b"]}}]`)
		only(t, "C03", `"in":"header","required":true,"schema"`, `"in":"header","required":true,"example":"a","schema"`)
		only(t, "C03", `"in":"header","required":true,"schema"`, `"in":"header","required":true,"examples":{"one":{"value":"a"}},"schema"`)
		only(t, "C03", `"schema":{"type":"string","format":"uuid","maxLength":36}`, `"schema":{"allOf":[{"maxLength":36,"format":"uuid"},{"anyOf":[{"default":"x"}]}]}`)
		body := func(media string) string {
			return strings.NewReplacer(`"key":{"in":"header","name":"Idempotency-Key"`, `"key":{"in":"body","name":"/key"`,
				`"parameters":[{"name":"Idempotency-Key","in":"header","required":true,"schema":{"type":"string","format":"uuid","maxLength":36}}]`,
				`"requestBody":{"content":{"application/json":{`+media+`"schema":{"required":["key"],"properties":{"key":{"maxLength":36}}}}}}`).Replace(good)
		}
		for media, want := range map[string]string{``: "", `"example":{"key":"a"},`: "C03", `"examples":{"one":{"value":{"key":"a"}}},`: "C03", `"example":{"amount":1},`: ""} {
			if got := strings.Join(rulesOf(lint(t, doc(body(media)), contract.LintOptions{})), " "); got != want {
				t.Errorf("%s: %q", media, got)
			}
		}
	})
	t.Run("[conformance/C04] format and length", func(t *testing.T) {
		only(t, "C04", `"format":"uuid",`, ``)
		only(t, "C04", `"format":"uuid","maxLength":36}}`, `"format":"uuid"}}`, `"required":true,"format":"uuid","maxLength":36},"keyedBy"`, `"required":true,"format":"uuid"},"keyedBy"`)
	})
	t.Run("[conformance/C05] retention, and what follows", func(t *testing.T) {
		only(t, "C05", `"retention":"PT24H",`, ``)
		only(t, "C05", `"expired":{"status":410},`, ``)
		only(t, "", `"expired":{"status":410},`, `"tombstone":"P10D",`)
		only(t, "", `"retention":"PT24H","expired":{"status":410},`, `"retention":"forever",`)
	})
	t.Run("[conformance/C06] missing, mismatch, in progress: stated, and among the responses", func(t *testing.T) {
		for _, one := range []string{`"missing":{"status":400},`, `"mismatch":{"status":422},`} {
			only(t, "C06", one, ``)
		}
		only(t, "C06", `"422":{}`, `"423":{}`)
		only(t, "", `"422":{}`, `"4XX":{}`)
		only(t, "", `"422":{}`, `"default":{}`)
		only(t, "C06 C10", `"inProgress":{"status":409,"max":"PT1M"},`, ``)
		only(t, "", `"inProgress":{"status":409,"max":"PT1M"}`, `"inProgress":{"wait":"PT30S","max":"PT1M"}`)
	})
	t.Run("[conformance/C07] the marker, on every 2xx, and for browsers", func(t *testing.T) {
		only(t, "C07", `,"marker":{"header":"Idempotent-Replayed","value":"true"}`, ``)
		only(t, "C07", `"400":{}`, `"202":{},"400":{}`)
		only(t, "C07", `{"Idempotent-Replayed":{}}`, `{"Idempotent-Replayed":{},"Access-Control-Allow-Origin":{}}`)
		only(t, "C07", `{"Idempotent-Replayed":{}}`, `{"Idempotent-Replayed":{},"Access-Control-Expose-Headers":{"schema":{"const":"Location"}}}`)
		only(t, "", `{"Idempotent-Replayed":{}}`, `{"Idempotent-Replayed":{},"Access-Control-Expose-Headers":{"schema":{"const":"Location, idempotent-replayed"}}}`)
	})
	t.Run("[conformance/C08] which statuses are given again", func(t *testing.T) { only(t, "C08", `"statuses":["2XX"],`, ``) })
	t.Run("[conformance/C09] the scope", func(t *testing.T) { only(t, "C09", `"keyedBy":["tenant","key"],`, ``) })
	t.Run("[conformance/C10] waits or refuses, and how long", func(t *testing.T) {
		only(t, "C10", `,"max":"PT1M"`, ``)
	})
	t.Run("[conformance/C11] against a baseline", func(t *testing.T) {
		before := load(t, doc(good))
		after := strings.Replace(good, "PT24H", "PT1H", 1)
		if f := lint(t, doc(after), contract.LintOptions{Baseline: before}); strings.Join(rulesOf(f), " ") != "C11" || !strings.Contains(f[0].Message, "retention is shorter") {
			t.Error(f)
		}
		if f := lint(t, doc(good), contract.LintOptions{Baseline: before}); len(f) != 0 {
			t.Error(f)
		}
	})
	t.Run("[conformance/C12] hints for SDKs", func(t *testing.T) {
		only(t, "C12", `{"parameters"`, `{"x-fern-idempotent":false,"parameters"`)
		only(t, "", `{"parameters"`, `{"x-fern-idempotent":true,"x-speakeasy-retries":{},"parameters"`)
		for x, want := range map[string]string{`"x-fern-idempotent":true,`: "C12", `"x-speakeasy-retries":{},`: "C12", ``: ""} {
			if f := lint(t, doc(`{`+x+`"x-idempotency":{"supported":false,"reason":"r"}}`), contract.LintOptions{}); strings.Join(rulesOf(f), " ") != want {
				t.Error(x, f)
			}
		}
		other := strings.Replace(doc(strings.Replace(good, `{"parameters"`, `{"x-fern-idempotent":true,"parameters"`, 1)), `"paths"`, `"x-fern-idempotency-headers":[{"header":"X-Other"}],"paths"`, 1)
		if f := lint(t, other, contract.LintOptions{}); strings.Join(rulesOf(f), " ") != "C12" {
			t.Error(f)
		}
	})
	t.Run("[conformance/C13] a key that is made anew on every attempt", func(t *testing.T) {
		for _, name := range []string{"X-Request-Id", "traceparent", "X-B3-TraceId", "x-correlation-id"} {
			only(t, "C13", "Idempotency-Key", name)
		}
	})
}

func TestLintAsync(t *testing.T) {
	t.Parallel()
	fine := compact(finePretty)
	only := func(t *testing.T, rules string, replace ...string) {
		t.Helper()
		text := strings.NewReplacer(replace...).Replace(fine)
		if len(replace) > 0 && text == fine {
			t.Fatalf("void: %q", replace[0])
		}
		if got := strings.Join(rulesOf(lint(t, text, contract.LintOptions{})), " "); got != rules {
			t.Errorf("%q: %q, want %q", replace, got, rules)
		}
	}
	only(t, "")
	only(t, "A01", `"x-idempotency":{"id":{"in":"header","name":"id"},"duplicates":"possible"}`, `"x":1`)
	only(t, "", `"x-idempotency":{"id":{"in":"header","name":"id"},"duplicates":"possible"}`, `"x-idempotency":{"supported":false,"reason":"r"}`)
	only(t, "A01", `"x-idempotency":{"id":{"in":"header","name":"id"},"duplicates":"possible"}`, `"x-idempotency":{"supported":false}`)
	only(t, "A02", `"retention":"P1D",`, ``)
	only(t, "A02", `"retention":"P1D",`, `"retention":"PT23H",`)
	only(t, "A02", `86400000`, `-1`)
	only(t, "", `"retention":"P1D"`, `"retention":"forever"`, `86400000`, `-1`)
	only(t, "A02", `"kafka":{"topicConfiguration":{"retention.ms":86400000}}`, `"sqs":{"queue":{"messageRetentionPeriod":345600}}`)
	only(t, "A03", `"missingId":"park",`, ``)
	only(t, "A04", `{"type":"string"}`, `{"type":"string","const":"x"}`)
	only(t, "A04", `{"m":{`, `{"m":{"examples":[{"headers":{"id":"1"}}],`)
	only(t, "A05", `,"orderKey":"k"`, ``)
	only(t, "", `,"order":"serial","orderKey":"k"`, `,"order":"none"`)
	only(t, "A06", `"guard":"atomic",`, ``)
	t.Run("a message says more than its operation", func(t *testing.T) {
		only(t, "A02", `{"m":{`, `{"m":{"x-idempotency":{"retention":"PT1H"},`)
	})
}

func TestSeverities(t *testing.T) {
	t.Parallel()
	good := compact(goodPretty)
	t.Run("[operations/CD8] severity by rule; turned off in one place, with a reason", func(t *testing.T) {
		bare := strings.Replace(good, `,"marker":{"header":"Idempotent-Replayed","value":"true"}`, ``, 1)
		for s, want := range map[contract.Severity]int{contract.SeverityError: 1, contract.SeverityNote: 1, contract.SeverityOff: 0} {
			f := lint(t, doc(bare), contract.LintOptions{Severities: map[string]contract.Severity{"C07": s}})
			if len(f) != want || want == 1 && f[0].Severity != s {
				t.Error(s, f)
			}
		}
		off := func(x string) string {
			return doc(strings.Replace(bare, `{"parameters"`, "{\n\"x-idempotency-lint\":"+x+`,"parameters"`, 1))
		}
		if f := lint(t, off(`{"off":["C07"],"reason":"no browser"}`), contract.LintOptions{}); len(f) != 0 {
			t.Error(f)
		}
		everywhere := strings.Replace(doc(bare), `"paths"`, `"x-idempotency-lint":{"off":["C07"],"reason":"r"},"paths"`, 1)
		if f := lint(t, everywhere, contract.LintOptions{}); len(f) != 0 {
			t.Error(f)
		}
		for x, want := range map[string]string{`{"off":["C07"]}`: "without a reason", `{"off":["C99"],"reason":"r"}`: `no rule "C99"`, `{"off":"C07","reason":"r"}`: "is written {off", `{"off":["C07"],"reason":"r","x":1}`: "is written {off"} {
			if _, err := load(t, off(x)).Lint(contract.LintOptions{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "doc.json:2:") {
				t.Errorf("%s: %v", x, err)
			}
		}
		for o, want := range map[[2]string]string{{"C99", "off"}: `no rule "C99"`, {"C07", "loud"}: `no severity "loud"`} {
			if _, err := load(t, doc(good)).Lint(contract.LintOptions{Severities: map[string]contract.Severity{o[0]: contract.Severity(o[1])}}); err == nil || !strings.Contains(err.Error(), want) {
				t.Error(o, err)
			}
		}
	})
}

func TestImported(t *testing.T) {
	t.Parallel()
	t.Run("[operations/CD11] other conventions are read as declarations, with what they leave open", func(t *testing.T) {
		ok := func(operation, key, note string) {
			t.Helper()
			text := strings.Replace(doc(operation), `"paths"`, `"components":{"schemas":{"Config":{"properties":{"idempotency-key-lifetime":{"type":"string"}}}}},"x-fern-idempotency-headers":[{"header":"Order-Key"}],"paths"`, 1)
			var notes []string
			for _, f := range lint(t, text, contract.LintOptions{}) {
				if f.Severity == contract.SeverityNote {
					notes = append(notes, f.Message)
				}
				if f.Rule == "C01" && f.Severity == contract.SeverityError {
					t.Errorf("%s: %v", operation, f)
				}
			}
			if len(notes) != 1 || !strings.Contains(notes[0], note) || !strings.Contains(notes[0], "leaves open") {
				t.Errorf("%s: %q", operation, notes)
			}
			if c := contract.Diff(load(t, doc(`{}`)), load(t, text)); len(c) == 0 || c[0].New != strings.ToLower(key) {
				t.Errorf("%s: %+v", operation, c)
			}
		}
		ok(`{"x-fern-idempotent":true}`, "Order-Key", "x-fern-idempotent")
		ok(`{"parameters":[{"name":"Repeatability-Request-ID","in":"header"},{"name":"Repeatability-First-Sent","in":"header"}]}`, "Repeatability-Request-ID", "OASIS")
		ok(`{"parameters":[{"name":"Idempotency-Key","in":"header"}]}`, "Idempotency-Key", "Iceberg")
		ok(`{"parameters":[{"name":"requestId","in":"query"}]}`, "requestId", "AIP-155")
		ok(`{"requestBody":{"content":{"application/json":{"schema":{"allOf":[{"properties":{"request_id":{}}}]}}}}}`, "/request_id", "AIP-155")
		ok(`{"requestBody":{"content":{"application/json":{"schema":{"properties":{"clientToken":{}}}}}}}`, "/clientToken", "Smithy")
		ok(`{"parameters":[{"name":"token","in":"query","x-smithy-idempotency-token":true}]}`, "token", "Smithy")
	})
}

func TestReports(t *testing.T) {
	t.Parallel()
	found := lint(t, doc(`{}`), contract.LintOptions{})
	if got := found[0].String(); got != `doc.json:1:70 C01 error POST /p: no key is declared: state one in x-idempotency, or natural or supported: false, each with its reason` {
		t.Error(got)
	}
	var s struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID, Level string
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(contract.SARIF(found, "1"), &s); err != nil || s.Version != "2.1.0" || len(s.Runs[0].Tool.Driver.Rules) != len(contract.Rules()) {
		t.Fatal(err, s)
	}
	r := s.Runs[0].Results[0]
	if at := r.Locations[0].PhysicalLocation; r.RuleID != "C01" || r.Level != "error" || at.ArtifactLocation.URI != "doc.json" || at.Region.StartLine != 1 || at.Region.StartColumn != found[0].Col {
		t.Errorf("%+v", r)
	}
}

func TestLintMany(t *testing.T) {
	t.Parallel()
	good := compact(goodPretty)
	var paths []string
	for i := range 5000 {
		paths = append(paths, fmt.Sprintf(`"/p%d":{"post":%s}`, i, good))
	}
	text := `{"openapi":"3.1.0","paths":{` + strings.Join(paths, ",") + `}}`
	calls, last := 0, 0
	found, err := load(t, text).Lint(contract.LintOptions{Progress: func(done, total int) {
		if calls++; done != calls || total != 5000 {
			t.Fatal(done, total)
		}
		last = done
	}})
	if err != nil || len(found) != 0 || last != 5000 {
		t.Error(err, len(found), last)
	}
}
