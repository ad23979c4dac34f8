package postgres

import (
	"context"
	"database/sql"
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
	AppliedBy string    // the role
}

// ScriptOptions say what Print prints.
type ScriptOptions struct {
	Options
	From   int    // the version that is there; 0: an empty database
	To     int    // the version to reach; 0: the newest
	Grants string // a role that gets the rights a Store needs, and no others; "": none
}

const lockMigration = `select pg_try_advisory_xact_lock(hashtextextended($1, 0))`

const makeLedger = `create table {table migrations} (
    version    int not null constraint {name migrations_pkey} primary key,
    name       text not null,
    sha256     text not null,
    applied_at timestamptz not null default clock_timestamp(),
    applied_by text not null default current_user
);
`

// Migrate brings the schema to this release's version. Any number of processes may call it at once: one works, all
// succeed. It may be killed anywhere; the next call goes on. Its DDL waits at most 500 ms for a lock, then lets others
// pass and tries again, until ctx ends. db must be of a driver that takes several statements in one text without
// arguments, as pgx and lib/pq do, and its role must be allowed to create the schema.
func Migrate(ctx context.Context, db *sql.DB, o Options) error {
	l, err := ledger(db, o)
	if err != nil {
		return err
	}
	return refusedMigration(l.Up(ctx))
}

// Down takes the newest migration back, unless rows would be lost: then the error names the table that holds some.
func Down(ctx context.Context, db *sql.DB, o Options) error {
	l, err := ledger(db, o)
	if err != nil {
		return err
	}
	return refusedMigration(l.Down(ctx))
}

// Status lists every version, applied or not. A schema that is not there is no error. A file that was changed after it
// had been applied, or a schema newer than this release, is an error beside the list.
func Status(ctx context.Context, db *sql.DB, o Options) ([]Migration, error) {
	l, err := ledger(db, o)
	if err != nil {
		return nil, err
	}
	var there bool
	if err := db.QueryRowContext(ctx, "select to_regclass($1) is not null", l.Names.Table("migrations")).Scan(&there); err != nil {
		return nil, refusedMigration(err)
	}
	var applied []sqlkit.Applied
	if there {
		if applied, err = l.Applied(ctx, db); err != nil {
			return nil, refusedMigration(err)
		}
	}
	all := make([]Migration, len(l.All))
	for i, m := range l.All {
		all[i] = Migration{Version: m.Version, Name: m.Name, SHA256: m.SHA256}
	}
	for _, a := range applied {
		if a.Version < 1 || a.Version > len(all) {
			all = append(all, Migration{Version: a.Version, Name: a.Name, SHA256: a.SHA256})
		}
		for i := range all {
			if all[i].Version == a.Version {
				all[i].AppliedAt, all[i].AppliedBy = a.At, a.By
			}
		}
	}
	_, err = sqlkit.Pending(l.All, applied)
	return all, refusedMigration(err)
}

// Print returns the migrations as plain SQL for psql or another tool. Applied, it leaves the same catalog as Migrate,
// and New accepts it. The same options give the same text.
func Print(o ScriptOptions) (string, error) {
	l, err := ledger(nil, o.Options)
	if err != nil {
		return "", err
	}
	if o.Grants != "" && !sqlkit.Identifier(o.Grants) {
		return "", fmt.Errorf("postgres: grants: the role must match [a-z_][a-z0-9_]{0,39}")
	}
	text := ""
	if o.From == 0 {
		text = "-- the schema and its list of migrations\nbegin;\ncreate schema if not exists {schema};\n" + makeLedger + "commit;\n\n"
		if text, err = l.Names.Expand(text, nil); err != nil {
			return "", err
		}
	}
	script, err := l.Script(o.From, o.To, "begin;\n", "commit;\n")
	if err != nil || o.Grants == "" {
		return text + script, err
	}
	rights := grantRights
	if o.To == 0 || o.To >= 2 {
		rights += grantFunctions
	}
	if o.To == 0 || o.To >= outboxVersion {
		rights += grantOutbox
	}
	grants, err := l.Names.Expand(fmt.Sprintf(rights, `"`+o.Grants+`"`), nil)
	return text + script + grants, err
}

const grantRights = `-- what a running store needs
grant usage on schema {schema} to %[1]s;
grant select, insert, update, delete on {table records}, {table attempts}, {table digest_keys},
    {table receipts}, {table lanes}, {table counters} to %[1]s;
grant select, insert on {table audit} to %[1]s;
grant select, update on {table meta} to %[1]s;
grant select on {table migrations} to %[1]s;
`

// What appending and relaying need: TRUNCATE empties slots of the log, and nothing else takes an event out of it.
const grantOutbox = `grant select, insert on {table outbox} to %[1]s;
grant truncate on {table outbox_0}, {table outbox_1}, {table outbox_2}, {table outbox_3}, {table outbox_4}, {table outbox_5}, {table outbox_6},
    {table outbox_7}, {table outbox_8}, {table outbox_9}, {table outbox_10} to %[1]s;
grant usage, select on sequence {table outbox_seq} to %[1]s;
grant select, update on {table outbox_state} to %[1]s;
grant select, insert, update, delete on {table outbox_groups}, {table outbox_relays}, {table outbox_cursors}, {table outbox_asides},
    {table outbox_discarded} to %[1]s;
grant select, insert on {table outbox_alive} to %[1]s;
grant select on {table outbox_places} to %[1]s;
grant execute on function {table outbox_append}, {table outbox_lock}, {table outbox_partition}, {table outbox_slot} to %[1]s;
`

// outboxVersion is the schema with the outbox.
const outboxVersion = 10

// The rights on functions are there by default; some databases take them away from PUBLIC.
const grantFunctions = `grant execute on function {table claim}, {table renew}, {table complete}, {table release}, {table issue}, {table lookup},
    {table refuse_argument}, {table key_digest}, {table derive_key}, {table try_lock}, {table effective_state},
    {table row_answer}, {table judge_claim}, {table take_row}, {table own_row}, {table lose_claim}, {table refuse_state},
    {table headers_valid}, {table check_readable} to %[1]s;
grant usage on type {table claimed}, {table recorded} to %[1]s;
`

func ledger(db *sql.DB, o Options) (sqlkit.Ledger, error) {
	if err := o.check(); err != nil {
		return sqlkit.Ledger{}, err
	}
	all, err := sqlkit.Migrations(files, "migrations")
	if err != nil {
		return sqlkit.Ledger{}, err
	}
	l := sqlkit.Ledger{All: all, Names: o.names(),
		Record: "insert into {table migrations} (version, name, sha256) values ($1, $2, $3)",
		Forget: "delete from {table migrations} where version = $1",
		Read:   "select version, name, sha256, applied_at, applied_by from {table migrations} order by version",
	}
	l.Concurrently = func(ctx context.Context, statements []string) error { return makeIndexes(ctx, db, l.Names, statements) }
	if db == nil {
		return l, nil // Print fills the names in by itself
	}
	for _, text := range []*string{&l.Record, &l.Forget, &l.Read} {
		if *text, err = l.Names.Expand(*text, nil); err != nil {
			return l, err
		}
	}
	l.InTx = func(ctx context.Context, fn func(sqlkit.Executor) error) error {
		return migrating(ctx, db, l.Names, fn)
	}
	return l, nil
}

// unfinished are the indexes that the statements $2 name and that a build has left, or has not finished yet.
const unfinished = `select quote_ident(s.nspname) || '.' || quote_ident(c.relname), exists (select from pg_stat_progress_create_index p where p.index_relid = c.oid)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace s on s.oid = c.relnamespace
where not i.indisvalid and s.nspname = $1 and strpos($2, '"' || c.relname || '" on ') > 0`

// makeIndexes runs statements that make indexes without holding up anybody: outside of a transaction. What a killed build has
// left is dropped and made again; what another process is building is waited for.
func makeIndexes(ctx context.Context, db *sql.DB, n sqlkit.Names, statements []string) error {
	for try := 1; ; try++ {
		left, building, err := unfinishedIndexes(ctx, db, n, statements)
		for _, index := range left {
			if err == nil {
				_, err = db.ExecContext(ctx, "drop index concurrently if exists "+index)
			}
		}
		for _, text := range statements {
			if err == nil && !building {
				_, err = db.ExecContext(ctx, text)
			}
		}
		if err == nil && !building {
			left, building, err = unfinishedIndexes(ctx, db, n, statements) // another may have begun the same one
		}
		done := err == nil && !building && len(left) == 0
		if done || err != nil && !raced(err) || !pause(ctx, time.Duration(min(try, 10))*50*time.Millisecond) {
			return err
		}
	}
}

// raced reports whether several processes made or dropped one index at once, so that it is to be looked at again.
func raced(err error) bool {
	switch sqlState(err) {
	case "23505", "42P07", "42704", "40P01": // unique_violation in the catalog, duplicate_table, undefined_object, deadlock_detected
		return true
	}
	return false
}

func unfinishedIndexes(ctx context.Context, db *sql.DB, n sqlkit.Names, statements []string) (left []string, building bool, err error) {
	rows, err := db.QueryContext(ctx, unfinished, n.Schema, strings.Join(statements, ";\n"))
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var index string
		var at bool
		if err := rows.Scan(&index, &at); err != nil {
			return nil, false, err
		}
		if at {
			building = true
		} else {
			left = append(left, index)
		}
	}
	return left, building, rows.Err()
}

// errNotNow says that another migration, or a lock, stands in the way for the moment.
var errNotNow = errors.New("postgres: a lock was not free for 500 ms")

// migrating runs fn in a transaction that excludes other migrations of the store. A lock that is not free within 500 ms
// is let go, so that nobody queues up behind the DDL, and asked for again.
func migrating(ctx context.Context, db *sql.DB, n sqlkit.Names, fn func(sqlkit.Executor) error) error {
	for try := 1; ; try++ {
		err := migrateOnce(ctx, db, n, fn)
		if !errors.Is(err, errNotNow) && sqlState(err) != "55P03" && !Conflict(err) {
			return err
		}
		if !pause(ctx, time.Duration(min(try, 10))*50*time.Millisecond) {
			return err
		}
	}
}

func migrateOnce(ctx context.Context, db *sql.DB, n sqlkit.Names, fn func(sqlkit.Executor) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "set local lock_timeout = '500ms'"); err != nil {
		return err
	}
	var free, schema, table bool
	if err := tx.QueryRowContext(ctx, lockMigration, "idempo migrate "+n.Table("")).Scan(&free); err != nil {
		return err
	}
	if !free {
		return errNotNow
	}
	err = tx.QueryRowContext(ctx, "select to_regnamespace($1) is not null, to_regclass($2) is not null",
		`"`+n.Schema+`"`, n.Table("migrations")).Scan(&schema, &table)
	if err != nil {
		return err
	}
	make := ""
	if !schema {
		make = "create schema {schema};\n"
	}
	if !table {
		make += makeLedger
	}
	if make != "" {
		if make, err = n.Expand(make, nil); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, make); err != nil {
			return err
		}
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// refusedMigration keeps our own words and shows no text of a driver.
func refusedMigration(err error) error {
	if err == nil {
		return nil
	}
	if sqlState(err) != "" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("postgres: migrate: %w", refused(err))
	}
	return fmt.Errorf("postgres: migrate: %w", err)
}
