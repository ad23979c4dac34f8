package inboxcheck

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/mysql"
)

// onMySQL returns a database of the test's own on MySQL or MariaDB.
func onMySQL(t *testing.T) *place {
	where := os.Getenv("IDEMPO_TEST_MYSQL")
	if where == "" {
		where = "mysql://root@127.0.0.1:3306/"
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Logger = &driver.NopLogger{}
	root, err := sql.Open("mysql", c.FormatDSN())
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
	name := fmt.Sprintf("inbox_%d_%d", os.Getpid(), time.Now().UnixNano()%1e12)
	if _, err := root.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := root.ExecContext(context.WithoutCancel(t.Context()), "drop database "+name); err != nil {
			t.Error(err)
		}
	})
	c.DBName = name
	p := &place{t: t, c: config{Store: "mysql", Place: c.FormatDSN()},
		count: "select count(*) from effects where what = ?", left: "select count(*) from idempo_receipts"}
	if p.db, err = sql.Open("mysql", p.c.Place); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.db.Close() })
	if err := mysql.Migrate(t.Context(), p.db, mysql.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.db.ExecContext(t.Context(), "create table effects (what varchar(255) not null) engine = InnoDB"); err != nil {
		t.Fatal(err)
	}
	return p
}
