package storecheck

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// privateServer is a PostgreSQL that only one test uses, so that its log and its write-ahead log are that test's own.
type privateServer struct {
	dsn string
	log string // file
	dir string
}

// pgProgram finds a program of a PostgreSQL server, or skips.
func pgProgram(t testing.TB, name string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		text := "no server program " + name + ": install PostgreSQL (Debian: apt-get install postgresql)"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return found[len(found)-1]
}

// asPostgres makes cmd run as somebody whom the server accepts: it refuses root.
func asPostgres(t testing.TB, cmd *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	cmd.Dir = "/"
	if os.Getuid() != 0 {
		return cmd
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	must(t, err)
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	must(t, os.Chown(dir, int(uid), int(gid)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd
}

// startPostgres starts a private server with settings "name=value"; standby makes it one that never ends its recovery.
func startPostgres(t testing.TB, standby bool, settings ...string) *privateServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "idempo-pg")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	initdb := asPostgres(t, exec.Command(pgProgram(t, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"), dir)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	if standby {
		must(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	s := &privateServer{dir: dir, log: filepath.Join(dir, "log"), dsn: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)}
	var options strings.Builder
	options.WriteString(fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c shared_buffers=32MB", port, dir))
	for _, set := range settings {
		options.WriteString(" -c " + set)
	}
	ctl := pgProgram(t, "pg_ctl")
	start := asPostgres(t, exec.Command(ctl, "-D", data, "-l", s.log, "-w", "-t", "60", "-o", options.String(), "start"), dir)
	if out, err := start.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(s.log)
		t.Fatalf("pg_ctl: %v\n%s\n%s", err, out, log)
	}
	t.Cleanup(func() {
		stop := asPostgres(t, exec.CommandContext(context.Background(), ctl, "-D", data, "-m", "immediate", "-w", "stop"), dir)
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("pg_ctl stop: %v\n%s", err, out)
		}
	})
	return s
}

// wal returns how much has been written ahead, and the next transaction id.
func wal(t testing.TB, db *sql.DB) (lsn, xid int64) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), `select (pg_current_wal_insert_lsn() - '0/0')::bigint, (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint`).Scan(&lsn, &xid))
	return lsn, xid
}
