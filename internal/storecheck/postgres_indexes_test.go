package storecheck

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/idempo/idempo/postgres"
)

// Indexes of tables that are full and in use are made without holding up anybody.
func TestPostgresIndexes(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	db := openDB(t, "pgx", dsn)
	// before is a schema without the index of what is due, with a write to its table open in a transaction: a build waits for
	// it to end.
	before := func(t *testing.T) (p *pg, writer *sql.Tx) {
		t.Helper()
		o := migrated(t, dsn, postgres.Options{})
		p = protocols()["pgx"](t, dsn, o)
		for p.count(t, `select count(*) from pg_indexes where schemaname = $1 and indexname = 'records_due'`, o.Schema) == 1 {
			must(t, postgres.Down(t.Context(), db, o))
		}
		writer, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		t.Cleanup(func() { _ = writer.Rollback() })
		_, err = writer.ExecContext(t.Context(), `lock table "`+o.Schema+`".records in row exclusive mode`)
		must(t, err)
		return p, writer
	}
	build := func(t *testing.T, p *pg) (over chan error, pid int) {
		t.Helper()
		over = make(chan error, 1)
		go func() { over <- postgres.Migrate(t.Context(), openDB(t, "pgx", dsn), p.o) }()
		const building = `select coalesce(max(pid), 0) from pg_stat_progress_create_index where relid = 'SCHEMA.records'::regclass`
		for pid = p.count(t, building); pid == 0; pid = p.count(t, building) {
			if pauseTest(t) {
				t.Fatal("no build was seen")
			}
		}
		return over, pid
	}
	valid := func(t *testing.T, p *pg) {
		t.Helper()
		if n := p.count(t, `select count(*) from pg_index where indexrelid = 'SCHEMA.records_due'::regclass and indisvalid`); n != 1 {
			t.Error("the index is not valid")
		}
		if n := p.count(t, `select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = $1::regnamespace and not i.indisvalid`, p.o.Schema); n != 0 {
			t.Errorf("%d invalid indexes are left", n)
		}
		_, err := postgres.New(t.Context(), db, p.o)
		must(t, err)
	}
	t.Run("[stores/MG5] keys are claimed and finished while an index is made", func(t *testing.T) {
		t.Parallel()
		p, writer := before(t)
		e := pgEngine(t, p)
		over, _ := build(t, p)
		for i := range 20 {
			_, err := e.Do(t.Context(), request([]string{"leased", "atomic"}[i%2], fmt.Sprint("beside ", i)), nothing)
			must(t, err)
		}
		select {
		case err := <-over:
			t.Fatalf("void run: the index was made before the calls ended: %v", err)
		default:
		}
		must(t, writer.Commit())
		must(t, <-over)
		valid(t, p)
	})
	t.Run("[stores/MG2] [stores/MG5] a build that was killed is made again", func(t *testing.T) {
		t.Parallel()
		p, writer := before(t)
		over, pid := build(t, p)
		_, err := db.ExecContext(t.Context(), `select pg_terminate_backend($1)`, pid)
		must(t, err)
		if err := <-over; err == nil {
			t.Fatal("void run: the build was not killed")
		}
		if n := p.count(t, `select count(*) from pg_index where indexrelid = to_regclass('SCHEMA.records_due') and not indisvalid`); n != 1 {
			t.Fatal("void run: nothing was left of it")
		}
		must(t, writer.Commit())
		must(t, postgres.Migrate(t.Context(), db, p.o))
		valid(t, p)
	})
	t.Run("[stores/MG2] ten at once make an index of a table in use: all succeed", func(t *testing.T) {
		t.Parallel()
		p, writer := before(t)
		over, _ := build(t, p)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				if err := postgres.Migrate(t.Context(), openDB(t, []string{"pgx", "postgres"}[i%2], dsn), p.o); err != nil {
					t.Error(err)
				}
			})
		}
		must(t, writer.Commit())
		wg.Wait()
		must(t, errors.Join(<-over))
		valid(t, p)
	})
}
