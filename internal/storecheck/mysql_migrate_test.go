package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
	"github.com/idempo/idempo/mysql"
)

var madeAt = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// mysqlCatalog is what a database has of the store: its tables as the server would make them again, and its list of migrations.
func mysqlCatalog(t testing.TB, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	rows, err := db.QueryContext(t.Context(), "select table_name from information_schema.tables where table_schema = database() order by 1")
	must(t, err)
	var names []string
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		names = append(names, name)
	}
	must(t, rows.Close())
	for _, name := range names {
		var text string
		must(t, db.QueryRowContext(t.Context(), "show create table `"+name+"`").Scan(new(string), &text))
		b.WriteString(madeAt.ReplaceAllString(text, "") + "\n")
	}
	if len(names) > 0 {
		var applied, metas string
		must(t, db.QueryRowContext(t.Context(), "select group_concat(version, name, sha256 order by version) from idempo_migrations").Scan(&applied))
		must(t, db.QueryRowContext(t.Context(), "select concat(count(*), min(length(store_id))) from idempo_meta").Scan(&metas))
		b.WriteString(applied + " " + metas)
	}
	return b.String()
}

func TestMySQLMigrate(t *testing.T) {
	t.Parallel()
	base := mysqlConfig(t)
	fresh := func(t *testing.T) (*driver.Config, *sql.DB) {
		c := mysqlDatabase(t, base)
		return c, openMySQL(t, c)
	}
	_, whole := fresh(t)
	must(t, mysql.Migrate(t.Context(), whole, mysql.Options{}))
	want := mysqlCatalog(t, whole)

	t.Run("[stores/MG2] 20 at once: one works, all succeed; down only where no row is lost", func(t *testing.T) {
		t.Parallel()
		_, db := fresh(t)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := mysql.Migrate(t.Context(), db, mysql.Options{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := mysqlCatalog(t, db); got != want {
			t.Errorf("20 at once made\n%s\nwant\n%s", got, want)
		}
		s, err := mysql.New(t.Context(), db, mysql.Options{})
		must(t, err)
		p := pgClaim(idempo.GuardLeased)
		pgAcquire(t, t.Context(), s, p, idempo.VerdictRun)
		for err == nil {
			err = mysql.Down(t.Context(), db, mysql.Options{})
		}
		if !strings.Contains(err.Error(), "table records is not empty and its rows would be lost") {
			t.Error(err)
		}
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		pgAcquire(t, t.Context(), s, pgAgain(p), idempo.VerdictInProgress)
		_, err = db.ExecContext(t.Context(), "delete from idempo_records")
		must(t, err)
		for err = nil; err == nil; {
			err = mysql.Down(t.Context(), db, mysql.Options{})
		}
		if !strings.Contains(err.Error(), "no migration is applied") {
			t.Error(err)
		}
	})
	t.Run("[stores/MG2] stopped behind any statement: the next run finishes", func(t *testing.T) {
		t.Parallel()
		for n := 1; ; n++ {
			c, db := fresh(t)
			connector, err := driver.NewConnector(c)
			must(t, err)
			h := &hook{Connector: connector}
			seen, stopped := 0, false
			h.on(func(q string, _ *driverConn) error {
				if strings.HasPrefix(q, "create") || strings.HasPrefix(q, "alter") || strings.HasPrefix(q, "insert") {
					if seen++; seen == n {
						stopped = true
						return context.Canceled
					}
				}
				return nil
			})
			killed := sql.OpenDB(h)
			err = mysql.Migrate(t.Context(), killed, mysql.Options{})
			must(t, killed.Close())
			if !stopped {
				must(t, err)
				if n < 8 {
					t.Errorf("only %d statements", n)
				}
				break
			}
			if err == nil {
				t.Errorf("stopped at %d, and no error", n)
			}
			must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
			if got := mysqlCatalog(t, db); got != want {
				t.Errorf("stopped at %d, then finished, made\n%s\nwant\n%s", n, got, want)
			}
		}
	})
	t.Run("[stores/MG3] the printed script, applied by the client program, makes the same catalog; New accepts it", func(t *testing.T) {
		t.Parallel()
		program, err := exec.LookPath("mysql")
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip("no program mysql: install it (Debian: apt-get install mariadb-client)")
		}
		c, db := fresh(t)
		script, err := mysql.Print(mysql.ScriptOptions{})
		must(t, err)
		host, port, _ := strings.Cut(c.Addr, ":")
		cmd := exec.CommandContext(t.Context(), program, "--no-defaults", "-h", host, "-P", port, "-u", c.User, "--password="+c.Passwd, c.DBName)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := mysqlCatalog(t, db); got != want {
			t.Errorf("the script made\n%s\nwant\n%s", got, want)
		}
		_, err = mysql.New(t.Context(), db, mysql.Options{})
		must(t, err)
	})
	t.Run("[stores/MG1, MG5] missing, changed and newer schemas are refused with versions and command", func(t *testing.T) {
		t.Parallel()
		_, db := fresh(t)
		refused := func(want string) {
			t.Helper()
			if _, err := mysql.New(t.Context(), db, mysql.Options{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New = %v, want %q", err, want)
			}
		}
		refused("has version 0, this release needs ")
		refused("run idempo migrate up")
		all, err := mysql.Status(t.Context(), db, mysql.Options{})
		if err != nil || len(all) < 1 || !all[0].AppliedAt.IsZero() {
			t.Errorf("%+v %v", all, err)
		}
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		all, err = mysql.Status(t.Context(), db, mysql.Options{})
		if err != nil || all[0].Name != "records" || time.Since(all[0].AppliedAt).Abs() > time.Hour || !strings.HasPrefix(all[0].AppliedBy, "root@") {
			t.Errorf("%+v %v", all, err)
		}
		s, err := mysql.New(t.Context(), db, mysql.Options{})
		must(t, err)
		change := func(statement string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), statement)
			must(t, err)
		}
		change("insert into idempo_migrations values (99, 'later', 'x', utc_timestamp(6), 'me')")
		refused("the schema has version 99, newer than this release")
		change("delete from idempo_migrations where version = 99")
		change("update idempo_migrations set sha256 = 'y' where version = 1")
		refused("migration 0001_records.sql was changed after it had been applied")
		if _, err := mysql.Status(t.Context(), db, mysql.Options{}); err == nil || mysql.Migrate(t.Context(), db, mysql.Options{}) == nil {
			t.Error("a changed migration was let through")
		}
		change("drop table idempo_records")
		if _, err := s.Acquire(t.Context(), pgClaim(idempo.GuardLeased)); codeOf(err) != "unavailable" || !strings.Contains(err.Error(), "idempo migrate up") {
			t.Errorf("a schema that changed under a running store: %v", err)
		}
	})
	t.Run("[stores/MG5] DDL that meets a lock lets others pass, and gets through", func(t *testing.T) {
		t.Parallel()
		_, db := fresh(t)
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		for _, table := range []string{"meta", "receipts", "counters"} { // a metadata lock on a table of each migration
			must(t, tx.QueryRowContext(t.Context(), "select count(*) from idempo_"+table).Scan(new(int)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := mysql.Down(ctx, db, mysql.Options{}); err == nil {
			t.Error("a table in use was dropped")
		}
		must(t, tx.QueryRowContext(t.Context(), "select count(*) from idempo_meta").Scan(new(int)))
		must(t, tx.Rollback())
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		if got := mysqlCatalog(t, db); got != want {
			t.Errorf("left\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("[stores/MG5] a user with the printed rights alone: all but migrating works", func(t *testing.T) {
		t.Parallel()
		c, db := fresh(t)
		must(t, mysql.Migrate(t.Context(), db, mysql.Options{}))
		user := fmt.Sprintf("u%d_%d", os.Getpid(), schemas.Add(1))
		script, err := mysql.Print(mysql.ScriptOptions{Grants: user})
		must(t, err)
		_, err = db.ExecContext(t.Context(), "create user "+user+" identified by 'secret'")
		must(t, err)
		t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "drop user "+user) })
		for line := range strings.Lines(script) {
			if strings.HasPrefix(line, "grant") {
				_, err := db.ExecContext(t.Context(), strings.TrimSuffix(strings.TrimSpace(line), ";"))
				must(t, err)
			}
		}
		_, err = db.ExecContext(t.Context(), "create table effects (n bigint auto_increment primary key, what varchar(255) not null) engine = InnoDB")
		must(t, err)
		_, err = db.ExecContext(t.Context(), "grant insert on effects to "+user)
		must(t, err)
		m := openStore(t, c, mysql.Options{}, func(c *driver.Config) { c.User, c.Passwd = user, "secret" })
		e := myEngine(t, m.Store, idempo.Config{})
		for _, operation := range []string{"atomic", "leased"} {
			for _, want := range []idempo.Verdict{idempo.VerdictRun, idempo.VerdictReplay} {
				b, err := e.Do(t.Context(), request(operation, "granted"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
					if operation == "atomic" {
						return idempo.Result{Status: 201}, m.effect(ctx, "granted")
					}
					return idempo.Result{Status: 201}, nil
				})
				if err != nil || b.Verdict != want {
					t.Errorf("%s: %q %v", operation, b.Verdict, err)
				}
			}
		}
		_, err = m.Sweep(t.Context(), 10)
		must(t, err)
		_, err = m.Take(t.Context(), idempo.TakeParams{Operations: []string{"leased"}, Limit: 1, Lease: time.Minute})
		must(t, err)
		in, err := inbox.New(e, inbox.Options{Subscriber: "granted"})
		must(t, err)
		_, err = in.Put(t.Context(), inbox.Message{Source: "orders", ID: "1", Lane: "c-1"})
		must(t, err)
		if n, err := in.Once(t.Context(), func(context.Context, inbox.Message) error { return nil }); n != 1 || err != nil {
			t.Errorf("%d messages, %v", n, err)
		}
		if err := mysql.Migrate(t.Context(), m.pool, mysql.Options{}); err == nil || !strings.Contains(err.Error(), "rights that idempo migrate print --grants USER shows") {
			t.Errorf("migrating without rights: %v", err)
		}
	})
}
