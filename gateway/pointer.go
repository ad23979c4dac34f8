package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// document reads exactly one JSON value; numbers keep their digits.
func document(raw []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return nil, false
	}
	return v, true
}

// point follows an RFC 6901 pointer.
func point(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[part]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) || strconv.Itoa(i) != part {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// pointText is the text or number at a pointer of a JSON document.
func pointText(raw []byte, pointer string) (string, bool) {
	doc, ok := document(raw)
	if !ok {
		return "", false
	}
	switch v, _ := point(doc, pointer); x := v.(type) {
	case string:
		return x, x != ""
	case json.Number:
		return x.String(), true
	}
	return "", false
}

// sameValue compares a JSON value with one from a configuration, numbers by their value.
func sameValue(got, want any) bool {
	raw, err := json.Marshal(want)
	if err != nil {
		return false
	}
	wanted, ok := document(raw)
	return ok && equalJSON(got, wanted)
}

func equalJSON(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && equalNumber(x, y)
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for name, v := range x {
			w, ok := y[name]
			if !ok || !equalJSON(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalJSON(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return a == b // string, bool, nil
}

func equalNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	i, errA := strconv.ParseInt(a.String(), 10, 64)
	j, errB := strconv.ParseInt(b.String(), 10, 64)
	if errA == nil && errB == nil {
		return i == j
	}
	f, errA := strconv.ParseFloat(a.String(), 64)
	g, errB := strconv.ParseFloat(b.String(), 64)
	return errA == nil && errB == nil && f == g
}
