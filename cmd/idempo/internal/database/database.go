package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// Unreachable is a database that did not answer, or does not let us in. Nothing was done.
type Unreachable struct {
	Name  string // masked
	Cause string // the class of the cause, without values
}

// Error names the database and the cause.
func (u *Unreachable) Error() string { return fmt.Sprintf("store %s: %s", u.Name, u.Cause) }

// Unfit is a schema that this binary does not work with.
type Unfit struct {
	Code string // schema_old, schema_new
	Text string
}

// Error says which versions there are.
func (u *Unfit) Error() string { return u.Text }

// Store is an open store.
type Store struct {
	idempo.Store
	Name string // masked: what may be shown
	File string // of an SQLite store, else ""
	stop func() error
}

// Shared is the same store for one more user, whose Close leaves it open.
func (s *Store) Shared() *Store {
	c := *s
	c.stop = func() error { return nil }
	return &c
}

// Close closes the store and its connections.
func (s *Store) Close() error { return s.stop() }

// Name is the store of the settings as it may be shown.
func Name(c config.Store) string {
	switch {
	case c.Postgres != "":
		return orDefault(config.MaskURL(string(c.Postgres)), "postgres")
	case c.MySQL != "":
		return orDefault(config.MaskURL(string(c.MySQL)), "mysql")
	}
	return "sqlite " + c.SQLite
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Open opens the store. With c.AutoMigrate an older schema is brought up first, by one of any number of processes that start at
// once; otherwise it is *Unfit, as a newer one is in any case. The caller closes the store.
func Open(ctx context.Context, c config.Store, log *slog.Logger) (*Store, error) {
	m, err := Schemas(c)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	st, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case st.Newer:
		return nil, &Unfit{Code: "schema_new", Text: fmt.Sprintf("the schema of %s has version %d, this binary knows %d: install the newer release", Name(c), st.Version, st.Known)}
	case st.Problem != nil:
		return nil, &Unfit{Code: "schema_new", Text: st.Problem.Error()}
	case st.Required && !c.AutoMigrate:
		return nil, &Unfit{Code: "schema_old", Text: fmt.Sprintf("the schema of %s has version %d, this binary needs %d", Name(c), st.Version, st.Known)}
	case len(st.Pending) > 0 && c.AutoMigrate && c.SQLite == "":
		if err := m.Up(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Postgres != "":
		return openPostgres(ctx, c, log)
	case c.MySQL != "":
		return openMySQL(ctx, c, log)
	}
	return openSQLite(ctx, c)
}

func openSQLite(ctx context.Context, c config.Store) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(c.SQLite), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s, err := sqlite.Open(ctx, "sqlite", c.SQLite, sqliteOptions(c))
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, Name: Name(c), File: c.SQLite, stop: s.Close}, nil
}

func sqliteOptions(c config.Store) sqlite.Options {
	return sqlite.Options{Prefix: c.Prefix, BusyTimeout: c.BusyTimeout}
}

func openPostgres(ctx context.Context, c config.Store, log *slog.Logger) (*Store, error) {
	db, err := dialPostgres(c)
	if err != nil {
		return nil, err
	}
	s, err := postgres.New(ctx, db, postgresOptions(c, log))
	if err != nil {
		return nil, errors.Join(reachable(c, err), db.Close())
	}
	return &Store{Store: s, Name: Name(c), stop: db.Close}, nil
}

func postgresOptions(c config.Store, log *slog.Logger) postgres.Options {
	return postgres.Options{Schema: c.Schema, Prefix: c.Prefix, Strict: &c.Strict, TxIdle: c.TxIdle, Logger: log}
}

// dialPostgres makes a handle; nothing is sent yet. Statements are described once and not named, so that poolers in
// transaction mode work.
func dialPostgres(c config.Store) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(string(c.Postgres))
	if err != nil {
		return nil, &Unreachable{Name: Name(c), Cause: "not a PostgreSQL URL, or a certificate file of it cannot be read"}
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "idempo"
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	db := stdlib.OpenDB(*cfg)
	limit := cmp.Or(c.MaxConns, 16)
	db.SetMaxOpenConns(limit)
	db.SetMaxIdleConns(limit)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}

// ReadOnly reports whether a store was refused because its server only reads: a standby, or one that is set so.
func ReadOnly(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "connect to the primary") || strings.Contains(err.Error(), "transaction_read_only is on"))
}

// reachable turns errors of connecting into *Unreachable; it keeps the class of the cause and drops every value.
func reachable(c config.Store, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case strings.HasPrefix(e.Code, "28"):
			return &Unreachable{Name: Name(c), Cause: "the server refuses the login (SQLSTATE " + e.Code + ")"}
		case e.Code == "3D000":
			return &Unreachable{Name: Name(c), Cause: "the database does not exist (SQLSTATE 3D000)"}
		case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "08"):
			return &Unreachable{Name: Name(c), Cause: "the server is not available (SQLSTATE " + e.Code + ")"}
		}
		return err
	}
	if c.MySQL != "" {
		return reachableMySQL(c, err)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return &Unreachable{Name: Name(c), Cause: connectCause(err)}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return &Unreachable{Name: Name(c), Cause: connectCause(err)}
	}
	return err
}

func connectCause(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host name is not found"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "no answer in time"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return "cannot connect: " + e.Err.Error()
	}
	return "cannot connect"
}

// sqliteURL is a DSN of the file that does not make one.
func sqliteURL(file, mode string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: "mode=" + mode + "&_pragma=busy_timeout(5000)"}
	return u.String()
}
