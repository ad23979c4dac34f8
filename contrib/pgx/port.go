package idempgx

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo/postgres"
)

// endBudget bounds how long the end of a transaction, detached from its caller, is waited for.
const endBudget = 10 * time.Second

// port is the postgres.Port over a pgx pool: all statements of one call travel in one flight.
type port struct {
	pool *pgxpool.Pool
	open *unconfirmed
}

// sender is what sends a batch: a connection or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Run implements postgres.Port. Several statements without a transaction are one implicit transaction of the server:
// they travel before one Sync.
func (p port) Run(ctx context.Context, tx postgres.PortTx, statements ...postgres.Statement) error {
	switch t := tx.(type) {
	case nil:
		return p.withConn(ctx, func(c *pgxpool.Conn) error {
			if err := p.open.confirm(ctx, c.Conn()); err != nil {
				return &postgres.PortError{Err: err}
			}
			if err := send(ctx, c, statements); err != nil {
				return err
			}
			return p.open.committed(ctx, c.Conn())
		})
	case callers:
		return sent(send(ctx, t.Tx, statements))
	case *transaction:
		if err := t.usable(); err != nil {
			return &postgres.TxError{Code: "tx_ended", Err: err}
		}
		return sent(t.note(send(ctx, t.conn, statements)))
	}
	return postgres.ErrForeignTx
}

// Alive implements postgres.Pipeline.
func (p port) Alive(tx postgres.PortTx) error {
	if t, ok := tx.(*transaction); ok {
		if err := t.usable(); err != nil {
			return &postgres.TxError{Code: "tx_ended", Err: err}
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.failed // by a statement of the work, whether or not it told anybody
	}
	return postgres.ErrForeignTx // a caller's own: its end cannot be seen
}

// send sends statements in one flight and reads every answer.
func send(ctx context.Context, to sender, statements []postgres.Statement) error {
	if len(statements) == 1 {
		return query(ctx, to, statements[0])
	}
	var b pgx.Batch
	for _, st := range statements {
		b.Queue(st.SQL, st.Args...)
	}
	return answers(to.SendBatch(ctx, &b), statements)
}

func query(ctx context.Context, to sender, st postgres.Statement) error {
	rows, err := to.Query(ctx, st.SQL, st.Args...)
	if err != nil {
		return err
	}
	return read(rows, st)
}

func answers(results pgx.BatchResults, statements []postgres.Statement) error {
	for _, st := range statements {
		rows, err := results.Query()
		if err == nil {
			err = read(rows, st)
		}
		if err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

func read(rows pgx.Rows, st postgres.Statement) error {
	defer rows.Close()
	scan := scanner(rows)
	for rows.Next() {
		if st.Row == nil {
			continue
		}
		if err := st.Row(scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// withConn runs f on a connection of the pool, on another one where the pool's turns out to be dead before anything was
// sent on it.
func (p port) withConn(ctx context.Context, f func(*pgxpool.Conn) error) error {
	for try, sent := 0, false; ; try++ {
		c, err := p.pool.Acquire(ctx)
		if err != nil {
			return &postgres.PortError{Sent: sent, Err: err}
		}
		alive := !c.Conn().IsClosed()
		err = f(c)
		if own, ok := errors.AsType[*postgres.PortError](err); ok {
			c.Release()
			return own
		}
		sent = sent || maySent(c.Conn(), alive, err)
		c.Release()
		switch {
		case err == nil:
			return nil
		case !pgconn.SafeToRetry(err), ctx.Err() != nil, try == 3:
			return &postgres.PortError{Sent: sent, Err: err}
		}
	}
}

func sent(err error) error {
	if err == nil {
		return nil
	}
	return &postgres.PortError{Sent: !pgconn.SafeToRetry(err), Err: err}
}

// maySent reports whether what ended with err may have reached the server on c, which was alive before. Where the
// connection is lost while a batch is answered, modes exec and simple_protocol say "conn closed", which pgconn calls
// safe to try again: it is not, if COMMIT was in it.
func maySent(c *pgx.Conn, alive bool, err error) bool {
	return err != nil && (!pgconn.SafeToRetry(err) || alive && c.IsClosed())
}

// Begin implements postgres.Port: BEGIN and the statements are one flight.
func (p port) Begin(ctx context.Context, statements ...postgres.Statement) (postgres.PortTx, error) {
	for try := 0; ; try++ {
		c, err := p.pool.Acquire(ctx)
		if err != nil {
			return nil, &postgres.PortError{Err: err}
		}
		if err := p.open.confirm(ctx, c.Conn()); err != nil {
			c.Release()
			return nil, &postgres.PortError{Err: err}
		}
		tx, err := begin(ctx, c, statements)
		if err == nil {
			return tx, nil
		}
		gone := c.Conn().IsClosed()
		if !gone {
			(&transaction{conn: c}).rollback(ctx)
		}
		c.Release()
		// A transaction without a write leaves nothing, so that a connection that died in the pool is worth another try.
		if !gone || ctx.Err() != nil || try == 3 {
			return nil, &postgres.PortError{Err: err}
		}
	}
}

func begin(ctx context.Context, c *pgxpool.Conn, statements []postgres.Statement) (*transaction, error) {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for _, st := range statements {
		b.Queue(st.SQL, st.Args...)
	}
	results := c.SendBatch(ctx, &b)
	tx := results.Tx()
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return nil, err
	}
	if err := answers(results, statements); err != nil {
		return nil, err
	}
	return &transaction{tx: tx, conn: c}, nil
}

// Commit implements postgres.Port: the statements and COMMIT are one flight. Where a statement fails the server skips
// COMMIT.
func (p port) Commit(ctx context.Context, tx postgres.PortTx, statements ...postgres.Statement) error {
	t, ok := tx.(*transaction)
	if !ok {
		return postgres.ErrForeignTx
	}
	noted, ended := t.close()
	end := context.WithoutCancel(ctx)
	defer t.conn.Release()
	defer t.limit()()
	status := t.conn.Conn().PgConn().TxStatus()
	switch {
	case noted != nil:
		t.rollback(end)
		return &postgres.TxError{Code: "tx_conflict", Err: noted}
	case ended, status == 'I':
		t.rollback(end)
		return &postgres.TxError{Code: "tx_ended"}
	case status == 'E':
		t.rollback(end)
		return &postgres.TxError{Code: "tx_aborted", Err: t.first()}
	}
	warned(t.conn.Conn()) // what the work was warned of
	err := t.commit(end, statements)
	if err != nil {
		t.rollback(end)
		return err
	}
	return p.open.committed(end, t.conn.Conn())
}

// commit sends statements and COMMIT.
func (t *transaction) commit(ctx context.Context, statements []postgres.Statement) error {
	var b pgx.Batch
	for _, st := range statements {
		b.Queue(st.SQL, st.Args...)
	}
	b.Queue("commit")
	alive := !t.conn.Conn().IsClosed()
	results := t.conn.SendBatch(ctx, &b)
	for _, st := range statements {
		rows, err := results.Query()
		if err == nil {
			err = read(rows, st)
		}
		if err != nil {
			_ = results.Close()
			return &postgres.PortError{Sent: maySent(t.conn.Conn(), alive, err), Err: err} // COMMIT travelled behind it
		}
	}
	tag, err := results.Exec()
	if closed := results.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil && !maySent(t.conn.Conn(), alive, err):
		return &postgres.PortError{Err: err}
	case err != nil:
		return postgres.CommitRefused(err)
	case tag.String() == "ROLLBACK":
		return &postgres.TxError{Code: "tx_aborted", Err: t.first()}
	}
	return nil
}

// Rollback implements postgres.Port: ROLLBACK and the statements are one flight. It returns what the server gave the
// transaction up for, if the work was told so.
func (p port) Rollback(ctx context.Context, tx postgres.PortTx, statements ...postgres.Statement) error {
	t, ok := tx.(*transaction)
	if !ok {
		return postgres.ErrForeignTx
	}
	noted, _ := t.close()
	end := context.WithoutCancel(ctx)
	lift := t.limit()
	if len(statements) == 0 || noted != nil {
		t.rollback(end)
		lift()
		t.conn.Release()
		return noted
	}
	all := append([]postgres.Statement{{SQL: "rollback"}}, statements...)
	warned(t.conn.Conn())
	err := send(end, t.conn, all)
	if err == nil {
		err = p.open.committed(end, t.conn.Conn())
	}
	alive := !t.conn.Conn().IsClosed()
	t.rollback(end)
	lift()
	t.conn.Release()
	if err != nil && !alive && !answered(err) {
		end, cancel := context.WithTimeout(end, endBudget)
		defer cancel()
		return sent(p.Run(end, nil, statements...)) // the connection was gone; each statement is harmless twice
	}
	return sent(err)
}

func answered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}
