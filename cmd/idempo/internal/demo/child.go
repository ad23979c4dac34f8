package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// Child is what a process of the demo is told.
type Child struct {
	Kind   string // payments or library
	Dir    string // of its ledger
	Ledger string // file name
	Listen string
}

// hello is the line that a child prints when it serves.
type hello struct {
	Address string `json:"address"`
}

// RunChild serves until in closes, so that no child outlives its parent. It prints its address as one line of JSON.
func RunChild(c Child, in io.Reader, out io.Writer) error {
	var h http.Handler
	switch c.Kind {
	case "payments":
		h = newPayments(c.Dir+string(os.PathSeparator)+c.Ledger, die)
	case "library":
		lib, store, err := newLibrary(context.Background(), c.Dir, die)
		if err != nil {
			return err
		}
		defer store.Close()
		h = lib
	default:
		return fmt.Errorf("no such service: %q", c.Kind)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = srv.Close()
	}()
	if err := json.NewEncoder(out).Encode(hello{l.Addr().String()}); err != nil {
		return err
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func firstTime(mark string) bool {
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// process is a running child.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
	exited  chan struct{}
}

// launcher starts children: the same program with hidden arguments.
type launcher struct {
	program string
	args    []string // before the child's own
	env     []string
}

func (l launcher) start(c Child) (*process, error) {
	args := append(append([]string{}, l.args...), "demo-service", "--kind", c.Kind, "--dir", c.Dir, "--ledger", c.Ledger, "--listen", c.Listen)
	cmd := exec.Command(l.program, args...)
	cmd.Env = l.env
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the payments service: %w", err)
	}
	p := &process{cmd: cmd, stdin: stdin, exited: make(chan struct{})}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var h hello
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the payments service did not start: %w", err)
	}
	p.address = h.Address
	return p, nil
}

// stop ends the child and waits until it is gone.
func (p *process) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill()
	<-p.exited
}
