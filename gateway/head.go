package gateway

import (
	"bytes"
	"encoding/binary"
	"net/http"
)

// refusal is why a request is not served: a status, and one sentence that names nothing of the request.
type refusal struct {
	status int
	detail string
	target string // set on a connection: the request target under which net/http is made to answer
}

func malformed(detail string) *refusal {
	return &refusal{status: http.StatusBadRequest, detail: detail}
}

// headScan reads one HTTP/1 request head, as it comes in, and judges it (rows SEC51 to SEC53). Every rule here is one
// of RFC 9112 at its strictest: what it lets pass has one reading.
type headScan struct {
	max     int  // bytes of a head
	pos     int  // start of the line being read
	seen    int  // bytes up to here hold no end of that line
	lines   int  // complete lines, the request line included
	http10  bool // HTTP/1.0
	upgrade bool // has an Upgrade line

	hosts, lengths, codings int
	chunked                 bool
	length                  int64
}

// feed reads on in b, which begins with the head and holds everything fed before. size is the head's length once its
// end is there, else 0.
func (s *headScan) feed(b []byte) (size int, bad *refusal) {
	for {
		i := bytes.IndexByte(b[s.seen:], '\n')
		if i < 0 {
			if s.seen = len(b); s.seen > s.max {
				return 0, &refusal{status: http.StatusRequestHeaderFieldsTooLarge, detail: "The request head is too large."}
			}
			return 0, nil
		}
		end := s.seen + i
		if end+1 > s.max {
			return 0, &refusal{status: http.StatusRequestHeaderFieldsTooLarge, detail: "The request head is too large."}
		}
		if end == s.pos || b[end-1] != '\r' {
			return 0, malformed("A line of the request head does not end with CR LF.")
		}
		line := b[s.pos : end-1]
		s.pos, s.seen = end+1, end+1
		s.lines++
		switch {
		case s.lines == 1:
			bad = s.requestLine(line)
		case len(line) > 0:
			bad = s.fieldLine(line)
		default:
			return s.pos, s.finish()
		}
		if bad != nil {
			return 0, bad
		}
	}
}

// requestLine takes "METHOD SP target SP HTTP/1.x" in one of the four forms of RFC 9112 3.2.
func (s *headScan) requestLine(line []byte) *refusal {
	sp := bytes.IndexByte(line, ' ')
	if sp <= 0 {
		return malformed("The request line is not understood.")
	}
	method, rest := line[:sp], line[sp+1:]
	for _, c := range method {
		if !isToken(c) {
			return malformed("The method is not understood.")
		}
	}
	sp = bytes.IndexByte(rest, ' ')
	if sp <= 0 {
		return malformed("The request line is not understood.")
	}
	target, version := rest[:sp], rest[sp+1:]
	switch string(version) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		s.http10 = true
	default:
		return malformed("The protocol version is not supported.")
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return malformed("The request target has a byte that must be escaped.")
		}
	}
	switch {
	case string(method) == http.MethodConnect:
		if !namePort(target) {
			return malformed("The request target is not a name and a port.")
		}
	case target[0] == '/':
	case len(target) == 1 && target[0] == '*':
		if string(method) != http.MethodOptions {
			return malformed("The request target * goes with OPTIONS only.")
		}
	case absolute(target):
	default:
		return malformed("The request target is not in a known form.")
	}
	return nil
}

// namePort tells the target of a CONNECT: a name, a colon, a port of digits. No route serves CONNECT; what matters is that
// net/http reads the same.
func namePort(target []byte) bool {
	name, port, found := bytes.Cut(target, []byte(":"))
	if !found || len(name) == 0 || len(port) == 0 {
		return false
	}
	for _, c := range port {
		if c < '0' || c > '9' {
			return false
		}
	}
	for _, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_' && c != '~' {
			return false
		}
	}
	return true
}

// absolute tells an absolute-form target with a host: http://host[/…] or https://host[/…].
func absolute(target []byte) bool {
	for _, scheme := range []string{"http://", "https://"} {
		if n := len(scheme); len(target) > n && foldEqual(target[:n], scheme) {
			host, _, _ := bytes.Cut(target[n:], []byte("/"))
			host, _, _ = bytes.Cut(host, []byte("?"))
			return validHost(host)
		}
	}
	return false
}

// fieldLine takes "name: value" and keeps what decides the framing.
func (s *headScan) fieldLine(line []byte) *refusal {
	if line[0] == ' ' || line[0] == '\t' {
		return malformed("A header line is folded.")
	}
	colon := -1
	for i, c := range line {
		if c == ':' {
			colon = i
			break
		}
		if !isToken(c) {
			return malformed("A header name has a byte that is not allowed.")
		}
	}
	if colon <= 0 {
		return malformed("A header line has no name.")
	}
	name, value := line[:colon], line[colon+1:]
	if !validValue(value) {
		return malformed("A header value has a control character.")
	}
	switch len(name) {
	case len("Host"):
		if foldEqual(name, "host") {
			s.hosts++
			if s.hosts > 1 || !validHost(trimBlank(value)) {
				return malformed("The Host header is not valid, or there are two.")
			}
		}
	case len("Upgrade"):
		s.upgrade = s.upgrade || foldEqual(name, "upgrade")
	case len("Content-Length"):
		if foldEqual(name, "content-length") {
			return s.contentLength(trimBlank(value))
		}
	case len("Transfer-Encoding"):
		if foldEqual(name, "transfer-encoding") {
			s.codings++
			s.chunked = foldEqual(trimBlank(value), "chunked")
			if s.codings > 1 {
				return malformed("There are two Transfer-Encoding headers.")
			}
			if !s.chunked {
				return &refusal{status: http.StatusNotImplemented, detail: "The transfer coding is not supported."}
			}
		}
	}
	return nil
}

// validValue refuses control characters but the tab. It looks at eight bytes at once: the head check must not be felt.
func validValue(b []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		del := x ^ 0x7f*ones
		if ((x-' '*ones)&^x|(del-ones)&^del)&high != 0 { // a byte below 0x20, or 0x7f; it may be a tab
			for _, c := range b[:8] {
				if !validValueByte(c) {
					return false
				}
			}
		}
		b = b[8:]
	}
	for _, c := range b {
		if !validValueByte(c) {
			return false
		}
	}
	return true
}

// contentLength takes one run of at most 18 digits: nothing that could overflow, be a list, or carry a sign.
func (s *headScan) contentLength(value []byte) *refusal {
	s.lengths++
	if s.lengths > 1 || len(value) == 0 || len(value) > 18 {
		return malformed("The Content-Length is not valid, or there are two.")
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return malformed("The Content-Length is not valid, or there are two.")
		}
		s.length = s.length*10 + int64(c-'0')
	}
	return nil
}

func (s *headScan) finish() *refusal {
	switch {
	case s.hosts != 1:
		return malformed("There is no Host header.")
	case s.lengths > 0 && s.codings > 0:
		return malformed("There are a Content-Length and a Transfer-Encoding.")
	case s.chunked && s.http10:
		return malformed("HTTP/1.0 has no Transfer-Encoding.")
	}
	return nil
}

// validHost is a registered name or a bracketed address literal, and at most one port of digits, which may be empty: what
// follows a second colon, or surrounds a name with brackets, is read by some and cut off by others. It is never empty.
func validHost(b []byte) bool {
	name, rest := b, []byte(nil)
	literal := len(b) > 0 && b[0] == '['
	if literal {
		end := bytes.IndexByte(b, ']')
		if end < 0 {
			return false
		}
		name, rest = b[1:end], b[end+1:]
	} else if i := bytes.IndexByte(b, ':'); i >= 0 {
		name, rest = b[:i], b[i:]
	}
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '_', c == '%', c == '~':
		case c == ':' && literal:
		default:
			return false
		}
	}
	for i, c := range rest {
		if i == 0 && c != ':' || i > 0 && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0
}

// foldEqual compares with a lower-case text, ASCII case folded.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trimBlank is bytes.Trim(b, " \t"), without making a set of it each time.
func trimBlank(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// isToken tells the bytes of a token (RFC 9110 5.6.2); the two words are the set, a bit a byte.
func isToken(c byte) bool {
	const low, high = uint64(0x03ff6cfa00000000), uint64(0x57ffffffc7fffffe)
	switch {
	case c < 64:
		return low>>c&1 == 1
	case c < 128:
		return high>>(c-64)&1 == 1
	}
	return false
}
