package idemhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	maxSelection = 1 << 10
	maxCounted   = 100 // headers
)

// selection is what of a request counts in its fingerprint, compiled from Rules or from the text in a record. It is immutable and
// safe for concurrent use.
type selection struct {
	mode       FingerprintMode
	pathValues bool
	headers    []string // canonical names, sorted
	exclude    []string // pointers, sorted
	include    []string
	defaults   []defaultValue // sorted by pointer

	text string // what encode returns
	trie []trieNode
}

// defaultValue is the value that an absent member has.
type defaultValue struct {
	pointer string
	json    string // compact
}

// trieNode is one token of the pointers. The first node is the document itself.
type trieNode struct {
	token       string
	index       int // the array index that token means, or -1
	star        bool
	first, next int32 // child and sibling; 0 means none
	excluded    bool
	included    bool
	fallback    *fallback
}

// fallback is a default, ready to be compared.
type fallback struct {
	canonical []byte // of a JSON member
	text      string // of a form field
}

// newSelection compiles the fingerprint fields of r. The error joins every mistake, each with what to write instead.
func newSelection(r Rules) (selection, error) {
	s := selection{mode: cmp.Or(r.Fingerprint, FingerprintCanonical), pathValues: r.PathValues}
	var mistakes []error
	switch s.mode {
	case FingerprintCanonical:
	case FingerprintRaw, FingerprintNone:
		if len(r.Exclude)+len(r.Include)+len(r.Defaults) > 0 {
			mistakes = append(mistakes, fmt.Errorf("Exclude, Include and Defaults need FingerprintCanonical; Fingerprint is %q", s.mode))
		}
	default:
		mistakes = append(mistakes, fmt.Errorf("Fingerprint is %q; set FingerprintCanonical, FingerprintRaw or FingerprintNone", s.mode))
	}
	for _, name := range r.Headers {
		if !isToken(name) || strings.EqualFold(name, "Host") {
			mistakes = append(mistakes, fmt.Errorf("Headers: %q is no header of a request; name one as in \"X-Api-Version\"", name))
		}
		s.headers = append(s.headers, http.CanonicalHeaderKey(name))
	}
	s.headers = sortedSet(s.headers)
	s.exclude, s.include = sortedSet(slices.Clone(r.Exclude)), sortedSet(slices.Clone(r.Include))
	for pointer, value := range r.Defaults {
		text, err := compactJSON(value)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("Defaults %q: %w; give a value that JSON can hold", pointer, err))
			continue
		}
		s.defaults = append(s.defaults, defaultValue{pointer: pointer, json: text})
	}
	slices.SortFunc(s.defaults, byPointer)
	mistakes = append(mistakes, s.build()...)
	if err := errors.Join(mistakes...); err != nil {
		return selection{}, err
	}
	return s, nil
}

func byPointer(a, b defaultValue) int { return cmp.Compare(a.pointer, b.pointer) }

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func compactJSON(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b.Bytes()); err != nil {
		return "", err
	}
	return compact.String(), nil
}

// build checks the lists and compiles them.
func (s *selection) build() []error {
	var mistakes []error
	s.trie = []trieNode{{index: -1}}
	if len(s.exclude) > 0 && len(s.include) > 0 {
		mistakes = append(mistakes, errors.New("Exclude and Include are both set; keep the shorter list"))
	}
	if len(s.headers) > maxCounted {
		mistakes = append(mistakes, fmt.Errorf("Headers names %d; at most %d can count", len(s.headers), maxCounted))
	}
	for _, pointer := range s.exclude {
		if tokens, err := parsePointer(pointer); err != nil {
			mistakes = append(mistakes, fmt.Errorf("Exclude: %w", err))
		} else {
			s.trie[s.plant(tokens)].excluded = true
		}
	}
	for _, pointer := range s.include {
		if tokens, err := parsePointer(pointer); err != nil {
			mistakes = append(mistakes, fmt.Errorf("Include: %w", err))
		} else {
			s.trie[s.plant(tokens)].included = true
		}
	}
	mistakes = append(mistakes, s.plantDefaults()...)
	s.text = s.write()
	if len(s.text) > maxSelection {
		mistakes = append(mistakes, fmt.Errorf("the fingerprint selection has %d bytes, at most %d fit into a record; name fewer pointers, headers or defaults", len(s.text), maxSelection))
	}
	return mistakes
}

// plantDefaults adds the defaults, the deepest first: a default may hold members that have defaults themselves.
func (s *selection) plantDefaults() []error {
	var mistakes []error
	byDepth := slices.Clone(s.defaults)
	slices.SortStableFunc(byDepth, func(a, b defaultValue) int {
		return strings.Count(b.pointer, "/") - strings.Count(a.pointer, "/")
	})
	for _, d := range byDepth {
		tokens, err := parsePointer(d.pointer)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("Defaults: %w", err))
			continue
		}
		if tokens[len(tokens)-1] == "*" {
			mistakes = append(mistakes, fmt.Errorf("Defaults %q: an element of an array has no default; name a member below it, as in %q", d.pointer, d.pointer+"/name"))
			continue
		}
		if !s.counts(tokens) {
			mistakes = append(mistakes, fmt.Errorf("Defaults %q does not count: it is outside Include, or in Exclude; drop it, or change the list", d.pointer))
			continue
		}
		var doc document
		if !doc.parse([]byte(d.json)) {
			mistakes = append(mistakes, fmt.Errorf("Defaults %q: the value can be read in more than one way; drop repeated names and extreme numbers", d.pointer))
			continue
		}
		at := s.plant(tokens)
		text := d.json
		if doc.nodes[0].kind == kindString {
			text = string(doc.textOf(0))
		}
		c := canon{doc: &doc, trie: s.trie, out: &stream{buf: make([]byte, 0, maxSelection*2)}}
		c.value(0, []int32{at}, true)
		s.trie[at].fallback = &fallback{canonical: bytes.Clone(c.out.buf), text: text}
	}
	return mistakes
}

// counts reports whether the member that tokens name is in the fingerprint at all.
func (s *selection) counts(tokens []string) bool {
	at, in := int32(0), len(s.include) == 0
	for _, t := range tokens {
		at = s.child(at, t)
		if at == 0 {
			return in
		}
		if s.trie[at].excluded {
			return false
		}
		in = in || s.trie[at].included
	}
	return in
}

func (s *selection) child(at int32, token string) int32 {
	for c := s.trie[at].first; c != 0; c = s.trie[c].next {
		if s.trie[c].token == token { // not secret: a part of a JSON pointer
			return c
		}
	}
	return 0
}

// plant is the node of tokens, made where it is not there.
func (s *selection) plant(tokens []string) int32 {
	at := int32(0)
	for _, t := range tokens {
		c := s.child(at, t)
		if c == 0 {
			c = int32(len(s.trie))
			s.trie = append(s.trie, trieNode{token: t, index: arrayIndex(t), star: t == "*", next: s.trie[at].first})
			s.trie[at].first = c
		}
		at = c
	}
	return at
}

// encode is the stable text of a selection, at most 1 KiB. Equal selections have equal texts.
func (s *selection) encode() string { return s.text }

func (s *selection) write() string {
	var b strings.Builder
	b.WriteString("body=" + string(s.mode))
	if s.pathValues {
		b.WriteString(";path=values")
	}
	list := func(name string, items []string) {
		for i, item := range items {
			if i == 0 {
				b.WriteString(";" + name + "=")
			} else {
				b.WriteByte(',')
			}
			b.WriteString(escapeItem(item))
		}
	}
	list("headers", s.headers)
	list("exclude", s.exclude)
	list("include", s.include)
	for i, d := range s.defaults {
		if i == 0 {
			b.WriteString(";defaults=")
		} else {
			b.WriteByte(',')
		}
		b.WriteString(escapeItem(d.pointer) + ":" + escapeItem(d.json))
	}
	return b.String()
}

// decodeSelection compiles the text of a record. It accepts only what encode writes: a text that this binary would have spelled
// otherwise is not understood, and must not be compared.
func decodeSelection(text string) (selection, error) {
	s, err := readSelection(text)
	if err != nil {
		return selection{}, err
	}
	if mistakes := s.build(); len(mistakes) > 0 || s.text != text {
		return selection{}, errSelection
	}
	return s, nil
}

var errSelection = errors.New("fingerprint selection of the record is not understood")

func readSelection(text string) (selection, error) {
	var s selection
	if len(text) > maxSelection {
		return s, errSelection
	}
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(part, "=")
		items := strings.Split(value, ",")
		for i, item := range items {
			pointer, rest, pair := strings.Cut(item, ":")
			plain, ok := unescapeItem(pointer)
			if !ok || pair != (name == "defaults") {
				return s, errSelection
			}
			items[i] = plain
			if pair {
				value, ok := unescapeItem(rest)
				if !ok {
					return s, errSelection
				}
				s.defaults = append(s.defaults, defaultValue{pointer: plain, json: value})
			}
		}
		switch name {
		case "body":
			s.mode = FingerprintMode(items[0])
		case "path":
			s.pathValues = true
		case "headers":
			s.headers = sortedSet(items)
		case "exclude":
			s.exclude = sortedSet(items)
		case "include":
			s.include = sortedSet(items)
		case "defaults":
		default:
			return s, errSelection
		}
	}
	switch s.mode {
	case FingerprintCanonical, FingerprintRaw, FingerprintNone:
		slices.SortFunc(s.defaults, byPointer)
		return s, nil
	}
	return s, errSelection
}

// escapeItem writes an item of a list so that it holds no separator and nothing but visible ASCII.
func escapeItem(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || strings.IndexByte("%;,=:", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			c = digits[c&15]
		}
		b.WriteByte(c)
	}
	return b.String()
}

func unescapeItem(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) || !hexDigit(s[i+1]) || !hexDigit(s[i+2]) {
				return "", false
			}
			c = hexValue(s[i+1])<<4 | hexValue(s[i+2])
			i += 2
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
