package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
)

// Migration is one version of the schema.
type Migration struct {
	Version   int
	Name      string
	SHA256    string    // of its file, hex
	AppliedAt time.Time // zero: pending
	AppliedBy string    // the user
}

// ScriptOptions say what Print prints.
type ScriptOptions struct {
	Options
	From   int    // the version that is there; 0: an empty database
	To     int    // the version to reach; 0: the newest
	Grants string // a user that gets the rights a Store needs, and no others: NAME, or NAME@HOST; "": none
}

const makeLedger = `create table if not exists {table migrations} (
    version    int not null primary key,
    name       varchar(255) not null,
    sha256     char(64) character set ascii collate ascii_bin not null,
    applied_at datetime(6) not null,
    applied_by varchar(255) not null
) engine = InnoDB row_format = dynamic default character set utf8mb4 collate utf8mb4_bin;
`

// Migrate brings the schema to this release's version. Any number of processes may call it at once: one works, all
// succeed. It may be killed anywhere; the next call goes on, since the server commits at every DDL statement and each can
// be run again. Its DDL waits for a lock at most a second (MariaDB: not at all), then lets others pass and tries again,
// until ctx ends.
func Migrate(ctx context.Context, db *sql.DB, o Options) error {
	l, err := ledger(db, o)
	if err != nil {
		return err
	}
	return refusedMigration(o, l.Up(ctx))
}

// Down takes the newest migration back, unless rows would be lost: then the error names the table that holds some.
func Down(ctx context.Context, db *sql.DB, o Options) error {
	l, err := ledger(db, o)
	if err != nil {
		return err
	}
	return refusedMigration(o, l.Down(ctx))
}

// Status lists every version, applied or not. A schema that is not there is no error. A file that was changed after it
// had been applied, or a schema newer than this release, is an error beside the list.
func Status(ctx context.Context, db *sql.DB, o Options) ([]Migration, error) {
	l, err := ledger(db, o)
	if err != nil {
		return nil, err
	}
	applied, err := l.Applied(ctx, db)
	if err != nil && (&Store{o: o}).number(err) != noTable {
		return nil, refusedMigration(o, err)
	}
	all := make([]Migration, len(l.All))
	for i, m := range l.All {
		all[i] = Migration{Version: m.Version, Name: m.Name, SHA256: m.SHA256}
	}
	for _, a := range applied {
		if a.Version < 1 || a.Version > len(l.All) {
			all = append(all, Migration{Version: a.Version, Name: a.Name, SHA256: a.SHA256})
		}
		for i := range all {
			if all[i].Version == a.Version {
				all[i].AppliedAt, all[i].AppliedBy = a.At, a.By
			}
		}
	}
	_, err = sqlkit.Pending(l.All, applied)
	return all, refusedMigration(o, err)
}

// Print returns the migrations as plain SQL for the client program mysql or another tool. Applied, it leaves the same
// catalog as Migrate, and New accepts it. The same options give the same text.
func Print(o ScriptOptions) (string, error) {
	l, err := ledger(nil, o.Options)
	if err != nil {
		return "", err
	}
	user, host, _ := strings.Cut(o.Grants, "@")
	if o.Grants != "" && (!sqlkit.Identifier(user) || strings.ContainsAny(host, "'\\`\n")) {
		return "", fmt.Errorf("mysql: grants: the user must match [a-z_][a-z0-9_]{0,39}, with @HOST behind it or not")
	}
	text := ""
	if o.From == 0 {
		if text, err = l.Names.Expand("-- the list of migrations\n"+makeLedger+"\n", nil); err != nil {
			return "", err
		}
	}
	script, err := l.Script(o.From, o.To, "", "")
	if err != nil || o.Grants == "" {
		return text + script, err
	}
	if host == "" {
		host = "%"
	}
	grants, err := l.Names.Expand(strings.ReplaceAll(grantRights, "WHOM", "'"+user+"'@'"+host+"'"), nil)
	return text + script + grants, err
}

const grantRights = `-- what a running store needs
grant select, insert, update, delete on {table records} to WHOM;
grant select, insert, update, delete on {table attempts} to WHOM;
grant select, insert, update, delete on {table digest_keys} to WHOM;
grant select, insert, update, delete on {table receipts} to WHOM;
grant select, insert, update, delete on {table lanes} to WHOM;
grant select, insert, update, delete on {table counters} to WHOM;
grant select, insert on {table audit} to WHOM;
grant select, update on {table meta} to WHOM;
grant select on {table migrations} to WHOM;
`

func ledger(db *sql.DB, o Options) (sqlkit.Ledger, error) {
	if err := o.check(); err != nil {
		return sqlkit.Ledger{}, err
	}
	all, err := sqlkit.Migrations(files, "migrations")
	if err != nil {
		return sqlkit.Ledger{}, err
	}
	l := sqlkit.Ledger{All: all, Names: o.names(), Micros: true,
		Record: "insert into {table migrations} (version, name, sha256, applied_at, applied_by) values (?, ?, ?, utc_timestamp(6), current_user())",
		Forget: "delete from {table migrations} where version = ?",
		Read:   "select version, name, sha256, " + micros("applied_at") + ", applied_by from {table migrations} order by version",
	}
	if db == nil {
		return l, nil // Print fills the names in by itself
	}
	for _, text := range []*string{&l.Record, &l.Forget, &l.Read} {
		if *text, err = l.Names.Expand(*text, nil); err != nil {
			return l, err
		}
	}
	l.InTx = func(ctx context.Context, fn func(sqlkit.Executor) error) error { return migrating(ctx, db, o, fn) }
	return l, nil
}

// migrating runs fn on a connection that excludes other migrations of the store. GET_LOCK only keeps them from working at
// the same statement; a migration that runs twice changes nothing.
func migrating(ctx context.Context, db *sql.DB, o Options, fn func(sqlkit.Executor) error) error {
	for try := 1; ; try++ {
		err := migrateOnce(ctx, db, o, fn)
		if n := (&Store{o: o}).number(err); !errors.Is(err, errNotNow) && !conflict(n) {
			return err
		}
		if !pause(ctx, time.Duration(min(try, 10))*50*time.Millisecond) {
			return err
		}
	}
}

// errNotNow says that another migration is at work.
var errNotNow = errors.New("mysql: another migration is at work")

func migrateOnce(ctx context.Context, db *sql.DB, o Options, fn func(sqlkit.Executor) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer drop(conn) // its settings and its lock go with it
	var version, database string
	if err := conn.QueryRowContext(ctx, "select version(), coalesce(database(), '')").Scan(&version, &database); err != nil {
		return err
	}
	if database == "" {
		return errors.New("the connection is in no database: name it in the DSN")
	}
	patience := "1"
	if strings.Contains(strings.ToLower(version), "mariadb") {
		patience = "0"
	}
	if _, err := conn.ExecContext(ctx, "set autocommit = 1, lock_wait_timeout = "+patience); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(database + "." + o.names().Prefix)) // names of locks are short
	var free int
	if err := conn.QueryRowContext(ctx, "select coalesce(get_lock('idempo migrate "+hex.EncodeToString(sum[:16])+"', 0), 0)").Scan(&free); err != nil {
		return err
	}
	if free != 1 {
		return errNotNow
	}
	first, err := o.names().Expand(makeLedger, nil)
	if err != nil {
		return err
	}
	x := oneByOne{conn, &Store{o: o}}
	if _, err := x.ExecContext(ctx, first); err != nil {
		return err
	}
	return fn(x)
}

// oneByOne sends the statements of a text one after the other: connections take one at a time.
type oneByOne struct {
	*sql.Conn
	s *Store // for the numbers of errors
}

// ExecContext runs the statements of text, which end with a semicolon at the end of a line; the last one gets args.
func (x oneByOne) ExecContext(ctx context.Context, text string, args ...any) (res sql.Result, err error) {
	var statements []string
	for _, one := range strings.SplitAfter(text, ";\n") {
		if one = sqlkit.Strip(one); one != "" {
			statements = append(statements, one)
		}
	}
	for i, one := range statements {
		var with []any
		if i == len(statements)-1 {
			with = args
		}
		if res, err = x.Conn.ExecContext(ctx, one, with...); err != nil && !x.done(one, err) {
			return nil, err
		}
	}
	return res, nil
}

// done tells an ALTER TABLE that was done before: the server does all of one or nothing, so what it finds there, or does
// not find any more, is its own.
func (x oneByOne) done(statement string, err error) bool {
	switch x.s.number(err) {
	case hasColumn, hasKey, noColumnOrKey:
		return strings.HasPrefix(statement, "alter table")
	}
	return false
}

// refusedMigration keeps our own words and shows no text of a driver.
func refusedMigration(o Options, err error) error {
	s := &Store{o: o}
	n := s.number(err)
	switch {
	case err == nil:
		return nil
	case n == 0 && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("mysql: migrate: %w", err)
	case hint(n) != "":
		return fmt.Errorf("mysql: migrate: %w; hint: %s", s.shown(err), hint(n))
	}
	return fmt.Errorf("mysql: migrate: %w", s.shown(err))
}
