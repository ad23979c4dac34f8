package storecheck

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/postgres"
)

var updateGolden = flag.Bool("update", false, "rewrite testdata/*.golden")

// functions is a migrated schema with a connection on which SQL is spoken.
type functions struct {
	t  *testing.T
	db *sql.DB
	o  postgres.Options
}

func newFunctions(t *testing.T) *functions {
	t.Helper()
	dsn := postgresDSN(t)
	o := migrated(t, dsn, postgres.Options{})
	return &functions{t: t, db: openDB(t, "pgx", dsn), o: o}
}

// text is q with the schema's name in the place of the one that documents use.
func (f *functions) text(q string) string {
	return strings.ReplaceAll(q, "idempo.", `"`+f.o.Schema+`".`)
}

// one returns the single value of q as text.
func (f *functions) one(q string, args ...any) string {
	f.t.Helper()
	var s sql.NullString
	must(f.t, f.db.QueryRowContext(f.t.Context(), f.text(q), args...).Scan(&s))
	return s.String
}

// state wants q to fail with an SQLSTATE, and to change no record.
func (f *functions) state(want, q string, args ...any) {
	f.t.Helper()
	rows := `select coalesce(md5(string_agg(r::text, '|' order by r.idempotency_key)), '') from idempo.records r`
	before := f.one(rows)
	_, err := f.db.ExecContext(f.t.Context(), f.text(q), args...)
	if pgState(err) != want {
		f.t.Errorf("%s: %v, want SQLSTATE %s", q, err, want)
	}
	if f.one(rows) != before {
		f.t.Errorf("%s: the refused call changed a record", q)
	}
}

const canaryHash = `sha256('{"amount":12}')`

func TestPostgresFunctionsErrors(t *testing.T) {
	t.Parallel()
	t.Run("[stores/PG12] every invalid argument is IP003, and nothing is written", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		token := `'\x000102030405060708090a0b0c0d0e0f'`
		key := `'t', 'op', 'k'`
		for _, args := range []string{
			`null, 'op', 'k', ` + canaryHash, `'t', null, 'k', ` + canaryHash, `'t', 'op', null, ` + canaryHash, key + `, null`,
			`'', 'op', 'k', ` + canaryHash, `repeat('x', 256), 'op', 'k', ` + canaryHash, `e'a\tb', 'op', 'k', ` + canaryHash, `e'a\u0085b', 'op', 'k', ` + canaryHash,
			`'t', '', 'k', ` + canaryHash, `'t', '-op', 'k', ` + canaryHash, `'t', 'o p', 'k', ` + canaryHash, `'t', 'öp', 'k', ` + canaryHash,
			`'t', e'op\n', 'k', ` + canaryHash, `'t', repeat('x', 201), 'k', ` + canaryHash, `'t', 'op', '', ` + canaryHash, `'t', 'op', repeat('x', 2065), ` + canaryHash,
			key + `, '\x00112233445566778899aabbccddee'`, key + `, decode(repeat('00', 65), 'hex')`,
			key + `, ` + canaryHash + `, guard => null`, key + `, ` + canaryHash + `, guard => 'Atomic'`, key + `, ` + canaryHash + `, lease => '0'`,
			key + `, ` + canaryHash + `, lease => '-1 s'`, key + `, ` + canaryHash + `, lease => null`, key + `, ` + canaryHash + `, wait => '-1 s'`,
			key + `, ` + canaryHash + `, wait => '2 min'`, key + `, ` + canaryHash + `, wait => null`, key + `, ` + canaryHash + `, token => '\x00'`,
			key + `, ` + canaryHash + `, on_crash => 'explode'`, key + `, ` + canaryHash + `, on_crash => null`, key + `, ` + canaryHash + `, start_mark => null`,
			key + `, ` + canaryHash + `, start_mark => true`, key + `, ` + canaryHash + `, require_issued => null`,
		} {
			f.state("IP003", `select idempo.claim(`+args+`)`)
		}
		f.one(`select token from idempo.claim(` + key + `, ` + canaryHash + `, token => ` + token + `, guard => 'leased')`)
		for _, call := range []string{
			`renew(` + key + `, null)`, `renew(` + key + `, '\x01')`, `renew(` + key + `, ` + token + `, lease => '0')`, `renew(` + key + `, ` + token + `, start => null)`,
			`complete(` + key + `, null)`, `complete(` + key + `, ` + token + `, retention => '0')`, `complete(` + key + `, ` + token + `, retention => null)`,
			`complete(` + key + `, ` + token + `, tombstone => '-1 s')`, `complete(` + key + `, ` + token + `, failing => null)`,
			`complete(` + key + `, ` + token + `, tombstone_forever => null)`, `complete(` + key + `, ` + token + `, resource_type => repeat('x', 256))`,
			`complete(` + key + `, ` + token + `, response_headers => '{"A": "b"}')`, `complete(` + key + `, ` + token + `, response_headers => '[["A"]]')`,
			`complete(` + key + `, ` + token + `, response_headers => '[["A", 1]]')`, `complete(` + key + `, ` + token + `, response_headers => '[["A", {"b64": "*"}]]')`,
			`complete(` + key + `, ` + token + `, response_headers => '"x"')`, `release(` + key + `, ` + token + `, happened => 'perhaps')`,
			`release(` + key + `, ` + token + `, happened => null)`, `issue(` + key + `, "for" => '0')`, `issue(` + key + `, "for" => null)`, `lookup('t', 'op', null)`,
		} {
			f.state("IP003", `select idempo.`+call)
		}
	})
	t.Run("[stores/PG12] lease lost, wrong state, unreadable, not issued have their own SQLSTATE", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		claim := func(key string, more string) string {
			return f.one(`select encode(token, 'hex') from idempo.claim('t', 'op', $1, `+canaryHash+`, guard => 'leased'`+more+`)`, key)
		}
		other := `'\xffffffffffffffffffffffffffffffff'`
		a := claim("a", "")
		f.state("IP001", `select idempo.renew('t', 'op', 'a', `+other+`)`)
		f.state("IP001", `select idempo.complete('t', 'op', 'a', `+other+`)`)
		f.state("IP001", `select idempo.release('t', 'op', 'a', `+other+`, 'no')`)
		f.state("IP001", `select idempo.complete('t', 'op', 'absent', `+other+`)`)
		f.one(`select idempo.complete('t', 'op', 'a', decode($1, 'hex'), status_code => 201)`, a)
		if got := f.one(`select state from idempo.complete('t', 'op', 'a', decode($1, 'hex'), status_code => 201)`, a); got != "completed" {
			t.Errorf("the same completion again: %q", got)
		}
		f.state("IP002", `select idempo.complete('t', 'op', 'a', decode('`+a+`', 'hex'), status_code => 202)`)
		f.state("IP002", `select idempo.release('t', 'op', 'a', decode('`+a+`', 'hex'), 'no')`)
		f.state("IP001", `select idempo.renew('t', 'op', 'a', decode('`+a+`', 'hex'))`)
		f.state("IP005", `select idempo.claim('t', 'op', 'never-issued', `+canaryHash+`, require_issued => true)`)
		claim("newer", "")
		f.one(`update idempo.records set format = 2 where idempotency_key = idempo.key_digest('t', 'op', 'newer') returning state`)
		f.state("IP004", `select idempo.claim('t', 'op', 'newer', `+canaryHash+`)`)
		f.state("IP004", `select idempo.lookup('t', 'op', 'newer')`)
		f.state("IP004", `select idempo.complete('t', 'op', 'newer', `+other+`)`)
		for i, broken := range []string{`state = 'finished'`, `state = null`, `guard = 'x'`, `on_crash = ''`} {
			key := fmt.Sprint("broken-", i)
			claim(key, "")
			f.one(`update idempo.records set ` + broken + ` where idempotency_key = idempo.key_digest('t', 'op', '` + key + `') returning 'x'`)
			f.state("IP004", `select idempo.claim('t', 'op', '`+key+`', `+canaryHash+`)`)
			f.state("IP004", `select idempo.lookup('t', 'op', '`+key+`')`)
			f.state("IP004", `select idempo.issue('t', 'op', '`+key+`')`)
		}
		claim("recipe", "")
		f.one(`update idempo.records set request_recipe = 'http-1;k=x' where idempotency_key = idempo.key_digest('t', 'op', 'recipe') returning state`)
		f.state("IP004", `select idempo.claim('t', 'op', 'recipe', `+canaryHash+`)`)
	})
	t.Run("[stores/PG12] claim after a savepoint rolled back is as if never called", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		f.one(`select verdict from idempo.claim('t', 'op', 'failed', ` + canaryHash + `, guard => 'leased', token => '\x000102030405060708090a0b0c0d0e0f')`)
		f.one(`select idempo.release('t', 'op', 'failed', '\x000102030405060708090a0b0c0d0e0f', happened => 'no', note => 'refused')`)
		before := f.one(`select string_agg(r::text, '|') from idempo.records r`)
		tx, err := f.db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		for _, key := range []string{"fresh", "failed"} {
			for _, q := range []string{"savepoint s", `select idempo.claim('t', 'op', '` + key + `', ` + canaryHash + `)`, "rollback to savepoint s"} {
				_, err := tx.ExecContext(t.Context(), f.text(q))
				must(t, err)
			}
			// the lock of the key is free as well: another session gets it
			if got := f.one(`select verdict from idempo.claim('t', 'op', $1, `+canaryHash+`, guard => 'leased', token => '\x010102030405060708090a0b0c0d0e0f')`, key); got != "run" {
				t.Errorf("%s: %q while the transaction is open, want run", key, got)
			}
			f.one(`select idempo.release('t', 'op', $1, '\x010102030405060708090a0b0c0d0e0f', happened => 'forget')`, key)
		}
		must(t, tx.Commit())
		if n := f.one(`select count(*) from idempo.records`); n != "0" || before == "" {
			t.Errorf("%s records are left, want none", n)
		}
	})
	t.Run("[stores/E10] above READ COMMITTED a race that was lost after the snapshot is 40001, nothing is written", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx, err := f.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			must(t, err)
			var n int
			must(t, tx.QueryRowContext(t.Context(), f.text(`select count(*) from idempo.records`)).Scan(&n)) // the snapshot
			key := level.String()
			f.one(`select idempo.complete('t', 'op', $1, token) from idempo.claim('t', 'op', $1, `+canaryHash+`)`, key)
			_, err = tx.ExecContext(t.Context(), f.text(`select idempo.claim('t', 'op', $1, `+canaryHash+`)`), key)
			if pgState(err) != "40001" {
				t.Errorf("%s: %v, want SQLSTATE 40001", level, err)
			}
			must(t, tx.Rollback())
			if got := f.one(`select verdict from idempo.claim('t', 'op', $1, `+canaryHash+`)`, key); got != "replay" {
				t.Errorf("%s: then %q", level, got)
			}
		}
	})
	t.Run("[stores/PG6] an error shows neither key nor hash nor body", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		for _, q := range []string{
			`select idempo.complete('canary-tenant', 'op', 'canary-key', '\x000102030405060708090a0b0c0d0e0f', response_body => 'canary-body')`,
			`select idempo.claim('canary-tenant', 'op', 'canary-key', 'canary-hash')`,
			`select idempo.claim('canary-tenant', 'op', 'canary-key', ` + canaryHash + `, require_issued => true)`,
		} {
			_, err := f.db.ExecContext(t.Context(), f.text(q))
			if err == nil || strings.Contains(fmt.Sprintf("%+v", err), "canary") {
				t.Errorf("%s: %+v", q, err)
			}
		}
	})
}

func TestPostgresFunctionsSignatures(t *testing.T) {
	t.Parallel()
	f := newFunctions(t)
	rows, err := f.db.QueryContext(t.Context(), `
select format('function %s(%s) returns %s%s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
    case when p.prosecdef then ' security definer' else '' end || case when 'search_path=pg_catalog, pg_temp' = any (p.proconfig) then '' else ' search_path not pinned' end)
  from pg_proc p where p.pronamespace = $1::text::regnamespace and p.proname in ('claim', 'renew', 'complete', 'release', 'issue', 'lookup', 'outbox_append')
union all select format('type %s(%s)', c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum))
  from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
  where c.relnamespace = $1::text::regnamespace and c.relkind = 'c' and c.relname in ('claimed', 'recorded') group by c.relname
order by 1`, f.o.Schema)
	must(t, err)
	defer func() { _ = rows.Close() }()
	var got strings.Builder
	for rows.Next() {
		var line string
		must(t, rows.Scan(&line))
		got.WriteString(strings.ReplaceAll(line, f.o.Schema, "idempo") + "\n")
	}
	must(t, rows.Err())
	const golden = "testdata/functions.golden"
	if *updateGolden {
		must(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	t.Run("[stores/PG13] arguments and columns of released functions are what they were", func(t *testing.T) {
		want, err := os.ReadFile(golden)
		if err != nil || got.String() != string(want) {
			t.Errorf("%v\n%s\nwant\n%s\na released function never changes: add another one", err, got.String(), want)
		}
	})
	t.Run("[stores/PG11] every function runs with its caller's rights and a pinned search_path", func(t *testing.T) {
		if n := f.one(`select count(*) from pg_proc p where pronamespace = $1::text::regnamespace and prorettype <> 'trigger'::regtype
			and (prosecdef or not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false))`, f.o.Schema); n != "0" {
			t.Errorf("%s functions do not", n)
		}
		if n := f.one(`select count(*) from pg_proc p where pronamespace = $1::text::regnamespace`, f.o.Schema); n == "0" {
			t.Error("there are no functions")
		}
	})
}

func digestOf(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:]
}

func TestPostgresFunctionsShared(t *testing.T) {
	t.Parallel()
	t.Run("[stores/E23] the key of a shared record is the SHA-256 that the page gives", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		if got := f.one(`select encode(idempo.key_digest('acct_7', 'create-order', 'o-123'), 'hex')`); !strings.HasPrefix(got, "26e2751550aa1938") {
			t.Errorf("%s", got)
		}
	})
	t.Run("[stores/E19] the derived key of a shared record is that of the page", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		if got := f.one(`select idempo.derive_key('acct_7', 'create-order', 'o-123', 1)`); got != "6be8f39f-c03c-4adc-b47a-d559a3522431" {
			t.Errorf("%s", got)
		}
	})
	t.Run("[stores/PG11, E23] a key claimed in SQL is a duplicate in Go, and back: equal verdicts, bytes, fences", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		s, err := postgres.New(t.Context(), f.db, f.o)
		must(t, err)
		eng, err := idempo.New(s, idempo.Config{DigestKeys: []idempo.Secret{{ID: "k1", Value: digestOf("secret")}}, Operations: []idempo.Operation{
			{Name: "order", Guard: idempo.GuardAtomic, SQL: true}, {Name: "send", Guard: idempo.GuardLeased, SQL: true}}})
		must(t, err)
		request := func(op, id, input string) idempo.Request {
			return idempo.Request{Key: idempo.Key{Tenant: "acct_7", Operation: op, ID: id}, Input: [][]byte{[]byte(input)}}
		}
		fails := func(context.Context, *idempo.Claim) (idempo.Result, error) {
			t.Error("the work ran again")
			return idempo.Result{}, nil
		}
		body := []byte("\x00\xff é\\'")
		hash := sha256.Sum256([]byte("in"))

		// SQL first.
		tx, err := f.db.BeginTx(t.Context(), nil)
		must(t, err)
		var token []byte
		must(t, tx.QueryRowContext(t.Context(), f.text(`select token from idempo.claim('acct_7', 'order', 'ö-1', $1)`), hash[:]).Scan(&token))
		if b, err := eng.Do(t.Context(), request("order", "ö-1", "in"), fails); b.Verdict != idempo.VerdictInProgress {
			t.Errorf("while it is open: %q, %v", b.Verdict, err)
		}
		_, err = tx.ExecContext(t.Context(), f.text(`select idempo.complete('acct_7', 'order', 'ö-1', $1, status_code => 201, response_body => $2,
			response_headers => '[["A", "é"], ["B", {"b64": "/w=="}]]', resource_type => 'order', resource_id => '9')`), token, body)
		must(t, err)
		must(t, tx.Commit())
		want := idempo.Result{Status: 201, Header: [][2]string{{"A", "é"}, {"B", "\xff"}}, Body: body, Resource: idempo.Resource{Type: "order", ID: "9"}}
		if b, err := eng.Do(t.Context(), request("order", "ö-1", "in"), fails); err != nil || b.Verdict != idempo.VerdictReplay || !b.Record.Result.Equal(want) || b.Record.BodySize != int64(len(body)) || !b.Record.BodyKept {
			t.Errorf("in Go: %q, %v, %v", b.Verdict, err, b.Record.Result)
		}
		if b, err := eng.Do(t.Context(), request("order", "ö-1", "other"), fails); b.Verdict != idempo.VerdictMismatch {
			t.Errorf("other input in Go: %q, %v", b.Verdict, err)
		}

		// Go first.
		_, err = eng.Do(t.Context(), request("order", "2", "in"), func(context.Context, *idempo.Claim) (idempo.Result, error) { return want, nil })
		must(t, err)
		if got := f.one(`select concat_ws(' ', verdict, status_code, encode(response_body, 'hex'), response_headers, resource_type, resource_id, attempt)
			from idempo.claim('acct_7', 'order', '2', $1)`, hash[:]); got != "replay 201 "+hex.EncodeToString(body)+` [["A", "é"], ["B", {"b64": "/w=="}]] order 9 1` {
			t.Errorf("in SQL: %s", got)
		}
		if got := f.one(`select concat_ws(' ', verdict, status_code, response_body) from idempo.claim('acct_7', 'order', '2', sha256('other'))`); got != "mismatch" {
			t.Errorf("other input in SQL: %s", got)
		}

		// Fences of leased claims, both ways.
		b, err := eng.Begin(t.Context(), request("send", "3", "in"))
		must(t, err)
		if got := f.one(`select verdict from idempo.claim('acct_7', 'send', '3', $1, guard => 'leased')`, hash[:]); got != "in_progress" {
			t.Errorf("while Go runs: %s", got)
		}
		f.state("IP001", `select idempo.complete('acct_7', 'send', '3', $1)`, make([]byte, 16))
		must(t, b.Claim.Complete(t.Context(), want))
		stolen := f.one(`select encode(token, 'hex') from idempo.claim('acct_7', 'send', '4', $1, guard => 'leased', lease => '1 ms', on_crash => 'rerun')`, hash[:])
		for f.one(`select lease_until > clock_timestamp() from idempo.lookup('acct_7', 'send', '4')`) == "true" {
			continue
		}
		if got := f.one(`select concat_ws(' ', verdict, lapsed, attempt) from idempo.claim('acct_7', 'send', '4', $1, guard => 'leased', on_crash => 'rerun')`, hash[:]); got != "run t 2" {
			t.Errorf("the take-over: %s", got)
		}
		f.state("IP001", `select idempo.complete('acct_7', 'send', '4', decode('`+stolen+`', 'hex'))`)
		if b, err := eng.Do(t.Context(), request("send", "4", "in"), fails); b.Verdict != idempo.VerdictInProgress {
			t.Errorf("while SQL runs: %q, %v", b.Verdict, err)
		}
	})
	t.Run("[stores/E17] a body over 64 MiB is not kept, never cut: its size and digest are", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		f.one(`select state from idempo.claim('t', 'op', 'k', ` + canaryHash + `, token => '\x000102030405060708090a0b0c0d0e0f')`)
		f.one(`select state from idempo.complete('t', 'op', 'k', '\x000102030405060708090a0b0c0d0e0f', response_body => convert_to(repeat('x', 64 * 1024 * 1024 + 1), 'UTF8'))`)
		if got := f.one(`select concat_ws(' ', verdict, body_kept, response_body is null) from idempo.claim('t', 'op', 'k', ` + canaryHash + `)`); got != "replay f t" {
			t.Errorf("%s", got)
		}
		if got := f.one(`select concat_ws(' ', body_size, body_sha256 = sha256(convert_to(repeat('x', 64 * 1024 * 1024 + 1), 'UTF8'))) from idempo.records`); got != "67108865 t" {
			t.Errorf("%s", got)
		}
	})
	t.Run("[stores/E5] a replay in SQL writes nothing and takes no lock", func(t *testing.T) {
		t.Parallel()
		f := newFunctions(t)
		f.one(`select idempo.complete('t', 'op', 'k', token) from idempo.claim('t', 'op', 'k', ` + canaryHash + `)`)
		tx, err := f.db.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		var verdict string
		var locks int
		var xid sql.NullString
		must(t, tx.QueryRowContext(t.Context(), f.text(`select verdict from idempo.claim('t', 'op', 'k', `+canaryHash+`)`)).Scan(&verdict))
		must(t, tx.QueryRowContext(t.Context(), `select count(*), pg_current_xact_id_if_assigned()::text from pg_locks where pid = pg_backend_pid()
			and (locktype in ('advisory', 'tuple', 'transactionid') or mode like '%Exclusive%' and locktype = 'relation')`).Scan(&locks, &xid))
		if verdict != "replay" || locks != 0 || xid.Valid {
			t.Errorf("%s, %d locks, transaction %s", verdict, locks, xid.String)
		}
	})
}
