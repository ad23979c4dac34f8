package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// sessionOf reads what the store must leave as it found it.
func sessionOf(t testing.TB, c interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) string {
	t.Helper()
	var isolation, now string
	must(t, c.QueryRowContext(t.Context(), "select variable_value from information_schema.session_variables where variable_name in ('tx_isolation', 'transaction_isolation') limit 1").Scan(&isolation))
	must(t, c.QueryRowContext(t.Context(), "select concat_ws(' ', @@autocommit, @@innodb_lock_wait_timeout, @@wait_timeout, @@sql_mode, @@time_zone,"+
		" @@character_set_client, coalesce(@idempo_isolation, '-'), coalesce(@idempo_lock, '-'), coalesce(@idempo_wait, '-'), coalesce(@idempo_autocommit, '-'))").Scan(&now))
	return isolation + " " + now
}

func TestMySQLConnection(t *testing.T) {
	t.Parallel()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, mysql.Options{})
	own := func(at *driver.Config) {
		at.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'", "innodb_lock_wait_timeout": "17", "wait_timeout": "1234"}
	}
	m := openStore(t, c, mysql.Options{}, own)
	m.pool.SetMaxOpenConns(1)
	id := func() (n int64) {
		must(t, m.pool.QueryRowContext(t.Context(), "select connection_id()").Scan(&n))
		return n
	}
	t.Run("[stores/MY2] every kind of call leaves the pooled connection as it found it", func(t *testing.T) {
		before, first := sessionOf(t, m.pool), id()
		var inside string
		p := pgClaim(idempo.GuardAtomic)
		must(t, m.InTx(t.Context(), func(ctx context.Context) error {
			a := pgAcquire(t, ctx, m, p, idempo.VerdictRun)
			inside = sessionOf(t, mysql.Tx(ctx))
			_, err := m.Complete(ctx, pgResult(p, a, "body"))
			return err
		}))
		if want := "READ-COMMITTED OFF 1 10 "; !strings.HasPrefix(inside, want) {
			t.Errorf("inside: %s, want %s", inside, want)
		}
		boom := errors.New("boom")
		if err := m.InTx(t.Context(), func(ctx context.Context) error {
			pgAcquire(t, ctx, m, pgClaim(idempo.GuardAtomic), idempo.VerdictRun)
			return boom
		}); !errors.Is(err, boom) {
			t.Error(err)
		}
		l := pgClaim(idempo.GuardLeased)
		a := pgAcquire(t, t.Context(), m, l, idempo.VerdictRun)
		_, err := m.Renew(t.Context(), idempo.RenewParams{Key: l.Key, Token: l.Token, Lease: time.Minute})
		must(t, err)
		_, err = m.Complete(t.Context(), pgResult(l, a, "x"))
		must(t, err)
		_, err = m.Sweep(t.Context(), 10)
		must(t, err)
		_, err = m.Take(t.Context(), idempo.TakeParams{Operations: []string{"op"}, Limit: 3, Lease: time.Minute})
		must(t, err)
		if after := sessionOf(t, m.pool); after != before || id() != first {
			t.Errorf("the session was\n%s\nand is\n%s, connection %d and %d", before, after, first, id())
		}
	})
	t.Run("[stores/MY2] a connection that cannot be restored is closed, not pooled", func(t *testing.T) {
		first := id()
		p := pgClaim(idempo.GuardAtomic)
		must(t, m.InTx(t.Context(), func(ctx context.Context) error {
			a := pgAcquire(t, ctx, m, p, idempo.VerdictRun)
			must(t, m.exec(ctx, "set @idempo_isolation = 'NONSENSE'"))
			_, err := m.Complete(ctx, pgResult(p, a, "body"))
			return err
		}))
		if id() == first || !strings.HasPrefix(sessionOf(t, m.pool), "SERIALIZABLE ON 17 1234 ") {
			t.Errorf("still connection %d: %s", first, sessionOf(t, m.pool))
		}
	})
	t.Run("[stores/CT16] a transaction that falls silent is ended by the server, and its keys are free", func(t *testing.T) {
		short := openStore(t, c, mysql.Options{TxIdle: time.Second}, nil)
		p := pgClaim(idempo.GuardAtomic)
		err := short.InTx(t.Context(), func(ctx context.Context) error {
			pgAcquire(t, ctx, short, p, idempo.VerdictRun)
			p.Guard = idempo.GuardLeased
			eventually(t, func() bool { // the server lets go of it
				a, err := m.Acquire(t.Context(), pgAgain(p))
				return err == nil && a.Verdict == idempo.VerdictRun
			})
			return nil
		})
		if err == nil {
			t.Error("a transaction that the server ended was committed")
		}
	})
}

func TestMySQLOwnTransaction(t *testing.T) {
	t.Parallel()
	m := newMySQL(t, mysql.Options{}, nil)
	ctx := t.Context()
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(fmt.Sprintf("[stores/MY6, E10] %s: an old snapshot never makes a finished key look absent", level), func(t *testing.T) {
			in, tx, err := m.begin(ctx, &sql.TxOptions{Isolation: level})
			must(t, err)
			defer func() { _ = tx.Rollback() }()
			var n int
			must(t, tx.QueryRowContext(ctx, "select count(*) from idempo_records").Scan(&n)) // the snapshot
			p := pgClaim(idempo.GuardAtomic)
			if level == sql.LevelSerializable { // that read locks the whole table: finish a key that it does not have
				must(t, tx.Rollback())
				in, tx, err = m.begin(ctx, &sql.TxOptions{Isolation: level})
				must(t, err)
				must(t, tx.QueryRowContext(ctx, "select count(*) from counters").Scan(&n))
			}
			must(t, m.InTx(ctx, func(ctx context.Context) error { // another's, meanwhile
				_, err := m.Complete(ctx, pgResult(p, pgAcquire(t, ctx, m, p, idempo.VerdictRun), "theirs"))
				return err
			}))
			a, err := m.Acquire(in, pgAgain(p))
			if err != nil || a.Verdict != idempo.VerdictReplay || string(a.Record.Result.Body) != "theirs" {
				t.Errorf("%q %v", a.Verdict, err)
			}
		})
		t.Run(fmt.Sprintf("[stores/E10] %s: claimed, done and committed by the caller", level), func(t *testing.T) {
			p := pgClaim(idempo.GuardAtomic)
			in, tx, err := m.begin(ctx, &sql.TxOptions{Isolation: level})
			must(t, err)
			a := pgAcquire(t, in, m, p, idempo.VerdictRun)
			must(t, m.effect(in, p.Key.ID[:8]))
			leased := pgAgain(p)
			leased.Guard = idempo.GuardLeased
			pgAcquire(t, ctx, m, leased, idempo.VerdictInProgress)
			_, err = m.Complete(mysql.WithTx(ctx, tx), pgResult(p, a, "body")) // another context of the same transaction
			must(t, err)
			must(t, tx.Commit())
			m.effects(t, p.Key.ID[:8], 1)
			pgAcquire(t, ctx, m, leased, idempo.VerdictReplay)
		})
	}
	t.Run("[stores/MY6] innodb_snapshot_isolation: a row newer than the snapshot is 1020, code tx_conflict", func(t *testing.T) {
		in, tx, err := m.begin(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := m.exec(in, "set session innodb_snapshot_isolation = on"); err != nil {
			t.Skip("no innodb_snapshot_isolation on this server")
		}
		must(t, tx.QueryRowContext(ctx, "select count(*) from idempo_records").Scan(new(int)))
		p := pgClaim(idempo.GuardAtomic)
		must(t, m.InTx(ctx, func(ctx context.Context) error {
			_, err := m.Complete(ctx, pgResult(p, pgAcquire(t, ctx, m, p, idempo.VerdictRun), "theirs"))
			return err
		}))
		_, err = m.Acquire(in, pgAgain(p))
		if e, ok := pgError(err); !ok || e.Code != "tx_conflict" || !strings.Contains(err.Error(), "1020") || !strings.Contains(e.Hint, "begin the whole transaction again") {
			t.Errorf("%v", err)
		}
		must(t, m.exec(in, "set session innodb_snapshot_isolation = default"))
	})
	t.Run("[stores/E10] after a deadlock the caller's Complete finds no claim and says to begin again", func(t *testing.T) {
		p := pgClaim(idempo.GuardAtomic)
		in, tx, err := m.begin(ctx, nil)
		must(t, err)
		a := pgAcquire(t, in, m, p, idempo.VerdictRun)
		if err := m.deadlocks(t, in); numberOf(err) != 1213 {
			t.Errorf("%v, want a deadlock", err)
		}
		_, err = m.Complete(in, pgResult(p, a, "body"))
		if e, ok := pgError(err); !ok || !errors.Is(err, idempo.ErrLeaseLost) || !strings.Contains(e.Hint, "begin the whole transaction again") {
			t.Errorf("Complete = %v", err)
		}
		must(t, tx.Rollback())
	})
	t.Run("[stores/E11] a transaction of another database, or of another store in the same one, is misuse before anything is written", func(t *testing.T) {
		other := newMySQL(t, mysql.Options{}, nil)
		in, tx, err := other.begin(ctx, nil)
		must(t, err)
		if _, err := m.Acquire(in, pgClaim(idempo.GuardAtomic)); codeOf(err) != "misuse" {
			t.Errorf("another database: %v", err)
		}
		must(t, tx.Rollback())
		if err := other.InTx(ctx, func(ctx context.Context) error {
			_, err := m.Acquire(ctx, pgClaim(idempo.GuardAtomic))
			return err
		}); codeOf(err) != "misuse" {
			t.Errorf("another store's InTx: %v", err)
		}
		second := mysql.Options{Prefix: "second_"}
		must(t, mysql.Migrate(ctx, m.db, second))
		two := openStore(t, m.c, second, nil)
		in, tx, err = m.begin(ctx, nil)
		must(t, err)
		p := pgClaim(idempo.GuardAtomic)
		pgAcquire(t, in, m, p, idempo.VerdictRun)
		pgAcquire(t, in, two, p, idempo.VerdictRun) // its own tables in the same transaction
		must(t, tx.Rollback())
	})
}

func TestMySQLNeverCompleted(t *testing.T) {
	t.Parallel()
	m := newMySQL(t, mysql.Options{}, nil)
	ctx := t.Context()
	p := pgClaim(idempo.GuardLeased)
	p.Aliases = []string{pgClaim(idempo.GuardLeased).Key.ID}
	pgAcquire(t, ctx, m, p, idempo.VerdictRun)
	_, err := m.Release(ctx, idempo.ReleaseParams{Key: p.Key, Token: p.Token, To: idempo.StateFailed, Retention: time.Hour})
	must(t, err)
	look := func() string {
		r, err := m.Lookup(ctx, idempo.LookupParams{Key: p.Key})
		must(t, err)
		r.Now = time.Time{}
		return fmt.Sprintf("%+v, %d attempts, %d rows", r, m.count(t, "select count(*) from idempo_attempts"), m.count(t, "select count(*) from idempo_records"))
	}
	before := look()
	t.Run("[stores/E8] a claim that took over and was never completed leaves row, aliases and history as they were, though its transaction commits", func(t *testing.T) {
		q := pgAgain(p)
		q.Guard, q.Aliases = idempo.GuardAtomic, append(q.Aliases, pgClaim(idempo.GuardLeased).Key.ID)
		must(t, m.InTx(ctx, func(ctx context.Context) error {
			if a := pgAcquire(t, ctx, m, q, idempo.VerdictRun); a.Record.Attempt != 2 {
				t.Errorf("attempt %d", a.Record.Attempt)
			}
			pgAcquire(t, t.Context(), m, pgAgain(p), idempo.VerdictInProgress) // whoever asks meanwhile
			return m.effect(ctx, "kept")
		}))
		m.effects(t, "kept", 1)
		if after := look(); after != before {
			t.Errorf("left\n%s\nwas\n%s", after, before)
		}
	})
	t.Run("[stores/E20] two claims of one transaction in opposite orders, again and again: no error, one effect a key", func(t *testing.T) {
		e := myEngine(t, m.Store, idempo.Config{TxRetries: 20})
		for round := range 5 {
			one, two := request("atomic", fmt.Sprintf("one %d", round)), request("atomic", fmt.Sprintf("two %d", round))
			errs := make(chan error, 2)
			for _, order := range [][]idempo.Request{{one, two}, {two, one}} {
				go func() {
					errs <- e.InTx(ctx, func(ctx context.Context) error {
						for _, r := range order {
							b, err := e.Begin(ctx, r)
							if errors.Is(err, idempo.ErrInProgress) || err == nil && b.Verdict != idempo.VerdictRun {
								continue
							}
							if err == nil {
								err = m.effect(ctx, r.Key.ID)
							}
							if err == nil {
								err = b.Claim.Complete(ctx, idempo.Result{Status: 200})
							}
							if err != nil {
								return err
							}
						}
						return nil
					})
				}()
			}
			for range 2 {
				must(t, <-errs)
			}
			for _, r := range []idempo.Request{one, two} {
				if n := m.count(t, "select count(*) from effects where what = ?", r.Key.ID); n != 1 {
					t.Errorf("%d effects of %s", n, r.Key.ID)
				}
			}
		}
	})
}

func TestMySQLEndedByTheWork(t *testing.T) {
	t.Parallel()
	m := newMySQL(t, mysql.Options{}, nil)
	e := myEngine(t, m.Store, idempo.Config{})
	for name, statement := range map[string]string{
		"COMMIT in the text of a statement": "commit",
		"DDL, which commits":                "create table if not exists more (n int) engine = InnoDB",
	} {
		t.Run("[stores/E12] "+name+": tx_ended, never success, the effect is not repeated", func(t *testing.T) {
			runs := 0
			work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
				runs++
				must(t, m.effect(ctx, name))
				must(t, m.exec(ctx, statement))
				return idempo.Result{Status: 201}, nil
			}
			_, err := e.Do(t.Context(), request("atomic", name), work)
			if codeOf(err) != "tx_ended" || !idempo.MayHaveHappened(err) {
				t.Errorf("Do = %v", err)
			}
			_, err = e.Do(t.Context(), request("atomic", name), work)
			if err == nil || runs != 1 {
				t.Errorf("again: %v, %d runs", err, runs)
			}
			m.effects(t, name, 1)
		})
	}
	t.Run("[stores/E12] the handle committed: tx_ended", func(t *testing.T) {
		_, err := e.Do(t.Context(), request("atomic", "handle"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			must(t, m.effect(ctx, "handle"))
			return idempo.Result{}, mysql.Tx(ctx).Commit()
		})
		if codeOf(err) != "tx_ended" {
			t.Errorf("Do = %v", err)
		}
		m.effects(t, "handle", 1)
	})
	t.Run("[stores/E12] the transaction used after the work has returned: an error, no stray write", func(t *testing.T) {
		var kept *sql.Tx
		_, err := e.Do(t.Context(), request("atomic", "late"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			kept = mysql.Tx(ctx)
			return idempo.Result{Status: 200}, nil
		})
		must(t, err)
		if _, err := kept.ExecContext(t.Context(), "insert into effects (what) values ('late')"); !errors.Is(err, sql.ErrTxDone) {
			t.Error(err)
		}
		m.effects(t, "late", 0)
	})
	if mysql.Tx(t.Context()) != nil {
		t.Error("a transaction outside of any")
	}
}
