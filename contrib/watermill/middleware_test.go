package idemwatermill_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/idempo/idempo"
	idemwatermill "github.com/idempo/idempo/contrib/watermill"
	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/memstore"
)

func newInbox(t *testing.T, o inbox.Options) *inbox.Inbox {
	t.Helper()
	o.Subscriber, o.BackoffBase, o.BackoffMax = "billing", time.Millisecond, time.Millisecond
	in, err := inbox.New(idempotest.EngineWith(t, memstore.New(memstore.Options{}), idempo.Config{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// router runs a router with the middleware until the test ends, and returns where its messages come from.
func router(t *testing.T, in *inbox.Inbox, h message.NoPublishHandlerFunc) *gochannel.GoChannel {
	t.Helper()
	bus := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddMiddleware(idemwatermill.Middleware(in))
	r.AddConsumerHandler("billing", "orders", bus, h)
	var all sync.WaitGroup
	all.Go(func() {
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = r.Close(); all.Wait(); _ = bus.Close() })
	<-r.Running()
	return bus
}

func publish(t *testing.T, bus *gochannel.GoChannel, msgs ...*message.Message) {
	t.Helper()
	if err := bus.Publish("orders", msgs...); err != nil {
		t.Fatal(err)
	}
}

func msg(uuid string, metadata ...string) *message.Message {
	m := message.NewMessage(uuid, []byte("body"))
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata.Set(metadata[i], metadata[i+1])
	}
	return m
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	const row = "[messages/B20] "
	t.Run(row+"identity by CloudEvents metadata, else UUID and source; a duplicate returns nil unrun; the context has the transaction", func(t *testing.T) {
		t.Parallel()
		var ledger idempotest.Ledger
		end := make(chan struct{})
		in := newInbox(t, inbox.Options{Source: "shop"})
		bus := router(t, in, func(m *message.Message) error {
			name := m.UUID + m.Metadata.Get("ce_id")
			ledger.AddOnCommit(m.Context(), name)
			if name == "end" {
				close(end)
			}
			return nil
		})
		publish(t, bus, msg("a"), msg("a"), msg("1", "ce_id", "x", "ce_source", "/s"), msg("2", "ce_id", "x", "ce_source", "/s"), msg("a", "ce_id", "y", "ce_source", "/s"), msg("end"))
		<-end
		for name, n := range map[string]int{"a": 1, "1x": 1, "2x": 0, "ay": 1} {
			ledger.Want(t, name, n)
		}
		out, err := in.Handle(t.Context(), inbox.Message{ID: "a", Source: "elsewhere", Body: []byte("body"), Attempt: 1}, nil)
		if err != nil || out.Status != inbox.StatusDuplicate { // Options.Source counts, not the topic
			t.Error(out, err)
		}
	})
	t.Run(row+"a failed message goes back to the router with everything rolled back, is counted, and is dead at last", func(t *testing.T) {
		t.Parallel()
		var ledger idempotest.Ledger
		end := make(chan struct{})
		in := newInbox(t, inbox.Options{MaxAttempts: 4})
		bus := router(t, in, func(m *message.Message) error {
			ledger.Add("start of " + m.UUID)
			ledger.AddOnCommit(m.Context(), m.UUID)
			switch {
			case m.UUID == "bad":
				return errors.New("always")
			case m.UUID == "mends" && ledger.Count("start of mends") < 3:
				return errors.New("not yet")
			case m.UUID == "end":
				close(end)
			}
			return nil
		})
		publish(t, bus, msg("bad"), msg("mends"), msg("end")) // one after the other: each is delivered until it is acknowledged
		<-end
		ledger.Want(t, "bad", 0)
		ledger.Want(t, "start of bad", 4)
		ledger.Want(t, "mends", 1)
		ledger.Want(t, "start of mends", 3)
		dead, err := in.Find(t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusDead}})
		if err != nil || len(dead) != 1 || dead[0].Attempts != 4 || len(dead[0].Failures) != 4 || dead[0].Failures[0].Error != "always" {
			t.Errorf("%+v, %v", dead, err)
		}
		if rs, err := in.Find(t.Context(), inbox.Selection{Statuses: []inbox.Status{inbox.StatusStarted, inbox.StatusRetrying, inbox.StatusStored}}); err != nil || len(rs) != 0 {
			t.Errorf("left: %+v, %v", rs, err)
		}
	})
	t.Run(row+"the handler's own error is what the router gets; nothing is marked by it", func(t *testing.T) {
		t.Parallel()
		in := newInbox(t, inbox.Options{Source: "orders"})
		boom := errors.New("boom")
		var answer error
		h := idemwatermill.Middleware(in)(func(m *message.Message) ([]*message.Message, error) { return []*message.Message{m}, answer })
		answer = boom
		if got, err := h(msg("a")); !errors.Is(err, boom) || got != nil {
			t.Error(got, err)
		}
		answer = nil
		if got, err := h(msg("a")); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
		if got, err := h(msg("a")); err != nil || len(got) != 0 {
			t.Error(got, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		m := msg("b")
		m.SetContext(ended)
		if _, err := h(m); !errors.Is(err, idemwatermill.ErrNotDecided) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run(row+"what waits for its lane or its time is run by Work", func(t *testing.T) {
		t.Parallel()
		in := newInbox(t, inbox.Options{Source: "orders"})
		var ledger idempotest.Ledger
		later := true
		h := func(m *message.Message) ([]*message.Message, error) {
			if later {
				later = false
				return nil, inbox.Later(0)
			}
			ledger.AddOnCommit(m.Context(), m.UUID+m.Metadata.Get("x")+string(m.Payload))
			if m.Metadata.Get("x") == "produces" {
				return []*message.Message{m}, nil
			}
			return nil, nil
		}
		if _, err := idemwatermill.Middleware(in)(h)(msg("a", "x", "1")); err != nil {
			t.Error(err)
		}
		if n, err := in.Once(t.Context(), idemwatermill.Handler(h)); n != 1 || err != nil {
			t.Error(n, err)
		}
		ledger.Want(t, "a1body", 1)
		later = true
		if _, err := idemwatermill.Middleware(in)(h)(msg("b", "x", "produces")); err != nil {
			t.Error(err)
		}
		if _, err := in.Once(t.Context(), idemwatermill.Handler(h)); err != nil {
			t.Error(err)
		}
		if dead, err := in.Find(t.Context(), inbox.Selection{}); err != nil || len(dead) != 1 || dead[0].Status != inbox.StatusDead {
			t.Errorf("%+v, %v", dead, err)
		}
		ledger.Want(t, "bproducesbody", 0)
	})
}
