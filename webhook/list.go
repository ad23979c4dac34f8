package webhook

import "strings"

// listScheme is a header of tag=code pairs: several codes while a secret is being replaced, perhaps a time, perhaps codes
// of other versions, which do not count.
type listScheme struct{}

func (listScheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: c.v.label}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	var list codes
	ts, err := pairs(text, p, &list)
	if err != nil {
		return v, err
	}
	if p.Time.Header != "" {
		if ts, err = c.req.header(p.Time.Header); err != nil {
			return v, err
		}
	}
	if p.List.Time != "" || p.Time.Header != "" {
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
	at, ok := textAt(c.req.Body, p.Time.JSON)
	if !ok {
		return v, refuse(ReasonMalformedTime, "no time at "+p.Time.JSON)
	}
	return v, c.window(at.Text, &v)
}

// pairs reads the codes that count and the time. Two times are refused; so is a header without a code that counts.
func pairs(text string, p *Profile, list *codes) (ts string, err error) {
	times, versions := 0, false
	for entry := range strings.SplitSeq(text, p.List.Separator) {
		tag, value, ok := strings.Cut(strings.Trim(entry, " "), "=")
		switch {
		case !ok:
		case tag == p.List.Tag:
			if err := oneCode(value, p, list); err != nil {
				return "", err
			}
		case p.List.Time != "" && tag == p.List.Time:
			times++
			ts = value
		default:
			versions = true
		}
	}
	switch {
	case list.n == 0 && versions:
		return "", refuse(ReasonUnknownVersion, p.Header+" has no "+p.List.Tag+"=")
	case list.n == 0:
		return "", refuse(ReasonMalformedHeader, p.Header+" has no "+p.List.Tag+"=")
	case p.List.Time != "" && times != 1:
		return "", refuse(ReasonMalformedTime, p.Header+" needs exactly one "+p.List.Time+"=")
	}
	return ts, nil
}
