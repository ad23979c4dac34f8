package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// ours marks statements of the store itself.
type ours struct{}

// background is the context of the store's own statements. It never ends, so that no caller interrupts one.
type background struct{}

// Deadline has none.
func (background) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done never closes.
func (background) Done() <-chan struct{} { return nil }

// Err is nil.
func (background) Err() error { return nil }

// Value knows the mark only.
func (background) Value(key any) any {
	if key == (ours{}) {
		return true
	}
	return nil
}

// guarded wraps the driver of the writing handle, so that a transaction lent to the work cannot end under the store.
// SQLite rolls a whole transaction back on some errors (a full disk, an interrupted write, a trigger's RAISE), and what
// the work wrote next would then be committed statement by statement, without the record.
func guardedDB(driverName, name string) (*sql.DB, error) {
	db, err := sql.Open(driverName, name)
	if err != nil {
		return nil, errors.New("sqlite: open: the program links no driver " + driverName)
	}
	d := db.Driver()
	return sql.OpenDB(guardConnector{opener{d, name}}), db.Close()
}

type guardConnector struct{ opener }

// Connect opens a connection that is guarded, where the driver has what that needs; both known drivers have.
func (g guardConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := g.opener.Connect(ctx)
	if err != nil {
		return nil, err
	}
	guarded, err := guard(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return guarded, nil
}

// guardConn is one connection. database/sql uses it from one goroutine at a time.
type guardConn struct {
	driver.Conn
	begin   driver.ConnBeginTx
	prepare driver.ConnPrepareContext
	exec    driver.ExecerContext
	query   driver.QueryerContext

	inTx   bool
	broken error // why the transaction is over although nobody was told: every further statement in it is refused
}

func guard(c driver.Conn) (*guardConn, error) {
	g := &guardConn{Conn: c}
	var ok [4]bool
	g.begin, ok[0] = c.(driver.ConnBeginTx)
	g.prepare, ok[1] = c.(driver.ConnPrepareContext)
	g.exec, ok[2] = c.(driver.ExecerContext)
	g.query, ok[3] = c.(driver.QueryerContext)
	if slices.Contains(ok[:], false) {
		return nil, errors.New("sqlite: open: the driver lacks contexts")
	}
	return g, nil
}

// ResetSession is the driver's, if it has one.
func (c *guardConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid is the driver's, if it has one.
func (c *guardConn) IsValid() bool {
	v, ok := c.Conn.(driver.Validator)
	return !ok || v.IsValid()
}

// BeginTx begins a transaction that only the store can commit.
func (c *guardConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.begin.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	c.inTx, c.broken = true, nil
	return &guardTx{c: c, tx: tx}, nil
}

// ExecContext refuses what would end the transaction, and notices when SQLite ended it.
func (c *guardConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.before(ctx, query); err != nil {
		return nil, err
	}
	res, err := c.exec.ExecContext(ctx, query, args)
	return res, c.after(err)
}

// QueryContext is like ExecContext.
func (c *guardConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.before(ctx, query); err != nil {
		return nil, err
	}
	rows, err := c.query.QueryContext(ctx, query, args)
	return rows, c.after(err)
}

// PrepareContext guards the statement.
func (c *guardConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.before(ctx, query); err != nil {
		return nil, err
	}
	s, err := c.prepare.PrepareContext(ctx, query)
	if err != nil {
		return nil, c.after(err)
	}
	return &guardStmt{Stmt: s, c: c}, nil
}

func (c *guardConn) before(ctx context.Context, query string) error {
	switch {
	case !c.inTx:
		return nil
	case c.broken != nil:
		return c.broken
	case ctx.Value(ours{}) == nil && endsTransaction(query):
		c.broken = &idempo.Error{Op: "in_tx", Code: "tx_ended", Hint: "the transaction belongs to the store; return an error to roll it back"}
		return c.broken
	}
	return nil
}

// after asks, once a statement has failed, whether the transaction is still there: inside one, BEGIN is an error.
func (c *guardConn) after(err error) error {
	if err == nil || !c.inTx || c.broken != nil {
		return err
	}
	if _, berr := c.exec.ExecContext(context.Background(), "BEGIN", nil); berr == nil {
		_, _ = c.exec.ExecContext(context.Background(), "ROLLBACK", nil)
		c.broken = &idempo.Error{Op: "in_tx", Code: "tx_aborted", Err: shown(err), Hint: "SQLite rolled the whole transaction back when a statement failed"}
	}
	return err
}

// endsTransaction reports whether query begins with a word that ends a transaction.
func endsTransaction(query string) bool {
	q := strings.ToUpper(query)
	for {
		q = strings.TrimLeft(q, " \t\r\n\f;")
		switch {
		case strings.HasPrefix(q, "--"):
			_, q, _ = strings.Cut(q, "\n")
		case strings.HasPrefix(q, "/*"):
			_, q, _ = strings.Cut(q, "*/")
		case strings.HasPrefix(q, "COMMIT"), strings.HasPrefix(q, "END"):
			return true
		case strings.HasPrefix(q, "ROLLBACK"):
			words := strings.Fields(q)
			return !(len(words) > 1 && words[1] == "TO" || len(words) > 2 && words[1] == "TRANSACTION" && words[2] == "TO")
		default:
			return false
		}
	}
}

// guardTx is one transaction.
type guardTx struct {
	c  *guardConn
	tx driver.Tx
}

// Commit is called by the work only; the store sends COMMIT as a statement. It rolls back.
func (t *guardTx) Commit() error {
	return errors.Join(&idempo.Error{Op: "in_tx", Code: "tx_ended", Hint: "the transaction belongs to the store; it was rolled back"}, t.Rollback())
}

// Rollback ends the transaction, if it is not over already.
func (t *guardTx) Rollback() error {
	broken := t.c.broken
	t.c.inTx, t.c.broken = false, nil
	if e, ok := errors.AsType[*idempo.Error](broken); ok && e.Code == "tx_aborted" {
		return nil
	}
	return t.tx.Rollback()
}

// guardStmt is a prepared statement.
type guardStmt struct {
	driver.Stmt
	c *guardConn
}

// ExecContext is like that of the connection.
func (s *guardStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.c.before(ctx, ""); err != nil {
		return nil, err
	}
	e, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errors.New("sqlite: the driver's statements lack contexts")
	}
	res, err := e.ExecContext(ctx, args)
	return res, s.c.after(err)
}

// QueryContext is like that of the connection.
func (s *guardStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.c.before(ctx, ""); err != nil {
		return nil, err
	}
	q, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.New("sqlite: the driver's statements lack contexts")
	}
	rows, err := q.QueryContext(ctx, args)
	return rows, s.c.after(err)
}
