package inbox

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func open(o Options) *Inbox {
	o.Subscriber = "billing"
	return &Inbox{o: o.withDefaults()}
}

// TestIdentity reads source and id out of messages; the first that is present counts.
func TestIdentity(t *testing.T) {
	t.Parallel()
	h := func(pairs ...string) (out [][2]string) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, [2]string{pairs[i], pairs[i+1]})
		}
		return out
	}
	ok := func(name string, o Options, m Message, source, id string) {
		t.Helper()
		d, p := open(o).accept(m, false)
		if p != nil || d.m.Source != source || d.m.ID != id {
			t.Errorf("%s: %q %q, %+v; want %q %q", name, d.m.Source, d.m.ID, p, source, id)
		}
	}
	bad := func(name string, m Message, reason string) {
		t.Helper()
		if d, p := open(Options{}).accept(m, false); p == nil || p.reason != reason {
			t.Errorf("%s: %+v %q", name, p, d.m.ID)
		}
	}
	for _, prefix := range []string{"ce_", "ce-", "cloudEvents:", "cloudEvents_", "CE-"} {
		ok(prefix, Options{Source: "option"}, Message{Source: "queue", ID: "broker", Headers: h(prefix+"id", "1", prefix+"source", "/shop", prefix+"specversion", "1.0")}, "/shop", "1")
	}
	ok("id without source", Options{Source: "option"}, Message{Source: "queue", Headers: h("ce_id", "1")}, "option", "1")
	ok("id without source or option", Options{}, Message{Source: "queue", Headers: h("ce_id", "1")}, "queue", "1")
	ok("the same twice", Options{}, Message{Headers: h("ce_id", "1", "ce_source", "s", "ce-id", "1")}, "s", "1")
	ok("broker", Options{Source: "option"}, Message{Source: "queue", ID: "broker"}, "option", "broker")
	ok("broker, attributes without id", Options{}, Message{Source: "queue", ID: "broker", Headers: h("ce_type", "x")}, "queue", "broker")
	ok("identify", Options{Identify: func(m Message) (string, string) { return "own", string(m.Body) }}, Message{Source: "queue", Body: []byte("7")}, "own", "7")
	ok("identify, id only", Options{Identify: func(Message) (string, string) { return "", "7" }}, Message{Source: "queue"}, "queue", "7")
	structured := func(body string) Message {
		return Message{Source: "queue", ID: "broker", Body: []byte(body), Headers: h("content-type", "application/cloudevents+json; charset=utf-8")}
	}
	ok("structured", Options{}, structured(`{"specversion":"1.0","id":"1","source":"/shop","type":"paid","data":{"id":"inner","source":"x"}}`), "/shop", "1")
	ok("structured, escapes", Options{}, structured(`{"data_base64":"AA==","id":"\u0031","source":"/sh\/op","specversion":"1.0","x":null}`), "/sh/op", "1")
	bad("structured, blank id", structured(`{"specversion":"1.0","id":" ","source":"/shop"}`), ReasonMissingID)
	bad("structured, no source", structured(`{"specversion":"1.0","id":"1"}`), ReasonMissingID)
	bad("structured, two ids", structured(`{"specversion":"1.0","id":"1","source":"s","id":"2"}`), ReasonMissingID)
	bad("structured, no version", structured(`{"id":"1","source":"s"}`), ReasonUnparsable)
	bad("structured, id is an object", structured(`{"specversion":"1.0","id":{},"source":"s"}`), ReasonUnparsable)
	bad("structured, cut", structured(`{"specversion":"1.0","id":"1","source":"s"`), ReasonUnparsable)
	bad("structured, more behind", structured(`{"specversion":"1.0","id":"1","source":"s"} {}`), ReasonUnparsable)
	bad("binary, other version", Message{Headers: h("ce_id", "1", "ce_source", "s", "ce_specversion", "1.1")}, ReasonUnparsable)
	bad("two sources", Message{Headers: h("ce_id", "1", "ce_source", "s", "ce-source", "t")}, ReasonMissingID)
	bad("nothing", Message{Source: "queue"}, ReasonMissingID)
	bad("NUL in the source", Message{Source: "a\x00", ID: "1"}, ReasonBadID)
	bad("tenant", Message{Tenant: "a\nb", Source: "s", ID: "1"}, ReasonBadID)
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	m := Message{Source: "queue", Headers: [][2]string{{"ce_id", "1"}, {"ce_source", "s"}, {"ce_type", "paid"}, {"ce_time", "2026-03-01T10:00:00.5Z"},
		{"ce_partitionkey", "c-1"}, {"ce_sequence", "00000000000000000007"}, {"ce_tenant", "acct_7"}}}
	d, p := open(Options{Order: OrderContiguous}).accept(m, false)
	if p != nil || d.m.Type != "paid" || !d.m.Time.Equal(time.Date(2026, 3, 1, 10, 0, 0, 5e8, time.UTC)) || d.m.Lane != "c-1" || d.m.Version != "7" || d.m.Tenant != "default" {
		t.Errorf("%+v, %+v", d.m, p)
	}
	if d, _ := open(Options{TrustTenantHeader: true}).accept(m, false); d.m.Tenant != "acct_7" {
		t.Errorf("trusted: %q", d.m.Tenant)
	}
	if d, _ := open(Options{TrustTenantHeader: true, TenantFunc: func(Message) string { return "mine" }}).accept(m, false); d.m.Tenant != "mine" {
		t.Errorf("told: %q", d.m.Tenant)
	}
	own := Options{Order: OrderContiguous, LaneOf: func(Message) string { return "lane" }, VersionOf: func(Message) string { return "3" }}
	if d, _ := open(own).accept(m, false); d.m.Lane != "lane" || d.m.Version != "3" {
		t.Errorf("told: %q %q", d.m.Lane, d.m.Version)
	}
	m.Lane, m.Version = "given", "4"
	if d, _ := open(own).accept(m, false); d.m.Lane != "given" || d.m.Version != "4" {
		t.Errorf("given: %q %q", d.m.Lane, d.m.Version)
	}
	if d, _ := open(Options{}).accept(Message{ID: "1", Partition: "record key"}, false); d.m.Lane != "record key" || d.order != OrderSerial {
		t.Errorf("partition: %q %s", d.m.Lane, d.order)
	}
	if d, _ := open(Options{Order: OrderNone}).accept(m, false); d.order != OrderNone {
		t.Errorf("order none: %s", d.order)
	}
}

// TestReadAgain: what a receipt keeps is the same delivery when it is read again, and nothing of the caller's memory.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	in := open(Options{MissingID: MissingDigest, Source: "option"})
	for _, m := range []Message{
		{ID: "1", Body: []byte("x"), Headers: [][2]string{{"a", "b"}}},
		{Source: "queue", Body: []byte("x"), Type: "paid"},
		{Headers: [][2]string{{"ce_id", "1"}}, Lane: "a"},
		{Body: []byte{}},
	} {
		first, p := in.accept(m, false)
		if p != nil {
			t.Fatal(p)
		}
		again, p := in.accept(first.kept, false)
		if p != nil || again.key != first.key || again.rkey != first.rkey || again.order != first.order {
			t.Errorf("%+v is read again as %+v", m, again.m)
		}
		if accepted, _ := in.accept(m, true); accepted.key == first.key || accepted.rkey == first.rkey {
			t.Error("accepted under the same key")
		}
		if len(m.Body) > 0 {
			m.Body[0] = '!'
			if bytes.Equal(first.m.Body, m.Body) {
				t.Error("memory is shared")
			}
		}
	}
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, m := range []Message{{Source: "ab", ID: "c"}, {Source: "a", ID: "bc"}, {Source: "abc", ID: "d"}, {ID: "abc"}} {
		d, p := open(Options{}).accept(m, false)
		if p != nil {
			t.Fatal(p)
		}
		for _, k := range []string{d.key.ID, d.rkey, d.conflictKey()} {
			if seen[k] != "" {
				t.Errorf("%+v has a key of %s", m, seen[k])
			}
			seen[k] = m.Source + "/" + m.ID
		}
	}
	long := Message{Source: strings.Repeat("s", maxIdentity), Position: strings.Repeat("p", maxIdentity)}
	if d, p := open(Options{MissingID: MissingPosition}).accept(long, false); p != nil || len(d.key.ID) > 2064 {
		t.Errorf("%+v, %d bytes", p, len(d.key.ID))
	}
}

func FuzzEvent(f *testing.F) {
	f.Add("application/cloudevents+json", []byte(`{"specversion":"1.0","id":"1","source":"s"}`), "ce_id", "1")
	f.Add("application/json", []byte(`{}`), "ce-source", "s")
	f.Fuzz(func(t *testing.T, kind string, body []byte, name, value string) {
		m := Message{Source: "queue", Body: body, Headers: [][2]string{{"content-type", kind}, {name, value}}}
		d, p := open(Options{}).accept(m, false)
		if p != nil {
			if !bytes.Equal(d.kept.Body, body) || len(d.rkey) != 32 {
				t.Errorf("parked as %+v", d.kept)
			}
			return
		}
		if blank(d.m.ID) || len(d.m.ID) > maxIdentity || len(d.key.ID) > 2064 || !bytes.Equal(d.m.Body, body) {
			t.Errorf("accepted as %q", d.m.ID)
		}
	})
}
