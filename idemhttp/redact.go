package idemhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// redaction replaces members of a JSON answer by null before it is stored.
type redaction [][]string // unescaped reference tokens; "*" is every element of an array

// newRedaction reads RFC 6901 pointers. The whole document cannot be redacted: ResultPointer does that.
func newRedaction(pointers []string) (redaction, error) {
	var out redaction
	var errs []error
	for _, p := range pointers {
		tokens, err := parsePointer(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("Redact: %w", err))
			continue
		}
		out = append(out, tokens)
	}
	return out, errors.Join(errs...)
}

// apply is the document with null at every place the pointers name; all other bytes are as they were. It returns false for
// what is not exactly one JSON document.
func (r redaction) apply(doc []byte) ([]byte, bool) {
	if !json.Valid(doc) {
		return nil, false
	}
	w := redactor{dec: json.NewDecoder(bytes.NewReader(doc)), doc: doc}
	w.dec.UseNumber()
	if err := w.value(r); err != nil {
		return nil, false
	}
	return append(w.out, doc[w.done:]...), true
}

type redactor struct {
	dec  *json.Decoder
	doc  []byte
	out  []byte
	done int64 // doc[:done] is in out
}

// value reads one value, where what is left of the pointers applies to it.
func (w *redactor) value(left redaction) error {
	for _, tokens := range left {
		if len(tokens) == 0 {
			return w.null()
		}
	}
	if len(left) == 0 {
		var skipped json.RawMessage
		return w.dec.Decode(&skipped)
	}
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		for w.dec.More() {
			name, err := w.dec.Token()
			if err != nil {
				return err
			}
			if err := w.value(left.below(name.(string), false)); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; w.dec.More(); i++ {
			if err := w.value(left.below(strconv.Itoa(i), true)); err != nil {
				return err
			}
		}
	default:
		return nil // a scalar: the pointer leads nowhere
	}
	_, err = w.dec.Token()
	return err
}

// null reads one value and writes null in its place.
func (w *redactor) null() error {
	var raw json.RawMessage
	if err := w.dec.Decode(&raw); err != nil {
		return err
	}
	end := w.dec.InputOffset()
	w.out = append(w.out, w.doc[w.done:end-int64(len(raw))]...)
	w.out = append(w.out, "null"...)
	w.done = end
	return nil
}

// below are the pointers that go on under a name or an index.
func (r redaction) below(token string, element bool) (out redaction) {
	for _, tokens := range r {
		if tokens[0] == token || element && tokens[0] == "*" { // not secret: parts of a JSON pointer
			out = append(out, tokens[1:])
		}
	}
	return out
}
