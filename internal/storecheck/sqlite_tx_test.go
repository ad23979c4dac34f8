package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

// effects makes the table that work writes to, and returns how many rows a connection beside the store sees.
func effects(t testing.TB, file string) func() int {
	t.Helper()
	db := sqliteRaw(t, file)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS effects (n INTEGER) STRICT"); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		t.Helper()
		if err := db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT count(*) FROM effects").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

func effect(ctx context.Context) error {
	_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO effects VALUES (1)")
	return err
}

// do runs one atomic call on the store by itself.
func do(ctx context.Context, s *sqlite.Store, p idempo.AcquireParams, r idempo.Result, work func(context.Context) error) (a idempo.Acquired, err error) {
	err = s.InTx(ctx, func(ctx context.Context) (err error) {
		if a, err = s.Acquire(ctx, p); err != nil || a.Verdict != idempo.VerdictRun {
			return err
		}
		if err := work(ctx); err != nil {
			return err
		}
		_, err = s.Complete(ctx, completing(p, a.Record.Attempt, r))
		return err
	})
	return a, err
}

func TestSQLiteAtomic(t *testing.T) {
	t.Parallel()
	s, file := sqliteStore(t, sqlite.Options{})
	count := effects(t, file)
	res := idempo.Result{Status: 201, Header: [][2]string{{"A", "\xff"}}, Body: []byte{}}
	if a, err := do(t.Context(), s, atomically("a"), res, effect); err != nil || a.Verdict != idempo.VerdictRun {
		t.Fatal(a.Verdict, err)
	}
	p := atomically("a")
	p.Token = newToken("other")
	a, err := do(t.Context(), s, p, res, effect)
	if err != nil || a.Verdict != idempo.VerdictReplay || !a.Record.Result.Equal(res) || a.Record.Result.Body == nil {
		t.Fatal(a.Verdict, err, a.Record.Result)
	}
	if n := count(); n != 1 {
		t.Errorf("%d effects", n)
	}
	t.Run("[stores/E8] an error rolls everything back", func(t *testing.T) {
		boom := errors.New("boom")
		_, err := do(t.Context(), s, atomically("b"), res, func(ctx context.Context) error { return errors.Join(effect(ctx), boom) })
		if !errors.Is(err, boom) || count() != 1 {
			t.Error(err, count())
		}
		if r, err := s.Lookup(t.Context(), idempo.LookupParams{Key: atomically("b").Key}); err != nil || r.State != "" {
			t.Error(r.State, err)
		}
	})
	t.Run("a caller's own transaction", func(t *testing.T) {
		db, err := sql.Open("sqlite", "file:"+escape(file)+"?_txlock=immediate&_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, commit := range []bool{false, true} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx := sqlite.WithTx(t.Context(), tx)
			p := atomically("own")
			a := run(t, s, ctx, p)
			if err := effect(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Complete(ctx, completing(p, a.Record.Attempt, res)); err != nil {
				t.Fatal(err)
			}
			if commit {
				err = tx.Commit()
			} else {
				err = tx.Rollback()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := count(); n != 2 {
			t.Error(n)
		}
	})
}

func TestSQLiteLeased(t *testing.T) {
	t.Parallel()
	s, _ := sqliteStore(t, sqlite.Options{})
	p := leased("x")
	a := run(t, s, t.Context(), p)
	if _, err := s.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: p.Lease}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Complete(t.Context(), completing(p, a.Record.Attempt, idempo.Result{Status: 200})); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Acquire(t.Context(), p); err != nil || b.Verdict != idempo.VerdictReplay {
		t.Fatal(b.Verdict, err)
	}
}

func TestSQLiteSwallowedRollback(t *testing.T) {
	t.Parallel()
	// careless swallows an error with which SQLite rolls everything back, and writes on.
	careless := func(ctx context.Context) error {
		_ = effect(ctx)
		_, _ = sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO poison VALUES (1)")
		_ = effect(ctx)
		return nil
	}
	prepare := func(t *testing.T) (*sqlite.Store, string, func() int) {
		s, file := sqliteStore(t, sqlite.Options{})
		count := effects(t, file)
		if _, err := sqliteRaw(t, file).ExecContext(t.Context(), "CREATE TABLE poison (n INTEGER) STRICT; "+
			"CREATE TRIGGER poisoned BEFORE INSERT ON poison BEGIN SELECT RAISE(ROLLBACK, 'poison'); END"); err != nil {
			t.Fatal(err)
		}
		return s, file, count
	}
	check := func(t *testing.T, s *sqlite.Store, code string) {
		t.Helper()
		p := atomically("x")
		_, err := do(t.Context(), s, p, idempo.Result{Status: 1}, careless)
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != code {
			t.Errorf("%v, want code %s", err, code)
		}
		if r, err := s.Lookup(t.Context(), idempo.LookupParams{Key: p.Key}); err != nil || r.State != "" {
			t.Errorf("a record was left: %q, %v", r.State, err)
		}
	}
	t.Run("[stores/E12] after Open: tx_aborted, no effect, not even of what was written afterwards", func(t *testing.T) {
		t.Parallel()
		s, _, count := prepare(t)
		check(t, s, "tx_aborted")
		if n := count(); n != 0 {
			t.Errorf("%d effects", n)
		}
		p := atomically("x") // [stores/E8] a failing result is kept all the same
		_, err := do(t.Context(), s, p, idempo.Result{Status: 422, Failing: true}, careless)
		r, lerr := s.Lookup(t.Context(), idempo.LookupParams{Key: p.Key})
		if err != nil || lerr != nil || r.State != idempo.StateCompleted || !r.Result.Failing || count() != 0 {
			t.Error(err, lerr, r.State, count())
		}
	})
	t.Run("[stores/E12] on a caller's handle: never success, and said to be unknown", func(t *testing.T) {
		t.Parallel()
		_, file, _ := prepare(t)
		s, err := sqlite.New(t.Context(), sqliteHandle(t, file, goodDSN), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		check(t, s, "tx_ended")
	})
}
