package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/webhook"
)

// drain works until nothing moves any more for a while of the store's own clock: until n versions took effect.
func (x *ordered) drain(n int) {
	x.t.Helper()
	for {
		x.work("st")
		x.mu.Lock()
		got := len(x.applied)
		x.mu.Unlock()
		if got >= n {
			return
		}
		if x.t.Context().Err() != nil {
			x.t.Fatalf("%d applied, want %d", got, n)
		}
	}
}

func (x *ordered) receipts(statuses ...inbox.Status) (list []string) {
	x.t.Helper()
	rs, err := x.rcv.Inbox("st").Receipts(x.t.Context(), inbox.ListParams{Statuses: statuses})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, r := range rs {
		list = append(list, r.Message.Lane+r.Message.Version+" "+string(r.Status)+" "+r.Reason)
	}
	return list
}

func TestSequence(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/OR7] the first number starts; a gap is waited for and then passed, or held for a person", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: webhook.OrderSequence, GapWait: time.Millisecond})
		for _, v := range []string{"41", "42", "47", "45", "46"} {
			x.deliver("e"+v, "a", v)
		}
		x.drain(5)
		x.wants("a41", "a42", "a45", "a46", "a47")
		x.deliver("late", "a", "43")
		x.work("st")
		x.wants("a41", "a42", "a45", "a46", "a47")

		h := newOrdered(t, webhook.Order{Mode: webhook.OrderSequence, GapWait: time.Microsecond, OnGap: "hold"})
		h.deliver("e1", "a", "1")
		h.deliver("e3", "a", "3")
		for !slices.Equal(h.receipts(inbox.StatusParked), []string{"a3 parked gap"}) {
			h.work("st")
			if t.Context().Err() != nil {
				t.Fatal(h.receipts())
			}
		}
		h.wants("a1")
		h.deliver("e2", "a", "2")
		h.drain(3)
		h.wants("a1", "a2", "a3")
	})
	t.Run("[webhooks/OR7] a gap can be fetched instead", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: webhook.OrderSequence, GapWait: time.Microsecond, OnGap: "refetch"})
		var fetched []string
		x.rcv.Refetch("st", func(_ context.Context, ev *webhook.Event) error {
			fetched = append(fetched, ev.Lane+ev.Version)
			return nil
		})
		x.deliver("e1", "a", "1")
		x.deliver("e3", "a", "3")
		for len(fetched) == 0 && t.Context().Err() == nil {
			x.work("st")
		}
		x.deliver("e4", "a", "4")
		x.drain(2)
		x.wants("a1", "a4")
		if !slices.Equal(fetched, []string{"a3"}) {
			t.Error(fetched)
		}
	})
	t.Run("[webhooks/OR3] equal versions: fetched where there is a hook, else by their bytes", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: webhook.OrderLatest})
		var fetched []string
		x.rcv.Refetch("st", func(_ context.Context, ev *webhook.Event) error {
			fetched = append(fetched, ev.IDs[0].Text)
			return nil
		})
		for _, id := range []string{"e1", "e2"} {
			x.deliver(id, "a", "5")
			x.work("st")
		}
		x.wants("a5")
		if !slices.Equal(fetched, []string{"e2"}) {
			t.Error(fetched)
		}
		for body, want := range map[string]int{`{"pull_request":{"id":1,"updated_at":"2026-01-01T00:00:00Z"}}`: 1, `{"pull_request":{"id":1,"updated_at":"2026-01-01T00:00:00Z","x":1}}`: 2} {
			src := github(text("1", "k"))
			src.Order, src.Profile.SameBytes = webhook.Order{Mode: webhook.OrderLatest}, "run"
			s := newSite(t, nil, src)
			for id, b := range map[string]string{"d1": `{"pull_request":{"id":1,"updated_at":"2026-01-01T00:00:00Z"}}`, "d2": body} {
				s.want(http.StatusOK, "gh", gh(t, id, b))
			}
			s.work("gh")
			if s.total() != want {
				t.Errorf("%d ran of two with bytes that are equal: %v", s.total(), want == 1)
			}
		}
	})
	t.Run("[webhooks/OR5] without lane or version: parked where the order needs them, unordered under serial", func(t *testing.T) {
		bare := func(x *ordered, id string) {
			out, err := webhook.Sign(x.src, webhook.SignParams{Body: []byte(`{"id":"` + id + `","created":"soon","data":{"object":{}}}`), At: at()})
			if err != nil {
				t.Fatal(err)
			}
			x.want(http.StatusOK, "st", out.Request())
			x.want(http.StatusOK, "st", out.Request())
			x.work("st")
		}
		for _, mode := range []string{webhook.OrderLatest, webhook.OrderSequence} {
			x := newOrdered(t, webhook.Order{Mode: mode})
			bare(x, "e1")
			if got := x.receipts(); !slices.Equal(got, []string{" parked no-version"}) {
				t.Errorf("%s: %q", mode, got)
			}
			x.wants()
		}
		x := newOrdered(t, webhook.Order{})
		x.fail[""] = errors.New("boom")
		bare(x, "e1")
		bare(x, "e2")
		x.wants("", "")
	})
	t.Run("[webhooks/OR10] a lane that was closed: what is older is stale, what is newer is applied", func(t *testing.T) {
		for _, mode := range []string{webhook.OrderSerial, webhook.OrderLatest} {
			x := newOrdered(t, webhook.Order{Mode: mode})
			apply := func(_ context.Context, ev *webhook.Event) error {
				x.mu.Lock()
				x.applied = append(x.applied, ev.Lane+ev.Version)
				x.mu.Unlock()
				if ev.Version == "7" {
					return ev.CloseLane()
				}
				return nil
			}
			x.rcv.Handle("st", "*", apply)
			for i, v := range []string{"5", "7", "6", "8"} {
				x.deliver("e"+v, "a", v)
				x.deliver("o"+v, "other", []string{"9", "9", "9", "9"}[i])
				x.work("st")
			}
			if got := x.receipts(inbox.StatusSkipped); !slices.Equal(got, []string{"a6 skipped stale"}) {
				t.Errorf("%s: %q", mode, got)
			}
		}
		if err := (&webhook.Event{Lane: "a", Version: "1"}).CloseLane(); err == nil {
			t.Error("an event of no handler closed a lane")
		}
	})
	t.Run("[webhooks/OR11] refetch: events are hints, one at a time in a lane; a hook that fails is tried again", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: webhook.OrderRefetch})
		if err := x.rcv.Run(t.Context()); err == nil {
			t.Error("it runs without a hook")
		}
		var fetched []string
		fail := true
		x.rcv.Refetch("st", func(_ context.Context, ev *webhook.Event) error {
			fetched = append(fetched, ev.Lane+ev.Version)
			if fail {
				fail = false
				return errors.New("away")
			}
			return nil
		})
		x.deliver("e2", "a", "2")
		x.deliver("e1", "a", "1")
		x.deliver("b1", "b", "1")
		for range 5 {
			x.work("st")
		}
		x.wants()
		if len(fetched) != 4 || fetched[0] != "a2" || slices.Index(fetched, "a1") < slices.Index(fetched[1:], "a2") || len(x.receipts(inbox.StatusDone)) != 3 {
			t.Errorf("%v, %q", fetched, x.receipts())
		}
	})
	t.Run("[webhooks/OR8] a lane waits for what failed, over restarts; others go on, and a dead one can be passed", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{})
		x.fail["a1"] = inbox.Permanent(errors.New("never"))
		for _, v := range []string{"1", "2", "3"} {
			x.deliver("e"+v, "a", v)
		}
		x.deliver("b1", "b", "1")
		x.work("st")
		again, err := webhook.New(webhook.Config{Engine: engineOver(t, x.store), Sources: []webhook.Source{x.src}, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		again.Handle("st", "*", func(context.Context, *webhook.Event) error { t.Error("a blocked lane ran"); return nil })
		if n, err := webhook.Once(t.Context(), again, "st"); n > 2 || err != nil { // each waits without a place or connection
			t.Error(n, err)
		}
		x.wants("b1")
		items, err := again.Blocked(t.Context(), "st")
		if err != nil || len(items) != 1 || items[0].Lane != "a" || items[0].Version != "1" || items[0].Waiting != 2 || items[0].Status != "dead" || items[0].ReceivedAt.IsZero() {
			t.Errorf("%+v, %v", items, err)
		}
		c := newOrdered(t, webhook.Order{OnDead: "continue"})
		c.fail["a1"] = inbox.Permanent(errors.New("never"))
		for _, v := range []string{"1", "2", "3"} {
			c.deliver("e"+v, "a", v)
		}
		c.work("st")
		c.wants("a2", "a3")
	})
}
