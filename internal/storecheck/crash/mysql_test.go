package crash

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	mydriver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
)

// byMySQL is the store on MySQL or MariaDB.
const byMySQL = "mysql"

const mysqlInsert = "insert into effects (intent, content) values (?, ?)"

func openMySQL(ctx context.Context, c config, steps *stepped) (world, error) {
	cfg, err := mydriver.ParseDSN(c.Place)
	if err != nil {
		return world{}, err
	}
	connector, err := mydriver.NewConnector(cfg)
	if err != nil {
		return world{}, err
	}
	db := sql.OpenDB(&mysqlConnector{connector, steps})
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	store, err := mysql.New(ctx, db, mysql.Options{TxIdle: c.TxIdle})
	return world{store: store,
		insert: func(ctx context.Context, key, content string) error {
			_, err := mysql.Tx(ctx).ExecContext(ctx, mysqlInsert, key, content)
			return err
		},
		bare: func(ctx context.Context, key, content string) error {
			_, err := db.ExecContext(ctx, mysqlInsert, key, content)
			return err
		},
	}, err
}

// mysqlConnector makes connections that say when something is about to be committed, and when it has been: a COMMIT, or
// a statement that is a transaction by itself.
type mysqlConnector struct {
	driver.Connector
	steps *stepped
}

func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &mysqlConn{conn.(mysqlDriverConn), c.steps}, nil
}

// mysqlDriverConn is what a connection of the driver can do.
type mysqlDriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

type mysqlConn struct {
	mysqlDriverConn
	steps *stepped
}

func (c *mysqlConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	if strings.HasPrefix(query, "set statement") || query == "commit" {
		err = c.committing(func() error {
			r, err = c.mysqlDriverConn.ExecContext(ctx, query, args)
			return err
		})
		return r, err
	}
	return c.mysqlDriverConn.ExecContext(ctx, query, args)
}

func (c *mysqlConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.mysqlDriverConn.BeginTx(ctx, o)
	return &mysqlTx{tx, c}, err
}

func (c *mysqlConn) committing(f func() error) error {
	phase := c.steps.committing()
	if phase == "" {
		return f()
	}
	c.steps.stage.At("commit "+phase, nil)
	err := f()
	if err == nil {
		c.steps.stage.At("committed "+phase, nil)
	}
	return err
}

type mysqlTx struct {
	driver.Tx
	c *mysqlConn
}

// Commit is the COMMIT of an atomic work.
func (t *mysqlTx) Commit() error { return t.c.committing(t.Tx.Commit) }

// mysqlLane is a database.
type mysqlLane struct {
	dsn string
	db  *sql.DB // the counter's own
}

func newMySQLLane() func(t *testing.T) lane {
	var made atomic.Int64
	return func(t *testing.T) lane {
		t.Helper()
		where := os.Getenv("IDEMPO_TEST_MYSQL")
		if where == "" {
			where = "mysql://root@127.0.0.1:3306/"
		}
		u, err := url.Parse(where)
		if err != nil {
			t.Fatal(err)
		}
		cfg := mydriver.NewConfig()
		cfg.Net, cfg.Addr, cfg.User = "tcp", u.Host, u.User.Username()
		cfg.Passwd, _ = u.User.Password()
		root, err := sql.Open("mysql", cfg.FormatDSN())
		if err == nil {
			t.Cleanup(func() { _ = root.Close() })
			err = root.PingContext(t.Context())
		}
		if err != nil {
			text := "no MySQL: set IDEMPO_TEST_MYSQL, or start one with: docker run -p 3306:3306 -e MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 mariadb"
			if os.Getenv("CI") == "true" {
				t.Fatal(text)
			}
			t.Skip(text)
		}
		cfg.DBName = fmt.Sprintf("crash_%d_%s_%d", os.Getpid(), strings.ToLower(t.Name()[4:8]), made.Add(1))
		if _, err = root.ExecContext(t.Context(), "create database "+cfg.DBName); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = root.ExecContext(context.Background(), "drop database "+cfg.DBName) })
		l := &mysqlLane{dsn: cfg.FormatDSN()}
		if l.db, err = sql.Open("mysql", l.dsn); err == nil {
			t.Cleanup(func() { _ = l.db.Close() })
			err = mysql.Migrate(t.Context(), l.db, mysql.Options{})
		}
		if err == nil {
			_, err = l.db.ExecContext(t.Context(), "create table effects (n bigint auto_increment primary key, intent varchar(255) not null, content text not null) engine = InnoDB")
		}
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func (l *mysqlLane) config() config { return config{Store: byMySQL, Place: l.dsn} }

func (l *mysqlLane) rows(ctx context.Context, key string) ([]string, error) {
	return contents(l.db.QueryContext(ctx, "select content from effects where intent = ?", key))
}

// record returns the row of a key, as text.
func (l *mysqlLane) record(ctx context.Context, key string) (string, error) {
	return rowText(l.db.QueryContext(ctx, "select * from idempo_records where trace = ?", []byte(key)))
}

func (l *mysqlLane) sound(ctx context.Context) (string, error) {
	var table, op, kind, word string
	err := l.db.QueryRowContext(ctx, "check table idempo_records").Scan(&table, &op, &kind, &word)
	return strings.ToLower(word), err
}

// plan is where a step is on MySQL. A COMMIT that is "on the wire" is one that runs, or has run and has not returned.
func (l *mysqlLane) plan(step, guard string, i int) plan { return byCommits(step, guard, i) }

func (l *mysqlLane) wire(*testing.T, *config, crashtest.Trap) *crashtest.Wire { return nil }

// No claim waits in this database: it asks with NOWAIT.

func (l *mysqlLane) block(context.Context) (*sql.Tx, error) {
	return nil, errors.New("nothing makes a claim wait")
}

func (l *mysqlLane) awaitQueue(context.Context, *crashtest.Process) error {
	return errors.New("no claim waits")
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	b := newBench(t, byMySQL, newMySQLLane())
	b.matrix(t, kills(t))
	t.Run("[stores/CT46] without the guard there are two effects", func(t *testing.T) { b.control(t, min(kills(t), 20)) })
}
