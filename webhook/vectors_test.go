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
type vector struct{ webhook.Vector }

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

func (v *vector) source() (webhook.Source, []webhook.Profile) { return v.Source() }

func (v *vector) request() webhook.Request { return v.Request() }

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
		t.Run("[webhooks/RP12] "+v.ID, func(t *testing.T) {
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
			if err := v.Check(); err != nil {
				t.Errorf("[webhooks/RP12] %v", err)
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

func TestVectorDiffers(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/RP12] a vector that states what is not so differs", func(t *testing.T) {
		v := named(t, "github-docs")
		v.Secret += "x"
		if v.Check() == nil {
			t.Error("a wrong secret")
		}
		v = named(t, "github-docs-neg-body")
		v.Body = named(t, "github-docs").Body
		if v.Check() == nil {
			t.Error("a right body")
		}
		v = named(t, "twitch-challenge")
		v.Expected.Body += "x"
		if v.Check() == nil {
			t.Error("another answer")
		}
		v = named(t, "discord-ping")
		v.Expected.JSON = []byte(`{"type":2}`)
		if v.Check() == nil {
			t.Error("another document")
		}
		v.Provider = "nobody"
		if v.Check() == nil {
			t.Error("an unknown provider")
		}
	})
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
