package mysql

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// sound is a server on which everything holds.
func sound(change ...string) map[string]string {
	set := map[string]string{"version": "8.0.36", "autocommit": "ON", "binlog_format": "ROW", "log_bin": "ON", "sync_binlog": "1", "read_only": "OFF",
		"super_read_only": "OFF", "innodb_read_only": "OFF", "transaction_isolation": "REPEATABLE-READ", "transaction_read_only": "OFF",
		"innodb_flush_log_at_trx_commit": "1", "innodb_rollback_on_timeout": "OFF"}
	for i := 0; i < len(change); i += 2 {
		set[change[i]] = change[i+1]
	}
	return set
}

func TestServer(t *testing.T) {
	t.Parallel()
	ok := func(set map[string]string) {
		t.Helper()
		if err := fit(set, serverOf(set, Options{}).mariadb, Options{}); err != nil {
			t.Errorf("%s: %v", set["version"], err)
		}
	}
	bad := func(want string, change ...string) {
		t.Helper()
		set := sound(change...)
		err := fit(set, serverOf(set, Options{}).mariadb, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "mysql: ") != 1 {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
	t.Run("[stores/MY1] versions", func(t *testing.T) {
		for _, v := range []string{"8.0.11", "8.4.3", "9.1.0-commercial", "10.6.0-MariaDB", "5.5.5-10.11.6-MariaDB-log", "11.4.2-MariaDB-ubu2404", "a fork of its own"} {
			ok(sound("version", v))
		}
		bad("version 5.7.44 is too old: use MySQL 8.0 or newer", "version", "5.7.44")
		bad("version 10.5.29-MariaDB is too old: use MariaDB 10.6 or newer", "version", "10.5.29-MariaDB")
		bad("version 5.5.5-10.3.39-MariaDB is too old", "version", "5.5.5-10.3.39-MariaDB")
	})
	t.Run("[stores/MY1] settings", func(t *testing.T) {
		ok(sound("sync_binlog", "0", "log_bin", "OFF"))
		ok(map[string]string{"version": "10.11.2-MariaDB", "autocommit": "ON"})
		bad("binlog_format is STATEMENT", "binlog_format", "statement")
		bad("read_only is ON: connect to the primary", "read_only", "ON")
		bad("read_only is NO_LOCK: connect to the primary", "read_only", "NO_LOCK")
		bad("super_read_only is 1", "super_read_only", "1")
		bad("innodb_read_only is ON", "innodb_read_only", "ON")
		bad("transaction_read_only is on for the sessions", "transaction_read_only", "ON")
		bad("autocommit is off for the sessions", "autocommit", "OFF")
		bad("innodb_flush_log_at_trx_commit is 2: acknowledged records can be lost", "innodb_flush_log_at_trx_commit", "2")
		bad("sync_binlog is 100 with a binary log", "sync_binlog", "100")
	})
	t.Run("[stores/MY1] without Strict durability is a warning, the rest is not", func(t *testing.T) {
		var log bytes.Buffer
		o := Options{Strict: new(false), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if err := fit(sound("sync_binlog", "0", "innodb_flush_log_at_trx_commit", "0"), false, o); err != nil || strings.Count(log.String(), "level=WARN") != 2 {
			t.Errorf("%v, %s", err, log.String())
		}
		if err := fit(sound("read_only", "ON", "sync_binlog", "0"), false, o); err == nil || strings.Contains(err.Error(), "sync_binlog") {
			t.Error(err)
		}
	})
	t.Run("[stores/MY2] one SET before and one after, by the server's own names", func(t *testing.T) {
		for isolation, set := range map[string]map[string]string{"transaction_isolation": sound(), "tx_isolation": {"tx_isolation": "x"}} {
			s := serverOf(set, Options{TxIdle: 1500 * time.Millisecond})
			for _, want := range []string{"@@session." + isolation + " = 'READ-COMMITTED'", "@@session.autocommit = 0", "@@session.innodb_lock_wait_timeout = 1",
				"@@session.wait_timeout = 2", "@idempo_autocommit = @@session.autocommit"} {
				if !strings.Contains(s.enter, want) {
					t.Errorf("%s lacks %s", s.enter, want)
				}
			}
			for _, want := range []string{"@@session." + isolation + " = @idempo_isolation", "@@session.wait_timeout = @idempo_wait", "@idempo_lock = null", "@idempo_autocommit = null"} {
				if !strings.Contains(s.leave, want) {
					t.Errorf("%s lacks %s", s.leave, want)
				}
			}
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Prefix: "A"}, {Prefix: "a`b"}, {TxIdle: time.Millisecond}, {TxIdle: 2 * time.Hour}, {TxIdle: -time.Second}} {
		if err := o.check(); err == nil || !strings.HasPrefix(err.Error(), "mysql: ") {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := New(t.Context(), nil, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
		if err := Migrate(t.Context(), nil, o); err == nil {
			t.Errorf("%+v was accepted by Migrate", o)
		}
		if err := Down(t.Context(), nil, o); err == nil {
			t.Errorf("%+v was accepted by Down", o)
		}
		if _, err := Status(t.Context(), nil, o); err == nil {
			t.Errorf("%+v was accepted by Status", o)
		}
		if _, err := Print(ScriptOptions{Options: o}); err == nil {
			t.Errorf("%+v was accepted by Print", o)
		}
	}
	if n := (Options{}).names(); n.Table("x") != "`idempo_x`" || (Options{}).idle() != 10 || (Options{TxIdle: time.Hour}).idle() != 3600 {
		t.Errorf("%+v", n)
	}
	for _, o := range []ScriptOptions{{Grants: "a b"}, {Grants: "a@h'"}, {From: 9}, {From: 1, To: 9}} {
		if text, err := Print(o); err == nil {
			t.Errorf("%+v: %.40s", o, text)
		}
	}
	a, err := Print(ScriptOptions{})
	b, _ := Print(ScriptOptions{})
	if err != nil || a != b || !strings.Contains(a, "insert into `idempo_migrations` (version, name, sha256, applied_at, applied_by) values (1, 'records', '") {
		t.Errorf("%v %.80s", err, a)
	}
}
