package storecheck

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/outbox"
	"github.com/idempo/idempo/postgres"
)

// openOutbox is a store on a schema of its own with an outbox, and SQL beside it.
type openOutbox struct {
	*functions
	p   *pg
	box *outbox.Outbox
}

func newOpenOutbox(t *testing.T) *openOutbox {
	t.Helper()
	f := newFunctions(t)
	p := openSQL(t, "pgx", postgresDSN(t), f.o)
	return &openOutbox{f, p, newBox(t, p.Store)}
}

// append commits an event of a key through Go.
func (o *openOutbox) append(key, body string) {
	o.t.Helper()
	must(o.t, appendOne(o.t.Context(), o.box, key, body))
}

func appendOne(ctx context.Context, b *outbox.Outbox, key, body string) error {
	return b.Do(ctx, func(ctx context.Context) error {
		_, err := b.Append(ctx, outbox.Event{Topic: "t", Key: key, Type: "T", Payload: []byte(body)})
		return err
	})
}

// open begins a transaction on a connection of its own, and runs statements in it.
func (f *functions) open(statements ...string) *sql.Tx {
	f.t.Helper()
	return openTx(f.t, f.db, f, statements...)
}

func openTx(t testing.TB, db *sql.DB, f *functions, statements ...string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, q := range statements {
		_, err := tx.ExecContext(t.Context(), f.text(q))
		must(t, err)
	}
	return tx
}

// sqlAppend is a call of the function for an event of a key.
func sqlAppend(key, body string) string {
	return fmt.Sprintf(`select idempo.outbox_append('t', '%s', 'T', '%s', '/sql')`, key, body)
}

func bodies(rows []outbox.Row) (all []string) {
	for _, r := range rows {
		all = append(all, string(r.Payload))
	}
	return all
}

func wantBodies(t *testing.T, what string, rows []outbox.Row, want ...string) {
	t.Helper()
	got := bodies(rows)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: read %q, want %q", what, got, want)
	}
}

// A snapshot lists as open only what is below the newest transaction that has ended. A writer with a number above that has
// drawn its sequence value already: whoever takes the sequence's value for the end of what is known loses its event.
func TestPostgresOutboxLateCommit(t *testing.T) {
	t.Parallel()
	t.Run("a writer whose number is above every ended one commits below the cursor", func(t *testing.T) {
		t.Parallel()
		s := pgserver.Start(t, "autovacuum=off") // nothing else draws transaction numbers here
		p := openSQL(t, "pgx", s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
		b := newBox(t, p.Store)
		f := &functions{t: t, db: openDB(t, "pgx", s.DSN()), o: p.o}
		r := newLogReader(t, p.Store, "main")
		must(t, appendOne(t.Context(), b, "k", "first"))
		wantBodies(t, "before", r.all(10), "first")
		r.store()
		for i := range 20 {
			late := f.open(sqlAppend(fmt.Sprint("late", i), fmt.Sprint("late", i)))
			wantBodies(t, "while it is open", r.all(10))
			if i%2 == 0 {
				r.store()
			}
			must(t, late.Commit())
			wantBodies(t, "once it has committed", r.all(10), fmt.Sprint("late", i))
			if i%3 == 0 {
				r.store()
				r.hold()
			}
		}
	})
	t.Run("two writers, the earlier number with the later sequence value", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		early := o.open(`select pg_current_xact_id()`)
		late := o.open(sqlAppend("b", "b"))
		wantBodies(t, "two are open", r.all(10))
		_, err := early.ExecContext(t.Context(), o.text(sqlAppend("a", "a")))
		must(t, err)
		must(t, early.Commit())
		wantBodies(t, "the earlier one", r.all(10), "a")
		r.store()
		must(t, late.Commit())
		wantBodies(t, "the later one", r.all(10), "b")
	})
	t.Run("a subtransaction that is rolled back leaves nothing, one that is released everything", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		tx := o.open(sqlAppend("k", "1"), "savepoint s", sqlAppend("k", "2"), "rollback to s", sqlAppend("k", "3"), "savepoint s", sqlAppend("k", "4"), "release s")
		wantBodies(t, "open", r.all(10))
		r.store()
		must(t, tx.Commit())
		if got := bodies(r.all(10)); !slices.Equal(got, []string{"1", "3", "4"}) {
			t.Errorf("read %q", got)
		}
	})
}

func TestPostgresOutboxOpenTransactions(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	beside := func(t *testing.T, name string, hold func(t *testing.T, o *openOutbox) (end func()), own ...string) {
		t.Helper()
		t.Run("[messages/O3] "+name, func(t *testing.T) {
			t.Parallel()
			o := newOpenOutbox(t)
			r := newLogReader(t, o.p.Store, "main")
			end := hold(t, o)
			for i := range 10 {
				o.append("k", fmt.Sprint(i))
				wantBodies(t, "beside it", r.all(10), fmt.Sprint(i))
				r.store()
			}
			end()
			wantBodies(t, "its own at once", r.all(10), own...)
		})
	}
	commit := func(t *testing.T, tx *sql.Tx) func() { return func() { must(t, tx.Commit()) } }
	beside(t, "a transaction of this table", func(t *testing.T, o *openOutbox) func() {
		return commit(t, o.open(sqlAppend("x", "own")))
	}, "own")
	beside(t, "a transaction of another table", func(t *testing.T, o *openOutbox) func() {
		return commit(t, o.open(`insert into idempo.effects (what) values ('elsewhere')`))
	})
	beside(t, "a transaction in another database", func(t *testing.T, o *openOutbox) func() {
		db := openDB(t, "pgx", strings.Replace(dsn, "/test?", "/postgres?", 1))
		return commit(t, openTx(t, db, o.functions, `select pg_current_xact_id()`))
	})
	beside(t, "a reader with a snapshot of its own", func(t *testing.T, o *openOutbox) func() {
		return commit(t, o.open(`set transaction isolation level repeatable read`, `select count(*) from idempo.outbox`))
	})
	t.Run("[messages/O3] a transaction that is prepared and forgotten", func(t *testing.T) {
		t.Parallel()
		s := pgserver.Start(t, "max_prepared_transactions=5")
		p := openSQL(t, "pgx", s.DSN(), migrated(t, s.DSN(), postgres.Options{}))
		b, f := newBox(t, p.Store), &functions{t: t, db: openDB(t, "pgx", s.DSN()), o: p.o}
		r := newLogReader(t, p.Store, "main")
		conn, err := f.db.Conn(t.Context())
		must(t, err)
		defer func() { _ = conn.Close() }()
		for _, q := range []string{"begin", sqlAppend("x", "prepared"), "prepare transaction 'forgotten'"} {
			_, err := conn.ExecContext(t.Context(), f.text(q))
			must(t, err)
		}
		for i := range 10 {
			must(t, appendOne(t.Context(), b, "k", fmt.Sprint(i)))
			wantBodies(t, "beside it", r.all(10), fmt.Sprint(i))
			r.store()
		}
		t.Cleanup(func() { _, _ = openCleanup(s.DSN(), "rollback prepared 'forgotten'") })
		s.Restart(t)
		r.reconnect()
		must(t, appendOne(t.Context(), b, "k", "after"))
		wantBodies(t, "after a restart", r.all(10), "after")
		_, desk := p.Outbox()
		for named := false; !named; { // once it is a second old
			status, err := desk.Status(t.Context(), outbox.StatusParams{})
			must(t, err)
			named = slices.ContainsFunc(status.Holders, func(h outbox.Holder) bool {
				return h.Kind == "prepared" && strings.Contains(h.Text, "forgotten") && h.Age > time.Second
			})
			if !named && pauseTest(t) {
				t.Fatalf("status names nobody: %+v", status.Holders)
			}
		}
		_, err = f.db.ExecContext(t.Context(), "commit prepared 'forgotten'")
		must(t, err)
		wantBodies(t, "when it is committed", r.all(10), "prepared")
	})
}

func TestPostgresOutboxKeyOrder(t *testing.T) {
	t.Parallel()
	t.Run("[messages/O4] version 2 does not commit before version 1 of its key, Go beside SQL", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		first := o.open(sqlAppend("k", "v1"))
		second := make(chan error, 1)
		go func() { second <- appendOne(context.Background(), o.box, "k", "v2") }()
		waiting := `select count(*)::text from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`
		for o.one(waiting) == "0" {
			select {
			case err := <-second:
				t.Fatalf("version 2 did not wait: %v", err)
			case <-time.After(5 * time.Millisecond): // it is on its way to the lock
			}
		}
		o.append("other", "other")
		wantBodies(t, "while version 1 is open", r.all(10), "other")
		must(t, first.Commit())
		must(t, <-second)
		if got := bodies(r.all(10)); !slices.Equal(got, []string{"v1", "v2"}) {
			t.Errorf("read %q", got)
		}
	})
	t.Run("[messages/O5] a deadlock is the database's error, nothing of it stays, and a retry works", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		a, b := o.open(sqlAppend("a", "a1")), o.open(sqlAppend("b", "b1"))
		done := make(chan error, 2)
		for tx, q := range map[*sql.Tx]string{a: sqlAppend("b", "a2"), b: sqlAppend("a", "b2")} {
			go func() {
				_, err := tx.ExecContext(context.Background(), o.text(q))
				if err == nil {
					err = tx.Commit()
				} else {
					_ = tx.Rollback()
				}
				done <- err
			}()
		}
		lost := 0
		for range 2 {
			if err := <-done; pgState(err) == "40P01" {
				lost++
			} else if err != nil {
				t.Error(err)
			}
		}
		if got := r.all(10); lost != 1 || len(got) != 2 {
			t.Errorf("%d were given up, read %q", lost, bodies(got))
		}
		o.append("a", "again")
		wantBodies(t, "again", r.all(10), "again")
	})
	t.Run("keys of one call are locked in one order, whatever order they come in", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		done := make(chan error, 8)
		for w := range cap(done) {
			go func() {
				var events []outbox.Event
				for i := range 40 {
					k := i
					if w%2 == 1 {
						k = 39 - i
					}
					events = append(events, outbox.Event{Topic: "t", Key: fmt.Sprint("k", k), Type: "T"})
				}
				var err error
				for i := 0; err == nil && i < 5; i++ {
					err = o.box.Do(context.Background(), func(ctx context.Context) error {
						_, err := o.box.Append(ctx, events...)
						return err
					})
				}
				done <- err
			}()
		}
		for range cap(done) {
			must(t, <-done)
		}
	})
}

func TestPostgresOutboxMany(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	t.Run("[messages/O5] 10,000 events in one transaction are few round trips", func(t *testing.T) {
		t.Parallel()
		p, flights := counted(t, dsn, migrated(t, dsn, postgres.Options{}))
		b := newBox(t, p.Store)
		var events []outbox.Event
		for i := range 10_000 {
			events = append(events, outbox.Event{Topic: "t", Key: fmt.Sprint("k", i%900), Type: "T", Payload: fmt.Appendf(nil, "%d", i)})
		}
		add := func() {
			must(t, b.Do(t.Context(), func(ctx context.Context) error {
				ids, err := b.Append(ctx, events...)
				if err == nil && len(ids) != len(events) {
					t.Errorf("%d ids", len(ids))
				}
				return err
			}))
		}
		add() // the connection learns the statements
		before := *flights
		add()
		if n := *flights - before; n > 60 { // what a socket takes at once counts, too
			t.Errorf("%d flights for 10,000 events", n)
		}
		r := newLogReader(t, p.Store, "main")
		found := r.all(1000)
		if len(found) != 20_000 {
			t.Fatalf("read %d", len(found))
		}
		last := map[string]int64{}
		for _, row := range found {
			if row.Seq <= last[row.Key] {
				t.Fatalf("%s goes back to %d", row.Key, row.Seq)
			}
			last[row.Key] = row.Seq
		}
	})
	t.Run("payloads together larger than one statement takes, and each as it was", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		big := bytes.Repeat([]byte{0, 1, 0xff}, 300<<10)
		must(t, o.box.Do(t.Context(), func(ctx context.Context) error {
			var events []outbox.Event
			for i := range 12 {
				events = append(events, outbox.Event{Topic: "t", Key: "k", Type: "T", Payload: append(fmt.Appendf(nil, "%02d", i), big...)})
			}
			events = append(events, outbox.Event{Topic: "t", Key: "k", Type: "T"}, outbox.Event{Topic: "t", Key: "k", Type: "T", Payload: []byte{}})
			_, err := o.box.Append(ctx, events...)
			return err
		}))
		found := r.all(1000)
		if len(found) != 14 {
			t.Fatalf("read %d", len(found))
		}
		for i, row := range found[:12] {
			if string(row.Payload[:2]) != fmt.Sprintf("%02d", i) || !bytes.Equal(row.Payload[2:], big) {
				t.Errorf("event %d came back as another", i)
			}
		}
		if found[12].Payload != nil || found[13].Payload == nil || len(found[13].Payload) != 0 {
			t.Error("nil and empty are the same")
		}
	})
	t.Run("[messages/O13] beyond 2^31 events, and around the ring without maintenance", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		r := newLogReader(t, o.p.Store, "main")
		o.append("k", "before")
		o.one(`select setval('idempo.outbox_seq', 2147483640)::text`)
		log, _ := o.p.Outbox()
		day := time.Date(2040, 1, 1, 12, 0, 0, 0, time.UTC)
		for i := range 40 { // more than once around
			must(t, o.p.InTx(t.Context(), func(ctx context.Context) error {
				e := outbox.Event{ID: outbox.IDFor("days", fmt.Sprint(i)), Source: "/s", Tenant: "default", Topic: "t", Key: "k", Type: "T", Payload: fmt.Appendf(nil, "%02d", i)}
				_, err := log.Append(ctx, outbox.AppendParams{Rows: []outbox.Row{{Event: e, Partition: outbox.PartitionOf(e.Tenant, e.Key, e.ID)}}, Lock: true, Now: day.AddDate(0, 0, i)})
				return err
			}))
		}
		found := r.all(7)
		if len(found) != 41 || found[40].Seq <= 1<<31 || string(found[40].Payload) != "39" || !found[40].Time.Equal(day.AddDate(0, 0, 39)) {
			t.Fatalf("read %d, the last %q with seq %d", len(found), found[len(found)-1].Payload, found[len(found)-1].Seq)
		}
		if n := o.one(`select count(distinct tableoid)::text from idempo.outbox`); n != "11" {
			t.Errorf("40 days are in %s slots", n)
		}
	})
}

func TestPostgresOutboxSessions(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, zone := range []string{"Asia/Tokyo", "America/New_York", "UTC"} {
		t.Run("sessions in "+zone, func(t *testing.T) {
			t.Parallel()
			o := migrated(t, dsn, postgres.Options{})
			p := openSQL(t, "pgx", withParam(t, dsn, "timezone", zone, "default_transaction_isolation", "serializable"), o)
			f := &functions{t: t, db: openDB(t, "pgx", withParam(t, dsn, "timezone", zone)), o: o}
			r := newLogReader(t, p.Store, "main")
			b := newBox(t, p.Store)
			before := time.Now().Add(-time.Hour)
			for i := range 5 {
				must(t, appendOne(t.Context(), b, "k", fmt.Sprint("go", i)))
				f.one(sqlAppend("k", fmt.Sprint("sql", i)))
				rows := r.all(10)
				wantBodies(t, zone, rows, fmt.Sprint("go", i), fmt.Sprint("sql", i))
				for _, row := range rows {
					if row.Time.Before(before) || row.Time.After(before.Add(2*time.Hour)) {
						t.Errorf("appended at %v", row.Time)
					}
				}
				r.store()
			}
			if got := f.one(`select count(*)::text from idempo.outbox where recorded_at <> appended_at at time zone 'UTC'`); got != "0" {
				t.Errorf("%s rows have two times", got)
			}
		})
	}
	t.Run("PgBouncer in transaction mode", func(t *testing.T) {
		t.Parallel()
		through := startPooler(t, dsn)
		opts := migrated(t, dsn, postgres.Options{})
		for name, open := range map[string]func() *pg{
			"pgx": func() *pg { return openPgx(t, withParam(t, through, "default_query_exec_mode", "exec"), opts) },
			"pq":  func() *pg { return openSQL(t, "postgres", through+"&binary_parameters=yes", opts) },
		} {
			readEverythingOf(t, open().Store, "group-"+name, 400)
		}
	})
	t.Run("[messages/O11] no transaction, one that is over, aborted, or read-only", func(t *testing.T) {
		t.Parallel()
		o := newOpenOutbox(t)
		e := outbox.Event{Topic: "t", Type: "T"}
		if _, err := o.box.Append(t.Context(), e); !errors.Is(err, outbox.ErrNoTx) {
			t.Errorf("without: %v", err)
		}
		var over context.Context
		must(t, o.box.Do(t.Context(), func(ctx context.Context) error { over = ctx; return nil }))
		if _, err := o.box.Append(over, e); err == nil {
			t.Error("a transaction that is over took an event")
		}
		for _, first := range []string{"select 1/0", "set transaction read only"} {
			tx, err := o.db.BeginTx(t.Context(), nil)
			must(t, err)
			_, _ = tx.ExecContext(t.Context(), first)
			if _, err := o.box.Append(postgres.WithTx(t.Context(), tx), e); err == nil {
				t.Errorf("%s: took an event", first)
			}
			_ = tx.Rollback()
		}
		done, err := o.db.BeginTx(t.Context(), nil)
		must(t, err)
		must(t, done.Commit())
		if _, err := o.box.Append(postgres.WithTx(t.Context(), done), e); err == nil {
			t.Error("a transaction that was committed took an event")
		}
		if n := o.one(`select count(*)::text from idempo.outbox`); n != "0" {
			t.Errorf("%s events", n)
		}
	})
}

func TestPostgresOutboxRefusedEvents(t *testing.T) {
	t.Parallel()
	o := newOpenOutbox(t)
	bad := func(args, say string) {
		t.Helper()
		tx := o.open("savepoint s")
		defer func() { _ = tx.Rollback() }()
		_, err := tx.ExecContext(t.Context(), o.text(`select idempo.outbox_append(`+args+`)`))
		if pgState(err) != "IP003" || !strings.Contains(err.Error(), say) {
			t.Errorf("%.80s: %v, want IP003 with %q", args, err, say)
		}
	}
	ok := func(args string) {
		t.Helper()
		if o.one(`select idempo.outbox_append(`+args+`)::text`) == "" {
			t.Errorf("%s: no id", args)
		}
	}
	t.Run("the function refuses what Append does", func(t *testing.T) {
		for _, topic := range []string{`null`, `''`, `'a b'`, `'a..b'`, `'.a'`, `'a.'`, `'ä'`, `repeat('a', 201)`, `e'a\n'`} {
			bad(topic+`, 'k', 'T', null, '/s'`, "topic")
		}
		for _, key := range []string{`repeat('k', 513)`, `repeat('ä', 257)`, `e'a\tb'`, `e'a\x7fb'`, `e'a\u0085b'`} {
			bad(`'t', `+key+`, 'T', null, '/s'`, "key")
		}
		for _, text := range []string{`null`, `''`, `repeat('x', 256)`, `e'a\nb'`} {
			bad(`'t', 'k', `+text+`, null, '/s'`, "type")
			bad(`'t', 'k', 'T', null, `+text, "source")
			if text != `null` {
				bad(`'t', 'k', 'T', null, '/s', tenant => `+text, "tenant")
			}
		}
		bad(`'t', 'k', 'T', null, '/s', content_type => repeat('x', 256)`, "content_type")
		bad(`'t', 'k', 'T', null, '/s', id => '00000000-0000-0000-0000-000000000000'`, "id")
		bad(`'t', 'k', 'T', decode(repeat('00', 983041), 'hex'), '/s'`, "payload")
		for _, h := range []string{`{"a": "b"}`, `["a"]`, `[["a"]]`, `[["a", 1]]`, `[["", "b"]]`, `[["a b", "c"]]`, `[["a", "b\nc"]]`, `[["a", "b\rc"]]`, `[["ce_id", "x"]]`, `[["CE-id", "x"]]`,
			`[["cloudEvents:id", "x"]]`, `[["Idempo-x", "x"]]`, `[["Nats-Msg-Id", "x"]]`, `[["webhook-id", "x"]]`, `[["Idempotency-Key", "x"]]`, `[["traceparent", "x"]]`, `[["TraceState", "x"]]`} {
			bad(`'t', 'k', 'T', null, '/s', headers => '`+h+`'`, "headers")
		}
		bad(`'t', 'k', 'T', null, '/s', headers => jsonb_build_array(jsonb_build_array('a', repeat('x', 16385)))`, "headers")
	})
	t.Run("and takes what it takes", func(t *testing.T) {
		ok(`repeat('a', 200), repeat('k', 512), repeat('x', 255), '\x00ff', '/s'`)
		ok(`'A.b_c-9', null, 'T', null, '/s'`)
		ok(`topic => 't', key => '', type => 'T', payload => '', source => '/s', id => '11111111-1111-4111-8111-111111111111'`)
		ok(`topic => 't', key => 'k', type => 'T', payload => '\x01', source => '/s', tenant => 'acme', headers => '[["x-a", "1"], ["x-a", "ü"]]', content_type => 'text/plain'`)
		r := newLogReader(t, o.p.Store, "main")
		rows := r.all(10)
		if len(rows) != 4 {
			t.Fatalf("read %d", len(rows))
		}
		last := rows[3]
		if last.Tenant != "acme" || last.ContentType != "text/plain" || !slices.Equal(last.Headers, [][2]string{{"x-a", "1"}, {"x-a", "ü"}}) || last.ID[14] != '7' {
			t.Errorf("came back as %+v", last)
		}
		if rows[2].ID != "11111111-1111-4111-8111-111111111111" || rows[2].Key != "" || rows[2].Payload == nil || rows[1].Payload != nil {
			t.Errorf("came back as %+v and %+v", rows[1], rows[2])
		}
		for _, row := range rows {
			if row.Partition != outbox.PartitionOf(row.Tenant, row.Key, row.ID) {
				t.Errorf("%+v is in partition %d", row.Event, row.Partition)
			}
		}
	})
	t.Run("a partition is the same in SQL and in Go", func(t *testing.T) {
		for _, e := range [][3]string{{"default", "k", ""}, {"ä", "key with ünïcode", ""}, {"t1", "1:k", ""}, {"t", "11:k", ""}, {"default", "", "0190b6a2-7c11-7a5e-8f00-0123456789ab"}} {
			want := fmt.Sprint(outbox.PartitionOf(e[0], e[1], e[2]))
			if got := o.one(`select idempo.outbox_partition($1, nullif($2, ''), nullif($3, '')::uuid)::text`, e[0], e[1], e[2]); got != want {
				t.Errorf("%v: %s in SQL, %s in Go", e, got, want)
			}
		}
	})
}

// slowConn counts what goes over the wire towards the client.
type slowConn struct {
	net.Conn
	read *int64
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	*c.read += int64(n)
	return n, err
}

func TestPostgresOutboxPages(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	opts := migrated(t, dsn, postgres.Options{})
	var wire int64
	c, err := pgxpool.ParseConfig(withParam(t, dsn, "pool_max_conns", "1"))
	must(t, err)
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &slowConn{conn, &wire}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	p := pgxStore(t, pool, dsn, opts)
	f := &functions{t: t, db: openDB(t, "pgx", dsn), o: opts}
	f.one(`select count(idempo.outbox_append('t', 'k' || n, 'T', decode(repeat('ab', 300), 'hex'), '/s'))::text from generate_series(1, 5000) n`)
	r := newLogReader(t, p.Store, "main")
	r.page(10, 1<<20)
	before := wire
	if n := len(r.page(100, 1<<20).Rows); n != 100 {
		t.Errorf("a page of %d rows", n)
	}
	if n := wire - before; n > 100*700+4096 {
		t.Errorf("a page of 100 rows of 300 bytes is %d bytes on the wire", n)
	}
	before = wire
	if rows := r.page(1000, 3000).Rows; len(rows) != 10 {
		t.Errorf("3,000 bytes are %d rows", len(rows))
	}
	if n := wire - before; n > 10*700+4096 {
		t.Errorf("a page of 3,000 bytes is %d bytes on the wire", n)
	}
	rest := r.all(1000)
	if len(rest) != 5000-120 {
		t.Errorf("read %d more", len(rest))
	}
}
