package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// myEngine is an engine over m with an atomic and a leased operation.
func myEngine(t testing.TB, s idempo.Store, c idempo.Config) *idempo.Engine {
	t.Helper()
	c.DigestKeys = []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}}
	c.Operations = []idempo.Operation{{Name: "atomic", Guard: idempo.GuardAtomic}, {Name: "leased", Guard: idempo.GuardLeased}}
	e, err := idempo.New(s, c)
	must(t, err)
	return e
}

// waiting returns how many transactions of the database wait for a lock.
func (m *my) waiting(t testing.TB) int {
	t.Helper()
	return m.count(t, "select count(*) from information_schema.innodb_trx x join information_schema.processlist p on p.id = x.trx_mysql_thread_id"+
		" where x.trx_state = 'LOCK WAIT' and p.db = ?", m.c.DBName)
}

// eventually returns when f is true; the test fails if it is not for long.
func eventually(t testing.TB, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); {
		if pauseTest(t) || time.Since(began) > 20*time.Second {
			t.Error("it does not come about")
			return
		}
	}
}

// deadlocks makes the transaction of ctx the victim of a deadlock: another one, which has done more, waits for what ctx
// has locked, and has what ctx wants.
func (m *my) deadlocks(t testing.TB, ctx context.Context) error {
	t.Helper()
	must(t, m.exec(ctx, "update counters set n = n + 1 where id = 1"))
	other, err := m.db.BeginTx(t.Context(), nil)
	must(t, err)
	for range 20 {
		_, err := other.ExecContext(t.Context(), "insert into effects (what) values ('heavy')")
		must(t, err)
	}
	_, err = other.ExecContext(t.Context(), "update counters set n = n + 1 where id = 2")
	must(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, err := other.ExecContext(t.Context(), "update counters set n = n + 1 where id = 1")
		if err = errors.Join(err, other.Rollback()); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() bool { return m.waiting(t) > 0 })
	return m.exec(ctx, "update counters set n = n + 1 where id = 2")
}

func numberOf(err error) uint16 {
	if e, ok := errors.AsType[*driver.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

func TestMySQLDeadlock(t *testing.T) {
	t.Parallel()
	m := newMySQL(t, mysql.Options{}, nil)
	e := myEngine(t, m.Store, idempo.Config{})
	// once does an operation whose first run meets trouble; then it goes on or gives up.
	once := func(t *testing.T, id string, trouble func(context.Context) error, ignore bool) {
		t.Helper()
		runs := 0
		b, err := e.Do(t.Context(), request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			runs++
			must(t, m.effect(ctx, id))
			if runs == 1 {
				if err := trouble(ctx); !ignore {
					return idempo.Result{}, fmt.Errorf("charge: %w", err)
				}
				must(t, m.effect(ctx, id+" after")) // into a transaction that is not the claim's any more
			}
			return idempo.Result{Status: 201, Body: fmt.Appendf(nil, "run %d", runs)}, nil
		})
		if err != nil || b.Verdict != idempo.VerdictRun || runs != 2 || string(b.Record.Result.Body) != "run 2" {
			t.Errorf("%q %v, %d runs", b.Verdict, err, runs)
		}
		m.effects(t, id, 1)
		m.effects(t, id+" after", 0)
		b, err = e.Do(t.Context(), request("atomic", id), nothing)
		if err != nil || b.Verdict != idempo.VerdictReplay {
			t.Errorf("afterwards %q, %v", b.Verdict, err)
		}
	}
	deadlock := func(ctx context.Context) error {
		err := m.deadlocks(t, ctx)
		if numberOf(err) != 1213 {
			t.Errorf("%v, want a deadlock", err)
		}
		return err
	}
	t.Run("[stores/MY5] after 1213 the work goes on: what it writes is rolled back, and it runs again", func(t *testing.T) {
		once(t, "ignored", deadlock, true)
	})
	t.Run("[stores/MY5] 1213 returned by the work: it runs again", func(t *testing.T) {
		once(t, "returned", deadlock, false)
	})
	t.Run("[stores/MY5] 1205 returned by the work: rolled back, and it runs again", func(t *testing.T) {
		once(t, "timed out", func(ctx context.Context) error {
			other, err := m.db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { must(t, other.Rollback()) }()
			_, err = other.ExecContext(t.Context(), "update counters set n = n + 1 where id = 2")
			must(t, err)
			err = m.exec(ctx, "update counters set n = n + 1 where id = 2")
			if numberOf(err) != 1205 {
				t.Errorf("%v, want a lock time-out", err)
			}
			return err
		}, false)
	})
	t.Run("[stores/MY5] 1020 returned by the work: it runs again", func(t *testing.T) {
		once(t, "snapshot", func(context.Context) error { return refusal(1020) }, false)
	})
	t.Run("[stores/MY5] a transaction that the server rolled back before Complete: InTx says so, 0 rows survive", func(t *testing.T) {
		c := pgClaim(idempo.GuardAtomic)
		err := m.InTx(t.Context(), func(ctx context.Context) error {
			a := pgAcquire(t, ctx, m, c, idempo.VerdictRun)
			must(t, m.exec(ctx, "rollback")) // as a deadlock does, without an error that anybody could see
			must(t, m.effect(ctx, "stray"))
			_, _ = m.Complete(ctx, pgResult(c, a, "body"))
			return m.effect(ctx, "stray")
		})
		if codeOf(err) != "tx_conflict" {
			t.Errorf("InTx = %v", err)
		}
		m.effects(t, "stray", 0)
		pgAcquire(t, t.Context(), m, func() idempo.AcquireParams { p := pgAgain(c); p.Guard = idempo.GuardLeased; return p }(), idempo.VerdictRun)
	})
}

// claims claims p, in a transaction where it is atomic, tells the verdict, and completes what it won once finish is closed.
func (m *my) claims(ctx context.Context, p idempo.AcquireParams, verdicts chan<- idempo.Verdict, finish <-chan struct{}) error {
	claim := func(ctx context.Context) error {
		a, err := m.Acquire(ctx, p)
		if err != nil {
			return err
		}
		verdicts <- a.Verdict
		if a.Verdict != idempo.VerdictRun {
			return nil
		}
		<-finish
		_, err = m.Complete(ctx, pgResult(p, a, "body"))
		return err
	}
	if p.Guard == idempo.GuardLeased {
		return claim(ctx)
	}
	return m.InTx(ctx, claim)
}

func TestMySQLWinnerRollsBack(t *testing.T) {
	t.Parallel()
	for _, guard := range []idempo.Guard{idempo.GuardAtomic, idempo.GuardLeased} {
		t.Run("[stores/MY4] "+string(guard)+" claimants that wait at the insert when the winner rolls back: one next owner, no 1213 or 1205", func(t *testing.T) {
			t.Parallel()
			m, h := hookedMySQL(t)
			const claimants = 10
			c := pgClaim(guard)
			winner, err := m.db.BeginTx(t.Context(), nil)
			must(t, err)
			arrived, enter, finish := make(chan struct{}, claimants), make(chan struct{}), make(chan struct{})
			var first sync.Map
			h.on(func(q string, conn *driverConn) error {
				if strings.Contains(q, "insert into") && strings.Contains(q, "records") {
					if _, again := first.LoadOrStore(conn, true); !again { // each comes once to the point behind its NOWAIT
						arrived <- struct{}{}
						<-enter
					}
				}
				return nil
			})
			verdicts := make(chan idempo.Verdict, claimants)
			var wg sync.WaitGroup
			for range claimants {
				wg.Go(func() {
					if err := m.claims(t.Context(), pgAgain(c), verdicts, finish); err != nil {
						t.Error(err)
						verdicts <- idempo.Verdict("error")
					}
				})
			}
			for range claimants {
				<-arrived
			}
			_, err = winner.ExecContext(t.Context(), "insert into idempo_records (tenant_id, operation, idempotency_key, state, guard, on_crash, created_at, changed_at)"+
				" values (?, ?, ?, 'pending', 'atomic', 'hold', utc_timestamp(6), utc_timestamp(6))", c.Key.Tenant, c.Key.Operation, []byte(c.Key.ID))
			must(t, err)
			close(enter)
			for began := time.Now(); m.waiting(t) < 2 && time.Since(began) < 400*time.Millisecond; { // each waits a second at most
				if pauseTest(t) {
					break
				}
			}
			must(t, winner.Rollback())
			count := map[idempo.Verdict]int{}
			for range claimants {
				count[<-verdicts]++
			}
			close(finish)
			wg.Wait()
			h.on(nil)
			won := count[idempo.VerdictRun]
			if won > 1 || won+count[idempo.VerdictInProgress] != claimants {
				t.Errorf("%v", count)
			}
			if won == 0 { // all had waited their second: the next one owns
				c.Guard = idempo.GuardLeased
				pgAcquire(t, t.Context(), m, pgAgain(c), idempo.VerdictRun)
			} else if n := m.count(t, "select count(*) from idempo_records where idempotency_key = ? and state = 'completed'", []byte(c.Key.ID)); n != 1 {
				t.Errorf("%d records", n)
			}
		})
	}
}

func TestMySQLConflictAnywhere(t *testing.T) {
	t.Parallel()
	m, h := hookedMySQL(t)
	e := myEngine(t, m.Store, idempo.Config{})
	for _, operation := range []string{"atomic", "leased"} {
		for _, number := range []uint16{1213, 1205, 1020} {
			t.Run(fmt.Sprintf("[stores/CT18] %s: %d at every statement in turn: the caller sees no error, one effect", operation, number), func(t *testing.T) {
				hit := 0
				for n := 1; ; n++ {
					id := fmt.Sprintf("%s %d %d", operation, number, n)
					at, struck := 0, false
					h.on(func(q string, c *driverConn) error {
						if strings.HasPrefix(q, "set @@session") || strings.HasPrefix(q, "set @idempo") || q == "begin" {
							return nil // these take no locks
						}
						if at++; at != n || struck {
							return nil
						}
						struck = true
						if number != 1205 {
							must(t, c.do("rollback")) // as the server does
						}
						return refusal(number)
					})
					runs := 0
					b, err := e.Do(t.Context(), request(operation, id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
						runs++
						var err error
						if operation == "atomic" {
							err = m.effect(ctx, id)
						}
						return idempo.Result{Status: 201}, err
					})
					h.on(nil)
					if !struck {
						break
					}
					hit++
					if number == 1205 && errors.Is(err, idempo.ErrInProgress) && runs == 0 { // CT17: a time-out in a claim
						continue
					}
					if err != nil || b.Verdict != idempo.VerdictRun || operation == "leased" && runs != 1 {
						t.Errorf("at statement %d: %q, %v, %d runs", n, b.Verdict, err, runs)
					}
					if operation == "atomic" {
						m.effects(t, id, 1)
					}
				}
				if hit < 3 {
					t.Errorf("only %d statements were hit", hit)
				}
			})
		}
	}
}
