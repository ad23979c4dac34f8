package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/idempo/idempo/storetest"
)

// pgTransitions logs every change of the records of a schema, by a trigger of the test's own.
const pgTransitions = `create table "%[1]s".transitions (n bigint generated always as identity, key text, was text, is_now text, was_attempt bigint, is_attempt bigint,
  was_generation bigint, is_generation bigint, was_token text, is_token text, payload boolean, was_over boolean, alive boolean);
create function "%[1]s".log_transition() returns trigger language plpgsql as $$ begin
  if coalesce(new.alias_of, old.alias_of) is not null then return null; end if;
  insert into "%[1]s".transitions (key, was, is_now, was_attempt, is_attempt, was_generation, is_generation, was_token, is_token, payload, was_over, alive) values (
    encode(coalesce(new.idempotency_key, old.idempotency_key), 'hex'), old.state, new.state, old.attempt, new.attempt, old.generation, new.generation,
    encode(old.token, 'hex'), encode(new.token, 'hex'),
    coalesce(new.response_body, new.response_headers, new.snapshot, new.request_detail) is not null or coalesce(new.note, '') <> '' or coalesce(new.trace, '') <> '',
    case when old.state in ('failed', 'issued') then old.expires_at else old.gone_at end <= new.changed_at, old.state = 'pending' and old.lease_until > new.changed_at);
  return null; end $$;
create trigger log_transition after insert or update or delete on "%[1]s".records for each row execute function "%[1]s".log_transition()`

// sqliteTransitions is the same for SQLite.
const sqliteTransitions = `CREATE TABLE transitions (n INTEGER PRIMARY KEY, key TEXT, was TEXT, is_now TEXT, was_attempt INTEGER, is_attempt INTEGER,
  was_generation INTEGER, is_generation INTEGER, was_token TEXT, is_token TEXT, payload INTEGER, was_over INTEGER, alive INTEGER) STRICT;
CREATE TRIGGER log_insert AFTER INSERT ON idempo_records WHEN new.alias_of IS NULL BEGIN
  INSERT INTO transitions (key, is_now, is_attempt, is_generation, is_token) VALUES (hex(new.idempotency_key), new.state, new.attempt, new.generation, hex(new.token)); END;
CREATE TRIGGER log_delete AFTER DELETE ON idempo_records WHEN old.alias_of IS NULL BEGIN
  INSERT INTO transitions (key, was, was_attempt, was_generation, was_token) VALUES (hex(old.idempotency_key), old.state, old.attempt, old.generation, hex(old.token)); END;
CREATE TRIGGER log_update AFTER UPDATE ON idempo_records WHEN new.alias_of IS NULL BEGIN
  INSERT INTO transitions (key, was, is_now, was_attempt, is_attempt, was_generation, is_generation, was_token, is_token, payload, was_over, alive) VALUES (
    hex(new.idempotency_key), old.state, new.state, old.attempt, new.attempt, old.generation, new.generation, hex(old.token), hex(new.token),
    coalesce(new.response_body, new.response_headers, new.snapshot, new.request_detail) IS NOT NULL OR coalesce(new.note, '') <> '' OR coalesce(new.trace, '') <> '',
    CASE WHEN old.state IN ('failed', 'issued') THEN old.expires_at ELSE old.gone_at END <= new.changed_at, old.state = 'pending' AND old.lease_until > new.changed_at); END`

// logged reads what the triggers noted in table.
func logged(ctx context.Context, db *sql.DB, table string) (all []storetest.Transition, err error) {
	rows, err := db.QueryContext(ctx, `select key, coalesce(was, ''), coalesce(is_now, ''), coalesce(was_attempt, 0), coalesce(is_attempt, 0), coalesce(was_generation, 0),
		coalesce(is_generation, 0), coalesce(was_token, ''), coalesce(is_token, ''), payload, was_over, alive from `+table+` order by n`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c storetest.Transition
		var payload, over, alive sql.NullBool
		if err := rows.Scan(&c.Key, &c.From, &c.To, &c.FromAttempt, &c.ToAttempt, &c.FromGeneration, &c.ToGeneration, &c.FromToken, &c.ToToken, &payload, &over, &alive); err != nil {
			return nil, err
		}
		c.Payload, c.Over, c.FromLeaseAlive = payload.Bool, over.Bool, alive.Bool
		all = append(all, c)
	}
	return all, rows.Err()
}

// orphans counts aliases without a record.
const orphans = `select count(*) from %[1]s a where a.alias_of is not null and not exists (select 1 from %[1]s r
	where r.tenant_id = a.tenant_id and r.operation = a.operation and r.idempotency_key = a.alias_of and r.alias_of is null)`

// logTransitions lets sub see what happens to its rows, and what is left of its cases.
func (p *pg) logTransitions(t testing.TB, sub *storetest.Subject) {
	t.Helper()
	_, err := p.db.ExecContext(t.Context(), fmt.Sprintf(pgTransitions, p.o.Schema))
	must(t, err)
	sub.Transitions = func(ctx context.Context) ([]storetest.Transition, error) {
		return logged(ctx, p.db, `"`+p.o.Schema+`".transitions`)
	}
	sub.Left = func(ctx context.Context) (string, error) {
		var locks, aliases int
		err := p.db.QueryRowContext(ctx, `select count(*) from pg_locks l join pg_class c on c.oid = l.relation join pg_namespace s on s.oid = c.relnamespace
			where s.nspname = $1 and l.pid <> pg_backend_pid()`, p.o.Schema).Scan(&locks)
		if err == nil {
			err = p.db.QueryRowContext(ctx, fmt.Sprintf(orphans, `"`+p.o.Schema+`".records`)).Scan(&aliases)
		}
		return leftovers(locks, aliases, p.inUse()), err
	}
}

func leftovers(locks, aliases, conns int) string {
	if locks+aliases+conns == 0 {
		return ""
	}
	return fmt.Sprintf("%d locks on its tables, %d aliases without a record, %d connections in use", locks, aliases, conns)
}
