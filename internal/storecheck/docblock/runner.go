//go:build unix

package docblock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Runner runs the blocks of one page, in order, as a reader would type them. It is used by one goroutine.
type Runner struct {
	Root string   // folder of the repository
	Dir  string   // folder of the page: where blocks run, and files are written
	Env  []string // environment of every block

	ports   *strings.Replacer
	started []process
}

// process is a block in the background; ended tells once it is gone.
type process struct {
	group int
	ended chan error
}

// NewRunner takes a free port for each that the page names.
func NewRunner(root, dir string, env []string, p *Page) (*Runner, error) {
	var pairs []string
	for _, port := range p.Ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		_, free, _ := net.SplitHostPort(l.Addr().String())
		pairs = append(pairs, port, free)
	}
	return &Runner{Root: root, Dir: dir, Env: env, ports: strings.NewReplacer(pairs...)}, nil
}

// Run does what the block says and compares what it prints. ctx bounds it. A block that is only shown, an output and prose
// do nothing.
func (r *Runner) Run(ctx context.Context, b *Block) error {
	switch b.Do {
	case DoFile:
		return os.WriteFile(filepath.Join(r.Dir, b.Arg), []byte(r.ports.Replace(b.Text)), 0o644)
	case DoStart, DoStay:
		return r.start(ctx, b)
	case DoRun, DoRoot:
	default:
		return nil
	}
	cmd := r.shell(ctx, b)
	printed, err := cmd.CombinedOutput()
	exit, isExit := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && !isExit:
		return fmt.Errorf("run: %w", err)
	case isExit && exit.ExitCode() != b.Exit, err == nil && b.Exit != 0:
		return fmt.Errorf("want exit code %d, have %v; it printed:\n%s", b.Exit, err, printed)
	case b.Want != nil && !Matches(r.ports.Replace(b.Want.Text), string(printed)):
		return fmt.Errorf("it printed:\n%s\nthe page shows:\n%s", printed, b.Want.Text)
	}
	return nil
}

func (r *Runner) shell(ctx context.Context, b *Block) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.ports.Replace(b.Text))
	cmd.Dir, cmd.Env = r.Dir, r.Env
	if b.Do == DoRoot || b.Do == DoStay {
		cmd.Dir = r.Root
	}
	return cmd
}

// start runs the block in a process group of its own until Stop, and waits for the text that says that it is ready.
func (r *Runner) start(ctx context.Context, b *Block) error {
	cmd := r.shell(context.WithoutCancel(ctx), b)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w := &watcher{text: []byte(r.ports.Replace(b.Arg)), ready: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-w.ready:
		r.started = append(r.started, process{cmd.Process.Pid, ended})
		return nil
	case err := <-ended:
		return fmt.Errorf("it ended (%v) before it printed %q:\n%s", err, b.Arg, w)
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		return fmt.Errorf("it has not printed %q: %w\n%s", b.Arg, ctx.Err(), w)
	}
}

// Stop ends what was started, the last one first, and waits for it. What does not end when asked is killed.
func (r *Runner) Stop() {
	for ; len(r.started) > 0; r.started = r.started[:len(r.started)-1] {
		last := r.started[len(r.started)-1]
		_ = syscall.Kill(-last.group, syscall.SIGTERM)
		select {
		case <-last.ended:
		case <-time.After(20 * time.Second):
			_ = syscall.Kill(-last.group, syscall.SIGKILL)
			<-last.ended
		}
	}
}

// watcher keeps what a command prints and closes ready once it holds the text.
type watcher struct {
	mu    sync.Mutex
	all   bytes.Buffer
	text  []byte
	ready chan struct{}
	seen  bool
}

var _ io.Writer = (*watcher)(nil)

// Write keeps p.
func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if !w.seen && bytes.Contains(w.all.Bytes(), w.text) {
		w.seen = true
		close(w.ready)
	}
	return len(p), nil
}

// String is all that was printed.
func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}
