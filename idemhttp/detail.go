package idemhttp

import (
	"bytes"
	"crypto/hmac"
	"errors"
	"hash"
	"slices"
	"strconv"
	"strings"
)

// Member digests: version, level, body form and number of parts, one byte each; 8 bytes a part; then, a member, 8 bytes of its
// pointer's digest and 8 of its value's. They say what differs without holding a name or value of the request.

const (
	detailVersion = 1
	detailHead    = 4
	maxDetail     = 1280
	maxMembers    = 64

	maxNamed       = 64  // pointers that a mismatch lists, of each kind
	maxNamedLength = 256 // bytes; a longer one is left out

	levelParts  byte = 0
	levelLeaves byte = 1
	levelTop    byte = 2
)

var errDetail = errors.New("member digests of the record are not understood")

func (d *digester) detailSize(p *payload) int {
	size := detailHead + len(d.digests)/4
	if d.named(p) {
		size += 16 * min(maxMembers, p.members())
	}
	return size
}

// named reports whether members of the body can be told apart.
func (d *digester) named(p *payload) bool {
	return d.sel.mode == FingerprintCanonical && p.form != bodyRaw
}

// members bounds the number of leaves from above.
func (p *payload) members() int {
	switch p.form {
	case bodyJSON:
		return len(p.doc.nodes)
	case bodyURL:
		return len(p.pairs)
	}
	return len(p.fields)
}

func (d *digester) appendDetail(b []byte, p *payload) []byte {
	form := bodyRaw
	if d.named(p) {
		form = p.form
	}
	b = append(b, detailVersion, levelParts, byte(form), byte(len(d.digests)/digestSize))
	for i := 0; i < len(d.digests); i += digestSize {
		b = append(b, d.digests[i:i+8]...)
	}
	if form == bodyRaw {
		return b
	}
	head := len(b)
	room := min(maxMembers, (maxDetail-head)/16)
	m := members{d: d, payload: p}
	for level := levelLeaves; level <= levelTop; level++ {
		if level == levelLeaves && form == bodyJSON && len(d.sel.trie) < 2 && p.doc.leaves > room {
			continue
		}
		m.level, m.room, m.digests = level, room, b[:head]
		if m.all() {
			m.digests[1] = level
			return m.digests
		}
	}
	return b[:head]
}

// members visits the members of a body at one level. It either collects their digests, up to room of them, or compares them
// with stored ones and names what differs.
type members struct {
	d       *digester
	payload *payload
	level   byte

	digests []byte
	room    int

	stored  map[[8]byte][8]byte
	pointer []byte // text of the member being visited
	found   *Mismatch
}

// all reports false when there are more members than room.
func (m *members) all() bool {
	switch m.payload.form {
	case bodyJSON:
		c := &m.d.canon
		*c = canon{doc: &m.payload.doc, trie: m.d.sel.trie, out: &m.d.out}
		state, w := c.start()
		if c.doc.nodes[0].kind < kindArray {
			return w != countsFull || m.jsonMember(0, state, w, m.pointerDigest([8]byte{}, '/', nil))
		}
		return m.json(0, state, w, [8]byte{}, 0)
	case bodyURL:
		return m.pairs()
	}
	return m.fields()
}

func (m *members) json(n uint32, state []int32, w counted, above [8]byte, depth int) bool {
	c := &m.d.canon
	in := c.doc.nodes[n].kind
	if in < kindArray || m.level == levelTop && depth == 1 {
		return m.jsonMember(n, state, w, above)
	}
	empty := true
	index := 0
	for child := c.doc.first(n); child != 0; child = c.doc.nodes[child].next {
		base, length := len(c.stack), len(m.pointer)
		below, counted := c.enter(state, w, in, child, index)
		if counted == countsFull || counted == countsWay && c.has(child, below) {
			empty = false
			var digest [8]byte
			if in == kindObject {
				digest = m.pointerDigest(above, 'k', c.doc.nameOf(child))
			} else {
				digest = m.pointerDigest(above, 'i', strconv.AppendInt(m.d.sum[:0], int64(index), 10))
			}
			if !m.json(child, below, counted, digest, depth+1) {
				return false
			}
		}
		c.stack, m.pointer = c.stack[:base], m.pointer[:length]
		index++
	}
	if empty && w == countsFull {
		if depth == 0 {
			above = m.pointerDigest(above, '/', nil)
		}
		return m.jsonMember(n, state, w, above)
	}
	return true
}

// has reports whether anything in a container on the way counts.
func (c *canon) has(n uint32, state []int32) bool {
	in := c.doc.nodes[n].kind
	index := 0
	for child := c.doc.first(n); child != 0; child = c.doc.nodes[child].next {
		base := len(c.stack)
		below, w := c.enter(state, countsWay, in, child, index)
		found := w == countsFull || w == countsWay && c.has(child, below)
		c.stack = c.stack[:base]
		if found {
			return true
		}
		index++
	}
	return false
}

// pointerDigest is the digest of a pointer, made of the digest of the one above it and the last token, so that long names
// are hashed once however many members they have.
func (m *members) pointerDigest(above [8]byte, mark byte, token []byte) [8]byte {
	if m.stored != nil && mark != '/' {
		m.pointer = appendToken(m.pointer, token)
	}
	m.d.begin("pointer")
	for _, b := range above {
		m.d.out.byte(b)
	}
	m.d.out.byte(mark)
	put(&m.d.out, token)
	return m.d.end8()
}

// beginValue starts the digest of a member's value. The pointer is part of it: equal values of two members look unrelated.
func (m *members) beginValue(pointer [8]byte) {
	m.d.begin("value")
	for _, b := range pointer {
		m.d.out.byte(b)
	}
}

func (m *members) jsonMember(n uint32, state []int32, w counted, pointer [8]byte) bool {
	c := &m.d.canon
	m.beginValue(pointer)
	if w == countsFull {
		c.value(n, state, true)
	} else {
		c.path, c.written = c.path[:0], 0
		c.way(n, state)
	}
	return m.take(pointer, m.d.end8())
}

func (m *members) pairs() bool {
	all := m.payload.pairs
	for len(all) > 0 {
		same := named(all, all[0].name)
		all = all[len(same):]
		if !m.d.sel.countsPair(same, same[0]) {
			continue
		}
		m.pointer = m.pointer[:0]
		pointer := m.pointerDigest([8]byte{}, 'k', []byte(same[0].name))
		m.beginValue(pointer)
		for _, p := range same {
			m.d.pair(p)
		}
		if !m.take(pointer, m.d.end8()) {
			return false
		}
	}
	return true
}

func (m *members) fields() bool {
	byName := make([]*field, 0, len(m.payload.fields))
	for i := range m.payload.fields {
		if f := &m.payload.fields[i]; m.d.sel.countsField(m.payload.fields, f) {
			byName = append(byName, f)
		}
	}
	slices.SortStableFunc(byName, func(a, b *field) int { return strings.Compare(a.name, b.name) })
	for len(byName) > 0 {
		n := 1
		for n < len(byName) && byName[n].name == byName[0].name {
			n++
		}
		m.pointer = m.pointer[:0]
		pointer := m.pointerDigest([8]byte{}, 'k', []byte(byName[0].name))
		m.beginValue(pointer)
		for _, f := range byName[:n] {
			m.d.field(f)
		}
		if !m.take(pointer, m.d.end8()) {
			return false
		}
		byName = byName[n:]
	}
	return true
}

func (m *members) take(pointer, value [8]byte) bool {
	if m.stored == nil {
		if m.room == 0 {
			return false
		}
		m.room--
		m.digests = append(append(m.digests, pointer[:]...), value[:]...)
		return true
	}
	old, known := m.stored[pointer]
	switch {
	case !known:
		m.found.Added = m.name(m.found.Added)
	case !hmac.Equal(old[:], value[:]):
		m.found.Changed = m.name(m.found.Changed)
	}
	delete(m.stored, pointer)
	return true
}

func (m *members) name(list []string) []string {
	if len(list) == maxNamed || len(m.pointer) > maxNamedLength {
		return list
	}
	return append(list, string(m.pointer))
}

// diff says how p differs from the request that stored, the detail of a record, was made of. s must be the record's own
// selection and mac its key. Without stored digests the result is nil. Errors: errDetail for digests that are cut or
// of another version, body_too_large, and failures to read a spooled body.
func (s *selection) diff(mac func() hash.Hash, p parts, stored []byte) (*Mismatch, error) {
	if len(stored) == 0 {
		return nil, nil
	}
	d := newDigester(mac(), s)
	if err := d.parts(p); err != nil {
		return nil, err
	}
	count := len(d.digests) / digestSize
	head := detailHead + 8*count
	if len(stored) < head || len(stored) > maxDetail || (len(stored)-head)%16 != 0 || stored[0] != detailVersion ||
		stored[1] > levelTop || int(stored[3]) != count {
		return nil, errDetail
	}
	found := &Mismatch{Parts: []string{}}
	for i := range count {
		if !hmac.Equal(stored[detailHead+8*i:][:8], d.digests[digestSize*i:][:8]) {
			found.Parts = append(found.Parts, s.partName(i, count))
		}
	}
	body := slices.Contains(found.Parts, "body")
	if !body || stored[1] == levelParts || !d.named(p.body) || stored[2] != byte(p.body.form) {
		return found, nil
	}
	m := members{d: d, payload: p.body, level: stored[1], stored: map[[8]byte][8]byte{}, found: found}
	for b := bytes.Clone(stored[head:]); len(b) > 0; b = b[16:] {
		m.stored[[8]byte(b[:8])] = [8]byte(b[8:16])
	}
	m.all()
	found.Removed = len(m.stored)
	return found, nil
}

func (s *selection) partName(i, count int) string {
	switch {
	case i == count-1:
		return "body"
	case i < 4:
		return [...]string{"method", "path", "query", "media_type"}[i]
	}
	return "header:" + s.headers[i-4]
}
