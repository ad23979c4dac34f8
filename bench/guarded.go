package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	_ "modernc.org/sqlite"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

func settingsOf() idempo.Config {
	return idempo.Config{
		DigestKeys: []idempo.Secret{{ID: "d1", Value: []byte("0123456789abcdef0123456789abcdef")}},
		Operations: []idempo.Operation{{Name: "create-order", Guard: idempo.GuardAtomic}, {Name: "send-parcel", Guard: idempo.GuardLeased}},
	}
}

func engineOver(store idempo.Store) (*idempo.Engine, error) { return idempo.New(store, settingsOf()) }

func requestOf(op string, n int64) idempo.Request {
	return idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: strconv.FormatInt(n, 10)}, Input: [][]byte{[]byte(`{"amount":12}`)}, Surface: "http"}
}

// wantRun turns every outcome but a run into an error: a bench that replays measures something else.
func wantRun(b idempo.Begun, err error) error {
	if err == nil && b.Verdict != idempo.VerdictRun {
		err = fmt.Errorf("verdict %s", b.Verdict)
	}
	return err
}

func (p *pg) store(ctx context.Context) (idempo.Store, error) {
	o := idempgx.Options{Schema: p.schema}
	if err := idempgx.Migrate(ctx, p.pool, o); err != nil {
		return nil, err
	}
	return idempgx.New(ctx, p.pool, o)
}

func (p *pg) engine(ctx context.Context) (*idempo.Engine, error) {
	store, err := p.store(ctx)
	if err != nil {
		return nil, err
	}
	return engineOver(store)
}

// rowAnd is the work: one row, and an answer of body.
func rowAnd(body []byte) func(context.Context, *idempo.Claim) (idempo.Result, error) {
	return func(ctx context.Context, c *idempo.Claim) (idempo.Result, error) {
		n, err := strconv.ParseInt(c.Key().ID, 10, 64)
		if err == nil {
			_, err = idempgx.Tx(ctx).Exec(ctx, insertOrder, n, answerBody)
		}
		return idempo.Result{Status: 201, Body: body}, err
	}
}

func guardedPgx(e *idempo.Engine) contender {
	return contender{"idempgx", func(ctx context.Context, n int64) error {
		return wantRun(e.Do(ctx, requestOf("create-order", n), rowAnd([]byte(answerBody))))
	}}
}

func atomicPgx(ctx context.Context, s settings) ([]result, error) { return atomicOn(ctx, s, 16) }

func atomicPgxOne(ctx context.Context, s settings) ([]result, error) { return atomicOn(ctx, s, 1) }

func atomicOn(ctx context.Context, s settings, clients int) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"plain", "idempgx", "three flights by hand", "two commits"}
	rates, err := compare(ctx, s, clients, contender{names[0], p.bare}, guardedPgx(e), contender{names[2], p.threeFlights}, contender{names[3], p.twoCommits})
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("atomic one-row insert, idempgx, %d clients", clients)
	plain, hand, two := ratio(rates[1], rates[0]), ratio(rates[1], rates[2]), ratio(rates[3], rates[0])
	if clients == 1 {
		return []result{{"E35 H50", what + " ÷ plain transaction", plain, "", "≥ 0.75", plain >= 0.75, note(names, rates)}}, nil
	}
	return []result{
		{"E35 H50", what + " ÷ plain transaction", plain, "", "≥ 0.55", plain >= 0.55, note(names, rates)},
		{"E35 H50", what + " ÷ three flights by hand", hand, "", "≥ 0.90", hand >= 0.90, ""},
		{"–", "two commits by hand ÷ plain transaction", two, "", "(reference)", true, ""},
	}, nil
}

func atomicSQL(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	db, err := sql.Open("pgx", dsn())
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	o := postgres.Options{Schema: p.schema}
	if err := postgres.Migrate(ctx, db, o); err != nil {
		return nil, err
	}
	store, err := postgres.New(ctx, db, o)
	if err != nil {
		return nil, err
	}
	e, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	insert := `INSERT INTO ` + p.schema + `.orders (n, body) VALUES ($1, $2)`
	return insertsOver(ctx, s, e, db, insert, "database/sql (pgx stdlib), Postgres", postgres.Tx, 16, 0.40)
}

func atomicSQLite(ctx context.Context, s settings) ([]result, error) {
	dir, err := os.MkdirTemp("", "idempo-bench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "bench.db")
	store, err := sqlite.Open(ctx, "sqlite", path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, body TEXT NOT NULL) STRICT`); err != nil {
		return nil, err
	}
	e, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	return insertsOver(ctx, s, e, db, `INSERT INTO orders (n, body) VALUES (?, ?)`, "SQLite, synchronous=FULL", sqlite.Tx, 16, 0.60)
}

// insertsOver compares the guarded one-row insert with the plain one over database/sql.
func insertsOver(ctx context.Context, s settings, e *idempo.Engine, db *sql.DB, insert, what string, txOf func(context.Context) *sql.Tx, clients int, bar float64) ([]result, error) {
	plain := func(ctx context.Context, n int64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insert, n, answerBody); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	guarded := func(ctx context.Context, n int64) error {
		return wantRun(e.Do(ctx, requestOf("create-order", n), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			_, err := txOf(ctx).ExecContext(ctx, insert, n, answerBody)
			return idempo.Result{Status: 201, Body: []byte(answerBody)}, err
		}))
	}
	names := []string{"plain", "guarded"}
	rates, err := compare(ctx, s, clients, contender{names[0], plain}, contender{names[1], guarded})
	if err != nil {
		return nil, err
	}
	r := ratio(rates[1], rates[0])
	return []result{{"E35", fmt.Sprintf("atomic one-row insert, %s, %d clients ÷ plain transaction", what, clients), r, "", fmt.Sprintf("≥ %.2f", bar), r >= bar, note(names, rates)}}, nil
}

func leasedPgx(ctx context.Context, s settings) ([]result, error) {
	p, err := openPg(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close(ctx)
	e, err := p.engine(ctx)
	if err != nil {
		return nil, err
	}
	two := func(ctx context.Context, n int64) error { // two bare commits of like rows
		key := digestOf(n)
		if _, err := p.pool.Exec(ctx, `INSERT INTO guard (tenant, operation, key, hash, recipe, state, guard, on_crash, surface, attempt, generation, token, owner, derived_key, format, claimed_at, started_at, lease_until)
			VALUES ($1, $2, $3, $4, 'input1;k=d1', 'pending', 'leased', 'hold', 'http', 1, 1, $5, 'host/1234 version', '6be8f39f-c03c-4adc-b47a-d559a3522431', 1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '30 s')`, "acct_7", "send-parcel", key, key, key[:16]); err != nil {
			return err
		}
		_, err := p.pool.Exec(ctx, `UPDATE guard SET state = 'completed', status = 201, body = $4, expires_at = clock_timestamp() + interval '1 day' WHERE tenant = $1 AND operation = $2 AND key = $3`,
			"acct_7", "send-parcel", key, []byte(answerBody))
		return err
	}
	guarded := leasedCall(e)
	names := []string{"two bare commits", "leased"}
	rates, err := compare(ctx, s, 16, contender{names[0], two}, contender{names[1], guarded})
	if err != nil {
		return nil, err
	}
	r := ratio(rates[1], rates[0])
	out := []result{{"E36", "leased, empty work, idempgx, 16 clients ÷ two bare commits of like rows", r, "", "≥ 0.80", r >= 0.8, note(names, rates)}}
	n, err := least(func() (int64, error) {
		return p.commits(ctx, func() error { return repeat(50, func() error { return guarded(ctx, s.n.Add(1)) }) })
	})
	per := float64(n) / 50
	return append(out, result{"E36", "commits per leased call", per, "", "2", per < 2.1, ""}), err
}

func repeat(n int, f func() error) error {
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// least is the smallest of five counts: what others do on the server meanwhile only adds.
func least(count func() (int64, error)) (int64, error) {
	var top int64 = math.MaxInt64
	for range 5 {
		n, err := count()
		if err != nil {
			return 0, err
		}
		top = min(top, n)
	}
	return top, nil
}

// commits counts transaction ids that were used up while f ran: read-only transactions take none.
func (p *pg) commits(ctx context.Context, f func() error) (int64, error) {
	var before, after int64
	if err := p.pool.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&before); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	err := p.pool.QueryRow(ctx, `SELECT pg_current_xact_id()::text::bigint`).Scan(&after)
	return after - before - 1, err
}
