package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/outbox"
)

// grave makes an event with this payload dead, and others of its key queued behind it.
func (s *shop) grave(topic, key, payload string, behind ...string) {
	s.t.Helper()
	s.append(topic, key, payload)
	s.append(topic, key, behind...)
	s.drain(&judge{refuse: func(d outbox.Delivery) error {
		if string(d.Payload) == payload {
			return outbox.Refused(errors.New("too large \x1b[2J for it"))
		}
		return nil
	}})
}

type eventLine struct {
	ID, Topic, Key, Type, Tenant, Status string
	Seq                                  int64
	Attempts                             int
	NextAttempt                          *time.Time `json:"next_attempt"`
	AppendedAt                           *time.Time `json:"appended_at"`
	FirstError                           string     `json:"first_error"`
	Audit                                []struct{ Action, Outcome, Reason, Code string }
}

func (s *shop) events(args ...string) (all []eventLine) {
	s.t.Helper()
	r := s.run(append([]string{"outbox", "list", "--json"}, args...)...)
	if r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	for line := range strings.Lines(r.out) {
		var e eventLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err, line)
		}
		all = append(all, e)
	}
	return all
}

// done runs a command that is to succeed.
func (s *shop) done(args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	if r.code != 0 {
		s.t.Fatalf("idempo %s: %+v", strings.Join(args, " "), r)
	}
	return r
}

// audited returns the audit rows of an action.
func (s *shop) audited(action string) (n int, text string) {
	s.t.Helper()
	r := s.done("keys", "audit", "--action", action, "--json")
	return strings.Count(r.out, `"outcome":"done"`), r.out
}

func TestOutboxReading(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	s.append("orders.paid", "o-1", "1", "2")
	s.once(0)
	s.grave("orders.paid", "o-2", `"poison"`, `"behind"`)
	s.append("billing.sent", "b-1", "3")
	t.Run("list has exactly the members that are documented, filters intersect, and pages are complete", func(t *testing.T) {
		r := s.done("outbox", "list", "--json", "--limit", "1")
		var m map[string]any
		if err := json.Unmarshal([]byte(r.out), &m); err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		if want := strings.Fields("appended_at attempts first_error id key last_error next_attempt schema seq status tenant topic type"); !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
		for args, want := range map[string]int{"": 5, "--status published": 2, "--status dead": 1, "--status pending": 2, "--topic billing.*": 1, "--key o-2": 2, "--key o-2 --status pending": 1,
			"--tenant other": 0, "--type T": 5, "--type U": 0, "--newer-than 1h": 5, "--older-than 1h": 0} {
			if got := len(s.events(strings.Fields(args)...)); got != want {
				t.Errorf("%q: %d, want %d", args, got, want)
			}
		}
		seen, after := map[string]bool{}, ""
		for range 20 {
			args := []string{"outbox", "list", "--json", "--limit", "2"}
			if after != "" {
				args = append(args, "--after", after)
			}
			r := s.done(args...)
			for line := range strings.Lines(r.out) {
				var e eventLine
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				if seen[e.ID] {
					t.Errorf("%s twice", e.ID)
				}
				seen[e.ID] = true
			}
			_, cursor, more := strings.Cut(strings.TrimSpace(r.err), "more: --after ")
			if after = cursor; !more {
				break
			}
		}
		if len(seen) != 5 {
			t.Errorf("%d in pages", len(seen))
		}
	})
	t.Run("status names who holds what up", func(t *testing.T) {
		r := s.done("outbox", "status", "--json")
		var g struct {
			Group                               string
			Pending, Waiting, Dead, BlockedKeys int64
			OldestSeconds                       float64 `json:"oldest_seconds"`
			Blocked                             int64   `json:"blocked_keys"`
			Paused                              bool
			Relays                              int
			Holders                             []struct {
				Kind, Text string
				Age        float64 `json:"age_seconds"`
			}
		}
		if err := json.Unmarshal([]byte(r.out), &g); err != nil || g.Group != "main" || g.Dead != 1 || g.Blocked != 1 || g.Pending != 2 || g.OldestSeconds <= 0 {
			t.Errorf("%+v %v", g, err)
		}
		if !slices.ContainsFunc(g.Holders, func(h struct {
			Kind, Text string
			Age        float64 `json:"age_seconds"`
		}) bool {
			return h.Kind == "dead"
		}) {
			t.Errorf("holders %+v", g.Holders)
		}
		r = s.done("outbox", "status")
		if !strings.HasPrefix(r.out, "GROUP                  PENDING   OLDEST  WAITING     DEAD  BLOCKED  RELAYS\nmain ") || !strings.Contains(r.out, "held by dead") || !strings.Contains(r.out, "log: ") {
			t.Error(r.out)
		}
	})
	t.Run("show explains one, and its payload byte for byte", func(t *testing.T) {
		id := s.events("--status", "dead")[0].ID
		r := s.done("outbox", "show", id)
		for _, want := range []string{"status       dead in group main\n", `too large \x1b[2J for it`, "later events of its key wait for it", "idempo outbox retry " + id} {
			if !strings.Contains(r.out, want) {
				t.Errorf("no %q in\n%s", want, r.out)
			}
		}
		if r := s.done("outbox", "show", id, "--payload"); r.out != `"poison"` {
			t.Errorf("%q", r.out)
		}
		s.want(1, "", "idempo: no such event\n", "outbox", "show", "0190b5b2-7c3e-7a41-9d2f-2f6d1c7f0a11")
	})
	t.Run("[messages/RL28] status works with a role that may only read, and changes nothing", func(t *testing.T) {
		role := "reader_" + strings.ToLower(fmt.Sprint(os.Getpid())) + strings.ToLower(s.dsn[strings.LastIndex(s.dsn, "shop_")+5:][:8])
		for _, q := range []string{"create role " + role + " login", "grant usage on schema idempo to " + role, "grant select on all tables in schema idempo to " + role,
			"grant select on all sequences in schema idempo to " + role} {
			if _, err := s.db.ExecContext(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			for _, q := range []string{"drop owned by " + role, "drop role " + role} {
				if _, err := s.db.Exec(q); err != nil {
					t.Error(err)
				}
			}
		})
		u, err := url.Parse(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		before := s.done("outbox", "list", "--json").out
		if r := s.run("outbox", "status", "--json", "--store", u.String()); r.code != 0 || !strings.Contains(r.out, `"group":"main"`) {
			t.Errorf("%+v", r)
		}
		if after := s.done("outbox", "list", "--json").out; after != before {
			t.Errorf("changed:\n%s\n%s", before, after)
		}
	})
}

func TestOutboxActing(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL7] retry of a dead head, skip, bulk: the head first, then those behind it, in order; audited", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.grave("orders.paid", "o-1", `"a1"`, `"a2"`, `"a3"`)
		s.grave("orders.paid", "o-2", `"b1"`, `"b2"`)
		got, _ := s.once(1)
		same(t, got)
		if r := s.done("outbox", "retry", "--key", "o-1", "--status", "dead", "--reason", "limit raised", "--yes", "--json"); !strings.Contains(r.out, `"matched":1,"ok":1,"failed":0`) {
			t.Errorf("%+v", r)
		}
		got, _ = s.once(1)
		same(t, got, `"a1"`, `"a2"`, `"a3"`)
		s.done("outbox", "skip", "--status", "dead", "--reason", "cancelled", "--yes")
		got, _ = s.once(0)
		same(t, got, `"b2"`)
		if e := s.events("--status", "skipped"); len(e) != 1 || e[0].Key != "o-2" {
			t.Errorf("%+v", e)
		}
		for i := range 5 {
			s.grave("orders.bulk", fmt.Sprint("k-", i), fmt.Sprint(`"x`, i, `"`))
		}
		s.done("outbox", "retry", "--topic", "orders.*", "--status", "dead", "--reason", "limit raised", "--yes")
		got, _ = s.once(0)
		slices.Sort(got)
		same(t, got, `"x0"`, `"x1"`, `"x2"`, `"x3"`, `"x4"`)
		if n, text := s.audited("retry"); n != 6 {
			t.Errorf("%d audited:\n%s", n, text)
		}
		if n, _ := s.audited("skip"); n != 1 {
			t.Errorf("%d skips audited", n)
		}
		s.done("outbox", "discard", "--status", "skipped", "--reason", "house rule", "--yes")
		if e := s.events("--status", "skipped"); len(e) != 0 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("[operations/OP17] reason, dry run, confirmation and refusals are those of keys", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.grave("orders.paid", "o-1", `"a1"`)
		id := s.events()[0].ID
		for _, verb := range []string{"retry", "skip", "discard"} {
			s.want(125, "", "idempo: a reason is required: it stays in the audit\n  add --reason \"why\"\n", "outbox", verb, id, "--yes")
			s.want(125, "", "idempo: name the event, or say by filters which ones\n  see: idempo outbox "+verb+" --help\n", "outbox", verb, "--reason", "x", "--yes")
			before := s.done("outbox", "list", "--json").out + s.done("keys", "audit", "--json").out
			if r := s.run("outbox", verb, id, "--reason", "x"); r.code != 125 || !strings.HasSuffix(r.err, "nothing was done\n  add --yes\n") {
				t.Errorf("%+v", r)
			}
			if r := s.done("outbox", verb, id, "--reason", "x", "--dry-run", "--json"); !strings.Contains(r.out, `"ok":1`) || !strings.Contains(r.out, `"dry_run":true`) {
				t.Errorf("%+v", r)
			}
			if after := s.done("outbox", "list", "--json").out + s.done("keys", "audit", "--json").out; after != before {
				t.Errorf("%s changed something", verb)
			}
			if r := s.run("outbox", verb, "0190b5b2-7c3e-7a41-9d2f-2f6d1c7f0a11", "--reason", "x", "--yes"); r.code != 1 || r.err != "idempo: no such event\n" {
				t.Errorf("%+v", r)
			}
		}
		s.append("orders.paid", "o-9", `"fresh"`)
		fresh := s.events("--key", "o-9")[0].ID
		if r := s.run("outbox", "skip", fresh, "--reason", "x", "--yes", "--json"); r.code != 1 || !strings.Contains(r.err, `"code":"wrong_state"`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("[messages/RL7] a pause of a group or a topic holds in running relays and over restarts, until it is resumed", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		r := s.relay("--to", "stdout:")
		s.append("orders.paid", "o-1", "1")
		if got := r.next(); got != "1" {
			t.Errorf("published %s", got)
		}
		s.done("outbox", "pause", "--reason", "the ERP is being moved", "--yes")
		r.says(": paused\n")
		s.append("orders.paid", "o-1", "2")
		s.append("billing.sent", "b-1", "3")
		r.stop(0)
		r = s.relay("--to", "stdout:")
		r.says(": paused\n")
		select {
		case line := <-r.lines:
			t.Errorf("published in a pause: %s", line)
		default:
		}
		s.done("outbox", "pause", "--topic", "billing.*", "--reason", "audit", "--yes")
		s.done("outbox", "resume", "--reason", "moved", "--yes")
		if got := r.next(); got != "2" {
			t.Errorf("published %s", got)
		}
		if r := s.done("outbox", "status"); !strings.Contains(r.out, "paused topics: billing.*") {
			t.Error(r.out)
		}
		s.done("outbox", "resume", "--topic", "billing.*", "--reason", "over", "--yes")
		if got := r.next(); got != "3" {
			t.Errorf("published %s", got)
		}
		r.stop(0)
		if n, text := s.audited("group_pause"); n != 2 {
			t.Errorf("%d pauses audited:\n%s", n, text)
		}
	})
	t.Run("[messages/RL16] [messages/RL17] another database than was published from is refused with 78 until it is adopted", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.append("orders.paid", "o-1", "1")
		got, _ := s.once(0)
		same(t, got, "1")
		s.append("orders.paid", "o-1", "2", "3")
		s.append("orders.paid", "o-2", "4")
		if _, err := s.db.ExecContext(t.Context(), "update idempo.outbox_groups set identity = replace(identity, substr(identity, 1, 4), '9999')"); err != nil {
			t.Fatal(err)
		}
		_, r := s.once(78)
		if !strings.Contains(r.err, "idempo outbox adopt") || r.out != "" {
			t.Errorf("%+v", r)
		}
		before := s.done("outbox", "list", "--json").out
		if r := s.run("outbox", "adopt", "--reason", "moved", "--yes"); r.code != 125 || !strings.Contains(r.err, "add --confirm main") {
			t.Errorf("%+v", r)
		}
		s.done("outbox", "adopt", "--reason", "moved", "--dry-run")
		if after := s.done("outbox", "list", "--json").out; after != before {
			t.Error("a dry run changed something")
		}
		s.done("outbox", "adopt", "--reason", "moved to the new cluster", "--confirm", "main")
		got, _ = s.once(0)
		if len(got) != 3 || slices.Index(got, "2") > slices.Index(got, "3") || slices.Contains(got, "1") {
			t.Errorf("published %v, want 2 before 3, and 4", got)
		}
		s.append("orders.paid", "o-1", "5")
		got, _ = s.once(0)
		same(t, got, "5")
		if n, text := s.audited("group_adopt"); n < 1 || !strings.Contains(text, "moved to the new cluster") {
			t.Errorf("%d adoptions audited:\n%s", n, text)
		}
	})
	t.Run("[messages/RL19] replay: the same ids in key order, the cursor untouched, resumable", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		ids := s.append("orders.paid", "o-1", "1", "2", "3")
		s.append("billing.sent", "b-1", "9")
		s.once(0)
		s.append("orders.paid", "o-1", "4") // not published yet, so not replayed
		r := s.done("outbox", "replay", "--topic", "orders.*", "--to", "stdout:", "--limit", "2", "--rate", "1000", "--reason", "ERP lost them", "--yes")
		var got []string
		for line := range strings.Lines(r.out) {
			var e struct {
				ID, IdempoReplay string
				Data             json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.ID); e.IdempoReplay == "" {
				t.Errorf("nothing says that it is a replay: %s", line)
			}
		}
		if !slices.Equal(got, ids[:2]) {
			t.Errorf("%v, want %v", got, ids[:2])
		}
		_, again, ok := strings.Cut(r.err, "this goes on:\n  idempo ")
		_, cursor, _ := strings.Cut(strings.TrimSpace(again), "--after ")
		if !ok || cursor == "" {
			t.Fatalf("%q", r.err)
		}
		r = s.done("outbox", "replay", "--topic", "orders.*", "--to", "stdout:", "--reason", "ERP lost them", "--yes", "--after", cursor)
		if strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, ids[2]) {
			t.Errorf("then %s", r.out)
		}
		left, _ := s.once(0)
		same(t, left, "4")
		if n, _ := s.audited("replay"); n != 2 {
			t.Errorf("%d replays audited", n)
		}
		s.want(125, "", "idempo: --to: where to is required, as in stdout: or nats://HOST:4222\n", "outbox", "replay", "--topic", "x", "--reason", "x", "--yes")
	})
	t.Run("append, groups: what a person does by hand", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		id := strings.TrimSpace(s.done("outbox", "append", "--source", "/ops", "--topic", "ops.test", "--type", "Test", "--payload", `{"by":"hand"}`, "--reason", "a test", "--yes").out)
		got, r := s.once(0)
		same(t, got, `{"by":"hand"}`)
		if !strings.Contains(r.out, id) {
			t.Errorf("%s is not in %s", id, r.out)
		}
		if n, text := s.audited("append"); n != 1 || !strings.Contains(text, "a test") {
			t.Errorf("%d: %s", n, text)
		}
		if r := s.run("outbox", "append", "--source", "/ops", "--topic", "a b", "--type", "T", "--reason", "x", "--yes"); r.code != 125 || !strings.Contains(r.err, "only letters, digits") {
			t.Errorf("%+v", r)
		}
		s.done("outbox", "groups", "add", "erp", "--from", "now", "--topic", "billing.*", "--reason", "new", "--yes")
		if r := s.done("outbox", "groups", "list"); !strings.Contains(r.out, "erp") || !strings.Contains(r.out, "billing.*") {
			t.Error(r.out)
		}
		if r := s.run("outbox", "groups", "rm", "erp", "--reason", "x", "--yes"); r.code != 125 || !strings.Contains(r.err, "add --confirm erp") {
			t.Errorf("%+v", r)
		}
		s.done("outbox", "groups", "rm", "erp", "--reason", "replaced", "--confirm", "erp")
		if r := s.done("outbox", "groups", "list"); strings.Contains(r.out, "erp") {
			t.Error(r.out)
		}
	})
	t.Run("[messages/RL26] cdc prints a publication by the partition root and a connector whose columns exist with the type that they need", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		r := s.done("outbox", "cdc", "--connector", "debezium", "--slot", "shop_cdc", "--topic-prefix", "shop.")
		statements, connector, _ := strings.Cut(r.out, "{\n")
		var c struct{ Config map[string]string }
		if err := json.Unmarshal([]byte("{"+connector), &c); err != nil {
			t.Fatal(err, r.out)
		}
		if _, err := s.db.ExecContext(t.Context(), statements); err != nil {
			t.Errorf("the printed SQL: %v\n%s", err, statements)
		}
		var root bool
		if err := s.db.QueryRowContext(t.Context(), "select pubviaroot from pg_publication where pubname = 'shop_cdc'").Scan(&root); err != nil || !root {
			t.Errorf("published via the root: %v, %v", root, err)
		}
		types := map[string]string{}
		rows, err := s.db.QueryContext(t.Context(), "select column_name, data_type from information_schema.columns where table_schema = 'idempo' and table_name = 'outbox'")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name, kind string
			if err := rows.Scan(&name, &kind); err != nil {
				t.Fatal(err)
			}
			types[name] = kind
		}
		const field = "transforms.outbox.table.field.event."
		for member, kind := range map[string]string{field + "id": "uuid", field + "key": "text", field + "payload": "bytea", field + "timestamp": "timestamp without time zone",
			"transforms.outbox.route.by.field": "text"} {
			if got := types[c.Config[member]]; got != kind {
				t.Errorf("%s is column %s of type %q, want %s", member, c.Config[member], got, kind)
			}
		}
		for one := range strings.SplitSeq(c.Config["transforms.outbox.table.fields.additional.placement"], ",") {
			if column, _, _ := strings.Cut(one, ":"); types[column] == "" {
				t.Errorf("no column %q", column)
			}
		}
		if c.Config["table.include.list"] != "idempo.outbox" || c.Config["value.converter"] != "io.debezium.converters.BinaryDataConverter" ||
			c.Config["transforms.outbox.route.topic.replacement"] != "shop.${routedByValue}" || strings.Contains(r.out, "@") {
			t.Error(r.out)
		}
		s.want(125, "", "idempo: --connector: unknown value \"debezum\"\n  did you mean debezium?\n", "outbox", "cdc", "--connector", "debezum")
	})
}

func TestOutboxExamples(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	ran := 0
	for _, c := range everyCommand() {
		if !strings.HasPrefix(c.CommandPath(), "idempo outbox") && c.CommandPath() != "idempo relay" {
			continue
		}
		for example := range strings.SplitSeq(c.Example, "\n") {
			t.Run("[operations/OP1] "+example, func(t *testing.T) {
				ran++
				if r := s.run(shellSplit(strings.ReplaceAll(example, "'", `"`))[1:]...); r.code > 2 {
					t.Errorf("exit %d: %s", r.code, r.err)
				}
			})
		}
	}
	if ran < 25 {
		t.Errorf("void: %d examples", ran)
	}
}
