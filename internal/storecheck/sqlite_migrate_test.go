package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/sqlite"
)

// catalog is the schema of file as SQLite keeps it, and which migrations it says it has.
func catalog(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') FROM sqlite_master
		UNION ALL SELECT 'applied ' || version || ' ' || name || ' ' || sha256 FROM idempo_migrations ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestSQLiteMigrate(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) *sql.DB { return sqliteHandle(t, filepath.Join(t.TempDir(), "x.db"), goodDSN) }
	t.Run("[stores/MG2] 20 at once: one works, all succeed", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				s, err := sqlite.Open(context.WithoutCancel(t.Context()), "sqlite", file, sqlite.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Close()
			})
		}
		wg.Wait()
		st, err := sqlite.Status(t.Context(), sqliteRaw(t, file), sqlite.Options{})
		if err != nil || st.Version != st.Known || len(st.Applied) != st.Known || st.Problem != nil || len(st.Pending) != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("[stores/MG3] the script gives the catalog of up, and start-up accepts it", func(t *testing.T) {
		t.Parallel()
		up := fresh(t)
		if err := sqlite.Migrate(t.Context(), up, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		script, err := sqlite.Script(sqlite.Options{}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		apply := map[string]func(t *testing.T, db *sql.DB, file string){
			"a driver": func(t *testing.T, db *sql.DB, _ string) {
				if _, err := db.ExecContext(t.Context(), script); err != nil {
					t.Fatal(err)
				}
			},
			"the sqlite3 shell": func(t *testing.T, _ *sql.DB, file string) {
				shell, err := exec.LookPath("sqlite3")
				if err != nil {
					t.Skip("no sqlite3 on the PATH; apt-get install sqlite3")
				}
				cmd := exec.CommandContext(t.Context(), shell, "-bail", file)
				cmd.Stdin = strings.NewReader(script)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			},
		}
		for name, how := range apply {
			t.Run(name, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "x.db")
				db := sqliteHandle(t, file, goodDSN)
				how(t, db, file)
				if got, want := catalog(t, db), catalog(t, up); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				s, err := sqlite.New(t.Context(), db, sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				run(t, s, t.Context(), leased("x"))
				_ = s.Close()
			})
		}
	})
	t.Run("[stores/MG1] a migration that was changed after it had been applied is refused, naming it", func(t *testing.T) {
		t.Parallel()
		db := fresh(t)
		if err := sqlite.Migrate(t.Context(), db, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		var by string
		var at int64
		if err := db.QueryRowContext(t.Context(), "SELECT applied_by, applied_at FROM idempo_migrations").Scan(&by, &at); err != nil || by == "" || at == 0 {
			t.Error(by, at, err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE idempo_migrations SET sha256 = 'x' WHERE version = 1"); err != nil {
			t.Fatal(err)
		}
		refuse(t, db, "0001_")
		if err := sqlite.Migrate(t.Context(), db, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "0001_") {
			t.Error(err)
		}
	})
	t.Run("[stores/MG5] a newer schema is refused with both versions", func(t *testing.T) {
		t.Parallel()
		db := fresh(t)
		if err := sqlite.Migrate(t.Context(), db, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		st, err := sqlite.Status(t.Context(), db, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "INSERT INTO idempo_migrations VALUES (?, 'x', 'y', 1, 'z')", st.Known+1); err != nil {
			t.Fatal(err)
		}
		refuse(t, db, fmt.Sprintf("version %d, newer than this release, which knows %d", st.Known+1, st.Known))
	})
	t.Run("[stores/MG2] down where no data is lost, else refused", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "x.db")
		db := sqliteHandle(t, file, goodDSN)
		if err := sqlite.Migrate(t.Context(), db, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		s := sqliteOpen(t, file, sqlite.Options{})
		run(t, s, t.Context(), leased("x"))
		down := func() (err error) {
			st, err := sqlite.Status(t.Context(), db, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range st.Version {
				if err := sqlite.MigrateDown(t.Context(), db, sqlite.Options{}); err != nil {
					return err
				}
			}
			return nil
		}
		if err := down(); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Fatal(err)
		}
		_ = s.Close()
		if _, err := db.ExecContext(t.Context(), "DELETE FROM idempo_records"); err != nil {
			t.Fatal(err)
		}
		if err := down(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_master WHERE name <> 'sqlite_sequence'").Scan(&n); err != nil || n != 0 {
			t.Error(n, err)
		}
		if err := sqlite.Migrate(t.Context(), db, sqlite.Options{}); err != nil {
			t.Error("up again:", err)
		}
	})
}
