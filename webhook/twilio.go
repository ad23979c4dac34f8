package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/url"
	"slices"
	"strings"
)

// twilioScheme is an HMAC-SHA1 over the public URL: with a form body the sorted fields follow, any other body is covered by
// its SHA-256 in the query.
type twilioScheme struct{}

func (twilioScheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: c.v.label}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	var list codes
	if err := list.add(text, p.Encoding, p.Alg.size()); err != nil {
		return v, err
	}
	fields, err := c.twilioBody()
	if err != nil {
		return v, err
	}
	for _, u := range bothPorts(c.url()) {
		s := signed{[]piece{{pieceLiteral, u}, {pieceLiteral, fields}}, []string{u, fields}, nil}
		if err = c.try(&s, &list, &v); err == nil {
			return v, nil
		}
	}
	return v, err
}

// twilioBody is what the body adds to the signed text.
func (c *check) twilioBody() (string, error) {
	if c.req.isForm() {
		return formText(c.req.Body)
	}
	if len(c.req.Body) == 0 {
		return "", nil
	}
	query, err := url.ParseQuery(c.req.Query)
	sums := query["bodySHA256"]
	if err != nil || len(sums) != 1 {
		return "", refuse(ReasonMissingHeader, "bodySHA256 in the query: without it nothing covers the body")
	}
	var want [sha256.Size]byte
	got := sha256.Sum256(c.req.Body)
	if !decode(want[:], sums[0], EncodingHex) || !hmac.Equal(want[:], got[:]) {
		return "", refuse(ReasonMismatch, "bodySHA256 in the query is not that of the body")
	}
	return "", nil
}

// formText is each name, in order, with its values in order, each once.
func formText(body []byte) (string, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return "", refuse(ReasonMalformedHeader, "the body is not a form")
	}
	var b strings.Builder
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := form[name]
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			b.WriteString(name)
			b.WriteString(value)
		}
	}
	return b.String(), nil
}

// bothPorts is a URL with and without the default port of its scheme: Twilio signs either.
func bothPorts(text string) []string {
	scheme, rest, ok := strings.Cut(text, "://")
	port := ":443"
	if scheme == "http" {
		port = ":80"
	}
	if !ok {
		return []string{text}
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	host, tail := rest[:end], rest[end:]
	switch {
	case strings.HasSuffix(host, port):
		return []string{text, scheme + "://" + strings.TrimSuffix(host, port) + tail}
	case strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":"):
		return []string{text}
	}
	return []string{text, scheme + "://" + host + port + tail}
}
