package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	idempgx "github.com/idempo/idempo/contrib/pgx"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/postgres"
)

// pgCatalog describes everything in a schema, its own name left out.
func pgCatalog(t testing.TB, db *sql.DB, schema string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
select format('column %s.%s %s not null %s default %s position %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attnum)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'S')
union all select format('table %s options %s', relname, reloptions) from pg_class where relnamespace = $1::regnamespace and relkind = 'r'
union all select indexdef from pg_indexes where schemaname = $1::text
union all select format('constraint %s %s', conname, pg_get_constraintdef(oid)) from pg_constraint where connamespace = $1::regnamespace
union all select format('domain %s %s', typname, format_type(typbasetype, typtypmod)) from pg_type where typnamespace = $1::regnamespace and typtype = 'd'
union all select pg_get_functiondef(oid) || ' ' || coalesce(proacl::text, '') from pg_proc where pronamespace = $1::regnamespace
union all select format('type %s.%s %s position %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnum)
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 where c.relnamespace = $1::regnamespace and c.relkind = 'c'
order by 1`, schema)
	must(t, err)
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		b.WriteString(strings.ReplaceAll(line, schema, "SCHEMA") + "\n")
	}
	must(t, rows.Err())
	return b.String()
}

func TestPostgresMigrate(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	db := openDB(t, "pgx", dsn)
	t.Run("[stores/MG2] 20 at once: all succeed, one schema", func(t *testing.T) {
		t.Parallel()
		o := postgres.Options{Schema: schemaName(t, dsn), Prefix: "a_"}
		var wg sync.WaitGroup
		for i := range 20 {
			driver := []string{"pgx", "postgres"}[i%2]
			wg.Go(func() {
				if err := postgres.Migrate(t.Context(), openDB(t, driver, dsn), o); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := postgres.New(t.Context(), db, o); err != nil {
			t.Error(err)
		}
		all, err := postgres.Status(t.Context(), db, o)
		if err != nil || len(all) == 0 || all[0].AppliedAt.IsZero() || all[0].AppliedBy == "" || len(all[0].SHA256) != 64 {
			t.Errorf("%+v, %v", all, err)
		}
	})
	t.Run("[stores/MG2] cut at any statement: the next run finishes", func(t *testing.T) {
		t.Parallel()
		x, behind := newWire(t, dsn)
		o := postgres.Options{Schema: schemaName(t, dsn)}
		for n, done := 1, false; !done; n++ {
			left := n
			x.Arm(crashtest.Trap{Match: func(string) bool { left--; return left == 0 }, Fault: crashtest.LoseRequest, Cut: true})
			cut := openDB(t, "pgx", behind)
			err := postgres.Migrate(t.Context(), cut, o)
			done = err == nil
			must(t, cut.Close())
			if n > 60 {
				t.Fatal("it never finishes", err)
			}
			if !done {
				again := openDB(t, "pgx", dsn)
				must(t, postgres.Migrate(t.Context(), again, o))
				_, err := postgres.New(t.Context(), again, o)
				must(t, err)
				_, err = again.ExecContext(t.Context(), `drop schema "`+o.Schema+`" cascade`)
				must(t, err)
			}
		}
	})
	t.Run("[stores/MG3] the printed script gives the catalog of Migrate, and start-up accepts it", func(t *testing.T) {
		t.Parallel()
		a, b := postgres.Options{Schema: schemaName(t, dsn), Prefix: "x_"}, postgres.Options{Schema: schemaName(t, dsn), Prefix: "x_"}
		must(t, idempgx.Migrate(t.Context(), openPool(t, dsn), a))
		script, err := postgres.Print(postgres.ScriptOptions{Options: b})
		must(t, err)
		same, err := postgres.Print(postgres.ScriptOptions{Options: b})
		if err != nil || same != script {
			t.Error("two prints differ", err)
		}
		_, err = db.ExecContext(t.Context(), script)
		must(t, err)
		if ca, cb := pgCatalog(t, db, a.Schema), pgCatalog(t, db, b.Schema); ca != cb || len(ca) < 1000 {
			t.Errorf("Migrate:\n%s\nprinted:\n%s", ca, cb)
		}
		if _, err := postgres.New(t.Context(), db, b); err != nil {
			t.Error(err)
		}
		if _, err := postgres.Print(postgres.ScriptOptions{Options: b, From: 99}); err == nil {
			t.Error("a version that is not there was printed")
		}
		if _, err := postgres.Print(postgres.ScriptOptions{Options: b, Grants: `x"; drop`}); err == nil {
			t.Error("a role was not checked")
		}
	})
	t.Run("[stores/MG1, MG5] a changed, missing, older or newer schema is refused with what to do", func(t *testing.T) {
		t.Parallel()
		refused := func(change string, say ...string) {
			t.Helper()
			o := postgres.Options{Schema: schemaName(t, dsn)}
			if change != "" {
				must(t, postgres.Migrate(t.Context(), db, o))
				_, err := db.ExecContext(t.Context(), strings.ReplaceAll(change, "SCHEMA", `"`+o.Schema+`"`))
				must(t, err)
			}
			_, err := postgres.New(t.Context(), db, o)
			for _, s := range say {
				if err == nil || !strings.Contains(err.Error(), s) {
					t.Errorf("New = %v, want %q", err, s)
				}
			}
		}
		all, err := postgres.Status(t.Context(), db, postgres.Options{Schema: schemaName(t, dsn)})
		must(t, err)
		needs := fmt.Sprint("has version 0, this release needs ", len(all))
		refused("", needs, "idempo migrate up")
		refused(`delete from SCHEMA.migrations`, needs, "idempo migrate up")
		refused(`update SCHEMA.migrations set sha256 = 'x'`, "0001_records.sql was changed")
		refused(`insert into SCHEMA.migrations (version, name, sha256) select max(version) + 1, 'later', 'x' from SCHEMA.migrations`,
			fmt.Sprintf("version %d, newer than this release, which knows %d", len(all)+1, len(all)))
	})
	t.Run("[stores/MG5] the schema goes away under a running store: unavailable, with what to do", func(t *testing.T) {
		t.Parallel()
		for _, o := range pgOpeners() {
			p := o.open(t, dsn, migrated(t, dsn, postgres.Options{}))
			_, err := db.ExecContext(t.Context(), `alter table "`+p.o.Schema+`".records rename to gone`)
			must(t, err)
			_, err = p.Acquire(t.Context(), pgClaim(idempo.GuardLeased))
			if !errors.Is(err, idempo.ErrUnavailable) || !strings.Contains(err.Error(), "idempo migrate up") {
				t.Errorf("%s: %v", o.name, err)
			}
		}
	})
	t.Run("[stores/MG2] down takes back what is empty, and refuses to lose rows", func(t *testing.T) {
		t.Parallel()
		o := migrated(t, dsn, postgres.Options{})
		p := openPgx(t, dsn, o)
		c := pgClaim(idempo.GuardLeased)
		pgAcquire(t, t.Context(), p, c, idempo.VerdictRun)
		downToFirst(t, db, o)
		if err := postgres.Down(t.Context(), db, o); err == nil || !strings.Contains(err.Error(), "table records is not empty") {
			t.Errorf("%v", err)
		}
		_, err := p.Release(t.Context(), idempo.ReleaseParams{Key: c.Key, Token: c.Token, To: idempo.StateIssued})
		must(t, err)
		must(t, postgres.Down(t.Context(), db, o))
		if n := p.count(t, `select count(*) from pg_class where relnamespace = $1::regnamespace and relname not in ('effects', 'done', 'effects_pkey', 'effects_what_key', 'effects_n_seq')`, o.Schema); n != 0 {
			t.Errorf("%d relations are left", n)
		}
		if all, err := postgres.Status(t.Context(), db, o); err != nil || len(all) == 0 || !all[0].AppliedAt.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		if n := p.count(t, `select count(*) from pg_proc where pronamespace = $1::regnamespace`, o.Schema); n != 0 {
			t.Errorf("%d functions are left", n)
		}
		must(t, postgres.Migrate(t.Context(), db, o))
	})
	t.Run("[stores/MG5] a DDL lock that is not free is let go, so that nobody queues up behind it, and asked for again", func(t *testing.T) {
		t.Parallel()
		o := migrated(t, dsn, postgres.Options{})
		downToFirst(t, db, o)
		reader, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = reader.Rollback() }()
		_, err = reader.ExecContext(t.Context(), `lock table "`+o.Schema+`".records in access share mode`)
		must(t, err)
		down := make(chan error, 1)
		go func() { down <- postgres.Down(t.Context(), openDB(t, "pgx", dsn), o) }()
		look := &pg{o: o, db: db}
		for _, waiting := range []int{1, 0, 1} { // it asks, lets go, asks again
			for look.count(t, `select count(*) from pg_locks where relation = 'SCHEMA.records'::regclass and not granted`) != waiting {
				if pauseTest(t) {
					t.Fatal("the lock was not asked for")
				}
			}
		}
		must(t, reader.Rollback())
		must(t, <-down)
	})
	t.Run("[stores/MG5] a role with row rights only can do all but migrate", func(t *testing.T) {
		t.Parallel()
		grants(t, dsn)
	})
}

// downToFirst takes back every migration but the first.
func downToFirst(t *testing.T, db *sql.DB, o postgres.Options) {
	t.Helper()
	all, err := postgres.Status(t.Context(), db, o)
	must(t, err)
	for range all[1:] {
		must(t, postgres.Down(t.Context(), db, o))
	}
}

// grants runs a store as a role that has the printed rights and no others.
func grants(t *testing.T, dsn string) {
	db := openDB(t, "pgx", dsn)
	o := postgres.Options{Schema: schemaName(t, dsn)}
	role := o.Schema + "_app"
	_, err := db.ExecContext(t.Context(), `create role "`+role+`" login`)
	must(t, err)
	// As in a database where nobody may call a function by default.
	_, err = db.ExecContext(t.Context(), `create role "`+role+`_owner" superuser; create schema "`+o.Schema+`" authorization "`+role+`_owner"; set role "`+role+`_owner";
		alter default privileges revoke execute on functions from public; alter default privileges revoke usage on types from public; reset role`)
	must(t, err)
	t.Cleanup(func() {
		if _, err := openCleanup(dsn, `drop owned by "`+role+`_owner" cascade; drop role "`+role+`_owner"; drop owned by "`+role+`"; drop role "`+role+`"`); err != nil {
			t.Error(err)
		}
	})
	script, err := postgres.Print(postgres.ScriptOptions{Options: o, Grants: role})
	must(t, err)
	_, err = db.ExecContext(t.Context(), `set role "`+role+`_owner"; `+script+`; reset role`)
	must(t, err)
	app := strings.Replace(dsn, "//postgres@", "//"+role+"@", 1)
	if app == dsn {
		t.Skip("the DSN names no role postgres to be replaced")
	}
	s, err := postgres.New(t.Context(), openDB(t, "pgx", app), o)
	must(t, err)
	c := pgClaim(idempo.GuardLeased)
	c.Aliases = []string{pgDigest(pgIDs.Add(1))}
	c.Now = time.Now().Add(-5 * time.Hour)
	a := pgAcquire(t, t.Context(), s, c, idempo.VerdictRun)
	r := pgResult(c, a, "x")
	r.Now = c.Now
	_, err = s.Complete(t.Context(), r)
	must(t, err)
	if n, err := s.Sweep(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d swept, %v", n, err)
	}
	must(t, s.InTx(t.Context(), func(ctx context.Context) error {
		d := pgClaim(idempo.GuardAtomic)
		_, err := s.Complete(ctx, pgResult(d, pgAcquire(t, ctx, s, d, idempo.VerdictRun), "x"))
		return err
	}))
	look := openDB(t, "pgx", app)
	for _, call := range []string{
		`select IDEMPO.complete('t', 'op', 'k', token, response_headers => '[["A", "b"]]') from IDEMPO.claim('t', 'op', 'k', sha256('x'))`,
		`select IDEMPO.renew('t', 'op', 'l', token) from IDEMPO.claim('t', 'op', 'l', sha256('x'), guard => 'leased')`,
		`select IDEMPO.release('t', 'op', 'm', token, 'forget') from IDEMPO.claim('t', 'op', 'm', sha256('x'), guard => 'leased')`,
		`select IDEMPO.issue('t', 'op', 'n'), IDEMPO.lookup('t', 'op', 'n')`,
	} {
		_, err := look.ExecContext(t.Context(), strings.ReplaceAll(call, "IDEMPO", `"`+o.Schema+`"`))
		must(t, err)
	}
	_, err = s.Take(t.Context(), idempo.TakeParams{Operations: []string{"op"}, Limit: 1, Token: idempo.Token{1}, Lease: time.Second})
	must(t, err)
}
