package webhook_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/webhook"
)

// vector is one entry of testdata/vectors.json, a copy of public test values.
type vector struct {
	ID, Provider, Source, Secret, Method, URL, Body, Note string
	Headers                                               map[string]string
	Clock                                                 *struct {
		Now       int64
		Tolerance int64 `json:"tolerance_s"`
	}
	Config *struct {
		Header, Alg, Encoding, Prefix, Content string
	}
	Cert       string `json:"cert_pem"`
	SignedText string `json:"signed_text"`
	Valid      *bool
	Expected   *struct {
		Status      int
		ContentType string `json:"content_type"`
		Body        string
		JSON        json.RawMessage
	}
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		tb.Fatal(err)
	}
	var list []vector
	if err := json.Unmarshal(raw, &list); err != nil {
		tb.Fatal(err)
	}
	return list
}

// named is the vector of an id.
func named(tb testing.TB, id string) vector {
	tb.Helper()
	list := vectors(tb)
	i := slices.IndexFunc(list, func(v vector) bool { return v.ID == id })
	if i < 0 {
		tb.Fatalf("no vector %s", id)
	}
	return list[i]
}

// source is what an operator would configure for the vector.
func (v *vector) source() (webhook.Source, []webhook.Profile) {
	s := webhook.Source{Name: "vector", Provider: v.Provider, Secrets: []webhook.Secret{webhook.FromText("1", v.Secret)}}
	var own []webhook.Profile
	if c := v.Config; c != nil {
		p := webhook.Profile{Name: v.Provider, Header: c.Header, Alg: webhook.Alg(c.Alg), Encoding: webhook.Encoding(c.Encoding), Prefix: c.Prefix, Content: c.Content}
		if slices.ContainsFunc(webhook.Providers(), func(b webhook.Profile) bool { return b.Name == v.Provider }) {
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
		s.Secrets, s.Topics = nil, []string{"arn:aws:sns:us-east-1:123456789012:T"}
	case "meta":
		token := webhook.FromText("verify", v.Secret)
		s.VerifyToken = &token
	}
	return s, own
}

func (v *vector) request() webhook.Request {
	r := webhook.Request{Method: v.Method, Header: http.Header{}, Body: []byte(v.Body)}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	_, r.Query, _ = strings.Cut(v.URL, "?")
	return r
}

// now is the vector's clock; without one, a moment at which no certificate of the file has ended.
func (v *vector) now() time.Time {
	if v.Clock != nil {
		return time.Unix(v.Clock.Now, 0)
	}
	return time.Unix(1780000000, 0)
}

// ready is a verifier for the vector.
func (v *vector) ready(tb testing.TB) *webhook.Verifier {
	tb.Helper()
	s, own := v.source()
	r, err := webhook.NewVerifier(s, own...)
	if err != nil {
		tb.Fatal(v.ID, err)
	}
	return r
}

func TestVectors(t *testing.T) {
	t.Parallel()
	list := vectors(t)
	for _, v := range list {
		t.Run("[webhooks/V40] "+v.ID, func(t *testing.T) {
			s, own := v.source()
			r, err := webhook.NewVerifier(s, own...)
			if err != nil {
				if v.Valid == nil || *v.Valid {
					t.Fatal(err)
				}
				return // refusing the secret counts as refusing the request
			}
			a, err := webhook.Accept(r, v.request(), v.now(), 1<<20)
			switch {
			case v.Valid == nil: // TestPayPalText
			case *v.Valid && err != nil:
				t.Errorf("refused: %v", err)
			case !*v.Valid && err == nil:
				t.Error("accepted")
			case !*v.Valid:
				if reason, ok := webhook.IsRefusal(err); !ok || reason == webhook.ReasonPanic {
					t.Errorf("no refusal: %v", err)
				}
				for _, hidden := range []string{v.Secret, strings.TrimPrefix(v.Secret, "whsec_")} {
					if len(hidden) > 6 && strings.Contains(err.Error(), hidden) {
						t.Error("the error holds the secret")
					}
				}
			}
			if v.Expected != nil {
				v.checkReply(t, a.Reply)
			}
		})
	}
	if len(list) != 169 {
		t.Errorf("%d vectors, the published file has 169", len(list))
	}
}

func (v *vector) checkReply(t *testing.T, got *webhook.Reply) {
	t.Helper()
	want := v.Expected
	if got == nil || got.Status != want.Status || got.ContentType != want.ContentType {
		t.Fatalf("reply %+v", got)
	}
	if want.JSON == nil {
		if string(got.Body) != want.Body {
			t.Errorf("body %q", got.Body)
		}
		return
	}
	var a, b bytes.Buffer
	if err := json.Compact(&a, got.Body); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&b, want.JSON); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Errorf("body %s", got.Body)
	}
}

// Every byte counts: a vector that is accepted is refused once any part that the code covers is another one.
func TestVectorsChanged(t *testing.T) {
	t.Parallel()
	changed := 0
	for _, v := range vectors(t) {
		if v.Valid == nil || !*v.Valid || v.Method != http.MethodPost || slices.Contains([]string{"telegram", "msgraph", "mailgun"}, v.Provider) || v.ID == "gitlab-token" {
			continue // where the body is not covered by a code
		}
		r, req := v.ready(t), v.request()
		for _, i := range []int{0, len(req.Body) / 2, len(req.Body) - 1} {
			if i < 0 || i >= len(req.Body) {
				continue
			}
			other := req
			other.Body = bytes.Clone(req.Body)
			other.Body[i] ^= 1
			if _, err := webhook.Verify(r, other, v.now()); err == nil && !harmless(v, i) {
				t.Errorf("%s: byte %d of the body does not count", v.ID, i)
			}
			changed++
		}
	}
	if changed < 100 {
		t.Errorf("only %d changes", changed)
	}
}

// harmless tells the bytes that a signature inside a body does not cover: the names around the signed values.
func harmless(v vector, _ int) bool {
	return v.Provider == "adyen" && v.ID != "adyen-banking" || v.Provider == "aws-sns"
}

func TestVectorsCoverEveryFamily(t *testing.T) {
	t.Parallel()
	seen := map[webhook.Family]bool{}
	all := webhook.Providers()
	for _, v := range vectors(t) {
		for _, p := range all {
			if p.Name == v.Provider {
				seen[p.Family] = true
			}
		}
	}
	if len(seen) != 11 {
		t.Errorf("families with a vector: %v", slices.Collect(maps.Keys(seen)))
	}
}

func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
