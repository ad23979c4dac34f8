package docfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

func TestParse(t *testing.T) {
	t.Parallel()
	ok := func(text, want string) {
		t.Helper()
		n, err := Parse("d.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if got := strings.Join(strings.Fields(string(contract.JSON(n))), ""); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	bad := func(text, want string) {
		t.Helper()
		_, err := Parse("d.yaml", []byte(text))
		if _, isProblem := errors.AsType[*contract.Problem](err); !isProblem || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	ok("a: 1\nb: [true, ~, 1.5, \"2\", yes]\n200: x\n", `{"a":1,"b":[true,null,1.5,"2","yes"],"200":"x"}`)
	ok("a: &x {b: 1}\nc: *x\n", `{"a":{"b":1},"c":{"b":1}}`)
	ok("a: &x {b: 1, d: 2}\nc:\n  <<: *x\n  b: 3\n", `{"a":{"b":1,"d":2},"c":{"b":3,"d":2}}`)
	ok("a: 2026-01-01\nb: 0x1f\nc: .inf\n", `{"a":"2026-01-01","b":"0x1f","c":".inf"}`)
	ok(`{"a": [1]}`, `{"a":[1]}`)
	bad("", "d.yaml:1:1: the file is empty")
	bad("a: 1\na: 2\n", `d.yaml:2:1: the name "a" is there twice: lines 1 and 2`)
	bad("a: [1\nb: 2\n", "d.yaml:")
	bad("a: 1\n---\nb: 2\n", "d.yaml:2:1: a second document")
	bad("? [a]\n: 1\n", "d.yaml:1:3: a name is wanted")
	bad("a: &x\n  b: *x\n", "d.yaml:2:6: an alias inside")
	bad("{\"a\": 1", "d.yaml:1:")
	bad(strings.Repeat("- ", 300)+"x", "d.yaml:1:")
	t.Run("places", func(t *testing.T) {
		n, err := Parse("d.yaml", []byte("# c\na:\n  - b: {c: 1}\n"))
		if err != nil {
			t.Fatal(err)
		}
		c := n.Get("a").Items[0].Get("b", "c")
		if c.Line != 3 || c.Col != 12 || !n.Get("a").Items[0].Get("b").Flow || n.Flow {
			t.Errorf("%+v", c)
		}
	})
	t.Run("aliases that multiply", func(t *testing.T) {
		var text strings.Builder
		text.WriteString("a0: &a0 [x]\n")
		for i := range 30 {
			text.WriteString(fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i))
		}
		if _, err := Parse("d.yaml", []byte(text.String())); err != nil {
			t.Error(err) // each is one node, however often it is used
		}
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(dir, "a"); err != nil || string(b) != "x" {
		t.Error(string(b), err)
	}
	if _, err := Read(dir, "nothing"); err == nil || strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
	big, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(big.Truncate(MaxSize+1), big.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "big"); err == nil || !strings.Contains(err.Error(), "over 32 MiB") {
		t.Error(err)
	}
	if _, err := Files(dir).Open("a"); err != nil {
		t.Error(err)
	}
}

const blockDoc = `# our API
openapi: 3.1.0
info: {title: Pay, version: "1"}   # inline
x-base: &same
  responses:
    "200": {description: ok}
paths:
  # payments
  /v1/payments:
    parameters:
    - {name: id, in: query, schema: {type: string}}
    # creates
    post:
      summary: >
        Makes a payment.

        # not a comment
      parameters:   # ours
      - name: trace
        in: header
        schema: {type: string}

      responses:
        201: # made
          description: made
          headers:
            Location: {schema: {type: string}}
        "409": {description: ours}
        default:
          description: other

      # end of post
  /other:
    get: *same
`

// TestMerge is of package contract; it stands here because here is a YAML parser.
func TestMerge(t *testing.T) {
	t.Parallel()
	said := func(t *testing.T, retention string) *contract.Contract {
		t.Helper()
		c, err := contract.FromJSON([]byte(`{"endpoints":[{"method":"POST","path":"/v1/payments","x-idempotency":{"operation":"pay","key":{"in":"header","name":"Idempotency-Key","required":true},
			"retention":"` + retention + `","replayed":{"marker":{"header":"Idempotent-Replayed","value":"true"}}},"refusals":[{"status":409,"codes":["in_progress"]},{"status":422,"codes":["mismatch"]}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	merge := func(t *testing.T, text string, c *contract.Contract) string {
		t.Helper()
		b, missing, err := contract.Merge("d.yaml", []byte(text), Files(""), c)
		if err != nil || len(missing) > 0 {
			t.Fatalf("%v %v", err, missing)
		}
		return string(b)
	}
	t.Run("[operations/CD2] every line stays byte by byte, comments and order included; a second time changes nothing", func(t *testing.T) {
		for name, text := range map[string]string{"block": blockDoc, "no line end": strings.TrimRight(blockDoc, "\n"), "windows": strings.ReplaceAll(blockDoc, "\n", "\r\n"),
			"no parameters": strings.Replace(blockDoc, "      parameters:   # ours\n      - name: trace\n        in: header\n        schema: {type: string}\n", "", 1)} {
			one := merge(t, text, said(t, "PT24H"))
			rest := one
			for line := range strings.Lines(text) {
				at := strings.Index(rest, line)
				if at < 0 {
					t.Errorf("%s: %q is changed, gone or moved\n%s", name, line, one)
					break
				}
				rest = rest[at+len(line):]
			}
			if two := merge(t, one, said(t, "PT24H")); two != one {
				t.Errorf("%s: a second time changes something:\n%s", name, two)
			}
			d, err := contract.Load("d.yaml", []byte(one), Files(""))
			if err != nil {
				t.Fatal(err)
			}
			post := d.Root.Get("paths", "/v1/payments", "post")
			params := post.Get("parameters")
			if post.Get("x-idempotency", "operation").Value != "pay" || params.Items[len(params.Items)-1].Get("name").Value != "Idempotency-Key" ||
				post.Get("responses", "201", "headers", "Idempotent-Replayed") == nil || post.Get("responses", "201", "headers", "Location") == nil ||
				post.Get("responses", "422", "content") == nil || post.Get("responses", "409", "content") != nil || d.Root.Get("components", "schemas", "IdempotencyProblem") == nil {
				t.Errorf("%s: %s", name, one)
			}
		}
	})
	t.Run("[operations/CD2] an update changes its own lines", func(t *testing.T) {
		one := merge(t, blockDoc, said(t, "PT24H"))
		two := merge(t, one, said(t, "P7D"))
		if two != strings.Replace(one, "retention: PT24H", "retention: P7D", 1) || one == two {
			t.Errorf("%s", two)
		}
	})
}

func FuzzMergeYAML(f *testing.F) {
	f.Add([]byte(blockDoc))
	f.Add([]byte("openapi: 3.1.0\npaths: {/v1/payments: {post: {responses: {}}}}\n"))
	f.Add([]byte("openapi: 3.1.0\npaths:\n  /v1/payments:\n    post:\n      responses:\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c := contract.New("x", "1")
		c.Natural("POST /v1/payments", "r")
		one, _, err := contract.Merge("d.yaml", doc, contract.Files{Parse: Parse}, c)
		if err != nil {
			return
		}
		two, _, err := contract.Merge("d.yaml", one, contract.Files{Parse: Parse}, c)
		if err != nil || string(two) != string(one) {
			t.Errorf("a second merge: %v\n%s\n%s", err, one, two)
		}
	})
}
