package idemhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"mime"
	"mime/multipart"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// canonicalBytes is the canonical form of a JSON text, and whether it has one.
func canonicalBytes(text []byte) (string, bool) {
	var d document
	if !d.parse(text) {
		return "", false
	}
	out := &stream{buf: make([]byte, 0, 16*len(text)+64)}
	c := canon{doc: &d, out: out}
	c.document()
	if out.full {
		panic("the canonical form is longer than 16 times its source")
	}
	return string(out.buf), true
}

// readJSONAgain is a second reading, on top of encoding/json: a text that two documents share exactly when they say the same. ok is
// false for what counts as raw bytes; skip for numbers that are too large to spell out.
func readJSONAgain(text []byte) (same string, ok, skip bool) {
	if !utf8.Valid(text) || !json.Valid(text) || loneSurrogate(text) {
		return "", false, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	r := jsonReading{d: d}
	var b strings.Builder
	ok = r.value(&b, 0)
	return b.String(), ok, r.skip
}

// loneSurrogate walks over all escapes, so that an escaped backslash before a u is not taken for one.
func loneSurrogate(text []byte) bool {
	escapes := regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`).FindAllIndex(text, -1)
	high := -1 // end of a high surrogate that waits for its other half
	for _, e := range escapes {
		esc := strings.ToLower(string(text[e[0]:e[1]]))
		isHigh := len(esc) == 6 && esc[2] == 'd' && strings.ContainsRune("89ab", rune(esc[3]))
		isLow := len(esc) == 6 && esc[2] == 'd' && strings.ContainsRune("cdef", rune(esc[3]))
		if high >= 0 && (!isLow || e[0] != high) || high < 0 && isLow {
			return true
		}
		high = -1
		if isHigh {
			high = e[1]
		}
	}
	return high >= 0
}

type jsonReading struct {
	d    *json.Decoder
	skip bool
}

func (r *jsonReading) value(b *strings.Builder, depth int) bool {
	token, err := r.d.Token()
	if err != nil {
		return false
	}
	switch v := token.(type) {
	case json.Delim:
		if depth == 64 {
			return false
		}
		if v == '[' {
			return r.array(b, depth)
		}
		return r.object(b, depth)
	case json.Number:
		exponent := regexp.MustCompile(`[eE][+-]?([0-9]+)$`).FindStringSubmatch(v.String())
		if exponent != nil && len(exponent[1]) > 9 {
			return false
		}
		if exponent != nil && len(strings.TrimLeft(exponent[1], "0")) > 3 {
			r.skip = true
			return true
		}
		rat, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return false
		}
		fmt.Fprintf(b, "number %s\n", rat.RatString())
	default:
		fmt.Fprintf(b, "%T %q\n", v, fmt.Sprint(v))
	}
	return true
}

func (r *jsonReading) array(b *strings.Builder, depth int) bool {
	b.WriteString("[\n")
	for r.d.More() {
		if !r.value(b, depth+1) {
			return false
		}
	}
	b.WriteString("]\n")
	_, err := r.d.Token()
	return err == nil
}

func (r *jsonReading) object(b *strings.Builder, depth int) bool {
	members := map[string]string{}
	for r.d.More() {
		name, err := r.d.Token()
		if err != nil {
			return false
		}
		var value strings.Builder
		if _, twice := members[name.(string)]; twice || !r.value(&value, depth+1) {
			return false
		}
		members[name.(string)] = value.String()
	}
	b.WriteString("{\n")
	for _, name := range slices.Sorted(mapKeys(members)) {
		fmt.Fprintf(b, "%q: %s", name, members[name])
	}
	b.WriteString("}\n")
	_, err := r.d.Token()
	return err == nil
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// [security/SEC66] the JSON normaliser against a second reading
func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[true,null,{"c":"\u0041\ud83d\ude00"}]}`, `{"a":1,"a":2}`, `"\ud800"`, `"\ud800\ud800\udc00"`, `"\\ud800"`, `1e999999999`, `1e0000000001`, `-0`, `-0.0e-5`, `01`, `1.`, `.5`,
		`[1,]`, `{"a"}`, ` [ ] `, `nul`, "\ufeff{}", "\"\xff\"", "\"\x1f\"", strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat("[", 64) + strings.Repeat("]", 64), `{"a":{"b":{}},"\u0061":1}`, `123456789012345678901234567890.5e-20`,
		`{"b":1,"a":2,"c":3,"ab":4,"":5}`, `"\/\b\f\n\r\t\"\\"`, `"\x"`, `"\u12g4"`, `--1`, `+1`, `1 1`, ``,
	} {
		f.Add([]byte(s), []byte(s))
		f.Add([]byte(s), []byte(` {"b" : 10e-1} `))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ownA, okA := canonicalBytes(a)
		ownB, okB := canonicalBytes(b)
		otherA, wantA, skipA := readJSONAgain(a)
		otherB, wantB, skipB := readJSONAgain(b)
		if !skipA && okA != wantA {
			t.Fatalf("%q: readable is %v, the second reading says %v", a, okA, wantA)
		}
		if okA && okB && !skipA && !skipB && wantB && (ownA == ownB) != (otherA == otherB) {
			t.Fatalf("%q and %q: the same is %v, the second reading says %v", a, b, ownA == ownB, otherA == otherB)
		}
		if !okA || skipA {
			return
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, a, "", "\t"); err != nil {
			t.Fatal(err)
		}
		if again, ok := canonicalBytes(indented.Bytes()); !ok || again != ownA {
			t.Fatalf("%q: other whitespace makes another document", a)
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(a))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		spelled, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := canonicalBytes(spelled); !ok || again != ownA {
			t.Fatalf("%q: written again as %q it is another document", a, spelled)
		}
	})
}

// [security/SEC66] the form normaliser against url.ParseQuery
func FuzzForm(f *testing.F) {
	for _, s := range []string{"a=1&b=2&a=3", "a", "a=", "=", "&&", "a=%zz", "a;b", "q=a+b%20c", "%61=1&a=2", "é=1", "%C3%A9=1", "a=b=c", strings.Repeat("a&", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, ok := readPairs(text)
		if strings.Count(text, "&") > 1000 {
			return // url.ParseQuery bounds the number of parameters
		}
		values, err := url.ParseQuery(text)
		if ok != (err == nil) {
			t.Fatalf("%q: readable is %v, url.ParseQuery says %v", text, ok, err)
		}
		if !ok {
			return
		}
		if !slices.IsSortedFunc(pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) }) {
			t.Fatalf("%q: %v", text, pairs)
		}
		n := 0
		for name, list := range values {
			var own []string
			for _, p := range named(pairs, name) {
				own = append(own, p.value)
			}
			if !slices.Equal(own, list) {
				t.Fatalf("%q: %q is %q, url.ParseQuery says %q", text, name, own, list)
			}
			n += len(list)
		}
		if n != len(pairs) {
			t.Fatalf("%q: %d pairs, url.ParseQuery says %d", text, len(pairs), n)
		}
	})
}

// [security/SEC66] the multipart normaliser against mime/multipart: whatever we accept, it reads in the same way
func FuzzMultipart(f *testing.F) {
	const head = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
	for _, s := range []string{
		head + "1\r\n--b--\r\n", head + "1\r\n--b--", head + "\r\n--b--", head + "--b--", head + "1\n--b--", head + "1\r\n--bx\r\n--b--", "\r\n" + head + "1\r\n--b--", head + "1\r\n--b--x", head + "1\r\n--b \r\n" + head,
		"--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"C:\\\\x\\\"y\"\r\nContent-Type: text/plain\r\n\r\n1\r\n2\r\r\n--b\r\nContent-Disposition: form-data; name=c\r\n\r\n\r\n\r\n--b--\r\n",
		head + strings.Repeat("x", 4095) + "\r\n--b--", head + strings.Repeat("x", 4040) + "\r\n" + strings.Repeat("y", 50) + "\r\n--b--", "--b--\r\n", "--b\r\n\r\n\r\n--b--",
		"--b\r\nContent-Disposition: form-data; name*=utf-8''a\r\n\r\n1\r\n--b--", "--b\r\nContent-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64\r\n\r\nMQ==\r\n--b--",
		"--b\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\n1\r\n--b--",
	} {
		f.Add([]byte(s))
	}
	for n := 4030; n < 4110; n++ {
		f.Add([]byte(head + strings.Repeat("x", n) + "\r\n--b--")) // CRLF and delimiter over the edge of the buffer
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields, ok, err := readMultipart(bytes.NewReader(body), "b")
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		r := multipart.NewReader(bytes.NewReader(body), "b")
		for i, own := range fields {
			part, err := r.NextRawPart()
			if err != nil {
				t.Fatalf("%q: part %d: %v", body, i, err)
			}
			content, err := io.ReadAll(part)
			if err != nil {
				t.Fatalf("%q: part %d: %v", body, i, err)
			}
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil || own.name != params["name"] || own.file != params["filename"] || own.size != int64(len(content)) {
				t.Fatalf("%q: part %d is %+v, mime/multipart says %v and %d bytes, %v", body, i, own, params, len(content), err)
			}
			if !own.isFile && !bytes.HasPrefix(content, own.text) {
				t.Fatalf("%q: part %d holds %q, mime/multipart says %q", body, i, own.text, content)
			}
			if own.sum != sumOf(content) {
				t.Fatalf("%q: part %d has the sum of other bytes", body, i)
			}
		}
		if _, err := r.NextRawPart(); err != io.EOF {
			t.Fatalf("%q: mime/multipart reads on: %v", body, err)
		}
	})
}

// [security/SEC66] no text of a record makes the reader of selections panic, and what it accepts it would write
func FuzzSelection(f *testing.F) {
	for _, s := range []string{"body=canonical", "body=raw", `body=canonical;path=values;headers=X-A;exclude=/a,/b/*/c;defaults=/d:"x",/e/f:{"a"%3A1}`, "body=canonical;include=/a", "body=none;;"} {
		f.Add(s, []byte(`{"a":1,"b":[{"c":2}],"e":{"f":{"a":1.0}}}`))
	}
	f.Fuzz(func(t *testing.T, text string, body []byte) {
		s, err := decodeSelection(text)
		if err != nil {
			return
		}
		if s.encode() != text {
			t.Fatalf("%q is written as %q", text, s.encode())
		}
		p := jsonParts(string(body))
		sum, detail, err := s.fingerprint(testMAC, p, true)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := s.fingerprint(testMAC, p, false)
		if err != nil || !bytes.Equal(sum, again) || len(detail) > maxDetail {
			t.Fatalf("%x %x %v, %d bytes of detail", sum, again, err, len(detail))
		}
		if m, err := s.diff(testMAC, p, detail); s.mode != FingerprintNone && (err != nil || m == nil || len(m.Parts) > 0) {
			t.Fatalf("a request differs from itself: %+v %v", m, err)
		}
	})
}

// [security/SEC27] member digests are foreign bytes
func FuzzDetail(f *testing.F) {
	s, err := newSelection(Rules{})
	if err != nil {
		f.Fatal(err)
	}
	_, good, err := s.fingerprint(testMAC, jsonParts(`{"a":1,"b":2}`), true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:8])
	f.Fuzz(func(t *testing.T, stored []byte) {
		m, err := s.diff(testMAC, jsonParts(`{"a":2}`), stored)
		if err == nil && len(stored) > 0 && (m == nil || m.Removed > maxMembers) {
			t.Fatalf("%x: %+v", stored, m)
		}
	})
}
