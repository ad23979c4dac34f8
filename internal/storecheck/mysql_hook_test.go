package storecheck

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/mysql"
)

// hook stands between database/sql and the driver and sees every statement before it is sent.
type hook struct {
	sqldriver.Connector
	mu  sync.Mutex
	see func(query string, c *driverConn) error // nil: nothing; an error is returned instead of the statement's answer
}

// on makes see look at every statement from now on.
func (h *hook) on(see func(query string, c *driverConn) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.see = see
}

func (h *hook) saw(query string, c *driverConn) error {
	h.mu.Lock()
	see := h.see
	h.mu.Unlock()
	if see == nil {
		return nil
	}
	return see(query, c)
}

// Connect returns a connection of the driver whose statements are seen.
func (h *hook) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &driverConn{c, h}, nil
}

// wire is what database/sql uses of a connection of the driver.
type wire interface {
	sqldriver.Conn
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.SessionResetter
	sqldriver.Validator
	sqldriver.NamedValueChecker
}

type driverConn struct {
	sqldriver.Conn
	h *hook
}

func (c *driverConn) raw() wire { return c.Conn.(wire) }

// do sends a statement that is not seen.
func (c *driverConn) do(query string) error {
	_, err := c.raw().ExecContext(context.Background(), query, nil)
	return err
}

// ExecContext sends a statement.
func (c *driverConn) ExecContext(ctx context.Context, q string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.h.saw(q, c); err != nil {
		return nil, err
	}
	return c.raw().ExecContext(ctx, q, args)
}

// QueryContext sends a query.
func (c *driverConn) QueryContext(ctx context.Context, q string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.h.saw(q, c); err != nil {
		return nil, err
	}
	return c.raw().QueryContext(ctx, q, args)
}

// BeginTx begins.
func (c *driverConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	if err := c.h.saw("begin", c); err != nil {
		return nil, err
	}
	tx, err := c.raw().BeginTx(ctx, o)
	return &hookedTx{tx, c}, err
}

// PrepareContext prepares.
func (c *driverConn) PrepareContext(ctx context.Context, q string) (sqldriver.Stmt, error) {
	return c.raw().PrepareContext(ctx, q)
}

// ResetSession makes the connection ready for its next user.
func (c *driverConn) ResetSession(ctx context.Context) error { return c.raw().ResetSession(ctx) }

// IsValid says whether the connection may be used again.
func (c *driverConn) IsValid() bool { return c.raw().IsValid() }

// CheckNamedValue converts an argument.
func (c *driverConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	return c.raw().CheckNamedValue(v)
}

type hookedTx struct {
	sqldriver.Tx
	c *driverConn
}

// Commit commits.
func (t *hookedTx) Commit() error {
	if err := t.c.h.saw("commit", t.c); err != nil {
		return err
	}
	return t.Tx.Commit()
}

// hookedMySQL is newMySQL on a pool whose statements are seen.
func hookedMySQL(t testing.TB) (*my, *hook) {
	t.Helper()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, mysql.Options{})
	connector, err := driver.NewConnector(c)
	must(t, err)
	h := &hook{Connector: connector}
	m := &my{c: c, pool: sql.OpenDB(h), db: openMySQL(t, c)}
	m.pool.SetMaxIdleConns(8)
	m.pool.SetMaxOpenConns(30)
	t.Cleanup(func() { _ = m.pool.Close() })
	m.Store, err = mysql.New(t.Context(), m.pool, mysql.Options{})
	must(t, err)
	return m, h
}

// refusal is an answer of the server with a number.
func refusal(number uint16) error { return &driver.MySQLError{Number: number, Message: "canary"} }
