package contractcheck

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/schema_validation"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/contract"
	"github.com/idempo/idempo/idemhttp"
	"github.com/idempo/idempo/memstore"
)

func printed(t *testing.T) *contract.Contract {
	t.Helper()
	engine, err := idempo.New(memstore.New(memstore.Options{}), idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(engine, idemhttp.Config{GlobalTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string][]string{"a": {"POST /a/{x}/b"}, "b": {"POST /b/"}, "c": {"/c"}}
	for name, r := range map[string]idemhttp.Rules{"a": {Profile: "uuid"}, "b": {KeyPattern: "[a-z]+", UniqueBy: []string{"body:/id"}}, "c": {KeyPointer: "/id", Methods: []string{"PUT"}}} {
		guard := idempo.GuardAtomic
		if name == "b" {
			guard = idempo.GuardLeased
		}
		if _, err := m.Wrap(idempo.Operation{Name: name, Guard: guard}, r, http.NotFoundHandler()); err != nil {
			t.Fatal(err)
		}
	}
	c := contract.New("Every kind", "1")
	if err := c.Middleware(m, at); err != nil {
		t.Fatal(err)
	}
	c.Natural("PUT /d", "sets it")
	return c
}

func validate(t *testing.T, b []byte) (wrong []string) {
	t.Helper()
	doc, err := libopenapi.NewDocument(b)
	if err != nil {
		t.Fatal(err)
	}
	ok, found := schema_validation.ValidateOpenAPIDocument(doc)
	for _, e := range found {
		wrong = append(wrong, e.Message)
		for _, s := range e.SchemaValidationErrors {
			wrong = append(wrong, s.Reason)
		}
	}
	if !ok && len(wrong) == 0 {
		wrong = []string{"not valid"}
	}
	return wrong
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	c := printed(t)
	t.Run("[operations/CD3] a printed document is one of OpenAPI 3.1, with problems by code and a marker on every 2xx", func(t *testing.T) {
		doc := c.OpenAPI()
		for _, b := range [][]byte{contract.YAML(doc), contract.JSON(doc)} {
			if wrong := validate(t, b); wrong != nil {
				t.Errorf("%s", strings.Join(wrong, "\n"))
			}
		}
		keyed := 0
		for _, e := range c.Endpoints {
			responses := doc.Get("paths", e.Path, strings.ToLower(e.Method), "responses")
			if e.Statement.Group() != "keyed" {
				continue
			}
			keyed++
			if responses.Get("2XX", "headers", "Idempotent-Replayed") == nil {
				t.Errorf("%s %s: no marker on 2xx", e.Method, e.Path)
			}
			for _, status := range []int{400, 409, 410, 422, 503} {
				schema := responses.Get(strconv.Itoa(status), "content", "application/problem+json", "schema", "allOf")
				if schema == nil || len(schema.Items) != 2 {
					t.Errorf("%s %s: %d has no schema of a problem", e.Method, e.Path, status)
					continue
				}
				codes := schema.Items[1].Get("properties", "code", "enum")
				if codes == nil || len(codes.Items) == 0 || slices.ContainsFunc(codes.Items, func(v *contract.Node) bool { return idemhttp.NewProblem(v.Value).Code != v.Value }) {
					t.Errorf("%s %s: %d has codes that there are not", e.Method, e.Path, status)
				}
			}
		}
		if keyed != 5 {
			t.Errorf("%d keyed endpoints", keyed)
		}
	})
	t.Run("the validator finds something", func(t *testing.T) {
		if validate(t, []byte(`{"openapi":"3.1.0","info":{"title":"x"},"paths":{}}`)) == nil {
			t.Error("a document without a version is valid")
		}
	})
	t.Run("what is merged into a document of 3.0 is of 3.0", func(t *testing.T) {
		old := []byte(`{"openapi":"3.0.3","info":{"title":"x","version":"1"},"paths":{"/a/{id}/b":{"post":{"parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"201":{"description":"made"}}}}}}`)
		b, missing, err := contract.Merge("doc.json", old, contract.Files{}, c)
		if err != nil || len(missing) == 0 {
			t.Fatal(err, missing)
		}
		if wrong := validate(t, b); wrong != nil {
			t.Errorf("%s\n%s", strings.Join(wrong, "\n"), b)
		}
	})
}
