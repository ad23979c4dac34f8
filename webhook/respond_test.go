package webhook_test

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/webhook"
)

// chat is a site with a source of Slack and one of Discord.
type chat struct {
	*site
	private string
}

func newChat(t *testing.T, change func(*webhook.Config)) *chat {
	t.Helper()
	seed := []byte("a seed of 32 bytes for this test")
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	c := &chat{private: hex.EncodeToString(seed)}
	c.site = newSite(t, change, webhook.Source{Name: "slack", Provider: "slack", Secrets: []webhook.Secret{text("1", "k")}},
		webhook.Source{Name: "discord", Provider: "discord", Secrets: []webhook.Secret{text("1", hex.EncodeToString(public))}})
	return c
}

// says delivers a body and returns status, content type and answer.
func (c *chat) says(source, body string, headers ...string) string {
	c.t.Helper()
	secret := text("1", "k")
	if source == "discord" {
		secret = text("1", c.private)
	}
	out, err := webhook.Sign(webhook.Source{Name: source, Provider: source, Secrets: []webhook.Secret{secret}},
		webhook.SignParams{Body: []byte(body), At: at(), Form: source == "slack" && !strings.HasPrefix(body, "{")})
	if err != nil {
		c.t.Fatal(err)
	}
	req := out.Request()
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := c.send(source, req)
	return strings.TrimSpace(http.StatusText(w.Code) + " " + w.Header().Get("Content-Type") + " " + w.Body.String())
}

const (
	command   = "command=%2Fdeploy&text=now&trigger_id=1.2.3"
	button    = `payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%224.5.6%22%7D`
	slashed   = `{"id":"77","type":2}`
	clicked   = `{"id":"78","type":3}`
	completes = `{"id":"79","type":4}`
	modal     = `{"id":"80","type":5}`
)

func TestRespond(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/HS20] [webhooks/HS22] the receipt is committed, then the answer made, stored and sent; again it is the same, and the work is done once", func(t *testing.T) {
		c := newChat(t, nil)
		n := 0
		respond := func(ctx context.Context, ev *webhook.Event) ([]byte, error) {
			n++
			items, err := c.rcv.Items(ctx, ev.Source, inbox.ListParams{})
			if err != nil || len(items) == 0 {
				t.Errorf("it answers before there is a receipt: %v", err)
			}
			return []byte(`{"text":"on it, ` + strings.Repeat("!", n) + `"}`), nil
		}
		for _, source := range []string{"slack", "discord"} {
			c.rcv.Respond(source, respond)
		}
		for i, s := range []struct{ source, body string }{{"slack", command}, {"slack", button}, {"discord", slashed}, {"discord", modal}} {
			want := `OK application/json {"text":"on it, ` + strings.Repeat("!", i+1) + `"}`
			for range 3 {
				if got := c.says(s.source, s.body); got != want {
					t.Errorf("%s: %q, want %q", s.body, got, want)
				}
			}
		}
		c.work("slack")
		c.work("discord")
		if c.total() != 4 || n != 4 {
			t.Errorf("%d effects, %d answers", c.total(), n)
		}
	})
	t.Run("[webhooks/HS21] without an answer in time the platform hears that one follows, and the work is queued", func(t *testing.T) {
		deferred := map[string]string{command: "OK", button: "OK", slashed: `OK application/json {"type":5}`, clicked: `OK application/json {"type":6}`,
			completes: `OK application/json {"type":8,"data":{"choices":[]}}`, modal: `OK application/json {"type":5}`}
		source := func(body string) string {
			if strings.HasPrefix(body, "{") {
				return "discord"
			}
			return "slack"
		}
		for name, fn := range map[string]webhook.RespondFunc{
			"absent": nil,
			"fails":  func(context.Context, *webhook.Event) ([]byte, error) { return nil, errors.New("no") },
			"panics": func(context.Context, *webhook.Event) ([]byte, error) { panic("boom") },
		} {
			c := newChat(t, nil)
			for body, want := range deferred {
				if fn != nil {
					c.rcv.Respond(source(body), fn)
				}
				for range 2 {
					if got := c.says(source(body), body); got != want {
						t.Errorf("%s: %s: %q, want %q", name, body, got, want)
					}
				}
			}
			c.work("slack")
			c.work("discord")
			if c.total() != len(deferred) {
				t.Errorf("%s: %d effects", name, c.total())
			}
		}
		synctest.Test(t, func(t *testing.T) { // slow: no real time passes
			c := newChat(t, nil)
			release := make(chan struct{})
			c.rcv.Respond("slack", func(context.Context, *webhook.Event) ([]byte, error) { <-release; return []byte("late"), nil })
			start := time.Now()
			if got := c.says("slack", command); got != "OK" || time.Since(start) > 2500*time.Millisecond {
				t.Errorf("%q after %v", got, time.Since(start))
			}
			close(release)
			synctest.Wait()
			if got := c.says("slack", command); got != "OK" {
				t.Errorf("again: %q", got)
			}
		})
		c := newChat(t, nil)
		c.store.set(true)
		if got := c.says("slack", command); got != "Service Unavailable" {
			t.Errorf("without a receipt: %q", got)
		}
	})
	t.Run("[webhooks/HS25] Slack events: a second attempt while the first runs, and a first arrival that carries a retry number", func(t *testing.T) {
		c := newChat(t, nil)
		started, release := make(chan struct{}), make(chan struct{})
		var starts atomic.Int32
		c.rcv.Handle("slack", "*", func(ctx context.Context, ev *webhook.Event) error {
			if starts.Add(1) == 1 {
				close(started)
				<-release
			}
			return c.effect(ctx, ev)
		})
		const event = `{"type":"event_callback","event_id":"Ev1","event":{"type":"message","channel":"C1","event_ts":"1.1"}}`
		if got := c.says("slack", event); got != "OK" {
			t.Error(got)
		}
		done := make(chan error, 1)
		go func() { _, err := webhook.Once(t.Context(), c.rcv, "slack"); done <- err }()
		<-started
		if got := c.says("slack", event, "X-Slack-Retry-Num", "1", "X-Slack-Retry-Reason", "http_timeout"); got != "OK" {
			t.Error(got)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := c.says("slack", strings.Replace(event, "Ev1", "Ev2", 1), "X-Slack-Retry-Num", "2"); got != "OK" {
			t.Error(got)
		}
		c.work("slack")
		if c.total() != 2 || starts.Load() != 2 {
			t.Errorf("%d effects of %d starts", c.total(), starts.Load())
		}
	})
}
