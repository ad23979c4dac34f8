package idempgx

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

// transaction is one that InTx opened, as the work sees it. It notes what the server gave it up for, so that work that
// swallows such an error is tried again, and refuses to be ended by the work or used after its end.
type transaction struct {
	tx     pgx.Tx
	conn   *pgxpool.Conn
	refuse error // why it never began

	mu     sync.Mutex
	closed bool  // by InTx
	ended  bool  // by the work
	noted  error // the first by which the server gave the transaction up
	failed error // the first error of any statement
}

var errEnded = &idempo.Error{Op: "use", Code: "tx_ended", Hint: "the transaction belongs to idempo, which ends it when the work returns"}

// usable returns why the transaction cannot be used any more.
func (t *transaction) usable() error {
	if t.refuse != nil {
		return t.refuse
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ended {
		return errEnded
	}
	return nil
}

// note remembers an error of a statement and returns it.
func (t *transaction) note(err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
	if t.noted == nil && (postgres.Conflict(err) || postgres.Gone(err)) {
		t.noted = err
	}
	return err
}

func (t *transaction) first() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// close lets the work use the transaction no more.
func (t *transaction) close() (noted error, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.noted, t.ended
}

// limit gives the connection a deadline for the end of the transaction, and returns what lifts it. It costs less than a
// context that ends: every commit needs one.
func (t *transaction) limit() (lift func()) {
	c := t.conn.Conn().PgConn().Conn()
	_ = c.SetDeadline(time.Now().Add(endBudget)) // a closed connection refuses, and every use of it fails
	return func() { _ = c.SetDeadline(time.Time{}) }
}

// rollback ends whatever is open on the connection. Where that fails the connection is closed, and the server rolls
// back.
func (t *transaction) rollback(ctx context.Context) {
	c := t.conn.Conn()
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	if _, err := c.Exec(ctx, "rollback"); err != nil {
		_ = c.Close(ctx)
	}
}

// Begin opens a savepoint.
func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	sp, err := t.tx.Begin(ctx)
	if err != nil {
		return nil, t.note(err)
	}
	return &savepoint{sp, t}, nil
}

// Commit is refused: the store commits. InTx fails with code tx_ended.
func (t *transaction) Commit(context.Context) error {
	return t.end()
}

// Rollback is refused as Commit is; return an error from the work instead.
func (t *transaction) Rollback(context.Context) error {
	return t.end()
}

func (t *transaction) end() error {
	if err := t.usable(); err != nil {
		return pgx.ErrTxClosed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return errEnded
}

// CopyFrom is pgx.Tx.CopyFrom.
func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	n, err := t.tx.CopyFrom(ctx, table, columns, src)
	return n, t.note(err)
}

// SendBatch is pgx.Tx.SendBatch.
func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &batchResults{t.tx.SendBatch(ctx, b), t}
}

// LargeObjects is pgx.Tx.LargeObjects.
func (t *transaction) LargeObjects() pgx.LargeObjects {
	if t.tx == nil {
		return pgx.LargeObjects{}
	}
	return t.tx.LargeObjects()
}

// Prepare is pgx.Tx.Prepare.
func (t *transaction) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	d, err := t.tx.Prepare(ctx, name, sql)
	return d, t.note(err)
}

// Exec is pgx.Tx.Exec.
func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.tx.Exec(ctx, sql, args...)
	return tag, t.note(err)
}

// Query is pgx.Tx.Query.
func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	r, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		return r, t.note(err)
	}
	return &rows{r, t}, nil
}

// QueryRow is pgx.Tx.QueryRow.
func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.usable(); err != nil {
		return row{nil, t, err}
	}
	return row{t.tx.QueryRow(ctx, sql, args...), t, nil}
}

// Conn is the connection the transaction runs on; nil where it could not begin.
func (t *transaction) Conn() *pgx.Conn {
	if t.conn == nil {
		return nil
	}
	return t.conn.Conn()
}

// savepoint is a pgx.Tx inside a transaction.
type savepoint struct {
	pgx.Tx
	t *transaction
}

func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := s.Tx.Begin(ctx)
	if err != nil {
		return nil, s.t.note(err)
	}
	return &savepoint{inner, s.t}, nil
}

func (s *savepoint) Commit(ctx context.Context) error { return s.use(s.Tx.Commit, ctx) }

func (s *savepoint) Rollback(ctx context.Context) error { return s.use(s.Tx.Rollback, ctx) }

func (s *savepoint) use(f func(context.Context) error, ctx context.Context) error {
	if err := s.t.usable(); err != nil {
		return pgx.ErrTxClosed
	}
	return s.t.note(f(ctx))
}

func (s *savepoint) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := s.t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := s.Tx.Exec(ctx, sql, args...)
	return tag, s.t.note(err)
}

func (s *savepoint) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := s.t.usable(); err != nil {
		return nil, err
	}
	r, err := s.Tx.Query(ctx, sql, args...)
	if err != nil {
		return r, s.t.note(err)
	}
	return &rows{r, s.t}, nil
}

func (s *savepoint) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := s.t.usable(); err != nil {
		return row{nil, s.t, err}
	}
	return row{s.Tx.QueryRow(ctx, sql, args...), s.t, nil}
}

func (s *savepoint) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := s.t.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &batchResults{s.Tx.SendBatch(ctx, b), s.t}
}

func (s *savepoint) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := s.t.usable(); err != nil {
		return 0, err
	}
	n, err := s.Tx.CopyFrom(ctx, table, columns, src)
	return n, s.t.note(err)
}

// rows notes the error that ends them.
type rows struct {
	pgx.Rows
	t *transaction
}

func (r *rows) Next() bool {
	ok := r.Rows.Next()
	if !ok {
		_ = r.t.note(r.Rows.Err())
	}
	return ok
}

func (r *rows) Close() {
	r.Rows.Close()
	_ = r.t.note(r.Rows.Err())
}

// row notes the error of its Scan.
type row struct {
	pgx.Row
	t   *transaction
	err error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.t.note(r.Row.Scan(dest...))
}

// batchResults notes the errors of its answers.
type batchResults struct {
	pgx.BatchResults
	t *transaction
}

func (b *batchResults) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, b.t.note(err)
}

func (b *batchResults) Query() (pgx.Rows, error) {
	r, err := b.BatchResults.Query()
	if err != nil {
		return r, b.t.note(err)
	}
	return &rows{r, b.t}, nil
}

func (b *batchResults) QueryRow() pgx.Row { return row{b.BatchResults.QueryRow(), b.t, nil} }

func (b *batchResults) Close() error { return b.t.note(b.BatchResults.Close()) }
