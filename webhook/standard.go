package webhook

import (
	"crypto/ed25519"
	"strings"
)

// standardScheme is Standard Webhooks: an id, a time and a list of versioned codes, under two families of header names.
type standardScheme struct{}

func (standardScheme) check(c *check) (Verdict, error) { return c.standard() }

func (c *check) standard() (Verdict, error) {
	v := Verdict{Scheme: "standard v1"}
	id, at, code := "webhook-id", "webhook-timestamp", "webhook-signature"
	if c.v.profile.SecretForm != FormGitLab && !c.req.has(id) && !c.req.has(at) && !c.req.has(code) {
		id, at, code = "svix-id", "svix-timestamp", "svix-signature"
	}
	header, err := c.req.header(code)
	if err != nil {
		return v, err
	}
	idText, err := c.req.header(id)
	if err != nil {
		return v, err
	}
	if err := cleanID(idText, "."); err != nil {
		return v, err
	}
	ts, err := c.req.header(at)
	if err != nil {
		return v, err
	}
	if err := c.window(ts, &v); err != nil {
		return v, err
	}
	var v1, v1a codes
	if err := entries(header, &v1, &v1a); err != nil {
		return v, err
	}
	s := signed{c.v.content, append(c.buf[:0], idText, ".", ts, ".", ""), c.req.Body}
	// With a public key at hand the asymmetric code is the stronger one, and then the only one that counts.
	if v1a.n > 0 && c.v.publicKeys() {
		v.Scheme = "standard v1a"
		return v, c.tryEd25519(&s, &v1a, &v)
	}
	if v1.n == 0 {
		return v, refuse(ReasonUnknownVersion, code+" has no entry of a version that a configured secret can check")
	}
	return v, c.try(&s, &v1, &v)
}

// standardContent is what Standard Webhooks signs; its two headers are read under either family of names.
func standardContent() []piece {
	return []piece{{kind: pieceHeader}, {pieceLiteral, "."}, {kind: pieceTime}, {pieceLiteral, "."}, {kind: pieceBody}}
}

// entries reads a header of entries "version,code" split by one space. Unknown versions and entries without one are skipped.
func entries(header string, v1, v1a *codes) error {
	for entry := range strings.SplitSeq(header, " ") {
		version, text, _ := strings.Cut(entry, ",")
		var err error
		switch version {
		case "v1":
			err = v1.add(text, EncodingBase64, AlgSHA256.size())
		case "v1a":
			err = v1a.add(text, EncodingBase64, ed25519.SignatureSize)
		}
		if err != nil {
			return err
		}
		if v1.n+v1a.n > maxCodes {
			return refuse(ReasonMalformedHeader, "more than 16 codes")
		}
	}
	return nil
}

func (v *Verifier) publicKeys() bool {
	for _, k := range *v.keys.Load() {
		if k.ed != nil {
			return true
		}
	}
	return false
}

// tryEd25519 looks for a public key that fits one of the codes.
func (c *check) tryEd25519(s *signed, list *codes, v *Verdict) error {
	message := s.join()
	tried := false
	for _, k := range *c.v.keys.Load() {
		if k.ed == nil || k.ended(c.now) {
			continue
		}
		tried = true
		for i := range list.n {
			if ed25519.Verify(k.ed, message, list.list[i].bytes()) {
				v.SecretID = k.id
				return nil
			}
		}
	}
	if !tried {
		return refuse(ReasonNoSecret, "no public key is active")
	}
	return refuse(ReasonMismatch, "no code fits")
}

// join writes the signed text in one piece.
func (s *signed) join() []byte {
	n := len(s.body)
	for _, value := range s.values {
		n += len(value)
	}
	out := make([]byte, 0, n)
	for i, p := range s.pieces {
		if p.kind == pieceBody {
			out = append(out, s.body...)
		} else {
			out = append(out, s.values[i]...)
		}
	}
	return out
}
