package mysql

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/idempo/idempo/internal/sqlkit"
)

// server is what the store knows of the server and of the sessions that the handle opens.
type server struct {
	mariadb   bool
	rollsBack bool // a lock time-out rolls the whole transaction back

	enter, leave        string // around a transaction
	boundLock, freeLock string // around a statement that waits a second at most
}

var versionNumber = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)`)

// verify refuses a server, session or schema on which the store's promises do not hold.
func (s *Store) verify(ctx context.Context) error {
	set := map[string]string{}
	show := "show variables where variable_name in ('version', 'autocommit', 'binlog_format', 'log_bin', 'sync_binlog', 'read_only', " +
		"'super_read_only', 'innodb_read_only', 'tx_isolation', 'transaction_isolation', 'tx_read_only', 'transaction_read_only', " +
		"'innodb_flush_log_at_trx_commit', 'innodb_rollback_on_timeout')"
	err := each(ctx, s.db, statement{sql: show}, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		set[strings.ToLower(name)] = value
		return err
	})
	if err == nil {
		err = each(ctx, s.db, statement{sql: "select coalesce(database(), '')"}, func(scan func(...any) error) error { return scan(&s.database) })
	}
	if err != nil {
		return s.refused(err)
	}
	s.server = serverOf(set, s.o)
	if err := fit(set, s.server.mariadb, s.o); err != nil {
		return err
	}
	if s.database == "" || strings.Contains(s.database, "`") {
		return errors.New("mysql: the connection is in no database: name it in the DSN")
	}
	s.names = s.o.names()
	s.names.Schema = s.database
	if s.q, err = queries(s.names); err != nil {
		return err
	}
	return s.verifySchema(ctx)
}

func serverOf(set map[string]string, o Options) server {
	isolation := "transaction_isolation"
	if _, ok := set[isolation]; !ok {
		isolation = "tx_isolation" // MariaDB before 11.1
	}
	x := server{mariadb: strings.Contains(strings.ToLower(set["version"]), "mariadb"), rollsBack: on(set["innodb_rollback_on_timeout"]),
		boundLock: boundLock, freeLock: freeLock}
	x.enter, x.leave = settings(isolation, strconv.Itoa(o.idle()))
	return x
}

func on(value string) bool { return value == "1" || strings.EqualFold(value, "on") }

// fit refuses settings by which acknowledged records could be lost, or with which nothing can be written.
func fit(set map[string]string, mariadb bool, o Options) error {
	var all []error
	refuse := func(format string, args ...any) { all = append(all, fmt.Errorf("mysql: "+format, args...)) }
	least, product := 8_00_00, "MySQL 8.0"
	if mariadb {
		least, product = 10_06_00, "MariaDB 10.6"
	}
	if m := versionNumber.FindStringSubmatch(set["version"]); m != nil && version(m) < least {
		refuse("version %s is too old: use %s or newer", set["version"], product)
	}
	if strings.EqualFold(set["binlog_format"], "statement") {
		refuse("binlog_format is STATEMENT, with which READ COMMITTED cannot write: SET GLOBAL binlog_format = ROW, and reconnect")
	}
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if v := set[name]; on(v) || v != "" && v != "0" && !strings.EqualFold(v, "off") { // MariaDB 12 has words for it
			refuse("%s is %s: connect to the primary", name, v)
		}
	}
	for _, name := range []string{"tx_read_only", "transaction_read_only"} {
		if on(set[name]) {
			refuse("%s is on for the sessions of this handle: take it out of the DSN", name)
		}
	}
	if !on(set["autocommit"]) {
		refuse("autocommit is off for the sessions of this handle: take it out of the DSN, or of init_connect")
	}
	for _, weak := range durability(set) {
		if o.strict() {
			refuse("%s, or set Strict to false", weak)
		} else {
			o.warn("mysql: " + weak)
		}
	}
	return errors.Join(all...)
}

// durability says how an acknowledged commit can be lost.
func durability(set map[string]string) (weak []string) {
	if v := set["innodb_flush_log_at_trx_commit"]; v != "" && v != "1" {
		weak = append(weak, "innodb_flush_log_at_trx_commit is "+v+": acknowledged records can be lost; SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	}
	if v := set["sync_binlog"]; on(set["log_bin"]) && v != "" && v != "1" {
		weak = append(weak, "sync_binlog is "+v+" with a binary log: acknowledged records can be lost; SET GLOBAL sync_binlog = 1")
	}
	return weak
}

func version(m []string) int {
	n := 0
	for _, part := range m[1:4] {
		v, _ := strconv.Atoi(part)
		n = 100*n + min(v, 99)
	}
	return n
}

// verifySchema refuses a schema that this release does not work with, and reads which store it is.
func (s *Store) verifySchema(ctx context.Context) error {
	l, err := ledger(s.db, s.o)
	if err != nil {
		return err
	}
	applied, err := l.Applied(ctx, s.db)
	if s.number(err) == noTable {
		return fmt.Errorf("mysql: schema %s has version 0, this release needs %d: run idempo migrate up", s.database, len(l.All))
	}
	if err != nil {
		return s.refused(err)
	}
	todo, err := sqlkit.Pending(l.All, applied)
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if sqlkit.Required(todo) {
		return fmt.Errorf("mysql: schema %s has version %d, this release needs %d: run idempo migrate up", s.database, len(applied), len(l.All))
	}
	if len(todo) > 0 {
		s.o.warn(fmt.Sprintf("mysql: schema %s has version %d, this release knows %d and does without what was added: run idempo migrate up", s.database, len(applied), len(l.All)))
	}
	var engines []string
	tables := statement{sql: "select table_name, coalesce(engine, '') from information_schema.tables where table_schema = ? and table_name in (?, ?, ?)",
		args: []any{s.database, s.names.Prefix + "records", s.names.Prefix + "attempts", s.names.Prefix + "meta"}}
	err = each(ctx, s.db, tables, func(scan func(...any) error) error {
		var name, engine string
		err := scan(&name, &engine)
		if !strings.EqualFold(engine, "innodb") {
			engines = append(engines, fmt.Sprintf("table %s is of engine %s: ALTER TABLE %[1]s ENGINE = InnoDB", name, engine))
		}
		return err
	})
	if err != nil {
		return s.refused(err)
	}
	if len(engines) > 0 {
		return errors.New("mysql: " + strings.Join(engines, "; "))
	}
	var database string
	err = each(ctx, s.db, s.q["meta"].with(nil), func(scan func(...any) error) error { return scan(&s.id, &database) })
	if err != nil {
		return s.refused(err)
	}
	if s.id == "" {
		return fmt.Errorf("mysql: table %smeta is empty: run idempo migrate up on an empty database", s.names.Prefix)
	}
	return nil
}

// refused is an error at start-up, with what to do.
func (s *Store) refused(err error) error {
	if h := hint(s.number(err)); h != "" {
		return fmt.Errorf("mysql: %w; hint: %s", s.shown(err), h)
	}
	return fmt.Errorf("mysql: %w", s.shown(err))
}
