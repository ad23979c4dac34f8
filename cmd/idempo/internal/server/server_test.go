package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/server"
)

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// upstream is a service that counts what reaches it. hold, if set, is waited for before it answers.
type upstream struct {
	*httptest.Server
	calls atomic.Int64
	begun chan struct{}
	hold  chan struct{}
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{begun: make(chan struct{}, 100)}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := u.calls.Add(1)
		u.begun <- struct{}{}
		if u.hold != nil {
			<-u.hold
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Seen-Request-Id", r.Header.Get("X-Request-Id"))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"n":%d}`, n)
	}))
	t.Cleanup(u.Close)
	return u
}

// settings are those of a file, in a data folder of their own, on free ports.
func settings(t *testing.T, dir, text string, over ...config.Override) *config.Settings {
	t.Helper()
	over = append([]config.Override{{Path: "listen.gateway", Value: "127.0.0.1:0", Origin: "test"}, {Path: "listen.admin", Value: "127.0.0.1:0", Origin: "test"}}, over...)
	c, _, err := config.Load(config.Source{File: filepath.Join(dir, "idempo.yaml"), Content: []byte("version: 1\n" + text), DataDir: dir, Overrides: over})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func behind(u *upstream) config.Override {
	return config.Override{Path: "upstream", Value: u.URL, Origin: "test"}
}

// running starts a server and stops it at the end.
func running(t *testing.T, c *config.Settings, o server.Options) *server.Server {
	t.Helper()
	if o.Version == "" {
		o.Version = "v1"
	}
	s := server.New(c, o)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	t.Cleanup(func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			s.Stop(ctx)
		})
	})
	return s
}

type answer struct {
	status int
	header http.Header
	body   string
}

func call(t *testing.T, method, url, key, body string, header ...string) answer {
	t.Helper()
	a, err := try(method, url, key, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(method, url, key, body string, header ...string) (answer, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

func TestServeWithoutConfig(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP40] an SQLite file is made, the banner says where everything is, a retry has no second effect", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		c, _, err := config.Load(config.Source{DataDir: dir, Overrides: []config.Override{behind(u),
			{Path: "listen.gateway", Value: "127.0.0.1:0", Origin: "test"}, {Path: "listen.admin", Value: "127.0.0.1:0", Origin: "test"}}})
		if err != nil {
			t.Fatal(err)
		}
		s := running(t, c, server.Options{})
		front := "http://" + s.Addr().String()
		first := call(t, "POST", front+"/pay", "k-1", `{"a":1}`)
		again := call(t, "POST", front+"/pay", "k-1", `{"a":1}`)
		if first.status != 201 || again.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || u.calls.Load() != 1 {
			t.Errorf("%+v %+v, %d calls", first, again, u.calls.Load())
		}
		if _, err := os.Stat(filepath.Join(dir, "idempo.db")); err != nil {
			t.Error(err)
		}
		b := s.Banner()
		for _, part := range []string{s.Addr().String(), s.AdminAddr().String(), filepath.Join(dir, "idempo.db") + ": survives a restart",
			"config    none", "/login?code=", filepath.Join(dir, "admin.token"), "digest key made: " + filepath.Join(dir, "digest.key"), "guarded   upstream: /", "on_crash hold", "curl -i -H 'Idempotency-Key: try-1'"} {
			if !strings.Contains(b, part) {
				t.Errorf("no %q in\n%s", part, b)
			}
		}
	})
	t.Run("[operations/OP40] what was answered is answered after a restart", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		var bodies [2]string
		for i := range bodies {
			s := server.New(settings(t, dir, "", behind(u)), server.Options{Version: "v1"})
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			bodies[i] = call(t, "POST", "http://"+s.Addr().String()+"/pay", "k-1", "{}").body
			if i == 1 && strings.Contains(s.Banner(), "digest key made") {
				t.Error("a second start made a key")
			}
			if left := s.Stop(t.Context()); left != 0 {
				t.Errorf("%d cut", left)
			}
		}
		if u.calls.Load() != 1 || bodies[0] != bodies[1] {
			t.Errorf("%d calls, %q", u.calls.Load(), bodies)
		}
	})
	t.Run("[http/P2] only on a loopback listener", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		c := settings(t, t.TempDir(), "", behind(u), config.Override{Path: "listen.gateway", Value: "0.0.0.0:0", Origin: "test"})
		if err := server.New(c, server.Options{}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "tenant") {
			t.Errorf("start: %v", err)
		}
	})
}

func TestStartRefused(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, c *config.Settings, version, want string) error {
		t.Helper()
		s := server.New(c, server.Options{Version: version})
		err := s.Start(t.Context())
		if err == nil {
			s.Stop(t.Context())
			t.Fatal("it starts")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		return err
	}
	t.Run("[operations/OP41] a port that is taken", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, key := range []string{"listen.gateway", "listen.admin"} {
			err := refused(t, settings(t, dir, "", behind(u), config.Override{Path: key, Value: l.Addr().String(), Origin: "test"}), "v1", key+": the address "+l.Addr().String()+" is in use")
			if _, ok := errors.AsType[*server.PortInUse](err); !ok {
				t.Errorf("%T", err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 0 {
			t.Errorf("half started: %v %v", entries, err)
		}
	})
	t.Run("[operations/OP41] a folder that cannot be written", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, settings(t, dir, "", behind(u), config.Override{Path: "store", Value: filepath.Join(file, "x.db"), Origin: "test"}), "v1", file)
	})
	t.Run("[operations/OP41] a second serve of another version on one SQLite file; one of the same version works", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS == "windows" {
			t.Skip("no advisory locks on files")
		}
		dir, u := t.TempDir(), newUpstream(t)
		running(t, settings(t, dir, "", behind(u)), server.Options{Version: "v1"})
		refused(t, settings(t, dir, "", behind(u)), "v2", "is being served by version v1, this is v2")
		s := running(t, settings(t, dir, "", behind(u)), server.Options{Version: "v1"})
		if a := call(t, "POST", "http://"+s.Addr().String()+"/", "k", "{}"); a.status != 201 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("nothing to serve", func(t *testing.T) {
		t.Parallel()
		refused(t, settings(t, t.TempDir(), ""), "v1", "give --upstream URL, or gateway.routes")
	})
	t.Run("[operations/OP44] an older schema with migrate: manual, a newer one in any case", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		err := refused(t, settings(t, dir, "store: {migrate: manual}\n", behind(u)), "v1", "has version 0, this binary needs "+fmt.Sprint(database.SQLiteVersion()))
		if e, ok := errors.AsType[*database.Unfit](err); !ok || e.Code != "schema_old" {
			t.Errorf("%T", err)
		}
		c := settings(t, dir, "", behind(u))
		s := server.New(c, server.Options{Version: "v1"})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Stop(t.Context())
		newer(t, c.Store.SQLite)
		err = refused(t, c, "v1", "has version 99")
		if e, ok := errors.AsType[*database.Unfit](err); !ok || e.Code != "schema_new" {
			t.Errorf("%T", err)
		}
	})
	t.Run("[operations/OP41] a file that is no database", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		if err := os.WriteFile(filepath.Join(dir, "idempo.db"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, settings(t, dir, "", behind(u)), "v1", "")
	})
}

func TestDigestKeyOfTheBox(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP39] [security/SEC39] made on first start, mode 0600; without the file the store refuses another", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		file := filepath.Join(dir, "digest.key")
		run := func(c *config.Settings) error {
			s := server.New(c, server.Options{Version: "v1"})
			if err := s.Start(t.Context()); err != nil {
				return err
			}
			defer s.Stop(t.Context())
			if a := call(t, "POST", "http://"+s.Addr().String()+"/", "k", "{}"); a.status != 201 {
				t.Errorf("%+v", a)
			}
			return nil
		}
		if err := run(settings(t, dir, "", behind(u))); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(file)
		if err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
			t.Fatalf("%v %v", st, err)
		}
		secret, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		other := t.TempDir() // another box, the same store
		same := config.Override{Path: "store", Value: filepath.Join(dir, "idempo.db"), Origin: "test"}
		err = run(settings(t, other, "", behind(u), same))
		if e, ok := errors.AsType[*server.Refused](err); !ok || e.Code != "digest_key_missing" || !strings.Contains(e.Text, "digest.key") {
			t.Fatalf("a second box starts, or: %v", err)
		}
		if _, err := os.Stat(filepath.Join(other, "digest.key")); err == nil {
			t.Error("and has made a key of its own")
		}
		// The key, named in the configuration, is as good as the file.
		id, value, _ := strings.Cut(strings.TrimSpace(string(secret)), " ")
		if err := run(settings(t, other, "security: {digest_keys: [{id: "+id+", value: "+value+"}]}\n", behind(u), same)); err != nil {
			t.Error(err)
		}
		if u.calls.Load() != 1 {
			t.Errorf("%d calls: a key was new to somebody", u.calls.Load())
		}
		// Dropped while records live under it, or changed under its id.
		fresh := strings.Repeat("0123456789abcdef", 4)
		err = run(settings(t, other, "security: {digest_keys: [{id: d2, value: "+fresh+"}]}\n", behind(u), same))
		if err == nil || !strings.Contains(err.Error(), `digest key "`+id+`" is missing, 1 records need it`) {
			t.Error(err)
		}
		err = run(settings(t, other, "security: {digest_keys: [{id: "+id+", value: "+fresh+"}]}\n", behind(u), same))
		if err == nil || !strings.Contains(err.Error(), `digest key "`+id+`" has another value`) || strings.Contains(err.Error(), fresh) {
			t.Error(err)
		}
		if err := run(settings(t, other, "security: {digest_keys: [{id: d2, value: "+fresh+"}, {id: "+id+", value: "+value+"}]}\n", behind(u), same)); err != nil {
			t.Error(err)
		}
	})
	t.Run("[security/SEC39] two processes that start at once have one key", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		var wg sync.WaitGroup
		servers := make([]*server.Server, 4)
		for i := range servers {
			servers[i] = server.New(settings(t, dir, "", behind(u)), server.Options{Version: "v1"})
			wg.Go(func() {
				if err := servers[i].Start(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for _, s := range servers {
			call(t, "POST", "http://"+s.Addr().String()+"/", "k", "{}")
		}
		if u.calls.Load() != 1 {
			t.Errorf("%d calls for one key", u.calls.Load())
		}
		for _, s := range servers {
			s.Stop(t.Context())
		}
	})
	t.Run("a file that is no key is not replaced", func(t *testing.T) {
		t.Parallel()
		dir, u := t.TempDir(), newUpstream(t)
		if err := os.WriteFile(filepath.Join(dir, "digest.key"), []byte("short"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := server.New(settings(t, dir, "", behind(u)), server.Options{Version: "v1"}).Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is not a key file of idempo") {
			t.Error(err)
		}
	})
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	open := running(t, settings(t, t.TempDir(), "", behind(u)), server.Options{})
	guarded := running(t, settings(t, t.TempDir(), "metrics: {token: 0123456789abcdef}\n", behind(u)), server.Options{})
	ready := func(t *testing.T, s *server.Server, header ...string) (int, map[string]any) {
		t.Helper()
		a := call(t, "GET", "http://"+s.AdminAddr().String()+"/readyz", "", "", header...)
		var body map[string]any
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			t.Fatal(err, a.body)
		}
		return a.status, body
	}
	t.Run("[operations/OP42] [http/P25] alive and ready; detail beyond the status needs the token", func(t *testing.T) {
		t.Parallel()
		if a := call(t, "GET", "http://"+open.AdminAddr().String()+"/healthz", "", ""); a.status != 200 || a.body != "ok\n" {
			t.Errorf("%+v", a)
		}
		status, body := ready(t, open)
		if status != 200 || body["store"] != "up" || body["draining"] != false || body["config_digest"] == nil {
			t.Errorf("%d %v", status, body)
		}
		status, body = ready(t, guarded)
		if status != 200 || body["store"] != "up" || body["config_digest"] != nil || body["breakers"] != nil {
			t.Errorf("detail without token: %d %v", status, body)
		}
		status, body = ready(t, guarded, "Authorization", "Bearer 0123456789abcdef")
		if status != 200 || body["config_digest"] == nil || body["breakers"] == nil {
			t.Errorf("no detail with token: %d %v", status, body)
		}
	})
	t.Run("[operations/OP42] [http/P25] alive and not ready while the store is being opened", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		var log buffer
		c := settings(t, t.TempDir(), "", behind(u), config.Override{Path: "store", Value: "postgres://app@" + silent.Addr().String() + "/d?connect_timeout=60", Origin: "test"})
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		go func() { started <- server.New(c, server.Options{Log: &log, Version: "v1"}).Start(ctx) }()
		admin := eventually(t, func() (string, bool) {
			_, rest, ok := strings.Cut(log.String(), `"admin":"`)
			address, _, ok2 := strings.Cut(rest, `"`)
			return address, ok && ok2
		})
		if a := call(t, "GET", "http://"+admin+"/readyz", "", ""); a.status != 503 {
			t.Errorf("%+v", a)
		}
		if a := call(t, "GET", "http://"+admin+"/healthz", "", ""); a.status != 200 {
			t.Errorf("%+v", a)
		}
		cancel()
		if err := <-started; err == nil {
			t.Error("it started")
		}
	})
	t.Run("[operations/M4] a process shows what the whole store holds, from its last survey", func(t *testing.T) {
		eventually(t, func() (string, bool) {
			a := call(t, "GET", "http://"+open.AdminAddr().String()+"/metrics", "", "")
			return a.body, strings.Contains(a.body, "idempo_stored_bytes ") && strings.Contains(a.body, `idempo_records{state="in_doubt"} 0`) &&
				strings.Contains(a.body, "idempo_purge_lag_seconds 0") && strings.Contains(a.body, "idempo_retention_seconds{operation=")
		})
	})
	t.Run("[operations/OP42] metrics demand the token where there is one", func(t *testing.T) {
		t.Parallel()
		if a := call(t, "GET", "http://"+open.AdminAddr().String()+"/metrics", "", ""); a.status != 200 || !strings.Contains(a.body, "idempo_build_info{") {
			t.Errorf("%d", a.status)
		}
		for _, h := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic 0123456789abcdef"}} {
			if a := call(t, "GET", "http://"+guarded.AdminAddr().String()+"/metrics", "", "", h...); a.status != 401 || strings.Contains(a.body, "idempo_") {
				t.Errorf("%v: %d", h, a.status)
			}
		}
		if a := call(t, "GET", "http://"+guarded.AdminAddr().String()+"/metrics", "", "", "Authorization", "Bearer 0123456789abcdef"); a.status != 200 {
			t.Errorf("%d", a.status)
		}
	})
	t.Run("nothing else is there", func(t *testing.T) {
		t.Parallel()
		if a := call(t, "GET", "http://"+open.AdminAddr().String()+"/debug/pprof/", "", ""); !strings.Contains(a.body, "Log in") || strings.Contains(a.body, "goroutine") {
			t.Errorf("%d", a.status)
		}
		if a := call(t, "POST", "http://"+open.AdminAddr().String()+"/healthz", "", ""); a.status != 405 {
			t.Errorf("%d", a.status)
		}
	})
	t.Run("counters of the gateway's calls", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		s := running(t, settings(t, t.TempDir(), "", behind(u)), server.Options{})
		front := "http://" + s.Addr().String()
		for range 3 {
			call(t, "POST", front+"/", "k", `{"a":1}`)
		}
		call(t, "POST", front+"/", "k", `{"a":2}`)
		m := call(t, "GET", "http://"+s.AdminAddr().String()+"/metrics", "", "").body
		for _, want := range []string{
			`idempo_begin_total{operation="gateway.upstream",surface="http",verdict="run"} 1`,
			`idempo_begin_total{operation="gateway.upstream",surface="http",verdict="replay"} 2`,
			`idempo_replay_total{operation="gateway.upstream",surface="http"} 2`,
			`idempo_conflict_total{operation="gateway.upstream",reason="mismatch",surface="http"} 1`,
			`idempo_complete_total{operation="gateway.upstream",outcome="completed",surface="http"} 1`,
			`idempo_inflight{operation="gateway.upstream"} 0`,
			`class="answered",operation="`,
		} {
			if !strings.Contains(m, want) {
				t.Errorf("no %s in\n%s", want, m)
			}
		}
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP43] [http/P26] not ready, new keyed requests 503 draining, running ones finish and are delivered", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		u.hold = make(chan struct{})
		s := server.New(settings(t, t.TempDir(), "", behind(u)), server.Options{Version: "v1"})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		front, back := "http://"+s.Addr().String(), "http://"+s.AdminAddr().String()
		first := make(chan answer, 1)
		go func() {
			a, _ := try("POST", front+"/", "k-1", "{}")
			first <- a
		}()
		<-u.begun
		left := make(chan int, 1)
		go func() { left <- s.Stop(context.Background()) }()
		draining := eventually(t, func() (answer, bool) {
			a, err := try("POST", front+"/", "k-2", "{}")
			return a, err == nil && a.status == 503
		})
		if !strings.Contains(draining.body, `"draining"`) || draining.header.Get("Retry-After") == "" {
			t.Errorf("%+v", draining)
		}
		if a := call(t, "GET", back+"/readyz", "", ""); a.status != 503 || !strings.Contains(a.body, `"draining":true`) {
			t.Errorf("%+v", a)
		}
		if a := call(t, "GET", back+"/healthz", "", ""); a.status != 200 {
			t.Errorf("%+v", a)
		}
		close(u.hold)
		if a := <-first; a.status != 201 {
			t.Errorf("the running request got %+v", a)
		}
		if n := <-left; n != 0 {
			t.Errorf("%d cut", n)
		}
		if u.calls.Load() != 1 {
			t.Errorf("%d calls", u.calls.Load())
		}
	})
	t.Run("[operations/OP43] [http/P26] during shutdown.delay it is not ready, and still serves", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		s := server.New(settings(t, t.TempDir(), "shutdown: {delay: 1h, grace: 2h}\n", behind(u)), server.Options{Version: "v1"})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan int, 1)
		go func() { left <- s.Stop(ctx) }()
		eventually(t, func() (answer, bool) {
			a, err := try("GET", "http://"+s.AdminAddr().String()+"/readyz", "", "")
			return a, err == nil && a.status == 503
		})
		if a := call(t, "POST", "http://"+s.Addr().String()+"/", "k-1", "{}"); a.status != 201 {
			t.Errorf("%+v", a)
		}
		cancel()
		if n := <-left; n != 0 {
			t.Errorf("%d cut", n)
		}
	})
	t.Run("[operations/OP43] at shutdown.grace the rest is cut, and settles by on_crash", func(t *testing.T) {
		t.Parallel()
		u, dir := newUpstream(t), t.TempDir()
		u.hold = make(chan struct{})
		s := server.New(settings(t, dir, "shutdown: {grace: 100ms}\n", behind(u)), server.Options{Version: "v1"})
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = try("POST", "http://"+s.Addr().String()+"/", "k-1", "{}") }()
		<-u.begun
		if left := s.Stop(context.Background()); left == 0 {
			t.Error("nothing was cut")
		}
		close(u.hold)
	})
}

// eventually tries until it holds; the test's own deadline is the limit.
func eventually[T any](t *testing.T, try func() (T, bool)) T {
	t.Helper()
	for t.Context().Err() == nil {
		if v, ok := try(); ok {
			return v
		}
		runtime.Gosched()
	}
	t.Fatal("never")
	panic("unreachable")
}
