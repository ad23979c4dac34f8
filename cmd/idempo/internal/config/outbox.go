package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo/outbox"
)

// Outbox holds for every relay of the store.
type Outbox struct {
	Source      string
	Retention   time.Duration
	Environment string
}

// Relay is one group and where it goes.
type Relay struct {
	To      string // may hold a password
	Options outbox.RelayOptions
}

func decodeOutbox(root *value) (o Outbox, relays []Relay) {
	v := root.at("outbox")
	o = Outbox{Source: v.at("source").text, Retention: v.at("retention").duration(), Environment: v.at("environment").text}
	for _, m := range root.at("relays").members {
		relays = append(relays, decodeRelay(m, o))
	}
	return o, relays
}

func decodeRelay(v *value, o Outbox) Relay {
	n := func(name string) int { return int(v.at(name).num) }
	d := func(name string) time.Duration { return v.at(name).duration() }
	topics := strings.Fields(v.at("topics").text)
	if !v.at("topics").set {
		topics = []string{"*"}
	}
	return Relay{To: v.at("to").text, Options: outbox.RelayOptions{Group: v.at("group").text, Topics: topics, From: v.at("from").text,
		PublishAfter: v.at("publish_after").text, OnDead: v.at("on_dead").text, MaxAttempts: n("max_attempts"), BackoffBase: d("backoff_base"), BackoffMax: d("backoff_max"),
		BatchRows: n("batch_rows"), BatchBytes: n("batch_bytes"), MaxInFlight: n("max_in_flight"), MaxInFlightBytes: n("max_in_flight_bytes"),
		MinPoll: d("min_poll"), MaxPoll: d("max_poll"), AckEvery: d("ack_every"), Lease: d("lease"), Renew: d("renew"), PublishTimeout: d("publish_timeout"),
		StatementTimeout: d("statement_timeout"), DrainTimeout: d("drain_timeout"), Retention: o.Retention, Environment: o.Environment}}
}

// combineOutbox refuses settings of a relay that are wrong together.
func (r *reader) combineOutbox(root *value) {
	groups := map[string]*value{}
	for _, v := range root.at("relays").members {
		if r.suspect(v) {
			continue
		}
		group, lease, renew := v.at("group"), v.at("lease"), v.at("renew")
		if other := groups[group.text]; other != nil {
			r.both(group, other, "group %q twice", group.text)
		}
		groups[group.text] = group
		if lease.duration() < 3*renew.duration() {
			r.both(lease, renew, "must be at least three times renew: a relay that is late once would lose its partitions")
		}
		if base, most := v.at("backoff_base"), v.at("backoff_max"); most.duration() < base.duration() {
			r.both(most, base, "is shorter than backoff_base")
		}
		if first, most := v.at("min_poll"), v.at("max_poll"); most.duration() < first.duration() {
			r.both(most, first, "is shorter than min_poll")
		}
	}
}

// RelaySetting is a setting of a relay as flag and variable.
type RelaySetting struct {
	Flag, Env, Doc, Default string
	Words                   []string
}

// RelaySettings are all of them, in the order of the file.
func RelaySettings() (all []RelaySetting) {
	for _, f := range relayMembers() {
		def := strings.Trim(f.def, `"`)
		all = append(all, RelaySetting{Flag: strings.ReplaceAll(f.name, "_", "-"), Env: "IDEMPO_" + strings.ToUpper(f.name), Doc: f.doc, Default: def, Words: f.words})
	}
	return all
}

// RelayOf reads one relay from texts by the names of the file, as flags and variables give them; o holds for all. Each error
// names the setting as origin does.
func RelayOf(to string, given map[string]string, o Outbox, origin func(name string) string) (Relay, Problems) {
	item := relaysField().item
	root := newValue(schema(), nil, "")
	v := absent(item, root, "relay")
	var problems Problems
	for _, m := range v.members {
		text, ok := given[m.name]
		if m.name == "to" {
			text, ok = to, true
		}
		if !ok {
			continue
		}
		num, err := m.field.read(text)
		if err == nil && m.field.words != nil && !slices.Contains(m.field.words, text) {
			err = fmt.Errorf("one of: %s", strings.Join(m.field.words, " "))
		}
		if err != nil {
			problems = append(problems, Problem{Path: origin(m.name), Message: err.Error()})
			continue
		}
		m.set, m.text, m.num = true, text, num
	}
	return decodeRelay(v, o), problems
}
