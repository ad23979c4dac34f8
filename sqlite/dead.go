package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// refusing returns a transaction on which every statement fails with err, so that work that asked for one where none
// could begin gets an error and not a nil pointer. t is locked.
func (t *txn) refusing(err error) *sql.Tx {
	db := sql.OpenDB(refusal{err})
	tx, berr := db.BeginTx(background{}, nil)
	if berr != nil {
		panic("sqlite: " + berr.Error()) // refusal.BeginTx cannot fail
	}
	if t.ended {
		_ = tx.Rollback() // nobody will end it later: every use says that it is over
		_ = db.Close()
		return tx
	}
	t.dead = append(t.dead, db)
	return tx
}

// refusal is a database that refuses every statement.
type refusal struct{ err error }

// Connect returns the refusal as its own connection.
func (r refusal) Connect(context.Context) (driver.Conn, error) { return r, nil }

// Driver is never asked for.
func (r refusal) Driver() driver.Driver { return nil }

// Prepare refuses.
func (r refusal) Prepare(string) (driver.Stmt, error) { return nil, r.err }

// Begin opens nothing.
func (r refusal) Begin() (driver.Tx, error) { return r, nil }

// Commit refuses.
func (r refusal) Commit() error { return r.err }

// Rollback does nothing.
func (r refusal) Rollback() error { return nil }

// Close does nothing.
func (r refusal) Close() error { return nil }
