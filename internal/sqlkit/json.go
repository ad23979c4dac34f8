package sqlkit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/idempo/idempo"
)

// Headers returns the stored form of a result's headers: a JSON array of pairs, in order; a string that is not UTF-8, or
// holds NUL, is an object {"b64": …}. No headers are nil.
func Headers(h [][2]string) []byte {
	if len(h) == 0 {
		return nil
	}
	return pairs(h)
}

// ParseHeaders reads what Headers wrote; nil and empty are no headers.
func ParseHeaders(b []byte) ([][2]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if out, ok := plainPairs(b); ok {
		return out, nil
	}
	var in [][]text
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, errors.New("headers are not a JSON array of pairs")
	}
	if len(in) == 0 {
		return nil, nil
	}
	out := make([][2]string, len(in))
	for i, p := range in {
		if len(p) != 2 {
			return nil, fmt.Errorf("header %d is not a pair", i)
		}
		out[i] = [2]string{string(p[0]), string(p[1])}
	}
	return out, nil
}

// plainPairs reads pairs of plain strings exactly as Headers writes them, which is nearly always, without reflection.
func plainPairs(b []byte) (out [][2]string, ok bool) {
	s := string(b)
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return nil, false
	}
	for s = s[1:]; s != ""; s = s[1:] {
		var p [2]string
		for i, lead := range [2]string{`["`, `,"`} {
			rest, found := strings.CutPrefix(s, lead)
			end := strings.IndexByte(rest, '"')
			if !found || end < 0 || !plain(rest[:end]) {
				return nil, false
			}
			p[i], s = rest[:end], rest[end+1:]
		}
		if out = append(out, p); len(s) < 2 || s[0] != ']' || s[1] != ',' && s != "]]" {
			return nil, false
		}
		if s == "]]" {
			return out, true
		}
		s = s[1:]
	}
	return nil, false
}

// plain reports whether s stands for itself between quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// References returns the stored form of a record's references, like Headers: an array of [type, id].
func References(rs []idempo.Resource) []byte {
	if len(rs) == 0 {
		return nil
	}
	h := make([][2]string, len(rs))
	for i, r := range rs {
		h[i] = [2]string{r.Type, r.ID}
	}
	return pairs(h)
}

// ReferenceText is what the stored form of references holds where r is among them; "" for none.
func ReferenceText(r idempo.Resource) string {
	if r.IsZero() {
		return ""
	}
	b := References([]idempo.Resource{r})
	return string(b[1 : len(b)-1])
}

// ParseReferences reads what References wrote.
func ParseReferences(b []byte) ([]idempo.Resource, error) {
	h, err := ParseHeaders(b)
	if err != nil || h == nil {
		return nil, err
	}
	out := make([]idempo.Resource, len(h))
	for i, p := range h {
		out[i] = idempo.Resource{Type: p[0], ID: p[1]}
	}
	return out, nil
}

func pairs(h [][2]string) []byte {
	b := make([]byte, 0, 64*len(h))
	b = append(b, '[')
	for i, p := range h {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = appendText(b, p[0])
		b = append(b, ',')
		b = appendText(b, p[1])
		b = append(b, ']')
	}
	return append(b, ']')
}

func appendText(b []byte, s string) []byte {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 { // no type jsonb holds NUL
		b = append(b, `{"b64":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(s))
		return append(b, `"}`...)
	}
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	q, _ := json.Marshal(s) // a valid string cannot fail
	return append(b, q...)
}

// text is a string, or {"b64": …} where it is not UTF-8.
type text string

// UnmarshalJSON reads either form and refuses every other.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(t))
	}
	var o struct {
		B64 *[]byte `json:"b64"`
	}
	if err := json.Unmarshal(b, &o); err != nil || o.B64 == nil {
		return errors.New("neither a string nor {\"b64\": …}")
	}
	*t = text(*o.B64)
	return nil
}
