package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
)

// throughMySQLWire opens a store whose connections lead through a wire; change is made to them.
func throughMySQLWire(t testing.TB, o mysql.Options, change func(*driver.Config)) (*my, *crashtest.Wire) {
	t.Helper()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, o)
	w, err := crashtest.OpenMySQLWire("tcp", c.Addr, crashtest.Trap{})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return openStore(t, c, o, func(c *driver.Config) {
		c.Addr = fmt.Sprintf("127.0.0.1:%d", w.Port())
		if change != nil {
			change(c)
		}
	}), w
}

func TestMySQLCommitInDoubt(t *testing.T) {
	t.Parallel()
	m, x := throughMySQLWire(t, mysql.Options{}, nil)
	e := myEngine(t, m.Store, idempo.Config{})
	// once does an operation whose COMMIT falls into f in its first run.
	once := func(t *testing.T, id string, f crashtest.Trap, during func()) (idempo.Begun, int64, error) {
		var runs atomic.Int64
		set, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			if <-set; during != nil {
				during()
			}
		}()
		b, err := e.Do(t.Context(), request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			n := runs.Add(1)
			if err := m.effect(ctx, id); err != nil {
				return idempo.Result{}, err
			}
			if n == 1 {
				f.Match, f.Cut = crashtest.IsCommit, true
				x.Arm(f)
				close(set)
			}
			return idempo.Result{Status: 200, Body: fmt.Appendf(nil, "run %d", n)}, nil
		})
		<-done
		return b, runs.Load(), err
	}
	expect := func(t *testing.T, id string, runs int64, b idempo.Begun, ran int64, err error) {
		t.Helper()
		if err != nil || b.Verdict != idempo.VerdictRun || ran != runs || string(b.Record.Result.Body) != fmt.Sprintf("run %d", runs) {
			t.Errorf("%q %v, %d runs, %q", b.Verdict, err, ran, b.Record.Result.Body)
		}
		m.effects(t, id, 1)
	}
	t.Run("[stores/E14, CT12] COMMIT done, its answer lost: recognised as done, not run again", func(t *testing.T) {
		b, runs, err := once(t, "ct12", crashtest.Trap{Fault: crashtest.KeepAnswer}, nil)
		expect(t, "ct12", 1, b, runs, err)
	})
	t.Run("[stores/CT11] reset before COMMIT reaches the server: nothing of the first run remains", func(t *testing.T) {
		b, runs, err := once(t, "ct11", crashtest.Trap{Fault: crashtest.LoseRequest}, nil)
		expect(t, "ct11", 2, b, runs, err)
	})
	t.Run("[stores/CT13] COMMIT delayed on the wire: settling waits for the decision, no second run meanwhile", func(t *testing.T) {
		b, runs, err := once(t, "ct13", crashtest.Trap{Fault: crashtest.Delay}, func() {
			<-x.Sprung()
			for before := x.Links(); x.Links() == before; { // the settling claim asks on a connection of its own
				if pauseTest(t) {
					break
				}
			}
			x.Release()
		})
		expect(t, "ct13", 1, b, runs, err)
	})
	t.Run("[stores/CT14] COMMIT done, no answer, and nobody reaches the server: unavailable and unknown; the retry replays", func(t *testing.T) {
		impatient := myEngine(t, m.Store, idempo.Config{CompleteBudget: 300 * time.Millisecond})
		runs := 0
		work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			runs++
			err := m.effect(ctx, "ct14")
			x.Arm(crashtest.Trap{Match: crashtest.IsCommit, Fault: crashtest.KeepAnswer, Cut: true, Down: true})
			return idempo.Result{Status: 200, Body: []byte("one")}, err
		}
		_, err := impatient.Do(t.Context(), request("atomic", "ct14"), work)
		if f, ok := pgError(err); !ok || !errors.Is(err, idempo.ErrUnavailable) || !f.Unknown || !idempo.MayHaveHappened(err) {
			t.Errorf("Do = %v", err)
		}
		x.Refuse(false)
		b, err := impatient.Do(t.Context(), request("atomic", "ct14"), work)
		if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != "one" || runs != 1 {
			t.Errorf("%q %v, %d runs", b.Verdict, err, runs)
		}
		m.effects(t, "ct14", 1)
	})
}

func TestMySQLAnswerLost(t *testing.T) {
	t.Parallel()
	m, x := throughMySQLWire(t, mysql.Options{}, nil)
	lose := func(what string) {
		x.Arm(crashtest.Trap{Match: func(sql string) bool { return strings.Contains(sql, what) }, Fault: crashtest.KeepAnswer, Cut: true})
	}
	t.Run("[stores/CT15] the answer of a claim is lost: unknown; the same claim again recognises itself", func(t *testing.T) {
		p := pgClaim(idempo.GuardLeased)
		lose("insert into")
		_, err := m.Acquire(t.Context(), p)
		if f, ok := pgError(err); !ok || f.Code != "unavailable" || !f.Unknown {
			t.Errorf("Acquire = %v", err)
		}
		a := pgAcquire(t, t.Context(), m, p, idempo.VerdictRun)
		if a.Record.Attempt != 1 {
			t.Errorf("attempt %d", a.Record.Attempt)
		}
		pgAcquire(t, t.Context(), m, pgAgain(p), idempo.VerdictInProgress)
		lose("update")
		if _, err := m.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: time.Minute}); codeOf(err) != "unavailable" {
			t.Errorf("Renew = %v", err)
		}
		_, err = m.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: time.Minute})
		must(t, err)
		lose("update")
		if _, err := m.Complete(t.Context(), pgResult(p, a, "body")); codeOf(err) != "unavailable" {
			t.Errorf("Complete = %v", err)
		}
		_, err = m.Complete(t.Context(), pgResult(p, a, "body"))
		must(t, err)
		r := pgAcquire(t, t.Context(), m, pgAgain(p), idempo.VerdictReplay)
		if string(r.Record.Result.Body) != "body" {
			t.Errorf("%q", r.Record.Result.Body)
		}
	})
	t.Run("[stores/E13] nothing reached the server: unavailable, and not unknown", func(t *testing.T) {
		x.Refuse(true)
		defer x.Refuse(false)
		m.pool.SetMaxIdleConns(-1)
		for _, err := range []error{
			func() error { _, err := m.Acquire(t.Context(), pgClaim(idempo.GuardLeased)); return err }(),
			m.InTx(t.Context(), func(ctx context.Context) error {
				_, err := m.Acquire(ctx, pgClaim(idempo.GuardAtomic))
				return err
			}),
			m.InTx(t.Context(), func(ctx context.Context) error { return m.effect(ctx, "never") }),
		} {
			if f, ok := pgError(err); !ok || f.Unknown {
				t.Errorf("%v", err)
			}
		}
		m.pool.SetMaxIdleConns(8)
		m.effects(t, "never", 0)
	})
}
