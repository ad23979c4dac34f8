package webhook

import "strings"

// adyenScheme has two ways: a header over the body for platform webhooks, and a code of its own in each payment item.
type adyenScheme struct{}

func (adyenScheme) check(c *check) (Verdict, error) {
	p := &c.v.profile
	v := Verdict{Scheme: "adyen platform"}
	if c.req.has(p.Header) {
		text, err := c.req.header(p.Header)
		if err != nil {
			return v, err
		}
		var list codes
		if err := list.add(text, p.Encoding, p.Alg.size()); err != nil {
			return v, err
		}
		return v, c.try(&signed{[]piece{{kind: pieceBody}}, []string{""}, c.req.Body}, &list, &v)
	}
	v.Scheme = "adyen items"
	if !valid(c.req.Body) {
		return v, refuse(ReasonMissingHeader, p.Header+", and the body is not JSON")
	}
	items, ok := elements(c.req.Body, "/notificationItems")
	if !ok || len(items) == 0 {
		return v, refuse(ReasonMissingHeader, p.Header+", and the body has no items")
	}
	for _, item := range items {
		if err := c.adyenItem(c.req.Body[item.from:item.to], &v); err != nil {
			return v, err
		}
	}
	return v, nil
}

const adyenItem = "/NotificationRequestItem"

// adyenFields are what an item's code covers, in order.
func adyenFields() []string {
	return []string{"/pspReference", "/originalReference", "/merchantAccountCode", "/merchantReference",
		"/amount/value", "/amount/currency", "/eventCode", "/success"}
}

// adyenText joins the fields of an item. Empty ones keep their place. The parts of the id must not hold the separator.
func adyenText(item []byte) (string, error) {
	var parts []string
	for _, field := range adyenFields() {
		value, _ := textAt(item, adyenItem+field)
		if field == "/pspReference" || field == "/eventCode" || field == "/success" {
			if err := cleanID(value.Text, ":"); err != nil {
				return "", err
			}
		}
		parts = append(parts, value.Text)
	}
	return strings.Join(parts, ":"), nil
}

func (c *check) adyenItem(item []byte, v *Verdict) error {
	text, ok := textAt(item, adyenItem+"/additionalData/hmacSignature")
	if !ok {
		return refuse(ReasonMissingHeader, "an item has no additionalData.hmacSignature")
	}
	var list codes
	if err := list.add(text.Text, c.v.profile.Encoding, c.v.profile.Alg.size()); err != nil {
		return err
	}
	content, err := adyenText(item)
	if err != nil {
		return err
	}
	return c.try(&signed{[]piece{{pieceLiteral, content}}, []string{content}, nil}, &list, v)
}
