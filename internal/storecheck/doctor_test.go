package storecheck

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
)

// diagnosis is what `idempo doctor` says, by check.
type diagnosis map[string]struct{ Grade, Text, Fix string }

// doctor runs the built program on a store.
func doctor(t *testing.T, program, store string, args ...string) diagnosis {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"doctor", "--json", "--store", store}, args...)...) //nolint:gosec // built here
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var said struct {
		Findings []struct{ Check, Grade, Text, Fix string }
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d := diagnosis{}
	for _, f := range said.Findings {
		d[f.Check] = struct{ Grade, Text, Fix string }{f.Grade, f.Text, f.Fix}
	}
	return d
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("with -short no other builds are made")
	}
	program := filepath.Join(t.TempDir(), "idempo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/idempo") //nolint:gosec // no words of others
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := func(t *testing.T, d diagnosis, check, grade, text string) {
		t.Helper()
		if f := d[check]; f.Grade != grade || !strings.Contains(f.Text, text) {
			t.Errorf("%s: %+v, want %s and %q", check, f, grade, text)
		}
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		dsn := postgresDSN(t)
		u, err := url.Parse(dsn)
		must(t, err)
		name := schemaName(t, dsn)
		_, err = openDB(t, "pgx", dsn).ExecContext(t.Context(), `create database "`+name+`"`)
		must(t, err)
		t.Cleanup(func() {
			if _, err := openCleanup(dsn, `drop database "`+name+`" with (force)`); err != nil {
				t.Error(err)
			}
		})
		u.Path = name
		own := u.String()
		db := openDB(t, "pgx", own)
		must(t, postgres.Migrate(t.Context(), db, postgres.Options{}))
		t.Run("[stores/T9] it names who holds a long snapshot", func(t *testing.T) {
			report, err := openDB(t, "pgx", withParam(t, own, "application_name", "report")).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			must(t, err)
			defer func() { _ = report.Rollback() }()
			var pid string
			must(t, report.QueryRowContext(t.Context(), "select pg_backend_pid()::text from idempo.meta").Scan(&pid))
			d := doctor(t, program, own)
			want(t, d, "snapshot", "ok", "session "+pid+" (report)")
			want(t, d, "schema", "ok", "version ")
			want(t, d, "pooler", "ok", "none in transaction mode")
			want(t, d, "clock", "ok", "agree")
			want(t, d, "purge", "ok", "keeps up")
		})
		t.Run("it knows a pooler in transaction mode", func(t *testing.T) {
			want(t, doctor(t, program, startPooler(t, own)), "pooler", "ok", "one in transaction mode")
		})
		t.Run("it says that nobody sweeps", func(t *testing.T) {
			_, err := db.ExecContext(t.Context(), `insert into idempo.records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash, surface, attempt,
				created_at, changed_at, completed_at, expires_at, gone_at)
				select 't', 'op', sha256('x'), sha256('x'), 'input1;k=d0', 'completed', 'leased', 'hold', 'run', 1, at, at, at, at, now() + interval '1 day' from (select now() - interval '3 hours' as at) a`)
			must(t, err)
			want(t, doctor(t, program, own), "purge", "warn", "since 3h")
		})
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		c := mysqlDatabase(t, mysqlConfig(t))
		db := openMySQL(t, c)
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		reader, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
		must(t, err)
		defer func() { _ = reader.Rollback() }()
		must(t, reader.QueryRowContext(t.Context(), "select count(*) from idempo_meta").Scan(new(int)))
		user := url.User(c.User)
		if c.Passwd != "" {
			user = url.UserPassword(c.User, c.Passwd)
		}
		d := doctor(t, program, (&url.URL{Scheme: "mysql", User: user, Host: c.Addr, Path: "/" + c.DBName}).String())
		// Other tests have transactions on this server too; one of them may be older.
		want(t, d, "snapshot", "ok", "session ")
		want(t, d, "pooler", "ok", "none in transaction mode")
		want(t, d, "clock", "ok", "agree")
	})
}
