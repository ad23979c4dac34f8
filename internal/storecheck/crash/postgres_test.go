package crash

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "github.com/lib/pq"              // driver postgres

	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// Stores on PostgreSQL, by driver.
const (
	byPGX    = "postgres (idempgx)"
	byStdlib = "postgres (pgx stdlib)"
	byPQ     = "postgres (lib/pq)"
)

func pgInsert(schema string) string {
	return fmt.Sprintf(`insert into "%s".effects (intent, content) values ($1, $2)`, schema)
}

// openPostgres opens the store of a service.
func openPostgres(ctx context.Context, c config) (world, error) {
	o, insert := postgres.Options{Schema: c.Schema, TxIdle: c.TxIdle}, pgInsert(c.Schema)
	if c.Store == byPGX {
		pool, err := pgxpool.New(ctx, c.Place)
		if err != nil {
			return world{}, err
		}
		store, err := idempgx.New(ctx, pool, o)
		return world{store: store,
			insert: func(ctx context.Context, key, content string) error {
				_, err := idempgx.Tx(ctx).Exec(ctx, insert, key, content)
				return err
			},
			bare: func(ctx context.Context, key, content string) error {
				_, err := pool.Exec(ctx, insert, key, content)
				return err
			},
		}, err
	}
	driver := "pgx"
	if c.Store == byPQ {
		driver = "postgres"
	}
	db, err := sql.Open(driver, c.Place)
	if err != nil {
		return world{}, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	store, err := postgres.New(ctx, db, o)
	return world{store: store,
		insert: func(ctx context.Context, key, content string) error {
			_, err := postgres.Tx(ctx).ExecContext(ctx, insert, key, content)
			return err
		},
		bare: func(ctx context.Context, key, content string) error {
			_, err := db.ExecContext(ctx, insert, key, content)
			return err
		},
	}, err
}

// postgresDSN returns where the PostgreSQL of the tests is, or skips.
func postgresDSN(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	_ = conn.Close(t.Context())
	return dsn
}

// pgLane is a schema.
type pgLane struct {
	store, dsn, schema string
	pool               *pgxpool.Pool // the counter's own
}

func newPostgresLane(store string) func(*testing.T) lane {
	var made atomic.Int64
	return func(t *testing.T) lane {
		t.Helper()
		l := &pgLane{store: store, dsn: postgresDSN(t)}
		l.schema = fmt.Sprintf("crash_%d_%d_%d", os.Getpid(), made.Add(1), time.Now().UnixNano()%1e9)
		var err error
		if l.pool, err = pgxpool.New(t.Context(), l.dsn); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := l.pool.Exec(context.WithoutCancel(t.Context()), `drop schema if exists "`+l.schema+`" cascade`); err != nil {
				t.Error(err)
			}
			l.pool.Close()
		})
		if err := idempgx.Migrate(t.Context(), l.pool, postgres.Options{Schema: l.schema}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.pool.Exec(t.Context(), `create table "`+l.schema+`".effects (intent text not null, content text not null)`); err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func (l *pgLane) config() config { return config{Store: l.store, Place: l.dsn, Schema: l.schema} }

func (l *pgLane) rows(ctx context.Context, key string) ([]string, error) {
	rows, err := l.pool.Query(ctx, `select content from "`+l.schema+`".effects where intent = $1`, key)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// record returns the row of a key, as text.
func (l *pgLane) record(ctx context.Context, key string) (text string, err error) {
	err = l.pool.QueryRow(ctx, `select r::text from "`+l.schema+`".records r where trace = $1`, key).Scan(&text)
	return text, err
}

// sound looks for what a dead service may have left open in the server.
func (l *pgLane) sound(ctx context.Context) (string, error) {
	var n int
	err := l.pool.QueryRow(ctx, `select count(*) from pg_locks l join pg_class c on c.oid = l.relation join pg_namespace s on s.oid = c.relnamespace
		where s.nspname = $1 and l.pid <> pg_backend_pid()`, l.schema).Scan(&n)
	if err == nil && n > 0 {
		return fmt.Sprintf("%d locks are left", n), nil
	}
	return "ok", err
}

// wire leads c through a proxy.
func (l *pgLane) wire(t *testing.T, c *config, trap crashtest.Trap) *crashtest.Wire {
	t.Helper()
	server, err := pgx.ParseConfig(l.dsn)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "tcp", net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port)))
	if strings.HasPrefix(server.Host, "/") {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", server.Host, server.Port)
	}
	w, err := crashtest.OpenWire(network, address, trap)
	if err != nil {
		t.Fatal(err)
	}
	there := url.URL{Scheme: "postgres", User: url.UserPassword(server.User, server.Password), Path: server.Database,
		Host: fmt.Sprintf("127.0.0.1:%d", w.Port()), RawQuery: "sslmode=disable"}
	c.Place = there.String()
	return w
}

// plan is where a step is on PostgreSQL. A leased claim and its result are transactions of one statement: their COMMIT
// is the message that ends the flight.
func (l *pgLane) plan(step, guard string, i int) plan {
	leased := guard != opAtomic
	claim, commit := pgserver.IsLock, crashtest.IsCommit
	if leased {
		claim, commit = pgserver.IsClaim, pgserver.IsResult
	}
	trap := func(match func(string) bool, f crashtest.Fault, mode string) plan {
		t := crashtest.Trap{Match: match, Fault: f}
		if !leased && step == "CT6" {
			t.After = pgserver.IsLock // opening the store commits too
		}
		return plan{trap: t, mode: mode}
	}
	switch {
	case step == "CT2":
		return trap(claim, crashtest.KeepAnswer, "")
	case step == "CT5" && leased:
		return trap(commit, crashtest.WithholdSync, "")
	case step == "CT5":
		return plan{halt: "completed"}
	case step == "CT6" && i%3 == 0:
		return trap(commit, crashtest.LoseRequest, lost)
	case step == "CT6" && i%3 == 1:
		return trap(commit, crashtest.KeepAnswer, answered)
	case step == "CT6":
		return trap(commit, crashtest.Race, raced)
	}
	return everywhere(step)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	b := newBench(t, byPGX, newPostgresLane(byPGX))
	b.matrix(t, kills(t))
	t.Run("[stores/CT46] without the guard there are two effects", func(t *testing.T) { b.control(t, min(kills(t), 20)) })
}

// The same SQL through database/sql takes other flights; a fifth of the kills looks at them.
func TestPostgresDrivers(t *testing.T) {
	t.Parallel()
	for _, store := range []string{byStdlib, byPQ} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			newBench(t, store, newPostgresLane(store)).matrix(t, max(3, kills(t)/5))
		})
	}
}
