package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/mysql"
	"github.com/idempo/idempo/storetest"
)

// mysqlConfig returns where the MySQL or MariaDB of the tests is, or skips.
func mysqlConfig(t testing.TB) *driver.Config {
	t.Helper()
	where := os.Getenv("IDEMPO_TEST_MYSQL")
	if where == "" {
		where = "mysql://root@127.0.0.1:3306/"
	}
	u, err := url.Parse(where)
	must(t, err)
	c := driver.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.Logger = &driver.NopLogger{}
	db := openMySQL(t, c)
	if err := db.PingContext(t.Context()); err != nil {
		text := "no MySQL: set IDEMPO_TEST_MYSQL, or start one with: docker run -p 3306:3306 -e MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 mariadb"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return c
}

func openMySQL(t testing.TB, c *driver.Config) *sql.DB {
	t.Helper()
	connector, err := driver.NewConnector(c)
	must(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(8)
	db.SetMaxOpenConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// mysqlDatabase returns c with a database of the test's own, dropped at its end.
func mysqlDatabase(t testing.TB, c *driver.Config) *driver.Config {
	t.Helper()
	c = c.Clone()
	name := fmt.Sprintf("t%d_%d_%d", os.Getpid(), schemas.Add(1), time.Now().UnixNano()%1e9)
	root := openMySQL(t, c)
	_, err := root.ExecContext(t.Context(), "create database `"+name+"` character set latin1 collate latin1_swedish_ci")
	must(t, err)
	t.Cleanup(func() {
		if _, err := root.ExecContext(context.Background(), "drop database `"+name+"`"); err != nil {
			t.Error(err)
		}
	})
	c.DBName = name
	return c
}

// my is a store on MySQL with the means to work in its transactions.
type my struct {
	*mysql.Store
	c    *driver.Config
	o    mysql.Options
	pool *sql.DB // of the store
	db   *sql.DB // for looking, not for the store
}

// openStore opens a store on a database that is migrated; change is made to the connections of its pool.
func openStore(t testing.TB, c *driver.Config, o mysql.Options, change func(*driver.Config)) *my {
	t.Helper()
	at := c.Clone()
	if change != nil {
		change(at)
	}
	m := &my{c: c, o: o, pool: openMySQL(t, at), db: openMySQL(t, c)}
	s, err := mysql.New(t.Context(), m.pool, o)
	must(t, err)
	m.Store = s
	return m
}

// newMySQL is openStore on a database of the test's own, with a table of effects.
func newMySQL(t testing.TB, o mysql.Options, change func(*driver.Config)) *my {
	t.Helper()
	c := mysqlDatabase(t, mysqlConfig(t))
	mysqlTables(t, c, o)
	return openStore(t, c, o, change)
}

func mysqlTables(t testing.TB, c *driver.Config, o mysql.Options) {
	t.Helper()
	db := openMySQL(t, c)
	must(t, mysql.Migrate(t.Context(), db, o))
	for _, table := range []string{
		"create table effects (n bigint auto_increment primary key, what varbinary(8192) not null) engine = InnoDB",
		"create table counters (id int primary key, n int not null) engine = InnoDB",
		"insert into counters values (1, 0), (2, 0)",
	} {
		_, err := db.ExecContext(t.Context(), table)
		must(t, err)
	}
}

// exec runs a statement in the transaction that ctx carries.
func (m *my) exec(ctx context.Context, query string, args ...any) error {
	_, err := mysql.Tx(ctx).ExecContext(ctx, query, args...)
	return err
}

// effect does the work's effect once in the transaction of ctx.
func (m *my) effect(ctx context.Context, what string) error {
	return m.exec(ctx, "insert into effects (what) values (?)", what)
}

// count returns the number that a query returns, on a connection of its own.
func (m *my) count(t testing.TB, query string, args ...any) int {
	t.Helper()
	var n int
	must(t, m.db.QueryRowContext(context.Background(), query, args...).Scan(&n))
	return n
}

func (m *my) effects(t testing.TB, what string, want int) {
	t.Helper()
	if n := m.count(t, "select count(*) from effects where what = ?", what); n != want {
		t.Errorf("%d effects of %s, want %d", n, what, want)
	}
}

// begin opens a transaction of the caller's own.
func (m *my) begin(ctx context.Context, o *sql.TxOptions) (joined context.Context, tx *sql.Tx, err error) {
	tx, err = m.pool.BeginTx(ctx, o)
	return mysql.WithTx(ctx, tx), tx, err
}

// mysqlSubject opens a store twice for the kit.
func mysqlSubject(t testing.TB, change func(*driver.Config)) storetest.Subject {
	m := newMySQL(t, mysql.Options{}, change)
	again := openStore(t, m.c, mysql.Options{}, change)
	return storetest.Subject{
		Store: m.Store, Again: again.Store,
		Effect: m.effect,
		Count: func(ctx context.Context, name string) (n int, err error) {
			err = m.db.QueryRowContext(ctx, "select count(*) from effects where what = ?", name).Scan(&n)
			return n, err
		},
		End: func(ctx context.Context) error { return mysql.Tx(ctx).Rollback() },
		Own: func(ctx context.Context) (context.Context, func() error, func() error, error) {
			in, tx, err := m.begin(ctx, nil)
			if err != nil {
				return nil, nil, nil, err
			}
			return in, tx.Commit, tx.Rollback, nil
		},
	}
}

func TestMySQLKit(t *testing.T) {
	t.Parallel()
	t.Run("[stores/CT40, CT45] MySQL or MariaDB", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) storetest.Subject { return mysqlSubject(t, nil) }, kitCaps(t))
	})
}
