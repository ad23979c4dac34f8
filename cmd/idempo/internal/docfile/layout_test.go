package docfile

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/contract"
)

// TestLayouts merges a small promise into documents that are written in every way people write YAML, and compares the whole result.
func TestLayouts(t *testing.T) {
	t.Parallel()
	c := contract.New("x", "1")
	c.Natural("PUT /v1/settings", "sets it")
	ok := func(name, before, after string) {
		t.Helper()
		t.Run("[operations/CD2] "+name, func(t *testing.T) {
			t.Helper()
			b, missing, err := contract.Merge("d.yaml", []byte(before), Files(""), c)
			if err != nil || len(missing) > 0 {
				t.Fatal(err, missing)
			}
			if string(b) != after {
				t.Errorf("%s\nwant\n%s", b, after)
			}
			again, _, err := contract.Merge("d.yaml", b, Files(""), c)
			if err != nil || string(again) != string(b) {
				t.Errorf("a second time: %v\n%s", err, again)
			}
		})
	}
	layoutsOfBlocks(ok)
	layoutsOfTexts(ok)
	layoutsOfComments(ok)
	layoutsOfBrackets(ok)
	layoutsOfPromises(ok)

	bad := func(name, text, want string) {
		t.Helper()
		t.Run("[operations/CD2] refused: "+name, func(t *testing.T) {
			t.Helper()
			if b, _, err := contract.Merge("d.yaml", []byte(text), Files(""), c); err == nil || b != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s\n%s", err, want, b)
			}
		})
	}
	bad("an explicit mapping over two lines", `openapi: 3.1.0
paths:
  /v1/settings:
    put: !!map {
      }
    x-idempotency: {broken
`, "d.yaml:")
	bad("another file holds the operation", `openapi: 3.1.0
paths:
  /v1/settings:
    $ref: nowhere.yaml
`, "nowhere.yaml")
}

// merges is a case of TestLayouts: a document before and after.
type merges func(name, before, after string)

func layoutsOfBlocks(ok merges) {
	ok("two spaces", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
      x-idempotency:
        natural:
          reason: sets it
`)
	ok("four spaces", `openapi: 3.1.0
paths:
    /v1/settings:
        put:
            summary: sets
    /other:
        get: {}
`, `openapi: 3.1.0
paths:
    /v1/settings:
        put:
            summary: sets
            x-idempotency:
              natural:
                reason: sets it
    /other:
        get: {}
`)
	ok("a list at the column of its name is the last member", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      tags:
      - a
      - b
    get: {}
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      tags:
      - a
      - b
      x-idempotency:
        natural:
          reason: sets it
    get: {}
`)
	ok("a list further in", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      tags:
        - a
        - b: 1
          c: 2
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      tags:
        - a
        - b: 1
          c: 2
      x-idempotency:
        natural:
          reason: sets it
`)
}

func layoutsOfTexts(ok merges) {
	ok("a literal text with an empty line and something like a comment", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: |
        One.

        # two
         three
  /other: {}
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: |
        One.

        # two
         three
      x-idempotency:
        natural:
          reason: sets it
  /other: {}
`)
	ok("a folded text at the end, kept", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: >-
        One
        two
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: >-
        One
        two
      x-idempotency:
        natural:
          reason: sets it
`)
	ok("a plain text over two lines", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: one
        two
      deprecated: true
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      description: one
        two
      deprecated: true
      x-idempotency:
        natural:
          reason: sets it
`)
}

func layoutsOfComments(ok merges) {
	ok("comments between, behind and after", `# the API
openapi: 3.1.0 # version
paths: # all
  # settings
  /v1/settings: # one
    # put
    put: # here
      # what it does
      summary: sets # it
      # the end of put
    # the end of settings
  # other
  /other: {}
# the end
`, `# the API
openapi: 3.1.0 # version
paths: # all
  # settings
  /v1/settings: # one
    # put
    put: # here
      # what it does
      summary: sets # it
      x-idempotency:
        natural:
          reason: sets it
      # the end of put
    # the end of settings
  # other
  /other: {}
# the end
`)
	ok("empty lines belong to what follows", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets


  /other:
    get: {}
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
      x-idempotency:
        natural:
          reason: sets it


  /other:
    get: {}
`)
	ok("no line end at the end of the file", strings.TrimSuffix(`openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
`, "\n"), `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
      x-idempotency:
        natural:
          reason: sets it
`)
	ok("brackets on one line", `openapi: 3.1.0
paths:
  /v1/settings: {put: {summary: "sets, {it}"}}
`, `openapi: 3.1.0
paths:
  /v1/settings: {put: {"x-idempotency":{"natural":{"reason":"sets it"}}, summary: "sets, {it}"}}
`)
}

func layoutsOfBrackets(ok merges) {
	ok("empty brackets", `openapi: 3.1.0
paths:
  /v1/settings:
    put: {}
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put: {"x-idempotency":{"natural":{"reason":"sets it"}}}
`)
	ok("another promise is replaced, in its place", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency:
        natural:
          reason: another
      summary: sets
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency:
        natural:
          reason: sets it
      summary: sets
`)
	ok("another promise in brackets", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {natural: {reason: "an}other"}} # ours
      summary: sets
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {"natural":{"reason":"sets it"}} # ours
      summary: sets
`)
	ok("a promise without a value", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {}
      summary: sets
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {"natural":{"reason":"sets it"}}
      summary: sets
`)
	ok("the same promise, in other words", `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {natural: {reason: sets it}}
`, `openapi: 3.1.0
paths:
  /v1/settings:
    put:
      x-idempotency: {natural: {reason: sets it}}
`)
	ok("quoted names and another name of the parameter", `openapi: 3.1.0
"paths":
  "/v1/settings":
    "put":
      "summary": 'it''s'
`, `openapi: 3.1.0
"paths":
  "/v1/settings":
    "put":
      "summary": 'it''s'
      x-idempotency:
        natural:
          reason: sets it
`)
}

func layoutsOfPromises(ok merges) {
	ok("a document marker", `---
openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
`, `---
openapi: 3.1.0
paths:
  /v1/settings:
    put:
      summary: sets
      x-idempotency:
        natural:
          reason: sets it
`)
	ok("letters beyond ASCII before it", `openapi: 3.1.0
info: {title: "Größe 💶"}
paths:
  /v1/settings: {put: {summary: "ä"}}
`, `openapi: 3.1.0
info: {title: "Größe 💶"}
paths:
  /v1/settings: {put: {"x-idempotency":{"natural":{"reason":"sets it"}}, summary: "ä"}}
`)
}
