package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/mysql"
)

// atomicMySQL compares on MySQL or MariaDB, over a handle with the driver's defaults.
func atomicMySQL(ctx context.Context, s settings) ([]result, error) {
	u, err := url.Parse(cmp.Or(os.Getenv("IDEMPO_TEST_MYSQL"), "mysql://root@127.0.0.1:3306/"))
	if err != nil {
		return nil, err
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	root, err := open(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	name := fmt.Sprintf("bench_%d", os.Getpid())
	if _, err := root.ExecContext(ctx, "create database "+name); err != nil {
		return nil, err
	}
	defer func() { _, _ = root.ExecContext(context.WithoutCancel(ctx), "drop database "+name) }()
	c.DBName = name
	db, err := open(c)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, "create table orders (id bigint auto_increment primary key, n bigint not null, body text not null) engine = InnoDB"); err != nil {
		return nil, err
	}
	if err := mysql.Migrate(ctx, db, mysql.Options{}); err != nil {
		return nil, err
	}
	store, err := mysql.New(ctx, db, mysql.Options{})
	if err != nil {
		return nil, err
	}
	e, err := engineOver(store)
	if err != nil {
		return nil, err
	}
	return insertsOver(ctx, s, e, db, "insert into orders (n, body) values (?, ?)", "MySQL or MariaDB (go-sql-driver)", mysql.Tx, 16, 0.35)
}

func open(c *driver.Config) (*sql.DB, error) {
	connector, err := driver.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	return db, nil
}
