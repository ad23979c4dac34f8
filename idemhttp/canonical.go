package idemhttp

import "hash"

// stream collects bytes for a hash in a buffer of fixed capacity. Without a hash it only collects, and notes when the buffer is
// too small.
type stream struct {
	hash hash.Hash
	buf  []byte
	full bool
}

func put[T string | []byte](s *stream, v T) {
	for len(v) > 0 {
		n := copy(s.buf[len(s.buf):cap(s.buf)], v)
		s.buf = s.buf[:len(s.buf)+n]
		v = v[n:]
		if len(v) == 0 {
			return
		}
		if s.hash == nil {
			s.full = true
			return
		}
		s.flush()
	}
}

// putText writes v behind its length, so that no two sequences of texts have the same bytes.
func putText[T string | []byte](s *stream, v T) {
	s.number(uint64(len(v)))
	put(s, v)
}

func (s *stream) byte(c byte) {
	if len(s.buf) == cap(s.buf) {
		if s.hash == nil {
			s.full = true
			return
		}
		s.flush()
	}
	s.buf = append(s.buf, c)
}

func (s *stream) number(n uint64) {
	for n >= 0x80 {
		s.byte(byte(n) | 0x80)
		n >>= 7
	}
	s.byte(byte(n))
}

func (s *stream) flush() {
	s.hash.Write(s.buf)
	s.buf = s.buf[:0]
}

// canon writes the canonical form of a JSON document, as far as the selection counts it.
//
// Every value begins with a letter of its own and says its length or has an end mark, so that the form of a document is the form
// of no other. Where Include leaves a container out but counts something in it, the way there is written instead.
type canon struct {
	doc  *document
	trie []trieNode
	out  *stream

	stack   []int32 // trie nodes that stand for the values being visited
	path    []step  // containers on the way to something included
	written int     // how many of path are written
	keep    [32]int32
}

type step struct {
	kind  kind
	child uint32
	index int
}

// counted says how far a value counts.
type counted uint8

const (
	countsNone counted = iota // left out
	countsWay                 // left out, but something in it may count
	countsFull
)

// start is the state at the root of the document.
func (c *canon) start() (state []int32, w counted) {
	if len(c.trie) < 2 {
		return nil, countsFull
	}
	c.stack = append(c.keep[:0], 0)
	if c.includes() {
		return c.stack, countsWay
	}
	return c.stack, countsFull
}

func (c *canon) includes() bool {
	for i := range c.trie {
		if c.trie[i].included {
			return true
		}
	}
	return false
}

// enter is the state of a child and how far it counts. The caller gives the stack back as it was.
func (c *canon) enter(state []int32, parent counted, in kind, child uint32, index int) ([]int32, counted) {
	if len(state) == 0 {
		return nil, parent
	}
	base := len(c.stack)
	w := parent
	var fall *fallback
	for _, s := range state {
		for t := c.trie[s].first; t != 0; t = c.trie[t].next {
			n := &c.trie[t]
			if in == kindObject && string(c.doc.nameOf(child)) != n.token || in == kindArray && !n.star && n.index != index { // not secret: a part of a JSON pointer
				continue
			}
			if n.excluded {
				c.stack = c.stack[:base]
				return nil, countsNone
			}
			if n.included {
				w = countsFull
			}
			if n.fallback != nil && in == kindObject {
				fall = n.fallback
			}
			c.stack = append(c.stack, t)
		}
	}
	below := c.stack[base:]
	if w == countsWay && (len(below) == 0 || c.doc.first(child) == 0) {
		return below, countsNone
	}
	if fall != nil && w == countsFull && c.is(child, below, fall.canonical) {
		return below, countsNone
	}
	return below, w
}

// is reports whether the canonical form of a value is want.
func (c *canon) is(n uint32, state []int32, want []byte) bool {
	own := canon{doc: c.doc, trie: c.trie, out: &stream{buf: make([]byte, 0, len(want))}, stack: c.stack}
	own.value(n, state, true)
	return !own.out.full && string(own.out.buf) == string(want)
}

// document writes the whole document.
func (c *canon) document() {
	state, w := c.start()
	if w == countsFull {
		c.value(0, state, true)
		return
	}
	c.way(0, state)
}

// value writes a value that counts. top is true where no way leads to it.
func (c *canon) value(n uint32, state []int32, top bool) {
	if !top {
		c.writeWay()
	}
	v := &c.doc.nodes[n]
	switch v.kind {
	case kindNull:
		c.out.byte('z')
	case kindTrue:
		c.out.byte('t')
	case kindFalse:
		c.out.byte('f')
	case kindNumber:
		c.decimal(parseDecimal(c.doc.textOf(n)))
	case kindString:
		c.out.byte('s')
		putText(c.out, c.doc.textOf(n))
	case kindArray:
		c.out.byte('[')
		c.children(n, state)
		c.out.byte(']')
	case kindObject:
		c.out.byte('{')
		c.children(n, state)
		c.out.byte('}')
	}
}

func (c *canon) children(n uint32, state []int32) {
	in := c.doc.nodes[n].kind
	index := 0
	for child := c.doc.first(n); child != 0 && !c.out.full; child = c.doc.nodes[child].next {
		base := len(c.stack)
		if below, w := c.enter(state, countsFull, in, child, index); w == countsFull {
			if in == kindObject {
				c.out.byte('k')
				putText(c.out, c.doc.nameOf(child))
			}
			c.value(child, below, true)
		}
		c.stack = c.stack[:base]
		index++
	}
}

func (c *canon) decimal(d decimal) {
	c.out.byte('n')
	if d.negative {
		c.out.byte('-')
	} else {
		c.out.byte('+')
	}
	c.out.number(uint64(len(d.whole) + len(d.part)))
	put(c.out, d.whole)
	put(c.out, d.part)
	c.out.number(uint64(d.exponent<<1) ^ uint64(d.exponent>>63))
}

// way visits a container that is left out, for what counts in it.
func (c *canon) way(n uint32, state []int32) {
	in := c.doc.nodes[n].kind
	index := 0
	for child := c.doc.first(n); child != 0; child = c.doc.nodes[child].next {
		base := len(c.stack)
		below, w := c.enter(state, countsWay, in, child, index)
		if w != countsNone {
			c.path = append(c.path, step{kind: in, child: child, index: index})
			if w == countsFull {
				c.value(child, below, false)
			} else {
				c.way(child, below)
			}
			c.path = c.path[:len(c.path)-1]
			if c.written > len(c.path) {
				c.written--
				c.out.byte('<')
			}
		}
		c.stack = c.stack[:base]
		index++
	}
}

func (c *canon) writeWay() {
	for ; c.written < len(c.path); c.written++ {
		s := c.path[c.written]
		if s.kind == kindObject {
			c.out.byte('>')
			putText(c.out, c.doc.nameOf(s.child))
		} else {
			c.out.byte('#')
			c.out.number(uint64(s.index))
		}
	}
}
