package webhook

import (
	"fmt"
	"strings"
)

// piece is a part of signed text: literal text, or what a placeholder stands for.
type piece struct {
	kind pieceKind
	text string // the literal, or the name of the header
}

type pieceKind int

const (
	pieceLiteral pieceKind = iota
	pieceBody
	pieceURL
	pieceMethod
	pieceTime
	pieceHeader
)

const placeholders = "{body} {url} {method} {ts} {h:Name}"

// pieces cuts a content template. An unknown placeholder is an error that names the known ones.
func pieces(template string) ([]piece, error) {
	var out []piece
	for rest := template; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		if before != "" {
			out = append(out, piece{pieceLiteral, before})
		}
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("a { has no }; the placeholders are %s", placeholders)
		}
		header, isHeader := strings.CutPrefix(name, "h:")
		switch {
		case name == "body":
			out = append(out, piece{kind: pieceBody})
		case name == "url":
			out = append(out, piece{kind: pieceURL})
		case name == "method":
			out = append(out, piece{kind: pieceMethod})
		case name == "ts":
			out = append(out, piece{kind: pieceTime})
		case isHeader && isToken(header):
			out = append(out, piece{pieceHeader, header})
		default:
			return nil, fmt.Errorf("{%s} is unknown; the placeholders are %s", name, placeholders)
		}
		rest = tail
	}
	return out, nil
}

// isToken tells whether name can be the name of a header.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

func contains(list []piece, kind pieceKind) bool {
	for _, p := range list {
		if p.kind == kind {
			return true
		}
	}
	return false
}

// signed is the text before and after the body, ready to be written to a hash.
type signed struct {
	pieces []piece
	values []string // one for each piece; not for body and literals
	body   []byte
}

// values looks up what the placeholders stand for. An id that could be cut in two ways is refused.
func (c *check) values(list []piece, ts string, into []string) ([]string, error) {
	for i, p := range list {
		value := ""
		switch p.kind {
		case pieceLiteral:
			value = p.text
		case pieceURL:
			value = c.url()
		case pieceMethod:
			value = c.req.Method
		case pieceTime:
			value = ts
		case pieceHeader:
			var err error
			if value, err = c.req.header(p.text); err != nil {
				return nil, err
			}
			if i+1 < len(list) && list[i+1].kind == pieceLiteral {
				if err := cleanID(value, list[i+1].text); err != nil {
					return nil, err
				}
			}
		}
		into = append(into, value)
	}
	return into, nil
}

// cleanID refuses an id that is empty, over 255 bytes, not printable ASCII, or holds the separator that follows it.
func cleanID(id, separator string) error {
	if id == "" || len(id) > 255 || strings.Contains(id, separator) {
		return refuse(ReasonAmbiguousID, "a signed id is empty, over 255 bytes, or holds the separator")
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return refuse(ReasonAmbiguousID, "a signed id is not printable ASCII")
		}
	}
	return nil
}

// url is the public URL as the provider knows it: the configured one and the query as received, never a header.
func (c *check) url() string {
	if c.req.Query == "" {
		return c.v.source.PublicURL
	}
	return c.v.source.PublicURL + "?" + c.req.Query
}
