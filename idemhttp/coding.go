package idemhttp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// errCoding means that an answer stands in a coding that this client did not ask for and that cannot be undone.
var errCoding = errors.New("idemhttp: the client does not accept the coding of the kept answer")

// acceptsCoding says whether a request accepts a content coding, by RFC 9110, 12.5.3: without the header everything is
// acceptable, "*" stands for what is not named, and a weight of zero refuses.
func acceptsCoding(h http.Header, coding string) bool {
	lines, sent := h["Accept-Encoding"]
	if !sent {
		return true
	}
	star := false
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			name = strings.ToLower(textproto.TrimString(name))
			switch {
			case name == coding, name == "x-gzip" && coding == "gzip":
				return weight(params) > 0
			case name == "*":
				star = weight(params) > 0
			}
		}
	}
	return star
}

// weight is the q parameter, 1 where there is none and 0 where it is not a number.
func weight(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(textproto.TrimString(p), "=")
		if ok && (name == "q" || name == "Q") {
			q, err := strconv.ParseFloat(textproto.TrimString(value), 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}

// decode undoes the coding of a kept answer for a client that does not accept it. The result is bounded by limit, and
// nothing of it leaves before the whole is known to be good.
func (s *spools) decode(body []byte, coding string, limit int64) (*spool, error) {
	if coding != "gzip" {
		return nil, errCoding
	}
	out := s.open()
	zr, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		_, err = io.Copy(out, io.LimitReader(zr, limit+1))
	}
	if err != nil || out.size > limit {
		out.close()
		return nil, errCoding
	}
	return out, nil
}
