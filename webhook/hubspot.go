package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"strings"
)

// hubspotScheme is three versions of one provider. The third is an HMAC over method, URL, body and time; the older two are
// a plain hash of the secret and the content.
type hubspotScheme struct{}

func (hubspotScheme) check(c *check) (Verdict, error) {
	if c.req.has("X-HubSpot-Signature-v3") {
		return c.hubspot3()
	}
	v := Verdict{Scheme: "hubspot v1"}
	text, err := c.req.header("X-HubSpot-Signature")
	if err != nil {
		return v, err
	}
	version, err := c.req.header("X-HubSpot-Signature-Version")
	if err != nil {
		return v, err
	}
	before := ""
	switch version {
	case "v1":
	case "v2":
		v.Scheme, before = "hubspot v2", c.req.Method+c.url()
	default:
		return v, refuse(ReasonUnknownVersion, "X-HubSpot-Signature-Version is neither v1 nor v2")
	}
	if version < c.v.source.MinVersion {
		return v, refuse(ReasonUnknownVersion, "the signature is "+version+", the source wants "+c.v.source.MinVersion)
	}
	var list codes
	if err := list.add(text, EncodingHex, sha256.Size); err != nil {
		return v, err
	}
	tried := false
	for _, k := range *c.v.keys.Load() {
		if k.ended(c.now) {
			continue
		}
		tried = true
		h := sha256.New()
		h.Write([]byte(k.text + before))
		h.Write(c.req.Body)
		if hmac.Equal(h.Sum(nil), list.list[0].bytes()) {
			v.SecretID = k.id
			return v, nil
		}
	}
	if !tried {
		return v, refuse(ReasonNoSecret, "no secret is active")
	}
	return v, refuse(ReasonMismatch, "no code fits")
}

func (c *check) hubspot3() (Verdict, error) {
	v := Verdict{Scheme: "hubspot v3"}
	text, err := c.req.header("X-HubSpot-Signature-v3")
	if err != nil {
		return v, err
	}
	ts, err := c.req.header("X-HubSpot-Request-Timestamp")
	if err != nil {
		return v, err
	}
	if err := c.window(ts, &v); err != nil {
		return v, err
	}
	var list codes
	if err := list.add(text, EncodingBase64, sha256.Size); err != nil {
		return v, err
	}
	s := signed{hubspotContent(), append(c.buf[:0], c.req.Method, hubspotURL(c.url()), "", ts), c.req.Body}
	return v, c.try(&s, &list, &v)
}

func hubspotContent() []piece {
	return []piece{{kind: pieceMethod}, {kind: pieceURL}, {kind: pieceBody}, {kind: pieceTime}}
}

// hubspotURL decodes the characters that HubSpot's page on validating requests lists, and no others.
func hubspotURL(u string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/", "%3F", "?", "%40", "@", "%21", "!", "%24", "$", "%27", "'", "%28", "(",
		"%29", ")", "%2A", "*", "%2C", ",", "%3B", ";").Replace(u)
}
