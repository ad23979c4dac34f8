package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// settles is a change of the key in doubt called id.
func settles(t *testing.T, s idempo.Store, id string) operator.Change {
	t.Helper()
	p := leased(id)
	claimed(t, s, p, nil)
	_, err := s.Release(t.Context(), idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateInDoubt})
	must(t, err)
	return operator.Change{Action: operator.ActionResolve, To: idempo.StateFailed, Retention: 1e12, Key: p.Key, Attempt: 1, State: idempo.StateInDoubt,
		Actor: "ann", Role: operator.RoleAdmin, Channel: "cli", Reason: "why"}
}

// together wants a change whose audit row cannot be written to change nothing.
func together(t *testing.T, s operated, c operator.Change) error {
	t.Helper()
	done, err := s.(operator.Changer).Change(t.Context(), operator.ChangeParams{Changes: []operator.Change{c}})
	if err == nil {
		t.Errorf("%+v without an audit row", done)
	}
	r, look := s.Lookup(t.Context(), idempo.LookupParams{Key: c.Key})
	if look != nil || r.State != idempo.StateInDoubt || r.Token.IsZero() {
		t.Errorf("the key is %s, %v", r.State, look)
	}
	if attempts, err := s.Attempts(t.Context(), c.Key); err != nil || len(attempts) != 0 {
		t.Errorf("%d earlier attempts, %v", len(attempts), err)
	}
	return err
}

// kept wants every one of statements to be refused because the audit is append-only.
func kept(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, st := range statements {
		if _, err := db.ExecContext(t.Context(), st); err == nil || !strings.Contains(err.Error(), "the audit is append-only") {
			t.Errorf("%s: %v", st, err)
		}
	}
}

func TestSQLiteAudit(t *testing.T) {
	t.Parallel()
	s, file := sqliteStore(t, sqlite.Options{})
	db := sqliteRaw(t, file)
	c := settles(t, s, "kept")
	_, err := s.Change(t.Context(), operator.ChangeParams{Changes: []operator.Change{c}})
	must(t, err)
	t.Run("[operations/OP27] rows are added, never changed or removed", func(t *testing.T) {
		kept(t, db, "UPDATE idempo_audit SET reason = 'x'", "DELETE FROM idempo_audit")
	})
	t.Run("[operations/OP27] committed with the change or neither", func(t *testing.T) {
		c := settles(t, s, "alone")
		_, err := db.ExecContext(t.Context(), "CREATE TRIGGER no BEFORE INSERT ON idempo_audit BEGIN SELECT raise(ABORT, 'full'); END")
		must(t, err)
		_ = together(t, s, c)
		_, err = db.ExecContext(t.Context(), "DROP TRIGGER no")
		must(t, err)
		done, err := s.Change(t.Context(), operator.ChangeParams{Changes: []operator.Change{c}})
		if err != nil || done[0].Err != nil || done[0].Record.State != idempo.StateFailed {
			t.Errorf("%+v, %v", done, err)
		}
	})
}

func TestPostgresAudit(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	t.Run("[operations/OP27] rows are added, never changed or removed", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, "pgx", dsn)
		o := migrated(t, dsn, postgres.Options{})
		table := `"` + o.Schema + `".audit`
		kept(t, db, "update "+table+" set reason = 'x'", "delete from "+table, "truncate "+table)
	})
	t.Run("[operations/OP27] [operations/OP28] [security/SEC75] committed with the change or neither; a role that may only read looks, and is told what is missing", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, "pgx", dsn)
		o := migrated(t, dsn, postgres.Options{})
		owner, err := postgres.New(t.Context(), db, o)
		must(t, err)
		c := settles(t, owner, "read only")
		role := o.Schema + "_reader"
		grants := fmt.Sprintf(`create role "%[1]s" login; grant usage on schema "%[2]s" to "%[1]s"; grant select on all tables in schema "%[2]s" to "%[1]s"`, role, o.Schema)
		_, err = db.ExecContext(t.Context(), grants)
		must(t, err)
		t.Cleanup(func() {
			if _, err := openCleanup(dsn, `drop owned by "`+role+`"; drop role "`+role+`"`); err != nil {
				t.Error(err)
			}
		})
		u, err := url.Parse(dsn)
		must(t, err)
		u.User = url.User(role) // the servers of the tests trust who connects
		s, err := postgres.New(t.Context(), openDB(t, "pgx", u.String()), o)
		must(t, err)
		page, err := s.List(t.Context(), operator.FindParams{State: idempo.StateInDoubt})
		if err != nil || len(page.Records) != 1 {
			t.Errorf("%d keys, %v", len(page.Records), err)
		}
		_, err = s.Audit(t.Context(), operator.AuditParams{})
		must(t, err)
		_, err = s.Count(t.Context(), operator.CountParams{})
		must(t, err)
		says := func(err error) {
			t.Helper()
			if e, ok := errors.AsType[*idempo.Error](err); !ok || !strings.Contains(e.Hint, "idempo migrate print --grants") {
				t.Errorf("%v", err)
			}
		}
		says(together(t, s, c))
		_, err = db.ExecContext(context.WithoutCancel(t.Context()), fmt.Sprintf(`grant select, insert, update, delete on "%s".records, "%[1]s".attempts to "%s"`, o.Schema, role))
		must(t, err)
		says(together(t, s, c)) // all but the audit
		_, err = db.ExecContext(t.Context(), fmt.Sprintf(`grant insert on "%s".audit to "%s"`, o.Schema, role))
		must(t, err)
		done, err := s.Change(t.Context(), operator.ChangeParams{Changes: []operator.Change{c}})
		if err != nil || done[0].Err != nil {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
