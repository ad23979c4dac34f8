package crashtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/idempo/idempo/internal/crashtest"
)

// childEnv makes the test binary a service: halt and pass, separated by a comma.
const childEnv = "CRASHTEST_SERVICE"

func TestMain(m *testing.M) {
	points, child := os.LookupEnv(childEnv)
	if !child {
		os.Exit(m.Run())
	}
	halt, pass, _ := strings.Cut(points, ",")
	stage := crashtest.NewStage(halt, pass, os.Stdout)
	stage.Serve(os.Stdin, func(what json.RawMessage) any {
		var n int
		if err := json.Unmarshal(what, &n); err != nil || n < 0 {
			fmt.Fprintln(os.Stderr, "no such work")
			os.Exit(3)
		}
		stage.At("before", n)
		stage.At("after", n+1)
		return n * n
	})
}

func start(t *testing.T, points string) *crashtest.Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := crashtest.Start(exe, childEnv+"="+points)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("jobs are answered until it is stopped", func(t *testing.T) {
		t.Parallel()
		p := start(t, "")
		for n := range 3 {
			var got int
			if err := p.Ask(t.Context(), n, &got); err != nil || got != n*n {
				t.Error(got, err)
			}
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if err := p.Ask(t.Context(), 1, new(int)); err == nil {
			t.Error("a process that is gone has answered")
		}
	})
	t.Run("it halts at its point and dies there", func(t *testing.T) {
		t.Parallel()
		p := start(t, "after,before")
		if err := p.Post(7); err != nil {
			t.Fatal(err)
		}
		if e, err := p.Await(t.Context(), "before"); err != nil || string(e.Say) != "7" {
			t.Fatal(e, err)
		}
		if e, err := p.Await(t.Context(), "after"); err != nil || string(e.Say) != "8" {
			t.Fatal(e, err)
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a halted service answers nothing", func(t *testing.T) {
		t.Parallel()
		p := start(t, "before")
		ctx, end := context.WithCancelCause(t.Context())
		tired := errors.New("tired")
		answer := make(chan error, 1)
		go func() { answer <- p.Ask(ctx, 1, new(int)) }()
		if _, err := p.Await(t.Context(), "before"); err != nil {
			t.Fatal(err)
		}
		end(tired)
		if err := <-answer; !errors.Is(err, tired) {
			t.Error(err)
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Run("another point than the awaited one is an error", func(t *testing.T) {
		t.Parallel()
		p := start(t, "before")
		if err := p.Post(1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Await(t.Context(), "after"); err == nil {
			t.Error("no error")
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a service that ended by itself was not killed", func(t *testing.T) {
		t.Parallel()
		p := start(t, "before")
		if err := p.Post(-1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Await(t.Context(), "before"); err == nil || !strings.Contains(err.Error(), "no such work") {
			t.Error(err)
		}
		if err := p.Kill(); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a signal, and an end of its own", func(t *testing.T) {
		t.Parallel()
		p := start(t, "")
		if err := p.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := p.Ended(t.Context()); err == nil || !strings.Contains(err.Error(), "interrupt") {
			t.Error(err)
		}
		if err := p.Signal(os.Interrupt); err == nil {
			t.Error("a process that is gone took a signal")
		}
		q := start(t, "")
		ctx, end := context.WithCancel(t.Context())
		end()
		if err := q.Ended(ctx); err == nil {
			t.Error("it has not ended")
		}
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("stopping tells how it ended", func(t *testing.T) {
		t.Parallel()
		p := start(t, "")
		if err := p.Ask(t.Context(), -1, new(int)); err == nil {
			t.Error("no error")
		}
		if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Error(err)
		}
	})
}
