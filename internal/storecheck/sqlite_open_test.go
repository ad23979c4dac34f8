package storecheck

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
)

const goodDSN = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"

// sqliteHandle opens file with the parameters of a DSN.
func sqliteHandle(t testing.TB, file, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+escape(file)+params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestSQLiteOpen(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ1] the file is in WAL mode, and so are its neighbours", func(t *testing.T) {
		t.Parallel()
		_, file := sqliteStore(t, sqlite.Options{})
		var mode string
		if err := sqliteRaw(t, file).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Error(mode, err)
		}
	})
	t.Run("[stores/SQ1] every connection of the transaction handle has the settings", func(t *testing.T) {
		t.Parallel()
		s, _ := sqliteStore(t, sqlite.Options{BusyTimeout: 7 * time.Second})
		for range 2 { // the second after the first was closed
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				var sync, wait int
				tx := sqlite.Tx(ctx)
				err := errors.Join(tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&sync), tx.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&wait))
				if err == nil && (sync != 2 || wait != 7000) {
					t.Errorf("synchronous %d, busy timeout %d", sync, wait)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("options are checked", func(t *testing.T) {
		t.Parallel()
		bad := func(o sqlite.Options, say string) {
			t.Helper()
			s, err := sqlite.Open(t.Context(), "sqlite", filepath.Join(t.TempDir(), "x.db"), o)
			if err == nil {
				_ = s.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), say) {
				t.Error(err)
			}
		}
		bad(sqlite.Options{Prefix: "A"}, "prefix")
		bad(sqlite.Options{Prefix: `x"y`}, "prefix")
		bad(sqlite.Options{BusyTimeout: -1}, "negative")
		bad(sqlite.Options{BusyTimeout: time.Microsecond}, "busy timeout")
	})
	t.Run("two prefixes in one file are two stores", func(t *testing.T) {
		t.Parallel()
		a, file := sqliteStore(t, sqlite.Options{})
		b := sqliteOpen(t, file, sqlite.Options{Prefix: "other_"})
		run(t, a, t.Context(), leased("k"))
		run(t, b, t.Context(), leased("k"))
	})
	t.Run("what is kept is there after a restart", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		p := leased("k")
		s := sqliteOpen(t, file, sqlite.Options{})
		a := run(t, s, t.Context(), p)
		if _, err := s.Complete(t.Context(), completing(p, a.Record.Attempt, idempo.Result{Body: []byte("x")})); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), p); !errors.Is(err, idempo.ErrUnavailable) {
			t.Error("after Close:", err)
		}
		b, err := sqliteOpen(t, file, sqlite.Options{}).Acquire(t.Context(), p)
		if err != nil || b.Verdict != idempo.VerdictReplay || string(b.Record.Result.Body) != "x" {
			t.Error(b.Verdict, err)
		}
	})
}

func TestSQLiteRefuses(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, driver, file, say string) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), driver, file, sqlite.Options{})
		if err == nil {
			_ = s.Close()
			t.Fatal("was accepted")
		}
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want %q", err, say)
		}
		if len(file) > 20 && strings.Contains(err.Error(), file) {
			t.Errorf("the error shows the path: %v", err)
		}
	}
	t.Run("[stores/SQ6] places that cannot hold a store", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		open(t, "sqlite", ":memory:", "in memory")
		open(t, "sqlite", "file::memory:?cache=shared", "in memory")
		open(t, "sqlite", "file:x?mode=memory", "in memory")
		open(t, "sqlite", "", "in memory")
		open(t, "sqlite", dir, "a folder")
		open(t, "sqlite", filepath.Join(dir, "missing", "x.db"), "cannot be written")
		open(t, "sqlite", "file:x.db", "plain file name")
		open(t, "none", filepath.Join(dir, "x.db"), "driver must be")
		open(t, "sqlite3", filepath.Join(dir, "x.db"), "links no driver")
	})
	t.Run("[stores/SQ6] a file that is not SQLite's is left as it is", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "notes.txt")
		if err := os.WriteFile(file, []byte("a shopping list, long enough to be one"), 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, "sqlite", file, "not a SQLite database")
		if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "a shopping list") {
			t.Error(string(b), err)
		}
	})
	t.Run("[stores/SQ6] a damaged file is refused", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(file, []byte("SQLite format 3\x00"+strings.Repeat("z", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, "sqlite", file, "SQLite result")
	})
	t.Run("[stores/SQ6] a read-only place", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		file := filepath.Join(dir, "x.db")
		_ = sqliteOpen(t, file, sqlite.Options{}).Close()
		refuse(t, sqliteHandle(t, file, goodDSN+"&mode=ro"), "read-only")
		if os.Geteuid() == 0 {
			return // root may write everywhere: the folder's mode says nothing
		}
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		open(t, "sqlite", file, "cannot be written")
	})
}

// refuse expects New to refuse db, saying say.
func refuse(t *testing.T, db *sql.DB, say string) {
	t.Helper()
	s, err := sqlite.New(t.Context(), db, sqlite.Options{})
	if err == nil {
		_ = s.Close()
		t.Fatal("was accepted")
	}
	if !strings.Contains(err.Error(), say) {
		t.Errorf("%v, want %q", err, say)
	}
}

func TestSQLiteNew(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	good := sqliteHandle(t, file, goodDSN)
	t.Run("[stores/MG5] no schema: refused with the version and the command", func(t *testing.T) {
		refuse(t, good, "idempo migrate up")
	})
	if err := sqlite.Migrate(t.Context(), good, sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Run("[stores/SQ1] a handle with the right parameters", func(t *testing.T) {
		s, err := sqlite.New(t.Context(), good, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		count := effects(t, file)
		if a, err := do(t.Context(), s, atomically("k"), idempo.Result{Status: 1}, effect); err != nil || a.Verdict != idempo.VerdictRun || count() != 1 {
			t.Error(a.Verdict, err)
		}
		if err := s.Close(); err != nil || good.PingContext(t.Context()) != nil {
			t.Error("Close closed the caller's handle:", err)
		}
	})
	t.Run("[stores/SQ1] the parameter that is missing is named", func(t *testing.T) {
		t.Parallel()
		without := func(drop string) *sql.DB {
			return sqliteHandle(t, file, strings.Replace(strings.Replace(goodDSN, drop, "", 1), "?&", "?", 1))
		}
		refuse(t, sqliteHandle(t, file, strings.Replace(goodDSN, "(FULL)", "(NORMAL)", 1)), "_pragma=synchronous(FULL)")
		refuse(t, without("_pragma=busy_timeout(5000)&"), "_pragma=busy_timeout(5000)")
		refuse(t, without("&_txlock=immediate"), "_txlock=immediate")
		refuse(t, sqliteHandle(t, file, goodDSN+"&_pragma=query_only(1)"), "query_only")
		other := filepath.Join(t.TempDir(), "other.db")
		refuse(t, sqliteHandle(t, other, strings.Replace(goodDSN, "(WAL)", "(DELETE)", 1)), "_pragma=journal_mode(WAL)")
		refuse(t, sqliteHandle(t, ":memory:", goodDSN), "in memory")
	})
	t.Run("[stores/SQ1] a PRAGMA that reached one connection only is noticed", func(t *testing.T) {
		t.Parallel()
		db := sqliteHandle(t, file, strings.Replace(goodDSN, "(FULL)", "(NORMAL)", 1))
		if _, err := db.ExecContext(t.Context(), "PRAGMA synchronous = FULL"); err != nil {
			t.Fatal(err)
		}
		refuse(t, db, "_pragma=synchronous(FULL)")
	})
}
