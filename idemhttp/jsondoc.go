package idemhttp

import (
	"bytes"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxJSONDepth      = 64
	maxExponentDigits = 9
)

// document is one JSON text, read completely: a flat array of nodes over the source. The members of every object are sorted
// by name. It holds 24 bytes a value besides the source, which it does not copy.
type document struct {
	src    []byte
	aux    []byte // strings that had escapes, unescaped
	nodes  []node // the first is the root
	leaves int    // scalars, empty objects, empty arrays

	pos    int
	sort   []uint32
	inline [40]node
	inSort [32]uint32
}

// node is one value. For a string, start and end bound its text; for another scalar its token; for an object or array start
// is the first child and end the number of children.
type node struct {
	name, nameLen uint32
	start, end    uint32
	next          uint32 // the sibling after this one; 0, the root, means none
	kind          kind
	nameAux       bool // the name stands in aux, not in src
	textAux       bool
}

type kind uint8

const (
	kindNull kind = iota
	kindTrue
	kindFalse
	kindNumber
	kindString
	kindArray
	kindObject
)

// parse reads src, which must not change while d is in use. It reports false for everything that two readers could understand
// differently: not exactly one valid document, invalid UTF-8, a lone surrogate, a name twice in an object, a byte order
// mark, nesting over 64, an exponent over 9 digits. Time is linear but for the sorting of names; d is then not to be used.
func (d *document) parse(src []byte) bool {
	d.src, d.aux, d.leaves, d.pos = src, d.aux[:0], 0, 0
	if d.nodes == nil {
		d.nodes, d.sort = d.inline[:0], d.inSort[:0]
	}
	d.nodes = d.nodes[:0]
	if len(src) > math.MaxInt32 || !utf8.Valid(src) {
		return false
	}
	if n := maxNodes(src); n > cap(d.nodes) {
		d.nodes = make([]node, 0, n)
	}
	if !d.value(0) {
		return false
	}
	d.space()
	return d.pos == len(src)
}

// maxNodes bounds the number of values of a valid document: each but the first stands behind a comma or is the first in its
// container, and two of them take three bytes.
func maxNodes(src []byte) int {
	n := 1 + bytes.Count(src, []byte{','}) + bytes.Count(src, []byte{'['}) + bytes.Count(src, []byte{'{'})
	return min(n, len(src)/2+1)
}

func (d *document) space() {
	for d.pos < len(d.src) {
		switch d.src[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// take skips space and then c, if it is there.
func (d *document) take(c byte) bool {
	d.space()
	if d.pos < len(d.src) && d.src[d.pos] == c {
		d.pos++
		return true
	}
	return false
}

func (d *document) value(depth int) bool {
	d.space()
	if d.pos == len(d.src) {
		return false
	}
	at := len(d.nodes)
	switch c := d.src[d.pos]; c {
	case '{':
		d.pos++
		d.nodes = append(d.nodes, node{kind: kindObject})
		return depth < maxJSONDepth && d.object(at, depth+1)
	case '[':
		d.pos++
		d.nodes = append(d.nodes, node{kind: kindArray})
		return depth < maxJSONDepth && d.array(at, depth+1)
	case '"':
		start, length, aux, ok := d.text()
		d.leaves++
		d.nodes = append(d.nodes, node{kind: kindString, start: start, end: start + length, textAux: aux})
		return ok
	case 'n':
		return d.word("null", kindNull)
	case 't':
		return d.word("true", kindTrue)
	case 'f':
		return d.word("false", kindFalse)
	default:
		return d.number()
	}
}

func (d *document) word(w string, k kind) bool {
	if !bytes.HasPrefix(d.src[d.pos:], []byte(w)) {
		return false
	}
	d.leaves++
	d.nodes = append(d.nodes, node{kind: k, start: uint32(d.pos), end: uint32(d.pos + len(w))})
	d.pos += len(w)
	return true
}

func (d *document) array(at, depth int) bool {
	if d.take(']') {
		d.leaves++
		return true
	}
	var last uint32
	for {
		child := uint32(len(d.nodes))
		if !d.value(depth) {
			return false
		}
		d.link(at, last, child)
		last = child
		if d.take(',') {
			continue
		}
		return d.take(']')
	}
}

func (d *document) object(at, depth int) bool {
	if d.take('}') {
		d.leaves++
		return true
	}
	var last uint32
	for {
		if !d.take('"') {
			return false
		}
		d.pos--
		name, length, aux, ok := d.text()
		if !ok || !d.take(':') {
			return false
		}
		child := uint32(len(d.nodes))
		if !d.value(depth) {
			return false
		}
		n := &d.nodes[child]
		n.name, n.nameLen, n.nameAux = name, length, aux
		d.link(at, last, child)
		last = child
		if d.take(',') {
			continue
		}
		return d.take('}') && d.sortMembers(at)
	}
}

func (d *document) link(at int, last, child uint32) {
	if last == 0 {
		d.nodes[at].start = child
	} else {
		d.nodes[last].next = child
	}
	d.nodes[at].end++
}

// sortMembers orders the members of an object by name and reports false when a name is there twice.
func (d *document) sortMembers(at int) bool {
	d.sort = d.sort[:0]
	for c := d.nodes[at].start; c != 0; c = d.nodes[c].next {
		d.sort = append(d.sort, c)
	}
	slices.SortFunc(d.sort, func(a, b uint32) int { return bytes.Compare(d.nameOf(a), d.nameOf(b)) })
	for i, c := range d.sort {
		d.nodes[c].next = 0
		if i == 0 {
			d.nodes[at].start = c
			continue
		}
		if bytes.Equal(d.nameOf(d.sort[i-1]), d.nameOf(c)) {
			return false
		}
		d.nodes[d.sort[i-1]].next = c
	}
	return true
}

// text reads a string and says where its unescaped text is.
func (d *document) text() (start, length uint32, aux, ok bool) {
	d.pos++ // the quote
	begin := d.pos
	for d.pos < len(d.src) {
		switch c := d.src[d.pos]; {
		case c == '"':
			d.pos++
			return uint32(begin), uint32(d.pos - 1 - begin), false, true
		case c == '\\':
			return d.escapedText(begin)
		case c < 0x20:
			return 0, 0, false, false
		}
		d.pos++
	}
	return 0, 0, false, false
}

func (d *document) escapedText(begin int) (start, length uint32, aux, ok bool) {
	from := len(d.aux)
	d.aux = append(d.aux, d.src[begin:d.pos]...)
	for d.pos < len(d.src) {
		c := d.src[d.pos]
		d.pos++
		switch {
		case c == '"':
			return uint32(from), uint32(len(d.aux) - from), true, true
		case c < 0x20:
			return 0, 0, false, false
		case c != '\\':
			d.aux = append(d.aux, c)
		case !d.escape():
			return 0, 0, false, false
		}
	}
	return 0, 0, false, false
}

func (d *document) escape() bool {
	if d.pos == len(d.src) {
		return false
	}
	c := d.src[d.pos]
	d.pos++
	switch c {
	case '"', '\\', '/':
		d.aux = append(d.aux, c)
	case 'b':
		d.aux = append(d.aux, '\b')
	case 'f':
		d.aux = append(d.aux, '\f')
	case 'n':
		d.aux = append(d.aux, '\n')
	case 'r':
		d.aux = append(d.aux, '\r')
	case 't':
		d.aux = append(d.aux, '\t')
	case 'u':
		r, ok := d.hex4()
		if !ok {
			return false
		}
		if utf16.IsSurrogate(r) {
			if !bytes.HasPrefix(d.src[d.pos:], []byte(`\u`)) {
				return false
			}
			d.pos += 2
			low, ok := d.hex4()
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				return false
			}
		}
		d.aux = utf8.AppendRune(d.aux, r)
	default:
		return false
	}
	return true
}

func (d *document) hex4() (rune, bool) {
	if len(d.src)-d.pos < 4 {
		return 0, false
	}
	var r rune
	for _, c := range d.src[d.pos : d.pos+4] {
		if !hexDigit(c) {
			return 0, false
		}
		r = r<<4 | rune(hexValue(c))
	}
	d.pos += 4
	return r, true
}

func hexValue(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

func (d *document) number() bool {
	begin := d.pos
	if d.src[d.pos] == '-' {
		d.pos++
	}
	if d.pos < len(d.src) && d.src[d.pos] == '0' {
		d.pos++
	} else if d.digits() == 0 {
		return false
	}
	if d.pos < len(d.src) && d.src[d.pos] == '.' {
		d.pos++
		if d.digits() == 0 {
			return false
		}
	}
	if d.pos < len(d.src) && d.src[d.pos]|0x20 == 'e' {
		d.pos++
		if d.pos < len(d.src) && (d.src[d.pos] == '+' || d.src[d.pos] == '-') {
			d.pos++
		}
		if n := d.digits(); n == 0 || n > maxExponentDigits {
			return false
		}
	}
	d.leaves++
	d.nodes = append(d.nodes, node{kind: kindNumber, start: uint32(begin), end: uint32(d.pos)})
	return true
}

func (d *document) digits() int {
	begin := d.pos
	for d.pos < len(d.src) && '0' <= d.src[d.pos] && d.src[d.pos] <= '9' {
		d.pos++
	}
	return d.pos - begin
}

// nameOf is the unescaped name of a member.
func (d *document) nameOf(n uint32) []byte {
	v := &d.nodes[n]
	if v.nameAux {
		return d.aux[v.name : v.name+v.nameLen]
	}
	return d.src[v.name : v.name+v.nameLen]
}

// textOf is the unescaped text of a string, or the token of another scalar.
func (d *document) textOf(n uint32) []byte {
	v := &d.nodes[n]
	if v.textAux {
		return d.aux[v.start:v.end]
	}
	return d.src[v.start:v.end]
}

// first is the first child of n, or 0.
func (d *document) first(n uint32) uint32 {
	if v := &d.nodes[n]; v.kind == kindObject || v.kind == kindArray {
		return v.start
	}
	return 0
}

// find is the value that tokens lead to. Tokens of arrays are indexes.
func (d *document) find(tokens []string) (uint32, bool) {
	at := uint32(0)
	for _, t := range tokens {
		index := arrayIndex(t)
		object := d.nodes[at].kind == kindObject
		child := d.first(at)
		for i := 0; child != 0; i++ {
			if object && string(d.nameOf(child)) == t || !object && i == index {
				break
			}
			child = d.nodes[child].next
		}
		if child == 0 {
			return 0, false
		}
		at = child
	}
	return at, true
}
