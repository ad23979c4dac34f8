package upgrade

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/postgres"
	"github.com/idempo/idempo/sqlite"
)

// place is a database of the test's own, with a table of effects.
type place struct {
	kind, dsn, records string
	db                 *sql.DB
}

func openPlace(t *testing.T, kind string) *place {
	t.Helper()
	d := &place{kind: kind, records: "idempo_records"}
	name := fmt.Sprintf("upgrade_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9)
	uses, serial := kind, "integer primary key autoincrement"
	switch kind {
	case "postgres":
		d.records, uses, serial = "idempo.records", "pgx", "bigint generated always as identity"
		server := cmp.Or(os.Getenv("IDEMPO_TEST_POSTGRES"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
		own(t, uses, server, "PostgreSQL: set IDEMPO_TEST_POSTGRES", "create database "+name, "drop database "+name+" with (force)")
		u, err := url.Parse(server)
		must(t, err)
		u.Path = name
		d.dsn = u.String()
	case "mysql":
		serial = "bigint auto_increment primary key"
		c := mysqlConfig(t)
		own(t, uses, c.FormatDSN(), "MySQL: set IDEMPO_TEST_MYSQL", "create database "+name, "drop database "+name)
		c.DBName = name
		d.dsn = c.FormatDSN()
	default:
		d.dsn = "file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate"
	}
	d.db = handle(t, uses, d.dsn)
	_, err := d.db.ExecContext(t.Context(), "create table effects (n "+serial+", what varchar(255) not null)")
	must(t, err)
	return d
}

func mysqlConfig(t *testing.T) *driver.Config {
	t.Helper()
	u, err := url.Parse(cmp.Or(os.Getenv("IDEMPO_TEST_MYSQL"), "mysql://root@127.0.0.1:3306/"))
	must(t, err)
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	return c
}

// own makes a database on a server, dropped at the end, or skips where there is no server.
func own(t *testing.T, uses, server, missing, make, drop string) {
	t.Helper()
	db := handle(t, uses, server)
	if err := db.PingContext(t.Context()); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no " + missing)
		}
		t.Skip("no " + missing)
	}
	_, err := db.ExecContext(t.Context(), make)
	must(t, err)
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), drop); err != nil {
			t.Error(err)
		}
	})
}

func handle(t *testing.T, uses, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(uses, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// worker starts a process of a build, to do what.
func (d *place) worker(t *testing.T, build, what string) *crashtest.Process {
	t.Helper()
	p, err := crashtest.Start(build, "WORKER_DO="+what, "WORKER_KIND="+d.kind, "WORKER_PLACE="+d.dsn)
	must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

// migrate brings the schema up to what a build knows.
func (d *place) migrate(t *testing.T, build string) {
	t.Helper()
	if err := d.worker(t, build, "migrate").Ended(context.WithoutCancel(t.Context())); err != nil {
		t.Error("migrate:", err)
	}
}

// version is that of the schema.
func (d *place) version(t *testing.T) (n int) {
	t.Helper()
	must(t, d.db.QueryRowContext(t.Context(), "select count(*) from "+strings.TrimSuffix(d.records, "records")+"migrations").Scan(&n))
	return n
}

// known is the version that this release brings up.
func (d *place) known(t *testing.T) int {
	t.Helper()
	switch d.kind {
	case "postgres":
		all, err := postgres.Status(t.Context(), d.db, postgres.Options{})
		must(t, err)
		return len(all)
	case "mysql":
		all, err := mysql.Status(t.Context(), d.db, mysql.Options{})
		must(t, err)
		return len(all)
	}
	st, err := sqlite.Status(t.Context(), d.db, sqlite.Options{})
	must(t, err)
	return st.Known
}
