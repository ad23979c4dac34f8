package storecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/mysql"
)

// privateServer is a server of the test's own, which may be killed and started again.
type privateServer struct {
	config  *driver.Config
	program string
	args    []string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// privateMySQL starts a server with settings, and returns the way to it.
func privateMySQL(t testing.TB, settings ...string) *driver.Config {
	t.Helper()
	return newPrivateMySQL(t, settings...).config
}

func newPrivateMySQL(t testing.TB, settings ...string) *privateServer {
	t.Helper()
	program, err := exec.LookPath("mariadbd")
	install, err2 := exec.LookPath("mariadb-install-db")
	if err = errors.Join(err, err2); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("no mariadbd: install it (Debian: apt-get install mariadb-server)")
	}
	dir, err := os.MkdirTemp("", "idempo-mysql") // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	who := "mysql"
	if os.Getuid() != 0 {
		u, err := user.Current()
		must(t, err)
		who = u.Username
	} else if u, err := user.Lookup(who); err == nil {
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		must(t, os.Chown(dir, uid, gid))
	}
	data := filepath.Join(dir, "data")
	out, err := exec.Command(install, "--no-defaults", "--user="+who, "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	p := &privateServer{config: driver.NewConfig(), program: program}
	p.args = append([]string{"--no-defaults", "--user=" + who, "--datadir=" + data, "--socket=" + filepath.Join(dir, "s"), "--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", port), "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--pid-file=" + filepath.Join(dir, "pid")}, settings...)
	p.config.Net, p.config.Addr, p.config.User = "tcp", fmt.Sprintf("127.0.0.1:%d", port), "root"
	p.config.Logger = &driver.NopLogger{}
	p.start(t)
	t.Cleanup(func() { p.kill(t) })
	return p
}

// start starts the server and waits for its first answer.
func (p *privateServer) start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.program, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	must(t, p.cmd.Start())
	db := openMySQL(t, p.config)
	for until := time.Now().Add(time.Minute); db.PingContext(t.Context()) != nil; {
		select {
		case <-t.Context().Done():
			t.Fatal("the server does not answer")
		case <-time.After(20 * time.Millisecond): // it is starting
		}
		if time.Now().After(until) {
			t.Fatalf("the server does not answer: %s", p.log.String())
		}
	}
}

// kill ends the server as a crash does.
func (p *privateServer) kill(t testing.TB) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func TestMySQLRefused(t *testing.T) {
	t.Parallel()
	mysqlConfig(t)
	t.Run("[stores/MY1] weak durability, binlog_format STATEMENT, read-only: refused with setting and fix; without Strict durability warns", func(t *testing.T) {
		t.Parallel()
		c := mysqlDatabase(t, privateMySQL(t, "--log-bin=binlog", "--binlog-format=STATEMENT", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"))
		root := openMySQL(t, c)
		_, err := root.ExecContext(t.Context(), "set session binlog_format = row")
		must(t, err)
		must(t, mysql.Migrate(t.Context(), root, mysql.Options{}))
		_, err = mysql.New(t.Context(), openMySQL(t, c), mysql.Options{})
		for _, want := range []string{
			"mysql: binlog_format is STATEMENT, with which READ COMMITTED cannot write: SET GLOBAL binlog_format = ROW",
			"mysql: innodb_flush_log_at_trx_commit is 2: acknowledged records can be lost; SET GLOBAL innodb_flush_log_at_trx_commit = 1, or set Strict to false",
			"mysql: sync_binlog is 0 with a binary log: acknowledged records can be lost; SET GLOBAL sync_binlog = 1, or set Strict to false",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New = %v, want %q in it", err, want)
			}
		}
		for _, fix := range []string{"SET GLOBAL binlog_format = ROW", "set global read_only = 1"} {
			_, err := root.ExecContext(t.Context(), fix)
			must(t, err)
		}
		var log bytes.Buffer
		weak := mysql.Options{Strict: new(false), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err = mysql.New(t.Context(), openMySQL(t, c), weak); err == nil || !strings.Contains(err.Error(), "mysql: read_only is ON: connect to the primary") {
			t.Errorf("New = %v", err)
		}
		for _, fix := range []string{"set global read_only = 0"} {
			_, err := root.ExecContext(t.Context(), fix)
			must(t, err)
		}
		log.Reset()
		if _, err = mysql.New(t.Context(), openMySQL(t, c), weak); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "acknowledged records can be lost"); n != 2 {
			t.Errorf("%d warnings: %s", n, log.String())
		}
		for _, fix := range []string{"SET GLOBAL innodb_flush_log_at_trx_commit = 1", "SET GLOBAL sync_binlog = 1"} {
			_, err := root.ExecContext(t.Context(), fix)
			must(t, err)
		}
		s, err := mysql.New(t.Context(), openMySQL(t, c), mysql.Options{})
		must(t, err)
		pgAcquire(t, t.Context(), s, pgClaim(idempo.GuardLeased), idempo.VerdictRun) // with a binary log
	})
	t.Run("[stores/MY1] a lock time-out that rolls everything back: verdicts are right all the same", func(t *testing.T) {
		t.Parallel()
		c := mysqlDatabase(t, privateMySQL(t, "--innodb-rollback-on-timeout=1"))
		mysqlTables(t, c, mysql.Options{})
		m := openStore(t, c, mysql.Options{}, nil)
		held := pgClaim(idempo.GuardAtomic)
		must(t, m.InTx(t.Context(), func(ctx context.Context) error {
			a := pgAcquire(t, ctx, m, held, idempo.VerdictRun)
			must(t, m.InTx(t.Context(), func(ctx context.Context) error { // its first call: nothing is lost with it
				pgAcquire(t, ctx, m, pgAgain(held), idempo.VerdictInProgress)
				p := pgClaim(idempo.GuardAtomic)
				b := pgAcquire(t, ctx, m, p, idempo.VerdictRun)
				must(t, m.effect(ctx, "first"))
				_, err := m.Complete(ctx, pgResult(p, b, "x"))
				return err
			}))
			err := m.InTx(t.Context(), func(ctx context.Context) error {
				p := pgClaim(idempo.GuardAtomic)
				pgAcquire(t, ctx, m, p, idempo.VerdictRun)
				must(t, m.effect(ctx, "second"))
				_, err := m.Acquire(ctx, pgAgain(held))
				return err
			})
			if codeOf(err) != "tx_conflict" {
				t.Errorf("a time-out that took the effect with it: %v", err)
			}
			_, err = m.Complete(ctx, pgResult(held, a, "x"))
			return err
		}))
		m.effects(t, "first", 1)
		m.effects(t, "second", 0)
	})
	t.Run("[stores/MY1] settings of the sessions, the engine of a table", func(t *testing.T) {
		t.Parallel()
		c := mysqlDatabase(t, mysqlConfig(t))
		mysqlTables(t, c, mysql.Options{})
		for set, want := range map[string]string{
			"autocommit=0":                "mysql: autocommit is off for the sessions of this handle: take it out of the DSN",
			"binlog_format='STATEMENT'":   "mysql: binlog_format is STATEMENT",
			"tx_read_only=1":              "mysql: tx_read_only is on for the sessions of this handle",
			"engine of idempo_records":    "mysql: table idempo_records is of engine Aria: ALTER TABLE idempo_records ENGINE = InnoDB",
			"innodb_lock_wait_timeout=50": "",
		} {
			at := c.Clone()
			name, value, ok := strings.Cut(set, "=")
			if ok {
				at.Params = map[string]string{name: value}
			} else {
				_, err := openMySQL(t, c).ExecContext(t.Context(), "alter table idempo_records engine = Aria")
				must(t, err)
			}
			_, err := mysql.New(t.Context(), openMySQL(t, at), mysql.Options{})
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: New = %v, want %q", set, err, want)
			}
			if !ok {
				_, err := openMySQL(t, c).ExecContext(t.Context(), "alter table idempo_records engine = InnoDB")
				must(t, err)
			}
		}
		at := c.Clone()
		at.DBName = ""
		if _, err := mysql.New(t.Context(), openMySQL(t, at), mysql.Options{}); err == nil || !strings.Contains(err.Error(), "in no database") {
			t.Error(err)
		}
	})
}

// wrapped hides the driver's error from reflection, as a driver of another shape would.
type wrapped struct{ text string }

func (w wrapped) Error() string { return w.text }

func TestMySQLErrorNumber(t *testing.T) {
	t.Parallel()
	t.Run("[stores/MY7] Options.ErrorNumber instead of the field Number: conflicts are told from faults", func(t *testing.T) {
		t.Parallel()
		m, h := hookedMySQL(t)
		told := 0
		s, err := mysql.New(t.Context(), m.pool, mysql.Options{ErrorNumber: func(err error) int {
			var w wrapped
			if errors.As(err, &w) {
				told++
				n, _ := strconv.Atoi(w.text)
				return n
			}
			return int(numberOf(err))
		}})
		must(t, err)
		for _, number := range []string{"1213", "1146"} {
			h.on(func(q string, _ *driverConn) error {
				if strings.Contains(q, "insert into") {
					return wrapped{number}
				}
				return nil
			})
			_, err = s.Acquire(t.Context(), pgClaim(idempo.GuardLeased))
			e, ok := pgError(err)
			if !ok || e.Code != "unavailable" || e.Unknown || !strings.Contains(err.Error(), "error "+number) || told == 0 {
				t.Errorf("%s: %v, asked %d times", number, err, told)
			}
		}
	})
	t.Run("[stores/MY7] COMMIT answered with 1213, as Galera and group replication do: a rollback, run again, one effect", func(t *testing.T) {
		t.Parallel()
		m, h := hookedMySQL(t)
		e := myEngine(t, m.Store, idempo.Config{})
		var once sync.Once
		h.on(func(q string, c *driverConn) (err error) {
			if q == "commit" {
				once.Do(func() {
					must(t, c.do("rollback"))
					err = refusal(1213)
				})
			}
			return err
		})
		runs := 0
		b, err := e.Do(t.Context(), request("atomic", "galera"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
			runs++
			return idempo.Result{Status: 201, Body: fmt.Appendf(nil, "run %d", runs)}, m.effect(ctx, "galera")
		})
		if err != nil || b.Verdict != idempo.VerdictRun || runs != 2 || string(b.Record.Result.Body) != "run 2" {
			t.Errorf("%q %v, %d runs", b.Verdict, err, runs)
		}
		m.effects(t, "galera", 1)
	})
}
