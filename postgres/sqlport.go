package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// endBudget bounds how long the end of a transaction, detached from its caller, is waited for.
const endBudget = 10 * time.Second

var errEndBudget = errors.New("no answer to the end of the transaction")

// sqlPort is the Port over database/sql: one statement, one round trip.
type sqlPort struct{ db *sql.DB }

// NewPort returns the Port that New uses, for who wants to stand between: Over(ctx, port, o) with it is New.
func NewPort(db *sql.DB) Port { return sqlPort{db} }

// sqlTx is a transaction of database/sql.
type sqlTx struct {
	tx   *sql.Tx
	conn *sql.Conn // of a transaction that the port began
	stop context.CancelFunc
}

func (p sqlPort) Run(ctx context.Context, tx PortTx, statements ...Statement) error {
	switch {
	case tx != nil:
		t, ok := tx.(*sqlTx)
		if !ok {
			return ErrForeignTx
		}
		return each(ctx, t.tx, statements)
	case len(statements) == 1:
		return p.withConn(ctx, func(c *sql.Conn) error { return one(ctx, c, statements[0]) })
	}
	t, err := p.Begin(ctx, statements...)
	if err != nil {
		return err
	}
	return p.Commit(ctx, t)
}

// withConn runs f on a connection of the pool, on another one where the pool's turns out to be dead before anything was
// sent on it.
func (p sqlPort) withConn(ctx context.Context, f func(*sql.Conn) error) error {
	for try := 0; ; try++ {
		c, err := p.db.Conn(ctx)
		if err != nil {
			return &PortError{Err: err}
		}
		err = f(c)
		_ = c.Close() // gives it back; a dead one is dropped by database/sql
		if !errors.Is(err, driver.ErrBadConn) || try == 3 {
			return sent(err)
		}
	}
}

// sent wraps an error that came after a statement was handed to the driver. ErrBadConn is the driver's word that nothing
// was sent.
func sent(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*PortError](err); ok {
		return e
	}
	return &PortError{Sent: !errors.Is(err, driver.ErrBadConn), Err: err}
}

// queryer is a connection or transaction.
type queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, q queryer, statements []Statement) error {
	for _, st := range statements {
		if err := one(ctx, q, st); err != nil {
			return sent(err)
		}
	}
	return nil
}

func one(ctx context.Context, q queryer, st Statement) error {
	if st.Row == nil {
		_, err := q.ExecContext(ctx, st.SQL, st.Args...)
		return err
	}
	rows, err := q.QueryContext(ctx, st.SQL, st.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := st.Row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Begin detaches the transaction from ctx once it is open: database/sql would roll it back when ctx ends, also while its
// COMMIT is on the way.
func (p sqlPort) Begin(ctx context.Context, statements ...Statement) (PortTx, error) {
	for try := 0; ; try++ {
		c, err := p.db.Conn(ctx)
		if err != nil {
			return nil, &PortError{Err: err}
		}
		life, end := context.WithCancel(context.WithoutCancel(ctx))
		follow := context.AfterFunc(ctx, end)
		tx, err := c.BeginTx(life, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if !follow() && err == nil {
			_ = tx.Rollback()
			err = ctx.Err()
		}
		if err != nil {
			end()
			_ = c.Close()
			if errors.Is(err, driver.ErrBadConn) && try < 3 {
				continue
			}
			return nil, &PortError{Err: err} // an empty transaction leaves nothing
		}
		t := &sqlTx{tx: tx, conn: c, stop: end}
		if err := each(ctx, tx, statements); err != nil {
			_ = p.Rollback(ctx, t)
			return nil, err
		}
		return t, nil
	}
}

// Commit sends COMMIT only after every statement has answered.
func (p sqlPort) Commit(ctx context.Context, tx PortTx, statements ...Statement) error {
	t, ok := tx.(*sqlTx)
	if !ok {
		return ErrForeignTx
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	if len(statements) == 0 { // shows whether the work ended or broke the transaction; drivers differ in saying so
		statements = []Statement{{SQL: "select 1"}}
	}
	if err := each(ctx, t.tx, statements); err != nil {
		_ = p.Rollback(ctx, t)
		if errors.Is(err, sql.ErrTxDone) {
			return &TxError{Code: "tx_ended"}
		}
		if e, ok := errors.AsType[*PortError](err); ok {
			return &PortError{Err: e.Err} // COMMIT was not sent
		}
		return err
	}
	err := t.end(ctx, t.tx.Commit)
	if errors.Is(err, sql.ErrTxDone) {
		return &TxError{Code: "tx_ended"}
	}
	return CommitRefused(err)
}

// end calls Commit or Rollback, which take no context, and gives the connection back when it has returned.
func (t *sqlTx) end(ctx context.Context, f func() error) error {
	answer := make(chan error, 1)
	go func() {
		err := f()
		t.stop()
		_ = t.conn.Close()
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return errEndBudget
	}
}

func (p sqlPort) Rollback(ctx context.Context, tx PortTx, statements ...Statement) error {
	t, ok := tx.(*sqlTx)
	if !ok {
		return ErrForeignTx
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	_ = t.end(end, t.tx.Rollback) // where it fails the connection is dropped, and the server rolls back
	if len(statements) == 0 {
		return nil
	}
	return p.Run(end, nil, statements...)
}
