package sqlite

import (
	"io/fs"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ5] no statement ignores or replaces, and every table is STRICT with keys as BLOBs", func(t *testing.T) {
		t.Parallel()
		n := 0
		err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := fs.ReadFile(files, path)
			n++
			if regexp.MustCompile(`(?i)\b(or\s+(ignore|replace)|replace\s+into)\b`).Match(b) {
				t.Errorf("%s", path)
			}
			for _, table := range regexp.MustCompile(`(?s)CREATE TABLE.*?;`).FindAllString(string(b), -1) {
				if !strings.Contains(table[strings.LastIndex(table, ")"):], "STRICT") {
					t.Errorf("%s: not STRICT: %.60s", path, table)
				}
				for _, c := range []string{"tenant_id", "operation", "idempotency_key"} {
					if strings.Contains(table, "  "+c+" ") && !strings.Contains(table, "  "+c+" BLOB") {
						t.Errorf("%s: %s is no BLOB: %.60s", path, c, table)
					}
				}
			}
			return err
		})
		if err != nil || n < 10 {
			t.Error(n, err)
		}
	})
}

func TestDSN(t *testing.T) {
	t.Parallel()
	t.Run("[stores/SQ1] the settings travel in the DSN of both drivers", func(t *testing.T) {
		t.Parallel()
		for driver, want := range map[string]url.Values{
			"sqlite":  {"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}},
			"sqlite3": {"_busy_timeout": {"5000"}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}},
		} {
			name, err := dsn(driver, "/a b?c#d%e.db", 5*time.Second, false)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(name)
			if err != nil || u.Query().Encode() != want.Encode() || u.Path != "/a b?c#d%e.db" {
				t.Errorf("%s: %s (%v)", driver, name, err)
			}
			if name, _ := dsn(driver, "/x.db", 5*time.Second, true); !strings.Contains(name, "query_only") || strings.Contains(name, "txlock") {
				t.Errorf("%s, reading: %s", driver, name)
			}
		}
	})
}

func TestScript(t *testing.T) {
	t.Parallel()
	t.Run("[stores/MG3] the same text each time", func(t *testing.T) {
		t.Parallel()
		a, err := Script(Options{}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := Script(Options{}, 0, 0)
		other, _ := Script(Options{Prefix: "other_"}, 0, 0)
		if a != b || a == other || strings.Contains(other, DefaultPrefix) || strings.Contains(a, "{table") {
			t.Error(a)
		}
	})
}
