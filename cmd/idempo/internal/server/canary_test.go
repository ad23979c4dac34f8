package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

func TestCanaries(t *testing.T) {
	t.Parallel()
	t.Run("[operations/M12] [security/SEC20] secrets in key, tenant, body, credentials and configuration show in no log, metric, answer or file", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		var log buffer
		c := settings(t, dir, `log: {level: debug, format: json}
metrics: {token: canary-token-0123456789}
security: {digest_keys: [{id: d1, value: canary-digest-0123456789-0123456789}]}
gateway:
  trusted_proxies: ["127.0.0.1"]
  tenant: {header: X-Account}
  upstreams:
    pay: {urls: ["`+u.URL+`"]}
    gone: {urls: ["http://127.0.0.1:1"]}
  routes:
    - {match: "POST /pay", upstream: pay, operation: pay}
    - {match: "POST /gone", upstream: gone, operation: gone}
    - {match: "/", upstream: pay}
`)
		s := running(t, c, server.Options{Log: &log})
		front := "http://" + s.Addr().String()
		secret := []string{"X-Account", "canary-tenant", "Authorization", "Bearer canary-credential", "Cookie", "session=canary-cookie"}
		answers := []answer{
			call(t, "POST", front+"/pay?q=canary-query", "canary-key", `{"card":"canary-body"}`, secret...),
			call(t, "POST", front+"/pay?q=canary-query", "canary-key", `{"card":"canary-body"}`, secret...),
			call(t, "POST", front+"/pay?q=canary-query", "canary-key", `{"card":"canary-other"}`, secret...),
			call(t, "POST", front+"/pay", `canary "broken`, `{}`, secret...),
			call(t, "POST", front+"/pay", "canary-key-2", `{}`),
			call(t, "POST", front+"/gone", "canary-key-3", `{"card":"canary-body"}`, secret...),
			call(t, "GET", front+"/canary-path", "", "", secret...),
		}
		for i, want := range []int{201, 201, 422, 400, 401, 502, 201} {
			if answers[i].status != want {
				t.Errorf("answer %d: %d %s, want %d", i, answers[i].status, answers[i].body, want)
			}
		}
		metrics := call(t, "GET", "http://"+s.AdminAddr().String()+"/metrics", "", "", "Authorization", "Bearer canary-token-0123456789").body
		if !strings.Contains(metrics, `verdict="mismatch"} 1`) || !strings.Contains(log.String(), `"verdict":"mismatch"`) || !strings.Contains(log.String(), `"key_ref":"k_`) {
			t.Fatal("the script did not reach what it is to test:\n" + log.String())
		}
		places := map[string]string{"log": log.String(), "metrics": metrics, "banner": s.Banner()}
		for i, a := range answers {
			places["answer "+string(rune('0'+i))] = a.body
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			places["file "+e.Name()] = strings.ReplaceAll(string(b), "canary-tenant", "") // a tenant is stored in clear
		}
		if len(entries) < 2 {
			t.Errorf("only %d files", len(entries))
		}
		for name, text := range places {
			for at := strings.Index(text, "canary"); at >= 0; at = -1 {
				t.Errorf("%s shows a secret: …%s…", name, text[max(0, at-80):min(len(text), at+60)])
			}
		}
	})
}
