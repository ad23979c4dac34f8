package webhook

// mailgunScheme is an HMAC inside the body that covers a time and a token, and nothing of the event.
type mailgunScheme struct{}

func (mailgunScheme) check(c *check) (Verdict, error) {
	v := Verdict{Scheme: c.v.label}
	if !valid(c.req.Body) {
		return v, refuse(ReasonMissingHeader, "the body is not JSON, so it holds no /signature")
	}
	ts, ok := textAt(c.req.Body, "/signature/timestamp")
	token, okToken := textAt(c.req.Body, "/signature/token")
	text, okCode := textAt(c.req.Body, "/signature/signature")
	if !ok || !okToken || !okCode {
		return v, refuse(ReasonMissingHeader, "the body lacks /signature/timestamp, token or signature")
	}
	if err := c.window(ts.Text, &v); err != nil {
		return v, err
	}
	if err := cleanID(token.Text, "."); err != nil {
		return v, err
	}
	var list codes
	if err := list.add(text.Text, c.v.profile.Encoding, c.v.profile.Alg.size()); err != nil {
		return v, err
	}
	// An account with subaccounts may check with the key of the parent.
	if parent, ok := textAt(c.req.Body, "/signature/parent-signature"); ok {
		if err := list.add(parent.Text, c.v.profile.Encoding, c.v.profile.Alg.size()); err != nil {
			return v, err
		}
	}
	s := signed{[]piece{{kind: pieceTime}, {kind: pieceHeader}}, append(c.buf[:0], ts.Text, token.Text), nil}
	return v, c.try(&s, &list, &v)
}
