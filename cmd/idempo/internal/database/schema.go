package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// Status is what a database has of the schema and what this binary knows.
type Status struct {
	Version int // of the schema in the database; 0: there is none
	Known   int // the newest this binary knows
	Applied []Applied
	Pending []string // names
	// Required: something is pending without which this binary does not work. What is left then only adds.
	Required bool
	Newer    bool  // the schema is of a newer release
	Problem  error // a migration was changed after it had been applied
}

// Applied is one migration in the database.
type Applied struct {
	Version int
	Name    string
	At      time.Time
	By      string
}

// pend adds a version that is not applied. Those that only add have names that begin with add_.
func (s *Status) pend(name string) {
	s.Pending = append(s.Pending, name)
	_, rest, _ := strings.Cut(name, "_")
	s.Required = s.Required || !strings.HasPrefix(rest, "add_")
}

// Schema looks after the schema of one store.
type Schema struct {
	c  config.Store
	db *sql.DB // nil: an SQLite file that is not there
}

// Schemas returns the schema of the configured store. Nothing is made and nothing sent. The caller closes it.
func Schemas(c config.Store) (*Schema, error) {
	if c.Postgres != "" {
		db, err := dialPostgres(c)
		return &Schema{c: c, db: db}, err
	}
	if c.MySQL != "" {
		db, err := dialMySQL(c)
		return &Schema{c: c, db: db}, err
	}
	if _, err := os.Stat(c.SQLite); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("store: %w", err)
		}
		return &Schema{c: c}, nil
	}
	db, err := sql.Open("sqlite", sqliteURL(c.SQLite, "ro"))
	return &Schema{c: c, db: db}, err
}

// Close closes what Schemas opened.
func (s *Schema) Close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// Status reads what was applied. It changes nothing; an SQLite file that is not there is not made.
func (s *Schema) Status(ctx context.Context) (Status, error) {
	if s.c.SQLite != "" {
		return s.sqliteStatus(ctx)
	}
	if err := s.db.PingContext(ctx); err != nil { // the store's own errors hide what a driver says
		return Status{}, reachable(s.c, err)
	}
	var list []postgres.Migration
	var err error
	known := PostgresVersion
	if s.c.MySQL != "" {
		known = MySQLVersion
		var of []mysql.Migration
		of, err = mysql.Status(ctx, s.db, mysqlOptions(s.c, nil))
		for _, m := range of {
			list = append(list, postgres.Migration(m))
		}
	} else {
		list, err = postgres.Status(ctx, s.db, postgresOptions(s.c, nil))
	}
	if list == nil && err != nil {
		return Status{}, reachable(s.c, err)
	}
	var st Status
	for _, m := range list {
		switch {
		case m.AppliedAt.IsZero():
			st.pend(fmt.Sprintf("%04d_%s", m.Version, m.Name))
		default:
			st.Version = max(st.Version, m.Version)
			st.Applied = append(st.Applied, Applied{m.Version, m.Name, m.AppliedAt, m.AppliedBy})
		}
	}
	st.Known = len(list)
	st.Problem = err
	if k := known(); err == nil && st.Version > k {
		st.Known = k // of a newer release, which only added
	}
	if err != nil && strings.Contains(err.Error(), "newer than this release") {
		st.Newer, st.Known = true, known()
	}
	return st, nil
}

func (s *Schema) sqliteStatus(ctx context.Context) (Status, error) {
	if s.db == nil {
		return Status{Known: SQLiteVersion(), Pending: []string{"all"}, Required: true}, nil
	}
	m, err := sqlite.Status(ctx, s.db, sqliteOptions(s.c))
	if err != nil {
		return Status{}, err
	}
	st := Status{Version: m.Version, Known: m.Known, Newer: m.Version > m.Known && m.Problem != nil, Problem: m.Problem}
	for _, name := range m.Pending {
		st.pend(strings.TrimSuffix(name, ".sql"))
	}
	for _, a := range m.Applied {
		st.Applied = append(st.Applied, Applied{a.Version, a.Name, a.At, a.By})
	}
	return st, nil
}

// Up applies what is pending; an SQLite file is made if it is not there. Any number of processes may call it at once.
func (s *Schema) Up(ctx context.Context) error {
	if s.c.Postgres != "" {
		return reachable(s.c, postgres.Migrate(ctx, s.db, postgresOptions(s.c, nil)))
	}
	if s.c.MySQL != "" {
		return reachable(s.c, mysql.Migrate(ctx, s.db, mysqlOptions(s.c, nil)))
	}
	store, err := openSQLite(ctx, s.c)
	if err != nil {
		return err
	}
	return store.Close()
}

// Down takes the newest migration back; where rows would be lost it changes nothing and says which table holds them.
func (s *Schema) Down(ctx context.Context) error {
	if s.c.Postgres != "" {
		return reachable(s.c, postgres.Down(ctx, s.db, postgresOptions(s.c, nil)))
	}
	if s.c.MySQL != "" {
		return reachable(s.c, mysql.Down(ctx, s.db, mysqlOptions(s.c, nil)))
	}
	if s.db == nil {
		return fmt.Errorf("there is no file %s", s.c.SQLite)
	}
	db, err := sql.Open("sqlite", sqliteURL(s.c.SQLite, "rw"))
	if err != nil {
		return err
	}
	return errors.Join(sqlite.MigrateDown(ctx, db, sqliteOptions(s.c)), db.Close())
}

// Script returns the migrations after version from, up to to (0: the newest), as SQL for another tool, and the rights of role
// (PostgreSQL, MySQL; empty: none). It asks no database.
func Script(c config.Store, from, to int, role string) (string, error) {
	if c.Postgres != "" {
		return postgres.Print(postgres.ScriptOptions{Options: postgresOptions(c, nil), From: from, To: to, Grants: role})
	}
	if c.MySQL != "" {
		return mysql.Print(mysql.ScriptOptions{Options: mysqlOptions(c, nil), From: from, To: to, Grants: role})
	}
	if role != "" {
		return "", errors.New("SQLite has no roles: --grants is for PostgreSQL and MySQL")
	}
	return sqlite.Script(sqliteOptions(c), from, to)
}

// SQLiteVersion is the newest schema that this binary knows of SQLite.
func SQLiteVersion() int {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return 0
	}
	defer db.Close()
	st, err := sqlite.Status(context.Background(), db, sqlite.Options{})
	if err != nil {
		return 0
	}
	return st.Known
}

// PostgresVersion is the newest schema that this binary knows of PostgreSQL.
func PostgresVersion() int {
	return newest(func(from, to int) (string, error) {
		return postgres.Print(postgres.ScriptOptions{From: from, To: to})
	})
}

// MySQLVersion is the newest schema that this binary knows of MySQL and MariaDB.
func MySQLVersion() int {
	return newest(func(from, to int) (string, error) {
		return mysql.Print(mysql.ScriptOptions{From: from, To: to})
	})
}

// newest is the newest version that a script can be made up to.
func newest(script func(from, to int) (string, error)) int {
	n := 1
	for {
		if _, err := script(n, n+1); err != nil {
			return n
		}
		n++
	}
}
