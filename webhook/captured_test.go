package webhook_test

import (
	"bytes"
	"testing"

	"github.com/idempo/idempo/webhook"
)

func TestParseCaptured(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/RP10] a head with CR LF or LF, and the exact body", func(t *testing.T) {
		for _, end := range []string{"\r\n", "\n"} {
			for _, body := range []string{"", "{}", "\r\n\r\n a\n", "a\x00b\n\n"} {
				raw := "POST /hooks/gh?a=1&b=%20 HTTP/1.1" + end + "Host: x" + end + "x-hub-signature-256: sha256=00" + end + "X-A: 1" + end + "X-A: 2" + end + end + body
				r, err := webhook.ParseCaptured([]byte(raw))
				if err != nil || r.Method != "POST" || r.Query != "a=1&b=%20" || string(r.Body) != body || r.Header.Get("X-Hub-Signature-256") != "sha256=00" || len(r.Header["X-A"]) != 2 {
					t.Errorf("%q: %+v %v", raw, r, err)
				}
			}
		}
		if r, err := webhook.ParseCaptured([]byte("GET / HTTP/1.0\n\nbody")); err != nil || string(r.Body) != "body" {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("what is no request is refused", func(t *testing.T) {
		for _, raw := range []string{"", "\n\n", "POST /", "POST / HTTP/2\n\n", "POST / HTTP/1.1\nA: 1\n", "POST / HTTP/1.1\nA 1\n\n", "POST x y HTTP/1.1\n\n", "POST x HTTP/1.1\n\n", "{}"} {
			if r, err := webhook.ParseCaptured([]byte(raw)); err == nil {
				t.Errorf("%q: %+v", raw, r)
			}
		}
	})
}

func FuzzParseCaptured(f *testing.F) {
	f.Add([]byte("POST /?a=1 HTTP/1.1\r\nA: b\r\n\r\nbody"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if r, err := webhook.ParseCaptured(raw); err == nil && !bytes.HasSuffix(raw, r.Body) {
			t.Fatalf("the body is not the end of the capture: %q", r.Body)
		}
	})
}
