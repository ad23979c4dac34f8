package pgserver

import (
	"context"
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
	"time"
)

// Server is one PostgreSQL. Its methods are for one goroutine at a time.
type Server struct {
	dir, data, log string
	port           int
	settings       []string
	up             bool
}

// Start makes a new cluster with settings "name=value" and starts it.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := prepare(t, settings)
	s.Up(t)
	return s
}

// StartStandby is Start for a server that never ends its recovery.
func StartStandby(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := prepare(t, settings)
	must(t, os.WriteFile(filepath.Join(s.data, "standby.signal"), nil, 0o600))
	s.Up(t)
	return s
}

// prepare makes a cluster and does not start it.
func prepare(t testing.TB, settings []string) *Server {
	t.Helper()
	s := place(t, settings)
	s.run(t, "initdb", "-D", s.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
	return s
}

// place finds a folder and a port for a server.
func place(t testing.TB, settings []string) *Server {
	t.Helper()
	Program(t, "initdb")
	dir, err := os.MkdirTemp("", "idempo-pg")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	s := &Server{dir: dir, data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log"), port: port, settings: settings}
	t.Cleanup(func() {
		if s.up {
			s.Stop(t, "immediate")
		}
	})
	return s
}

// DSN is where clients connect, as the superuser.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Log returns what the server has written to its log.
func (s *Server) Log(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(s.log)
	must(t, err)
	return text
}

// Up starts the server that was stopped or killed, and waits until it takes connections.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	var o strings.Builder
	fmt.Fprintf(&o, "-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c shared_buffers=32MB", s.port, s.dir)
	for _, set := range s.settings {
		o.WriteString(" -c " + set)
	}
	var err error
	for try := range 20 { // what is left of a killed server holds its memory for a moment
		if err = s.try(t, "pg_ctl", "-D", s.data, "-l", s.log, "-w", "-t", "60", "-o", o.String(), "start"); err == nil {
			s.up = true
			return
		}
		time.Sleep(time.Duration(try+1) * 50 * time.Millisecond)
	}
	t.Fatalf("%v\n%s", err, s.Log(t))
}

// Stop stops the server: mode smart, fast or immediate.
func (s *Server) Stop(t testing.TB, mode string) {
	t.Helper()
	s.up = false
	s.run(t, "pg_ctl", "-D", s.data, "-m", mode, "-w", "stop")
}

// Restart stops the server fast and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t, "fast")
	s.Up(t)
}

// Kill sends SIGKILL to the server's first process; its others end when they see that.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	must(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	must(t, err)
	s.up = false
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// Standby makes a copy of the server that follows it, starts it and returns it. Its name in synchronous_standby_names
// is name.
func (s *Server) Standby(t testing.TB, name string) *Server {
	t.Helper()
	c := s.copy(t, name, "-R")
	c.Up(t)
	return c
}

// Backup makes a copy of the server as it is now and does not start it: Up is its restore.
func (s *Server) Backup(t testing.TB) *Server {
	t.Helper()
	return s.copy(t, "backup")
}

func (s *Server) copy(t testing.TB, name string, args ...string) *Server {
	t.Helper()
	c := place(t, s.settings)
	Own(t, c.dir)
	c.run(t, "pg_basebackup", append(args, "-D", c.data, "-X", "stream", "-c", "fast", "--no-sync",
		"-d", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", s.port, name))...)
	return c
}

// Promote makes a standby a server of its own.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.run(t, "pg_ctl", "-D", s.data, "-w", "promote")
}

// run runs a program of the server and fails the test if that fails.
func (s *Server) run(t testing.TB, program string, args ...string) {
	t.Helper()
	if err := s.try(t, program, args...); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) try(t testing.TB, program string, args ...string) error {
	t.Helper()
	cmd := AsPostgres(t, exec.CommandContext(context.Background(), Program(t, program), args...), s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// Program finds a program of a PostgreSQL server, or skips the test, or fails it with CI=true.
func Program(t testing.TB, name string) string {
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

// AsPostgres makes cmd run as somebody whom the server accepts, since it refuses root, and gives dir to that user.
func AsPostgres(t testing.TB, cmd *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	cmd.Dir = "/"
	if uid, gid, root := Own(t, dir); root {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	return cmd
}

// Own gives dir to the user that the server runs as, if that is another one than this.
func Own(t testing.TB, dir string) (uid, gid uint32, root bool) {
	t.Helper()
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	must(t, err)
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	must(t, err)
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	must(t, err)
	must(t, os.Chown(dir, int(id), int(group)))
	return uint32(id), uint32(group), true
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
