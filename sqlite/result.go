package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/idempo/idempo"
)

// SQLite's primary result codes that mean something here, and the one extended code that must never reach the work.
const (
	codeError        = 1 // also: no such table
	codeBusy         = 5
	codeLocked       = 6
	codeReadOnly     = 8
	codeInterrupt    = 9
	codeIO           = 10
	codeCorrupt      = 11
	codeFull         = 13
	codeCantOpen     = 14
	codeConstraint   = 19
	codeNotADatabase = 26
	codeBusySnapshot = 517 // BUSY | 2<<8: this transaction read before another one wrote; only beginning again helps
)

// resultCode returns SQLite's result code in err, extended where the driver has it, or 0. modernc's error has a method
// Code, mattn's has fields Code and ExtendedCode; neither driver is imported.
func resultCode(err error) int {
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case nil:
		return 0
	case interface{ Code() int }:
		return e.Code()
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if c := resultCode(part); c != 0 {
				return c
			}
		}
		return 0
	}
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() == reflect.Struct {
		for _, name := range []string{"ExtendedCode", "Code"} {
			if f := v.FieldByName(name); f.IsValid() && f.CanInt() && f.Int() != 0 {
				return int(f.Int())
			}
		}
	}
	return resultCode(errors.Unwrap(err))
}

// primary returns the primary result code of an extended one.
func primary(code int) int { return code & 0xff }

func busy(err error) bool {
	p := primary(resultCode(err))
	return p == codeBusy || p == codeLocked
}

// cause is a driver's error as it may be printed: the result code and its meaning, without SQL, path or value.
type cause struct {
	code int
	err  error
}

func (c *cause) Error() string {
	return fmt.Sprintf("SQLite result %d (%s)", c.code, meaning(primary(c.code)))
}
func (c *cause) Unwrap() error { return c.err }

func meaning(code int) string {
	switch code {
	case codeBusy, codeLocked:
		return "another connection holds the lock"
	case codeReadOnly:
		return "read-only"
	case codeInterrupt:
		return "interrupted"
	case codeIO:
		return "input or output failed"
	case codeCorrupt:
		return "the file is damaged"
	case codeFull:
		return "the disk is full"
	case codeCantOpen:
		return "cannot open the file or one beside it"
	case codeConstraint:
		return "a constraint refused it"
	case codeNotADatabase:
		return "not a database"
	}
	return "error"
}

// shown returns err as it may stand in an error's text.
func shown(err error) error {
	if c := resultCode(err); c != 0 {
		return &cause{code: c, err: err}
	}
	return err
}

// failure turns what a driver, pool or context said into the store's error. unknown says that something was sent whose
// outcome is not known.
func failure(op string, k idempo.Key, err error, unknown bool) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e
	}
	e := &idempo.Error{Op: op, Code: "unavailable", KeyRef: k.Ref(), Unknown: unknown, Err: shown(err)}
	switch code := resultCode(err); {
	case code == codeBusySnapshot:
		e.Code, e.Unknown = "tx_conflict", false
		e.Hint = "another transaction wrote since this one began to read: roll it back and begin it again, with _txlock=immediate"
	case primary(code) == codeBusy, primary(code) == codeLocked:
		e.Hint = "another process holds the write lock of the file"
	case errors.Is(err, sql.ErrTxDone):
		e.Code = "tx_ended"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Hint = "the caller stopped waiting"
	}
	return e
}

func misuse(op string, k idempo.Key, hint string) error {
	return &idempo.Error{Op: op, Code: "misuse", KeyRef: k.Ref(), Hint: hint}
}
