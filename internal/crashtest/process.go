package crashtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Process is a running service whose main calls Stage.Serve. Its methods are safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
	points chan Event
	gone   chan struct{} // closed when its output has ended

	mu      sync.Mutex
	in      io.WriteCloser
	last    int
	waiting map[int]chan json.RawMessage
}

// Event is what a service says: that it is At a point, or else the answer to the job ID.
type Event struct {
	ID  int             `json:"id,omitempty"`
	At  string          `json:"at,omitempty"`
	Say json.RawMessage `json:"say,omitempty"`
}

type job struct {
	ID   int             `json:"id"`
	What json.RawMessage `json:"what"`
}

// Start starts path, an executable, with env added to this process's environment. The caller ends it with Kill or Stop.
func Start(path string, env ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(path), points: make(chan Event, 64), gone: make(chan struct{}), waiting: map[int]chan json.RawMessage{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start service: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start service: %w", err)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start service: %w", err)
	}
	go p.listen(out)
	return p, nil
}

// listen hands out what the service says until its output ends.
func (p *Process) listen(out io.Reader) {
	defer close(p.gone)
	for lines := json.NewDecoder(out); ; {
		var e Event
		if lines.Decode(&e) != nil {
			return
		}
		if e.At != "" {
			p.points <- e
			continue
		}
		p.mu.Lock()
		if c := p.waiting[e.ID]; c != nil {
			c <- e.Say
			delete(p.waiting, e.ID)
		}
		p.mu.Unlock()
	}
}

// Post gives the service a job and does not wait for its answer.
func (p *Process) Post(what any) error {
	_, err := p.send(what, nil)
	return err
}

// Ask gives the service a job, waits for its answer and puts it into answer.
func (p *Process) Ask(ctx context.Context, what, answer any) error {
	c := make(chan json.RawMessage, 1)
	if _, err := p.send(what, c); err != nil {
		return err
	}
	select {
	case say := <-c:
		return json.Unmarshal(say, answer)
	case <-p.gone:
		return p.died("answered")
	case <-ctx.Done():
		return fmt.Errorf("ask service: %w", context.Cause(ctx))
	}
}

func (p *Process) send(what any, c chan json.RawMessage) (int, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return 0, fmt.Errorf("ask service: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	if c != nil {
		p.waiting[p.last] = c
	}
	if err := json.NewEncoder(p.in).Encode(job{p.last, text}); err != nil {
		return 0, fmt.Errorf("ask service: %w: %s", err, p.stderr.String())
	}
	return p.last, nil
}

// Await waits until the service is at point. Being at another one first is an error: the plan of the test does not hold.
func (p *Process) Await(ctx context.Context, point string) (Event, error) {
	select {
	case e := <-p.points:
		return at(e, point)
	case <-p.gone:
		select {
		case e := <-p.points: // it was there before it ended
			return at(e, point)
		default:
			return Event{}, p.died("came to " + point)
		}
	case <-ctx.Done():
		return Event{}, fmt.Errorf("the service never came to %q: %w: %s", point, context.Cause(ctx), p.stderr.String())
	}
}

func at(e Event, point string) (Event, error) {
	if e.At != point {
		return e, fmt.Errorf("the service is at %q, not at %q", e.At, point)
	}
	return e, nil
}

func (p *Process) died(before string) error {
	return fmt.Errorf("the service ended before it %s: %s", before, p.stderr.String())
}

// Kill sends SIGKILL and waits until the process is gone. It is an error if anything else ended it.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill service: %w: %s", err, p.stderr.String())
	}
	<-p.gone
	err := p.cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.String() != "signal: killed" {
		return fmt.Errorf("kill service: it ended by itself: %v: %s", err, p.stderr.String())
	}
	return nil
}

// Stop closes the service's input, which ends it, and waits. The error says what went wrong in it.
func (p *Process) Stop() error {
	p.mu.Lock()
	_ = p.in.Close()
	p.mu.Unlock()
	<-p.gone
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stop service: %w: %s", err, p.stderr.String())
	}
	return nil
}

// Signal sends the process a signal other than SIGKILL.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal service: %w: %s", err, p.stderr.String())
	}
	return nil
}

// Ended waits until the process has ended by itself. The error says what went wrong in it, or that ctx ended first.
func (p *Process) Ended(ctx context.Context) error {
	select {
	case <-p.gone:
	case <-ctx.Done():
		return fmt.Errorf("the service does not end: %w: %s", context.Cause(ctx), p.stderr.String())
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("service: %w: %s", err, p.stderr.String())
	}
	return nil
}

// lockedBuffer keeps the first 64 KiB written to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), max(0, 64<<10-b.buf.Len()))])
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
