package webhook

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
)

// pubkeyScheme is a signature over a time and the body that a configured public key checks: ed25519 where the secret is
// one, else ECDSA P-256 with SHA-256.
type pubkeyScheme struct{}

func (pubkeyScheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: "pubkey ed25519"}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	ts, err := c.req.header(p.Time.Header)
	if err != nil {
		return v, err
	}
	if err := c.window(ts, &v); err != nil {
		return v, err
	}
	values, err := c.values(c.v.content, ts, c.buf[:0])
	if err != nil {
		return v, err
	}
	s := signed{c.v.content, values, c.req.Body}
	if p.SecretForm == FormEd25519 {
		var list codes
		if err := list.add(text, p.Encoding, ed25519.SignatureSize); err != nil {
			return v, err
		}
		return v, c.tryEd25519(&s, &list, &v)
	}
	v.Scheme = "pubkey ecdsa"
	der, err := blob(text)
	if err != nil {
		return v, err
	}
	sum := sha256.Sum256(s.join())
	tried := false
	for _, k := range *c.v.keys.Load() {
		if k.ec == nil || k.ended(c.now) {
			continue
		}
		tried = true
		if ecdsa.VerifyASN1(k.ec, sum[:], der) {
			v.SecretID = k.id
			return v, nil
		}
	}
	if !tried {
		return v, refuse(ReasonNoSecret, "no public key is active")
	}
	return v, refuse(ReasonMismatch, "no code fits")
}
