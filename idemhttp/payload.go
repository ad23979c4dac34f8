package idemhttp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// content is a request body that was read completely: in memory, or in a file that can be read again.
type content struct {
	mem  []byte
	file io.ReadSeeker // instead of mem
}

// reader starts at the first byte. There is one reader of a file at a time.
func (c content) reader() (io.Reader, error) {
	if c.file == nil {
		return bytes.NewReader(c.mem), nil
	}
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read spooled body: %w", err)
	}
	return c.file, nil
}

func (c content) bytes() ([]byte, error) {
	if c.file == nil {
		return c.mem, nil
	}
	r, err := c.reader()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read spooled body: %w", err)
	}
	return b, nil
}

// bodyForm says how a body is compared. The letter is part of the digest: a raw body never equals a canonical one.
type bodyForm byte

const (
	bodyRaw       bodyForm = 'r'
	bodyJSON      bodyForm = 'j'
	bodyURL       bodyForm = 'u'
	bodyMultipart bodyForm = 'm'
)

// payload is a request body and what it says. It is read once, when first needed, for the key and for every digest. It belongs to
// one request, is used by one goroutine at a time, and neither the bytes nor the file may change meanwhile.
type payload struct {
	sent        content
	media       mediaType
	coding      string // content coding as sent, lower case; "" is none
	maxInflated int64

	ready  bool
	err    error
	form   bodyForm
	plain  content  // without its gzip coding
	kept   string   // the coding that is still on plain
	doc    document // of bodyJSON
	pairs  []pair   // of bodyURL, sorted by name
	fields []field  // of bodyMultipart, in order
}

// newPayload describes body as header announces it. maxInflated bounds, in bytes, what a gzip body may become.
func newPayload(header http.Header, body content, maxInflated int64) *payload {
	return &payload{sent: body, media: readMediaType(header), coding: contentCoding(header), maxInflated: maxInflated}
}

// contentCoding is what Content-Encoding says, in lower case. Several codings stay one text, which is no coding that is undone.
func contentCoding(header http.Header) string {
	lines := header["Content-Encoding"]
	if len(lines) == 0 {
		return ""
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(lines, ",")))
	switch coding {
	case "identity":
		return ""
	case "x-gzip":
		return "gzip"
	}
	return coding
}

// read makes the canonical form, or settles on raw. Its errors are body_too_large, and failures of the spooled file.
func (p *payload) read() error {
	if !p.ready {
		p.ready = true
		p.err = p.readOnce()
	}
	return p.err
}

func (p *payload) readOnce() error {
	p.form, p.plain, p.kept = bodyRaw, p.sent, p.coding
	if p.coding == "gzip" {
		plain, ok, err := inflate(p.sent, p.maxInflated)
		if err != nil {
			return err
		}
		if ok {
			p.plain, p.kept = content{mem: plain}, ""
		}
	}
	if p.kept != "" {
		return nil
	}
	switch p.media.form {
	case bodyJSON:
		text, err := p.plain.bytes()
		if err != nil {
			return err
		}
		if p.doc.parse(text) {
			p.form = bodyJSON
		}
	case bodyURL:
		text, err := p.plain.bytes()
		if err != nil {
			return err
		}
		if pairs, ok := readPairs(string(text)); ok {
			p.form, p.pairs = bodyURL, pairs
		}
	case bodyMultipart:
		r, err := p.plain.reader()
		if err != nil {
			return err
		}
		fields, ok, err := readMultipart(r, p.media.boundary)
		if err != nil {
			return err
		}
		if ok {
			p.form, p.fields = bodyMultipart, fields
		}
	}
	return nil
}

// inflate undoes one gzip coding. ok is false for a body that is no gzip stream, or not only that.
func inflate(body content, limit int64) (plain []byte, ok bool, err error) {
	r, err := body.reader()
	if err != nil {
		return nil, false, err
	}
	broken := &readFailure{r: r}
	z, err := gzip.NewReader(broken)
	if err != nil {
		return nil, false, broken.err
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(z, limit+1))
	if n > limit {
		return nil, false, refuse("body_too_large", "The request body is too large once its gzip coding is undone.")
	}
	if err != nil {
		return nil, false, broken.err
	}
	return b.Bytes(), true, nil
}

// readFailure remembers an error of the file under a decoder, which is not the same as a body that cannot be decoded.
type readFailure struct {
	r   io.Reader
	err error
}

func (f *readFailure) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = fmt.Errorf("read spooled body: %w", err)
	}
	return n, err
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
