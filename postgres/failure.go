package postgres

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"

	"github.com/idempo/idempo"
)

// ErrForeignTx is what a Port returns for a transaction that is not its own.
var ErrForeignTx = errors.New("postgres: the transaction is not of this store's driver")

// cause is a driver's error as it may be shown: class and SQLSTATE, never text, detail, value or DSN.
type cause struct {
	text  string
	state string
	ctx   error // the context error in it, to be found by errors.Is
}

func (c *cause) Error() string    { return c.text }
func (c *cause) SQLState() string { return c.state }
func (c *cause) Unwrap() error    { return c.ctx }

// sqlState returns the SQLSTATE in err, or "".
func sqlState(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	return ""
}

// shown returns the cause to show for a driver's error.
func shown(err error) error {
	if err == nil {
		return nil
	}
	if s := sqlState(err); s != "" {
		return &cause{text: class(s) + " (SQLSTATE " + s + ")", state: s}
	}
	for _, known := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return &cause{text: known.Error(), ctx: known}
		}
	}
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return &cause{text: "network time-out"}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &cause{text: "the connection was closed"}
	}
	return &cause{text: "connection failed"}
}

// class names the class of an SQLSTATE.
func class(state string) string {
	switch state {
	case "40001":
		return "serialization failure"
	case "40P01":
		return "deadlock"
	case "55P03":
		return "lock time-out"
	case "57014":
		return "statement cancelled"
	case "25P02":
		return "failed transaction"
	case "25P03":
		return "idle in the transaction for too long"
	case "25006":
		return "read-only transaction"
	case "53100":
		return "disk full"
	case "53300":
		return "too many connections"
	case "26000", "42P05":
		return "prepared statement lost"
	}
	if len(state) == 5 {
		switch state[:2] {
		case "08":
			return "connection failure"
		case "22":
			return "data refused"
		case "23":
			return "constraint violated"
		case "28":
			return "access refused"
		case "3D", "3F", "42":
			return "schema or access"
		case "53":
			return "insufficient resources"
		case "57":
			return "server shut down or cancelled"
		case "58", "XX":
			return "server error"
		}
	}
	return "server refused"
}

// hint says what to do about an SQLSTATE, or "".
func hint(state string) string {
	switch state {
	case "3F000", "42P01", "42703":
		return "the schema is missing or of another version: run idempo migrate up"
	case "42501":
		return "the role needs the rights that idempo migrate print --grants ROLE shows"
	case "25006":
		return "the server is read-only; with several hosts in the DSN set target_session_attrs=read-write"
	case "26000", "42P05":
		return "behind PgBouncer in transaction mode set default_query_exec_mode=exec (pgx) or binary_parameters=yes (lib/pq)"
	}
	return ""
}

// conflict reports whether the server gave the transaction up, so that it may begin again. 25P03: it was idle for too
// long, so that no COMMIT can have been on its way.
func conflict(state string) bool {
	return state == "40001" || state == "40P01" || state == "55P03" || state == "25P03"
}

// cut reports whether an answer of the server says nothing about what came before it: it was shutting down.
func cut(state string) bool {
	return state == "57P01" || state == "57P02" || state == "57P03" || len(state) == 5 && state[:2] == "08" || state == "40003"
}

// failed turns an error of the port into what the caller of op learns. inTx: it ran in a transaction that is still to
// be ended.
func failed(op string, key idempo.Key, err error, inTx bool) error {
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e
	}
	e := &idempo.Error{Op: op, Code: "unavailable", KeyRef: key.Ref(), Err: shown(err)}
	state := sqlState(err)
	e.Hint = hint(state)
	p, ported := errors.AsType[*PortError](err)
	switch {
	case errors.Is(err, ErrForeignTx):
		e.Code, e.Err, e.Hint = "misuse", nil, "the transaction in this context belongs to another driver or store"
	case errors.Is(err, sql.ErrTxDone):
		e.Code, e.Err, e.Hint = "tx_ended", nil, "the work ended the transaction itself; idempo commits it"
	case state == "22P02":
		e.Code, e.Err = "lease_lost", nil
	case state == "22012":
		e.Code, e.Err, e.Hint = "tx_ended", nil, "the work ended the transaction itself; idempo commits it"
	case state == "22021" || state == "22P05" || state == "22001":
		e.Code = "invalid"
	case inTx && conflict(state):
		e.Code = "tx_conflict"
		if state == "40P01" {
			e.Hint = "begin the whole transaction again"
		}
	case inTx && state == "25P02":
		e.Code, e.Hint = "tx_aborted", "a statement of this transaction failed before"
	default:
		if t, ok := errors.AsType[*TxError](err); ok {
			e.Code, e.Err = t.Code, shown(t.Err)
		} else {
			e.Unknown = !inTx && ported && p.Sent && (state == "" || cut(state))
		}
	}
	return e
}
