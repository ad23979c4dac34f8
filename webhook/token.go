package webhook

import "crypto/subtle"

// tokenScheme compares the secret itself, in a header or in each item of the body. It proves nothing about the body.
type tokenScheme struct{}

func (tokenScheme) check(c *check) (Verdict, error) {
	v := Verdict{Scheme: "token"}
	p := &c.v.profile
	if p.Header == "" {
		return c.itemTokens()
	}
	// GitLab: a signature beside the token is the stronger proof, and never falls back to the token.
	if p.SecretForm == FormGitLab && c.req.has("webhook-signature") {
		return c.standard()
	}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	return v, c.tryToken(text, &v)
}

func (c *check) tryToken(text string, v *Verdict) error {
	tried := false
	for _, k := range *c.v.keys.Load() {
		if k.text == "" || k.ended(c.now) {
			continue
		}
		tried = true
		if subtle.ConstantTimeCompare([]byte(k.text), []byte(text)) == 1 {
			v.SecretID = k.id
			return nil
		}
	}
	if !tried {
		return refuse(ReasonNoSecret, "no token is active")
	}
	return refuse(ReasonWrongToken, "the token is another one")
}

// itemTokens wants the token in every item; one bad item refuses the request.
func (c *check) itemTokens() (Verdict, error) {
	v := Verdict{Scheme: "token"}
	if !valid(c.req.Body) {
		return v, refuse(ReasonWrongToken, "the body is not JSON, so it holds no clientState")
	}
	items, ok := elements(c.req.Body, "/value")
	if !ok || len(items) == 0 {
		return v, refuse(ReasonWrongToken, "the body has no items at /value")
	}
	for _, item := range items {
		text, ok := textAt(c.req.Body[item.from:item.to], "/clientState")
		if !ok || !text.IsString {
			return v, refuse(ReasonWrongToken, "an item has no clientState")
		}
		if err := c.tryToken(text.Text, &v); err != nil {
			return v, err
		}
	}
	return v, nil
}
