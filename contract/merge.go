package contract

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Merge puts what c promises into an OpenAPI document: x-idempotency, the parameter of the key, the answers made on behalf of the
// service, the marker on every 2xx, and the schema of problems. Every other line stays as it is, comments and order included; a second
// Merge changes nothing. Answers that the document describes itself are left as they are.
//
// It returns the new content, and the endpoints of c that the document does not have. The error is a *Problem or Problems for a document
// that cannot be read; or says that the result, read again, is not what it should be: then nothing is returned.
func Merge(file string, content []byte, files Files, c *Contract) (merged []byte, missing []string, err error) {
	m, missing, err := plan(file, content, files, c)
	if err != nil {
		return nil, nil, err
	}
	merged = m.apply()
	again, _, err := plan(file, merged, files, c)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("contract: the document is written in a form that cannot be added to; merged it would not be read: %w", err)
	case len(again.edits)+len(again.order) > 0 || !m.kept(m.d.Root, again.d.Root):
		return nil, nil, errors.New("contract: the document is written in a form that cannot be added to without changing something else")
	}
	return merged, missing, nil
}

// plan finds what is to be changed.
func plan(file string, content []byte, files Files, c *Contract) (m *merger, missing []string, err error) {
	d, err := Load(file, content, files)
	if err != nil {
		return nil, nil, err
	}
	if d.Async {
		return nil, nil, d.Root.problem("an AsyncAPI document: only OpenAPI documents are merged")
	}
	m = &merger{d: d, content: content, starts: lineStarts(content), pending: map[*Node][]Member{}}
	for _, e := range c.Endpoints {
		if e.Method == "" || e.Statement.group() == "out" {
			continue
		}
		if !m.endpoint(e) {
			missing = append(missing, e.Method+" "+e.Path)
		}
	}
	if m.problems && d.Root.Get("components", "schemas", problemSchema) == nil {
		m.deep(d.Root, []string{"components", "schemas", problemSchema}, problemObject())
	}
	return m, missing, m.err
}

// lineStarts are the offsets at which the lines of a text begin.
func lineStarts(content []byte) []int {
	starts := []int{0}
	for i, c := range content {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// merger collects changes of a text.
type merger struct {
	d        *Document
	content  []byte
	starts   []int
	edits    []edit
	touched  []*Node // nodes whose value is replaced
	problems bool    // some answer refers to the schema of problems
	pending  map[*Node][]Member
	order    []*Node
	err      error
}

// edit replaces content[from:to].
type edit struct {
	from, to int
	text     string
	depth    int // of whole lines: of two at one place the deeper comes first
}

// endpoint merges one endpoint, and says whether the document has it.
func (m *merger) endpoint(e Endpoint) bool {
	for _, o := range m.d.operations() {
		if o.method != e.Method || !samePath(o.path, e.Path) {
			continue
		}
		if o.node.File != m.d.Root.File {
			m.fail(fmt.Errorf("contract: %s %s stands in %s: merge into that file", e.Method, e.Path, o.node.File))
			return true
		}
		m.member(o.node, "x-idempotency", nodeOf(e.Statement))
		m.parameter(o, e)
		if len(e.Refusals) > 0 {
			m.responses(o, e)
		}
		return true
	}
	return false
}

func (m *merger) fail(err error) { m.err = errors.Join(m.err, err) }

// samePath compares path templates, whatever their parameters are called.
func samePath(a, b string) bool {
	return wildcard.ReplaceAllString(a, "{}") == wildcard.ReplaceAllString(b, "{}")
}

func (m *merger) parameter(o operation, e Endpoint) {
	want := e.parameter()
	if want == nil {
		return
	}
	if p := o.parameter(want.text("in"), want.text("name")); p != nil {
		if r := p.Get("required"); (r != nil && r.Value == "true") != want.isTrue("required") && p.File == m.d.Root.File {
			m.member(p, "required", want.Get("required"))
		}
		return
	}
	list := o.node.Get("parameters")
	if list == nil || list.Kind != List || len(list.Items) == 0 {
		m.member(o.node, "parameters", node([]*Node{want}))
		return
	}
	m.item(list, want)
}

func (m *merger) responses(o operation, e Endpoint) {
	have := o.node.Get("responses")
	if have == nil || have.Kind != Map || len(have.Members) == 0 {
		m.problems = true
		m.member(o.node, "responses", e.responses())
		return
	}
	success := false
	for _, r := range have.Members {
		if strings.HasPrefix(r.Name, "2") {
			success = true
			m.mark(r.Value, e)
		}
	}
	if !success {
		m.member(have, "2XX", e.responses().Get("2XX"))
	}
	for _, a := range e.Refusals {
		name := strconv.Itoa(a.Status)
		old := have.Get(name)
		if old != nil && !bytes.Contains(appendJSON(nil, old, -1), []byte(quote("#/components/schemas/"+problemSchema))) {
			continue // the document's own
		}
		m.problems = true
		m.member(have, name, a.response())
	}
}

// mark declares the marker on a response.
func (m *merger) mark(response *Node, e Endpoint) {
	markers := e.markers()
	if markers == nil {
		return
	}
	r, p := m.d.resolve(response)
	if p != nil || r.File != m.d.Root.File {
		return
	}
	h := r.Get("headers")
	if h == nil || len(h.Members) == 0 {
		m.member(r, "headers", markers)
		return
	}
	for _, want := range markers.Members {
		if !slices.ContainsFunc(h.Members, func(have Member) bool { return strings.EqualFold(have.Name, want.Name) }) {
			m.member(h, want.Name, want.Value)
		}
	}
}

// deep adds a member below members that may not be there.
func (m *merger) deep(n *Node, path []string, v *Node) {
	next := n.Get(path[0])
	if len(path) == 1 || next == nil || len(next.Members) == 0 {
		for i := len(path) - 1; i > 0; i-- {
			v = object(path[i], v)
		}
		m.member(n, path[0], v)
		return
	}
	m.deep(next, path[1:], v)
}

// member sets a member of a map: replaced where it says something else, added where it is missing.
func (m *merger) member(n *Node, name string, v *Node) {
	at := slices.IndexFunc(n.Members, func(o Member) bool { return o.Name == name })
	if at < 0 {
		if slices.ContainsFunc(m.pending[n], func(o Member) bool { return o.Name == name }) {
			return // by another operation that refers to the same place
		}
		if len(m.pending[n]) == 0 {
			m.order = append(m.order, n)
		}
		m.pending[n] = append(m.pending[n], Member{Name: name, Value: v})
		return
	}
	old := n.Members[at]
	if old.Value.equal(v) || slices.Contains(m.touched, old.Value) {
		return
	}
	m.touched = append(m.touched, old.Value)
	if !n.Flow && !old.Value.Flow && old.Value.Kind >= List || !n.Flow && old.Value.Kind == Null {
		from := m.starts[old.Line-1]
		m.edits = append(m.edits, edit{from, m.blockEnd(old.Line, old.Col), string(appendYAML(nil, object(name, v), old.Col-1)), old.Col})
		return
	}
	from, level := m.offset(old.Value.Line, old.Value.Col), -1
	if line := m.line(old.Line); n.Flow && strings.HasPrefix(strings.TrimLeft(line, " "), quote(name)) { // one member a line
		level = (len(line) - len(strings.TrimLeft(line, " "))) / 2
	}
	m.edits = append(m.edits, edit{from, m.flowEnd(from), string(appendJSON(nil, v, level)), 0})
}

// item adds an item to a list: at the end of a block, at the front of brackets.
func (m *merger) item(list, v *Node) {
	if list.Flow {
		m.front(list, v)
		return
	}
	last := list.Items[len(list.Items)-1]
	dash := m.dash(last)
	text := string(appendYAML(nil, node([]*Node{v}), dash))
	at := m.blockEnd(last.Line, dash+1)
	m.edits = append(m.edits, edit{at, at, text, dash + 1})
}

// dash is the column before that of an item's dash.
func (m *merger) dash(item *Node) int {
	line := m.line(item.Line)
	return len(line) - len(strings.TrimLeft(line, " "))
}

func (m *merger) line(n int) string {
	end := len(m.content)
	if n < len(m.starts) {
		end = m.starts[n]
	}
	return string(m.content[m.starts[n-1]:end])
}

func (m *merger) offset(line, col int) int {
	at := m.starts[line-1]
	for range col - 1 {
		_, size := utf8.DecodeRune(m.content[at:])
		at += size
	}
	return at
}

// blockEnd is where a member or item of a block ends: before the first line that is indented no more than it and is neither empty nor a
// comment, and without the empty lines and outer comments before that.
func (m *merger) blockEnd(line, col int) int {
	end := line // the last line that belongs to it
	key := strings.TrimLeft(m.line(line), " ")
	for n := line + 1; n <= len(m.starts); n++ {
		text := m.line(n)
		body := strings.TrimLeft(strings.TrimRight(text, "\r\n"), " ")
		indent := len(text) - len(strings.TrimLeft(text, " "))
		switch {
		case body == "":
			continue
		case indent >= col, indent == col-1 && strings.HasPrefix(body, "- ") && !strings.HasPrefix(key, "- "):
			end = n
		case strings.HasPrefix(body, "#"):
			continue
		default:
			n = len(m.starts)
		}
	}
	if end < len(m.starts) {
		return m.starts[end]
	}
	return len(m.content)
}

// flowEnd is where a value that begins at from ends, in brackets, quotes or plain.
func (m *merger) flowEnd(from int) int {
	depth := 0
	for at := from; at < len(m.content); at++ {
		switch c := m.content[at]; c {
		case '{', '[':
			depth++
		case '"', '\'':
			at = m.quoteEnd(at)
		case '}', ']', ',':
			if depth == 0 {
				return at
			}
			if c != ',' {
				depth--
			}
		case '\n', '\r', '#':
			if depth == 0 {
				return from + len(bytes.TrimRight(m.content[from:at], " \t"))
			}
		}
		if depth == 0 && slices.Contains([]byte(`}]"'`), m.content[at]) {
			return at + 1
		}
	}
	return len(m.content)
}

func (m *merger) quoteEnd(at int) int {
	q := m.content[at]
	for at++; at < len(m.content) && m.content[at] != q; at++ {
		if q == '"' && m.content[at] == '\\' {
			at++
		}
	}
	return at
}

// front adds to a map or list in brackets, as its first member: the lines of the others stay as they are.
func (m *merger) front(n *Node, v *Node) {
	from := m.offset(n.Line, n.Col)
	inside := from + 1
	text := string(appendJSON(nil, v, -1))
	if n.Kind == Map {
		text = text[1 : len(text)-1] // without its braces
	}
	if len(n.Items)+len(n.Members) == 0 {
		m.edits = append(m.edits, edit{inside, m.flowEnd(from) - 1, text, 0})
		return
	}
	rest := m.content[inside:]
	next := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
	gap := string(rest[:next])
	if i := strings.LastIndexByte(gap, '\n'); i >= 0 { // one member a line
		level := len(gap[i+1:]) / 2
		pretty := string(appendJSON(nil, v, level))
		if n.Kind == Map {
			pretty = strings.TrimSuffix(strings.TrimPrefix(string(appendJSON(nil, v, max(0, level-1))), "{"), "}")
			pretty = strings.TrimSpace(pretty)
		}
		m.edits = append(m.edits, edit{inside, inside, gap + pretty + ",", 0})
		return
	}
	m.edits = append(m.edits, edit{inside, inside, text + ", ", 0})
}

// apply writes the pending members and makes all changes.
func (m *merger) apply() []byte {
	for _, n := range m.order {
		added := &Node{Kind: Map, Members: m.pending[n]}
		if n.Flow || len(n.Members) == 0 {
			m.front(n, added)
			continue
		}
		last := n.Members[len(n.Members)-1]
		at := m.blockEnd(last.Line, last.Col)
		m.edits = append(m.edits, edit{at, at, string(appendYAML(nil, added, last.Col-1)), last.Col})
	}
	slices.SortStableFunc(m.edits, func(a, b edit) int { return cmp.Or(a.from-b.from, b.depth-a.depth) })
	var out []byte
	done := 0
	for _, e := range m.edits {
		if e.from < done { // inside what was replaced
			continue
		}
		out = append(out, m.content[done:e.from]...)
		if e.depth > 0 && len(out) > 0 && out[len(out)-1] != '\n' { // the last line of the file
			out = append(out, '\n')
		}
		out = append(out, e.text...)
		done = e.to
	}
	return append(out, m.content[done:]...)
}

// kept says whether everything of the old document is in the new one, but for what was replaced.
func (m *merger) kept(old, now *Node) bool {
	if slices.Contains(m.touched, old) {
		return true
	}
	if old.Kind != now.Kind || old.Value != now.Value {
		return false
	}
	for _, o := range old.Members {
		v := now.Get(o.Name)
		if v == nil || !m.kept(o.Value, v) {
			return false
		}
	}
	at := 0
	for _, o := range old.Items {
		for at < len(now.Items) && !m.kept(o, now.Items[at]) {
			at++
		}
		if at++; at > len(now.Items) {
			return false
		}
	}
	return true
}
