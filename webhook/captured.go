package webhook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// ParseCaptured reads a request as it went over the wire: an HTTP/1.1 head whose lines end in CR LF or LF, an empty line, and then
// the exact body. Content-Length and Transfer-Encoding are kept and not obeyed: what follows the head is the body.
func ParseCaptured(raw []byte) (Request, error) {
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	words := strings.Fields(strings.TrimSuffix(string(line), "\r"))
	if !ok || len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return Request{}, errors.New("the first line is no request line such as: POST /hooks/gh HTTP/1.1")
	}
	head, body, ok := cutHead(rest)
	if !ok {
		return Request{}, errors.New("no empty line ends the head")
	}
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(bytes.Clone(head), "\r\n\r\n"...)))).ReadMIMEHeader()
	if err != nil {
		return Request{}, fmt.Errorf("the head cannot be read: %w", err)
	}
	u, err := url.ParseRequestURI(words[1])
	if err != nil {
		return Request{}, errors.New("the target of the first line cannot be read")
	}
	return Request{Method: words[0], Query: u.RawQuery, Header: http.Header(header), Body: body}, nil
}

// cutHead finds the empty line. A head without a header is one too.
func cutHead(rest []byte) (head, body []byte, ok bool) {
	for at := 0; at < len(rest); {
		end := bytes.IndexByte(rest[at:], '\n')
		if end < 0 {
			return nil, nil, false
		}
		line := bytes.TrimSuffix(rest[at:at+end], []byte("\r"))
		if len(line) == 0 {
			return bytes.TrimRight(rest[:at], "\r\n"), rest[at+end+1:], true
		}
		at += end + 1
	}
	return nil, nil, false
}
