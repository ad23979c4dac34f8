package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

func TestSQLiteWriters(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ2] many writers that read first: no busy error, no lost one", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		count := effects(t, file)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 25 {
					_, err := do(t.Context(), s, atomically(fmt.Sprint(i, "/", j)), idempo.Result{Status: 1}, func(ctx context.Context) error {
						var n int
						if err := sqlite.Tx(ctx).QueryRowContext(ctx, "SELECT count(*) FROM effects").Scan(&n); err != nil {
							return err
						}
						return effect(ctx)
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := count(); n != 500 {
			t.Errorf("%d effects, want 500", n)
		}
	})
	t.Run("[stores/SQ2, E5] readers go on while a transaction is open: replays take no lock", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		effects(t, file)
		p := atomically("done")
		if _, err := do(t.Context(), s, p, idempo.Result{Status: 7}, effect); err != nil {
			t.Fatal(err)
		}
		raw := sqliteRaw(t, file)
		conn, err := raw.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		var before, after int
		_ = conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&before)
		for range 10 {
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				a, err := s.Acquire(ctx, p)
				if err == nil && (a.Verdict != idempo.VerdictReplay || a.Record.Result.Status != 7) {
					t.Error(a.Verdict)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		q := p
		q.Hash = []byte("another request")
		if a, err := s.Acquire(sqlite.WithTx(t.Context(), mustTx(t, raw)), q); err == nil {
			t.Error("a caller's own transaction cannot have the lock that is held:", a.Verdict)
		}
		_ = conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&after)
		if before != after {
			t.Error("a replay wrote")
		}
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK"); err != nil {
			t.Error(err)
		}
	})
	t.Run("[operations/OP28] two processes on one file: both write, both read, no lock error", func(t *testing.T) {
		t.Parallel()
		a, file := sqliteStore(t, sqlite.Options{})
		b := sqliteOpen(t, file, sqlite.Options{})
		count := effects(t, file)
		var wg sync.WaitGroup
		runs := make([]int, 2)
		for i, s := range []*sqlite.Store{a, b} {
			wg.Go(func() {
				for j := range 100 {
					p := atomically(fmt.Sprint("both ", j))
					p.Token = newToken(fmt.Sprint(i, j))
					got, err := do(t.Context(), s, p, idempo.Result{Status: 1}, effect)
					if err != nil {
						t.Error(err)
					}
					if got.Verdict == idempo.VerdictRun {
						runs[i]++
					}
					if _, err := s.Lookup(t.Context(), idempo.LookupParams{Key: p.Key}); err != nil {
						t.Error(err)
					}
					l := leased(fmt.Sprint(i, "/", j))
					if _, err := s.Acquire(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n := count(); n != 100 || runs[0]+runs[1] != 100 {
			t.Errorf("%d effects, %v runs, want 100", n, runs)
		}
	})
}

func mustTx(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// locked holds the write lock of file, from outside of every store, until release.
func locked(t *testing.T, file string) (release func()) {
	t.Helper()
	conn, err := sqliteRaw(t, file).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

func TestSQLiteBusy(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ4] the write lock is held elsewhere beyond the busy time: unavailable, nothing run", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{BusyTimeout: 50 * time.Millisecond})
		count := effects(t, file)
		p := leased("held")
		run(t, s, t.Context(), p)
		release := locked(t, file)
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := s.Acquire(t.Context(), leased("new"))
		refused("claim", err)
		_, err = s.Renew(t.Context(), idempo.RenewParams{Key: p.Key, Token: p.Token, Lease: p.Lease})
		refused("renewal", err)
		ran := false
		_, err = do(t.Context(), s, atomically("a"), idempo.Result{}, func(context.Context) error { ran = true; return nil })
		refused("atomic", err)
		err = s.InTx(t.Context(), func(ctx context.Context) error { _ = effect(ctx); return nil })
		refused("an effect first", err)
		if ran || count() != 0 {
			t.Error("the work ran")
		}
		release()
		if _, err := s.Complete(t.Context(), completing(p, 1, idempo.Result{Status: 2})); err != nil {
			t.Error("afterwards:", err)
		}
		if _, err := do(t.Context(), s, atomically("a"), idempo.Result{}, effect); err != nil || count() != 1 {
			t.Error("afterwards:", err, count())
		}
	})
	t.Run("[stores/SQ4] the caller's patience ends first: unavailable, and its connection works on", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{BusyTimeout: time.Hour})
		effects(t, file)
		release := locked(t, file)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := s.Acquire(ctx, leased("a")); !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err) {
			t.Error(err)
		}
		release()
		short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		again := locked(t, file)
		if err := s.InTx(short, effect); !errors.Is(err, idempo.ErrUnavailable) {
			t.Error(err)
		}
		again()
		run(t, s, t.Context(), leased("b"))
		if err := s.InTx(t.Context(), effect); err != nil {
			t.Error(err)
		}
	})
	t.Run("[stores/SQ4, E13] a caller's own transaction that was overtaken: begin it again, never 517", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		count := effects(t, file)
		db := sqliteHandle(t, file, "?_pragma=busy_timeout(5000)") // deferred, against the advice
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		run(t, s, t.Context(), leased("overtakes"))
		_, err = s.Acquire(sqlite.WithTx(t.Context(), tx), atomically("slow"))
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "tx_conflict" || count() != 0 {
			t.Errorf("%v", err)
		}
		if _, ok := idempo.Retryable(err); !ok {
			t.Error("not said to be worth another try")
		}
	})
	t.Run("[stores/E13] work that writes past its transaction is undone and may run again", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		count := effects(t, file)
		other := sqliteHandle(t, file, "?_pragma=busy_timeout(1)")
		err := s.InTx(t.Context(), func(ctx context.Context) error {
			if err := effect(ctx); err != nil {
				return err
			}
			_, err := other.ExecContext(ctx, "INSERT INTO effects VALUES (2)")
			return fmt.Errorf("ship: %w", err)
		})
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "tx_conflict" || count() != 0 {
			t.Error(err, count())
		}
	})
	t.Run("[stores/E11] a transaction of another file or store is misuse, before any effect", func(t *testing.T) {
		t.Parallel()
		s, _ := sqliteStore(t, sqlite.Options{})
		_, otherFile := sqliteStore(t, sqlite.Options{})
		prefixed, file := sqliteStore(t, sqlite.Options{Prefix: "p_"})
		check := func(s *sqlite.Store, file string) {
			t.Helper()
			tx, err := sqliteHandle(t, file, goodDSN).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			_, err = s.Acquire(sqlite.WithTx(t.Context(), tx), atomically("x"))
			if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "misuse" {
				t.Errorf("%v", err)
			}
		}
		check(s, otherFile)
		check(s, file)
		check(prefixed, otherFile)
		check(s, t.TempDir()+"/empty.db")
		err := s.InTx(t.Context(), func(ctx context.Context) error {
			_, err := prefixed.Acquire(ctx, atomically("x"))
			return err
		})
		if e, ok := errors.AsType[*idempo.Error](err); !ok || e.Code != "misuse" {
			t.Errorf("%v", err)
		}
	})
	t.Run("[stores/SQ5] a violation is an error, never a duplicate; keys that look alike stay apart", func(t *testing.T) {
		t.Parallel()
		s, file := sqliteStore(t, sqlite.Options{})
		raw := sqliteRaw(t, file)
		for _, bad := range []string{
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key) VALUES (x'01', x'02', x'03')",                                             // neither record nor alias
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of) VALUES (NULL, x'02', x'03', x'04')",                             // NULL in the key
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of) VALUES ('text', x'02', x'03', x'04')",                           // affinity
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of, state) VALUES (x'01', x'02', x'03', x'04', 'done')",             // unknown word
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of, state) VALUES (x'01', x'02', x'03', x'04', 'pending')",          // no lease end
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of, token) VALUES (x'01', x'02', x'03', x'04', x'00')",              // short token
			"INSERT INTO idempo_records (tenant_id, operation, idempotency_key, alias_of, lease_until) VALUES (x'01', x'02', x'03', x'04', '2030-01-01')", // a time that is none
		} {
			if _, err := raw.ExecContext(t.Context(), bad); err == nil {
				t.Errorf("accepted: %s", bad)
			}
		}
		a, b := leased("k"), leased("k")
		a.Key.Tenant, b.Key.Tenant = "7", "007"
		run(t, s, t.Context(), a)
		run(t, s, t.Context(), b)
		bad := leased("violates") // a CHECK refuses it: code unavailable, not a verdict
		bad.Guard = "neither"
		if got, err := s.Acquire(t.Context(), bad); !errors.Is(err, idempo.ErrUnavailable) {
			t.Error(got.Verdict, err)
		}
		run(t, s, t.Context(), leased("violates"))
	})
}
