package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// FinishedTx returns a transaction that is over: every use is sql.ErrTxDone. It is for work that asks for a transaction
// where none can be had any more, and is told so by what it does with it.
func FinishedTx() *sql.Tx {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	tx, err := db.Begin()
	if err != nil {
		return nil
	}
	_ = tx.Rollback()
	return tx
}

// nowhere is a driver whose only use is a transaction that can be ended.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nowhere{}, nil }
func (nowhere) Driver() driver.Driver                        { return nowhere{} }
func (nowhere) Open(string) (driver.Conn, error)             { return nowhere{}, nil }
func (nowhere) Prepare(string) (driver.Stmt, error)          { return nil, sql.ErrTxDone }
func (nowhere) Close() error                                 { return nil }
func (nowhere) Begin() (driver.Tx, error)                    { return nowhere{}, nil }
func (nowhere) Commit() error                                { return nil }
func (nowhere) Rollback() error                              { return nil }
