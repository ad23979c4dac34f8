package storecheck

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/storetest"
)

// The whole kit as a role that may do what `idempo migrate print --grants ROLE` says, and nothing else.
func TestPostgresRunTimeRole(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	role := schemaName(t, dsn) + "_run"
	db := openDB(t, "pgx", dsn)
	_, err := db.ExecContext(t.Context(), `create role "`+role+`" login`)
	must(t, err)
	t.Cleanup(func() {
		if _, err := openCleanup(dsn, `drop owned by "`+role+`"; drop role "`+role+`"`); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(dsn)
	must(t, err)
	u.User = url.User(role) // the servers of the tests trust who connects
	app := u.String()
	open := func(t testing.TB) storetest.Subject {
		return pgOpeners()[0].subjectAs(t, dsn, app, func(o postgres.Options) {
			script, err := postgres.Print(postgres.ScriptOptions{Options: o, Grants: role})
			must(t, err)
			_, err = db.ExecContext(t.Context(), script+fmt.Sprintf(pgEffects, o.Schema)+
				fmt.Sprintf(`; grant select, insert on "%[1]s".effects, "%[1]s".done to "%[2]s"`, o.Schema, role))
			must(t, err)
		})
	}
	t.Run("[security/SEC75] [stores/MG5] all but migrating works", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, open, kitCaps(t))
	})
	t.Run("[security/SEC75] receipts and lanes", func(t *testing.T) {
		t.Parallel()
		storetest.RunInbox(t, open, kitCaps(t))
	})
	t.Run("[security/SEC75] and no change of the schema", func(t *testing.T) {
		var schema string
		o := postgres.Options{}
		pgOpeners()[0].subjectAs(t, dsn, app, func(opts postgres.Options) {
			schema, o = opts.Schema, opts
			script, err := postgres.Print(postgres.ScriptOptions{Options: opts, Grants: role})
			must(t, err)
			_, err = db.ExecContext(t.Context(), script)
			must(t, err)
		})
		as := openDB(t, "pgx", app)
		for _, ddl := range []string{
			`alter table %s.records add column x int`, `drop table %s.records`, `truncate %s.records`, `create table %s.x (x int)`,
			`create index on %s.records (owner)`, `delete from %s.audit`, `update %s.audit set actor = 'x'`, `insert into %s.migrations (version, name, sha256) values (99, 'x', 'x')`,
			`create trigger x after insert on %s.records execute function x()`, `drop schema %s cascade`,
		} {
			ddl = fmt.Sprintf(ddl, `"`+schema+`"`)
			if _, err := as.ExecContext(t.Context(), ddl); !denied(err) {
				t.Errorf("%s: %v", ddl, err)
			}
		}
		if err := postgres.Migrate(t.Context(), as, postgres.Options{Schema: o.Schema + "_no"}); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("Migrate: %v", err)
		}
	})
}

// denied reports whether err says that the role lacks the right.
func denied(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42501" && !errors.Is(err, sql.ErrNoRows)
}
