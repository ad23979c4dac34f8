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

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// my is a database of its own on the server.
type my struct {
	db, root *sql.DB
	name     string
	engine   *idempo.Engine
}

func openMy(ctx context.Context) (_ *my, err error) {
	u, err := url.Parse(cmp.Or(os.Getenv("IDEMPO_TEST_MYSQL"), "mysql://root@127.0.0.1:3306/"))
	if err != nil {
		return nil, err
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	m := &my{name: fmt.Sprintf("bench_%d", os.Getpid())}
	if m.root, err = open(c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close(ctx)
		}
	}()
	if _, err := m.root.ExecContext(ctx, "create database "+m.name); err != nil {
		return nil, err
	}
	c.DBName = m.name
	if m.db, err = open(c); err != nil {
		return nil, err
	}
	if err := mysql.Migrate(ctx, m.db, mysql.Options{}); err != nil {
		return nil, err
	}
	store, err := mysql.New(ctx, m.db, mysql.Options{})
	if err != nil {
		return nil, err
	}
	m.engine, err = engineOver(store)
	return m, err
}

func (m *my) close(ctx context.Context) {
	if m.db != nil {
		_ = m.db.Close()
	}
	_, _ = m.root.ExecContext(context.WithoutCancel(ctx), "drop database if exists "+m.name)
	_ = m.root.Close()
}

// atomicMySQL compares on MySQL or MariaDB, over a handle with the driver's defaults.
func atomicMySQL(ctx context.Context, s settings) ([]result, error) {
	m, err := openMy(ctx)
	if err != nil {
		return nil, err
	}
	defer m.close(ctx)
	if _, err := m.db.ExecContext(ctx, "create table orders (id bigint auto_increment primary key, n bigint not null, body text not null) engine = InnoDB"); err != nil {
		return nil, err
	}
	return insertsOver(ctx, s, m.engine, m.db, "insert into orders (n, body) values (?, ?)", "MySQL or MariaDB (go-sql-driver)", mysql.Tx, 16, 0.35)
}

func fillingMySQL(ctx context.Context) (*filled, error) {
	m, err := openMy(ctx)
	if err != nil {
		return nil, err
	}
	const digit = "(select 0 d union all select 1 union all select 2 union all select 3 union all select 4 union all select 5 union all select 6 union all select 7 union all select 8 union all select 9)"
	const fill = `insert into idempo_records (tenant_id, operation, idempotency_key, request_hash, request_recipe, state, guard, on_crash, surface, attempt, token, owner, derived_key, status_code,
		response_headers, response_body, body_size, body_kept, claimed_at, started_at, lease_until, created_at, changed_at, completed_at, expires_at, gone_at, watch_at)
		select concat('t', n %% %d), 'send-parcel', unhex(sha2(concat('fill ', n), 256)), unhex(sha2('x', 256)), 'input1;k=d1', 'completed', 'leased', 'hold', 'http', 1, '0123456789abcdef',
		'host/1234 version', '6be8f39f-c03c-4adc-b47a-d559a3522431', 201, '[]', '{"id":9}', 8, 1, made, made, made, made, made, made, made + interval 10 day, made + interval 30 day, made + interval 10 day
		from (select %d + a.d + 10 * b.d + 100 * c.d + 1000 * e.d as n, utc_timestamp(6) - interval 2 day as made from ` + digit + ` a, ` + digit + ` b, ` + digit + ` c, ` + digit + ` e) x where n <= %d`
	return &filled{what: "MySQL or MariaDB", engine: m.engine, close: func() { m.close(ctx) }, fill: func(ctx context.Context, from, to, tenants int) error {
		for ; from <= to; from += 10_000 {
			if _, err := m.db.ExecContext(ctx, fmt.Sprintf(fill, tenants, from, to)); err != nil {
				return err
			}
		}
		_, err := m.db.ExecContext(ctx, "analyze table idempo_records")
		return err
	}}, nil
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
