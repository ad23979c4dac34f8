package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
)

// recordedBy is written by the script, which must be the same text on every machine.
const recordedBy = "script"

func names(o Options) sqlkit.Names { return sqlkit.Names{Prefix: o.Prefix, Quote: '"'} }

// ledger is the migrations of this release under o's prefix. by is written beside each applied one.
func ledger(o Options, by string) (sqlkit.Ledger, error) {
	all, err := sqlkit.Migrations(files, "migrations")
	if err != nil {
		return sqlkit.Ledger{}, fmt.Errorf("sqlite: %w", err)
	}
	n := names(o)
	t := n.Table("migrations")
	return sqlkit.Ledger{
		All: all, Names: n, Micros: true,
		Read: "SELECT version, name, sha256, applied_at, applied_by FROM " + t + " ORDER BY version",
		Record: "INSERT INTO " + t + " (version, name, sha256, applied_at, applied_by) VALUES (?, ?, ?, " +
			"CAST(strftime('%s', 'now') AS INTEGER) * 1000000, '" + strings.ReplaceAll(by, "'", "''") + "')",
		Forget: "DELETE FROM " + t + " WHERE version = ?",
	}, nil
}

// Migrate brings the schema in db up to this release, each migration in a transaction of its own. Any number of
// processes may call it at once: one works, all succeed. Killed anywhere, the next call finishes. db may be any handle
// on the file with the driver's default settings; Open calls Migrate by itself.
func Migrate(ctx context.Context, db *sql.DB, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	l, err := ledger(o, "process "+fmt.Sprint(os.Getpid()))
	if err != nil {
		return err
	}
	l.InTx = inMigration(db, l, o.BusyTimeout)
	// Of many that open a new file at once one makes a WAL of its journal, for which SQLite lets nobody wait: the others are
	// busy at once, at the first thing they do.
	for until := time.Now().Add(o.BusyTimeout); ; {
		done, err := upToDate(ctx, db, l)
		if err == nil && !done {
			err = l.Up(ctx)
		}
		if !busy(err) || time.Now().After(until) || ctx.Err() != nil {
			return migrating(err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// MigrateDown takes back the newest migration, unless rows would be lost: then it is refused, naming the table.
func MigrateDown(ctx context.Context, db *sql.DB, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	l, err := ledger(o, "")
	if err != nil {
		return err
	}
	l.InTx = inMigration(db, l, o.BusyTimeout)
	return migrating(l.Down(ctx))
}

// MigrationStatus is what was applied and what this release knows.
type MigrationStatus struct {
	Version  int                // of the schema in the file; 0: there is none
	Known    int                // the newest this release knows
	Applied  []AppliedMigration // by version
	Problem  error              // why this release does not work with the schema; nil: it does
	Pending  []string           // file names that Migrate would apply
	Writable bool               // whether the handle may write; false: db is read-only
}

// AppliedMigration is one row of table migrations.
type AppliedMigration struct {
	Version      int
	Name, SHA256 string
	At           time.Time
	By           string
}

// Status reads what was applied. It changes nothing.
func Status(ctx context.Context, db *sql.DB, o Options) (MigrationStatus, error) {
	o, err := o.withDefaults()
	if err != nil {
		return MigrationStatus{}, err
	}
	l, err := ledger(o, "")
	if err != nil {
		return MigrationStatus{}, err
	}
	applied, err := applied(ctx, db, l)
	if err != nil {
		return MigrationStatus{}, migrating(err)
	}
	st := MigrationStatus{Known: len(l.All)}
	for _, a := range applied {
		st.Version = max(st.Version, a.Version)
		st.Applied = append(st.Applied, AppliedMigration(a))
	}
	todo, err := sqlkit.Pending(l.All, applied)
	for _, m := range todo {
		st.Pending = append(st.Pending, m.File())
	}
	st.Problem = err
	var queryOnly bool
	if err := db.QueryRowContext(ctx, "PRAGMA query_only").Scan(&queryOnly); err != nil {
		return MigrationStatus{}, migrating(err)
	}
	st.Writable = !queryOnly
	return st, nil
}

// Script returns migrations from+1 to to (0: the newest) as SQL for the sqlite3 shell or another tool, version rows
// included. Its text is the same on every call; what it makes equals what Migrate makes.
func Script(o Options, from, to int) (string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return "", err
	}
	l, err := ledger(o, recordedBy)
	if err != nil {
		return "", err
	}
	text, err := l.Script(from, to, "BEGIN IMMEDIATE;\n", "COMMIT;\n")
	return text, migrating(err)
}

// checkSchema refuses a schema that is not this release's, with both versions and the command that helps.
func checkSchema(ctx context.Context, db *sql.DB, o Options) error {
	l, err := ledger(o, "")
	if err != nil {
		return err
	}
	applied, err := applied(ctx, db, l)
	if err != nil {
		return migrating(err)
	}
	todo, err := sqlkit.Pending(l.All, applied)
	switch {
	case err != nil:
		return migrating(err)
	case len(applied) == 0:
		return fmt.Errorf("sqlite: the file has no idempo schema, this release needs version %d: run `idempo migrate up`, or call sqlite.Migrate", len(l.All))
	case sqlkit.Required(todo):
		return fmt.Errorf("sqlite: the schema has version %d, this release needs %d: run `idempo migrate up`, or call sqlite.Migrate", len(applied), len(l.All))
	}
	return nil
}

func upToDate(ctx context.Context, db *sql.DB, l sqlkit.Ledger) (bool, error) {
	applied, err := applied(ctx, db, l)
	if err != nil {
		return false, err
	}
	todo, err := sqlkit.Pending(l.All, applied)
	return len(todo) == 0, err
}

// applied reads table migrations; a file without it has none applied.
func applied(ctx context.Context, db sqlkit.Executor, l sqlkit.Ledger) ([]sqlkit.Applied, error) {
	rows, err := db.QueryContext(ctx, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", l.Names.Prefix+"migrations")
	if err != nil {
		return nil, err
	}
	there := rows.Next()
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !there {
		return nil, err
	}
	return l.Applied(ctx, db)
}

// inMigration runs fn under the write lock, with table migrations there. It waits for the lock as long as the options
// say, in slices: DDL behind DDL is the common case.
func inMigration(db *sql.DB, l sqlkit.Ledger, wait time.Duration) func(context.Context, func(sqlkit.Executor) error) error {
	return func(ctx context.Context, fn func(sqlkit.Executor) error) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		until := time.Now().Add(wait)
		for {
			_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
			if err == nil {
				break
			}
			if !busy(err) || time.Now().After(until) || ctx.Err() != nil {
				return err
			}
			pause(ctx, 20*time.Millisecond)
		}
		detached := context.WithoutCancel(ctx)
		defer func() { _, _ = conn.ExecContext(detached, "ROLLBACK") }() // after COMMIT: an error nobody needs
		first, _, _ := strings.Cut(l.All[0].Up, ";\n")
		table, err := l.Names.Expand(first, nil) // unchanged: the catalog keeps the text
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, table); err != nil {
			return err
		}
		if err := fn(conn); err != nil {
			return err
		}
		_, err = conn.ExecContext(detached, "COMMIT")
		return err
	}
}

// pause waits d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func migrating(err error) error {
	if err == nil {
		return nil
	}
	if resultCode(err) != 0 {
		return fmt.Errorf("sqlite: migrate: %w", shown(err))
	}
	return fmt.Errorf("sqlite: migrate: %w", err)
}
