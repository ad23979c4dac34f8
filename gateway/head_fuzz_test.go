package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// secondReading reads the same bytes another way: whole heads at once, with regular expressions, straight from the
// grammar of RFC 9112 and the rows SEC51 to SEC54. It gives the number of bytes from the start that are right, request by
// request, and whether it was refused; short of a refusal the rest is incomplete.
func secondReading(b []byte, max int) (requests int, refused bool) {
	for len(b) > 0 {
		head, rest, ok := bytes.Cut(b, []byte("\r\n\r\n"))
		if !ok {
			return requests, bad(b, max)
		}
		if len(head)+4 > max || !wholeHead.Match(append(bytes.Clone(head), "\r\n"...)) {
			return requests, true
		}
		lines := strings.Split(string(head), "\r\n")
		values := map[string][]string{}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ":")
			name = strings.ToLower(name)
			values[name] = append(values[name], strings.Trim(value, " \t"))
		}
		http10 := strings.HasSuffix(lines[0], "1.0")
		te, cl := values["transfer-encoding"], values["content-length"]
		switch {
		case len(values["host"]) != 1 || !hostValue.MatchString(values["host"][0]),
			len(te) > 0 && (len(te) != 1 || len(cl) > 0 || http10 || strings.ToLower(te[0]) != "chunked"),
			len(cl) > 0 && (len(cl) != 1 || !lengthValue.MatchString(cl[0])):
			return requests, true
		}
		b = rest
		switch {
		case len(te) == 1:
			n, whole, bad := secondChunks(b, max)
			if bad || !whole {
				return requests, bad
			}
			b = b[n:]
		case len(cl) == 1:
			n, _ := strconv.ParseInt(cl[0], 10, 64)
			if n > int64(len(b)) {
				return requests, false
			}
			b = b[n:]
		}
		requests++
		if values["upgrade"] != nil && !http10 {
			return requests, false // the handler decides
		}
	}
	return requests, false
}

var (
	tokenRule   = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	hostRule    = `[A-Za-z0-9._:\[\]%~-]+`
	hostValue   = regexp.MustCompile(`^` + hostRule + `$`)
	lengthValue = regexp.MustCompile(`^[0-9]{1,18}$`)
	targetRule  = `(?:/[!-"$-~]*|[hH][tT][tT][pP][sS]?://` + hostRule + `(?:[/?][!-"$-~]*)?)`
	wholeHead   = regexp.MustCompile(`^(?:` + tokenRule + ` ` + targetRule + `|OPTIONS \*|CONNECT [A-Za-z0-9._~-]+:[0-9]+) HTTP/1\.[01]\r\n(?:` + tokenRule + `:[^\x00-\x08\n-\x1f\x7f]*\r\n)*$`)
	chunkLine   = regexp.MustCompile(`^[0-9a-fA-F]{1,15}(?:;[^\x00-\x08\n-\x1f\x7f]*)?$`)
	trailerRule = regexp.MustCompile(`^` + tokenRule + `:[^\x00-\x08\n-\x1f\x7f]*$`)
)

// bad tells whether an incomplete head is wrong already by what both readings must see: a complete line that does not end
// right, or too many bytes. What else the first reading may refuse early is not compared.
func bad(b []byte, max int) bool { return len(b) > max }

func secondChunks(b []byte, max int) (n int, whole, bad bool) {
	extensions := 0
	for {
		line, _, ok := bytes.Cut(b[n:], []byte("\r\n"))
		if !ok {
			return n, false, false
		}
		if !chunkLine.Match(line) {
			return n, false, true
		}
		n += len(line) + 2
		size, ext, found := strings.Cut(string(line), ";")
		if found {
			if extensions += len(ext) + 1; extensions > 4<<10 { // the CR that ends them counts: it could be one
				return n, false, true
			}
		}
		length, _ := strconv.ParseInt(size, 16, 64)
		if length == 0 {
			break
		}
		if int64(len(b)-n) < length+2 {
			return n, false, false
		}
		n += int(length)
		if string(b[n:n+2]) != "\r\n" {
			return n, false, true
		}
		n += 2
	}
	start := n
	for {
		line, _, ok := bytes.Cut(b[n:], []byte("\r\n"))
		if !ok {
			return n, false, false
		}
		n += len(line) + 2
		if len(line) == 0 {
			return n, n-start <= max+2, n-start > max+2
		}
		if !trailerRule.Match(line) {
			return n, false, true
		}
	}
}

// feedConn gives bytes in pieces and then ends.
type feedConn struct {
	net.Conn
	b     []byte
	piece int
}

func (c *feedConn) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.b[:min(c.piece, len(c.b))])
	c.b = c.b[n:]
	return n, nil
}
func (c *feedConn) SetReadDeadline(time.Time) error { return nil }

func FuzzHeads(f *testing.F) {
	const host = "Host: h\r\n"
	for _, s := range []string{
		"GET / HTTP/1.1\r\n" + host + "\r\n",
		"POST /x HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nGET /GET /y HTTP/1.0\r\n" + host + "\r\n",
		"POST /x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n",
		"POST /x HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n", "GET / HTTP/1.1\nHost: h\n\n", "GET http://h/x HTTP/1.1\r\n" + host + "\r\n", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT h:1 HTTP/1.1\r\n" + host + "\r\n", "CONNECT 0:A HTTP/1.0\r\n" + host + "\r\n", "GET / HTTP/1.1\r\n" + host + "Upgrade: x\r\n\r\nanything",
	} {
		f.Add([]byte(s), byte(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, piece byte) {
		const max = 512
		wantRequests, wantRefused := secondReading(in, max)
		c := newConn(&feedConn{b: bytes.Clone(in), piece: int(piece) + 1}, &connLimits{head: max, readHeader: time.Second}, func() {})
		c.switching.Store(switchOpen)
		var out bytes.Buffer
		buf := make([]byte, 100)
		for {
			n, err := c.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				break
			}
		}
		refused := c.refused.Load()
		if wantRefused && refused == nil {
			t.Fatalf("the second reading refuses, the first does not")
		}
		// What came out is a prefix of what went in, plus our own request where a head was refused.
		got := out.Bytes()
		if refused != nil && refused.target != "" {
			if i := bytes.Index(got, []byte("GET "+refused.target)); i >= 0 {
				got = got[:i]
			}
		}
		if !bytes.HasPrefix(in, got) {
			t.Fatalf("bytes were changed: %q", got)
		}
		// net/http, reading what came out, finds the same requests that the second reading found, and no more.
		if n := served(got); n > wantRequests {
			t.Fatalf("%d requests passed, the second reading found %d (refused %v)", n, wantRequests, wantRefused)
		}
		if refused == nil && !wantRefused {
			// net/http may refuse what both readings leave to it (an escape, a port): then it does so without the gateway too.
			if n := served(got); n != wantRequests && n != served(in) {
				t.Fatalf("%d requests passed, the second reading found %d", n, wantRequests)
			}
		}
	})
}

// served counts the whole requests that net/http reads in b.
func served(b []byte) (n int) {
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return n
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return n
		}
		n++
		if req.Header["Upgrade"] != nil && req.ProtoAtLeast(1, 1) {
			return n
		}
	}
}
