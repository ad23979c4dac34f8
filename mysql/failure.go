package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"strconv"

	"github.com/idempo/idempo"
)

// The numbers of the servers' errors that decide something.
const (
	lockTimeout = 1205
	deadlock    = 1213
	snapshotOld = 1020 // MariaDB with innodb_snapshot_isolation
	lockNowait  = 3572 // MySQL; MariaDB says lockTimeout
	noSavepoint = 1305
	noTable     = 1146
	// of an ALTER TABLE that was done before
	hasColumn, hasKey, noColumnOrKey = 1060, 1061, 1091
	tooLong                          = 1406
	badText                          = 1366
	packetTooBig                     = 1153
	shutdown                         = 1053
	killed                           = 1927 // MariaDB: the connection was killed
	disconnected                     = 4031 // MySQL: idle for too long
	interrupted                      = 1317
)

// reflected finds a server's error number in a driver's error: the field Number of the first error that has one.
func reflected(err error) int {
	for err != nil {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() == reflect.Struct {
			if f := v.FieldByName("Number"); f.IsValid() {
				switch {
				case f.CanUint():
					return int(f.Uint()) //nolint:gosec // error numbers have 16 bits
				case f.CanInt():
					return int(f.Int())
				}
			}
		}
		switch u := err.(type) { //nolint:errorlint // this is how errors are unwrapped
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if n := reflected(e); n != 0 {
					return n
				}
			}
			return 0
		default:
			return 0
		}
	}
	return 0
}

// number returns the server's error number in err, 0 where the server did not answer.
func (s *Store) number(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[*cause](err); ok {
		return c.Number
	}
	if s.o.ErrorNumber != nil {
		return s.o.ErrorNumber(err)
	}
	return reflected(err)
}

// cause is a driver's error as it may be shown: class and number, never text, value or DSN.
type cause struct {
	text   string
	Number int
	known  error // the context error in it, to be found by errors.Is
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.known }

// shown returns the cause to show for a driver's error.
func (s *Store) shown(err error) error { return show(err, s.number(err)) }

func show(err error, number int) error {
	switch {
	case err == nil:
		return nil
	case number != 0:
		return &cause{text: class(number) + " (error " + strconv.Itoa(number) + ")", Number: number}
	}
	for _, known := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return &cause{text: known.Error(), known: known}
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

// class names the class of an error number.
func class(number int) string {
	switch number {
	case deadlock:
		return "deadlock"
	case lockTimeout, lockNowait:
		return "lock time-out"
	case snapshotOld:
		return "the row changed since the snapshot"
	case 1049, noTable, 1054, 1044, 1045, 1142, 1143, 1227, 1698:
		return "schema or access"
	case 1290, 1792, 1836:
		return "read-only server or transaction"
	case 1040, 1203, 1226:
		return "too many connections"
	case 1021, 1114, 1037, 1038, 1041:
		return "disk or memory full"
	case 1062, 1048, 3819, 4025:
		return "constraint violated"
	case tooLong, badText, 1264, 1292:
		return "data refused"
	case packetTooBig:
		return "more than max_allowed_packet"
	case interrupted, 1969, 3024, 1028:
		return "statement cancelled or timed out"
	case shutdown, killed, disconnected, 1077, 1079, 1152, 1158, 1159, 1160, 1161:
		return "connection ended by the server"
	case 1047:
		return "the node is not part of its cluster"
	}
	return "server refused"
}

// hint says what to do about an error number, or "".
func hint(number int) string {
	switch number {
	case 1049, noTable, 1054:
		return "the schema is missing or of another version: run idempo migrate up"
	case 1044, 1045, 1142, 1143, 1227:
		return "the user needs the rights that idempo migrate print --grants USER shows"
	case 1290, 1792, 1836:
		return "the server is read-only: connect to the primary"
	case packetTooBig:
		return "raise max_allowed_packet, or lower MaxResult"
	}
	return ""
}

// conflict reports whether the server gave a transaction, or a wait in it, up, so that the transaction may begin again.
func conflict(number int) bool {
	return number == deadlock || number == lockTimeout || number == snapshotOld || number == lockNowait
}

// open reports whether err leaves open what became of a statement that changes something: no answer came, or one that
// says no more than that the connection is over. ErrBadConn is the driver's word that nothing was sent.
func open(err error, number int) bool {
	switch number {
	case 0:
		return err != nil && !errors.Is(err, driver.ErrBadConn)
	case shutdown, killed, disconnected, 1077, 1079, 1152, 1158, 1159, 1160, 1161:
		return true
	}
	return false
}

// where a statement that failed ran.
type place int

const (
	reading place = iota // nothing can have been written
	alone                // it was a transaction by itself
	inside               // in a transaction that is still to be ended
)

// failed turns an error into what the caller of op learns.
func (s *Store) failed(op string, key idempo.Key, err error, at place) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e
	}
	number := s.number(err)
	e := &idempo.Error{Op: op, Code: "unavailable", KeyRef: key.Ref(), Err: show(err, number), Hint: hint(number)}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		e.Code, e.Err, e.Hint = "tx_ended", nil, "the transaction was ended by the work"
	case errors.Is(err, errTaken):
		e.Code, e.Err = "lease_lost", nil
	case number == tooLong || number == badText || number == 1292 || number == 1264:
		e.Code = "invalid"
	case at == inside && conflict(number):
		e.Code, e.Hint = "tx_conflict", "begin the whole transaction again"
	default:
		e.Unknown = at == alone && open(err, number)
	}
	return e
}

func misuse(op string, key idempo.Key, hint string) error {
	return &idempo.Error{Op: op, Code: "misuse", KeyRef: key.Ref(), Hint: hint}
}

// where is the place of a reading call with a transaction, or none.
func where(t *session) place {
	if t == nil || t.on == nil {
		return reading
	}
	return inside
}
