package storecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// throughMySQLProxy opens a store whose connections lead through a proxy.
func throughMySQLProxy(t testing.TB) (*my, *proxy) {
	t.Helper()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, mysql.Options{})
	x, behind := newProxy(t, c.Addr)
	return openStore(t, c, mysql.Options{}, func(c *driver.Config) { c.Addr = behind }), x
}

func TestMySQLCommitInDoubt(t *testing.T) {
	t.Parallel()
	m, x := throughMySQLProxy(t)
	e := myEngine(t, m.Store, idempo.Config{})
	// once does an operation whose COMMIT meets f in its first run.
	once := func(t *testing.T, id string, f fault, during func()) (idempo.Begun, int64, error) {
		var runs atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			if during != nil {
				during()
			}
		}()
		b, err := e.Do(t.Context(), request("atomic", id), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			n := runs.Add(1)
			if err := m.effect(ctx, id); err != nil {
				return idempo.Result{}, err
			}
			if n == 1 {
				x.arm(f, commits)
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
		b, runs, err := once(t, "ct12", dropAnswer, nil)
		expect(t, "ct12", 1, b, runs, err)
	})
	t.Run("[stores/CT11] reset before COMMIT reaches the server: nothing of the first run remains", func(t *testing.T) {
		b, runs, err := once(t, "ct11", cutBefore, nil)
		expect(t, "ct11", 2, b, runs, err)
	})
	t.Run("[stores/CT13] COMMIT delayed on the wire: settling waits for the decision, no second run meanwhile", func(t *testing.T) {
		b, runs, err := once(t, "ct13", hold, func() {
			for x.struck() == nil {
				if pauseTest(t) {
					return
				}
			}
			<-x.struck()
			for before := x.count(); x.count() == before; { // the settling claim asks on a connection of its own
				if pauseTest(t) {
					break
				}
			}
			x.release()
		})
		expect(t, "ct13", 1, b, runs, err)
	})
	t.Run("[stores/CT14] COMMIT done, no answer, and nobody reaches the server: unavailable and unknown; the retry replays", func(t *testing.T) {
		impatient := myEngine(t, m.Store, idempo.Config{CompleteBudget: 300 * time.Millisecond})
		runs := 0
		work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			runs++
			err := m.effect(ctx, "ct14")
			x.arm(goDown, commits)
			return idempo.Result{Status: 200, Body: []byte("one")}, err
		}
		_, err := impatient.Do(t.Context(), request("atomic", "ct14"), work)
		if f, ok := pgError(err); !ok || !errors.Is(err, idempo.ErrUnavailable) || !f.Unknown || !idempo.MayHaveHappened(err) {
			t.Errorf("Do = %v", err)
		}
		x.refuse(false)
		b, err := impatient.Do(t.Context(), request("atomic", "ct14"), work)
		if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != "one" || runs != 1 {
			t.Errorf("%q %v, %d runs", b.Verdict, err, runs)
		}
		m.effects(t, "ct14", 1)
	})
}

func TestMySQLAnswerLost(t *testing.T) {
	t.Parallel()
	m, x := throughMySQLProxy(t)
	containing := func(what string) func([]byte) bool {
		return func(data []byte) bool { return bytes.Contains(data, []byte(what)) }
	}
	t.Run("[stores/CT15] the answer of a claim is lost: unknown; the same claim again recognises itself", func(t *testing.T) {
		p := pgClaim(idempo.GuardLeased)
		x.arm(dropAnswer, containing("insert into"))
		_, err := m.Acquire(t.Context(), p)
		if f, ok := pgError(err); !ok || f.Code != "unavailable" || !f.Unknown {
			t.Errorf("Acquire = %v", err)
		}
		a := pgAcquire(t, t.Context(), m, p, idempo.VerdictRun)
		if a.Record.Attempt != 1 {
			t.Errorf("attempt %d", a.Record.Attempt)
		}
		pgAcquire(t, t.Context(), m, pgAgain(p), idempo.VerdictInProgress)
		x.arm(dropAnswer, containing("update"))
		if _, err := m.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: time.Minute}); codeOf(err) != "unavailable" {
			t.Errorf("Renew = %v", err)
		}
		_, err = m.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: time.Minute})
		must(t, err)
		x.arm(dropAnswer, containing("update"))
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
		x.refuse(true)
		defer x.refuse(false)
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
