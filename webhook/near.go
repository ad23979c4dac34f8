package webhook

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// near tries what usually goes wrong and names what fits. Nothing it tries is ever accepted: it only explains.
func (x *explainer) near() []string {
	for _, group := range []func() []string{x.otherSecrets, x.otherBodies, x.otherForms, x.otherURLs, x.otherHeaders, x.otherCodes} {
		if found := group(); len(found) > 0 {
			return found
		}
	}
	if changed := x.changed(); changed != "" {
		return []string{changed}
	}
	if x.out.Reason == ReasonMismatch {
		return []string{"nothing that was tried fits: the body is another one than was signed, or the secret is; compare the secret at the provider first"}
	}
	return nil
}

// otherSecrets tries secrets that have ended, and those of other sources.
func (x *explainer) otherSecrets() []string {
	var found []string
	for _, k := range *x.v.keys.Load() {
		if !k.ended(x.now) {
			continue
		}
		again := *k
		again.until = again.until.AddDate(1000, 0, 0)
		if x.fits(x.with(&again), *x.req) {
			found = append(found, fmt.Sprintf("secret %s fits, and its until has passed", k.id))
		}
	}
	for _, other := range x.others {
		for _, k := range *other.keys.Load() {
			if other.source.Name != x.v.source.Name && x.fits(x.with(k), *x.req) {
				found = append(found, fmt.Sprintf("secret %s of source %s fits: the secrets are swapped (test and live?), or the provider sends to the wrong path", k.id, other.source.Name))
			}
		}
	}
	return found
}

func (x *explainer) with(keys ...*key) *Verifier {
	v := x.v.copy()
	v.keys.Store(&keys)
	return v
}

func (x *explainer) fits(v *Verifier, req Request) bool { return x.try(v, req).err == nil }

// otherBodies tries what proxies, frameworks and editors make of a body.
func (x *explainer) otherBodies() []string {
	body := x.req.Body
	type variant struct {
		text string
		body []byte
	}
	list := []variant{
		{"a line end was added at the end of the body", bytes.TrimSuffix(body, []byte("\n"))},
		{"a line end was added at the end of the body", bytes.TrimSuffix(body, []byte("\r\n"))},
		{"the line end at the end of the body was lost", append(bytes.Clone(body), '\n')},
		{"the CR LF at the end of the body was lost", append(bytes.Clone(body), "\r\n"...)},
		{"blanks around the body were added", bytes.TrimSpace(body)},
		{"CR LF in the body became LF", bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))},
		{"LF in the body became CR LF", bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))},
		{"a byte order mark was added", bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))},
	}
	const encoded = "the JSON was decoded and encoded again on the way; verify the bytes as received, before any parser"
	for _, b := range encodings(body) {
		list = append(list, variant{encoded, b})
	}
	for _, v := range list {
		if bytes.Equal(v.body, body) {
			continue
		}
		req := *x.req
		req.Body = v.body
		if x.fits(x.v, req) {
			return []string{v.text}
		}
	}
	return nil
}

// encodings are the ways in which common libraries write the same JSON.
func encodings(body []byte) [][]byte {
	if !json.Valid(body) {
		return nil
	}
	var out [][]byte
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return nil
	}
	forms := [][]byte{compact.Bytes(), spaced(compact.Bytes())}
	for _, indent := range []string{"  ", "    ", "\t"} {
		var b bytes.Buffer
		if json.Indent(&b, body, "", indent) == nil {
			forms = append(forms, b.Bytes())
		}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	if d.Decode(&value) == nil {
		if sorted, err := json.Marshal(value); err == nil {
			forms = append(forms, sorted, spaced(sorted))
		}
	}
	for _, f := range forms {
		escaped := ascii(f)
		plain := unescaped(f)
		for _, g := range [][]byte{f, escaped, plain} {
			out = append(out, g, bytes.ReplaceAll(g, []byte("/"), []byte(`\/`)), bytes.ReplaceAll(g, []byte(`\/`), []byte("/")), append(bytes.Clone(g), '\n'))
		}
	}
	return out
}

// spaced puts a blank after each comma and colon, as Python does.
func spaced(compact []byte) []byte {
	var out []byte
	text := false
	for i, c := range compact {
		if c == '"' && (i == 0 || !escapedAt(compact, i)) {
			text = !text
		}
		out = append(out, c)
		if !text && (c == ',' || c == ':') {
			out = append(out, ' ')
		}
	}
	return out
}

func escapedAt(text []byte, i int) bool {
	n := 0
	for i--; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// ascii writes every other letter as \u and hex.
func ascii(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		switch {
		case r < 0x80:
			out = append(out, byte(r))
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// unescaped writes letters for \u and hex, where they stand for no control character, quote or backslash.
func unescaped(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 >= len(text) {
			out = append(out, text[i])
			continue
		}
		end := i + 2
		for text[i+1] == 'u' && end+4 <= len(text) && end-i < 12 {
			end += 4
			if end+2 > len(text) || string(text[end:end+2]) != `\u` {
				break
			}
			end += 2
		}
		var s string
		if text[i+1] == 'u' && json.Unmarshal([]byte(`"`+string(text[i:end])+`"`), &s) == nil && !strings.ContainsAny(s, "\"\\\x00\n\r\t") {
			out = append(out, s...)
		} else {
			end = i + 2
			out = append(out, text[i:end]...)
		}
		i = end - 1
	}
	return out
}

// otherForms tries the text of a secret in other forms.
func (x *explainer) otherForms() []string {
	for _, s := range x.v.source.Secrets {
		text, err := s.read()
		if err != nil {
			continue
		}
		trimmed := strings.TrimSpace(text)
		bare := strings.TrimPrefix(trimmed, "whsec_")
		for _, form := range []struct{ said, text string }{
			{"without the blanks around it", trimmed},
			{"with a line end behind it", text + "\n"},
			{"without the quotes around it", strings.Trim(trimmed, `"'`)},
			{"decoded from base64", decoded(trimmed, base64Any)},
			{"decoded from base64 after whsec_", decoded(bare, base64Any)},
			{"as the text after whsec_, not decoded", bare},
			{"decoded from hex", decoded(trimmed, hex.DecodeString)},
			{"as text, not decoded", text},
		} {
			if form.text == "" {
				continue
			}
			if x.fits(x.with(macKey(s.id, form.text, x.v.profile.Alg)), *x.req) {
				return []string{fmt.Sprintf("secret %s fits %s", s.id, form.said)}
			}
		}
	}
	return nil
}

func decoded(text string, decode func(string) ([]byte, error)) string {
	raw, err := decode(text)
	if err != nil {
		return ""
	}
	return string(raw)
}

// macKey is a key from bytes, whatever the form of the profile.
func macKey(id, text string, alg Alg) *key {
	return &key{id: id, text: text, mac: []byte(text), macs: &sync.Pool{New: func() any { return &macState{h: hmac.New(newHash(alg), []byte(text))} }}}
}

// otherURLs tries what differs between the URL at the provider and the configured one.
func (x *explainer) otherURLs() []string {
	if !x.v.profile.needsURL() {
		return nil
	}
	u := x.v.source.PublicURL
	scheme, rest, _ := strings.Cut(u, "://")
	host, path, _ := strings.Cut(rest, "/")
	bare, _, _ := strings.Cut(host, ":")
	join := func(scheme, host string) string { return scheme + "://" + host + "/" + path }
	swapped := map[string]string{"http": "https", "https": "http"}[scheme]
	for _, c := range []struct{ said, url string }{
		{"with a slash at the end of public_url", u + "/"},
		{"without the slash at the end of public_url", strings.TrimSuffix(u, "/")},
		{"with " + swapped + " as the scheme of public_url", swapped + "://" + rest},
		{"without the port of public_url", join(scheme, bare)},
		{"with port 443 in public_url", join(scheme, bare+":443")},
		{"with port 80 in public_url", join(scheme, bare+":80")},
	} {
		v := x.v.copy()
		v.source.PublicURL = c.url
		if c.url != u && x.fits(v, *x.req) {
			return []string{"the code fits " + c.said}
		}
	}
	if x.req.Query != "" {
		req := *x.req
		req.Query = ""
		if x.fits(x.v, req) {
			return []string{"the code fits without the query: something on the way added it"}
		}
	}
	return nil
}

// otherHeaders tries every header of the request in the place of one that is missing.
func (x *explainer) otherHeaders() []string {
	if x.out.Reason != ReasonMissingHeader {
		return nil
	}
	last := x.raw().err
	r, ok := last.(*refusal)
	if !ok || !isToken(r.detail) {
		return nil
	}
	names := make([]string, 0, len(x.req.Header))
	for name := range x.req.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		req := *x.req
		req.Header = http.Header{}
		maps.Copy(req.Header, x.req.Header)
		req.Header[textproto.CanonicalMIMEHeaderKey(r.detail)] = x.req.Header[name]
		if x.fits(x.v, req) {
			return []string{fmt.Sprintf("header %s is missing, and %s holds what belongs there: something on the way renamed it", r.detail, name)}
		}
	}
	return nil
}

// otherCodes reads the code under other encodings, hashes and prefixes.
func (x *explainer) otherCodes() []string {
	p := x.v.profile
	if p.Family != FamilyHMAC {
		return nil
	}
	text, err := x.req.header(p.Header)
	if err != nil {
		return nil
	}
	for _, prefix := range []string{p.Prefix, "", "sha256=", "sha1=", "sha512=", "v0=", "v1="} {
		code, ok := strings.CutPrefix(text, prefix)
		if !ok {
			continue
		}
		for _, alg := range []Alg{p.Alg, AlgSHA256, AlgSHA1, AlgSHA512} {
			for _, e := range []Encoding{EncodingHex, EncodingBase64, EncodingBase64URL} {
				for _, tail := range []string{"", "="} {
					v := x.v.copy()
					v.profile.Prefix, v.profile.Alg, v.profile.Encoding = "", alg, e
					v.keys.Store(x.rehashed(alg))
					req := *x.req
					req.Header = http.Header{}
					maps.Copy(req.Header, x.req.Header)
					req.Header.Set(p.Header, code+tail)
					if x.fits(v, req) {
						return []string{fmt.Sprintf("the code fits as %s %s after the prefix %s: the profile says %s %s after %s", alg, e, strconv.Quote(prefix), p.Alg, p.Encoding, strconv.Quote(p.Prefix))}
					}
				}
			}
		}
	}
	return nil
}

func (x *explainer) rehashed(alg Alg) *[]*key {
	var list []*key
	for _, k := range *x.v.keys.Load() {
		if k.mac != nil && !k.ended(x.now) {
			list = append(list, macKey(k.id, string(k.mac), alg))
		}
	}
	return &list
}

// changed looks for a proof, besides the code, that the body is not the one that was sent.
func (x *explainer) changed() string {
	length := x.req.Header.Get("Content-Length")
	if n, err := strconv.Atoi(length); err == nil && n != len(x.req.Body) {
		return fmt.Sprintf("Content-Length says %d bytes, the body has %d: it was changed on the way, or the capture cut it", n, len(x.req.Body))
	}
	if x.v.profile.Family == FamilyTwilio && strings.Contains(x.req.Query, "bodySHA256=") && x.out.Reason == ReasonMismatch {
		c := check{v: x.v, req: x.req, now: x.now}
		if _, err := c.twilioBody(); err != nil {
			return "bodySHA256 in the query is not that of the body: the body was changed on the way"
		}
	}
	return ""
}
