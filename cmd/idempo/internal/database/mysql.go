package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/mysql"
)

func openMySQL(ctx context.Context, c config.Store, log *slog.Logger) (*Store, error) {
	db, err := dialMySQL(c)
	if err != nil {
		return nil, err
	}
	s, err := mysql.New(ctx, db, mysqlOptions(c, log))
	if err != nil {
		return nil, errors.Join(reachable(c, err), db.Close())
	}
	return &Store{Store: s, Name: Name(c), stop: db.Close}, nil
}

func mysqlOptions(c config.Store, log *slog.Logger) mysql.Options {
	return mysql.Options{Prefix: c.Prefix, Strict: &c.Strict, TxIdle: c.TxIdle, Logger: log}
}

// dialMySQL makes a handle; nothing is sent yet.
func dialMySQL(c config.Store) (*sql.DB, error) {
	cfg, err := mysqlConfig(string(c.MySQL))
	if err != nil {
		return nil, &Unreachable{Name: Name(c), Cause: err.Error()}
	}
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, &Unreachable{Name: Name(c), Cause: "not a MySQL URL"}
	}
	db := sql.OpenDB(connector)
	limit := cmp.Or(c.MaxConns, 16)
	db.SetMaxOpenConns(limit)
	db.SetMaxIdleConns(limit)
	db.SetConnMaxIdleTime(time.Minute) // servers and what stands before them close idle connections
	return db, nil
}

// mysqlConfig reads mysql://USER:PASSWORD@HOST:PORT/DATABASE?tls=true. Its errors show no part of the URL.
func mysqlConfig(dsn string) (*driver.Config, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" || len(u.Path) < 2 {
		return nil, errors.New("not a MySQL URL: write mysql://USER@HOST/DATABASE")
	}
	cfg := driver.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName, cfg.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Timeout = 5 * time.Second
	cfg.Logger = &driver.NopLogger{} // it would print what the errors say again
	cfg.ConnectionAttributes = "program_name:idempo"
	if u.Port() == "" {
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	for name, values := range u.Query() {
		switch {
		case name == "tls" && len(values) == 1 && (values[0] == "true" || values[0] == "false" || values[0] == "preferred" || values[0] == "skip-verify"):
			cfg.TLSConfig = values[0]
		case name == "tls":
			return nil, errors.New("not a MySQL URL: tls is true, preferred, skip-verify or false")
		default:
			return nil, errors.New("not a MySQL URL: its only parameter is tls")
		}
	}
	return cfg, nil
}

// reachableMySQL is reachable for MySQL.
func reachableMySQL(c config.Store, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*driver.MySQLError](err); ok {
		switch e.Number {
		case 1044, 1045, 1698, 1130:
			return &Unreachable{Name: Name(c), Cause: fmt.Sprintf("the server refuses the login (error %d)", e.Number)}
		case 1049:
			return &Unreachable{Name: Name(c), Cause: "the database does not exist (error 1049)"}
		case 1040, 1053, 1203, 1226:
			return &Unreachable{Name: Name(c), Cause: fmt.Sprintf("the server is not available (error %d)", e.Number)}
		}
		return err
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, driver.ErrInvalidConn) {
		return &Unreachable{Name: Name(c), Cause: connectCause(err)}
	}
	return err
}
