package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
	"github.com/idempo/idempo/webhook"
)

// ordered is a site with one Stripe source, whose handler notes the versions that took effect.
type ordered struct {
	*site
	src     webhook.Source
	applied []string
	fail    map[string]error // by version, once
}

func newOrdered(t *testing.T, o webhook.Order) *ordered {
	t.Helper()
	x := &ordered{src: webhook.Source{Name: "st", Provider: "stripe", Secrets: []webhook.Secret{text("1", "k")}, Order: o, Retry: webhook.Retry{First: 1, Max: 1}}, fail: map[string]error{}}
	x.site = newSite(t, nil, x.src)
	x.rcv.Handle("st", "*", func(ctx context.Context, ev *webhook.Event) error {
		memstore.OnCommit(ctx, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.applied = append(x.applied, ev.Lane+ev.Version)
		})
		x.mu.Lock()
		defer x.mu.Unlock()
		err := x.fail[ev.Lane+ev.Version]
		delete(x.fail, ev.Lane+ev.Version)
		return err
	})
	return x
}

func (x *ordered) deliver(id, lane, version string) {
	x.t.Helper()
	out, err := webhook.Sign(x.src, webhook.SignParams{Body: []byte(`{"id":"` + id + `","created":` + version + `,"data":{"object":{"id":"` + lane + `"}}}`), At: at()})
	if err != nil {
		x.t.Fatal(err)
	}
	x.want(http.StatusOK, "st", out.Request())
}

func (x *ordered) wants(want ...string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Equal(x.applied, want) {
		x.t.Errorf("applied %v, want %v", x.applied, want)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	t.Run("[webhooks/OR1] latest: what is below the lane's version is stale; a rolled-back effect leaves no version", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: "latest", OnDead: "continue"})
		x.fail["a9"] = inbox.Permanent(errors.New("never"))
		for i, v := range []string{"9", "6", "5", "7"} {
			x.deliver(fmt.Sprint("e", i), "a", v)
			x.work("st")
		}
		x.deliver("other", "b", "1")
		x.work("st")
		x.wants("a6", "a7", "b1")
		if got := x.waiting("st"); !slices.Equal(got, []string{"dead permanent"}) {
			t.Errorf("%v", got)
		}
	})
	t.Run("[webhooks/OR4] versions are compared exactly, beyond what a floating point holds", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: "latest"})
		for i, v := range []string{"9007199254740993", "9007199254740992", "9007199254740994", "100000000000000000000000000001", "100000000000000000000000000000"} {
			x.deliver(fmt.Sprint("e", i), "a", v)
			x.work("st")
		}
		x.wants("a9007199254740993", "a9007199254740994", "a100000000000000000000000000001")
	})
	t.Run("equal versions of different events: applied, or skipped where that is chosen", func(t *testing.T) {
		for tie, want := range map[string][]string{"": {"a5", "a5"}, "apply": {"a5", "a5"}, "skip": {"a5"}} {
			x := newOrdered(t, webhook.Order{Mode: "latest", Tie: tie})
			for _, id := range []string{"e1", "e2"} {
				x.deliver(id, "a", "5")
				x.work("st")
			}
			x.wants(want...)
		}
	})
	t.Run("[webhooks/OR2] two processes with 5 and 6 of one lane at once: 5 before 6, or never", func(t *testing.T) {
		for range 10 {
			x := newOrdered(t, webhook.Order{Mode: "latest"})
			other, err := webhook.New(webhook.Config{Engine: engineOver(t, x.store), Sources: []webhook.Source{x.src}, Now: at})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			applied := make(chan string, 10)
			note := func(work context.Context, ev *webhook.Event) error {
				memstore.OnCommit(work, func() { applied <- ev.Version })
				return nil
			}
			x.deliver("e6", "a", "6")
			x.deliver("e5", "a", "5")
			var group sync.WaitGroup
			for _, r := range []*webhook.Receiver{x.rcv, other} {
				r.Handle("st", "*", note)
				group.Go(func() { _ = r.Run(ctx) })
			}
			for last := ""; last != "6"; {
				last = <-applied
			}
			cancel()
			group.Wait()
			x.work("st") // what was not begun
			if len(applied) > 0 {
				t.Errorf("%s after 6", <-applied)
			}
		}
	})
	t.Run("serial: a lane waits for what failed before, others go on, and after a person's retry it goes on in order", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{})
		x.fail["a1"] = inbox.Permanent(errors.New("never"))
		for i, lane := range []string{"a", "a", "b"} {
			x.deliver(fmt.Sprint("e", i), lane, fmt.Sprint(i+1))
		}
		x.work("st")
		x.wants("b3")
		c, err := x.rcv.Inbox("st").Retry(t.Context(), inbox.Selection{}, false)
		if err != nil || c.OK != 1 {
			t.Fatalf("%+v %v", c, err)
		}
		x.work("st")
		x.wants("b3", "a1", "a2")
	})
	t.Run("[webhooks/OR9] a blocked lane goes on in order after a skip", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{})
		x.fail["a1"] = inbox.Permanent(errors.New("never"))
		for i := range 3 {
			x.deliver(fmt.Sprint("e", i), "a", fmt.Sprint(i+1))
		}
		x.work("st")
		x.wants()
		if c, err := x.rcv.Inbox("st").Skip(t.Context(), inbox.Selection{}, "asked"); err != nil || c.OK != 1 {
			t.Fatalf("%+v %v", c, err)
		}
		x.work("st")
		x.wants("a2", "a3")
	})
	t.Run("none: nothing waits", func(t *testing.T) {
		x := newOrdered(t, webhook.Order{Mode: "none"})
		x.fail["a1"] = inbox.Permanent(errors.New("never"))
		x.deliver("e1", "a", "1")
		x.deliver("e2", "a", "2")
		x.work("st")
		x.wants("a2")
	})
	t.Run("[webhooks/V19] an order that is not known does not start", func(t *testing.T) {
		for field, o := range map[string]webhook.Order{"order.mode": {Mode: "fifo"}, "order.on_dead": {OnDead: "drop"}, "order.tie": {Tie: "run"},
			"order.on_gap": {OnGap: "jump"}, "order": {GapWait: -1}} {
			s := github(text("1", "k"))
			s.Order = o
			wants(t, refused(t, s), field+":")
		}
	})
}
