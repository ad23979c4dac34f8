package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
)

// Statement is one SQL statement with its arguments, $1 first: int64, bool, string, []byte or nil. Row, when not nil, is
// called for each row it returns; scan takes pointers as database/sql does.
type Statement struct {
	SQL  string
	Args []any
	Row  func(scan func(dest ...any) error) error
}

// PortTx is an open transaction of a Port. Only the port looks into it.
type PortTx any

// Port is how a Store reaches its server. Package idempgx brings one that sends many statements in one flight; the
// store's SQL and its logic are the same with every port.
//
// Errors: an answer of the server keeps its SQLState method; every error of Run, Begin and Commit is, or wraps, a
// *PortError, which says whether anything may have reached the server. All methods are safe for concurrent use, except
// that one PortTx is used by one goroutine at a time.
type Port interface {
	// Run runs statements one after the other, in tx or, where tx is nil, as one transaction of their own. After one
	// that fails the rest is not run, and nothing of the transaction remains if it was their own. A tx that is not this
	// port's own is an error that matches ErrForeignTx.
	Run(ctx context.Context, tx PortTx, statements ...Statement) error
	// Begin begins a READ COMMITTED transaction, whatever the defaults, and runs statements in it. The end of ctx
	// matters until Begin returns. On error nothing is open.
	Begin(ctx context.Context, statements ...Statement) (PortTx, error)
	// Commit runs statements in tx and commits it. Whatever it returns, the transaction is over on this side. A
	// transaction that its user has ended, or that can only be rolled back, is *TxError. PortError.Sent means: COMMIT
	// may have reached the server, and no answer came.
	Commit(ctx context.Context, tx PortTx, statements ...Statement) error
	// Rollback rolls tx back, then runs statements as one transaction of their own. Where the port knows that the server
	// gave tx up under the work (Conflict, Gone), it runs no statement and returns that error.
	Rollback(ctx context.Context, tx PortTx, statements ...Statement) error
}

// Pipeline is a Port that sends many statements in one flight. Only over such a one is it worth to look ahead.
type Pipeline interface {
	// Alive returns why tx cannot be used any more, nil while it can. It sends nothing.
	Alive(tx PortTx) error
}

// PortError is what a Port returns: whether a statement may have reached the server without an answer that counts, and
// the driver's error.
type PortError struct {
	Sent bool
	Err  error
}

// Error is the driver's text, which may hold values: a Store never shows it.
func (e *PortError) Error() string { return e.Err.Error() }

// Unwrap returns the driver's error.
func (e *PortError) Unwrap() error { return e.Err }

// TxError says why a transaction cannot commit: Code is tx_ended, tx_aborted or tx_conflict. Nothing of it was
// committed by the port.
type TxError struct {
	Code string
	Err  error // what was noted of it, maybe nil
}

// Error says the code.
func (e *TxError) Error() string { return e.Code }

// Unwrap returns what was noted.
func (e *TxError) Unwrap() error { return e.Err }

// CommitRefused classifies what a Port got in answer to COMMIT itself: nil stays nil; a conflict and every other plain
// refusal of the server is a *TxError, nothing was committed; all else leaves the outcome open, PortError.Sent.
func CommitRefused(err error) error {
	state := sqlState(err)
	switch {
	case err == nil:
		return nil
	case conflict(state):
		return &TxError{Code: "tx_conflict", Err: err}
	case state != "" && !cut(state):
		return &TxError{Code: "tx_aborted", Err: err}
	}
	return &PortError{Sent: true, Err: err}
}

// Conflict reports whether err carries an SQLSTATE by which the server gave a transaction up, so that it may run again.
func Conflict(err error) bool { return conflict(sqlState(err)) }

// Gone reports whether err says that the server ended the session, and with it every transaction that was not committed.
func Gone(err error) bool { return cut(sqlState(err)) || errors.Is(err, driver.ErrBadConn) }
