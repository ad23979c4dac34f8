package webhook

import "strings"

// hook0Scheme is a list whose first version covers only the time, and whose second covers headers that it names.
type hook0Scheme struct{}

func (hook0Scheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: "hook0 v1"}
	text, err := c.req.header(p.Header)
	if err != nil {
		return v, err
	}
	strong, covered := *p, ""
	strong.List.Tag = "v0"
	names := 0
	for entry := range strings.SplitSeq(text, ",") {
		switch tag, value, _ := strings.Cut(entry, "="); tag {
		case "v1":
			strong.List.Tag = "v1"
		case "h":
			covered = value
			names++
		}
	}
	var list codes
	ts, err := pairs(text, &strong, &list)
	if err != nil {
		return v, err
	}
	if err := c.window(ts, &v); err != nil {
		return v, err
	}
	before := ts + "."
	if strong.List.Tag == "v1" {
		if names != 1 {
			return v, refuse(ReasonMalformedHeader, p.Header+" needs exactly one h=")
		}
		values, err := c.covered(covered)
		if err != nil {
			return v, err
		}
		before += covered + "." + values + "."
	} else {
		v.Scheme = "hook0 v0"
	}
	s := signed{[]piece{{pieceLiteral, before}, {kind: pieceBody}}, append(c.buf[:0], before, ""), c.req.Body}
	return v, c.try(&s, &list, &v)
}

// covered are the values of the named headers, joined. The delivery id must not hold the joining dot.
func (c *check) covered(names string) (string, error) {
	list := strings.Split(names, " ")
	if len(list) > 32 {
		return "", refuse(ReasonMalformedHeader, "h= names more than 32 headers")
	}
	values := make([]string, len(list))
	for i, name := range list {
		value, err := c.req.header(name)
		if err != nil {
			return "", err
		}
		if strings.EqualFold(name, "X-Event-Id") {
			if err := cleanID(value, "."); err != nil {
				return "", err
			}
		}
		values[i] = value
	}
	return strings.Join(values, "."), nil
}

// hook0Covers tells whether a verified request's code covers a header.
func hook0Covers(header, name string) bool {
	covered, strong := "", false
	for entry := range strings.SplitSeq(header, ",") {
		switch tag, value, _ := strings.Cut(entry, "="); tag {
		case "v1":
			strong = true
		case "h":
			covered = value
		}
	}
	for field := range strings.SplitSeq(covered, " ") {
		if strong && strings.EqualFold(field, name) {
			return true
		}
	}
	return false
}
