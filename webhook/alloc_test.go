package webhook

import (
	"bytes"
	"testing"
)

func TestVerifyAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	body := bytes.Repeat([]byte("x"), 2048)
	for _, provider := range []string{"github", "stripe", "slack", "shopify", "twitch", "standard-webhooks"} {
		t.Run("[webhooks/W52] "+provider, func(t *testing.T) {
			s := Source{Name: "a", Provider: provider, Secrets: []Secret{FromText("1", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")}}
			v, err := NewVerifier(s)
			if err != nil {
				t.Fatal(err)
			}
			out, err := Sign(s, SignParams{Body: body, ID: "1", At: testTime()})
			if err != nil {
				t.Fatal(err)
			}
			req := out.Request()
			accepted := testing.AllocsPerRun(100, func() {
				if _, err := Verify(v, req, testTime()); err != nil {
					t.Error(err)
				}
			})
			other := req
			other.Body = body[1:]
			refused := testing.AllocsPerRun(100, func() {
				if _, err := Verify(v, other, testTime()); err == nil {
					t.Error("accepted")
				}
			})
			t.Logf("%s: %.0f allocations accepted, %.0f refused", provider, accepted, refused)
			if accepted > 10 || refused > 10 {
				t.Errorf("%.0f and %.0f allocations", accepted, refused)
			}
		})
	}
}
