package webhook

import (
	"errors"
	"fmt"
	"time"
)

// Verdict is what a verified request proved.
type Verdict struct {
	Scheme   string        // what was checked, such as "hmac sha256"
	SecretID string        // the secret that fits; "" where there is none
	SignedAt time.Time     // the zero time where no time is signed
	Skew     time.Duration // now minus SignedAt
}

// scheme checks one family.
type scheme interface {
	check(c *check) (Verdict, error)
}

// check is one verification.
type check struct {
	v   *Verifier
	req *Request
	now time.Time
	buf [12]string // room for the values of a content
}

// Verify tells whether req comes from src, judged at now. It reads no store and no clock, and no network but for the
// certificates of the cert family.
//
// The error is an [Error] for every refusal, and wraps [ErrCertificate] where a certificate could not be fetched, which
// is no refusal. It is safe for concurrent use and keeps no reference to req.
func Verify(src *Verifier, req Request, now time.Time) (verdict Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			verdict, err = Verdict{}, &Error{src.source.Name, ReasonPanic, fmt.Errorf("the verifier failed: %T", p)}
		}
	}()
	c := check{v: src, req: &req, now: now}
	if verdict, err = src.scheme.check(&c); err == nil {
		return verdict, nil
	}
	return Verdict{}, src.refused(err)
}

func (v *Verifier) refused(err error) error {
	if r, ok := err.(*refusal); ok {
		return &Error{v.source.Name, r.reason, r}
	}
	if errors.Is(err, ErrCertificate) {
		return fmt.Errorf("webhook %s: %w", v.source.Name, err)
	}
	return &Error{v.source.Name, ReasonMismatch, err}
}

// window reads and judges the signed time of text.
func (c *check) window(text string, v *Verdict) error {
	t := &c.v.profile.Time
	at, err := signedTime(text, t.Unit)
	if err != nil {
		return err
	}
	v.SignedAt = at
	v.Skew, err = within(at, c.now, c.v.tolerance)
	return err
}

// try looks for a key whose HMAC of the text is one of the codes.
func (c *check) try(s *signed, list *codes, v *Verdict) error {
	tried := false
	for _, k := range *c.v.keys.Load() {
		if k.macs == nil || k.ended(c.now) {
			continue
		}
		tried = true
		if k.matches(s, list) {
			v.SecretID = k.id
			return nil
		}
	}
	if !tried {
		return refuse(ReasonNoSecret, "no secret of the right form is active")
	}
	return refuse(ReasonMismatch, "no code fits")
}
