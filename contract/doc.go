// Package contract says in documents what a service promises about repeated calls, and judges such documents.
//
//	c := contract.New("Payments", "1.0")
//	err := c.Middleware(m, map[string][]string{"create-payment": {"POST /v1/payments"}})
//	os.Stdout.Write(contract.YAML(c.OpenAPI()))
//
// A [Contract] is made of what runs: the wrapped handlers of an idemhttp.Middleware, the options of inboxes. [Contract.OpenAPI],
// [Contract.AsyncAPI], [Contract.Markdown] and [Contract.JSON] are the same statement in four forms; [Merge] puts it into a document that
// exists, and leaves every other line of it as it is.
//
// The other way round, [Load] reads a document, resolves what it refers to, and gives the [Statement] of every endpoint;
// [Document.Lint] and [Diff] judge it. Documents are trees of [Node] that know their place: [ParseJSON] makes one, and whoever links a
// YAML parser makes one with it.
//
// The extension is x-idempotency, at the root for defaults and on operations, where it replaces member by member. statement.go is its
// table of members.
//
// The way of a fact: declared.go (what runs) → Statement → openapi.go, asyncapi.go, markdown.go, or merge.go. The way of a document:
// json.go → document.go (references, operations) → lint.go, diff.go → report.go.
//
// What it never promises: that a service does what its document says. That is found out by sending requests.
//
// Layer: adapter.
package contract
