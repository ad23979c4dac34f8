package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a document.
const maxDepth = 200

// ParseJSON reads one JSON document. file is what mistakes are reported under. The error is a *Problem with the line: broken JSON,
// a name that is there twice in one object, text after the end, nesting beyond 200.
func ParseJSON(file string, content []byte) (*Node, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	p := &jsonParser{file: file, content: content, decoder: json.NewDecoder(bytes.NewReader(content))}
	p.decoder.UseNumber()
	n, err := p.value(0)
	if err == nil {
		at := p.next()
		if _, more := p.decoder.Token(); !errors.Is(more, io.EOF) {
			err = p.problem(at, "not JSON: text after the end of the document")
		}
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

type jsonParser struct {
	file    string
	content []byte
	decoder *json.Decoder
	at      mark // the last place that was asked for: a document may be one line of megabytes
}

type mark struct{ offset, line, col int }

// place is where an offset is. Offsets are asked for in their order; an earlier one costs a walk from the beginning.
func (p *jsonParser) place(offset int) (line, col int) {
	offset = min(offset, len(p.content))
	m := p.at
	if m.line == 0 || offset < m.offset {
		m = mark{0, 1, 1}
	}
	for m.offset < offset {
		r, size := utf8.DecodeRune(p.content[m.offset:])
		m.offset += size
		m.col++
		if r == '\n' {
			m.line, m.col = m.line+1, 1
		}
	}
	p.at = m
	return m.line, m.col
}

func (p *jsonParser) problem(offset int, message string) *Problem {
	line, col := p.place(offset)
	return &Problem{p.file, line, col, message}
}

// next is where the next token begins.
func (p *jsonParser) next() int {
	at := int(p.decoder.InputOffset())
	for at < len(p.content) && bytes.IndexByte([]byte(" \t\r\n,:"), p.content[at]) >= 0 {
		at++
	}
	return at
}

func (p *jsonParser) token() (json.Token, int, error) {
	at := p.next()
	t, err := p.decoder.Token()
	if err != nil {
		message := err.Error()
		if s, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = max(0, int(s.Offset)-1)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			message = "it ends too early"
		}
		return nil, at, p.problem(at, "not JSON: "+message)
	}
	return t, at, nil
}

func (p *jsonParser) value(depth int) (*Node, error) {
	t, at, err := p.token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, p.problem(at, "nested too deep: at most 200 levels")
	}
	n := &Node{File: p.file, Flow: true}
	n.Line, n.Col = p.place(at)
	switch t := t.(type) {
	case nil:
	case bool:
		n.Kind, n.Value = Bool, "false"
		if t {
			n.Value = "true"
		}
	case json.Number:
		n.Kind, n.Value = Number, t.String()
	case string:
		n.Kind, n.Value = Text, t
	case json.Delim:
		if t == '[' {
			n.Kind = List
			err = p.items(n, depth)
		} else {
			n.Kind = Map
			err = p.members(n, depth)
		}
	}
	return n, err
}

func (p *jsonParser) items(n *Node, depth int) error {
	for p.decoder.More() {
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, v)
	}
	_, _, err := p.token()
	return err
}

func (p *jsonParser) members(n *Node, depth int) error {
	seen := map[string]bool{}
	for p.decoder.More() {
		t, at, err := p.token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return p.problem(at, "not JSON: a name is wanted")
		}
		if seen[name] {
			return p.problem(at, "the name "+quote(name)+" is there twice")
		}
		seen[name] = true
		m := Member{Name: name}
		m.Line, m.Col = p.place(at)
		if m.Value, err = p.value(depth + 1); err != nil {
			return err
		}
		n.Members = append(n.Members, m)
	}
	_, _, err := p.token()
	return err
}
