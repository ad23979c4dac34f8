package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a Node is.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Map
)

// Node is a value of a document, and where it stands. Whoever changes a node changes the document that it is part of.
type Node struct {
	Kind    Kind
	Value   string   // of Bool, Number and Text
	Items   []*Node  // of List
	Members []Member // of Map, in the order of the document
	Flow    bool     // written in brackets, as all of JSON is
	File    string   // as named by who parsed it
	Line    int      // 1-based; 0: made, not read
	Col     int      // 1-based, in characters
}

// Member is one name of a Map.
type Member struct {
	Name      string
	Line, Col int // of the name
	Value     *Node
}

// Get returns the value at a path of names, nil where there is none. A nil node has none.
func (n *Node) Get(path ...string) *Node {
	for _, name := range path {
		if n == nil || n.Kind != Map {
			return nil
		}
		at := slices.IndexFunc(n.Members, func(m Member) bool { return m.Name == name })
		if at < 0 {
			return nil
		}
		n = n.Members[at].Value
	}
	return n
}

// text is the value of a scalar at a path, "" where there is none.
func (n *Node) text(path ...string) string {
	if v := n.Get(path...); v != nil && v.Kind >= Bool && v.Kind <= Text {
		return v.Value
	}
	return ""
}

func (n *Node) isTrue(path ...string) bool {
	v := n.Get(path...)
	return v != nil && v.Kind == Bool && v.Value == "true"
}

// set replaces a member, or adds it at the end.
func (n *Node) set(name string, v *Node) {
	for i := range n.Members {
		if n.Members[i].Name == name {
			n.Members[i].Value = v
			return
		}
	}
	n.Members = append(n.Members, Member{Name: name, Value: v, Line: v.Line, Col: v.Col})
}

// equal compares what two nodes say, not where and how: members in any order.
func (n *Node) equal(o *Node) bool {
	if n == nil || o == nil || n.Kind != o.Kind || n.Value != o.Value || len(n.Items) != len(o.Items) || len(n.Members) != len(o.Members) {
		return n == o
	}
	for i := range n.Items {
		if !n.Items[i].equal(o.Items[i]) {
			return false
		}
	}
	for _, m := range n.Members {
		if !m.Value.equal(o.Get(m.Name)) {
			return false
		}
	}
	return true
}

// node makes a node of a Go value: nil, bool, int, string, []string, *Node, []*Node.
func node(v any) *Node {
	switch v := v.(type) {
	case nil:
		return &Node{}
	case *Node:
		return v
	case bool:
		return &Node{Kind: Bool, Value: strconv.FormatBool(v)}
	case int:
		return &Node{Kind: Number, Value: strconv.Itoa(v)}
	case string:
		return &Node{Kind: Text, Value: v}
	case []string:
		list := &Node{Kind: List}
		for _, s := range v {
			list.Items = append(list.Items, node(s))
		}
		return list
	case []*Node:
		return &Node{Kind: List, Items: v}
	}
	panic(fmt.Sprintf("contract: no node of a %T", v))
}

// object makes a map of names and values in turn; a nil value is left out.
func object(pairs ...any) *Node {
	n := &Node{Kind: Map}
	for i := 0; i < len(pairs); i += 2 {
		if v, ok := pairs[i+1].(*Node); pairs[i+1] != nil && (!ok || v != nil) {
			n.Members = append(n.Members, Member{Name: pairs[i].(string), Value: node(pairs[i+1])})
		}
	}
	return n
}

// nodeOf makes a node of anything that encoding/json can write, members in its order.
func nodeOf(v any) *Node {
	b, err := json.Marshal(v)
	if err != nil {
		panic("contract: " + err.Error()) // our own types
	}
	n, err := ParseJSON("", b)
	if err != nil {
		panic("contract: " + err.Error())
	}
	return n
}

// into reads a node into a Go value by its JSON names.
func (n *Node) into(v any) error { return json.Unmarshal(appendJSON(nil, n, -1), v) }

// Problem is one mistake in a document, and where it stands.
type Problem struct {
	File      string
	Line, Col int // 1-based; 0: of the document as a whole
	Message   string
}

// Error is FILE:LINE:COL: message.
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Message)
}

func (n *Node) problem(format string, args ...any) *Problem {
	return &Problem{n.File, n.Line, n.Col, fmt.Sprintf(format, args...)}
}

func (m Member) problem(format string, args ...any) *Problem {
	return &Problem{m.Value.File, m.Line, m.Col, fmt.Sprintf(format, args...)}
}

// Problems is everything that is wrong with a document, in its order.
type Problems []*Problem

// Error is one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}
