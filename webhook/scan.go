package webhook

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep a body may nest.
const maxDepth = 200

// span is a place in a document.
type span struct{ from, to int }

// scanner reads JSON without building anything, so that a place in a body stays a place.
type scanner struct {
	s []byte
	i int
}

// valid tells whether doc is one JSON value of bounded depth.
func valid(doc []byte) bool {
	s := scanner{s: doc}
	s.space()
	if !s.value(0) {
		return false
	}
	s.space()
	return s.i == len(doc)
}

func (s *scanner) space() {
	for s.i < len(s.s) {
		switch s.s[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.s) && s.s[s.i] == c {
		s.i++
		return true
	}
	return false
}

// value moves past one value.
func (s *scanner) value(depth int) bool {
	if depth > maxDepth || s.i >= len(s.s) {
		return false
	}
	switch c := s.s[s.i]; {
	case c == '{':
		return s.composite('}', depth, func(span, span) {})
	case c == '[':
		return s.composite(']', depth, func(span, span) {})
	case c == '"':
		return s.text()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.number()
}

// composite moves past an object or an array and calls visit with the place of each name (empty in arrays) and value.
func (s *scanner) composite(end byte, depth int, visit func(name, value span)) bool {
	s.i++
	s.space()
	if s.take(end) {
		return true
	}
	for {
		s.space()
		name := span{s.i, s.i}
		if end == '}' {
			if s.i >= len(s.s) || s.s[s.i] != '"' || !s.text() {
				return false
			}
			name.to = s.i
			s.space()
			if !s.take(':') {
				return false
			}
			s.space()
		}
		value := span{from: s.i}
		if !s.value(depth + 1) {
			return false
		}
		value.to = s.i
		visit(name, value)
		s.space()
		if s.take(end) {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) text() bool {
	for s.i++; s.i < len(s.s); s.i++ {
		switch c := s.s[s.i]; {
		case c == '"':
			s.i++
			return true
		case c < ' ':
			return false
		case c == '\\':
			s.i++
			if s.i >= len(s.s) {
				return false
			}
			switch s.s[s.i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					s.i++
					if s.i >= len(s.s) || nibble(s.s[s.i]) > 15 {
						return false
					}
				}
			default:
				return false
			}
		}
	}
	return false
}

func (s *scanner) word(w string) bool {
	if len(s.s)-s.i < len(w) || string(s.s[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

func (s *scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.s) && '0' <= s.s[s.i] && s.s[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// Value is what stands at a JSON pointer, in a header or in a form field: a string, or an integer with all its digits.
type Value struct {
	Text     string
	IsString bool
}

// textAt is the string or integer at a pointer of a valid document. A repeated member name on the way, and any other
// value, counts as missing.
func textAt(doc []byte, pointer string) (Value, bool) {
	at, ok := find(doc, span{0, len(doc)}, pointer)
	if !ok {
		return Value{}, false
	}
	raw := doc[at.from:at.to]
	if raw[0] == '"' {
		text, ok := unquote(raw)
		return Value{text, true}, ok
	}
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-' || len(raw) == 1) {
			return Value{}, false
		}
	}
	return Value{Text: string(raw)}, true
}

// unquote reads a string. One that is not whole UTF-8 counts as missing: two of them could read alike.
func unquote(raw []byte) (string, bool) {
	if !utf8.Valid(raw) {
		return "", false
	}
	plain := true
	for _, c := range raw {
		plain = plain && c != '\\'
	}
	if plain {
		return string(raw[1 : len(raw)-1]), true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || strings.ContainsRune(text, utf8.RuneError) {
		return "", false
	}
	return text, true
}

// find is the place of the value at a pointer of a valid document.
func find(doc []byte, in span, pointer string) (span, bool) {
	at := trim(doc, in)
	for pointer != "" {
		part, rest, more := strings.Cut(pointer[1:], "/")
		next, ok := step(doc, at, unescape(part))
		if !ok {
			return span{}, false
		}
		at, pointer = next, ""
		if more {
			pointer = "/" + rest
		}
	}
	return at, at.from < at.to
}

func unescape(part string) string {
	if !strings.Contains(part, "~") {
		return part
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
}

func trim(doc []byte, at span) span {
	s := scanner{doc[:at.to], at.from}
	s.space()
	at.from = s.i
	for at.to > at.from && strings.IndexByte(" \t\r\n", doc[at.to-1]) >= 0 {
		at.to--
	}
	return at
}

// step goes to the member or element named part. A name that is there twice is not there.
func step(doc []byte, at span, part string) (span, bool) {
	if at.from >= at.to {
		return span{}, false
	}
	var found span
	seen, index := 0, 0
	s := scanner{doc[:at.to], at.from}
	switch doc[at.from] {
	case '{':
		s.composite('}', 0, func(name, value span) {
			if got, ok := unquote(doc[name.from:name.to]); ok && got == part {
				found = value
				seen++
			}
		})
	case '[':
		want, err := strconv.Atoi(part)
		if err != nil || strconv.Itoa(want) != part {
			return span{}, false
		}
		s.composite(']', 0, func(_, value span) {
			if index == want {
				found = value
				seen++
			}
			index++
		})
	}
	return found, seen == 1
}

// elements are the places of the events that a pattern names: the elements of the array at its end, where * stands for
// every element on the way. ok is false where there is no such array at all.
func elements(doc []byte, pattern string) (list []span, ok bool) {
	return elementsIn(doc, trim(doc, span{0, len(doc)}), pattern)
}

func elementsIn(doc []byte, at span, pattern string) (list []span, ok bool) {
	head, tail, star := strings.Cut(pattern, "/*")
	array, found := find(doc, at, head)
	if !found || doc[array.from] != '[' {
		return nil, false
	}
	s := scanner{doc[:array.to], array.from}
	s.composite(']', 0, func(_, value span) {
		if !star {
			list, ok = append(list, value), true
			return
		}
		inner, innerOK := elementsIn(doc, value, tail)
		list, ok = append(list, inner...), ok || innerOK
	})
	return list, ok || !star
}

// without gives the parts of a document that are left when the members at the pointers are cut out, in order.
func without(doc []byte, pointers []string) []byte {
	if len(pointers) == 0 || !valid(doc) {
		return doc
	}
	out := make([]byte, 0, len(doc))
	from := 0
	for _, at := range places(doc, pointers) {
		if at.from >= from {
			out = append(out, doc[from:at.from]...)
			from = at.to
		}
	}
	return append(out, doc[from:]...)
}

// places are those of the pointers that are there, by position.
func places(doc []byte, pointers []string) []span {
	var list []span
	for _, p := range pointers {
		if at, ok := find(doc, span{0, len(doc)}, p); ok {
			list = append(list, at)
		}
	}
	for i := 1; i < len(list); i++ {
		for j := i; j > 0 && list[j].from < list[j-1].from; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
	return list
}
