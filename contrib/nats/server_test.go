package idemnats_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// server is a NATS server of the test's own, which may be killed.
type server struct {
	t    *testing.T
	url  string
	port int
	dir  string
	cmd  *exec.Cmd
}

func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("nats-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no nats-server on the PATH")
		}
		t.Skip("no nats-server on the PATH; apt-get install nats-server")
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	s := &server{t: t, port: port, url: fmt.Sprintf("nats://127.0.0.1:%d", port), dir: t.TempDir()}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("nats-server", "-js", "-a", "127.0.0.1", "-p", fmt.Sprint(s.port), "-sd", s.dir) //nolint:noctx // it is killed by kill
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		if nc, err := nats.Connect(s.url); err == nil {
			nc.Close()
			return
		}
		if time.Now().After(limit) {
			s.t.Fatal("the server does not answer")
		}
	}
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// away kills the server, with true, and starts it again over the same folder.
func (s *server) away(away bool) {
	if away {
		s.kill()
		return
	}
	s.start()
}
