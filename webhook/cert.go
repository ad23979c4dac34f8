package webhook

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"hash/crc32"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// certScheme is an RSA signature whose certificate stands at a URL that the request names. The URL is pinned before
// anything is fetched.
type certScheme struct{}

func (certScheme) check(c *check) (Verdict, error) {
	if c.v.profile.Header == "" {
		return c.sns()
	}
	return c.paypal()
}

var (
	paypalHost = regexp.MustCompile(`^api(-m)?(\.sandbox)?\.paypal\.com$`)
	paypalPath = regexp.MustCompile(`^/v1/notifications/certs/[A-Za-z0-9_-]{1,200}$`)
	snsHost    = regexp.MustCompile(`^sns\.[a-z]{2}(-[a-z]+)+-[0-9]+\.amazonaws\.com(\.cn)?$`)
	snsPath    = regexp.MustCompile(`^/[A-Za-z0-9._-]{1,200}\.pem$`)
	snsSlash   = regexp.MustCompile(`^/?$`)
)

// pinned tells whether a URL is https on the default port, without a user, on an exact host and path.
func pinned(text string, host, path *regexp.Regexp, query bool) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.User == nil && u.Fragment == "" && u.Opaque == "" && (query || u.RawQuery == "") &&
		(u.Host == u.Hostname() || u.Host == u.Hostname()+":443") && host.MatchString(u.Hostname()) && path.MatchString(u.Path) &&
		u.EscapedPath() == u.Path && strings.HasPrefix(text, "https://"+u.Host)
}

// paypalText is what PayPal signs.
func paypalText(id, at, webhookID string, body []byte) string {
	return id + "|" + at + "|" + webhookID + "|" + strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)
}

func (c *check) paypal() (Verdict, error) {
	v := Verdict{Scheme: "cert rsa sha256"}
	var head [5]string
	for i, name := range []string{"PAYPAL-TRANSMISSION-SIG", "PAYPAL-TRANSMISSION-ID", "PAYPAL-TRANSMISSION-TIME", "PAYPAL-AUTH-ALGO", "PAYPAL-CERT-URL"} {
		var err error
		if head[i], err = c.req.header(name); err != nil {
			return v, err
		}
	}
	if head[3] != "SHA256withRSA" {
		return v, refuse(ReasonUnknownVersion, "PAYPAL-AUTH-ALGO is not SHA256withRSA")
	}
	if err := cleanID(head[1], "|"); err != nil {
		return v, err
	}
	if strings.Contains(head[2], "|") {
		return v, refuse(ReasonMalformedTime, "PAYPAL-TRANSMISSION-TIME is not an RFC 3339 time")
	}
	if err := c.window(head[2], &v); err != nil {
		return v, err
	}
	sig, err := blob(head[0])
	if err != nil {
		return v, err
	}
	if !pinned(head[4], paypalHost, paypalPath, false) {
		return v, refuse(ReasonCertURLRefused, "PAYPAL-CERT-URL is not a certificate of paypal.com")
	}
	keys := c.active()
	if len(keys) == 0 {
		return v, refuse(ReasonNoSecret, "no webhook id is active")
	}
	key, err := c.v.certs.key(head[4], []string{"messageverificationcerts.paypal.com", "messageverificationcerts.sandbox.paypal.com"}, c.now)
	if err != nil {
		return v, err
	}
	for _, k := range keys {
		sum := sha256.Sum256([]byte(paypalText(head[1], head[2], k.text, c.req.Body)))
		if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig) == nil {
			v.SecretID = k.id
			return v, nil
		}
	}
	return v, refuse(ReasonMismatch, "the signature is of another text, webhook id or certificate")
}

func (c *check) active() []*key {
	var list []*key
	for _, k := range *c.v.keys.Load() {
		if !k.ended(c.now) {
			list = append(list, k)
		}
	}
	return list
}

const (
	snsNotification = "Notification"
	snsSubscribe    = "SubscriptionConfirmation"
	snsUnsubscribe  = "UnsubscribeConfirmation"
)

// snsText is what SNS signs: names and values, each on a line. Only Message may hold a line end, or one signature would
// fit two readings.
func snsText(body []byte) (string, error) {
	names := []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	switch kind, _ := textAt(body, "/Type"); kind.Text {
	case snsNotification:
	case snsSubscribe, snsUnsubscribe:
		names = []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
	default:
		return "", refuse(ReasonUnknownVersion, "/Type is no message of SNS")
	}
	var b strings.Builder
	for _, name := range names {
		value, ok := textAt(body, "/"+name)
		if !ok || !value.IsString {
			if name == "Subject" {
				continue
			}
			return "", refuse(ReasonMissingHeader, "/"+name)
		}
		if name == "MessageId" {
			if err := cleanID(value.Text, "\n"); err != nil {
				return "", err
			}
		}
		if name != "Message" && strings.ContainsAny(value.Text, "\r\n") {
			return "", refuse(ReasonAmbiguousID, "/"+name+" holds a line end")
		}
		b.WriteString(name + "\n" + value.Text + "\n")
	}
	return b.String(), nil
}

func (c *check) sns() (Verdict, error) {
	v := Verdict{Scheme: "cert rsa sha256"}
	body := c.req.Body
	if !valid(body) {
		return v, refuse(ReasonMissingHeader, "the body is not JSON, so it holds no /Signature")
	}
	text, err := snsText(body)
	if err != nil {
		return v, err
	}
	if topic, _ := textAt(body, "/TopicArn"); !slices.Contains(c.v.source.Topics, topic.Text) {
		return v, refuse(ReasonMismatch, "the topic is not one of topics")
	}
	hash := crypto.SHA256
	switch version, _ := textAt(body, "/SignatureVersion"); version.Text {
	case "1":
		v.Scheme, hash = "cert rsa sha1", crypto.SHA1
	case "2":
	default:
		return v, refuse(ReasonUnknownVersion, "/SignatureVersion is neither 1 nor 2")
	}
	at, _ := textAt(body, "/Timestamp")
	if err := c.window(at.Text, &v); err != nil {
		return v, err
	}
	code, _ := textAt(body, "/Signature")
	sig, err := blob(code.Text)
	if err != nil {
		return v, err
	}
	from, _ := textAt(body, "/SigningCertURL")
	if !pinned(from.Text, snsHost, snsPath, false) {
		return v, refuse(ReasonCertURLRefused, "/SigningCertURL is not a certificate of SNS")
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(from.Text, "https://"), "/")
	key, err := c.v.certs.key(from.Text, []string{"sns.amazonaws.com", strings.TrimSuffix(host, ":443")}, c.now)
	if err != nil {
		return v, err
	}
	if !rsaFits(key, hash, text, sig) {
		return v, refuse(ReasonMismatch, "the signature is of another text or certificate")
	}
	return v, c.snsSubscribeURL()
}

func (c *check) snsSubscribeURL() error {
	if kind, _ := textAt(c.req.Body, "/Type"); kind.Text != snsSubscribe {
		return nil
	}
	if to, _ := textAt(c.req.Body, "/SubscribeURL"); !pinned(to.Text, snsHost, snsSlash, true) {
		return refuse(ReasonSubscribeURLRefused, "/SubscribeURL does not lead to SNS")
	}
	return nil
}

func rsaFits(key *rsa.PublicKey, hash crypto.Hash, text string, sig []byte) bool {
	if hash == crypto.SHA1 {
		sum := sha1.Sum([]byte(text))
		return rsa.VerifyPKCS1v15(key, hash, sum[:], sig) == nil
	}
	sum := sha256.Sum256([]byte(text))
	return rsa.VerifyPKCS1v15(key, hash, sum[:], sig) == nil
}

// judgeCert checks what a certificate URL gave: validity, name, an RSA key of 2048 bits or more, and, unless it was
// configured, the chain to roots (nil: the system's).
func judgeCert(chain []*x509.Certificate, names []string, now time.Time, trusted bool, roots *x509.CertPool) (*rsa.PublicKey, error) {
	leaf := chain[0]
	key, ok := leaf.PublicKey.(*rsa.PublicKey)
	switch {
	case !ok || key.N.BitLen() < 2048:
		return nil, refuse(ReasonCertInvalid, "the certificate's key is not RSA of 2048 bits or more")
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return nil, refuse(ReasonCertInvalid, "the certificate is not valid at this time")
	case !slices.ContainsFunc(names, func(n string) bool { return named(leaf, n) }):
		return nil, refuse(ReasonCertInvalid, "the certificate is for another name")
	case trusted:
		return key, nil
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Intermediates: between, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, refuse(ReasonCertInvalid, "the certificate's chain does not lead to a trusted root")
	}
	return key, nil
}

// named tells whether a certificate is for a name. The common name counts only where there is no other.
func named(c *x509.Certificate, name string) bool {
	return c.VerifyHostname(name) == nil || len(c.DNSNames) == 0 && c.Subject.CommonName == name
}
