package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// echo answers with what it was sent, in body and header.
func echo(t *testing.T) *httptest.Server {
	t.Helper()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Receipt", "receipt of "+string(b))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(append([]byte("answer to "), b...))
	}))
	t.Cleanup(u.Close)
	return u
}

// onDisk is all that stands in a folder.
func onDisk(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC35] no answer in clear in the SQLite file, replays byte-equal, older records in clear still replay", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), echo(t)
		const digest = "digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef-}]"
		serving := func(security string, use func(s *server.Server, front string)) {
			t.Helper()
			s := server.New(settings(t, dir, "security: {"+security+"}\ngateway:\n  tenant: {global: true}\n  upstreams: {pay: {urls: [\""+u.URL+"\"]}}\n"+
				"  routes:\n    - {match: \"POST /pay\", upstream: pay, operation: pay}\n"), server.Options{Version: "v1"})
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.Stop(context.Background())
			use(s, "http://"+s.Addr().String())
		}
		replays := func(front, key, body string) {
			t.Helper()
			a := call(t, "POST", front+"/pay", key, body)
			b := call(t, "POST", front+"/pay", key, body)
			if a.status != 201 || a.body != "answer to "+body || a.header.Get("X-Receipt") != "receipt of "+body {
				t.Errorf("%+v", a)
			}
			if b.header.Get("Idempotency-Status") != "replayed" || b.status != a.status || b.body != a.body || b.header.Get("X-Receipt") != a.header.Get("X-Receipt") {
				t.Errorf("%+v", b)
			}
		}
		serving(digest, func(s *server.Server, front string) {
			replays(front, "old", "canary-clear")
			if strings.Contains(s.Banner(), "encrypted") {
				t.Error(s.Banner())
			}
		})
		if !strings.Contains(onDisk(t, dir), "canary-clear") {
			t.Fatal("the answer is not where this test looks for it")
		}
		const e1 = digest + ", require_encryption: true, encryption_keys: [{id: e1, value: 0123456789abcdef0123456789abcdef}]"
		serving(e1, func(s *server.Server, front string) {
			replays(front, "new", "canary-sealed")
			if a := call(t, "POST", front+"/pay", "old", "canary-clear"); a.body != "answer to canary-clear" || a.header.Get("Idempotency-Status") != "replayed" {
				t.Errorf("%+v", a)
			}
			if strings.Contains(onDisk(t, dir), "canary-sealed") {
				t.Error("in clear while it runs")
			}
			if !strings.Contains(s.Banner(), "  encrypted stored answers, under key e1\n") {
				t.Error(s.Banner())
			}
		})
		if strings.Contains(onDisk(t, dir), "canary-sealed") {
			t.Error("in clear at rest")
		}
		serving(strings.Replace(e1, "[{id: e1", "[{id: e2, value: 123456789abcdef-123456789abcdef-}, {id: e1", 1), func(_ *server.Server, front string) {
			if a := call(t, "POST", front+"/pay", "new", "canary-sealed"); a.body != "answer to canary-sealed" || a.header.Get("Idempotency-Status") != "replayed" {
				t.Errorf("after a rotation: %+v", a)
			}
		})
	})
}
