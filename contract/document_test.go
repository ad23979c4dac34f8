package contract_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
)

func TestParseJSON(t *testing.T) {
	t.Parallel()
	ok := func(text string) {
		t.Helper()
		n, err := contract.ParseJSON("d.json", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		again, err := contract.ParseJSON("d.json", contract.JSON(n))
		if err != nil || string(contract.JSON(again)) != string(contract.JSON(n)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	bad := func(text, want string) {
		t.Helper()
		if _, err := contract.ParseJSON("d.json", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	ok(`{"a": [1, 2.5e9, "ü\n", null, true, false, {}, []]}`)
	ok("\xef\xbb\xbf{}")
	ok(`12345678901234567890`)
	bad(``, "d.json:1:1: not JSON: it ends too early")
	bad("{\n \"a\": 1,\n \"a\": 2}", `d.json:3:2: the name "a" is there twice`)
	bad("{\n  \"a\": tru\n}", "d.json:2:")
	bad(`{} {}`, "d.json:1:4: not JSON: text after the end")
	bad(`[1,]`, "d.json:1:")
	bad(strings.Repeat("[", 300)+strings.Repeat("]", 300), "d.json:1:202: nested too deep")
	t.Run("places count characters", func(t *testing.T) {
		n, err := contract.ParseJSON("d.json", []byte("{\n  \"ü\": \"ü\", \"b\": 1}"))
		if err != nil || n.Members[1].Line != 2 || n.Members[1].Col != 13 || n.Get("b").Col != 18 {
			t.Errorf("%v %+v", err, n.Members)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,"b"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := contract.ParseJSON("x", b)
		if p, ok := errors.AsType[*contract.Problem](err); err != nil && (!ok || p.Line < 1) {
			t.Error(err)
		}
		if err == nil {
			if _, err := contract.ParseJSON("x", contract.JSON(n)); err != nil {
				t.Error(err)
			}
			contract.YAML(n)
		}
	})
}

func TestDuration(t *testing.T) {
	t.Parallel()
	ok := func(text string, want time.Duration) {
		t.Helper()
		if d, err := contract.ParseDuration(text); err != nil || d != want {
			t.Errorf("%s: %v %v", text, d, err)
		}
		if d, err := contract.ParseDuration(contract.FormatDuration(want)); err != nil || d != want {
			t.Errorf("%s: back as %s", text, contract.FormatDuration(want))
		}
	}
	bad := func(text string) {
		t.Helper()
		if d, err := contract.ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
	ok("PT24H", 24*time.Hour)
	ok("P1D", 24*time.Hour)
	ok("P30D", 720*time.Hour)
	ok("P1W", 168*time.Hour)
	ok("PT1H30M0.5S", 90*time.Minute+500*time.Millisecond)
	ok("P1Y2M", (365+60)*24*time.Hour)
	ok("PT0S", 0)
	ok("forever", idempo.Forever)
	for _, text := range []string{"", "P", "PT", "24h", "P1H", "1D", "P1DT", "P-1D", "P999Y", "pt1h"} {
		bad(text)
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	ok := func(text, want string) {
		t.Helper()
		n, err := contract.ParseJSON("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(contract.YAML(n)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	ok(`{"a":"text","b":"true","c":"12","d":"a: b","e":"","f":"no","g":"#x","h":null,"i":1.5}`, "a: text\nb: \"true\"\nc: \"12\"\nd: \"a: b\"\ne: \"\"\nf: \"no\"\ng: \"#x\"\nh: null\ni: 1.5\n")
	ok(`{"200":{"x":[]},"l":[1,"a,b"],"m":[{"a":1,"b":2},[3]]}`, "\"200\":\n  x: []\nl: [1, \"a,b\"]\nm:\n  - a: 1\n    b: 2\n  - - 3\n")
	ok(`{}`, "{}\n")
	ok(`"x"`, "x\n")
}

func doc(operation string) string {
	return `{"openapi":"3.1.0","info":{"title":"x","version":"1"},"paths":{"/p":{"post":` + operation + `}}}`
}

func TestLoad(t *testing.T) {
	t.Parallel()
	bad := func(t *testing.T, text, want string) {
		t.Helper()
		_, err := contract.Load("doc.json", []byte(text), contract.Files{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %s", text, err, want)
		}
	}
	t.Run("members that there are not, and what is of another type", func(t *testing.T) {
		x := func(said string) string { return doc("{\n\"x-idempotency\":" + said + "}") }
		bad(t, x(`{"retentoin":"P1D"}`), `doc.json:2:18: unknown member "retentoin" of x-idempotency: did you mean retention?`)
		bad(t, x(`{"key":{"lenght":1}}`), `unknown member "lenght"`)
		bad(t, x(`{"retention":"1d"}`), `no ISO 8601 duration`)
		bad(t, x(`{"guard":"exact"}`), `one of atomic leased upstream wanted, found "exact"`)
		bad(t, x(`{"mismatch":{"status":"422"}}`), `a status from 200 to 599 wanted, found "422"`)
		bad(t, x(`{"replayed":{"statuses":["9XX"]}}`), `a class such as 2XX wanted, found "9XX"`)
		bad(t, x(`{"supported":"no"}`), `true or false wanted`)
		bad(t, x(`{"keyedBy":"tenant"}`), `a list wanted, found "tenant"`)
		bad(t, x(`{"keyedBy":[1]}`), `text wanted, found 1`)
		bad(t, x(`{"key":[]}`), `a set of members wanted, found a list`)
		bad(t, x(`{"guard":1,"reason":{}}`), "\n") // both
		bad(t, `{"openapi":"3.1.0","x-idempotency":{"nothing":1}}`, `unknown member "nothing"`)
	})
	t.Run("[operations/CD12] what is no document of a known version", func(t *testing.T) {
		bad(t, `{"swagger":"2.0"}`, "doc.json:1:12: Swagger 2.0 is not read")
		bad(t, `{"openapi":"4.0.0"}`, "OpenAPI 4.0.0 is not known")
		bad(t, `{"asyncapi":"2.6.0"}`, "AsyncAPI 2.6.0 is not known")
		bad(t, `{}`, "neither an OpenAPI nor an AsyncAPI document")
		bad(t, `[]`, "no document")
		bad(t, `{"openapi":`, "doc.json:1:12: not JSON")
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"api/paths/pay.json":   `{"parameters":[{"$ref":"../key.json#/components/parameters/key"}],"post":{"x-idempotency":{"key":{"in":"header","name":"Idempotency-Key","required":true,"format":"uuid","maxLength":36}},"responses":{}}}`,
		"api/key.json":         `{"components":{"parameters":{"key":{"name":"Idempotency-Key","in":"header","required":true,"schema":{"$ref":"#/components/schemas/a~1b"}}},"schemas":{"a/b":{"type":"string","example":"order-1"}}}}`,
		"http://x.test/p.json": `{"post":{"$ref":"q.json"}}`,
	}
	open := func(name string) ([]byte, error) {
		if b, ok := files[name]; ok {
			return []byte(b), nil
		}
		return nil, errors.New("no such file")
	}
	root := func(ref string) []byte {
		return fmt.Appendf(nil, `{"openapi":"3.1.0","paths":{"/p":{"$ref":%q}}}`, ref)
	}
	t.Run("other files, path-level parameters, components, escapes", func(t *testing.T) {
		d, err := contract.Load("api/doc.json", root("paths/pay.json"), contract.Files{Open: open})
		if err != nil {
			t.Fatal(err)
		}
		found, err := d.Lint(contract.LintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rules := map[string]contract.Finding{}
		for _, f := range found {
			rules[f.Rule] = f
		}
		if f := rules["C03"]; f.File != "api/key.json" || f.Line != 1 {
			t.Errorf("the example two files away: %+v", found)
		}
		if _, ok := rules["C02"]; ok {
			t.Errorf("the parameter is declared by the path: %+v", found)
		}
	})
	bad := func(ref, want string, f contract.Files) {
		t.Helper()
		if _, err := contract.Load("api/doc.json", root(ref), f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
	}
	bad("missing.json", "no such file", contract.Files{Open: open})
	bad("paths/pay.json#/nowhere", `there is no "nowhere"`, contract.Files{Open: open})
	bad("#/paths/~1p", "leads to itself", contract.Files{})
	bad("paths/pay.json", "none may be opened", contract.Files{})
	bad("http://x.test/p.json", "leads to the network, which is not asked", contract.Files{Open: open})
	t.Run("the network, where it is allowed", func(t *testing.T) {
		asked := 0
		_, err := contract.Load("api/doc.json", root("http://x.test/p.json"), contract.Files{Open: open, Fetch: func(a string) ([]byte, error) { asked++; return open(a) }})
		if asked != 1 || err != nil {
			t.Error(asked, err)
		}
	})
}
