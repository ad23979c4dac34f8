package database_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
)

// postgresURL is a database of the tests; where there is none the test is skipped, under CI=true it fails.
func postgresURL(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("IDEMPO_TEST_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	db, err := sql.Open("pgx", dsn)
	if err == nil {
		defer db.Close()
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no PostgreSQL: set IDEMPO_TEST_POSTGRES, or start one with: docker run -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return dsn
}

// schemaOf is a schema of the test's own, dropped at its end.
func schemaOf(t *testing.T, dsn string) string {
	t.Helper()
	name := "cmd_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close()
		if _, err := db.Exec(`drop schema if exists "` + name + `" cascade`); err != nil {
			t.Error(err)
		}
	})
	return name
}

// mysqlURL is a database of the test's own, dropped at its end; where there is no server the test is skipped, under CI=true
// it fails.
func mysqlURL(t *testing.T) string {
	t.Helper()
	where := os.Getenv("IDEMPO_TEST_MYSQL")
	if where == "" {
		where = "mysql://root@127.0.0.1:3306/"
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	c := driver.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	db, err := sql.Open("mysql", c.FormatDSN())
	if err == nil {
		t.Cleanup(func() { db.Close() })
		err = db.PingContext(t.Context())
	}
	if err != nil {
		text := "no MySQL: set IDEMPO_TEST_MYSQL, or start one with: docker run -p 3306:3306 -e MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1 mariadb"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	u.Path = "/cmd_" + strings.ToLower(rand.Text())
	if _, err := db.Exec("create database " + u.Path[1:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("drop database " + u.Path[1:]); err != nil {
			t.Error(err)
		}
	})
	return u.String()
}

func TestSchemaOfEveryDatabase(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) config.Store{
		"sqlite": func(t *testing.T) config.Store {
			return config.Store{SQLite: filepath.Join(t.TempDir(), "a b?%#.db"), Strict: true, BusyTimeout: 5 * time.Second}
		},
		"postgres": func(t *testing.T) config.Store {
			dsn := postgresURL(t)
			return config.Store{Postgres: config.Secret(dsn), Schema: schemaOf(t, dsn), Strict: true, TxIdle: 10 * time.Second}
		},
		"mysql": func(t *testing.T) config.Store {
			return config.Store{MySQL: config.Secret(mysqlURL(t)), Strict: true, TxIdle: 10 * time.Second}
		},
	}
	for name, settings := range stores {
		t.Run("[operations/OP44] "+name+": none, then up, then usable, then down", func(t *testing.T) {
			t.Parallel()
			c := settings(t)
			s, err := database.Schemas(c)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			st, err := s.Status(t.Context())
			if err != nil || st.Version != 0 || st.Known < 1 || len(st.Pending) == 0 || st.Newer || st.Problem != nil {
				t.Fatalf("%+v %v", st, err)
			}
			_, err = database.Open(t.Context(), c, nil)
			if e, ok := errors.AsType[*database.Unfit](err); !ok || e.Code != "schema_old" {
				t.Fatalf("opened by hand: %v", err)
			}
			c.AutoMigrate = true
			var wg sync.WaitGroup // one starter does it, others wait
			for range 5 {
				wg.Go(func() {
					store, err := database.Open(t.Context(), c, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := store.Lookup(context.Background(), idempo.LookupParams{Key: idempo.Key{Tenant: "t", Operation: "o", ID: strings.Repeat("x", 32)}}); err != nil {
						t.Error(err)
					}
					if err := store.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			again, err := database.Schemas(c)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			st, err = again.Status(t.Context())
			if err != nil || st.Version != st.Known || len(st.Applied) != st.Known || st.Applied[0].At.IsZero() || len(st.Pending) != 0 {
				t.Errorf("%+v %v", st, err)
			}
			if err := again.Down(t.Context()); err != nil {
				t.Error(err)
			}
			last, err := database.Schemas(c)
			if err != nil {
				t.Fatal(err)
			}
			defer last.Close()
			if st, err = last.Status(t.Context()); err != nil || st.Version != st.Known-1 {
				t.Errorf("%+v %v", st, err)
			}
		})
	}
	t.Run("[operations/OP44] a schema of a newer release is refused", func(t *testing.T) {
		t.Parallel()
		c := stores["postgres"](t)
		c.AutoMigrate = true
		store, err := database.Open(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		db, err := sql.Open("pgx", string(c.Postgres))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(`insert into "` + c.Schema + `".migrations (version, name, sha256) values (99, 'later', 'x')`); err != nil {
			t.Fatal(err)
		}
		_, err = database.Open(t.Context(), c, nil)
		if e, ok := errors.AsType[*database.Unfit](err); !ok || e.Code != "schema_new" || !strings.Contains(e.Text, "has version 99, this binary knows "+strconv.Itoa(database.PostgresVersion())) {
			t.Errorf("%v", err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	t.Run("[operations/OP14] the cause without values, the URL without password", func(t *testing.T) {
		t.Parallel()
		for dsn, cause := range map[string]string{
			"postgres://app:canary@127.0.0.1:1/d":                            "cannot connect: ",
			"postgres://app:canary@nowhere.invalid/d":                        "the host name is not found",
			"mysql://app:canary@127.0.0.1:1/d":                               "cannot connect: ",
			"mysql://app:canary@nowhere.invalid/d":                           "the host name is not found",
			"mysql://app:canary@127.0.0.1:1/d?tls=maybe":                     "tls is true, preferred, skip-verify or false",
			"mysql://app:canary@127.0.0.1:1/d?allowAllFiles=true":            "its only parameter is tls",
			"mysql://app:canary@127.0.0.1:1":                                 "write mysql://USER@HOST/DATABASE",
			"postgres://app@127.0.0.1:1/d?sslmode=huh":                       "not a PostgreSQL URL",
			"postgres://h/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem": "a certificate file of it cannot be read",
		} {
			c := config.Store{Strict: true, Postgres: config.Secret(dsn)}
			if strings.HasPrefix(dsn, "mysql") {
				c.MySQL, c.Postgres = c.Postgres, ""
			}
			_, err := database.Open(t.Context(), c, nil)
			e, ok := errors.AsType[*database.Unreachable](err)
			if !ok || !strings.Contains(e.Cause, cause) || strings.Contains(e.Error(), "canary") {
				t.Errorf("%s: %v", dsn, err)
			}
		}
	})
	t.Run("[operations/OP14] a login that is refused, a database that is not there", func(t *testing.T) {
		t.Parallel()
		u, err := url.Parse(postgresURL(t))
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/no_such_database"
		_, err = database.Open(t.Context(), config.Store{Postgres: config.Secret(u.String()), Strict: true}, nil)
		if e, ok := errors.AsType[*database.Unreachable](err); !ok || e.Cause != "the database does not exist (SQLSTATE 3D000)" {
			t.Errorf("%v", err)
		}
		if u, err = url.Parse(mysqlURL(t)); err != nil {
			t.Fatal(err)
		}
		for cause, change := range map[string]func(u *url.URL){
			"the database does not exist (error 1049)":  func(u *url.URL) { u.Path = "/no_such_database" },
			"the server refuses the login (error 1045)": func(u *url.URL) { u.User = url.UserPassword("root", "canary") },
		} {
			at := *u
			change(&at)
			_, err = database.Open(t.Context(), config.Store{MySQL: config.Secret(at.String()), Strict: true}, nil)
			if e, ok := errors.AsType[*database.Unreachable](err); !ok || e.Cause != cause || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v, want %s", err, cause)
			}
		}
	})
}

func TestName(t *testing.T) {
	t.Parallel()
	if n := database.Name(config.Store{Postgres: "postgres://u:canary@h/d"}); n != "postgres://u:***@h/d" {
		t.Error(n)
	}
	if n := database.Name(config.Store{MySQL: "mysql://u:canary@h/d"}); n != "mysql://u:***@h/d" {
		t.Error(n)
	}
	if n := database.Name(config.Store{SQLite: "x.db"}); n != "sqlite x.db" {
		t.Error(n)
	}
	if database.SQLiteVersion() < 1 || database.PostgresVersion() < 1 || database.MySQLVersion() < 1 {
		t.Error("no schema is known")
	}
}
