package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver pgx
	_ "github.com/lib/pq"              // driver postgres

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/postgres"
)

var schemas atomic.Int64

// postgresDSN returns where the PostgreSQL of the tests is, or skips.
func postgresDSN(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	db, err := sql.Open("pgx", dsn)
	if err == nil {
		defer func() { _ = db.Close() }()
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return dsn
}

// withParam returns dsn with one more parameter.
func withParam(t testing.TB, dsn string, pairs ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func openDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// schemaName is a schema of the test's own, dropped at its end.
func schemaName(t testing.TB, dsn string) string {
	t.Helper()
	name := fmt.Sprintf("t%d_%d_%d", os.Getpid(), schemas.Add(1), time.Now().UnixNano()%1e9)
	t.Cleanup(func() {
		if _, err := openCleanup(dsn, `drop schema if exists "`+name+`" cascade`); err != nil {
			t.Error(err)
		}
	})
	return name
}

// openCleanup runs one statement after the test's own connections are gone.
func openCleanup(dsn, statement string) (sql.Result, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return db.ExecContext(context.Background(), statement)
}

// pgEffects is a table beside the store: what the work does to the world.
const pgEffects = `create table "%[1]s".effects (n bigint generated always as identity, what text not null unique);
create table "%[1]s".done (what text)`

// pg is one store on PostgreSQL with the means to work in its transactions, whatever the driver.
type pg struct {
	*postgres.Store
	name string
	dsn  string
	o    postgres.Options
	db   *sql.DB // for looking, not for the store
	// exec runs a statement in the transaction that ctx carries.
	exec func(ctx context.Context, query string, args ...any) error
	// end commits the transaction that ctx carries, as a careless caller would.
	end func(ctx context.Context) error
	// at is begin in another database, by the same driver.
	at func(ctx context.Context, dsn string) (context.Context, func() error, func() error, error)
	// inUse is how many connections of the store's pool are not idle.
	inUse func() int
	// leave closes every connection of the store's pool, and the pool goes on.
	leave func()
	// full runs f while every connection of the store's pool is taken.
	full func(t testing.TB, f func())
	// begin opens a transaction of the caller's own.
	begin func(ctx context.Context) (joined context.Context, commit, rollback func() error, err error)
}

// deferred makes the first transaction that has the effect what fail at its COMMIT with an SQLSTATE.
func (p *pg) deferred(ctx context.Context, what, state string) error {
	_, err := p.db.ExecContext(ctx, fmt.Sprintf(`create sequence "%[1]s"."once %[2]s";
create function "%[1]s"."fail %[2]s"() returns trigger language plpgsql as $$ begin
  if new.what = '%[2]s' and nextval('"%[1]s"."once %[2]s"') = 1 then raise exception 'injected' using errcode = '%[3]s'; end if; return new; end $$;
create constraint trigger "t %[2]s" after insert on "%[1]s".effects deferrable initially deferred for each row execute function "%[1]s"."fail %[2]s"()`,
		p.o.Schema, what, state))
	return err
}

// effect does the work's effect once in the transaction of ctx.
func (p *pg) effect(ctx context.Context, what string) error {
	return p.exec(ctx, fmt.Sprintf(`insert into "%s".effects (what) values ('%s')`, p.o.Schema, what))
}

// count returns the number of rows that a query counts, on a connection of its own.
func (p *pg) count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var n int
	if err := p.db.QueryRowContext(context.Background(), strings.ReplaceAll(query, "SCHEMA", `"`+p.o.Schema+`"`), args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// pgOpener opens a store of one kind on a migrated schema.
type pgOpener struct {
	name string
	open func(t testing.TB, dsn string, o postgres.Options) *pg
}

func pgOpeners() []pgOpener {
	return []pgOpener{
		{"pgx", openPgx},
		{"stdlib", func(t testing.TB, dsn string, o postgres.Options) *pg { return openSQL(t, "pgx", dsn, o) }},
		{"pq", func(t testing.TB, dsn string, o postgres.Options) *pg { return openSQL(t, "postgres", dsn, o) }},
	}
}

// eachPostgres runs f on every kind of store, each on a schema of its own.
func eachPostgres(t *testing.T, f func(t *testing.T, p *pg)) {
	dsn := postgresDSN(t)
	for _, o := range pgOpeners() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			f(t, o.open(t, dsn, migrated(t, dsn, postgres.Options{})))
		})
	}
}

// migrated returns o with a schema of the test's own that has been migrated, and a table of effects in it.
func migrated(t testing.TB, dsn string, o postgres.Options) postgres.Options {
	t.Helper()
	o.Schema = schemaName(t, dsn)
	db := openDB(t, "pgx", dsn)
	if err := postgres.Migrate(t.Context(), db, o); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf(pgEffects, o.Schema)); err != nil {
		t.Fatal(err)
	}
	return o
}

func openSQL(t testing.TB, driver, dsn string, o postgres.Options) *pg {
	t.Helper()
	db := openDB(t, driver, dsn)
	s, err := postgres.New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return &pg{Store: s, name: driver, dsn: dsn, o: o, db: openDB(t, "pgx", dsn),
		end: func(ctx context.Context) error { return postgres.Tx(ctx).Commit() },
		exec: func(ctx context.Context, query string, args ...any) error {
			_, err := postgres.Tx(ctx).ExecContext(ctx, query, args...)
			return err
		},
		at: func(ctx context.Context, dsn string) (context.Context, func() error, func() error, error) {
			tx, err := openDB(t, driver, dsn).BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return postgres.WithTx(ctx, tx), tx.Commit, tx.Rollback, nil
		},
		inUse: func() int { return db.Stats().InUse },
		leave: func() { db.SetMaxIdleConns(-1); db.SetMaxIdleConns(8) },
		full: func(t testing.TB, f func()) {
			db.SetMaxOpenConns(1)
			c, err := db.Conn(t.Context())
			must(t, err)
			f()
			must(t, c.Close())
			db.SetMaxOpenConns(0)
		},
		begin: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return postgres.WithTx(ctx, tx), tx.Commit, tx.Rollback, nil
		},
	}
}

func openPgx(t testing.TB, dsn string, o postgres.Options) *pg {
	t.Helper()
	return pgxStore(t, openPool(t, dsn), dsn, o)
}

func pgxStore(t testing.TB, pool *pgxpool.Pool, dsn string, o postgres.Options) *pg {
	t.Helper()
	s, err := idempgx.New(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return &pg{Store: s, name: "idempgx", dsn: dsn, o: o, db: openDB(t, "pgx", dsn),
		end: func(ctx context.Context) error {
			if idempgx.Tx(ctx).Commit(ctx) == nil {
				return errors.New("the transaction let itself be committed")
			}
			return nil
		},
		exec: func(ctx context.Context, query string, args ...any) error {
			_, err := idempgx.Tx(ctx).Exec(ctx, query, args...)
			return err
		},
		at: func(ctx context.Context, dsn string) (context.Context, func() error, func() error, error) {
			tx, err := openPool(t, dsn).Begin(ctx)
			if err != nil {
				return nil, nil, nil, err
			}
			return idempgx.WithTx(ctx, tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }, nil
		},
		inUse: func() int { return int(pool.Stat().AcquiredConns()) },
		leave: pool.Reset,
		full: func(t testing.TB, f func()) {
			held := make([]*pgxpool.Conn, pool.Config().MaxConns)
			for i := range held {
				c, err := pool.Acquire(t.Context())
				must(t, err)
				held[i] = c
			}
			f()
			for _, c := range held {
				c.Release()
			}
		},
		begin: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, nil, nil, err
			}
			return idempgx.WithTx(ctx, tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }, nil
		},
	}
}

var pgIDs atomic.Int64

// pgClaim returns fresh params for a key of its own.
func pgClaim(guard idempo.Guard) idempo.AcquireParams {
	n := pgIDs.Add(1)
	p := idempo.AcquireParams{
		Key:  idempo.Key{Tenant: "tenant", Operation: "op", ID: pgDigest(n)},
		Hash: []byte("hash-hash-hash-hash"), Recipe: "r1", Guard: guard, OnCrash: idempo.OnCrashHold, Lease: 30 * time.Second,
		DerivedKey: "6be8f39f-c03c-4adc-b47a-d559a3522431", Surface: "run", Owner: "me",
	}
	return pgAgain(p)
}

// pgAgain is p as another caller would make it.
func pgAgain(p idempo.AcquireParams) idempo.AcquireParams {
	p.Token = idempo.Token{}
	copy(p.Token[:], pgDigest(pgIDs.Add(1)))
	return p
}

func pgDigest(n int64) string {
	return fmt.Sprintf("%08d\xff\x00%022d", n%1e8, n)
}

// pgResult is the completion of a claim.
func pgResult(p idempo.AcquireParams, a idempo.Acquired, body string) idempo.CompleteParams {
	return idempo.CompleteParams{Key: p.Key, Token: p.Token, Won: p, Attempt: a.Record.Attempt,
		Result: idempo.Result{Status: 201, Header: [][2]string{{"A", "\xff"}}, Body: []byte(body), Resource: idempo.Resource{Type: "order", ID: "9"}},
		Size:   int64(len(body)), Kept: true, Retention: time.Hour, Tombstone: time.Hour}
}

// must fails the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pgAcquire acquires p and fails the test unless the verdict is want.
func pgAcquire(t testing.TB, ctx context.Context, s idempo.Store, p idempo.AcquireParams, want idempo.Verdict) idempo.Acquired { //nolint:revive // the context is the case
	t.Helper()
	a, err := s.Acquire(ctx, p)
	if err != nil || a.Verdict != want {
		t.Fatalf("Acquire = %q, %v, want %q", a.Verdict, err, want)
	}
	return a
}

// codeOf returns the code of the outermost idempo.Error in err, or its text.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := pgError(err); ok {
		return e.Code
	}
	return err.Error()
}
