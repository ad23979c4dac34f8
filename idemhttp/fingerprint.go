package idemhttp

import (
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
)

const (
	recipePrefix = "http1;k="
	digestSize   = 32
)

// Recipe v1. A change of anything below that changes a digest is v2: records carry the recipe they were made with, and
// testdata/fingerprint_v1.json holds this one still.

var errRecipe = errors.New("fingerprint recipe of the record is not understood")

// recipe is the text that a record keeps beside its fingerprint.
func recipe(keyID string, s *selection) string {
	return recipePrefix + escapeItem(keyID) + ";" + s.encode()
}

// splitRecipe is the digest key id and the selection of a recipe. errRecipe: another version made it.
func splitRecipe(text string) (keyID, selection string, err error) {
	rest, ok := strings.CutPrefix(text, recipePrefix)
	if !ok {
		return "", "", errRecipe
	}
	escaped, selection, ok := strings.Cut(rest, ";")
	if !ok {
		return "", "", errRecipe
	}
	if keyID, ok = unescapeItem(escaped); !ok || keyID == "" {
		return "", "", errRecipe
	}
	return keyID, selection, nil
}

// parts are what a fingerprint is made of. They read the request as it is: nothing may change it before the last digest is made.
type parts struct {
	request *http.Request
	body    *payload
}

// fingerprint is the digest of the parts that s counts, under the keyed hash that mac makes.
//
// detail is nil unless members is set; then it holds a digest of each part and, for a readable body, of each member, at most
// 1.25 KiB, so that a later mismatch can be told apart by diff. Errors are body_too_large, and failures to read a
// spooled body. sum and detail belong to the caller.
func (s *selection) fingerprint(mac func() hash.Hash, p parts, members bool) (sum, detail []byte, err error) {
	d := newDigester(mac(), s)
	if s.mode == FingerprintNone {
		d.begin("none")
		return d.end(nil), nil, nil
	}
	if err := d.parts(p); err != nil {
		return nil, nil, err
	}
	d.begin("request")
	d.out.number(uint64(len(d.digests) / digestSize))
	put(&d.out, d.digests)
	if !members {
		return d.end(make([]byte, 0, digestSize)), nil, nil
	}
	both := make([]byte, 0, digestSize+d.detailSize(p.body))
	both = d.end(both)
	detail = d.appendDetail(both[digestSize:], p.body)
	return both[:digestSize:digestSize], detail, nil
}

// digester makes the digests of one request, one after the other.
type digester struct {
	mac     hash.Hash
	used    bool
	out     stream
	sel     *selection
	canon   canon
	digests []byte // of method, path, query, media type, each header, body
	inline  [6 * digestSize]byte
	buf     [768]byte
	sum     [digestSize]byte
}

func newDigester(mac hash.Hash, s *selection) *digester {
	d := &digester{mac: mac, sel: s}
	d.out = stream{hash: mac, buf: d.buf[:0]}
	d.digests = d.inline[:0]
	return d
}

// begin starts a digest. No digest of one label equals one of another.
func (d *digester) begin(label string) {
	if d.used {
		d.mac.Reset()
	}
	d.used = true
	putText(&d.out, label)
}

// end appends the digest to b.
func (d *digester) end(b []byte) []byte {
	d.out.flush()
	return d.mac.Sum(b)
}

// end8 is the digest cut to 8 bytes.
func (d *digester) end8() (short [8]byte) {
	d.out.flush()
	copy(short[:], d.mac.Sum(d.sum[:0]))
	return short
}

func (d *digester) parts(p parts) error {
	r := p.request
	d.begin("method")
	put(&d.out, r.Method)
	d.endPart()
	d.begin("path")
	d.path(r)
	d.endPart()
	d.begin("query")
	if pairs, ok := readPairs(r.URL.RawQuery); ok {
		d.out.byte('q')
		for i := range pairs {
			putText(&d.out, pairs[i].name)
			putText(&d.out, pairs[i].value)
		}
	} else {
		d.out.byte('r')
		put(&d.out, r.URL.RawQuery)
	}
	d.endPart()
	d.begin("media_type")
	d.out.number(uint64(p.body.media.lines))
	put(&d.out, p.body.media.text)
	d.endPart()
	for _, name := range d.sel.headers {
		d.begin("header")
		putText(&d.out, name)
		lines := r.Header[name]
		d.out.number(uint64(len(lines)))
		for _, line := range lines {
			putText(&d.out, strings.Trim(line, " \t"))
		}
		d.endPart()
	}
	d.begin("body")
	if err := d.body(p.body); err != nil {
		return err
	}
	d.endPart()
	return nil
}

func (d *digester) endPart() { d.digests = d.end(d.digests) }

func (d *digester) path(r *http.Request) {
	if d.sel.pathValues {
		if values, ok := wildcardValues(r); ok {
			d.out.byte('v')
			for _, v := range values {
				putText(&d.out, v)
			}
			return
		}
	}
	d.out.byte('p')
	put(&d.out, normalPath(r.URL.EscapedPath()))
}

func (d *digester) body(p *payload) error {
	if d.sel.mode == FingerprintRaw {
		return d.raw(p.sent, p.coding)
	}
	if err := p.read(); err != nil {
		return err
	}
	switch p.form {
	case bodyJSON:
		d.out.byte(byte(bodyJSON))
		d.canon = canon{doc: &p.doc, trie: d.sel.trie, out: &d.out}
		d.canon.document()
	case bodyURL:
		d.out.byte(byte(bodyURL))
		for i := range p.pairs {
			if d.sel.countsPair(p.pairs, p.pairs[i]) {
				d.pair(p.pairs[i])
			}
		}
	case bodyMultipart:
		d.out.byte(byte(bodyMultipart))
		for i := range p.fields {
			if d.sel.countsField(p.fields, &p.fields[i]) {
				d.field(&p.fields[i])
			}
		}
	default:
		return d.raw(p.plain, p.kept)
	}
	return nil
}

func (d *digester) raw(c content, coding string) error {
	d.out.byte(byte(bodyRaw))
	putText(&d.out, coding)
	if c.file == nil {
		d.out.flush()
		d.mac.Write(c.mem)
		return nil
	}
	r, err := c.reader()
	if err != nil {
		return err
	}
	d.out.flush()
	failure := &readFailure{r: r}
	if _, err := io.Copy(d.mac, failure); err != nil {
		return failure.err
	}
	return nil
}

func (d *digester) pair(p pair) {
	d.out.byte('p')
	putText(&d.out, p.name)
	putText(&d.out, p.value)
}

func (d *digester) field(f *field) {
	d.out.byte('p')
	putText(&d.out, f.name)
	d.optional(f.isFile, f.file)
	d.optional(f.typed, f.mediaType)
	put(&d.out, f.sum[:])
}

func (d *digester) optional(there bool, text string) {
	if !there {
		d.out.byte('-')
		return
	}
	d.out.byte('+')
	putText(&d.out, text)
}

// countsName reports whether the form fields of a name count, and the default they have.
func (s *selection) countsName(name string) (bool, *fallback) {
	at := s.child(0, name)
	if at == 0 {
		return len(s.include) == 0, nil
	}
	n := &s.trie[at]
	return !n.excluded && (n.included || len(s.include) == 0), n.fallback
}

func (s *selection) countsPair(pairs []pair, p pair) bool {
	if len(s.trie) < 2 {
		return true
	}
	counts, fall := s.countsName(p.name)
	if counts && fall != nil && p.value == fall.text {
		return len(named(pairs, p.name)) > 1
	}
	return counts
}

func (s *selection) countsField(fields []field, f *field) bool {
	if len(s.trie) < 2 {
		return true
	}
	counts, fall := s.countsName(f.name)
	if counts && fall != nil && f.whole() && string(f.text) == fall.text {
		n := 0
		for i := range fields {
			if fields[i].name == f.name {
				if n++; n > 1 {
					return true
				}
			}
		}
		return false
	}
	return counts
}
