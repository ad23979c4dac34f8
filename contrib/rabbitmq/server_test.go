package idemrabbitmq_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// server is a RabbitMQ node of the test's own, which may be killed.
type server struct {
	t    *testing.T
	uri  string
	env  []string
	node string
	dir  string
}

func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("rabbitmq-server"); err != nil || os.Geteuid() != 0 {
		text := "no rabbitmq-server on the PATH, or not root; apt-get install rabbitmq-server"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	dir, err := os.MkdirTemp("", "idempo-rabbitmq") //nolint:usetesting // its folders belong to the service's user
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // the service's user writes there
		t.Fatal(err)
	}
	s := &server{t: t, node: "idempo-" + strings.ToLower(rand.Text()[:8]) + "@localhost", dir: dir}
	port := freePort(t)
	s.uri = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port)
	s.env = append(os.Environ(), "RABBITMQ_NODENAME="+s.node, fmt.Sprint("RABBITMQ_NODE_PORT=", port), fmt.Sprint("RABBITMQ_DIST_PORT=", freePort(t)),
		"RABBITMQ_MNESIA_BASE="+dir+"/data", "RABBITMQ_LOG_BASE="+dir+"/log", "RABBITMQ_PID_FILE="+dir+"/pid",
		"RABBITMQ_ENABLED_PLUGINS_FILE="+dir+"/none", "RABBITMQ_CONFIG_FILE="+dir+"/none")
	t.Cleanup(func() { s.kill(); _ = os.RemoveAll(dir) })
	s.start()
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) run(name string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func (s *server) ctl(args ...string) {
	s.t.Helper()
	s.run("rabbitmqctl", append([]string{"-n", s.node}, args...)...)
}

func (s *server) start() {
	s.t.Helper()
	s.run("rabbitmq-server", "-detached")
	for limit := time.Now().Add(2 * time.Minute); ; {
		if c, err := amqp.Dial(s.uri); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(limit) {
			s.t.Fatal("the node does not answer")
		}
		<-time.After(20 * time.Millisecond) // it takes seconds; do not take them from it
	}
}

// kill ends the node at once, by its pid file.
func (s *server) kill() {
	text, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		return
	}
	pid := 0
	if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 1 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for syscall.Kill(pid, 0) == nil {
		<-time.After(time.Millisecond)
	}
	_ = os.Remove(filepath.Join(s.dir, "pid"))
}

// away kills the node, with true, and starts it again over the same folder.
func (s *server) away(away bool) {
	if away {
		s.kill()
		return
	}
	s.start()
}
