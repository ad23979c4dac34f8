package idemhttp

import (
	"mime"
	"net/http"
	"strings"
)

// mediaType is what Content-Type says, in the form that counts.
type mediaType struct {
	lines    int    // header lines: none is not the same as an empty one
	text     string // type/subtype in lower case, and the charset except for JSON; as sent when it cannot be read in one way
	form     bodyForm
	boundary string // of multipart/form-data
}

func readMediaType(header http.Header) mediaType {
	lines := header["Content-Type"]
	switch len(lines) {
	case 0:
		return mediaType{form: bodyRaw}
	case 1:
		m := parseMediaType(lines[0])
		m.lines = 1
		return m
	}
	return mediaType{lines: len(lines), text: strings.Join(lines, "\n"), form: bodyRaw}
}

func parseMediaType(line string) mediaType {
	if line == "application/json" {
		return mediaType{text: line, form: bodyJSON}
	}
	name, params, err := mime.ParseMediaType(line)
	if err != nil || !strings.Contains(name, "/") {
		return mediaType{text: line, form: bodyRaw}
	}
	m := mediaType{text: name, form: bodyRaw}
	switch {
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		m.form = bodyJSON
		return m
	case name == "application/x-www-form-urlencoded":
		m.form = bodyURL
	case name == "multipart/form-data":
		m.boundary = params["boundary"]
		if n := len(m.boundary); 0 < n && n <= 70 {
			m.form = bodyMultipart
		}
	}
	if charset, ok := params["charset"]; ok {
		m.text += ";charset=" + strings.ToLower(charset)
	}
	return m
}
