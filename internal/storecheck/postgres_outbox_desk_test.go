package storecheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// reason is who the tests are to the audit.
var reason = outbox.Audit{Actor: "tester", Role: "admin", Channel: "cli", Reason: "a test"}

func deskOf(s outboxStore) outbox.Desk {
	_, d := s.Outbox()
	return d
}

func holdOf(ctx context.Context, s outboxStore, group string) error {
	log, _ := s.Outbox()
	_, err := log.Hold(ctx, outbox.HoldParams{Group: group, Topics: []string{"*"}, Owner: "asks", Lease: time.Second})
	return err
}

// A place in memory may count transaction numbers as seen that a crash gives to others.
func TestPostgresOutboxServerCrash(t *testing.T) {
	t.Parallel()
	s := pgserver.Start(t, "synchronous_commit=on")
	p := openSQL(t, "pgx", s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
	b := newBox(t, p.Store)
	r := newLogReader(t, p.Store, "main")
	seen := map[string]int{}
	read := func() {
		for _, row := range r.all(10) {
			seen[string(row.Payload)]++
		}
	}
	for round := range 3 {
		for i := range 5 {
			must(t, appendOne(t.Context(), b, "k", fmt.Sprint(round, "-", i)))
		}
		read() // never stored
		old := r.places()
		s.Kill(t)
		s.Up(t)
		for { // a connection of before may have to find out that it is dead
			if err := appendOne(t.Context(), b, "k", fmt.Sprint(round, "-after")); err == nil {
				break
			}
		}
		page, err := r.s.Read(t.Context(), outbox.ReadParams{Group: "main", From: old, Topics: []string{"*"}, MaxRows: 10, MaxBytes: 1 << 20})
		if err != nil || len(page.Rows) > 0 || len(page.Next) > 0 {
			t.Fatalf("a place of before the crash read %q, %v", bodies(page.Rows), err)
		}
		if page.Epoch == r.epoch {
			t.Error("the relay is not told")
		}
		m, err := r.s.Move(t.Context(), outbox.MoveParams{Group: "main", Owner: r.owner, To: old})
		if err != nil || len(m.Lost) == 0 {
			t.Errorf("a place of before the crash was stored: %d lost, %v", len(m.Lost), err)
		}
		r.reconnect()
		for part, at := range r.at {
			if i := slices.IndexFunc(old, func(o outbox.Place) bool { return o.Partition == part }); old[i].Fence >= at.Fence {
				t.Fatalf("partition %d has fence %d after %d", part, at.Fence, old[i].Fence)
			}
		}
		read()
		for i := range 5 {
			if n := seen[fmt.Sprint(round, "-", i)]; n != 2 { // what was not stored comes again
				t.Errorf("round %d, event %d was read %d times", round, i, n)
			}
		}
		if n := seen[fmt.Sprint(round, "-after")]; n < 1 {
			t.Errorf("round %d: what came after the crash was read %d times", round, n)
		}
		r.store()
	}
}

func TestPostgresOutboxForeign(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, s outboxStore, say string) {
		t.Helper()
		if err := holdOf(t.Context(), s, "main"); !errors.Is(err, outbox.ErrForeignDatabase) || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "idempo outbox adopt") {
			t.Errorf("Hold = %v, want ErrForeignDatabase with %q", err, say)
		}
	}
	t.Run("[messages/RL17] a dump restored into another cluster: refused, then adopted", func(t *testing.T) {
		t.Parallel()
		dsn := postgresDSN(t)
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		for i := range 6 {
			o.append(fmt.Sprint("k", i%2), fmt.Sprint("done", i))
		}
		r.all(10)
		r.store()
		for i := range 9 {
			o.append(fmt.Sprint("k", i%3), fmt.Sprint("left", i))
		}
		o.append("", "left without a key")
		s := pgserver.Start(t)
		restore(t, dsn, s.DSN(), o.o.Schema)
		p := openSQL(t, "pgx", s.DSN(), o.o)
		refused(t, p.Store, "last published from system")
		status, err := deskOf(p.Store).Status(t.Context(), outbox.StatusParams{})
		if err != nil || len(status.Groups) != 1 || !status.Groups[0].Foreign {
			t.Errorf("status %+v, %v", status.Groups, err)
		}
		b := newBox(t, p.Store)
		must(t, appendOne(t.Context(), b, "k0", "between"))
		if _, err := deskOf(p.Store).SetGroup(t.Context(), outbox.GroupParams{Group: "main", Action: outbox.GroupAdopt, Audit: reason}); err != nil {
			t.Fatal(err)
		}
		must(t, holdOf(t.Context(), p.Store, "main"))
		must(t, appendOne(t.Context(), b, "k1", "new"))
		n := newLogReader(t, p.Store, "main")
		var got []string
		for _, row := range n.all(10) {
			if !row.Blocked || string(row.Payload) != "new" {
				t.Errorf("the log gives %q, blocked %v", row.Payload, row.Blocked)
			}
		}
		for range 20 {
			taken, err := n.s.Take(t.Context(), outbox.TakeParams{Group: "main", Owner: n.owner, From: n.places(), Limit: 100, Behind: 100, MaxBytes: 1 << 20, Lease: time.Hour})
			must(t, err)
			m := outbox.MoveParams{Group: "main", Owner: n.owner}
			for _, a := range taken.Asides {
				got = append(got, a.Key+" "+string(a.Payload))
				at := n.at[a.Partition]
				at.Cursor = outbox.Cursor{}
				m.To = append(m.To, at)
				m.Asides = append(m.Asides, outbox.Setting{Row: a.Row, State: outbox.StatePublished})
			}
			if len(m.Asides) == 0 {
				break
			}
			if _, err := n.s.Move(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		byKey := map[string][]string{}
		for _, line := range got {
			key, body, _ := strings.Cut(line, " ")
			byKey[key] = append(byKey[key], body)
		}
		for key, want := range map[string][]string{"": {"left without a key"}, "k0": {"left0", "left3", "left6", "between"}, "k1": {"left1", "left4", "left7"}, "k2": {"left2", "left5", "left8"}} {
			if !slices.Equal(byKey[key], want) {
				t.Errorf("key %q: %q, want %q", key, byKey[key], want)
			}
		}
		if audited := queryOne(t, p, `select count(*)::text from SCHEMA.audit where action = 'group_adopt' and actor = 'tester'`); audited != "1" {
			t.Errorf("%s rows in the audit", audited)
		}
		for i := range 3 { // numbers of the other server mean nothing here
			must(t, appendOne(t.Context(), b, "k9", fmt.Sprint("later", i)))
			wantBodies(t, "later", n.all(10), fmt.Sprint("later", i))
			n.store()
		}
	})
	t.Run("cursors that have seen more than the server, and another database of the same cluster", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		o.append("k", "one")
		r.all(10)
		r.store()
		must(t, holdOf(t.Context(), o.p.Store, "main"))
		o.one(`update idempo.outbox_cursors set win = ' 4611686018427387904:4611686018427387904: 5' where part = 7 returning win`)
		refused(t, o.p.Store, "partition 7 has seen transactions")
		o.one(`update idempo.outbox_cursors set win = 'junk' where part = 7 returning win`)
		refused(t, o.p.Store, "partition 7")
		o.one(`update idempo.outbox_cursors set win = '' where part = 7 returning part::text`)
		must(t, holdOf(t.Context(), o.p.Store, "main"))
		dsn, name := postgresDSN(t), o.o.Schema+"_copy"
		_, err := o.db.ExecContext(t.Context(), `create database "`+name+`"`)
		must(t, err)
		t.Cleanup(func() { _, _ = openCleanup(dsn, `drop database if exists "`+name+`" with (force)`) })
		copied := strings.Replace(dsn, "/test?", "/"+name+"?", 1)
		restore(t, dsn, copied, o.o.Schema)
		refused(t, openSQL(t, "pgx", copied, o.o).Store, "this is system")
		if n := o.one(`select count(*)::text from idempo.outbox_relays`); n == "0" {
			t.Error("the original has no relay any more")
		}
	})
	t.Run("[messages/RL18] another environment publishes nothing", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		log, _ := o.p.Outbox()
		hold := func(environment string) (outbox.Held, error) {
			return log.Hold(t.Context(), outbox.HoldParams{Group: "main", Topics: []string{"*"}, Owner: "asks " + environment, Environment: environment, Lease: time.Minute, Want: 64})
		}
		_, err := hold("production")
		must(t, err)
		h, err := hold("staging")
		if !errors.Is(err, outbox.ErrEnvironment) || len(h.Leases) > 0 || !strings.Contains(err.Error(), "database says production, this relay says staging") {
			t.Errorf("staging: %+v, %v", h, err)
		}
		if n := o.one(`select count(*)::text from idempo.outbox_cursors where owner like '%staging'`); n != "0" {
			t.Errorf("staging has %s partitions", n)
		}
	})
}

func queryOne(t *testing.T, p *pg, q string) (text string) {
	t.Helper()
	must(t, p.db.QueryRowContext(t.Context(), strings.ReplaceAll(q, "SCHEMA", `"`+p.o.Schema+`"`)).Scan(&text))
	return text
}

// restore copies a schema by pg_dump and psql.
func restore(t *testing.T, from, to, schema string) {
	t.Helper()
	dump := exec.Command(pgserver.Program(t, "pg_dump"), "--schema", schema, "--no-owner", from)
	dump.Stderr = os.Stderr
	text, err := dump.Output()
	must(t, err)
	load := exec.Command(pgserver.Program(t, "psql"), "-q", "-v", "ON_ERROR_STOP=1", "-d", to)
	load.Stdin, load.Stderr = strings.NewReader(string(text)), os.Stderr
	must(t, load.Run())
}

func TestPostgresOutboxStatus(t *testing.T) {
	t.Parallel()
	t.Run("a session that holds the horizon is named", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		tx := o.open(`set application_name = 'the slow report'`, `set transaction isolation level repeatable read`, `select count(*) from idempo.outbox`)
		for {
			status, err := deskOf(o.p.Store).Status(t.Context(), outbox.StatusParams{})
			must(t, err)
			i := slices.IndexFunc(status.Holders, func(h outbox.Holder) bool { return h.Kind == "session" && strings.Contains(h.Text, "the slow report") })
			if i >= 0 {
				h := status.Holders[i]
				for _, part := range []string{"pid ", "user postgres", "database test", "idle in transaction"} {
					if !strings.Contains(h.Text, part) {
						t.Errorf("%q does not say %q", h.Text, part)
					}
				}
				break
			}
			select {
			case <-t.Context().Done():
				t.Fatalf("nobody is named: %+v", status.Holders)
			case <-time.After(50 * time.Millisecond): // it has to be old enough to be told
			}
		}
		must(t, tx.Rollback())
	})
	t.Run("what a group has not published, and of topics that nobody takes", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		log, desk := o.p.Outbox()
		_, err := log.Hold(t.Context(), outbox.HoldParams{Group: "main", Topics: []string{"orders.*"}, Owner: "one", Lease: time.Hour, Want: 64})
		must(t, err)
		add := func(topic string) {
			must(t, o.box.Do(t.Context(), func(ctx context.Context) error {
				_, err := o.box.Append(ctx, outbox.Event{Topic: topic, Key: "k", Type: "T", Payload: []byte("12345")})
				return err
			}))
		}
		for range 4 {
			add("orders.paid")
		}
		add("stray.one")
		add("stray.one")
		add("stray.two")
		late := o.open(sqlAppend("k9", "open"))
		status, err := desk.Status(t.Context(), outbox.StatusParams{})
		must(t, err)
		g := status.Groups[0]
		if g.Pending != 4 || g.Oldest <= 0 || len(g.Relays) != 1 || g.Relays[0].Partitions != 64 || g.Free != 0 || status.Rows != 7 || status.Bytes == 0 || status.Kept.IsZero() {
			t.Errorf("status %+v of %+v", g, status)
		}
		if len(status.Unmatched) != 2 || status.Unmatched[0].Topic != "stray.one" || status.Unmatched[0].Rows != 2 || status.Unmatched[0].Bytes != 10 {
			t.Errorf("unmatched %+v", status.Unmatched)
		}
		must(t, late.Commit())
		_, err = desk.Change(t.Context(), outbox.ChangeParams{Group: "main", Action: outbox.ActionDiscard, Topics: []string{"stray.one", "t"}, Audit: reason})
		must(t, err)
		status, err = desk.Status(t.Context(), outbox.StatusParams{})
		if err != nil || len(status.Unmatched) != 1 || status.Unmatched[0].Topic != "stray.two" {
			t.Errorf("after the discard: %+v, %v", status.Unmatched, err)
		}
	})
	t.Run("a read-only role sees the status, and changes nothing", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		newLogReader(t, o.p.Store, "main")
		o.append("k", "one")
		role := o.o.Schema + "_ro"
		for _, q := range []string{`create role "` + role + `" login`, `grant usage on schema "` + o.o.Schema + `" to "` + role + `"`, `grant select on all tables in schema "` + o.o.Schema + `" to "` + role + `"`} {
			_, err := o.db.ExecContext(t.Context(), q)
			must(t, err)
		}
		dsn := postgresDSN(t)
		t.Cleanup(func() { _, _ = openCleanup(dsn, `drop owned by "`+role+`"; drop role "`+role+`"`) })
		as := strings.Replace(dsn, "postgres@", role+"@", 1)
		ro, err := postgres.New(t.Context(), openDB(t, "pgx", as), o.o)
		must(t, err)
		status, err := deskOf(ro).Status(t.Context(), outbox.StatusParams{})
		if err != nil || len(status.Groups) != 1 || status.Groups[0].Pending != 1 {
			t.Errorf("status %+v, %v", status.Groups, err)
		}
		if l, err := deskOf(ro).List(t.Context(), outbox.ListParams{Group: "main"}); err != nil || len(l.Events) != 1 {
			t.Errorf("list %+v, %v", l, err)
		}
		if err := holdOf(t.Context(), ro, "main"); err == nil {
			t.Error("a read-only role became a relay")
		}
	})
	t.Run("a read-only server is a standby to a relay", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		o.append("k", "one")
		db := openDB(t, "pgx", postgresDSN(t))
		db.SetMaxOpenConns(1)
		s, err := postgres.New(t.Context(), db, o.o)
		must(t, err)
		_, err = db.ExecContext(t.Context(), "set default_transaction_read_only = on")
		must(t, err)
		if err := holdOf(t.Context(), s, "main"); !errors.Is(err, outbox.ErrStandby) {
			t.Errorf("Hold = %v", err)
		}
		_, err = db.ExecContext(t.Context(), "set default_transaction_read_only = off")
		must(t, err)
		must(t, holdOf(t.Context(), s, "main"))
	})
}
