package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/outbox"
)

func outboxFile(text string) (*Settings, error) {
	c, _, err := Load(Source{File: "idempo.yaml", DataDir: "/d", Content: []byte("version: 1\n" + text)})
	return c, err
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("the file of the page is understood", func(t *testing.T) {
		t.Parallel()
		c, err := outboxFile("outbox: {source: /shop/orders, retention: 7d, environment: production}\nrelays:\n" +
			"  - {group: main, topics: \"orders.*\", to: \"nats://n1:4222?prefix=shop.\", ack_every: 100ms}\n" +
			"  - {group: erp, topics: \"billing.* refunds\", to: \"https://erp.example/in\", max_in_flight_bytes: 1MiB, from: now}\n")
		if err != nil {
			t.Fatal(err)
		}
		if c.Outbox != (Outbox{Source: "/shop/orders", Retention: 7 * 24 * time.Hour, Environment: "production"}) || len(c.Relays) != 2 {
			t.Fatalf("%+v %+v", c.Outbox, c.Relays)
		}
		one, two := c.Relays[0], c.Relays[1]
		if one.To != "nats://n1:4222?prefix=shop." || one.Options.Group != "main" || one.Options.AckEvery != 100*time.Millisecond || one.Options.Environment != "production" ||
			one.Options.Retention != 7*24*time.Hour || !slices.Equal(one.Options.Topics, []string{"orders.*"}) {
			t.Errorf("%+v", one)
		}
		if two.Options.MaxInFlightBytes != 1<<20 || two.Options.From != "now" || !slices.Equal(two.Options.Topics, []string{"billing.*", "refunds"}) {
			t.Errorf("%+v", two)
		}
	})
	t.Run("defaults are those of the Go fields", func(t *testing.T) {
		t.Parallel()
		c, err := outboxFile("relays: [{to: \"stdout:\"}]\n")
		if err != nil {
			t.Fatal(err)
		}
		got, want := c.Relays[0].Options, outbox.RelayOptions{Group: "main", Topics: []string{"*"}, PublishAfter: "commit", OnDead: "block", MaxAttempts: 10,
			BackoffBase: 100 * time.Millisecond, BackoffMax: 30 * time.Second, BatchRows: 1000, BatchBytes: 8 << 20, MaxInFlight: 1000, MaxInFlightBytes: 16 << 20,
			MinPoll: 5 * time.Millisecond, MaxPoll: 250 * time.Millisecond, AckEvery: 100 * time.Millisecond, Lease: 15 * time.Second, Renew: 5 * time.Second,
			PublishTimeout: 30 * time.Second, StatementTimeout: 10 * time.Second, DrainTimeout: 20 * time.Second, Retention: 7 * 24 * time.Hour}
		if !slices.Equal(got.Topics, want.Topics) {
			t.Errorf("topics %v", got.Topics)
		}
		got.Topics, want.Topics = nil, nil
		if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); a != b {
			t.Errorf("%s\nwant\n%s", a, b)
		}
	})
	t.Run("mistakes name their place, and no part of an address", func(t *testing.T) {
		t.Parallel()
		bad := func(want, text string) {
			t.Helper()
			_, err := outboxFile(text)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, want %q", err, want)
			}
		}
		bad("relays[0].to: missing", "relays: [{group: main}]\n")
		bad("relays[0].to: not a destination; did you mean nats:?", "relays: [{to: \"nast://u:s3cret@h\"}]\n")
		bad("relays[0].topics: names no topic", "relays: [{to: \"null:\", topics: \" \"}]\n")
		bad("relays[0].lease: must be at least three times renew", "relays: [{to: \"null:\", lease: 10s}]\n")
		bad("relays[1].group: group \"main\" twice", "relays: [{to: \"null:\"}, {to: \"stdout:\"}]\n")
		bad("relays[0].from: ", "relays: [{to: \"null:\", from: end}]\n")
		bad("outbox.retention: ", "outbox: {retention: 7}\n")
		bad("relays[0].max_pol: unknown key", "relays: [{to: \"null:\", max_pol: 1s}]\n")
	})
	t.Run("printed settings show no address", func(t *testing.T) {
		t.Parallel()
		c, err := outboxFile("relays: [{to: \"amqp://u:s3cret@mq/shop\"}]\n")
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range c.List() {
			if strings.Contains(set.Value, "s3cret") {
				t.Errorf("%s: %s", set.Path, set.Value)
			}
		}
	})
	t.Run("flags and variables are the keys of the file", func(t *testing.T) {
		t.Parallel()
		where := func(name string) string { return "--" + name }
		r, problems := RelayOf("stdout:", map[string]string{"group": "erp", "topics": "a.* b", "lease": "1m", "max_in_flight_bytes": "2MiB", "on_dead": "continue"}, Outbox{Environment: "e"}, where)
		if len(problems) > 0 || r.To != "stdout:" || r.Options.Group != "erp" || r.Options.Lease != time.Minute || r.Options.MaxInFlightBytes != 2<<20 || r.Options.OnDead != "continue" ||
			r.Options.Environment != "e" || !slices.Equal(r.Options.Topics, []string{"a.*", "b"}) || r.Options.MaxAttempts != 10 {
			t.Errorf("%+v %v", r, problems)
		}
		for name, value := range map[string]string{"lease": "1", "on_dead": "stop", "max_attempts": "0", "topics": ""} {
			if _, problems := RelayOf("stdout:", map[string]string{name: value}, Outbox{}, where); len(problems) != 1 || problems[0].Path != "--"+name {
				t.Errorf("%s=%s: %v", name, value, problems)
			}
		}
		for _, s := range RelaySettings() {
			if s.Doc == "" || !strings.HasPrefix(s.Env, "IDEMPO_") || strings.Contains(s.Flag, "_") {
				t.Errorf("%+v", s)
			}
		}
	})
}
