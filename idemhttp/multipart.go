package idemhttp

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"mime"
	"strings"
)

const (
	maxPartHeader = 8 << 10
	keptText      = highestMaxKey + 1 // bytes of a part that are kept: a key or a default fits
)

// field is one part of a multipart/form-data body.
type field struct {
	name, file string
	isFile     bool   // a file name was given, even an empty one
	mediaType  string // normal form; "" without a Content-Type
	typed      bool
	sum        [sha256.Size]byte
	size       int64
	text       []byte // its first bytes, unless it is a file
}

// multipartReader reads the strict form: nothing before the first delimiter or after the last, CRLF everywhere in the frame. What
// is looser is read in several ways by several servers, and so counts as raw bytes.
type multipartReader struct {
	r         *bufio.Reader
	delimiter []byte
	hash      hash.Hash
	fields    []field
}

// readMultipart reads the parts of a body. ok is false for a body that is not in the strict form; err is a failure to read.
// Memory does not grow with the size of a part.
func readMultipart(r io.Reader, boundary string) (fields []field, ok bool, err error) {
	failure := &readFailure{r: r}
	m := &multipartReader{r: bufio.NewReader(failure), delimiter: []byte("--" + boundary), hash: sha256.New()}
	ok = m.all()
	return m.fields, ok && failure.err == nil, failure.err
}

func (m *multipartReader) all() bool {
	line, err := m.r.ReadSlice('\n')
	if head, crlf := bytes.CutSuffix(line, []byte("\r\n")); err != nil || !crlf || !bytes.Equal(head, m.delimiter) {
		return false
	}
	for {
		var f field
		if !m.head(&f) {
			return false
		}
		last, ok := m.content(&f)
		if !ok {
			return false
		}
		m.fields = append(m.fields, f)
		if last {
			_, err := m.r.ReadByte()
			return errors.Is(err, io.EOF)
		}
	}
}

// head reads the header lines of a part and the empty line after them.
func (m *multipartReader) head(f *field) bool {
	var disposition, encoding bool
	for total := 0; ; {
		line, err := m.r.ReadSlice('\n')
		total += len(line)
		if err != nil || total > maxPartHeader || !bytes.HasSuffix(line, []byte("\r\n")) {
			return false
		}
		line = line[:len(line)-2]
		if len(line) == 0 {
			return disposition
		}
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || !isToken(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return false // also a folded line, which begins with a space; and what a field's value may not hold (RFC 9110, 5.5)
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "content-disposition":
			if disposition || !f.disposition(value) {
				return false
			}
			disposition = true
		case "content-type":
			if f.typed {
				return false
			}
			f.mediaType, f.typed = parseMediaType(value).text, true
		case "content-transfer-encoding":
			switch strings.ToLower(value) {
			case "7bit", "8bit", "binary":
			default:
				return false
			}
			if encoding {
				return false
			}
			encoding = true
		}
	}
}

func (f *field) disposition(value string) bool {
	if strings.Contains(strings.ToLower(value), "name*") {
		return false // RFC 2231 forms, which servers read differently
	}
	kind, params, err := mime.ParseMediaType(value)
	if err != nil || kind != "form-data" {
		return false
	}
	var ok bool
	if f.name, ok = params["name"]; !ok {
		return false
	}
	f.file, f.isFile = params["filename"]
	return true
}

// content reads a part up to and with the delimiter after it.
func (m *multipartReader) content(f *field) (last, ok bool) {
	m.hash.Reset()
	start := true // at the start of a line
	held := ""    // a CR or CRLF that belongs to the content only if no delimiter follows
	first := true // the delimiter may not stand right behind the head
	for {
		line, err := m.r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(line) == 0 {
			return false, false
		}
		if start && bytes.HasPrefix(line, m.delimiter) {
			if first || held != "\r\n" {
				return false, false
			}
			copy(f.sum[:], m.hash.Sum(f.sum[:0]))
			switch string(line[len(m.delimiter):]) {
			case "\r\n":
				return false, true
			case "--", "--\r\n":
				return true, true
			}
			return false, false
		}
		first = false
		if held == "\r" && len(line) == 1 && line[0] == '\n' {
			held, start = "\r\n", true
			continue
		}
		m.add(f, []byte(held))
		held = ""
		switch {
		case bytes.HasSuffix(line, []byte("\r\n")):
			held, line, start = "\r\n", line[:len(line)-2], true
		case bytes.HasSuffix(line, []byte("\n")):
			start = true
		case bytes.HasSuffix(line, []byte("\r")):
			held, line, start = "\r", line[:len(line)-1], false
		default:
			start = false
		}
		m.add(f, line)
	}
}

func (m *multipartReader) add(f *field, b []byte) {
	m.hash.Write(b)
	f.size += int64(len(b))
	if room := keptText - len(f.text); room > 0 && len(b) > 0 && !f.isFile {
		f.text = append(f.text, b[:min(room, len(b))]...)
	}
}

// isToken reports whether s is a header field name.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// whole reports whether the text of f is all of its content, and the content nothing but text.
func (f *field) whole() bool { return !f.isFile && f.size == int64(len(f.text)) }
