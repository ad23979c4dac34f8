package storecheck

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idempo/idempo"
	idempgx "github.com/idempo/idempo/contrib/pgx"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

func TestPostgresServerChecks(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	refused := func(t *testing.T, dsn string, o postgres.Options, say ...string) {
		t.Helper()
		_, err := postgres.New(t.Context(), openDB(t, "pgx", dsn), o)
		for _, s := range say {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("New = %v, want %q in it", err, s)
			}
		}
	}
	t.Run("[stores/PG1] synchronous_commit off is refused with the fix, and a warning without Strict", func(t *testing.T) {
		t.Parallel()
		o := migrated(t, dsn, postgres.Options{})
		weak := withParam(t, dsn, "synchronous_commit", "off")
		refused(t, weak, o, "synchronous_commit is off for role postgres", "ALTER ROLE postgres SET synchronous_commit = on", "set Strict to false")
		var log bytes.Buffer
		o.Strict, o.Logger = new(false), slog.New(slog.NewTextHandler(&log, nil))
		if _, err := postgres.New(t.Context(), openDB(t, "pgx", weak), o); err != nil || !strings.Contains(log.String(), "synchronous_commit") {
			t.Errorf("%v, logged %q", err, log.String())
		}
	})
	t.Run("[stores/PG1] a read-only role is refused", func(t *testing.T) {
		t.Parallel()
		refused(t, withParam(t, dsn, "default_transaction_read_only", "on"), migrated(t, dsn, postgres.Options{}), "default_transaction_read_only is on")
	})
	t.Run("[stores/PG1] an encoding other than UTF8 is refused", func(t *testing.T) {
		t.Parallel()
		name := schemaName(t, dsn) + "_ascii"
		db := openDB(t, "pgx", dsn)
		_, err := db.ExecContext(t.Context(), `create database "`+name+`" encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0`)
		must(t, err)
		t.Cleanup(func() { _, _ = openCleanup(dsn, `drop database if exists "`+name+`" with (force)`) })
		refused(t, strings.Replace(dsn, "/test?", "/"+name+"?", 1), postgres.Options{}, "server_encoding is SQL_ASCII", "ENCODING 'UTF8'")
	})
	t.Run("[stores/PG1] fsync and full_page_writes off are refused", func(t *testing.T) {
		t.Parallel()
		s := pgserver.Start(t, "fsync=off", "full_page_writes=off")
		refused(t, s.DSN(), postgres.Options{Strict: new(false)}, "fsync is off", "full_page_writes is off", "ALTER SYSTEM SET fsync = on")
	})
	t.Run("[stores/PG1] a standby is refused", func(t *testing.T) {
		t.Parallel()
		s := pgserver.StartStandby(t, "fsync=off")
		refused(t, s.DSN(), postgres.Options{}, "in recovery", "target_session_attrs=read-write")
	})
	t.Run("[stores/PG1] mistakes in the options are listed at once", func(t *testing.T) {
		t.Parallel()
		refused(t, dsn, postgres.Options{Schema: "A", Prefix: "b-", TxIdle: time.Millisecond}, "schema must match", "TxIdle must be")
	})
}

// counted opens a native store whose pool has one connection, with the number of flights it sent.
func counted(t testing.TB, dsn string, o postgres.Options) (*pg, *int) {
	t.Helper()
	flights := new(int)
	c, err := pgxpool.ParseConfig(withParam(t, dsn, "pool_max_conns", "1"))
	must(t, err)
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &countingConn{Conn: conn, flights: flights}, err
	}
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	return pgxStore(t, pool, dsn, o), flights
}

func TestPostgresFlights(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	p, flights := counted(t, dsn, migrated(t, dsn, postgres.Options{}))
	ctx := t.Context()
	atomic := func(failing bool) idempo.AcquireParams {
		c := pgClaim(idempo.GuardAtomic)
		must(t, p.InTx(ctx, func(ctx context.Context) error {
			a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
			must(t, p.effect(ctx, c.Key.ID[:8]))
			r := pgResult(c, a, "body")
			r.Result.Failing = failing
			_, err := p.Complete(ctx, r)
			return err
		}))
		return c
	}
	leased := func() idempo.AcquireParams {
		c := pgClaim(idempo.GuardLeased)
		a := pgAcquire(t, ctx, p, c, idempo.VerdictRun)
		_, err := p.Renew(ctx, idempo.RenewParams{Key: c.Key, Token: c.Token, Lease: c.Lease})
		must(t, err)
		_, err = p.Complete(ctx, pgResult(c, a, "body"))
		must(t, err)
		return c
	}
	look := func(c idempo.AcquireParams) {
		if r, err := p.Lookup(ctx, idempo.LookupParams{Key: c.Key}); err != nil || r.State != idempo.StateCompleted {
			t.Fatal(r.State, err)
		}
	}
	fails := atomic(true) // each statement once, so that the connection knows it
	look(atomic(false))
	pgAcquire(t, ctx, p, pgAgain(leased()), idempo.VerdictReplay)
	measure := func(name string, want int, f func()) {
		t.Run(name, func(t *testing.T) {
			before := *flights
			f()
			if n := *flights - before; n != want {
				t.Errorf("%d flights, want %d", n, want)
			}
		})
	}
	var done, finished idempo.AcquireParams
	measure("[stores/E35] an atomic call with one statement of its own: BEGIN, statement, COMMIT", 3, func() { done = atomic(false) })
	measure("a failing result: BEGIN, statement, ROLLBACK with the record", 3, func() { fails = atomic(true) })
	measure("a leased call: claim, renewal, completion", 3, func() { finished = leased() })
	measure("[stores/E33] a replay by reading", 1, func() { look(done) })
	measure("[stores/E33] a replay of a leased key", 1, func() { pgAcquire(t, ctx, p, pgAgain(finished), idempo.VerdictReplay) })
	measure("a failing result is there", 1, func() { look(fails) })
	if n := p.count(t, `select count(*) from SCHEMA.effects`); n != 2 {
		t.Errorf("%d effects, want those of the two that did not fail", n)
	}
}

// What was foreseen of a key alone is no answer to a claim that names a business identity, too.
func TestPostgresForeseeOtherDigests(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	p := openPgx(t, dsn, migrated(t, dsn, postgres.Options{}))
	e := pgEngine(t, p)
	first := request("atomic", "first")
	first.Unique = []string{"transaction 7"}
	_, err := e.Do(t.Context(), first, nothing)
	must(t, err)
	must(t, e.InTx(t.Context(), func(ctx context.Context) error {
		second, third := request("atomic", "second"), request("atomic", "third")
		must(t, e.Foresee(ctx, []idempo.Request{second, third}))
		second.Unique = first.Unique
		b, err := e.Begin(ctx, second)
		must(t, err)
		if b.Verdict != idempo.VerdictReplay || !b.Identity {
			t.Errorf("%q, identity %v: want the answer of the first", b.Verdict, b.Identity)
		}
		if b, err = e.Begin(ctx, third); err != nil || b.Verdict != idempo.VerdictRun {
			t.Fatalf("%q, %v", b.Verdict, err)
		}
		return b.Claim.Complete(ctx, idempo.Result{Status: 201})
	}))
}

// A batch of messages asks for its keys in one flight and for its lanes in another; the rest is the handlers' own.
func TestPostgresBatchFlights(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	p, flights := counted(t, dsn, migrated(t, dsn, postgres.Options{}))
	in, err := inbox.New(pgEngine(t, p), inbox.Options{Subscriber: "billing"})
	must(t, err)
	const messages = 20
	batch := func(name string) (sent int) {
		t.Helper()
		var ms []inbox.Message
		for i := range messages {
			ms = append(ms, inbox.Message{Source: "shop", ID: fmt.Sprint(name, i), Lane: fmt.Sprint("lane ", i/2), Attempt: 1, Body: []byte("x")})
		}
		before := *flights
		outs, err := in.HandleBatch(t.Context(), ms, func(ctx context.Context, m inbox.Message) error { return p.effect(ctx, m.ID) })
		must(t, err)
		for i, o := range outs {
			if o.Status != inbox.StatusDone {
				t.Fatalf("message %d: %+v", i, o)
			}
		}
		return *flights - before
	}
	batch("the connection learns each statement ")
	if n := batch("counted "); n != messages+3 {
		t.Errorf("%d flights for %d messages, want one each and three more", n, messages)
	}
	if n := p.count(t, `select count(*) from SCHEMA.effects`); n != 2*messages {
		t.Errorf("%d effects", n)
	}
}

func TestPostgresReplayCosts(t *testing.T) {
	t.Parallel()
	s := pgserver.Start(t, "autovacuum=off", "wal_level=minimal", "max_wal_senders=0", "checkpoint_timeout=1h") // nobody else writes
	o := postgres.Options{}
	must(t, postgres.Migrate(t.Context(), openDB(t, "pgx", s.DSN()), o))
	db := openDB(t, "pgx", s.DSN())
	db.SetMaxOpenConns(1)
	ctx := t.Context()
	pool := openPool(t, s.DSN())
	st, err := idempgx.New(ctx, pool, o)
	must(t, err)
	keys := map[string]idempo.AcquireParams{}
	for _, g := range []idempo.Guard{idempo.GuardLeased, idempo.GuardAtomic} {
		c := pgClaim(g)
		c.Key.Tenant, c.Owner = "canary-tenant", "canary-owner"
		do := func(ctx context.Context) error {
			_, err := st.Complete(ctx, pgResult(c, pgAcquire(t, ctx, st, c, idempo.VerdictRun), "canary-body"))
			return err
		}
		if g == idempo.GuardAtomic {
			must(t, st.InTx(ctx, do))
		} else {
			must(t, do(ctx))
		}
		keys[string(g)] = c
	}
	open := pgClaim(idempo.GuardLeased)
	open.Key.Tenant = "canary-tenant"
	pgAcquire(t, ctx, st, open, idempo.VerdictRun)
	costs := func(name string, f func()) {
		t.Run(name, func(t *testing.T) {
			f()
			lsn, xid := wal(t, db)
			for range 20 {
				f()
			}
			if l, x := wal(t, db); l != lsn || x != xid {
				t.Errorf("%d bytes of WAL and %d transaction ids for 20 calls", l-lsn, x-xid)
			}
		})
	}
	costs("[stores/E33, PG6] the replay of a leased key writes nothing", func() {
		pgAcquire(t, ctx, st, pgAgain(keys["leased"]), idempo.VerdictReplay)
	})
	costs("[stores/E33] a replay by reading writes nothing", func() {
		_, err := st.Lookup(ctx, idempo.LookupParams{Key: keys["atomic"].Key})
		must(t, err)
	})
	costs("[stores/E5] the replay of an atomic key writes nothing and takes no lock", func() {
		must(t, st.InTx(ctx, func(ctx context.Context) error {
			pgAcquire(t, ctx, st, pgAgain(keys["atomic"]), idempo.VerdictReplay)
			var locks int
			must(t, idempgx.Tx(ctx).QueryRow(ctx, `select count(*) from pg_locks where pid = pg_backend_pid() and (locktype in ('advisory', 'tuple', 'transactionid') or mode like '%Exclusive%' and locktype = 'relation')`).Scan(&locks))
			if locks != 0 {
				t.Errorf("%d locks", locks)
			}
			return nil
		}))
	})
	costs("[stores/PG6] a duplicate of a running key writes nothing", func() {
		pgAcquire(t, ctx, st, pgAgain(open), idempo.VerdictInProgress)
	})
	t.Run("[stores/PG6] [security/SEC74] the server's log names neither key, tenant, owner nor body, even where a statement fails", func(t *testing.T) {
		lost := pgClaim(idempo.GuardAtomic)
		lost.Key.Tenant = "canary-tenant"
		err := st.InTx(ctx, func(ctx context.Context) error {
			a := pgAcquire(t, ctx, st, lost, idempo.VerdictRun)
			_, err := pool.Exec(ctx, `insert into idempo.records (tenant_id, operation, idempotency_key, state, created_at, changed_at) values ($1, $2, $3, 'issued', now(), now())`, lost.Key.Tenant, lost.Key.Operation, []byte(lost.Key.ID))
			must(t, err)
			_, err = st.Complete(ctx, pgResult(lost, a, "canary-body"))
			return err
		})
		if codeOf(err) != "lease_lost" {
			t.Errorf("%v", err)
		}
		log := s.Log(t)
		if !bytes.Contains(log, []byte("another attempt has the key")) {
			t.Error("the failed statement is not in the log")
		}
		for _, canary := range []string{"canary", fmt.Sprintf("%x", lost.Key.ID[:8])} {
			if bytes.Contains(log, []byte(canary)) {
				t.Errorf("the log names %q", canary)
			}
		}
	})
}
