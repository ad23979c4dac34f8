package postgres

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
)

// answered is an error of a server, with all that must never be shown.
type answered string

func (a answered) Error() string    { return "pq: canary-detail Key (tenant_id)=(canary) already exists" }
func (a answered) SQLState() string { return string(a) }

func TestFailures(t *testing.T) {
	t.Parallel()
	key := idempo.Key{Tenant: "canary", Operation: "op", ID: strings.Repeat("c", 32)}
	is := func(err error, inTx bool, code string, unknown bool, say string) {
		t.Helper()
		e, ok := errors.AsType[*idempo.Error](failed("acquire", key, err, inTx))
		if !ok || e.Code != code || e.Unknown != unknown || !strings.Contains(e.Error(), say) || strings.Contains(fmt.Sprintf("%v %+v", e, e.Err), "canary") {
			t.Errorf("%v, in a transaction %v: %v, want %s unknown %v, saying %q", err, inTx, e, code, unknown, say)
		}
	}
	sent := func(err error) error { return &PortError{Sent: true, Err: err} }
	is(sent(io.EOF), false, "unavailable", true, "the connection was closed")
	is(&PortError{Err: errors.New("dial canary")}, false, "unavailable", false, "connection failed")
	is(sent(context.DeadlineExceeded), false, "unavailable", true, "deadline exceeded")
	is(sent(answered("57P01")), false, "unavailable", true, "57P01")
	is(sent(answered("08006")), false, "unavailable", true, "connection failure")
	is(sent(answered("57014")), false, "unavailable", false, "statement cancelled")
	is(sent(answered("53100")), false, "unavailable", false, "disk full")
	is(sent(answered("53300")), false, "unavailable", false, "too many connections")
	is(sent(answered("42P01")), false, "unavailable", false, "idempo migrate up")
	is(sent(answered("42501")), false, "unavailable", false, "--grants")
	is(sent(answered("25006")), false, "unavailable", false, "target_session_attrs=read-write")
	is(sent(answered("23514")), false, "unavailable", false, "constraint violated")
	is(sent(answered("XX000")), false, "unavailable", false, "server error")
	is(sent(answered("99999")), false, "unavailable", false, "server refused")
	is(sent(answered("40001")), true, "tx_conflict", false, "serialization failure")
	is(sent(answered("40P01")), true, "tx_conflict", false, "begin the whole transaction again")
	is(sent(answered("55P03")), true, "tx_conflict", false, "lock time-out")
	is(sent(answered("25P02")), true, "tx_aborted", false, "failed before")
	is(sent(answered("22P02")), true, "lease_lost", false, "lease is lost")
	is(sent(answered("22012")), true, "tx_ended", false, "ended the transaction itself")
	is(sent(answered("22021")), false, "invalid", false, "data refused")
	is(ErrForeignTx, true, "misuse", false, "another driver or store")
	is(&TxError{Code: "tx_aborted", Err: answered("23505")}, true, "tx_aborted", false, "23505")
	t.Run("[stores/PG4] what a pooler does to prepared statements names the setting", func(t *testing.T) {
		for _, state := range []string{"26000", "42P05"} {
			is(sent(answered(state)), false, "unavailable", false, "default_query_exec_mode=exec")
		}
	})
	if !errors.Is(failed("x", key, sent(context.Canceled), false), context.Canceled) {
		t.Error("a cancelled context is not found in the error")
	}
	if e := failed("x", key, sent(io.EOF), true); e.(*idempo.Error).Unknown {
		t.Error("nothing in an open transaction is unknown: it is rolled back")
	}
	inner := &idempo.Error{Op: "read", Code: "record_unreadable"}
	if failed("x", key, sent(inner), false) != error(inner) {
		t.Error("an error of our own lost its code")
	}
}

func TestCommitRefused(t *testing.T) {
	t.Parallel()
	tx := func(err error, code string) {
		t.Helper()
		if e, ok := errors.AsType[*TxError](CommitRefused(err)); !ok || e.Code != code || e.Error() != code {
			t.Errorf("%v: %v, want %s", err, CommitRefused(err), code)
		}
	}
	open := func(err error) {
		t.Helper()
		if e, ok := errors.AsType[*PortError](CommitRefused(err)); !ok || !e.Sent || e.Error() != err.Error() {
			t.Errorf("%v: %v, want an open commit", err, CommitRefused(err))
		}
		if e := ended(CommitRefused(err), false).(*idempo.Error); e.Code != "unavailable" || !e.Unknown {
			t.Errorf("%v: %v", err, e)
		}
	}
	tx(answered("40001"), "tx_conflict")
	tx(answered("40P01"), "tx_conflict")
	tx(answered("23505"), "tx_aborted")
	tx(answered("25P02"), "tx_aborted")
	open(io.EOF)
	open(driver.ErrBadConn)
	open(context.DeadlineExceeded)
	open(answered("57P01"))
	open(answered("57P03"))
	open(answered("08006"))
	open(answered("40003"))
	if CommitRefused(nil) != nil {
		t.Error("a commit that was answered")
	}
	for err, want := range map[error]bool{answered("57P01"): true, driver.ErrBadConn: true, answered("40001"): false, io.EOF: false} {
		if Gone(err) != want {
			t.Errorf("Gone(%v) = %v", err, !want)
		}
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	sound := func() map[string]string {
		return map[string]string{"server_version_num": "150000", "recovery": "false", "transaction_read_only": "off", "fsync": "on",
			"full_page_writes": "on", "server_encoding": "UTF8", "synchronous_commit": "on", "role": "app"}
	}
	if err := server(sound(), Options{}); err != nil {
		t.Fatal(err)
	}
	refuses := func(o Options, say string, pairs ...string) {
		t.Helper()
		set := sound()
		for i := 0; i < len(pairs); i += 2 {
			set[pairs[i]] = pairs[i+1]
		}
		if err := server(set, o); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%v: %v, want %q", pairs, err, say)
		}
	}
	refuses(Options{}, "PostgreSQL 13 or newer", "server_version_num", "120009")
	refuses(Options{}, "in recovery", "recovery", "true", "transaction_read_only", "on")
	refuses(Options{}, "ALTER ROLE app SET default_transaction_read_only = off", "transaction_read_only", "on")
	refuses(Options{}, "fsync is off", "fsync", "off")
	refuses(Options{}, "full_page_writes is off", "full_page_writes", "off")
	refuses(Options{}, "ENCODING 'UTF8'", "server_encoding", "LATIN1")
	refuses(Options{}, "ALTER ROLE app SET synchronous_commit = on, or set Strict to false", "synchronous_commit", "off")
	refuses(Options{}, "synchronous_commit is local", "synchronous_commit", "local", "synchronous_standby_names", "s1")
	var log bytes.Buffer
	set := sound()
	set["synchronous_commit"] = "off"
	o := Options{Strict: new(false), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := server(set, o); err != nil || !strings.Contains(log.String(), "acknowledged records can be lost") {
		t.Errorf("%v, logged %q", err, log.String())
	}
	set = sound()
	set["synchronous_commit"] = "local" // no standby: as durable as on
	if err := server(set, Options{}); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	if o := (Options{}); o.check() != nil || o.names().Table("records") != `"idempo"."records"` || o.idle() != "10000" || !o.strict() {
		t.Errorf("%v %s %s", o.check(), o.names().Table("records"), o.idle())
	}
	if o := (Options{Schema: "a", Prefix: "b_", TxIdle: time.Hour, Strict: new(false)}); o.check() != nil || o.names().Table("records") != `"a"."b_records"` || o.idle() != "3600000" || o.strict() {
		t.Errorf("%v %s %s", o.check(), o.names().Table("records"), o.idle())
	}
	for _, o := range []Options{{Schema: "A"}, {Prefix: `"`}, {TxIdle: time.Second - 1}, {TxIdle: time.Hour + 1}, {TxIdle: -1}} {
		if o.check() == nil {
			t.Errorf("%+v was accepted", o)
		}
		if _, err := Print(ScriptOptions{Options: o}); err == nil {
			t.Errorf("%+v was printed", o)
		}
	}
}
