package idemhttp

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func compileSelection(t *testing.T, r Rules) *selection {
	t.Helper()
	s, err := newSelection(r)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

func jsonParts(body string) parts {
	r := jsonRequest("")
	return parts{request: r, body: newPayload(r.Header, content{mem: []byte(body)}, 1<<20)}
}

func formParts(body string) parts {
	r := httptest.NewRequest("POST", "/v1/payments", nil)
	r.Header.Set("Content-Type", formType)
	return parts{request: r, body: newPayload(r.Header, content{mem: []byte(body)}, 1<<20)}
}

func detailOf(t *testing.T, s *selection, p parts) []byte {
	t.Helper()
	_, detail, err := s.fingerprint(testMAC, p, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(detail) > maxDetail {
		t.Errorf("member digests of %d bytes", len(detail))
	}
	return detail
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestInflatedBound(t *testing.T) {
	t.Parallel()
	t.Run("[http/FP9] inflated over MaxInflated", func(t *testing.T) {
		t.Parallel()
		s := compileSelection(t, Rules{})
		sum := func(plain []byte, limit int64) error {
			r := jsonRequest("")
			r.Header.Set("Content-Encoding", "gzip")
			_, _, err := s.fingerprint(testMAC, parts{request: r, body: newPayload(r.Header, content{mem: gzipped(t, plain)}, limit)}, true)
			return err
		}
		text := []byte(`"` + strings.Repeat("a", 1022) + `"`)
		if err := sum(text, 1024); err != nil {
			t.Error(err)
		}
		if err := sum(text, 1023); codeOf(t, err) != "body_too_large" {
			t.Error(err)
		}
		if err := sum(bytes.Repeat([]byte{' '}, 64<<20), 1<<16); codeOf(t, err) != "body_too_large" {
			t.Error(err)
		}
	})
	t.Run("[http/FP12] the same bytes raw are not inflated", func(t *testing.T) {
		t.Parallel()
		s := compileSelection(t, Rules{Fingerprint: FingerprintRaw})
		r := jsonRequest("")
		r.Header.Set("Content-Encoding", "gzip")
		p := parts{request: r, body: newPayload(r.Header, content{mem: gzipped(t, []byte(`{}`))}, 1)}
		if _, _, err := s.fingerprint(testMAC, p, true); err != nil {
			t.Error(err)
		}
	})
}

type brokenFile struct{ io.ReadSeeker }

func (brokenFile) Read([]byte) (int, error) { return 0, errors.New("disk gone") }

func TestSpooledBodyThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/json", "text/plain", formType, "multipart/form-data; boundary=b"} {
		for _, coding := range []string{"", "gzip"} {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("Content-Type", contentType)
			if coding != "" {
				r.Header.Set("Content-Encoding", coding)
			}
			p := parts{request: r, body: newPayload(r.Header, content{file: brokenFile{bytes.NewReader(nil)}}, 1<<20)}
			sum, _, err := compileSelection(t, Rules{}).fingerprint(testMAC, p, true)
			if err == nil || sum != nil || !strings.Contains(err.Error(), "disk gone") {
				t.Errorf("%s %s: %x, %v: an unread body has a digest", contentType, coding, sum, err)
			}
		}
	}
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, s *selection, old, now parts, want string) {
		t.Helper()
		m, err := s.diff(testMAC, now, detailOf(t, s, old))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v changed %v added %v removed %d", m.Parts, m.Changed, m.Added, m.Removed); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	all := compileSelection(t, Rules{})
	t.Run("[http/FP14] members of a JSON body", func(t *testing.T) {
		t.Parallel()
		check(t, all, jsonParts(`{"amount":1,"old":1,"same":[1]}`), jsonParts(`{"same":[1.0],"note":null,"amount":2}`), "[body] changed [/amount] added [/note] removed 1")
		check(t, all, jsonParts(`{"a/b":{"c~d":[1,{}]}}`), jsonParts(`{"a/b":{"c~d":[2,{"x":[]}]}}`), "[body] changed [/a~1b/c~0d/0] added [/a~1b/c~0d/1/x] removed 1")
		check(t, all, jsonParts(`{"a":1}`), jsonParts(`{"a":[1]}`), "[body] changed [] added [/a/0] removed 1")
		check(t, all, jsonParts(`{"a":{"0":1}}`), jsonParts(`{"a":[1]}`), "[body] changed [] added [/a/0] removed 1")
		check(t, all, jsonParts(`1`), jsonParts(`2`), "[body] changed [] added [] removed 0") // the document is its only member, pointer ""
		check(t, all, jsonParts(`{"a":1}`), jsonParts(`{"a":1}x`), "[body] changed [] added [] removed 0")
		check(t, all, jsonParts(`{"a":1,"a":1}`), jsonParts(`{"a":1}`), "[body] changed [] added [] removed 0")
	})
	t.Run("[http/FP14] fields of a form", func(t *testing.T) {
		t.Parallel()
		check(t, all, formParts("a=1&b=2&c=3&c=4"), formParts("c=4&c=3&a=1&d~=5"), "[body] changed [/c] added [/d~0] removed 1")
		multi := func(value string) parts {
			r := httptest.NewRequest("POST", "/v1/payments", nil)
			r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
			body := "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n" + value + "\r\n--b--\r\n"
			return parts{request: r, body: newPayload(r.Header, content{mem: []byte(body)}, 1<<20)}
		}
		check(t, all, multi("1"), multi("2"), "[body] changed [/x] added [] removed 0")
	})
	t.Run("[http/FP14] parts", func(t *testing.T) {
		t.Parallel()
		s := compileSelection(t, Rules{Headers: []string{"X-Shop", "X-Api-Version"}})
		old, now := jsonParts(`{}`), jsonParts(`{}`)
		now.request.Method, now.request.URL.Path, now.request.URL.RawQuery = "PATCH", "/other", "a=1"
		now.request.Header.Set("X-Shop", "1")
		now.request.Header.Set("Content-Type", "application/x+json")
		now.body = newPayload(now.request.Header, now.body.sent, 1)
		check(t, s, old, now, "[method path query media_type header:X-Shop] changed [] added [] removed 0")
	})
	t.Run("[http/FP14, FP11, FP12] only what counts is named", func(t *testing.T) {
		t.Parallel()
		check(t, compileSelection(t, Rules{Exclude: []string{"/x"}}), jsonParts(`{"x":1,"y":1}`), jsonParts(`{"x":2,"y":2}`), "[body] changed [/y] added [] removed 0")
		check(t, compileSelection(t, Rules{Include: []string{"/l/*/n"}}), jsonParts(`{"x":1,"l":[{"n":1},{}]}`), jsonParts(`{"y":2,"l":[{"n":1},{"n":{"m":2}}]}`), "[body] changed [] added [/l/1/n/m] removed 0")
		check(t, compileSelection(t, Rules{Defaults: map[string]any{"/c": "EUR"}}), jsonParts(`{"x":1}`), jsonParts(`{"x":1,"c":"USD"}`), "[body] changed [] added [/c] removed 0")
	})
	t.Run("[http/FP15] over 64 leaves the top-level members, over 64 of those the parts", func(t *testing.T) {
		t.Parallel()
		list := func(n int, last string) string { return "[" + strings.Repeat("0,", n-1) + last + "]" }
		check(t, all, jsonParts(list(64, "1")), jsonParts(list(64, "2")), "[body] changed [/63] added [] removed 0")
		check(t, all, jsonParts(list(65, "1")), jsonParts(list(65, "2")), "[body] changed [] added [] removed 0")
		wide := func(last string) parts { return jsonParts(`{"a":1,"list":` + list(65, last) + `}`) }
		check(t, all, wide("1"), wide("2"), "[body] changed [/list] added [] removed 0")
		included := compileSelection(t, Rules{Include: []string{"/list", "/none/x"}})
		check(t, included, jsonParts(`{"list":`+list(65, "1")+`}`), jsonParts(`{"list":`+list(65, "2")+`,"none":{"y":1}}`), "[body] changed [/list] added [] removed 0")
		var fields strings.Builder
		fields.WriteString(strings.Repeat("x", 1))
		for i := range 65 {
			fields.WriteString(fmt.Sprintf("&f%d=1", i))
		}
		check(t, all, formParts(fields.String()), formParts(fields.String()+"2"), "[body] changed [] added [] removed 0")
	})
	t.Run("[http/FP15] at most 1.25 KiB, and no name or value in it", func(t *testing.T) {
		t.Parallel()
		names := make([]string, 40)
		for i := range names {
			names[i] = fmt.Sprintf("X-%d", i)
		}
		s := compileSelection(t, Rules{Headers: names})
		var body strings.Builder
		body.WriteString(`{"canary_name":"canary_value"`)
		for i := range 60 {
			body.WriteString(fmt.Sprintf(`,"m%d":%d`, i, i))
		}
		if d := detailOf(t, s, jsonParts(body.String()+"}")); bytes.Contains(d, []byte("canary")) {
			t.Error("the payload is in the member digests")
		}
		few := detailOf(t, all, jsonParts(`{"a":7,"b":7}`))
		if v := few[len(few)-32:]; bytes.Equal(v[8:16], v[24:]) {
			t.Error("equal values of two members can be recognised")
		}
	})
	t.Run("[http/FP15] without digests nothing is named", func(t *testing.T) {
		t.Parallel()
		_, none, err := all.fingerprint(testMAC, jsonParts(`{"a":1}`), false)
		if err != nil || none != nil {
			t.Errorf("%x %v", none, err)
		}
		if m, err := all.diff(testMAC, jsonParts(`{}`), nil); m != nil || err != nil {
			t.Errorf("%+v %v", m, err)
		}
	})
	t.Run("[http/FP14] what a caller sends does not make the answer long", func(t *testing.T) {
		t.Parallel()
		var b strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&b, `,"n%d":1`, i)
		}
		m, err := all.diff(testMAC, jsonParts(`{"`+strings.Repeat("x", 1<<10)+`":1`+b.String()+"}"), detailOf(t, all, jsonParts(`{"a":1}`)))
		if err != nil || len(m.Added) != maxNamed || slices.ContainsFunc(m.Added, func(p string) bool { return len(p) > maxNamedLength }) {
			t.Errorf("%d pointers, %v", len(m.Added), err)
		}
	})
}

func TestForgedMemberDigests(t *testing.T) {
	t.Parallel()
	s := compileSelection(t, Rules{})
	good := detailOf(t, s, jsonParts(`{"a":1}`))
	forged := func(at int, b byte) []byte { d := bytes.Clone(good); d[at] = b; return d }
	t.Run("[security/SEC27] cut or forged", func(t *testing.T) {
		t.Parallel()
		for _, d := range [][]byte{good[:1], good[:3], good[:len(good)-1], good[:20], append(bytes.Clone(good), 0), forged(0, 2), forged(1, 3), forged(3, 4), forged(3, 255),
			append(bytes.Clone(good), make([]byte, 16*80)...)} {
			if m, err := s.diff(testMAC, jsonParts(`{"a":2}`), d); !errors.Is(err, errDetail) || m != nil {
				t.Errorf("%x: %+v, %v", d, m, err)
			}
		}
	})
}

func TestSelectionMistakes(t *testing.T) {
	t.Parallel()
	bad := func(t *testing.T, r Rules, wants ...string) {
		t.Helper()
		_, err := newSelection(r)
		if err == nil {
			t.Fatalf("%+v is accepted", r)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\ndoes not say %q", err, want)
			}
		}
	}
	t.Run("[http/FP12] both lists, bad pointers, a selection over 1 KiB", func(t *testing.T) {
		t.Parallel()
		bad(t, Rules{Exclude: []string{"/a"}, Include: []string{"/b"}}, "both set")
		bad(t, Rules{Exclude: []string{"a", "/b~"}, Headers: []string{"a b", "Host"}}, `"a" is no JSON pointer`, `"/b~" is no JSON pointer`, `"a b"`, `"Host"`)
		bad(t, Rules{Exclude: []string{""}}, "begin it with")
		bad(t, Rules{Include: []string{"b"}}, `"b" is no JSON pointer`)
		bad(t, Rules{Exclude: []string{"/" + strings.Repeat("a", 1024)}}, "at most 1024")
		bad(t, Rules{Fingerprint: "fuzzy"}, "FingerprintCanonical, FingerprintRaw or FingerprintNone")
		bad(t, Rules{Fingerprint: FingerprintRaw, Exclude: []string{"/a"}}, "need FingerprintCanonical")
		compileSelection(t, Rules{Exclude: []string{"/" + strings.Repeat("a", 1024-len("body=canonical;exclude=/"))}})
	})
	t.Run("[http/FP20] defaults", func(t *testing.T) {
		t.Parallel()
		one := func(pointer string, value any) Rules { return Rules{Defaults: map[string]any{pointer: value}} }
		bad(t, one("currency", "EUR"), `"currency" is no JSON pointer`)
		bad(t, one("/items/*", 1), "name a member below it")
		bad(t, one("/x", func() {}), `"/x"`)
		bad(t, one("/x", map[string]any{"a": strings.Repeat("a", 1024)}), "at most 1024")
		outside := one("/x", 1)
		outside.Include = []string{"/y"}
		bad(t, outside, "outside Include")
		excluded := one("/y/x", 1)
		excluded.Exclude = []string{"/y"}
		bad(t, excluded, "in Exclude")
		within := one("/y/x", 1)
		within.Include = []string{"/y"}
		compileSelection(t, within)
	})
}

func TestSelectionText(t *testing.T) {
	t.Parallel()
	r := Rules{
		Exclude: []string{"/b", "/a;=,:%é", "/b"}, Headers: []string{"x-b", "X-A"}, PathValues: true,
		Defaults: map[string]any{"/c": "a<b;", "/d": map[string]any{"z": 1, "a": []any{nil, true}}},
	}
	t.Run("[http/FP16] stable, ASCII, read back", func(t *testing.T) {
		t.Parallel()
		s := compileSelection(t, r)
		const want = `body=canonical;path=values;headers=X-A,X-B;exclude=/a%3B%3D%2C%3A%25%C3%A9,/b;defaults=/c:"a<b%3B",/d:{"a"%3A[null%2Ctrue]%2C"z"%3A1}`
		if s.encode() != want {
			t.Errorf("%s\nwant %s", s.encode(), want)
		}
		again, err := decodeSelection(want)
		if err != nil || again.encode() != want {
			t.Errorf("%v %v", again, err)
		}
		id, text, err := splitRecipe(recipe("d;1", s))
		if id != "d;1" || text != want || err != nil {
			t.Errorf("%q %q %v", id, text, err)
		}
	})
	t.Run("[http/FP16] comparison by the record's own selection", func(t *testing.T) {
		t.Parallel()
		old := compileSelection(t, Rules{})
		now := compileSelection(t, Rules{Exclude: []string{"/sent_at"}})
		stored, _, _ := old.fingerprint(testMAC, jsonParts(`{"sent_at":1}`), true)
		_, text, err := splitRecipe(recipe("d1", old))
		if err != nil {
			t.Fatal(err)
		}
		own, err := decodeSelection(text)
		if err != nil {
			t.Fatal(err)
		}
		sum := func(s *selection, body string) []byte {
			b, _, _ := s.fingerprint(testMAC, jsonParts(body), false)
			return b
		}
		if !bytes.Equal(sum(&own, `{"sent_at": 1}`), stored) || bytes.Equal(sum(&own, `{"sent_at":2}`), stored) || bytes.Equal(sum(now, `{"sent_at":1}`), stored) {
			t.Error("the lists of the record do not decide")
		}
	})
	t.Run("[http/FP17] what this binary does not write is not understood", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", "http2;k=d1;body=canonical", "http1;k=;body=canonical", "http1;k=d1", "http1;k=%zz;body=canonical", "HTTP1;k=d1;body=canonical", "http1",
		} {
			if id, sel, err := splitRecipe(text); !errors.Is(err, errRecipe) {
				t.Errorf("%q: %q %q", text, id, sel)
			}
		}
		for _, text := range []string{
			"", "body=", "body=fuzzy", "exclude=/a", "body=canonical;", "body=canonical;new=1", "body=canonical;body=canonical", "body=canonical;exclude=",
			"body=canonical;exclude=a", "body=canonical;exclude=/b,/a", "body=canonical;exclude=/a,/a", "body=canonical;path=x", "body=canonical;exclude=/%61",
			"body=canonical;exclude=/a;include=/b", "body=canonical;defaults=/a", "body=canonical;defaults=/a:{", "body=canonical;defaults=/a: 1", "body=canonical;exclude=/a:1",
			"exclude=/a;body=canonical", "body=canonical;exclude=/%", "body=canonical;exclude=/" + strings.Repeat("a", 2000),
		} {
			if s, err := decodeSelection(text); !errors.Is(err, errSelection) {
				t.Errorf("%.60q: %+v %v", text, s, err)
			}
		}
	})
}

func TestKeyedDigests(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC2] another key, unrelated digests", func(t *testing.T) {
		t.Parallel()
		other := func() hash.Hash { return hmac.New(sha256.New, []byte("the key of another tenant, or id")) }
		s := compileSelection(t, Rules{})
		a, detailA, _ := s.fingerprint(testMAC, jsonParts(`{"a":1}`), true)
		b, detailB, _ := s.fingerprint(other, jsonParts(`{"a":1}`), true)
		if bytes.Equal(a, b) || len(a) != 32 {
			t.Errorf("%x %x", a, b)
		}
		for i := detailHead; i < len(detailA); i += 8 {
			if bytes.Equal(detailA[i:i+8], detailB[i:i+8]) {
				t.Errorf("the digests at byte %d are equal", i)
			}
		}
	})
	t.Run("[http/FP5] long names over many leaves are hashed once", func(t *testing.T) {
		t.Parallel()
		counted := &countingHash{Hash: testMAC()}
		name := strings.Repeat("n", 200_000)
		body := `{"` + name + `":{"` + name + `":[` + strings.Repeat("1,", 60) + `1]}}`
		if _, _, err := compileSelection(t, Rules{}).fingerprint(func() hash.Hash { return counted }, jsonParts(body), true); err != nil {
			t.Fatal(err)
		}
		if counted.n > 4*len(body) {
			t.Errorf("%d bytes hashed for a body of %d", counted.n, len(body))
		}
	})
}

type countingHash struct {
	hash.Hash
	n int
}

func (c *countingHash) Write(b []byte) (int, error) {
	c.n += len(b)
	return c.Hash.Write(b)
}

func sumOf(b []byte) [sha256.Size]byte { return sha256.Sum256(b) }
