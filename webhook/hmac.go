package webhook

import "strings"

// hmacScheme is one HMAC in one header, over a content that the profile describes.
type hmacScheme struct{}

func (hmacScheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: c.v.label}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	var list codes
	if err := oneCode(text, p, &list); err != nil {
		return v, err
	}
	ts := ""
	if p.Time.Header != "" {
		if ts, err = c.req.header(p.Time.Header); err != nil {
			return v, err
		}
		if err := c.window(ts, &v); err != nil {
			return v, err
		}
	}
	values, err := c.values(c.v.content, ts, c.buf[:0])
	if err != nil {
		return v, err
	}
	if err := c.try(&signed{c.v.content, values, c.req.Body}, &list, &v); err != nil {
		return v, err
	}
	if p.Time.JSON == "" {
		return v, nil
	}
	// A time inside the body proves something only once the code does.
	at, ok := textAt(c.req.Body, p.Time.JSON)
	if !ok {
		return v, refuse(ReasonMalformedTime, "no time at "+p.Time.JSON)
	}
	return v, c.window(at.Text, &v)
}

// oneCode reads a header that is a prefix and one code.
func oneCode(text string, p *Profile, list *codes) error {
	if p.Prefix != "" {
		rest, ok := strings.CutPrefix(text, p.Prefix)
		switch {
		case ok:
			text = rest
		case strings.ContainsAny(text, "=,"):
			return refuse(ReasonUnknownVersion, p.Header+" does not begin with "+p.Prefix)
		default:
			return refuse(ReasonMalformedHeader, p.Header+" does not begin with "+p.Prefix)
		}
	}
	return list.add(text, p.Encoding, p.Alg.size())
}
