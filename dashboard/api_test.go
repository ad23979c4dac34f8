package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/dashboard"
	"github.com/idempo/idempo/operator"
)

// document is the OpenAPI document, as far as answers are checked against it.
type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct{ Schema any }
		}
	}
	Components struct{ Schemas map[string]any }
}

// check compares an answer with what the document says of it.
func (d document) check(t *testing.T, method, template string, a answered) {
	t.Helper()
	op, ok := d.Paths[template][strings.ToLower(method)]
	if !ok {
		t.Fatalf("the document has no %s %s", method, template)
	}
	resp, ok := op.Responses[fmt.Sprint(a.status)]
	if !ok {
		resp = op.Responses["default"]
	}
	media, ok := resp.Content[a.head.Get("Content-Type")]
	if !ok {
		t.Fatalf("%s %s: %d with type %q is not in the document", method, template, a.status, a.head.Get("Content-Type"))
	}
	var body any
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range d.differs(media.Schema, body, "$") {
		t.Errorf("%s %s: %s in %s", method, template, wrong, a.body)
	}
}

// differs says where v is not what schema describes. It knows the words that the document uses, and no others.
func (d document) differs(schema, v any, at string) (wrong []string) {
	s := schema.(map[string]any)
	if len(s) == 0 {
		return nil // anything
	}
	for word := range s {
		if !slices.Contains([]string{"$ref", "type", "const", "enum", "pattern", "format", "required", "properties", "additionalProperties", "items", "oneOf", "description", "contentEncoding",
			"minLength", "maxLength", "minimum", "maximum"}, word) {
			wrong = append(wrong, at+": the check does not know "+word)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		return append(wrong, d.differs(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v, at)...)
	}
	if one, ok := s["oneOf"].([]any); ok {
		for _, each := range one {
			if len(d.differs(each, v, at)) == 0 {
				return wrong
			}
		}
		return append(wrong, at+": none of oneOf")
	}
	kind := "null"
	switch x := v.(type) {
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		if kind = "number"; x == float64(int64(x)) {
			kind = "integer"
		}
	case []any:
		kind = "array"
		for i, item := range x {
			wrong = append(wrong, d.differs(s["items"], item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case map[string]any:
		kind = "object"
		properties, _ := s["properties"].(map[string]any)
		for name, member := range x {
			each := properties[name]
			if each == nil {
				each = s["additionalProperties"]
			}
			if _, ok := each.(map[string]any); !ok {
				wrong = append(wrong, at+"."+name+": not in the document")
				continue
			}
			wrong = append(wrong, d.differs(each, member, at+"."+name)...)
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := x[name.(string)]; !ok {
				wrong = append(wrong, at+": no "+name.(string))
			}
		}
	}
	if want, ok := s["type"].(string); ok && want != kind {
		wrong = append(wrong, at+": "+kind+", want "+want)
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		wrong = append(wrong, fmt.Sprintf("%s: %v is none of %v", at, v, enum))
	}
	if c, ok := s["const"]; ok && c != v {
		wrong = append(wrong, fmt.Sprintf("%s: %v, want %v", at, v, c))
	}
	if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(fmt.Sprint(v)) {
		wrong = append(wrong, fmt.Sprintf("%s: %v does not match %s", at, v, p))
	}
	return wrong
}

func TestAPI(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	var doc document
	if a := b.get("/api/v1/openapi.json"); json.Unmarshal([]byte(a.body), &doc) != nil || a.head.Get("Content-Type") != "application/json" {
		t.Fatal(a)
	}
	call := func(t *testing.T, method, template, path, body string) answered {
		t.Helper()
		r := b.request(method, "/api/v1"+path, body)
		r.Header.Set("Authorization", "Bearer x")
		a := b.send(r)
		doc.check(t, method, template, a)
		return a
	}
	doubt, other := b.doubt("a", "1"), b.doubt("a", "2")
	done := b.done("a", "3", idempo.Result{Status: 201, Body: []byte("\x00\xff"), Header: [][2]string{{"X", "y"}}, Resource: idempo.Resource{Type: "charge", ID: "ch_1"}})
	failing := b.done("a", "4", idempo.Result{Status: 402, Failing: true})
	running := b.claim("a", "pay", "5").Key.Ref()
	order := func(state, rest string) string {
		return `{"attempt":1,"state":"` + state + `","reason":"r"` + rest + `}`
	}
	t.Run("[operations/UI17] every answer is what the document says", func(t *testing.T) {
		says(t, call(t, "GET", "/counts", "/counts", ""), 200, `"in_doubt":2`, `"oldest_in_doubt"`)
		says(t, call(t, "GET", "/keys", "/keys?limit=2", ""), 200, `"next"`)
		says(t, call(t, "GET", "/keys", "/keys?state=exploded", ""), 422, `"code":"invalid"`)
		says(t, call(t, "GET", "/keys", "/keys?limit=0", ""), 422)
		for _, ref := range []string{doubt, done, failing, running} {
			says(t, call(t, "GET", "/keys/{ref}", "/keys/"+ref, ""), 200, ref)
		}
		says(t, call(t, "GET", "/keys/{ref}", "/keys/k_"+strings.Repeat("a", 26), ""), 404, `"code":"not_found"`)
		says(t, call(t, "POST", "/keys/{ref}/resolve", "/keys/"+doubt+"/resolve", order("in_doubt", `,"to":"failed","dry_run":true`)), 200, `"dry_run":true`)
		says(t, call(t, "POST", "/keys/{ref}/resolve", "/keys/"+doubt+"/resolve", order("in_doubt", `,"to":"completed","status":201,"result":"{}","resource":{"type":"charge","id":"ch_9"},"evidence":"https://x"`)), 200)
		says(t, call(t, "POST", "/keys/{ref}/resolve", "/keys/"+doubt+"/resolve", order("in_doubt", `,"to":"failed"`)), 409, `"code":"moved"`, `"by":"ann@host"`)
		says(t, call(t, "POST", "/keys/{ref}/resolve", "/keys/"+done+"/resolve", order("completed", `,"to":"failed"`)), 409, `"code":"wrong_state"`)
		says(t, call(t, "POST", "/keys/{ref}/release", "/keys/"+running+"/release", order("pending", "")), 200)
		says(t, call(t, "POST", "/keys/{ref}/retry", "/keys/"+failing+"/retry", order("completed", "")), 200)
		says(t, call(t, "POST", "/keys/{ref}/retry", "/keys/"+done+"/retry", order("completed", `,"force":true`)), 422, `"code":"confirm_needed"`)
		says(t, call(t, "POST", "/keys/{ref}/reveal", "/keys/"+done+"/reveal", order("completed", "")), 200, `"body":"AP8="`)
		says(t, call(t, "POST", "/keys/{ref}/purge", "/keys/"+other+"/purge", order("in_doubt", `,"include_in_doubt":true,"confirm":"`+other+`"`)), 200, `"key":null`)
		says(t, call(t, "GET", "/audit", "/audit?limit=3", ""), 200, `"next"`)
		says(t, call(t, "GET", "/audit", "/audit?outcome=refused&newest=false", ""), 200, "confirm_needed")
	})
	t.Run("[operations/UI17] an order that is none does nothing", func(t *testing.T) {
		ref := b.doubt("a", "9")
		for _, body := range []string{"", "[]", "{", `{"attempt":"1"}`, order("in_doubt", `,"to":"failed","unknown":1`), order("in_doubt", `,"to":"failed"`) + "{}", order("", `,"to":"failed"`), order("in_doubt", "")} {
			if a := call(t, "POST", "/keys/{ref}/resolve", "/keys/"+ref+"/resolve", body); a.status != 422 || b.state(ref) != idempo.StateInDoubt {
				t.Errorf("%s: %d %s", body, a.status, a.body)
			}
		}
	})
	t.Run("[operations/UI17] the rights are those of the pages", func(t *testing.T) {
		b.be(as(operator.RoleViewer))
		ref := b.doubt("a", "10")
		says(t, call(t, "POST", "/keys/{ref}/resolve", "/keys/"+ref+"/resolve", order("in_doubt", `,"to":"failed"`)), 404, "not_found")
		b.be(dashboard.Principal{})
		a := call(t, "GET", "/keys", "/keys", "")
		says(t, a, http.StatusUnauthorized, `"code":"unauthorized"`)
		if strings.Contains(a.body, "k_") {
			t.Error(a.body)
		}
	})
}
