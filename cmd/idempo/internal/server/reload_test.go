package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// reloadable is a server whose file can be written anew.
type reloadable struct {
	*server.Server
	t    *testing.T
	file string
	log  *buffer
}

// one is a configuration with one guarded route at path, answered by u.
func one(u *upstream, path, more string) string {
	return fmt.Sprintf(`version: 1
gateway:
  tenant: {global: true}
  upstreams: {pay: {urls: [%q]}}
  routes:
    - {match: "POST %s", upstream: pay, operation: "op%s", key: {required: true}}
%s`, u.URL, path, strings.ReplaceAll(path, "/", "."), more)
}

func reloading(t *testing.T, text string, watch time.Duration) *reloadable {
	t.Helper()
	dir := t.TempDir()
	r := &reloadable{t: t, file: filepath.Join(dir, "idempo.yaml"), log: &buffer{}}
	r.write(text)
	load := func() (*config.Settings, config.Problems, error) {
		return config.Load(config.Source{File: r.file, DataDir: dir, Overrides: []config.Override{
			{Path: "listen.gateway", Value: "127.0.0.1:0", Origin: "test"}, {Path: "listen.admin", Value: "127.0.0.1:0", Origin: "test"}}})
	}
	c, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	r.Server = running(t, c, server.Options{Log: r.log, Load: load, WatchEvery: watch})
	return r
}

func (r *reloadable) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil { // as an editor, or a mounted secret, does it
		r.t.Fatal(err)
	}
}

// post sends a keyed call and returns its status.
func (r *reloadable) post(path, key string) int {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.Addr().String()+path, strings.NewReader("{}"))
	if err != nil {
		r.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// admin asks the admin listener.
func (r *reloadable) admin(method, path string, header ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.AdminAddr().String()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestReload(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP37] a whole new configuration is taken over, and requests in flight keep theirs", func(t *testing.T) {
		t.Parallel()
		slow, quick := newUpstream(t), newUpstream(t)
		slow.hold = make(chan struct{})
		r := reloading(t, one(slow, "/a", ""), 0)
		running := make(chan int)
		go func() { running <- r.post("/a", "k1") }()
		<-slow.begun
		r.write(one(quick, "/b", "log: {level: debug}\n"))
		if status, body := r.admin(http.MethodPost, "/-/reload"); status != 200 || body != `{"outcome":"ok"}`+"\n" {
			t.Fatalf("%d %s", status, body)
		}
		if got := r.post("/b", ""); got != 400 {
			t.Errorf("the new route: %d, want 400: it demands a key", got)
		}
		if got := r.post("/b", "k2"); got != 201 || quick.calls.Load() != 1 {
			t.Errorf("the new route: %d after %d calls", got, quick.calls.Load())
		}
		close(slow.hold)
		if got := <-running; got != 201 || slow.calls.Load() != 1 {
			t.Errorf("the one in flight: %d after %d calls", got, slow.calls.Load())
		}
		if !strings.Contains(r.log.String(), "configuration taken over") {
			t.Error(r.log.String())
		}
		_, metrics := r.admin(http.MethodGet, "/metrics")
		if !strings.Contains(metrics, `idempo_config_reload_total{outcome="ok"} 1`) {
			t.Error("not counted")
		}
	})
	t.Run("[operations/OP37] a bad one changes nothing: its line is in the log, the metric and the readiness detail", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		r := reloading(t, one(u, "/a", ""), 0)
		r.write(one(u, "/a", "lissen: {}\n"))
		status, body := r.admin(http.MethodPost, "/-/reload")
		var answer struct{ Outcome, Error string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 422 || answer.Outcome != "invalid" || !strings.Contains(answer.Error, "idempo.yaml:7:1: lissen: ") {
			t.Errorf("%d %s", status, body)
		}
		if !strings.Contains(r.log.String(), "idempo.yaml:7:1: lissen: ") {
			t.Error(r.log.String())
		}
		_, metrics := r.admin(http.MethodGet, "/metrics")
		_, ready := r.admin(http.MethodGet, "/readyz")
		if !strings.Contains(metrics, `idempo_config_reload_total{outcome="invalid"} 1`) || !strings.Contains(ready, "idempo.yaml:7:1") {
			t.Error(ready)
		}
		if got := r.post("/a", "k1"); got != 201 {
			t.Errorf("%d", got)
		}
		r.write(one(u, "/a", ""))
		if err := r.Reload(); err != nil {
			t.Error(err)
		}
		if _, ready := r.admin(http.MethodGet, "/readyz"); strings.Contains(ready, "reload_error") {
			t.Error(ready)
		}
	})
	t.Run("[operations/OP37] the content of the file is watched, through renames", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		r := reloading(t, one(u, "/a", ""), time.Millisecond)
		for i, path := range []string{"/b", "/c"} {
			r.write(one(u, path, ""))
			for want := fmt.Sprintf(`outcome="ok"} %d`, i+1); ; {
				if _, metrics := r.admin(http.MethodGet, "/metrics"); strings.Contains(metrics, want) {
					break
				}
				if t.Context().Err() != nil {
					t.Fatal("not taken over")
				}
			}
			if got := r.post(path, ""); got != 400 {
				t.Errorf("%s: %d", path, got)
			}
		}
	})
	t.Run("[operations/OP38] what takes a restart is refused as a whole, naming the parts", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		base := one(u, "/a", "")
		r := reloading(t, base, 0)
		for name, change := range map[string]struct{ text, parts string }{
			"store":           {base + "store: {sqlite: other.db}\n", "store.sqlite"},
			"digest keys":     {base + "security: {digest_keys: [{id: d9, value: 0123456789abcdef0123456789abcdef-}]}\n", "security.digest_keys"},
			"engine and logs": {base + "lease: {duration: 40s}\nlog: {format: json}\n", "lease.duration, log.format"},
			"quota":           {base + "quota: {in_flight: 7}\n", "quota.in_flight"},
			"tenant source":   {strings.Replace(base, "{global: true}", "{header: X-Account}\n  trusted_proxies: [127.0.0.1/32]", 1), "tenant"},
			"operation name":  {strings.Replace(base, `"op.a"`, `"op.z"`, 1), "operation"},
			"key source":      {strings.Replace(base, "{required: true}", "{required: true, headers: [X-Ref]}", 1), "key"},
			"fingerprint":     {strings.Replace(base, "key: {", "fingerprint: none, key: {", 1), "fingerprint"},
		} {
			r.write(change.text)
			err := r.Reload()
			no, ok := err.(*server.NotReloaded) //nolint:errorlint // Reload returns it bare
			if !ok || no.Outcome != "refused" || !strings.Contains(err.Error(), change.parts) || !strings.Contains(err.Error(), "restart") {
				t.Errorf("%s: %v", name, err)
			}
			if got := r.post("/a", "k-"+strings.ReplaceAll(name, " ", "-")); got != 201 {
				t.Errorf("%s: then %d", name, got)
			}
		}
	})
	t.Run("[operations/OP37] [operations/UI4] a page in a browser cannot ask for it, nor who lacks the token", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		r := reloading(t, one(u, "/a", "metrics: {token: 0123456789abcdef}\n"), 0)
		for _, c := range []struct {
			method string
			header []string
			want   int
		}{
			{http.MethodGet, nil, 405}, {http.MethodPost, nil, 401}, {http.MethodPost, []string{"Authorization", "Bearer wrong"}, 401},
			{http.MethodPost, []string{"Authorization", "Bearer 0123456789abcdef", "Origin", "http://evil.example"}, 403},
			{http.MethodPost, []string{"Authorization", "Bearer 0123456789abcdef", "Sec-Fetch-Site", "cross-site"}, 403},
			{http.MethodPost, []string{"Authorization", "Bearer 0123456789abcdef"}, 200},
		} {
			if status, body := r.admin(c.method, "/-/reload", c.header...); status != c.want {
				t.Errorf("%s %v: %d %s", c.method, c.header, status, body)
			}
		}
	})
	t.Run("[operations/OP37] a thousand calls beside a hundred reloads: none fails, none runs twice", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		r := reloading(t, one(u, "/a", ""), 0)
		go func() {
			for range u.begun {
			}
		}()
		t.Cleanup(func() { close(u.begun) })
		var calls sync.WaitGroup
		var bad sync.Map
		for client := range 10 {
			calls.Go(func() {
				for i := range 100 {
					if got := r.post("/a", fmt.Sprintf("k-%d-%d", client, i)); got != 201 {
						bad.Store(fmt.Sprintf("k-%d-%d", client, i), got)
					}
				}
			})
		}
		for i := range 100 {
			r.write(one(u, "/a", fmt.Sprintf("shutdown: {grace: %ds}\n", 10+i)))
			if err := r.Reload(); err != nil {
				t.Error(err)
			}
		}
		calls.Wait()
		bad.Range(func(k, v any) bool { t.Errorf("%v: %v", k, v); return true })
		if n := u.calls.Load(); n != 1000 {
			t.Errorf("%d calls reached the upstream", n)
		}
	})
}
