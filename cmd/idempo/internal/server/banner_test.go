package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

const everyKind = `security: {digest_keys: [{id: d1, value: 0123456789abcdef0123456789abcdef}]}
metrics: {token: 0123456789abcdef}
gateway:
  tenant: {global: true}
  upstreams: {pay: {urls: ["%s"]}}
  routes:
    - {match: "/", upstream: pay}
    - {match: "POST /a", upstream: pay, operation: by-header, key: {headers: [X-Key]}}
    - {match: "POST /b", upstream: pay, operation: by-body, key: {pointer: /id}, retention: 1h, tombstone: forever}
    - {match: "POST /c", upstream: pay, operation: by-parts, key: {from: ["body:/a", "query:b"]}, on_store_down: run}
    - {match: "POST /d", upstream: pay, operation: by-profile, key: {profile: stripe}, fingerprint: none}
    - {match: "PUT /e", upstream: pay, operation: twice, methods: [PUT], on_crash: rerun, upstream_honours_key: true}
    - {match: "POST /e", upstream: pay, operation: twice, on_crash: rerun, upstream_honours_key: true}
`

func TestBanner(t *testing.T) {
	t.Parallel()
	dir, u := t.TempDir(), newUpstream(t)
	s := running(t, settings(t, dir, fmt.Sprintf(everyKind, u.URL)), server.Options{})
	t.Run("[operations/OP40] every operation with what it is promised, and the warnings", func(t *testing.T) {
		got := strings.NewReplacer(dir, "DIR", s.Addr().String(), "FRONT", s.AdminAddr().String(), "ADMIN").Replace(s.Banner())
		got = regexp.MustCompile(`:\d{4,5}\b`).ReplaceAllString(got, ":PORT")
		got = regexp.MustCompile(`code=[A-Z2-7]{26}`).ReplaceAllString(got, "code=CODE")
		for line := range strings.SplitSeq(got, "\n") {
			if len([]rune(line)) > 80 || strings.HasSuffix(line, " ") {
				t.Errorf("over 80 columns, or ends in a space: %q", line)
			}
		}
		const file = "testdata/banner.golden"
		if os.Getenv("UPDATE") != "" {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got != string(want) {
			t.Errorf("%v\n%s", err, got)
		}
	})
	t.Run("no key of idempo's own is made where one is configured", func(t *testing.T) {
		if _, err := os.Stat(filepath.Join(dir, "digest.key")); err == nil {
			t.Error("made")
		}
	})
	t.Run("each route is guarded as it says", func(t *testing.T) {
		front := "http://" + s.Addr().String()
		for _, c := range []struct {
			method, path, body string
			header             []string
		}{
			{"POST", "/a", `{}`, []string{"X-Key", "k"}},
			{"POST", "/b", `{"id":"k"}`, []string{"Content-Type", "application/json"}},
			{"POST", "/c?b=1", `{"a":"k"}`, []string{"Content-Type", "application/json"}},
			{"POST", "/d", `{}`, []string{"Idempotency-Key", "k"}},
			{"PUT", "/e", `{}`, []string{"Idempotency-Key", "k"}},
		} {
			before := u.calls.Load()
			first := call(t, c.method, front+c.path, "", c.body, c.header...)
			again := call(t, c.method, front+c.path, "", c.body, c.header...)
			if first.status != 201 || again.header.Get("Idempotent-Replayed") != "true" || u.calls.Load() != before+1 {
				t.Errorf("%s %s: %d %s, then %d %s, %d calls", c.method, c.path, first.status, first.body, again.status, again.body, u.calls.Load()-before)
			}
		}
		if a := call(t, "POST", front+"/a", "", "{}"); a.status != 400 || !strings.Contains(a.body, `"key_missing"`) {
			t.Errorf("%+v", a)
		}
		if a := call(t, "GET", front+"/anything", "", ""); a.status != 201 {
			t.Errorf("%+v", a)
		}
	})
}

func TestQuota(t *testing.T) {
	t.Parallel()
	t.Run("[security/SEC45] over the rate of new keys: 429, and known keys are still answered", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		s := running(t, settings(t, t.TempDir(), "quota: {new_per_second: 1, burst: 1}\n", behind(u)), server.Options{})
		front := "http://" + s.Addr().String()
		if a := call(t, "POST", front+"/", "k-1", "{}"); a.status != 201 {
			t.Fatalf("%+v", a)
		}
		limited := eventually(t, func() (answer, bool) { // the bucket fills up by one each second
			a := call(t, "POST", front+"/", fmt.Sprint("k-", u.calls.Load(), "-more"), "{}")
			return a, a.status == 429
		})
		if !strings.Contains(limited.body, `"quota_exceeded"`) || limited.header.Get("Retry-After") == "" {
			t.Errorf("%+v", limited)
		}
		if a := call(t, "POST", front+"/", "k-1", "{}"); a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%+v", a)
		}
	})
}
