package storecheck

import (
	"bytes"
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/idempo/idempo/postgres"
)

// sqlExample is a program of examples/sql: it charges an amount under a key and prints verdict and answer.
type sqlExample struct {
	name string
	args func(t *testing.T, key, amount string) []string
}

// need skips, or fails in CI, unless a program can do what it is asked for here.
func need(t *testing.T, hint string, tries ...[]string) []string {
	t.Helper()
	for _, args := range tries {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = exampleDir(t)
		if cmd.Run() == nil {
			return args
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return nil
}

func exampleDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../examples/sql")
	must(t, err)
	return dir
}

func sqlExamples() []sqlExample {
	return []sqlExample{
		{"psql", func(t *testing.T, key, amount string) []string {
			psql := need(t, "no psql: install it (Debian: apt-get install postgresql-client)", []string{"psql", "--version"})
			return []string{psql[0], "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "key=" + key, "-v", "amount=" + amount, "-f", "charge.sql"}
		}},
		{"Python", func(t *testing.T, key, amount string) []string {
			python := need(t, "no psycopg for Python: install it (Debian: apt-get install python3-psycopg)",
				[]string{"python3", "-c", "import psycopg"}, []string{"/usr/bin/python3", "-c", "import psycopg"})
			return []string{python[0], "charge.py", key, amount}
		}},
		{"Node", func(t *testing.T, key, amount string) []string {
			node := need(t, "no pg for Node: npm ci --prefix examples/sql", []string{"node", "-e", "require('pg')"})
			return []string{node[0], "charge.js", key, amount}
		}},
	}
}

// exampleDatabase is a database of the test's own, with the schema under the name that programs know.
func exampleDatabase(t *testing.T, dsn string) (string, *sql.DB) {
	t.Helper()
	name := schemaName(t, dsn)
	_, err := openDB(t, "pgx", dsn).ExecContext(t.Context(), `create database "`+name+`" template template0`)
	must(t, err)
	t.Cleanup(func() { _, _ = openCleanup(dsn, `drop database if exists "`+name+`" with (force)`) })
	u, err := url.Parse(dsn)
	must(t, err)
	u.Path = "/" + name
	db := openDB(t, "pgx", u.String())
	must(t, postgres.Migrate(t.Context(), db, postgres.Options{}))
	return u.String(), db
}

func TestPostgresFunctionsGuide(t *testing.T) {
	t.Parallel()
	psql := need(t, "no psql: install it (Debian: apt-get install postgresql-client)", []string{"psql", "--version"})
	own, db := exampleDatabase(t, postgresDSN(t))
	guide, err := os.ReadFile("../../docs/guides/sql.md")
	must(t, err)
	var script strings.Builder
	script.WriteString("create table orders (id bigint generated always as identity, amount numeric);\n")
	for _, part := range strings.Split(string(guide), "```sql\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		script.WriteString(block)
	}
	cmd := exec.CommandContext(t.Context(), psql[0], "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", own)
	cmd.Stdin = strings.NewReader(script.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got string
	must(t, db.QueryRowContext(t.Context(), `select string_agg(operation || ' ' || state, ', ' order by operation) || ', orders ' || (select count(*) from orders) from idempo.records`).Scan(&got))
	if got != "create-order completed, pay failed, send-parcel completed, orders 1" {
		t.Errorf("the guide's statements came to: %s\n%s", got, out)
	}
}

func TestPostgresFunctionsExamples(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for _, example := range sqlExamples() {
		t.Run("[stores/PG11] "+example.name+" charges once under retries", func(t *testing.T) {
			t.Parallel()
			example.args(t, "", "") // skips early
			own, db := exampleDatabase(t, dsn)
			_, err := db.ExecContext(t.Context(), `create table charges (id bigint generated always as identity, account text not null, amount numeric not null)`)
			must(t, err)
			charges := func(want int) { // counted on a connection that the examples do not have
				t.Helper()
				var n int
				must(t, db.QueryRowContext(t.Context(), `select count(*) from charges`).Scan(&n))
				if n != want {
					t.Errorf("%d charges, want %d", n, want)
				}
			}
			start := func(ctx context.Context, key, amount string) (*exec.Cmd, *bytes.Buffer) {
				args := example.args(t, key, amount)
				cmd := exec.CommandContext(ctx, args[0], args[1:]...)
				cmd.Dir, cmd.Env = exampleDir(t), append(os.Environ(), "DATABASE_URL="+own, "PGOPTIONS=")
				if args[0] == "psql" {
					cmd.Args = append(cmd.Args, own)
				}
				out := new(bytes.Buffer)
				cmd.Stdout, cmd.Stderr = out, out
				must(t, cmd.Start())
				return cmd, out
			}

			// A program dies between its effect and its commit: nothing of it remains, and the next call charges.
			block, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			defer func() { _ = block.Rollback() }()
			_, err = block.ExecContext(t.Context(), `lock table charges in exclusive mode`)
			must(t, err)
			victim, out := start(t.Context(), "o-1", "12")
			for waiting := 0; waiting == 0; {
				must(t, db.QueryRowContext(t.Context(), `select count(*) from pg_locks where relation = 'charges'::regclass and not granted`).Scan(&waiting))
				if pauseTest(t) {
					t.Fatalf("it never came to its effect: %s", out)
				}
			}
			must(t, victim.Process.Kill())
			_ = victim.Wait()
			must(t, block.Rollback())
			charges(0)

			// Eight callers at once with one key: one charge, one answer.
			var wg sync.WaitGroup
			answers := make([]string, 8)
			for i := range answers {
				wg.Go(func() {
					cmd, out := start(t.Context(), "o-1", "12")
					if err := cmd.Wait(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
					answers[i] = strings.TrimSpace(out.String())
				})
			}
			wg.Wait()
			charges(1)
			runs := 0
			for _, a := range answers {
				verdict, answer, _ := strings.Cut(a, " ")
				if verdict == "run" {
					runs++
				} else if verdict != "replay" {
					t.Errorf("%q", a)
				}
				if _, first, _ := strings.Cut(answers[0], " "); answer != first || !strings.HasPrefix(answer, `{"charge":`) {
					t.Errorf("%q, another got %q", a, answers[0])
				}
			}
			if runs != 1 {
				t.Errorf("%d of 8 charged: %q", runs, answers)
			}

			// The key stands for its request.
			cmd, out := start(t.Context(), "o-1", "13")
			if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != "mismatch" {
				t.Errorf("%v, %q; want mismatch", err, out)
			}
			charges(1)
		})
	}
}
