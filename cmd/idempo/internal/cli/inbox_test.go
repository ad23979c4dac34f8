package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/sqlite"
)

// consumer is an application with inboxes in the shell's store. Its handler fails as long as broken says so.
type consumer struct {
	s      *shell
	store  *database.Store
	engine *idempo.Engine
	broken error
	db     *sql.DB
}

func (s *shell) consumer() *consumer {
	s.t.Helper()
	file := filepath.Join(s.dir, "idempo.db")
	store, err := database.Open(s.t.Context(), config.Store{SQLite: file, AutoMigrate: true, Strict: true, BusyTimeout: 5 * time.Second}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = store.Close() })
	e, err := idempo.New(store.Store, idempo.Config{DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}}})
	if err != nil {
		s.t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(s.t.Context(), "create table if not exists effects (what text not null)"); err != nil {
		s.t.Fatal(err)
	}
	return &consumer{s: s, store: store, engine: e, broken: inbox.Permanent(errors.New("no tax rate\x1b[2J for it")), db: db}
}

func (c *consumer) inbox(name string, o inbox.Options) *inbox.Inbox {
	c.s.t.Helper()
	o.Subscriber, o.BackoffBase, o.BackoffMax = name, time.Hour, time.Hour
	in, err := inbox.New(c.engine, o)
	if err != nil {
		c.s.t.Fatal(err)
	}
	return in
}

func (c *consumer) handle(ctx context.Context, m inbox.Message) error {
	if _, err := sqlite.Tx(ctx).ExecContext(ctx, "insert into effects (what) values (?)", m.ID); err != nil {
		return err
	}
	return c.broken
}

func (c *consumer) give(in *inbox.Inbox, m inbox.Message, want inbox.Status) {
	c.s.t.Helper()
	out, err := in.Handle(c.s.t.Context(), m, c.handle)
	if err != nil || out.Status != want {
		c.s.t.Fatalf("%s: %+v %v", m.ID, out, err)
	}
}

// work runs what is due until n messages ran: processes that share a file may be some milliseconds apart.
func (c *consumer) work(in *inbox.Inbox, n int) {
	c.s.t.Helper()
	for began := time.Now(); n > 0; {
		ran, err := in.Once(c.s.t.Context(), c.handle)
		if n -= ran; err != nil || time.Since(began) > 20*time.Second {
			c.s.t.Fatalf("%d messages are still not due: %v", n, err)
		}
	}
}

func (c *consumer) effects(id string, want int) {
	c.s.t.Helper()
	var n int
	if err := c.db.QueryRowContext(c.s.t.Context(), "select count(*) from effects where what = ?", id).Scan(&n); err != nil || n != want {
		c.s.t.Errorf("%s had %d effects, %v; want %d", id, n, err, want)
	}
}

// box runs a command line of inbox on the shell's store.
func (s *shell) box(args ...string) result {
	s.t.Helper()
	return s.run(append(append([]string{"inbox"}, args...), "--store", "idempo.db")...)
}

type messageLine struct {
	Number                         int64
	Subscriber, Source, ID, Status string
	Reason, Lane, Version          string
	Attempts                       int
	NextAttempt                    *time.Time `json:"next_attempt"`
	FirstError                     string     `json:"first_error"`
	Tenant, Type                   string
	Audit                          []struct{ Action, Outcome, Reason, Actor, Before, After, Channel, Code string }
}

func (s *shell) listed(args ...string) (all []messageLine) {
	s.t.Helper()
	r := s.box(append([]string{"list", "--json"}, args...)...)
	if r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	for line := range strings.Lines(r.out) {
		var m messageLine
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			s.t.Fatal(err, line)
		}
		all = append(all, m)
	}
	return all
}

func (s *shell) shown(args ...string) (m messageLine) {
	s.t.Helper()
	r := s.box(append([]string{"show", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.out), &m); err != nil {
		s.t.Fatal(err, r)
	}
	return m
}

func ids(ms []messageLine) (out []string) {
	for _, m := range ms {
		out = append(out, m.ID)
	}
	return out
}

func message(id string) inbox.Message {
	return inbox.Message{Source: "orders", ID: id, Type: "OrderPaid", Body: []byte("body of " + id), Attempt: 1}
}

func TestInboxReading(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	c := s.consumer()
	billing, mail := c.inbox("billing", inbox.Options{}), c.inbox("mail", inbox.Options{})
	for i := range 3 {
		c.give(billing, message(fmt.Sprint("m-", i)), inbox.StatusDead)
	}
	lane := message("l-1")
	lane.Lane = "order-81"
	c.broken = errors.New("not now")
	c.give(mail, lane, inbox.StatusRetrying)
	lane.ID = "l-2"
	c.give(mail, lane, inbox.StatusStored)
	c.broken = nil
	c.give(billing, message("fine"), inbox.StatusDone)
	t.Run("status counts by inbox", func(t *testing.T) {
		r := s.box("status", "--json")
		if r.code != 0 || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, `{"schema":1,"subscriber":"billing","retrying":0,"stored":0,"dead":3,"parked":0,"in_doubt":0,"blocked_lanes":0,"oldest_seconds":`) ||
			!strings.Contains(r.out, `"subscriber":"mail","retrying":1,"stored":1,"dead":0`) {
			t.Errorf("%+v", r)
		}
		r = s.box("status")
		if r.code != 0 || !strings.HasPrefix(r.out, "SUBSCRIBER           RETRYING   STORED     DEAD   PARKED IN DOUBT  BLOCKED   OLDEST\nbilling                     0        0        3 ") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("list --json has exactly the members that are documented", func(t *testing.T) {
		r := s.box("list", "--json", "--limit", "1")
		var m map[string]any
		if err := json.Unmarshal([]byte(r.out), &m); err != nil {
			t.Fatal(err)
		}
		var names []string
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		want := strings.Fields("attempts first_error id lane last_error next_attempt reason received_at schema source status subscriber version")
		if !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
	})
	t.Run("filters intersect, the list is complete in pages", func(t *testing.T) {
		for args, want := range map[string]string{
			"":                                     "m-0 m-1 m-2 l-1 l-2",
			"--status dead":                        "m-0 m-1 m-2",
			"--status stored":                      "l-2",
			"--subscriber mail":                    "l-1 l-2",
			"--lane order-81 --status retrying":    "l-1",
			"--reason permanent --id m-1":          "m-1",
			"--source nowhere":                     "",
			"--older-than 1h":                      "",
			"--newer-than 1h --subscriber billing": "m-0 m-1 m-2",
			"--tenant default --reason lane":       "l-2",
			"--tenant other":                       "",
			"--subscriber billing --source orders --limit 2": "m-0 m-1",
		} {
			if got := strings.Join(ids(s.listed(strings.Fields(args)...)), " "); got != want {
				t.Errorf("%q: %s, want %s", args, got, want)
			}
		}
		var all []string
		after := ""
		for range 10 {
			args := []string{"list", "--json", "--limit", "1"}
			if after != "" {
				args = append(args, "--after", after)
			}
			r := s.box(args...)
			var m messageLine
			if err := json.Unmarshal([]byte(r.out), &m); err != nil {
				t.Fatal(err, r)
			}
			all = append(all, m.ID)
			_, cursor, more := strings.Cut(strings.TrimSpace(r.err), "more: --after ")
			if after = cursor; !more {
				break
			}
		}
		if got := strings.Join(all, " "); got != "m-0 m-1 m-2 l-1 l-2" {
			t.Error(got)
		}
	})
	t.Run("show explains one, by number, by reference and by filters", func(t *testing.T) {
		one := s.shown("--id", "m-1")
		if one.Number == 0 || one.Status != "dead" || one.Reason != "permanent" || one.Tenant != "default" || one.Type != "OrderPaid" {
			t.Fatalf("%+v", one)
		}
		r := s.box("show", fmt.Sprint(one.Number))
		for _, want := range []string{"subscriber   billing\n", "status       dead, permanent, since ", "body         11 bytes, 0 headers\n", `no tax rate\x1b[2J for it`,
			"idempo inbox retry " + fmt.Sprint(one.Number)} {
			if !strings.Contains(r.out, want) {
				t.Errorf("no %q in\n%s", want, r.out)
			}
		}
		_, ref, _ := strings.Cut(strings.SplitN(r.out, "\n", 2)[0], ", ")
		if got := s.shown(ref); got.Number != one.Number {
			t.Errorf("by %q: %+v", ref, got)
		}
		if r := s.box("show", fmt.Sprint(one.Number), "--body"); r.out != "body of m-1" {
			t.Errorf("%+v", r)
		}
		s.want(1, "", "idempo: no such message\n", "inbox", "show", "4711", "--store", "idempo.db")
		s.want(125, "", "idempo: \"m-1\" is neither the number of a message, as idempo inbox list shows it, nor a reference\n", "inbox", "show", "m-1", "--store", "nowhere.db")
		s.want(125, "", "idempo: --status: unknown value \"ded\"\n  did you mean dead?\n", "inbox", "list", "--status", "ded", "--store", "nowhere.db")
	})
	t.Run("no line of a list is wider than a terminal, and no byte of a message moves the cursor", func(t *testing.T) {
		r := s.box("list")
		for line := range strings.Lines(r.out) {
			if len(line) > 81 || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\n") {
				t.Errorf("%q", line)
			}
		}
	})
}

func TestInboxActing(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (*shell, *consumer, *inbox.Inbox) {
		t.Helper()
		s := newShell(t)
		c := s.consumer()
		in := c.inbox("billing", inbox.Options{})
		for i := range 3 {
			c.give(in, message(fmt.Sprint("m-", i)), inbox.StatusDead)
		}
		return s, c, in
	}
	t.Run("[messages/I16] retry runs dead ones again, attempts from 0, and says what it left alone", func(t *testing.T) {
		s, c, in := open(t)
		r := s.box("retry", "--subscriber", "billing", "--status", "dead", "--reason", "tax table fixed", "--yes", "--json")
		if r.code != 0 || r.out != `{"schema":1,"action":"retry","matched":3,"ok":3,"failed":0,"skipped":0,"failures":[],"dry_run":false}`+"\n" {
			t.Fatalf("%+v", r)
		}
		if all := s.listed(); len(all) != 3 || all[0].Status != "stored" || all[0].Attempts != 0 || all[0].NextAttempt == nil || all[0].FirstError != "" {
			t.Errorf("%+v", all)
		}
		again := s.box("retry", "--subscriber", "billing", "--reason", "once more", "--yes")
		if again.code != 0 || again.err != "0 messages to be retried, 3 passed over: their state does not allow it\n" {
			t.Errorf("%+v", again)
		}
		c.broken = nil
		c.work(in, 3)
		for i := range 3 {
			c.effects(fmt.Sprint("m-", i), 1)
		}
		if all := s.listed(); len(all) != 0 {
			t.Errorf("left: %+v", all)
		}
	})
	t.Run("[operations/OP17] reason, dry run, confirmation, exit codes and audit are those of keys", func(t *testing.T) {
		s, _, _ := open(t)
		n := fmt.Sprint(s.shown("--id", "m-0").Number)
		for _, verb := range []string{"retry", "skip", "discard"} {
			s.want(125, "", "idempo: a reason is required: it stays in the audit\n  add --reason \"why\"\n", "inbox", verb, n, "--yes", "--store", "idempo.db")
			s.want(125, "", "idempo: name the message, or say by filters which ones\n  see: idempo inbox "+verb+" --help\n", "inbox", verb, "--yes", "--reason", "x", "--store", "nowhere.db")
			before := s.box("list", "--json").out + s.do("audit", "--json").out
			if r := s.box(verb, n, "--reason", "x", "--dry-run", "--json"); r.code != 0 || !strings.Contains(r.out, `"ok":1,"failed":0,"skipped":0,"failures":[],"dry_run":true}`) {
				t.Errorf("%+v", r)
			}
			if r := s.box(verb, n, "--reason", "x"); r.code != 125 || !strings.HasSuffix(r.err, "nothing was done\n  add --yes\n") {
				t.Errorf("%+v", r)
			}
			if after := s.box("list", "--json").out + s.do("audit", "--json").out; after != before {
				t.Errorf("%s changed something:\n%s\n%s", verb, before, after)
			}
			r := s.box(verb, "4711", "--reason", "x", "--yes")
			if r.code != 1 || r.err != "idempo: no such message\n" {
				t.Errorf("%+v", r)
			}
			if a := s.do("audit", "--json", "--newest", "--limit", "1"); !strings.Contains(a.out, `"action":"`+verb+`"`) || !strings.Contains(a.out, `"code":"not_found"`) {
				t.Errorf("an action on nothing is not audited: %s", a.out)
			}
		}
		if r := s.person("y\n", "inbox", "skip", n, "--reason", "refunded by hand"); r.code != 0 || !strings.Contains(r.err, "is completed without its effect") || !strings.Contains(r.err, "Skip 1 message? [y/N]") {
			t.Errorf("%+v", r)
		}
		if r := s.person("because\nn\n", "inbox", "discard", n); r.code != 1 || !strings.Contains(r.err, "Reason, for the audit: ") || !strings.Contains(r.err, "not confirmed; nothing was done") {
			t.Errorf("%+v", r)
		}
		m := s.shown(n)
		if m.Status != "stored" || m.Reason != "skip" || len(m.Audit) != 1 || m.Audit[0].Reason != "refunded by hand" || m.Audit[0].Before != "dead" || m.Audit[0].After != "stored" ||
			m.Audit[0].Channel != "cli" || !strings.Contains(m.Audit[0].Actor, "@") {
			t.Errorf("%+v", m)
		}
		r := s.box("retry", n, "--reason", "x", "--yes", "--json")
		if r.code != 1 || !strings.Contains(r.err, `"code":"wrong_state"`) {
			t.Errorf("%+v", r)
		}
		if m := s.shown(n); len(m.Audit) != 2 || m.Audit[1].Code != "wrong_state" || m.Audit[1].Outcome != "refused" {
			t.Errorf("a refusal is not audited: %+v", m.Audit)
		}
	})
	t.Run("[operations/OP17] a bulk has a limit, a cursor that goes on, and does nothing twice", func(t *testing.T) {
		s, _, _ := open(t)
		r := s.box("discard", "--status", "dead", "--limit", "2", "--reason", "a test's", "--yes")
		if r.code != 0 || !strings.Contains(r.err, "2 messages discarded, 0 had moved\nthere are more; this goes on:\n  idempo inbox discard --status dead --limit 2 --reason 'a test'\\''s' --yes --store idempo.db --after ") {
			t.Fatalf("%+v", r)
		}
		if got := ids(s.listed()); !slices.Equal(got, []string{"m-2"}) {
			t.Errorf("left %v", got)
		}
		if r := s.box("discard", "--status", "dead", "--reason", "the rest", "--yes"); r.code != 0 || !strings.Contains(r.err, "1 message discarded, 0 had moved\n") {
			t.Errorf("%+v", r)
		}
		if a := s.do("audit", "--json", "--action", "discard"); strings.Count(a.out, `"outcome":"done"`) != 3 || strings.Count(a.out, `"operation":"inbox:billing"`) != 3 {
			t.Error(a.out)
		}
	})
	t.Run("skip completes without effect, and the lane goes on; a copy is a duplicate", func(t *testing.T) {
		s := newShell(t)
		c := s.consumer()
		in := c.inbox("billing", inbox.Options{})
		one, two := message("l-1"), message("l-2")
		one.Lane, two.Lane = "order-81", "order-81"
		c.give(in, one, inbox.StatusDead)
		c.give(in, two, inbox.StatusStored)
		c.broken = nil
		if n, err := in.Once(t.Context(), c.handle); n != 0 || err != nil {
			t.Errorf("%d ran behind a dead one, %v", n, err)
		}
		if r := s.box("skip", "--id", "l-1", "--reason", "refunded", "--yes"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		c.work(in, 2)
		c.effects("l-1", 0)
		c.effects("l-2", 1)
		c.give(in, one, inbox.StatusDuplicate)
		if all := s.listed(); len(all) != 0 {
			t.Errorf("left: %+v", all)
		}
	})
	t.Run("[messages/I6] a conflict runs only by retry --accept", func(t *testing.T) {
		s := newShell(t)
		c := s.consumer()
		in := c.inbox("billing", inbox.Options{})
		c.broken = nil
		c.give(in, message("a"), inbox.StatusDone)
		other := message("a")
		other.Body = []byte("another")
		c.give(in, other, inbox.StatusParked)
		r := s.box("retry", "--id", "a", "--reason", "x", "--yes")
		if r.code != 0 || !strings.Contains(r.err, "0 messages to be retried, 1 passed over") {
			t.Errorf("%+v", r)
		}
		n := fmt.Sprint(s.shown("--id", "a").Number)
		if r := s.box("retry", n, "--reason", "x", "--yes"); r.code != 1 || !strings.Contains(r.err, "add --accept") {
			t.Errorf("%+v", r)
		}
		if r := s.box("skip", n, "--reason", "x", "--yes"); r.code != 1 || !strings.Contains(r.err, "no identity of its own") {
			t.Errorf("%+v", r)
		}
		if r := s.box("retry", n, "--accept", "--reason", "x", "--yes"); r.code != 0 {
			t.Errorf("%+v", r)
		}
		c.work(in, 1)
		c.effects("a", 2)
	})
	t.Run("[messages/I24] a gap is released by subscriber and lane", func(t *testing.T) {
		s := newShell(t)
		c := s.consumer()
		c.broken = nil
		in := c.inbox("billing", inbox.Options{Order: inbox.OrderContiguous})
		for _, v := range []string{"4", "3"} {
			m := message("v-" + v)
			m.Lane, m.Version = "order-81", v
			c.give(in, m, inbox.StatusStored)
		}
		release := func(lane string, more ...string) result {
			return s.box(append([]string{"release", "--subscriber", "billing", "--lane", lane, "--reason", "1 and 2 were never sent", "--json"}, more...)...)
		}
		if r := release("order-81", "--dry-run"); r.code != 0 || r.out != `{"schema":1,"action":"release","subscriber":"billing","lane":"order-81","version":"3","dry_run":true}`+"\n" {
			t.Errorf("%+v", r)
		}
		if n, err := in.Once(t.Context(), c.handle); n != 0 || err != nil {
			t.Errorf("%d ran in a gap, %v", n, err)
		}
		if r := release("order-9", "--yes"); r.code != 1 || !strings.Contains(r.err, "no such lane") {
			t.Errorf("%+v", r)
		}
		if r := release("order-81", "--yes"); r.code != 0 {
			t.Errorf("%+v", r)
		}
		c.work(in, 2)
		c.effects("v-3", 1)
		c.effects("v-4", 1)
		if a := s.do("audit", "--json", "--action", "release"); strings.Count(a.out, "\n") != 2 || strings.Count(a.out, `"outcome":"done"`) != 1 {
			t.Error(a.out)
		}
	})
}
