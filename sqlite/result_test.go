package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/idempo/idempo"
)

// errNo and mattnError have the shape of github.com/mattn/go-sqlite3's error, which cannot be linked without cgo.
type errNo int

type mattnError struct {
	Code         errNo
	ExtendedCode errNo
	secret       string
}

func (e mattnError) Error() string { return e.secret }

func TestResultCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 0},
		{coded(517), 517},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", coded(5))), 5},
		{errors.Join(errors.New("x"), coded(11)), 11},
		{mattnError{Code: 5, ExtendedCode: 517}, 517},
		{&mattnError{Code: 5}, 5},
		{fmt.Errorf("a: %w", mattnError{Code: 19, ExtendedCode: 1555}), 1555},
	} {
		if got := resultCode(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	k := idempo.Key{Tenant: "acct", Operation: "op", ID: strings.Repeat("k", 32)}
	for _, c := range []struct {
		err  error
		code string
	}{
		{coded(5), "unavailable"}, {coded(517), "tx_conflict"}, {coded(13), "unavailable"}, {context.Canceled, "unavailable"},
		{mattnError{Code: 8, secret: "/home/me/secret.db"}, "unavailable"}, {errClosed, "unavailable"},
	} {
		err := failure("renew", k, c.err, false)
		e, ok := errors.AsType[*idempo.Error](err)
		if !ok || e.Code != c.code || e.KeyRef != k.Ref() {
			t.Errorf("%v: %v", c.err, err)
		}
		if s := err.Error(); strings.Contains(s, "secret") || strings.Contains(s, "acct") {
			t.Errorf("shows too much: %s", s)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v lost its cause", err)
		}
	}
	inner := &idempo.Error{Code: "lease_lost"}
	if failure("x", k, fmt.Errorf("w: %w", inner), true) != error(inner) || failure("x", k, nil, true) != nil {
		t.Error("an error of the store is passed on as it is")
	}
}
