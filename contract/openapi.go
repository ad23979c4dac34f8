package contract

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/idempo/idempo/idemhttp"
)

// The name of the schema that problem documents have in a printed document.
const problemSchema = "IdempotencyProblem"

// OpenAPI is the contract as an OpenAPI 3.1 document. Endpoints that take every method, such as the one for everything else of a
// gateway, have no place in such a document and are left out.
func (c *Contract) OpenAPI() *Node {
	paths := object()
	for _, e := range c.Endpoints {
		if e.Method == "" {
			continue
		}
		item := paths.Get(e.Path)
		if item == nil {
			item = object()
			if ps := pathParameters(e); len(ps) > 0 {
				item.set("parameters", node(ps))
			}
			paths.set(e.Path, item)
		}
		item.set(strings.ToLower(e.Method), e.operation())
	}
	return object("openapi", "3.1.0", "info", object("title", c.Title, "version", c.Version), "paths", paths,
		"components", object("schemas", object(problemSchema, problemObject())))
}

func pathParameters(e Endpoint) (out []*Node) {
	for _, name := range wildcard.FindAllStringSubmatch(e.Path, -1) {
		p := object("name", name[1], "in", "path", "required", true, "schema", object("type", "string"))
		if e.Subtree && strings.HasSuffix(e.Path, "{"+name[1]+"}") {
			p.set("description", node("everything below"))
		}
		out = append(out, p)
	}
	return out
}

var wildcard = regexp.MustCompile(`\{([^{}]+)\}`)

// operation is the endpoint as an operation object.
func (e Endpoint) operation() *Node {
	o := object()
	if e.Statement.Operation != "" {
		o.set("operationId", node(e.id()))
		o.set("summary", node(e.Statement.Operation))
	}
	if p := e.parameter(); p != nil {
		o.set("parameters", node([]*Node{p}))
	}
	o.set("responses", e.responses())
	o.set("x-idempotency", nodeOf(e.Statement))
	return o
}

// id is unique, since one operation may have several endpoints.
func (e Endpoint) id() string {
	return e.Statement.Operation + "." + strings.ToLower(e.Method) + strings.NewReplacer("/", ".", "{", "", "}", "").Replace(e.Path)
}

// parameter is the key as a parameter object, nil where it is in the body, in several parts or in the path.
func (e Endpoint) parameter() *Node {
	k := e.Statement.Key
	if k == nil || k.In != "header" && k.In != "query" {
		return nil
	}
	return object("name", k.Name, "in", k.In, "required", k.Required != nil && *k.Required, "description", e.keyText(), "schema", e.keySchema())
}

func (e Endpoint) keyText() string {
	k := e.Statement.Key
	text := "Stands for one intent. Make it once, keep it, and repeat it on every retry; a new intent gets a new one."
	if k.Issued {
		text = "A key that was issued for this operation. It stands for one intent: repeat it on every retry."
	}
	return text
}

func (e Endpoint) keySchema() *Node {
	k := e.Statement.Key
	s := object("type", "string")
	if k.MinLength > 0 {
		s.set("minLength", node(k.MinLength))
	}
	if k.MaxLength > 0 {
		s.set("maxLength", node(k.MaxLength))
	}
	switch {
	case e.KeyPattern != "":
		s.set("pattern", node("^(?:"+e.KeyPattern+")$"))
	case k.Format == "uuid":
		s.set("format", node("uuid"))
	}
	return s
}

func (e Endpoint) responses() *Node {
	r := object("2XX", object("description", "Done, now or by the first request with this key.", "headers", e.markers()))
	for _, a := range e.Refusals {
		r.set(strconv.Itoa(a.Status), a.response())
	}
	if len(e.Refusals) == 0 {
		r = object("default", object("description", "As the service answers."))
	}
	return r
}

// markers are the headers of a success that tell a repeat from a first answer.
func (e Endpoint) markers() *Node {
	h := object()
	if r := e.Statement.Replayed; r != nil && r.Marker != nil {
		h.set(r.Marker.Header, object("description", "true on an answer that was given before", "schema", object("type", "string", "enum", []string{r.Marker.Value})))
	}
	if len(h.Members) == 0 {
		return nil
	}
	return h
}

func (a Refusal) response() *Node {
	var says []string
	retry := false
	for _, code := range a.Codes {
		p := idemhttp.NewProblem(code)
		says = append(says, p.Title)
		retry = retry || p.Retryable
	}
	slices.Sort(says)
	r := object("description", strings.Join(slices.Compact(says), "; ")+".")
	if retry {
		r.set("headers", object("Retry-After", object("description", "seconds until a retry may help", "schema", object("type", "integer", "minimum", 1))))
	}
	r.set("content", object("application/problem+json", object("schema", object("allOf", []*Node{
		object("$ref", "#/components/schemas/"+problemSchema),
		object("type", "object", "properties", object("code", object("type", "string", "enum", a.Codes))),
	}))))
	return r
}

// problemObject is the schema of idemhttp.Problem.
func problemObject() *Node {
	str, truth := func(d string) *Node { return object("type", "string", "description", d) }, func(d string) *Node { return object("type", "boolean", "description", d) }
	return object("type", "object", "required", []string{"type", "title", "status", "detail", "code", "retryable", "same_key"}, "properties", object(
		"type", str("urn:idempo:problem: and the code"), "title", str("the same for all problems of a code"), "status", object("type", "integer"),
		"detail", str("what happened and what to do"), "code", str("branch on it"), "retryable", truth("an automatic retry is expected to help"),
		"same_key", truth("the key is unspent or bound to this intent: keep it"), "key_ref", str("the key as operators and logs name it"),
		"retry_after", object("type", "integer", "description", "seconds, as Retry-After"),
		"resource", object("type", "object", "description", "what the first request made", "properties", object("type", object("type", "string"), "id", object("type", "string"))),
		"original_status", object("type", "integer"), "expired_at", object("type", "string", "format", "date-time"),
		"mismatch", object("type", "object", "description", "the parts of the request that differ, never their values")))
}

// describe is the codes of one status in words, with what a client does about it: what they agree on, or the member that tells.
func describe(codes []string) (meaning, retry, sameKey string) {
	var titles []string
	tried, kept := 0, 0
	for _, code := range codes {
		p := idemhttp.NewProblem(code)
		if !slices.Contains(titles, p.Title) {
			titles = append(titles, p.Title)
		}
		if p.Retryable {
			tried++
		}
		if p.SameKey {
			kept++
		}
	}
	word := func(n int, member string) string {
		switch n {
		case 0:
			return "no"
		case len(codes):
			return "yes"
		}
		return "as " + member + " says"
	}
	return strings.Join(titles, "; "), word(tried, "retryable"), word(kept, "same_key")
}
