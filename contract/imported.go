package contract

import (
	"net/http"
	"slices"
	"strings"
)

// imported is a statement made of what other conventions say of an operation, nil where none does. What they leave open is noted.
func (d *Document) imported(o *operation) *Node {
	for _, read := range []func(*operation) (*Node, string){d.fern, d.repeatability, d.iceberg, d.requestID, d.token} {
		if n, note := read(o); n != nil {
			n.Line, n.Col, n.File = o.at.Line, o.at.Col, o.at.Value.File
			o.notes = append(o.notes, note)
			return n
		}
	}
	return nil
}

func (o *operation) parameter(in, name string) *Node {
	for _, p := range o.parameters {
		if p.text("in") == in && (p.text("name") == name || in == "header" && strings.EqualFold(p.text("name"), name)) {
			return p
		}
	}
	return nil
}

func keyNode(in, name string, required bool) *Node {
	return object("key", object("in", in, "name", name, "required", required))
}

// fern reads x-fern-idempotent of an operation with x-fern-idempotency-headers of the document.
func (d *Document) fern(o *operation) (*Node, string) {
	if !o.node.isTrue("x-fern-idempotent") {
		return nil, ""
	}
	name := "Idempotency-Key"
	if h := d.Root.Get("x-fern-idempotency-headers"); h != nil && len(h.Items) > 0 && h.Items[0].text("header") != "" {
		name = h.Items[0].text("header")
	}
	p := o.parameter("header", name)
	return keyNode("header", name, p.isTrue("required")), "read from x-fern-idempotent, which says that an SDK sends " + name +
		"; it leaves open: what another request under the key gets, what is kept and how long, and what a repeat gets meanwhile"
}

// repeatability reads the header pair of OASIS Repeatable Requests, which Azure uses.
func (d *Document) repeatability(o *operation) (*Node, string) {
	p := o.parameter("header", "Repeatability-Request-ID")
	if p == nil {
		return nil, ""
	}
	n := keyNode("header", "Repeatability-Request-ID", p.isTrue("required"))
	n.Get("key").set("format", node("uuid"))
	n.Members = append([]Member{{Name: "profile", Value: node("oasis")}}, n.Members...)
	n.set("expired", object("status", http.StatusPreconditionFailed))
	n.set("replayed", object("marker", object("header", "Repeatability-Result", "value", "accepted")))
	return n, "read from Repeatability-Request-ID (OASIS Repeatable Requests); it leaves open: how long requests are remembered, and what another request under the id gets"
}

// iceberg reads the Iceberg REST catalog's header together with the lifetime that its configuration announces.
func (d *Document) iceberg(o *operation) (*Node, string) {
	p := o.parameter("header", "Idempotency-Key")
	if p == nil || !d.announcesLifetime() {
		return nil, ""
	}
	n := keyNode("header", "Idempotency-Key", p.isTrue("required"))
	n.Get("key").set("format", node("uuid"))
	n.set("profile", node("iceberg"))
	n.set("staleResult", node("current"))
	return n, "read from Idempotency-Key with idempotency-key-lifetime (Iceberg REST); it leaves open: the lifetime, which a server announces at run time"
}

func (d *Document) announcesLifetime() bool {
	if d.lifetime == nil {
		yes := mentions(d.Root.Get("components", "schemas"), "idempotency-key-lifetime", 8)
		d.lifetime = &yes
	}
	return *d.lifetime
}

// mentions looks for the name of a member.
func mentions(n *Node, name string, depth int) bool {
	if n == nil || depth == 0 {
		return false
	}
	for _, m := range n.Members {
		if m.Name == name || mentions(m.Value, name, depth-1) {
			return true
		}
	}
	return slices.ContainsFunc(n.Items, func(v *Node) bool { return mentions(v, name, depth-1) })
}

// requestID reads request_id of AIP-155, as a query parameter or a member of the body.
func (d *Document) requestID(o *operation) (*Node, string) {
	in, name, required := d.named(o, "", "request_id", "requestId")
	if name == "" {
		return nil, ""
	}
	n := keyNode(in, name, required)
	n.Get("key").set("format", node("uuid"))
	n.set("profile", node("aip155"))
	return n, "read from " + strings.TrimPrefix(name, "/") + " (AIP-155); it leaves open: how long it is remembered, what another request under it gets, and whether a repeat shows the first answer or the resource as it is"
}

// token reads an idempotency token of Smithy in a generated document: marked with the trait, or by its usual names.
func (d *Document) token(o *operation) (*Node, string) {
	in, name, required := d.named(o, "x-smithy-idempotency-token", "clientToken", "ClientToken", "clientRequestToken", "ClientRequestToken")
	if name == "" {
		return nil, ""
	}
	n := keyNode(in, name, required)
	n.set("profile", node("aws"))
	return n, "read from " + strings.TrimPrefix(name, "/") + " (Smithy idempotencyToken); it leaves open: how long it is remembered, and what a repeat gets meanwhile"
}

// named finds a query parameter or member of a body by its name, or by an extension that is true there.
func (d *Document) named(o *operation, trait string, names ...string) (in, name string, required bool) {
	for _, p := range o.parameters {
		if in := p.text("in"); (in == "query" || in == "header") && (slices.Contains(names, p.text("name")) || p.isTrue(trait)) {
			return in, p.text("name"), p.isTrue("required")
		}
	}
	for _, s := range d.bodies(o) {
		need := s.Get("required")
		for _, m := range s.Get("properties").members() {
			if slices.Contains(names, m.Name) || m.Value.isTrue(trait) {
				return "body", "/" + m.Name, need != nil && slices.ContainsFunc(need.Items, func(v *Node) bool { return v.Value == m.Name })
			}
		}
	}
	return "", "", false
}

func (n *Node) members() []Member {
	if n == nil {
		return nil
	}
	return n.Members
}

// bodies are the schemas of an operation's JSON and form bodies, those inside allOf included.
func (d *Document) bodies(o *operation) (out []*Node) {
	body := o.node.Get("requestBody")
	if body == nil {
		return nil
	}
	body, _ = d.resolve(body)
	for _, m := range body.Get("content").members() {
		out = append(out, d.schemas(m.Value.Get("schema"), 4)...)
	}
	return out
}

// schemas are a schema and what it is made of.
func (d *Document) schemas(n *Node, depth int) (out []*Node) {
	if n == nil || depth == 0 {
		return nil
	}
	n, p := d.resolve(n)
	if p != nil {
		return nil
	}
	out = append(out, n)
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if list := n.Get(name); list != nil {
			for _, v := range list.Items {
				out = append(out, d.schemas(v, depth-1)...)
			}
		}
	}
	return out
}
