package httpcheck

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "modernc.org/sqlite"             // driver sqlite

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// world is a database with the store in it and a table of effects beside it.
type world struct {
	kind   string // idempgx, postgres, sqlite
	dsn    string // of PostgreSQL, or the file
	schema string
	db     *sql.DB // for looking
}

// opened is a store of a world in one process.
type opened struct {
	store  idempo.Store
	effect func(ctx context.Context, key string) error // one row, in the transaction of ctx
	query  func(ctx context.Context, statement string) error
	close  func()
}

var worlds atomic.Int64

// eachWorld runs f on every store.
func eachWorld(t *testing.T, f func(t *testing.T, w *world)) {
	for _, kind := range []string{"idempgx", "postgres", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, newWorld(t, kind))
		})
	}
}

func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	if kind == "sqlite" {
		w := &world{kind: kind, dsn: filepath.Join(t.TempDir(), "service.db")}
		s, err := sqlite.Open(t.Context(), "sqlite", w.dsn, sqlite.Options{}) // makes and migrates the file
		must(t, err)
		must(t, s.Close())
		w.db, err = sql.Open("sqlite", "file:"+w.dsn+"?_pragma=busy_timeout(10000)")
		must(t, err)
		t.Cleanup(func() { _ = w.db.Close() })
		_, err = w.db.ExecContext(t.Context(), `create table effects (n integer primary key, what text not null)`)
		must(t, err)
		return w
	}
	w := &world{kind: kind, dsn: os.Getenv("IDEMPO_TEST_POSTGRES")}
	if w.dsn == "" {
		w.dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	var err error
	w.db, err = sql.Open("pgx", w.dsn)
	if err == nil {
		err = w.db.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	w.db.SetMaxOpenConns(2)
	w.schema = fmt.Sprintf("h%d_%d_%d", os.Getpid(), worlds.Add(1), time.Now().UnixNano()%1e9)
	t.Cleanup(func() {
		if _, err := w.db.ExecContext(context.Background(), `drop schema if exists "`+w.schema+`" cascade`); err != nil {
			t.Error(err)
		}
		_ = w.db.Close()
	})
	must(t, postgres.Migrate(t.Context(), w.db, postgres.Options{Schema: w.schema}))
	_, err = w.db.ExecContext(t.Context(), `create table "`+w.schema+`".effects (n bigint generated always as identity, what text not null)`)
	must(t, err)
	return w
}

// table is the name of the table of effects.
func (w *world) table() string {
	if w.kind == "sqlite" {
		return "effects"
	}
	return `"` + w.schema + `".effects`
}

// open opens the store, in this process or, called by a child, in another.
func (w *world) open(ctx context.Context, connections int) (*opened, error) {
	insert := `insert into ` + w.table() + ` (what) values ($1)`
	switch w.kind {
	case "sqlite":
		s, err := sqlite.Open(ctx, "sqlite", w.dsn, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		exec := func(ctx context.Context, q string, args ...any) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, q, args...)
			return err
		}
		return &opened{s, func(ctx context.Context, key string) error { return exec(ctx, insert, key) },
			func(ctx context.Context, q string) error { return exec(ctx, q) }, func() { _ = s.Close() }}, nil
	case "postgres":
		db, err := sql.Open("pgx", w.dsn)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		s, err := postgres.New(ctx, db, postgres.Options{Schema: w.schema})
		if err != nil {
			return nil, err
		}
		exec := func(ctx context.Context, q string, args ...any) error {
			_, err := postgres.Tx(ctx).ExecContext(ctx, q, args...)
			return err
		}
		return &opened{s, func(ctx context.Context, key string) error { return exec(ctx, insert, key) },
			func(ctx context.Context, q string) error { return exec(ctx, q) }, func() { _ = db.Close() }}, nil
	default:
		c, err := pgxpool.ParseConfig(w.dsn)
		if err != nil {
			return nil, err
		}
		c.MaxConns = int32(connections)
		pool, err := pgxpool.NewWithConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		s, err := idempgx.New(ctx, pool, idempgx.Options{Schema: w.schema})
		if err != nil {
			return nil, err
		}
		exec := func(ctx context.Context, q string, args ...any) error {
			_, err := idempgx.Tx(ctx).Exec(ctx, q, args...)
			return err
		}
		return &opened{s, func(ctx context.Context, key string) error { return exec(ctx, insert, key) },
			func(ctx context.Context, q string) error { return exec(ctx, q) }, pool.Close}, nil
	}
}

// effects counts what happened for a key, outside of the store.
func (w *world) effects(t *testing.T, key string) (n int) {
	t.Helper()
	must(t, w.db.QueryRowContext(t.Context(), `select count(*) from `+w.table()+` where what = $1`, key).Scan(&n))
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
