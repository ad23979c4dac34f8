package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/server"
	"github.com/idempo/idempo/webhook"
)

const hookSecret = "never to be shown in any log"

// sink is where webhooks are forwarded to: it counts what arrives by key.
type sink struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]int
	came chan string
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{keys: map[string]int{}, came: make(chan string, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.keys[r.Header.Get("Idempotency-Key")]++
		s.mu.Unlock()
		s.came <- string(body)
	}))
	t.Cleanup(s.Close)
	return s
}

func hookFile(s *sink) string {
	u, _ := url.Parse(s.URL)
	_, port, _ := net.SplitHostPort(u.Host)
	return fmt.Sprintf("webhooks:\n  sources:\n    gh: {provider: github, secrets: [{id: a, value: %q}], forward: {url: \"%s/in?q=1\", target_dedups: true, allow: [\"127.0.0.1/32\"], ports: [%s]}}\n",
		hookSecret, s.URL, port)
}

func sendHook(t *testing.T, to, id, body, secret string) int {
	t.Helper()
	out, err := webhook.Sign(webhook.Source{Name: "x", Provider: "github", Secrets: []webhook.Secret{webhook.FromText("x", secret)}},
		webhook.SignParams{Body: []byte(body), ID: id, Type: "push", At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, bytes.NewReader(out.Body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = out.Header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestWebhooksServed(t *testing.T) {
	t.Parallel()
	to, dir := newSink(t), t.TempDir()
	var log buffer
	c := settings(t, dir, hookFile(to))
	s := server.New(c, server.Options{Version: "v1", Log: &log})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	front := "http://" + s.Addr().String()
	t.Run("[webhooks/W1] verified, stored, answered and forwarded once; refused ones go nowhere", func(t *testing.T) {
		for range 5 {
			if got := sendHook(t, front+"/hooks/gh", "d1", "first", hookSecret); got != http.StatusOK {
				t.Errorf("%d", got)
			}
		}
		if got := <-to.came; got != "first" {
			t.Errorf("%q", got)
		}
		for path, want := range map[string]int{"/hooks/gh": 401, "/hooks/other": 404, "/hooks/": 404, "/hooks/gh/x": 404, "/": 404} {
			if got := sendHook(t, front+path, "d2", "bad", "another secret"); got != want {
				t.Errorf("%s: %d", path, got)
			}
		}
	})
	t.Run("[webhooks/V18] neither log nor banner shows the secret, and the banner says what goes where", func(t *testing.T) {
		text := s.Banner() + log.String()
		if strings.Contains(text, hookSecret) || strings.Contains(text, "sha256=") || strings.Contains(text, "q=1") {
			t.Error(text)
		}
		if !strings.Contains(text, "POST /hooks/gh, provider github,") || !strings.Contains(text, "the target deduplicates") || strings.Contains(s.Banner(), "guarded   ") {
			t.Error(s.Banner())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.Stop(ctx)
	t.Run("[webhooks/D6] after a restart the same delivery is known, and a new one is forwarded", func(t *testing.T) {
		s := running(t, settings(t, dir, hookFile(to)), server.Options{})
		front := "http://" + s.Addr().String()
		for _, body := range []string{"first", "second"} {
			if got := sendHook(t, front+"/hooks/gh", "id of "+body, body, hookSecret); got != http.StatusOK {
				t.Errorf("%d", got)
			}
		}
		if got := sendHook(t, front+"/hooks/gh", "d1", "first", hookSecret); got != http.StatusOK {
			t.Errorf("%d", got)
		}
		if got := <-to.came; got != "second" {
			t.Errorf("%q was forwarded", got)
		}
		to.mu.Lock()
		defer to.mu.Unlock()
		if len(to.keys) != 2 {
			t.Errorf("%v", to.keys)
		}
		for key, n := range to.keys {
			if n != 1 {
				t.Errorf("%s came %d times", key, n)
			}
		}
	})
}

func TestWebhooksBesideTheGateway(t *testing.T) {
	t.Parallel()
	to, up := newSink(t), newUpstream(t)
	s := running(t, settings(t, t.TempDir(), hookFile(to), behind(up)), server.Options{})
	front := "http://" + s.Addr().String()
	if got := sendHook(t, front+"/hooks/gh", "d1", "event", hookSecret); got != http.StatusOK {
		t.Errorf("%d", got)
	}
	<-to.came
	if up.calls.Load() != 0 {
		t.Error("a webhook reached the upstream")
	}
	res, err := http.Post(front+"/v1/payments", "application/json", strings.NewReader("{}")) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusCreated || up.calls.Load() != 1 {
		t.Errorf("%d, %d calls", res.StatusCode, up.calls.Load())
	}
}
