package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func dsn() string {
	return cmp.Or(os.Getenv("IDEMPO_TEST_POSTGRES"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
}

// pg is a schema of its own on the server, with the table of the effect and the tables of the hand-written guards.
type pg struct {
	pool   *pgxpool.Pool
	schema string
}

func openPg(ctx context.Context) (*pg, error) {
	cfg, err := pgxpool.ParseConfig(dsn())
	if err != nil {
		return nil, err
	}
	p := &pg{schema: "bench_" + strconv.Itoa(os.Getpid())}
	cfg.MaxConns = 16
	cfg.ConnConfig.RuntimeParams["search_path"] = p.schema
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	_, err = p.pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+p.schema+` CASCADE; CREATE SCHEMA `+p.schema+`;
		CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint NOT NULL, body text NOT NULL);
		CREATE TABLE guard (tenant text COLLATE "C" NOT NULL, operation text COLLATE "C" NOT NULL, key bytea NOT NULL, hash bytea NOT NULL, recipe text NOT NULL, state text NOT NULL,
			guard text NOT NULL, on_crash text NOT NULL, surface text, failing boolean, attempt bigint, generation int, token bytea NOT NULL, owner text, derived_key text,
			status int, headers bytea, body bytea, body_size bigint, body_kept boolean, format smallint, claimed_at timestamptz, started_at timestamptz, lease_until timestamptz,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), changed_at timestamptz, completed_at timestamptz, expires_at timestamptz, gone_at timestamptz,
			PRIMARY KEY (tenant, operation, key)) WITH (fillfactor = 85);
		CREATE INDEX ON guard USING brin (expires_at); CREATE INDEX ON guard (substr(key, 1, 16));`)
	return p, err
}

func (p *pg) close(ctx context.Context) {
	_, _ = p.pool.Exec(context.WithoutCancel(ctx), `DROP SCHEMA IF EXISTS `+p.schema+` CASCADE`)
	p.pool.Close()
}

const (
	insertOrder = `INSERT INTO orders (n, body) VALUES ($1, $2)`
	answerBody  = `{"id":9,"state":"created"}`
)

func digestOf(n int64) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return sum[:]
}

// bare is the work in a plain transaction.
func (p *pg) bare(ctx context.Context, n int64) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertOrder, n, answerBody)
		return err
	})
}

var errLost = errors.New("lost a race nobody should be in")

// threeFlights is the reference: the work guarded by hand, as well as we know how. Flight 1: BEGIN, try-lock, read.
// Flight 2: the work. Flight 3: the finished record, and COMMIT.
func (p *pg) threeFlights(ctx context.Context, n int64) error {
	key := digestOf(n)
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	locked := false
	b.Queue(`SELECT pg_try_advisory_xact_lock($1)`, int64(binary.BigEndian.Uint64(key))).QueryRow(func(row pgx.Row) error { return row.Scan(&locked) })
	found := false
	b.Queue(`SELECT state, hash, status, body FROM guard WHERE tenant = $1 AND operation = $2 AND key = $3`, "acct_7", "create-order", key).Query(func(rows pgx.Rows) error {
		found = rows.Next()
		rows.Close()
		return rows.Err()
	})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if found || !locked {
		_, _ = conn.Exec(ctx, "ROLLBACK")
		return errLost
	}
	if _, err := conn.Exec(ctx, insertOrder, n, answerBody); err != nil {
		return err
	}
	b = &pgx.Batch{}
	now := time.Now()
	b.Queue(`INSERT INTO guard (tenant, operation, key, hash, recipe, state, guard, on_crash, surface, failing, attempt, generation, token, owner, derived_key, status, headers, body, body_size, body_kept,
		format, claimed_at, started_at, lease_until, changed_at, completed_at, expires_at, gone_at)
		VALUES ($1, $2, $3, $4, $5, 'completed', 'atomic', 'hold', 'http', false, 1, 1, $6, $7, $8, 201, $9, $10, $11, true, 1, $12, $12, $13, $12, $12, $14, $15)`,
		"acct_7", "create-order", key, key, "input1;k=d1", key[:16], "host/1234 version", "6be8f39f-c03c-4adc-b47a-d559a3522431", []byte("[]"), []byte(answerBody), int64(len(answerBody)),
		now, now.Add(30*time.Second), now.Add(24*time.Hour), now.Add(240*time.Hour))
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, b).Close()
}

// twoCommits is what most libraries do: the key commits as pending, then the work with its result.
func (p *pg) twoCommits(ctx context.Context, n int64) error {
	key := digestOf(n)
	tag, err := p.pool.Exec(ctx, `INSERT INTO guard (tenant, operation, key, hash, recipe, state, guard, on_crash, token) VALUES ($1, $2, $3, $4, 'input1;k=d1', 'pending', 'leased', 'hold', $5) ON CONFLICT (tenant, operation, key) DO NOTHING`,
		"acct_7", "create-order", key, key, key[:16])
	if err != nil || tag.RowsAffected() != 1 {
		return cmp.Or(err, errLost)
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertOrder, n, answerBody); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE guard SET state = 'completed', status = 201, body = $4, expires_at = clock_timestamp() + interval '1 day' WHERE tenant = $1 AND operation = $2 AND key = $3`,
			"acct_7", "create-order", key, []byte(answerBody))
		return err
	})
}

// read is a replay by hand: one SELECT of the row by primary key, into variables.
func (p *pg) read(ctx context.Context, n int64) error {
	var tenant, operation, recipe, state, guard, onCrash, surface, owner, derived string
	var key, hash, token, headers, body []byte
	var failing, kept bool
	var attempt, size int64
	var generation, status, format int
	var claimed, started, lease, created, changed, completed, expires, gone time.Time
	return p.pool.QueryRow(ctx, `SELECT tenant, operation, key, hash, recipe, state, guard, on_crash, surface, failing, attempt, generation, token, owner, derived_key, status, headers, body, body_size, body_kept,
		format, claimed_at, started_at, lease_until, created_at, changed_at, completed_at, expires_at, gone_at FROM guard WHERE tenant = $1 AND operation = $2 AND key = $3`,
		"acct_7", "create-order", digestOf(n)).Scan(&tenant, &operation, &key, &hash, &recipe, &state, &guard, &onCrash, &surface, &failing, &attempt, &generation, &token, &owner, &derived, &status, &headers,
		&body, &size, &kept, &format, &claimed, &started, &lease, &created, &changed, &completed, &expires, &gone)
}

func note(names []string, rates [][]float64) (s string) {
	for i, n := range names {
		if i > 0 {
			s += " · "
		}
		s += fmt.Sprintf("%s %.0f/s", n, median(rates[i]))
	}
	return s
}
