package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// keyPart is one place of a request that a key, or a part of one, comes from.
type keyPart struct {
	text    string // as configured
	place   place
	name    string   // of a query parameter or wildcard; of a form field, when tokens has one
	pointer []string // into a body
}

type place byte

const (
	placeBody place = iota
	placeQuery
	placePath
	placeQueryOrBody // profile aws
)

// keyParts are several, in the order that counts.
type keyParts []keyPart

// parseKeyParts reads a list such as ["body:/order/id", "query:clientToken", "path:account"]. The error joins every mistake.
func parseKeyParts(field string, list []string) (keyParts, error) {
	var parts keyParts
	var mistakes []error
	for _, text := range list {
		kind, name, ok := strings.Cut(text, ":")
		part := keyPart{text: text, name: name}
		switch {
		case ok && kind == "body":
			tokens, err := parsePointer(name)
			if err != nil {
				mistakes = append(mistakes, fmt.Errorf("%s: %w", field, err))
			}
			part.place, part.pointer = placeBody, tokens
		case ok && kind == "query" && name != "":
			part.place = placeQuery
		case ok && kind == "path" && name != "":
			part.place = placePath
		default:
			mistakes = append(mistakes, fmt.Errorf("%s: %q names no part of a request; write body:/pointer, query:name or path:wildcard", field, text))
		}
		if slices.ContainsFunc(parts, func(p keyPart) bool { return p.text == text }) {
			mistakes = append(mistakes, fmt.Errorf("%s: %q is there twice; name each part once", field, text))
		}
		parts = append(parts, part)
	}
	return parts, errors.Join(mistakes...)
}

// needBody reports whether the parts can be read only after the body.
func (k keyParts) needBody() bool {
	return slices.ContainsFunc(k, func(p keyPart) bool { return p.place == placeBody || p.place == placeQueryOrBody })
}

// read joins the parts, each behind its length, so that no two tuples have one text. present is false when a part is absent; the
// error, a refusal with the code of a key, comes before that. Together the parts must have low to high bytes.
func (k keyParts) read(r *http.Request, body *payload, low, high int) (joined string, present bool, err error) {
	var b []byte
	present = true
	size := 0
	for _, part := range k {
		value, ok, err := part.read(r, body)
		if err != nil {
			return "", false, err
		}
		if !ok {
			present = false
			continue
		}
		if err := checkPart(value); err != nil {
			return "", false, err
		}
		size += len(value)
		b = strconv.AppendInt(b, int64(len(value)), 10)
		b = append(b, ':')
		b = append(b, value...)
	}
	if !present {
		return "", false, nil
	}
	if size < low || size > high {
		return "", false, refuse(keyLength, "The parts of the idempotency key must have "+strconv.Itoa(low)+" to "+strconv.Itoa(high)+" bytes together.")
	}
	return string(b), true, nil
}

// checkPart refuses what nobody means as an identity. Any other text is literal.
func checkPart(value string) error {
	if blank(value) {
		return refuse(keyEmpty, "A part of the idempotency key is empty.")
	}
	if !utf8.ValidString(value) || strings.ContainsFunc(value, func(c rune) bool { return c < 0x20 || 0x7F <= c && c < 0xA0 }) {
		return refuse(keyMalformed, "A part of the idempotency key holds control characters or invalid UTF-8.")
	}
	return nil
}

func (p *keyPart) read(r *http.Request, body *payload) (value string, present bool, err error) {
	switch p.place {
	case placePath:
		value = r.PathValue(p.name)
		return value, value != "", nil
	case placeQuery:
		return p.query(r)
	case placeQueryOrBody:
		inQuery, ok, err := p.query(r)
		if err != nil {
			return "", false, err
		}
		inBody, also, err := body.member(p.pointer, true)
		if err == nil && ok && also {
			err = errPartTwice()
		}
		if also {
			return inBody, true, err
		}
		return inQuery, ok, err
	}
	return body.member(p.pointer, true)
}

func (p *keyPart) query(r *http.Request) (string, bool, error) {
	if r.URL.RawQuery == "" {
		return "", false, nil
	}
	pairs, ok := readPairs(r.URL.RawQuery)
	if !ok {
		return "", false, refuse(keyMalformed, "The query that holds the idempotency key cannot be read.")
	}
	return onlyPair(named(pairs, p.name))
}

func onlyPair(same []pair) (string, bool, error) {
	switch len(same) {
	case 0:
		return "", false, nil
	case 1:
		return same[0].value, true, nil
	}
	return "", false, errPartTwice()
}

func errPartTwice() error {
	return refuse(keyMalformed, "The field that holds the idempotency key is there twice.")
}

// member is the text at pointer in a JSON body, or of the form field that a pointer of one token names. numbers lets an integer
// stand for its decimal text. An empty body, and a body that is neither JSON nor a form, have no members; one that claims to
// be and cannot be read in exactly one way is malformed.
func (p *payload) member(pointer []string, numbers bool) (value string, present bool, err error) {
	if p.media.form == bodyRaw {
		return "", false, nil
	}
	if err := p.read(); err != nil {
		return "", false, err
	}
	switch p.form {
	case bodyJSON:
		return p.jsonMember(pointer, numbers)
	case bodyURL:
		if len(pointer) != 1 {
			return "", false, nil
		}
		return onlyPair(named(p.pairs, pointer[0]))
	case bodyMultipart:
		return p.fieldMember(pointer)
	}
	empty, err := p.plain.empty()
	if err != nil || empty {
		return "", false, err
	}
	return "", false, refuse(keyMalformed, "The body that holds the idempotency key cannot be read in exactly one way.")
}

func (c content) empty() (bool, error) {
	if c.file == nil {
		return len(c.mem) == 0, nil
	}
	r, err := c.reader()
	if err != nil {
		return false, err
	}
	n, err := r.Read(make([]byte, 1))
	if n > 0 {
		return false, nil
	}
	return true, ignoreEOF(err)
}

func (p *payload) jsonMember(pointer []string, numbers bool) (string, bool, error) {
	n, ok := p.doc.find(pointer)
	if !ok {
		return "", false, nil
	}
	switch p.doc.nodes[n].kind {
	case kindString:
		return string(p.doc.textOf(n)), true, nil
	case kindNumber:
		if !numbers {
			break
		}
		text, whole, fits := parseDecimal(p.doc.textOf(n)).integer(highestMaxKey)
		if whole && !fits {
			return "", false, refuse(keyLength, "The number that is the idempotency key is too long.")
		}
		if whole {
			return text, true, nil
		}
	}
	return "", false, refuse(keyMalformed, "The body member that holds the idempotency key has another JSON type.")
}

func (p *payload) fieldMember(pointer []string) (value string, present bool, err error) {
	if len(pointer) != 1 {
		return "", false, nil
	}
	for i := range p.fields {
		f := &p.fields[i]
		switch {
		case f.name != pointer[0]:
		case present:
			return "", false, errPartTwice()
		case f.isFile:
			return "", false, refuse(keyMalformed, "The form field that holds the idempotency key is a file.")
		case !f.whole():
			return "", false, refuse(keyLength, "The form field that holds the idempotency key is too long.")
		default:
			value, present = string(f.text), true
		}
	}
	return value, present, nil
}
