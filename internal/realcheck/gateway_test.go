package realcheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gateway is `idempo serve`, the binary, on a folder of its own. It can be killed and started again.
type gateway struct {
	binary, dir string

	mu      sync.Mutex
	cmd     *exec.Cmd
	log     *bytes.Buffer // of all lives
	done    chan struct{} // closed when the log of this life has ended
	address string        // "": nobody serves
	up      chan struct{} // closed when address is set
}

const gatewayConfig = `version: 1
store:
  sqlite: FOLDER/idempo.db
lease:
  duration: 3s
listen:
  gateway: 127.0.0.1:0
  admin: 127.0.0.1:0
gateway:
  tenant: {global: true}
  upstreams:
    pocketbase:
      urls: ["http://%s"]
      breaker: false
  routes:
    - match: "POST %s"
      upstream: pocketbase
      operation: create-order
`

// buildGateway builds the command as a user would.
func buildGateway(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "idempo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/idempo")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// startGateway runs it with a config, where FOLDER stands for its own folder.
func startGateway(t *testing.T, config string) *gateway {
	t.Helper()
	g := &gateway{binary: buildGateway(t), dir: t.TempDir(), log: &bytes.Buffer{}, up: make(chan struct{})}
	if err := os.WriteFile(filepath.Join(g.dir, "idempo.yaml"), []byte(strings.ReplaceAll(config, "FOLDER", g.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(g.log)
		}
	})
	return g
}

// start starts it and waits until it serves.
func (g *gateway) start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cmd = exec.Command(g.binary, "serve", "--config", "idempo.yaml", "--data-dir", g.dir)
	g.cmd.Dir = g.dir
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := g.cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(stderr)
	for g.address == "" {
		line, err := lines.ReadBytes('\n')
		g.log.Write(line)
		if err != nil {
			return fmt.Errorf("idempo serve: %w\n%s", err, g.log)
		}
		var entry struct{ Msg, Gateway string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "serving" {
			g.address = entry.Gateway
		}
	}
	g.done = make(chan struct{})
	go func() {
		defer close(g.done)
		_, _ = io.Copy(g.log, lines) // nobody else reads it before done
	}()
	close(g.up)
	return nil
}

// kill sends SIGKILL.
func (g *gateway) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.address, g.up = "", make(chan struct{})
	if err := g.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill gateway: %w\n%s", err, g.log)
	}
	<-g.done
	_ = g.cmd.Wait()
	return nil
}

// serving returns its address, and waits for it while there is none.
func (g *gateway) serving(ctx context.Context) (string, error) {
	for {
		g.mu.Lock()
		address, up := g.address, g.up
		g.mu.Unlock()
		if address != "" {
			return address, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
