package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Process is everything a command gets from the outside.
type Process struct {
	Args    []string // without the program's name
	Env     []string // NAME=VALUE
	Dir     string   // relative paths count from here; empty: the process's own
	In      io.Reader
	Out     io.Writer // data
	Err     io.Writer // notices and errors
	Version string    // empty: from the build information
	Self    string    // the program that demo starts its services with; empty: this one
	// Signals stops what runs: the first asks, the second insists. nil: SIGINT and SIGTERM of the process.
	Signals <-chan os.Signal
}

// Run executes one command line and returns its exit code. Whatever goes wrong is said on p.Err; Run never panics for bad
// input and never calls os.Exit. It returns when everything it started has stopped.
func Run(p Process) int {
	a := &app{p: p, out: &stream{w: p.Out}, err: &stream{w: p.Err}, signals: p.Signals}
	if a.signals == nil {
		c := make(chan os.Signal, 2)
		signal.Notify(c, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(c)
		a.signals = c
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE) // a reader of stdout that went away is an error of Write, not the end of the process
	defer signal.Stop(pipe)

	root := a.root()
	root.SetArgs(p.Args)
	err := root.ExecuteContext(context.Background())
	if errors.Is(a.out.failed, syscall.EPIPE) {
		return exitPipe
	}
	if a.out.failed != nil {
		err = &failure{exit: exitUsage, code: "write_failed", message: "stdout: " + a.out.failed.Error()}
	}
	return a.report(err)
}

// app is one run of the program.
type app struct {
	p        Process
	out, err *stream
	signals  <-chan os.Signal
	json     bool   // --json was given
	color    string // --color
	flags    sharedFlags
	input    *bufio.Reader // see lines
}

// env returns a variable of the process; empty counts as not set.
func (a *app) env(name string) string {
	v, _ := a.lookupEnv(name)
	return v
}

func (a *app) lookupEnv(name string) (string, bool) {
	for i := len(a.p.Env) - 1; i >= 0; i-- {
		if n, v, ok := strings.Cut(a.p.Env[i], "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

// path resolves a path of the command line.
func (a *app) path(p string) string {
	if p == "" || a.p.Dir == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(a.p.Dir, p)
}

// userDir is a folder of the user's: of data or of configuration. Empty where the environment names none.
func (a *app) userDir(xdg, unixDefault, darwin, windows string) string {
	home := a.env("HOME")
	switch runtime.GOOS {
	case "windows":
		return a.env(windows)
	case "darwin":
		if home != "" {
			return filepath.Join(home, "Library", darwin)
		}
		return ""
	}
	if d := a.env(xdg); filepath.IsAbs(d) {
		return d
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, unixDefault)
}

// twice returns a channel that is closed by the first signal, for work that ends in order, and a context that ends at the second.
func (a *app) twice(c *cobra.Command) (context.Context, <-chan struct{}, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.Context())
	stop := make(chan struct{})
	go func() {
		select {
		case <-a.signals:
			close(stop)
		case <-ctx.Done():
			return
		}
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, stop, cancel
}

// interruptible returns a context that ends at the first signal.
func (a *app) interruptible(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.Context())
	go func() {
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
