package contract

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Files is where a document comes from, and what it refers to.
type Files struct {
	// Parse makes a tree of a file; nil: ParseJSON. An error of it is a *Problem or Problems.
	Parse func(file string, content []byte) (*Node, error)
	// Open reads a file that a document refers to, relative to the file that does. nil: a document that refers to another file is refused.
	Open func(file string) ([]byte, error)
	// Fetch reads an http or https address that a document refers to. nil: refused, nothing is asked of the network.
	Fetch func(address string) ([]byte, error)
}

// Document is an OpenAPI 3.0, 3.1 or AsyncAPI 3.0 document with the files it refers to. It is not safe for concurrent use.
type Document struct {
	Root  *Node
	Async bool // AsyncAPI

	files    Files
	loaded   map[string]*Node
	lifetime *bool // see announcesLifetime; nil: not looked yet
}

// maxFiles bounds how many files one document may draw in.
const maxFiles = 1000

// Load reads a document. The error is a *Problem or Problems, each with its line: what is not JSON or YAML, Swagger 2.0, which has no
// place for the extension, a version that is not known, members of x-idempotency that are not known, or have another type.
func Load(file string, content []byte, files Files) (*Document, error) {
	if files.Parse == nil {
		files.Parse = ParseJSON
	}
	root, err := files.Parse(file, content)
	if err != nil {
		return nil, err
	}
	d := &Document{Root: root, files: files, loaded: map[string]*Node{file: root}}
	if root.Kind != Map {
		return nil, root.problem("no document: a set of members is wanted")
	}
	if v := root.Get("swagger"); v != nil {
		return nil, v.problem("Swagger %s is not read: its parameters and answers have another form; convert the document to OpenAPI 3.0 or newer first", v.Value)
	}
	version := root.text("openapi")
	switch {
	case strings.HasPrefix(version, "3.0.") || strings.HasPrefix(version, "3.1.") || version == "3.0" || version == "3.1":
	case strings.HasPrefix(root.text("asyncapi"), "3."):
		d.Async = true
	case version != "":
		return nil, root.Get("openapi").problem("OpenAPI %s is not known here: 3.0 and 3.1 are", version)
	case root.Get("asyncapi") != nil:
		return nil, root.Get("asyncapi").problem("AsyncAPI %s is not known here: 3.0 is", root.text("asyncapi"))
	default:
		return nil, root.problem("neither an OpenAPI nor an AsyncAPI document: there is no member openapi or asyncapi")
	}
	if ps := d.check(); len(ps) > 0 {
		return nil, ps
	}
	return d, nil
}

// check lists what is wrong with the extension wherever it stands, and references that lead nowhere.
func (d *Document) check() (out Problems) {
	r := httpRules()
	if d.Async {
		r = messageRules()
	}
	if x := d.Root.Get("x-idempotency"); x != nil {
		out = append(out, r.check(x)...)
	}
	if d.Async {
		for _, op := range d.messages() {
			out = append(out, op.problems...)
		}
		return out
	}
	for _, e := range d.operations() {
		out = append(out, e.problems...)
	}
	return out
}

// resolve follows a $ref, and references that it leads to.
func (d *Document) resolve(n *Node) (*Node, *Problem) {
	for range 32 {
		at := n.Get("$ref")
		if at == nil || at.Kind != Text {
			return n, nil
		}
		next, p := d.follow(at)
		if p != nil {
			return nil, p
		}
		n = next
	}
	return nil, n.problem("a $ref that leads to itself")
}

func (d *Document) follow(at *Node) (*Node, *Problem) {
	file, fragment, _ := strings.Cut(at.Value, "#")
	root, p := d.open(at, file)
	if p != nil {
		return nil, p
	}
	found := root
	var tokens []string
	if fragment != "" {
		tokens = strings.Split(strings.TrimPrefix(fragment, "/"), "/")
	}
	for _, token := range tokens {
		name, err := url.PathUnescape(token)
		if err != nil {
			return nil, at.problem("$ref %s: not a JSON pointer", quote(at.Value))
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if found.Kind == List {
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(found.Items) {
				return nil, at.problem("$ref %s: there is no %s", quote(at.Value), quote(name))
			}
			found = found.Items[i]
			continue
		}
		if found = found.Get(name); found == nil {
			return nil, at.problem("$ref %s: there is no %s", quote(at.Value), quote(name))
		}
	}
	return found, nil
}

// open is the tree of a file that a node refers to; "" is the node's own.
func (d *Document) open(at *Node, ref string) (*Node, *Problem) {
	if ref == "" {
		return d.loaded[at.File], nil
	}
	remote := func(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }
	file, read := ref, d.files.Open
	switch {
	case remote(ref):
		read = d.files.Fetch
	case remote(at.File):
		base, err := url.Parse(at.File)
		if err != nil {
			return nil, at.problem("$ref %s: %v", quote(ref), err)
		}
		to, err := base.Parse(ref)
		if err != nil {
			return nil, at.problem("$ref %s: %v", quote(ref), err)
		}
		file, read = to.String(), d.files.Fetch
	case !path.IsAbs(ref):
		file = path.Join(path.Dir(at.File), ref)
	}
	if n, ok := d.loaded[file]; ok {
		return n, nil
	}
	if read == nil {
		if remote(file) {
			return nil, at.problem("$ref %s leads to the network, which is not asked: --allow-fetch lets it", quote(ref))
		}
		return nil, at.problem("$ref %s leads to another file, and none may be opened", quote(ref))
	}
	if len(d.loaded) >= maxFiles {
		return nil, at.problem("over %d files", maxFiles)
	}
	content, err := read(file)
	if err != nil {
		return nil, at.problem("$ref %s: %v", quote(ref), err)
	}
	n, err := d.files.Parse(file, content)
	if err != nil {
		return nil, at.problem("$ref %s: %v", quote(ref), err)
	}
	d.loaded[file] = n
	return n, nil
}

// operation is one method of one path of an OpenAPI document.
type operation struct {
	method, path string
	node         *Node // the operation object
	at           Member
	parameters   []*Node // resolved; those of the operation before those of the path
	said         *Node   // x-idempotency, merged and normal; nil: nothing is said
	statement    Statement
	problems     Problems
	notes        []string // read from something other than x-idempotency: what, and what it leaves open
}

func (o operation) name() string { return o.method + " " + o.path }

// operations are all operations of the document, in its order.
func (d *Document) operations() (out []operation) {
	rules := httpRules()
	paths := d.Root.Get("paths")
	if paths == nil {
		return nil
	}
	for _, p := range paths.Members {
		item, bad := d.resolve(p.Value)
		if bad != nil {
			out = append(out, operation{path: p.Name, at: p, problems: Problems{bad}})
			continue
		}
		for _, m := range item.Members {
			method := strings.ToUpper(m.Name)
			if !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE"}, method) || m.Value.Kind != Map {
				continue
			}
			o := operation{method: method, path: p.Name, node: m.Value, at: m}
			for _, list := range []*Node{m.Value.Get("parameters"), item.Get("parameters")} {
				o.parameters = append(o.parameters, d.list(list, &o.problems)...)
			}
			d.state(&o, rules)
			out = append(out, o)
		}
	}
	return out
}

// list resolves the items of a list.
func (d *Document) list(n *Node, problems *Problems) (out []*Node) {
	if n == nil {
		return nil
	}
	for _, v := range n.Items {
		r, p := d.resolve(v)
		if p != nil {
			*problems = append(*problems, p)
			continue
		}
		out = append(out, r)
	}
	return out
}

// state reads what is said of an operation: its own member over that of the root, or what other conventions say.
func (d *Document) state(o *operation, rules rule) {
	own, base := o.node.Get("x-idempotency"), d.Root.Get("x-idempotency")
	if own != nil {
		o.problems = append(o.problems, rules.check(own)...)
	}
	if len(o.problems) > 0 || safe(o.method) {
		return
	}
	said := own
	if own != nil && base != nil && own.Get("supported") == nil && own.Get("natural") == nil {
		said = base.overlay(own)
	}
	if own == nil {
		said = base
		if imported := d.imported(o); imported != nil {
			said = imported
			if base != nil {
				said = imported.overlay(base)
			}
		}
	}
	if said == nil {
		return
	}
	o.said = rules.normal(said)
	if err := o.said.into(&o.statement); err != nil {
		o.problems = append(o.problems, said.problem("%v", err))
	}
	if k := o.statement.Key; k != nil && k.Name == "" {
		o.statement.Key = nil
	}
}

// place is where a member of the statement stands; else the operation itself.
func (o operation) place(path ...string) (file string, line, col int) {
	for n := len(path); n > 0; n-- {
		if v := o.said.Get(path[:n]...); v != nil && v.Line > 0 {
			return v.File, v.Line, v.Col
		}
	}
	return o.at.Value.File, o.at.Line, o.at.Col
}

// message is one operation of an AsyncAPI document with what is said of its messages.
type message struct {
	name, action string
	at           Member
	objects      []*Node // the message objects
	channel      *Node
	said         *Node
	statement    Message
	problems     Problems
}

// messages are all operations of an AsyncAPI document, in its order. What a message says stands over what its operation says.
func (d *Document) messages() (out []message) {
	rules := messageRules()
	ops := d.Root.Get("operations")
	if ops == nil {
		return nil
	}
	for _, m := range ops.Members {
		o := message{name: m.Name, at: m}
		n, p := d.resolve(m.Value)
		if p != nil {
			o.problems = Problems{p}
			out = append(out, o)
			continue
		}
		o.action = n.text("action")
		if c := n.Get("channel"); c != nil {
			if o.channel, p = d.resolve(c); p != nil {
				o.problems = append(o.problems, p)
			}
		}
		o.objects = d.list(n.Get("messages"), &o.problems)
		if all := o.channel.Get("messages"); len(o.objects) == 0 && all != nil {
			for _, c := range all.Members {
				o.objects = append(o.objects, d.list(node([]*Node{c.Value}), &o.problems)...)
			}
		}
		said := d.Root.Get("x-idempotency")
		for _, x := range append([]*Node{n}, o.objects...) {
			if own := x.Get("x-idempotency"); own != nil {
				o.problems = append(o.problems, rules.check(own)...)
				said = said.overlay(own)
			}
		}
		if len(o.problems) == 0 && said != nil {
			o.said = rules.normal(said)
			if err := o.said.into(&o.statement); err != nil {
				o.problems = append(o.problems, said.problem("%v", err))
			}
		}
		out = append(out, o)
	}
	return out
}

func (o message) place(path ...string) (file string, line, col int) {
	for n := len(path); n > 0; n-- {
		if v := o.said.Get(path[:n]...); v != nil && v.Line > 0 {
			return v.File, v.Line, v.Col
		}
	}
	return o.at.Value.File, o.at.Line, o.at.Col
}
