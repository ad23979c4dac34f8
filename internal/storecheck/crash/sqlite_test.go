package crash

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	modernc "modernc.org/sqlite"

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/sqlite"
)

// world is a store, and the means to have an effect in its database.
type world struct {
	store  durable
	insert func(ctx context.Context, key, content string) error // in the transaction of ctx
	bare   func(ctx context.Context, key, content string) error // in one of its own
}

const (
	sqliteEffects = "CREATE TABLE effects (intent TEXT NOT NULL, content TEXT NOT NULL) STRICT"
	sqliteInsert  = "INSERT INTO effects VALUES (?, ?)"
)

func sqliteDSN(file string) string {
	v := url.Values{"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	return "file:" + file + "?" + v.Encode()
}

func openSQLite(ctx context.Context, c config, steps *stepped) (world, error) {
	db := sql.OpenDB(&sqliteConnector{dsn: sqliteDSN(c.Place), steps: steps})
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	store, err := sqlite.New(ctx, db, sqlite.Options{})
	if err != nil {
		return world{}, err
	}
	return world{store: store,
		insert: func(ctx context.Context, key, content string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, sqliteInsert, key, content)
			return err
		},
		bare: func(ctx context.Context, key, content string) error {
			_, err := db.ExecContext(ctx, sqliteInsert, key, content)
			return err
		},
	}, nil
}

// sqliteConnector makes connections that say when a COMMIT is about to be made, and when it has been.
type sqliteConnector struct {
	dsn    string
	driver modernc.Driver
	steps  *stepped
}

func (c *sqliteConnector) Driver() driver.Driver { return &c.driver }

func (c *sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &sqliteConn{conn.(sqliteDriverConn), c.steps}, nil
}

// sqliteDriverConn is what a connection of the driver can do.
type sqliteDriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type sqliteConn struct {
	sqliteDriverConn
	steps *stepped
}

func (c *sqliteConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "BEGIN IMMEDIATE") {
		c.queues()
	}
	phase := c.steps.committing()
	if phase == "" || !strings.HasPrefix(query, "COMMIT") {
		return c.sqliteDriverConn.ExecContext(ctx, query, args)
	}
	c.steps.stage.At("commit "+phase, nil)
	r, err := c.sqliteDriverConn.ExecContext(ctx, query, args)
	if err == nil {
		c.steps.stage.At("committed "+phase, nil)
	}
	return r, err
}

// BeginTx is how the transaction of an atomic work begins.
func (c *sqliteConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.queues()
	return c.sqliteDriverConn.BeginTx(ctx, o)
}

// queues says that a claim is about to ask for the write lock.
func (c *sqliteConn) queues() {
	if phase := c.steps.committing(); phase != "" {
		c.steps.stage.At("queue "+phase, nil)
	}
}

// sqliteLane is a file.
type sqliteLane struct {
	file string
	db   *sql.DB // the counter's own
}

func newSQLiteLane(t *testing.T) lane {
	t.Helper()
	l := &sqliteLane{file: filepath.Join(t.TempDir(), "records.db")}
	store, err := sqlite.Open(t.Context(), "sqlite", l.file, sqlite.Options{}) // makes the schema
	if err == nil {
		err = store.Close()
	}
	if err == nil {
		l.db, err = sql.Open("sqlite", sqliteDSN(l.file))
	}
	if err == nil {
		_, err = l.db.ExecContext(t.Context(), sqliteEffects)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.db.Close() })
	return l
}

func (l *sqliteLane) config() config { return config{Store: "sqlite", Place: l.file} }

func (l *sqliteLane) rows(ctx context.Context, key string) ([]string, error) {
	return contents(l.db.QueryContext(ctx, "SELECT content FROM effects WHERE intent = ?", key))
}

// record returns the row of a key, as text.
func (l *sqliteLane) record(ctx context.Context, key string) (string, error) {
	return rowText(l.db.QueryContext(ctx, "SELECT * FROM idempo_records WHERE trace = ?", key))
}

// rowText returns the first of rows, as text.
func rowText(rows *sql.Rows, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil || !rows.Next() {
		return "", errors.Join(err, rows.Err(), sql.ErrNoRows)
	}
	values := make([]any, len(names))
	for i := range values {
		values[i] = new(any)
	}
	err = rows.Scan(values...)
	var text strings.Builder
	for i, v := range values {
		fmt.Fprintf(&text, "%s=%v ", names[i], *v.(*any))
	}
	return text.String(), err
}

func (l *sqliteLane) sound(ctx context.Context) (string, error) {
	var word string
	err := l.db.QueryRowContext(ctx, "PRAGMA quick_check").Scan(&word)
	return word, err
}

// plan is where a step is on SQLite.
func (l *sqliteLane) plan(step, guard string, i int) plan { return byCommits(step, guard, i) }

// byCommits is the plan of a store whose connections say when they commit. A COMMIT that is "on the wire" is one that runs, or
// has run and has not returned.
func byCommits(step, guard string, i int) plan {
	leased := guard != opAtomic
	switch {
	case step == "CT1":
		return plan{halt: "claim"}
	case step == "CT2" && leased:
		return plan{halt: "committed of the claim"}
	case step == "CT2":
		return plan{halt: "claimed"}
	case step == "CT5" && leased:
		return plan{halt: "commit of the result"}
	case step == "CT5":
		return plan{halt: "completed"}
	case step == "CT6" && i%2 == 0:
		return plan{halt: "committed of the result", mode: answered}
	case step == "CT6":
		return plan{pass: "commit of the result", mode: raced}
	}
	return everywhere(step)
}

func (l *sqliteLane) wire(*testing.T, *config, crashtest.Trap) *crashtest.Wire { return nil }

func contents(rows *sql.Rows, err error) (out []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, rows.Err()
}
