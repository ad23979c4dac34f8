package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Vector is a request with what has to become of it: a test value of a provider, its library, or one's own.
type Vector struct {
	ID       string            `json:"id"`
	Provider string            `json:"provider"`
	Origin   string            `json:"source"` // where it was published
	Secret   string            `json:"secret"` // as the provider shows it; the public key where there is one
	Method   string            `json:"method"`
	URL      string            `json:"url"` // as the provider knows it, where that matters
	Headers  map[string]string `json:"headers"`
	Body     string            `json:"body"`
	Clock    *VectorClock      `json:"clock"`  // absent: times are not judged
	Config   *VectorConfig     `json:"config"` // differs from the provider's profile, or stands for it
	Cert     string            `json:"cert_pem"`
	Signed   string            `json:"signed_text"`
	Valid    *bool             `json:"valid"` // nil: only the signed text is known
	Expected *VectorReply      `json:"expected"`
	Note     string            `json:"note"`
}

// VectorClock is the receiver's clock and window.
type VectorClock struct {
	Now       int64 `json:"now"`
	Tolerance int64 `json:"tolerance_s"`
}

// VectorConfig is a profile of one's own.
type VectorConfig struct {
	Header   string   `json:"header"`
	Alg      Alg      `json:"alg"`
	Encoding Encoding `json:"encoding"`
	Prefix   string   `json:"prefix"`
	Content  string   `json:"content"`
}

// VectorReply is the answer to a handshake.
type VectorReply struct {
	Status      int             `json:"status"`
	ContentType string          `json:"content_type"`
	Body        string          `json:"body"`
	JSON        json.RawMessage `json:"json"` // stands for Body: the same document
}

// Source is what an operator would configure for the vector, and the profile that this needs besides the built-in ones.
func (v *Vector) Source() (Source, []Profile) {
	s := Source{Name: "vector", Provider: v.Provider, Secrets: []Secret{FromText("1", v.Secret)}}
	var own []Profile
	if c := v.Config; c != nil {
		p := Profile{Name: v.Provider, Header: c.Header, Alg: c.Alg, Encoding: c.Encoding, Prefix: c.Prefix, Content: c.Content}
		if slices.ContainsFunc(Providers(), func(b Profile) bool { return b.Name == v.Provider }) {
			s.Profile = p
		} else {
			own = append(own, p)
		}
	}
	s.PublicURL, _, _ = strings.Cut(v.URL, "?")
	if v.Clock != nil {
		s.Tolerance = time.Duration(v.Clock.Tolerance) * time.Second
	}
	if v.Cert != "" {
		s.Certificate = []byte(v.Cert)
	}
	switch v.Provider {
	case "aws-sns":
		topic := Value{}
		if valid([]byte(v.Body)) {
			topic, _ = textAt([]byte(v.Body), "/TopicArn")
		}
		s.Secrets, s.Topics = nil, []string{topic.Text}
	case "meta", "whatsapp":
		token := FromText("verify", v.Secret)
		s.VerifyToken = &token
	}
	return s, own
}

// Request is the vector's request.
func (v *Vector) Request() Request {
	r := Request{Method: v.Method, Header: http.Header{}, Body: []byte(v.Body)}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	_, r.Query, _ = strings.Cut(v.URL, "?")
	return r
}

// Now is the vector's clock; without one, the signed time of its request.
func (v *Vector) Now(r *Verifier) time.Time {
	if v.Clock != nil {
		return time.Unix(v.Clock.Now, 0)
	}
	x := explainer{v: r, now: time.Unix(0, 0)}
	if at := x.try(r, v.Request()).verdict.SignedAt; !at.IsZero() {
		return at
	}
	return time.Unix(0, 0)
}

// Check runs the vector. nil: it comes out as stated, or states nothing. Refusing the secret counts as refusing the request.
func (v *Vector) Check() error {
	if v.Valid == nil {
		return nil
	}
	s, own := v.Source()
	r, err := NewVerifier(s, own...)
	if err != nil {
		if *v.Valid {
			return err
		}
		return nil
	}
	a, err := Accept(r, v.Request(), v.Now(r), r.profile.MaxBody)
	switch {
	case *v.Valid && err != nil:
		return fmt.Errorf("refused, and should be accepted: %w", err)
	case !*v.Valid && err == nil:
		return errors.New("accepted, and should be refused")
	case v.Expected != nil:
		return v.Expected.check(a.Reply)
	}
	return nil
}

func (want *VectorReply) check(got *Reply) error {
	switch {
	case got == nil:
		return errors.New("no handshake was seen")
	case got.Status != want.Status || got.ContentType != want.ContentType:
		return fmt.Errorf("the handshake is answered %d %s, and should be %d %s", got.Status, got.ContentType, want.Status, want.ContentType)
	case want.JSON == nil && string(got.Body) == want.Body:
		return nil
	}
	var a, b bytes.Buffer
	if want.JSON == nil || json.Compact(&a, got.Body) != nil || json.Compact(&b, want.JSON) != nil || a.String() != b.String() {
		return errors.New("the handshake is answered with another body")
	}
	return nil
}
