package idempgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idempo/idempo/postgres"
)

// Options are those of package postgres.
type Options = postgres.Options

// New returns the store in pool after the checks of postgres.New. The pool stays the caller's, who closes it. It must
// lead to the primary: with several hosts in the DSN set target_session_attrs=read-write.
func New(ctx context.Context, pool *pgxpool.Pool, o Options) (*postgres.Store, error) {
	return postgres.Over(ctx, port{pool: pool, open: new(unconfirmed)}, o)
}

// Migrate is postgres.Migrate over a pool.
func Migrate(ctx context.Context, pool *pgxpool.Pool, o Options) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	return postgres.Migrate(ctx, db, o)
}

// WithTx returns a context that carries the caller's own transaction: claims begun with it are part of tx, and only the
// caller commits or rolls back. A lost race is a verdict at READ COMMITTED and code tx_conflict (40001) at a higher
// level. Use one such context for all calls of one transaction, and from one goroutine at a time.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return postgres.Join(ctx, callers{tx})
}

// Tx returns the transaction that ctx carries, for the effect of an atomic claim: the one that InTx opened or the one of
// WithTx. Outside of a transaction, or in one of another driver, it is nil. What InTx opened is committed by the store:
// its Commit and Rollback do nothing but make InTx fail with code tx_ended. Once InTx has returned every use is an error.
func Tx(ctx context.Context) pgx.Tx {
	tx, err := postgres.Joined(ctx)
	if err != nil {
		return &transaction{refuse: err} // every use says why
	}
	switch t := tx.(type) {
	case *transaction:
		return t
	case callers:
		return t.Tx
	}
	return nil
}

// callers marks a transaction of the caller's own.
type callers struct{ pgx.Tx }
