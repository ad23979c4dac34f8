package storecheck

import (
	"context"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/storetest"
)

var serverClock = regexp.MustCompile(`([^.])clock_timestamp\(\)`)

// testClock makes the functions of a schema read the time that a test sets in its transaction, the server's clock where
// it sets none. They are otherwise those that were migrated.
func testClock(t testing.TB, dsn, schema string) {
	t.Helper()
	db := openDB(t, "pgx", dsn)
	rows, err := db.QueryContext(t.Context(), `select pg_get_functiondef(oid) from pg_proc where pronamespace = $1::text::regnamespace`, schema)
	must(t, err)
	var texts []string
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		texts = append(texts, text)
	}
	must(t, rows.Err())
	_, err = db.ExecContext(t.Context(), fmt.Sprintf(`create function "%s".test_clock() returns timestamptz language sql as
		$$ select coalesce(nullif(current_setting('idempo_test.now', true), '')::timestamptz, pg_catalog.clock_timestamp()) $$`, schema))
	must(t, err)
	for _, text := range texts {
		_, err := db.ExecContext(t.Context(), serverClock.ReplaceAllString(text, `${1}"`+schema+`".test_clock()`))
		must(t, err)
	}
}

// mixed is one store whose calls go to Go and to SQL in turn; a transaction stays with one of them.
type mixed struct {
	sides [2]interface {
		idempo.Store
		idempo.Transactor
		idempo.Joiner
	}
	*goShared // sweeps and takes
	n         atomic.Int64
}

type mixedKey struct{}

func (m *mixed) side(ctx context.Context) interface {
	idempo.Store
	idempo.Transactor
	idempo.Joiner
} {
	if i, ok := ctx.Value(mixedKey{}).(int64); ok {
		return m.sides[i]
	}
	return m.sides[m.n.Add(1)%2]
}

func (m *mixed) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	return m.side(ctx).Acquire(ctx, p)
}

func (m *mixed) Renew(ctx context.Context, p idempo.RenewParams) (idempo.Record, error) {
	return m.side(ctx).Renew(ctx, p)
}

func (m *mixed) Complete(ctx context.Context, p idempo.CompleteParams) (idempo.Record, error) {
	return m.side(ctx).Complete(ctx, p)
}

func (m *mixed) Release(ctx context.Context, p idempo.ReleaseParams) (idempo.Record, error) {
	return m.side(ctx).Release(ctx, p)
}

func (m *mixed) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	return m.side(ctx).Lookup(ctx, p)
}

func (m *mixed) Joined(ctx context.Context) (tx, own bool, err error) {
	return m.side(ctx).Joined(ctx)
}

func (m *mixed) InTx(ctx context.Context, fn func(context.Context) error) error {
	i := m.n.Add(1) % 2
	return m.sides[i].InTx(ctx, func(ctx context.Context) error { return fn(context.WithValue(ctx, mixedKey{}, i)) })
}

// functionsSubject opens the functions, alone or mixed with the Go store, for the kit.
func functionsSubject(t testing.TB, dsn string, mix bool) storetest.Subject {
	opts := migrated(t, dsn, postgres.Options{})
	testClock(t, dsn, opts.Schema)
	names := newSQLNames()
	driver := "pgx"
	if mix {
		driver = "postgres"
	}
	plain := func() *plainSQL {
		db := openDB(t, driver, dsn)
		s, err := postgres.New(t.Context(), db, opts)
		must(t, err)
		return &plainSQL{goShared: &goShared{store: s, n: names}, db: db, schema: opts.Schema}
	}
	p, again := plain(), plain()
	var store, other idempo.Store = p, again
	if mix {
		m := func(p *plainSQL) *mixed {
			m := &mixed{goShared: p.goShared}
			m.sides[0], m.sides[1] = p.goShared, p
			return m
		}
		store, other = m(p), m(again)
	}
	look := openDB(t, "pgx", dsn)
	return storetest.Subject{
		Store: store, Again: other,
		Effect: func(ctx context.Context, name string) error {
			_, err := postgres.Tx(ctx).ExecContext(ctx, fmt.Sprintf(`insert into "%s".done (what) values ($1)`, opts.Schema), name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = look.QueryRowContext(ctx, fmt.Sprintf(`select count(*) from "%s".done where what = $1`, opts.Schema), name).Scan(&n)
			return n, err
		},
		End:    func(ctx context.Context) error { return postgres.Tx(ctx).Commit() },
		Poison: func(ctx context.Context) { _, _ = postgres.Tx(ctx).ExecContext(ctx, "select 1/0") },
		Own: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			tx, err := p.db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return context.WithValue(p.join(ctx, &plainTx{tx: tx}), mixedKey{}, int64(1)), tx.Commit, tx.Rollback, nil
		},
	}
}

func TestPostgresFunctionsKit(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, mix := range []bool{false, true} {
		name := "[stores/PG11] the functions alone"
		if mix {
			name = "[stores/PG11] Go and SQL in turn"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caps := kitCaps(t)
			caps.SingleAlias, caps.Written, caps.Steps = true, true, 1000
			storetest.Run(t, func(t testing.TB) storetest.Subject { return functionsSubject(t, dsn, mix) }, caps)
		})
	}
}
