package mattncheck

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/sqlite"
	"github.com/idempo/idempo/storetest"
)

func driver(t *testing.T) {
	t.Helper()
	if linked {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("built without cgo: install gcc, or set CGO_ENABLED=1")
	}
	t.Skip("built without cgo: mattn/go-sqlite3 needs gcc and CGO_ENABLED=1")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// subject is a store, a second one on the same file, and the caller's own handle on it.
func subject(t testing.TB) storetest.Subject {
	file := filepath.Join(t.TempDir(), "store.db")
	open := func() *sqlite.Store {
		s, err := sqlite.Open(t.Context(), "sqlite3", file, sqlite.Options{})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	store, again := open(), open()
	own, err := sql.Open("sqlite3", "file:"+file+"?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	_, err = own.ExecContext(t.Context(), `CREATE TABLE effects (name TEXT NOT NULL) STRICT; CREATE TABLE poison (n INTEGER) STRICT;
		CREATE TRIGGER poisoned BEFORE INSERT ON poison BEGIN SELECT RAISE(ROLLBACK, 'poison'); END`)
	must(t, err)
	return storetest.Subject{
		Store: store, Again: again,
		Effect: func(ctx context.Context, name string) error {
			_, err := sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = own.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE name = ?", name).Scan(&n)
			return n, err
		},
		End:    func(ctx context.Context) error { return sqlite.Tx(ctx).Rollback() },
		Poison: func(ctx context.Context) { _, _ = sqlite.Tx(ctx).ExecContext(ctx, "INSERT INTO poison VALUES (1)") },
		Own: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			tx, err := own.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return sqlite.WithTx(ctx, tx), tx.Commit, tx.Rollback, nil
		},
	}
}

func TestKit(t *testing.T) {
	driver(t)
	storetest.Run(t, subject, storetest.Caps{Tx: true, Sweep: true, Take: true, Seed: 1})
}

func TestOpen(t *testing.T) {
	driver(t)
	t.Run("[stores/SQ1] every connection of Open has the settings of durability", func(t *testing.T) {
		s := subject(t)
		must(t, s.Store.(*sqlite.Store).InTx(t.Context(), func(ctx context.Context) error {
			for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
				var got string
				must(t, sqlite.Tx(ctx).QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got))
				if got != want {
					t.Errorf("%s is %s, want %s", pragma, got, want)
				}
			}
			return nil
		}))
	})
	for name, params := range map[string]string{
		"_journal_mode": "_busy_timeout=5000&_synchronous=FULL&_txlock=immediate",
		"_synchronous":  "_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate",
		"_busy_timeout": "_busy_timeout=1&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate",
		"_txlock":       "_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL",
	} {
		t.Run("[stores/SQ1] New refuses a handle without "+name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "store.db")
			db, err := sql.Open("sqlite3", "file:"+file+"?"+params)
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			must(t, sqlite.Migrate(t.Context(), db, sqlite.Options{}))
			s, err := sqlite.New(t.Context(), db, sqlite.Options{})
			if err == nil {
				_ = s.Close()
				t.Fatal("it was accepted")
			}
			t.Log(err)
		})
	}
	var _ idempo.Transactor = (*sqlite.Store)(nil)
}
