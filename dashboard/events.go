package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/idempo/idempo/operator"
)

// heartbeat is the pause after which a silent stream says that it lives.
const heartbeat = 15 * time.Second

// countsJSON are the numbers of a store.
type countsJSON struct {
	Schema  int              `json:"schema"`
	Counts  map[string]int64 `json:"counts"`
	About   []string         `json:"estimated"` // states whose count is an estimate
	InDoubt *oldestJSON      `json:"oldest_in_doubt,omitempty"`
	Pending *oldestJSON      `json:"oldest_pending,omitempty"`
	Now     time.Time        `json:"now"`
}

type oldestJSON struct {
	KeyRef    string    `json:"key_ref"`
	Operation string    `json:"operation"`
	Since     time.Time `json:"since"`
}

func countsOf(s operator.Stats) countsJSON {
	out := countsJSON{Schema: 1, Counts: map[string]int64{}, About: []string{}, Now: s.Now.UTC()}
	for _, c := range s.Counts {
		out.Counts[string(c.State)] = c.Records
		if c.Estimate {
			out.About = append(out.About, string(c.State))
		}
	}
	old := func(o operator.Oldest) *oldestJSON {
		if o.Since.IsZero() {
			return nil
		}
		return &oldestJSON{o.Key.Ref(), o.Key.Operation, o.Since.UTC()}
	}
	out.InDoubt, out.Pending = old(s.OldestInDoubt), old(s.OldestPending)
	return out
}

// events is the live stream: "counts" and "audit", each once; "reset" where nobody knows what a client missed; "full" for who is one
// too many. A client that is too slow is cut off and comes back with the id of the last event it has.
func (h *Handler) events(v *visit) error {
	c, missed, reset := h.hub.join(v.by, cmp.Or(v.r.Header.Get("Last-Event-ID"), v.r.URL.Query().Get("after")))
	if c == nil {
		return &fault{status: http.StatusTooManyRequests, retryAfter: time.Minute}
	}
	defer h.hub.leave(c)
	out := http.NewResponseController(v.w)
	_ = out.SetWriteDeadline(time.Now().Add(2 * heartbeat))
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no")
	send := func(format string, args ...any) bool {
		_ = out.SetWriteDeadline(time.Now().Add(2 * heartbeat)) // a server's own deadline is for pages
		_, err := fmt.Fprintf(v.w, format, args...)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 3000\n: here\n\n") || reset && !send("event: reset\ndata: {}\n\n") {
		return nil
	}
	for _, n := range missed {
		if !h.send(send, n) {
			return nil
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-v.ctx().Done():
			return nil
		case n, ok := <-c.c:
			if !ok || !h.send(send, n) {
				return nil
			}
		case <-beat.C:
			if by, err := h.config.Authorize(v.r); err != nil || by.Role == "" || groupOf(by) != c.group {
				return nil // logged out, or somebody else by now
			}
			if !send(": beat\n\n") {
				return nil
			}
		}
	}
}

func (h *Handler) send(send func(string, ...any) bool, n news) bool {
	kind, body := "audit", any(operator.EntryRowOf(n.entry))
	if n.stats != nil {
		kind, body = "counts", countsOf(*n.stats)
	}
	b, err := json.Marshal(body)
	return err == nil && send("id: %s\nevent: %s\ndata: %s\n\n", h.hub.id(n), kind, b)
}
