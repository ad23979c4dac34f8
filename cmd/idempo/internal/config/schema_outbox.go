package config

import (
	"errors"
	"strings"

	"github.com/idempo/idempo/cmd/idempo/internal/publish"
)

func outboxField() field {
	return field{name: "outbox", kind: section, doc: "What holds for every relay of this store.", fields: []field{
		{name: "source", kind: text, sample: "/shop/orders", check: checkNotLong, doc: "Where events come from that idempo outbox append names no source for, a URI reference."},
		{name: "retention", kind: duration, def: "7d", min: "1s", doc: "How long published events are kept, to be replayed."},
		{name: "environment", kind: text, def: `""`, check: checkNotLong, doc: "What this is the database of, as in production. A relay of another environment publishes nothing."},
	}}
}

// relayMembers are the settings of a relay but its destination: keys of relays, flags of idempo relay, variables of its
// environment.
func relayMembers() []field {
	return []field{
		{name: "group", kind: text, def: "main", check: checkNotLong, doc: "Whose place in the log is moved. All relays of a group publish each event once together."},
		{name: "topics", kind: text, def: `"*"`, check: checkGlobs, sample: `"orders.*"`, doc: "What it takes, * is any text; several separated by blanks."},
		{name: "from", kind: word, words: []string{"beginning", "now"}, sample: "beginning", defDoc: "beginning for the first group, none for others",
			doc: "Where a new group begins."},
		{name: "publish_after", kind: word, def: "commit", words: []string{"commit", "standby"}, doc: "standby publishes only what a standby has confirmed (PostgreSQL)."},
		{name: "on_dead", kind: word, def: "block", words: []string{"block", "continue"}, doc: "What a dead event does to later ones of its key."},
		{name: "max_attempts", kind: whole, def: "10", min: "1", max: "1000", doc: "Failures that make an event dead."},
		{name: "backoff_base", kind: duration, def: "100ms", min: "1ms", max: "1h", doc: "First pause of a failed event; doubles, with full jitter."},
		{name: "backoff_max", kind: duration, def: "30s", min: "1ms", max: "7d", doc: "Longest pause."},
		{name: "batch_rows", kind: whole, def: "1000", min: "1", max: "100000", doc: "Events read at once."},
		{name: "batch_bytes", kind: size, def: "8MiB", min: "1KiB", max: "1GiB", doc: "Bytes read at once."},
		{name: "max_in_flight", kind: whole, def: "1000", min: "1", max: "100000", doc: "Events sent and not answered."},
		{name: "max_in_flight_bytes", kind: size, def: "16MiB", min: "1KiB", max: "1GiB", doc: "Bytes sent and not answered."},
		{name: "min_poll", kind: duration, def: "5ms", min: "1ms", max: "1m", doc: "First pause of an idle relay; doubles."},
		{name: "max_poll", kind: duration, def: "250ms", min: "1ms", max: "1m", doc: "Longest pause of an idle relay."},
		{name: "ack_every", kind: duration, def: "100ms", min: "1ms", max: "1m", doc: "How often the place in the log is stored at most."},
		{name: "lease", kind: duration, def: "15s", min: "1s", max: "1h", doc: "How long a silent relay keeps its partitions; at least three times renew."},
		{name: "renew", kind: duration, def: "5s", min: "100ms", max: "20m", doc: "How often a relay says that it lives."},
		{name: "publish_timeout", kind: duration, def: "30s", min: "100ms", max: "1h", doc: "How long an answer is waited for before the event is sent again."},
		{name: "statement_timeout", kind: duration, def: "10s", min: "100ms", max: "10m", doc: "For one call of the store."},
		{name: "drain_timeout", kind: duration, def: "20s", min: "100ms", max: "1h", doc: "How long answers are waited for when it is told to stop."},
	}
}

func relaysField() field {
	relay := field{kind: section, fields: append([]field{
		{name: "to", kind: text, required: true, secret: true, check: publish.Check, sample: "nats://n1:4222?prefix=shop.", doc: "Where events go: nats:// kafka:// amqp:// amqps:// http:// https:// stdout: null:"},
	}, relayMembers()...)}
	return field{name: "relays", kind: list, item: &relay, defDoc: "none", doc: "Groups that serve, and idempo relay, publish committed events to."}
}

func checkNotLong(s string) error {
	if len(s) > 255 {
		return errors.New("longer than 255 bytes")
	}
	return nil
}

func checkGlobs(s string) error {
	if len(strings.Fields(s)) == 0 {
		return errors.New("names no topic; * is all")
	}
	return nil
}
