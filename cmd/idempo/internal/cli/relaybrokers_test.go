package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
)

// missing skips a test that lacks a server, and fails it where CI wants all.
func missing(t *testing.T, text string, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(text, err)
	}
	t.Skip(text)
}

func TestRelayBrokers(t *testing.T) {
	t.Parallel()
	t.Run("--to nats://: the subject is prefix and topic, the ids are the events', a topic without a stream waits", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		server := cmp.Or(os.Getenv("IDEMPO_TEST_NATS"), nats.DefaultURL)
		conn, err := nats.Connect(server)
		if err != nil {
			missing(t, "no NATS: set IDEMPO_TEST_NATS, or start one with: docker run -p 4222:4222 nats -js", err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		name := "relay_" + strings.ToLower(rand.Text())
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".orders.*"}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = js.DeleteStream(context.WithoutCancel(t.Context()), name) })
		ids := s.append("orders.paid", "o-1", "1", "2", "3")
		ids = append(ids, s.append("orders.sent", "o-2", "4")...)
		s.append("billing.sent", "b-1", "9")
		to := server + "?prefix=" + name + "."
		r := s.run("relay", "--to", to, "--once", "--topics", "orders.*")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context())
		if err != nil || info.State.Msgs != 4 {
			t.Fatalf("%+v %v", info, err)
		}
		var got, bodies []string
		for seq := uint64(1); seq <= 4; seq++ {
			m, err := stream.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m.Header.Get(nats.MsgIdHdr))
			if m.Subject == name+".orders.paid" {
				bodies = append(bodies, string(m.Data))
			}
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("ids %v, want %v", got, ids)
		}
		same(t, bodies, "1", "2", "3")
		r = s.run("outbox", "replay", "--id", ids[0], "--to", to, "--reason", "lost", "--yes")
		if info, err := stream.Info(t.Context()); r.code != 0 || err != nil || info.State.Msgs != 5 {
			t.Errorf("a replay was swallowed: %+v, %d messages", r, info.State.Msgs)
		}
	})
	t.Run("--to amqp://: the routing key is the topic, messages are confirmed, and no password is shown", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		server := cmp.Or(os.Getenv("IDEMPO_TEST_RABBITMQ"), "amqp://guest:guest@127.0.0.1:5672/")
		conn, err := amqp.Dial(server)
		if err != nil {
			missing(t, "no RabbitMQ: set IDEMPO_TEST_RABBITMQ, or start one with: docker run -p 5672:5672 rabbitmq", err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		name := "relay_" + strings.ToLower(rand.Text())
		for _, err := range []error{ch.ExchangeDeclare(name, "topic", false, true, false, false, nil),
			func() error { _, err := ch.QueueDeclare(name, false, true, false, false, nil); return err }(),
			ch.QueueBind(name, "orders.*", name, false, nil)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = ch.QueueDelete(name, false, false, false) })
		ids := s.append("orders.paid", "o-1", "1", "2", "3")
		r := s.run("relay", "--to", server+"?exchange="+name, "--once")
		if r.code != 0 || strings.Contains(r.err+r.out, "guest:guest") {
			t.Fatalf("%+v", r)
		}
		for i, id := range ids {
			m, ok, err := ch.Get(name, true)
			if err != nil || !ok || m.MessageId != id || string(m.Body) != fmt.Sprint(i+1) || m.RoutingKey != "orders.paid" {
				t.Errorf("%v %v: %q %s %s", ok, err, m.MessageId, m.Body, m.RoutingKey)
			}
		}
	})
	t.Run("a broker that is away: the relay waits and nothing is dead; --once is ended by hand", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.append("orders.paid", "o-1", "1")
		r := s.relay("--to", "nats://127.0.0.1:1")
		r.says(": waiting\n")
		if e := s.events(); len(e) != 1 || e[0].Status != "pending" {
			t.Errorf("%+v", e)
		}
		r.stop(0)
	})
}

func TestServeRelays(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.file("idempo.yaml", "version: 1\nstore: {postgres: \"${env:IDEMPO_STORE}\"}\nrelays:\n  - {topics: \"orders.*\", to: \"null:\"}\n")
	s.append("orders.paid", "o-1", "1", "2")
	v := s.serve()
	for began := time.Now(); ; {
		if r := s.run("outbox", "list", "--status", "published", "--json"); r.code == 0 && strings.Count(r.out, "\n") == 2 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("serve publishes nothing: %s", v.err.String())
		}
	}
	v.signals <- syscall.SIGTERM
	if code := <-v.code; code != 0 {
		t.Errorf("exit %d: %s", code, v.err.String())
	}
	if r := s.done("outbox", "groups", "list", "--json"); !strings.Contains(r.out, `"relays":0`) {
		t.Errorf("it kept its partitions: %s", r.out)
	}
	s.file("idempo.yaml", "version: 1\nstore: {postgres: \"${env:IDEMPO_STORE}\"}\nrelays: [{to: \"stdout:\"}]\n")
	if r := s.run("serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"); r.code != 125 || !strings.Contains(r.err, "stdout: is for idempo relay") {
		t.Errorf("%+v", r)
	}
}
