package history_test

import (
	"strings"
	"testing"

	"github.com/idempo/idempo/internal/storecheck/history"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	sound := func(name string, play func(h *history.History)) {
		t.Helper()
		t.Run("[stores/CT44] explained: "+name, func(t *testing.T) {
			var h history.History
			if play(&h); h.Check() != nil {
				t.Error(h.Check())
			}
		})
	}
	planted := func(name, say string, play func(h *history.History)) {
		t.Helper()
		t.Run("[stores/CT44] found: "+name, func(t *testing.T) {
			var h history.History
			play(&h)
			if err := h.Check(); err == nil || !strings.Contains(err.Error(), say) {
				t.Errorf("%v, want %q", err, say)
			}
		})
	}
	first := func(h *history.History) *history.Call {
		c := h.Begin("k")
		c.Run(c.Content, 1)
		return c
	}
	sound("a run, its replays, and other keys", func(h *history.History) {
		c := first(h)
		h.Begin("k").Replay(c.Content)
		o := h.Begin("other")
		o.Run(o.Content, 1)
		h.Begin("k").Replay(c.Content)
	})
	sound("an open call that took effect later", func(h *history.History) {
		c := h.Begin("k")
		h.Begin("k").Wait()
		c.Open()
		h.Begin("k").Wait()
		h.Begin("k").Replay(c.Content)
	})
	sound("an open call that never did, and a call without an answer", func(h *history.History) {
		h.Begin("k").Open()
		_ = h.Begin("k")
		h.Begin("k").Refused()
		c := h.Begin("k")
		c.Run(c.Content, 2)
		h.Begin("k").Replay(c.Content)
	})
	sound("calls at once, whose order is free", func(h *history.History) {
		r, w := h.Begin("k"), h.Begin("k")
		c := h.Begin("k")
		c.Run(c.Content, 1)
		r.Replay(c.Content)
		w.Wait()
	})
	const no = "no order of events"
	planted("a stale replay", no, func(h *history.History) {
		a := h.Begin("k") // an attempt whose answer was taken over
		c := first(h)
		a.Refused()
		h.Begin("k").Replay(c.Content)
		h.Begin("k").Replay(a.Content)
	})
	planted("a replay before anything can have run", no, func(h *history.History) {
		c := h.Begin("k")
		c.Refused()
		h.Begin("k").Replay(c.Content)
	})
	planted("a second run", no, func(h *history.History) {
		first(h)
		c := h.Begin("k")
		c.Run(c.Content, 2)
	})
	planted("a second run after an open one that was seen", no, func(h *history.History) {
		o := h.Begin("k")
		o.Open()
		h.Begin("k").Replay(o.Content)
		c := h.Begin("k")
		c.Run(c.Content, 2)
	})
	planted("two runs of one attempt", no, func(h *history.History) {
		a, b := h.Begin("k"), h.Begin("k")
		a.Run(a.Content, 1)
		b.Run(b.Content, 1)
	})
	planted("in progress after the answer", no, func(h *history.History) {
		first(h)
		h.Begin("k").Wait()
	})
	planted("a foreign answer", "foreign", func(h *history.History) {
		c := h.Begin("other")
		c.Run(c.Content, 1)
		h.Begin("k").Run(c.Content, 1)
	})
	planted("nothing at all: the run is void", "void", func(*history.History) {})
	t.Run("[stores/CT46] answers are counted by kind", func(t *testing.T) {
		var h history.History
		c := first(&h)
		h.Begin("k").Replay(c.Content)
		if n := h.Counts(); n["run"] != 1 || n["replay"] != 1 || n["open"] != 0 {
			t.Error(n)
		}
	})
}
