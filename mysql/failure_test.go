package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/idempo/idempo"
)

// answered is an error of a server in the shape of the usual driver's, with all that must never be shown.
type answered struct {
	Number  uint16
	Message string
}

func (a *answered) Error() string { return a.Message }

func answer(number uint16) error {
	return fmt.Errorf("exec: %w", &answered{number, "Duplicate entry 'canary' for key"})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := &Store{}
	key := idempo.Key{Tenant: "canary", Operation: "op", ID: strings.Repeat("c", 32)}
	is := func(err error, at place, code string, unknown bool, say string) {
		t.Helper()
		e, ok := errors.AsType[*idempo.Error](s.failed("acquire", key, err, at))
		if !ok || e.Code != code || e.Unknown != unknown || !strings.Contains(e.Error(), say) || strings.Contains(fmt.Sprintf("%v %+v", e, e.Err), "canary") {
			t.Errorf("%v at %d: %v, want %s unknown %v, saying %q", err, at, e, code, unknown, say)
		}
	}
	is(io.EOF, alone, "unavailable", true, "the connection was closed")
	is(io.ErrUnexpectedEOF, reading, "unavailable", false, "the connection was closed")
	is(errors.New("dial canary"), alone, "unavailable", true, "connection failed")
	is(driver.ErrBadConn, alone, "unavailable", false, "connection failed")
	is(context.DeadlineExceeded, alone, "unavailable", true, "deadline exceeded")
	is(context.Canceled, inside, "unavailable", false, "canceled")
	is(&net.OpError{Op: "read", Err: timeout{}}, reading, "unavailable", false, "network time-out")
	is(sql.ErrTxDone, inside, "tx_ended", false, "ended by the work")
	for number, say := range map[uint16]string{1053: "connection ended by the server", 1927: "error 1927", 4031: "error 4031"} {
		is(answer(number), alone, "unavailable", true, say)
		is(answer(number), inside, "unavailable", false, say)
	}
	for number, say := range map[uint16]string{
		1146: "idempo migrate up", 1054: "schema or access", 1142: "--grants USER", 1290: "connect to the primary", 1040: "too many connections",
		1021: "disk or memory full", 3819: "constraint violated", 1153: "raise max_allowed_packet", 1317: "statement cancelled", 1047: "not part of its cluster",
		9999: "server refused",
	} {
		is(answer(number), alone, "unavailable", false, say)
	}
	for _, number := range []uint16{1406, 1366, 1264, 1292} {
		is(answer(number), alone, "invalid", false, "data refused")
	}
	t.Run("[stores/E13] 1213, 1205, 1020 in a transaction are conflicts; so is NOWAIT on MySQL", func(t *testing.T) {
		for number, say := range map[uint16]string{1213: "deadlock", 1205: "lock time-out", 1020: "since the snapshot", 3572: "lock time-out"} {
			is(answer(number), inside, "tx_conflict", false, say)
			is(answer(number), alone, "unavailable", false, say)
		}
	})
	is(errTaken, inside, "lease_lost", false, "lease is lost")
	if s.failed("x", key, nil, alone) != nil || s.shown(nil) != nil {
		t.Error("an error of nothing")
	}
	own := &idempo.Error{Code: "misuse"}
	if e := s.failed("x", key, own, alone); e != error(own) {
		t.Errorf("an error of our own became %v", e)
	}
}

type timeout struct{}

func (timeout) Error() string   { return "canary" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }

// other has a Number that is none of a server's, behind one that is.
type other struct{ Number string }

func (other) Error() string { return "other" }

type signed struct{ Number int32 }

func (signed) Error() string { return "signed" }

func TestNumber(t *testing.T) {
	t.Parallel()
	t.Run("[stores/MY7] the field Number, at any depth, of any integer type", func(t *testing.T) {
		is := func(err error, want int) {
			t.Helper()
			if n := (&Store{}).number(err); n != want {
				t.Errorf("%v has number %d, want %d", err, n, want)
			}
		}
		is(nil, 0)
		is(io.EOF, 0)
		is(answer(1213), 1213)
		is(signed{1205}, 1205)
		is(other{"1213"}, 0)
		is(errors.Join(io.EOF, fmt.Errorf("a: %w", answer(1020))), 1020)
		is(errors.Join(io.EOF, other{"7"}), 0)
		is(show(answer(1213), 1213), 1213)
		is((*answered)(nil), 0)
	})
	t.Run("[stores/MY7] Options.ErrorNumber instead", func(t *testing.T) {
		s := &Store{o: Options{ErrorNumber: func(err error) int {
			if errors.Is(err, io.EOF) {
				return 1213
			}
			return 0
		}}}
		if s.number(io.EOF) != 1213 || s.number(answer(1205)) != 0 {
			t.Error("it was not asked")
		}
	})
}
