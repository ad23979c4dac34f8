package httpcheck

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestKilled(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		moments := []string{"before claim", "after claim", "after effect", "after result", "after COMMIT", "half the answer sent", "COMMIT on the wire"}
		healthy := w.start(t, order{})
		for _, moment := range moments {
			if w.kind == "sqlite" && moment == "COMMIT on the wire" {
				continue // there is no wire
			}
			t.Run("[http/H9] kill -9 "+moment+": one effect; the retry is executed or replayed whole, never 5xx", func(t *testing.T) {
				key := strings.ReplaceAll(moment, " ", "-")
				o := order{Die: moment}
				var victim *process
				arm := func() {}
				if moment == "COMMIT on the wire" {
					u, err := url.Parse(w.dsn)
					must(t, err)
					u.Host, arm = onePass(t, u.Host, func() { _ = victim.cmd.Process.Kill() })
					o = order{DSN: u.String()}
				}
				victim = w.start(t, o)
				arm()
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
				first := ask(t.Context(), client, victim.url, key)
				if first.err == nil {
					t.Fatalf("it lived: %d %q", first.status, first.said)
				}
				<-victim.ended
				var retry reply
				for range 600 { // the server notices a dead client's transaction in its own time
					if retry = ask(t.Context(), client, healthy.url, key); retry.status != http.StatusConflict {
						break
					}
					pause(t, 20*time.Millisecond)
				}
				if retry.err != nil || retry.status != http.StatusCreated || retry.body != string(answerBytes()) ||
					retry.said != "executed" && retry.said != "replayed" {
					t.Fatalf("retry %d %q, %d bytes, %v", retry.status, retry.said, len(retry.body), retry.err)
				}
				switch moment {
				case "after COMMIT", "half the answer sent":
					if retry.said != "replayed" {
						t.Errorf("committed, and the retry was %q", retry.said)
					}
				case "before claim", "after claim", "after effect":
					if retry.said != "executed" {
						t.Errorf("not committed, and the retry was %q", retry.said)
					}
				}
				if n := w.effects(t, key); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		}
	})
}

// pause waits between two looks at another process, or less if the test ends.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
