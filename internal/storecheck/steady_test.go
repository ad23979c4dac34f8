package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// steadied is a store whose tables can be weighed.
type steadied struct {
	idempo.Store
	rows  func(t *testing.T) int   // of table records
	size  func(t *testing.T) int64 // bytes of it and its indexes
	clean func(t *testing.T)       // returns when the server has had its turn with what is dead
}

// steady makes a window of records and then as many new ones as the sweep takes away, until each row has made room for others
// several times, and compares sizes. A record is finished, a tombstone for a while, and gone.
func (s steadied) steady(t *testing.T, window, windows int) {
	step, made, swept := window/10, 0, 0
	sweep := func() int {
		n, err := s.Store.(idempo.Sweeper).Sweep(t.Context(), step)
		must(t, err)
		swept += n
		return n
	}
	make := func(n int) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := i; k < n; k += 8 {
					p := leased(fmt.Sprint(t.Name(), " ", made+k))
					a, err := s.Acquire(t.Context(), p)
					if err != nil || a.Verdict != idempo.VerdictRun {
						t.Errorf("%v %v", a.Verdict, err)
						return
					}
					c := completing(p, a.Record.Attempt, idempo.Result{Status: 201, Body: []byte(strings.Repeat("x", 256))})
					c.Retention, c.Tombstone = time.Millisecond, 2*time.Second
					if _, err := s.Complete(t.Context(), c); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		made += n
		s.clean(t)
	}
	make(window)
	first := s.size(t)
	for made < windows*window && !t.Failed() {
		if room := window - s.rows(t); room >= step {
			make(room)
		}
		if sweep() == 0 && pauseTest(t) { // tombstones whose time has not come
			t.Fatal("the sweep stands still")
		}
	}
	last := s.size(t)
	t.Logf("%d records, %d rows at a time, %d swept: %d KiB after the first window, %d KiB at the end", made, window, swept, first>>10, last>>10)
	if swept < (windows-1)*window-step {
		t.Errorf("void: %d swept", swept)
	}
	if float64(last) > 1.6*float64(first) {
		t.Errorf("%d bytes after the first window, %d at the end: more than 1.6 times", first, last)
	}
}

func countIn(db *sql.DB, query string, args ...any) func(t *testing.T) int {
	return func(t *testing.T) (n int) {
		t.Helper()
		must(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
		return n
	}
}

func TestSteadyState(t *testing.T) {
	t.Parallel()
	t.Run("[stores/T9] PostgreSQL: a table in which as many rows go as come keeps its size", func(t *testing.T) {
		t.Parallel()
		// A window of a day has 1,440 turns of autovacuum. Here one lasts seconds, so it looks each second, and each step waits for it.
		server := pgserver.Start(t, "autovacuum_naptime=1")
		db := openDB(t, "pgx", server.DSN())
		must(t, postgres.Migrate(t.Context(), db, postgres.Options{}))
		p := openPgx(t, server.DSN(), postgres.Options{})
		size := countIn(db, `select pg_total_relation_size('idempo.records') + pg_total_relation_size('idempo.attempts')`)
		dead := countIn(db, `select n_dead_tup - 50 - n_live_tup / 50 from pg_stat_user_tables where relid = 'idempo.records'::regclass`) // as the table's setting says
		steadied{Store: p.Store, rows: countIn(db, `select count(*) from idempo.records`), size: func(t *testing.T) int64 { return int64(size(t)) },
			clean: func(t *testing.T) {
				for dead(t) > 0 && !pauseTest(t) {
				}
			}}.steady(t, 2000, 4)
	})
	t.Run("[stores/T9] MySQL or MariaDB: a table in which as many rows go as come keeps its size", func(t *testing.T) {
		t.Parallel()
		m := newMySQL(t, mysql.Options{}, nil)
		// Both servers tell the bytes of a table's file, under names of their own.
		tables := "information_schema.innodb_tablespaces"
		if m.count(t, "select count(*) from information_schema.tables where table_schema = 'information_schema' and table_name = 'INNODB_SYS_TABLESPACES'") > 0 {
			tables = "information_schema.innodb_sys_tablespaces"
		}
		size := countIn(m.db, "select sum(file_size) from "+tables+" where name in (?, ?)", m.c.DBName+"/idempo_records", m.c.DBName+"/idempo_attempts")
		steadied{Store: m.Store, rows: countIn(m.db, "select count(*) from idempo_records"), size: func(t *testing.T) int64 { return int64(size(t)) }, clean: func(*testing.T) {}}.steady(t, 1500, 3) // a file of InnoDB grows by four MiB at a time: less is no measure
	})
	t.Run("[stores/T9] SQLite: a file in which as many rows go as come keeps its size", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		db := sqliteRaw(t, file)
		steadied{Store: s, rows: countIn(db, "SELECT count(*) FROM idempo_records"), clean: func(*testing.T) {}, size: func(t *testing.T) int64 {
			st, err := os.Stat(file)
			must(t, err)
			return st.Size()
		}}.steady(t, 2000, 4)
	})
}

// TestPostgresDeadRows counts the versions of rows that calls leave behind, in every table of the store.
func TestPostgresDeadRows(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, opener := range pgOpeners() {
		t.Run(opener.name, func(t *testing.T) {
			t.Parallel()
			o := migrated(t, dsn, postgres.Options{})
			const calls = 40
			look := openDB(t, "pgx", dsn)
			dead := func(t *testing.T, ready func(t *testing.T, do func(operation string, n int, work func(*idempo.Claim)) idempo.Begun)) (versions int) {
				t.Helper()
				name := fmt.Sprintf("%s_%d", o.Schema, schemas.Add(1))
				p := opener.open(t, withParam(t, dsn, "application_name", name), o)
				must(t, p.db.Close())
				p.db = look
				e := pgEngine(t, p)
				written := func() int {
					return p.count(t, `select sum(n_tup_upd + n_tup_del + n_tup_ins)::int - (select count(*) from SCHEMA.records) - (select count(*) from SCHEMA.attempts)
						from pg_stat_user_tables where schemaname = '`+o.Schema+`' and relname in ('records', 'attempts', 'meta', 'audit')`)
				}
				before := written()
				ready(t, func(operation string, n int, work func(*idempo.Claim)) idempo.Begun {
					b, err := e.Do(t.Context(), idempo.Request{Key: idempo.Key{Tenant: "t", Operation: operation, ID: fmt.Sprint(t.Name(), n)}, Input: [][]byte{{1}}},
						func(_ context.Context, c *idempo.Claim) (idempo.Result, error) {
							if work != nil {
								work(c)
							}
							return idempo.Result{Status: 201, Body: []byte("x")}, nil
						})
					must(t, err)
					return b
				})
				p.leave() // a session tells what it did at its end, if not before
				for p.count(t, `select count(*) from pg_stat_activity where application_name = '`+name+`'`) > 0 && !pauseTest(t) {
				}
				return written() - before
			}
			leaves := func(what string, want int, ready func(t *testing.T, do func(string, int, func(*idempo.Claim)) idempo.Begun)) {
				t.Run(what, func(t *testing.T) {
					if got := dead(t, ready); got > want {
						t.Errorf("%d versions are dead, want %d at most", got, want)
					} else {
						t.Logf("%d versions are dead, of %d allowed", got, want)
					}
				})
			}
			leaves("[stores/T9] none by an atomic call", 0, func(_ *testing.T, do func(string, int, func(*idempo.Claim)) idempo.Begun) {
				for n := range calls {
					do("atomic", n, nil)
				}
			})
			leaves("[stores/T9] two at most by a leased call", 2*calls, func(_ *testing.T, do func(string, int, func(*idempo.Claim)) idempo.Begun) {
				for n := range calls {
					do("leased", n, nil)
				}
			})
			leaves("[stores/T9] one by a renewal", 2*calls+3*calls, func(t *testing.T, do func(string, int, func(*idempo.Claim)) idempo.Begun) {
				for n := range calls {
					do("leased", n, func(c *idempo.Claim) {
						for range 3 {
							must(t, c.Renew(t.Context()))
						}
					})
				}
			})
			leaves("[stores/T9] none by a duplicate", 2, func(t *testing.T, do func(string, int, func(*idempo.Claim)) idempo.Begun) {
				do("atomic", 1, nil)
				do("leased", 2, nil) // its own two
				for range calls {
					if a, b := do("atomic", 1, nil), do("leased", 2, nil); a.Verdict != idempo.VerdictReplay || b.Verdict != idempo.VerdictReplay {
						t.Error(a.Verdict, b.Verdict)
					}
				}
			})
		})
	}
}

// TestPostgresLongSnapshot has somebody look at the database for long, so that nothing dead can be cleaned up.
func TestPostgresLongSnapshot(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	t.Run("[stores/T9] under a long snapshot verdicts are right, plans stay on the index, and its holder is named", func(t *testing.T) {
		t.Parallel()
		server := pgserver.Start(t, "autovacuum_naptime=1")
		dsn = server.DSN()
		db := openDB(t, "pgx", dsn)
		o := postgres.Options{}
		must(t, postgres.Migrate(t.Context(), db, o))
		tap := &tapped{Port: postgres.NewPort(db)}
		s, err := postgres.Over(t.Context(), tap, o)
		must(t, err)
		if held, err := s.OldestSnapshot(t.Context()); err != nil || held.Application == "report" {
			t.Errorf("before: %+v, %v", held, err)
		}
		report, err := openDB(t, "pgx", withParam(t, dsn, "application_name", "report")).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		must(t, err)
		defer func() { _ = report.Rollback() }()
		var pid string
		must(t, report.QueryRowContext(t.Context(), "select pg_backend_pid()::text from idempo.meta").Scan(&pid))

		kept := leased("kept")
		_, err = s.Complete(t.Context(), completing(kept, run(t, s, t.Context(), kept).Record.Attempt, idempo.Result{Body: []byte("kept")}))
		must(t, err)
		const gone = 1500
		over := func(n int) (p idempo.AcquireParams, c idempo.CompleteParams) {
			p = leased(fmt.Sprint("over ", n))
			p.Now = time.Now().Add(-24 * time.Hour)
			c = completing(p, 1, idempo.Result{Body: []byte("x")})
			c.Now, c.Tombstone = p.Now, time.Hour
			return p, c
		}
		for n := range gone {
			p, c := over(n)
			run(t, s, t.Context(), p)
			_, err := s.Complete(t.Context(), c)
			must(t, err)
		}
		for left := gone; left > 0; {
			n, err := s.Sweep(t.Context(), 1000)
			must(t, err)
			if left -= n; n == 0 {
				t.Fatalf("%d are left", left)
			}
		}
		_, err = db.ExecContext(t.Context(), `vacuum analyze idempo.records`)
		must(t, err)
		var dead int
		must(t, db.QueryRowContext(t.Context(), `select n_dead_tup from pg_stat_user_tables where relid = 'idempo.records'::regclass`).Scan(&dead))
		if dead < gone/2 {
			t.Errorf("void: %d dead versions, so what is dead was cleaned up all the same", dead)
		}
		verdict := func(p idempo.AcquireParams, want idempo.Verdict) {
			t.Helper()
			p.Token, p.Now = newToken(fmt.Sprint("again ", want, p.Key.ID)), time.Time{}
			tap.last = nil
			a, err := s.Acquire(t.Context(), p)
			if err != nil || a.Verdict != want {
				t.Errorf("%v, %v, want %v", a.Verdict, err, want)
			}
			if rows, plan := tap.touched(t, db); rows > 100 || strings.Contains(plan, "Seq Scan on records") {
				t.Errorf("%v: %d rows are looked at:\n%s", want, rows, plan)
			}
		}
		verdict(kept, idempo.VerdictReplay)
		verdict(leased("never asked"), idempo.VerdictRun)
		again, _ := over(7)
		verdict(again, idempo.VerdictRun)
		held, err := s.OldestSnapshot(t.Context())
		if err != nil || held.Session != pid || held.Application != "report" || held.Since.IsZero() {
			t.Errorf("%+v, %v, want session %s", held, err, pid)
		}
	})
}
