package relaying

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/cmd/idempo/internal/config"
	"github.com/idempo/idempo/cmd/idempo/internal/database"
	"github.com/idempo/idempo/cmd/idempo/internal/publish"
	"github.com/idempo/idempo/outbox"
)

// Job is one group, published from one store.
type Job struct {
	Name  string // of the store, masked
	Relay config.Relay
	// Open opens the store; Close of what it returns is called at the end. It is tried again while it fails for a reason that
	// waiting may mend.
	Open    func(ctx context.Context) (*database.Store, error)
	Publish publish.Options
	Log     *slog.Logger
}

// State is how a job stands.
type State struct {
	Store string
	Group string
	State string // of outbox.RelayState; standby and unavailable also while the store cannot be opened
	Err   error
}

// Runner runs jobs beside each other: one that fails neither stops nor slows the others.
type Runner struct {
	tasks []*task
	work  sync.WaitGroup
	stop  context.CancelFunc
}

// task is one job at work.
type task struct {
	Job
	mu    sync.Mutex
	relay *outbox.Relay
	state string
	err   error
}

// Fatal reports whether err is of a kind that waiting does not mend: the store or the settings are wrong.
func Fatal(err error) bool {
	if _, unfit := errors.AsType[*database.Unfit](err); unfit {
		return true
	}
	return errors.Is(err, outbox.ErrForeignDatabase) || errors.Is(err, outbox.ErrEnvironment) || errors.Is(err, outbox.ErrFrom) || errors.Is(err, outbox.ErrGroup) ||
		errors.Is(err, errSettings)
}

// errSettings marks an error of the settings.
var errSettings = errors.New("relay: the settings are wrong")

// Start begins the jobs, until ctx ends or Stop is called.
func Start(ctx context.Context, jobs []Job) *Runner {
	ctx, cancel := context.WithCancel(ctx)
	r := &Runner{stop: cancel}
	for _, j := range jobs {
		t := &task{Job: j, state: outbox.RelayStarting}
		r.tasks = append(r.tasks, t)
		r.work.Go(func() { t.run(ctx) })
	}
	return r
}

// Wait returns when all jobs have ended, with what stopped those that did not end by ctx.
func (r *Runner) Wait() error {
	r.work.Wait()
	r.stop()
	var all []error
	for _, t := range r.tasks {
		all = append(all, t.err)
	}
	return errors.Join(all...)
}

// Stop has every job finish its batch and give its partitions up, and waits for it.
func (r *Runner) Stop() error {
	r.stop()
	return r.Wait()
}

// States tells how the jobs stand. It asks nobody and never waits.
func (r *Runner) States() (all []State) {
	for _, t := range r.tasks {
		all = append(all, t.now())
	}
	return all
}

func (t *task) now() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := State{Store: t.Name, Group: t.Relay.Options.Group, State: t.state, Err: t.err}
	if t.relay != nil {
		if live := t.relay.Status(); live.State != outbox.RelayStopped {
			s.State, s.Err = live.State, live.Err
		}
	}
	return s
}

func (t *task) become(state string, err error) {
	t.mu.Lock()
	was := t.state
	t.state, t.err = state, err
	t.mu.Unlock()
	if was == state || t.Log == nil {
		return
	}
	switch state {
	case outbox.RelayStandby:
		t.Log.Warn("relay: the server is a standby, or read-only; nothing is published until it is promoted", "store", t.Name, "group", t.Relay.Options.Group)
	case outbox.RelayUnavailable:
		t.Log.Warn("relay: the store cannot be opened; trying again", "store", t.Name, "group", t.Relay.Options.Group, "error", err)
	}
}

// run opens and runs until ctx ends, or something is wrong for good.
func (t *task) run(ctx context.Context) {
	for try := 1; ctx.Err() == nil; try++ {
		err := t.turn(ctx, nil)
		switch {
		case ctx.Err() != nil:
			t.become(outbox.RelayStopped, fatalOf(err))
			return
		case Fatal(err):
			t.become(outbox.RelayStopped, err)
			if t.Log != nil {
				t.Log.Error("relay: stopped; nothing is published", "store", t.Name, "group", t.Relay.Options.Group, "error", err)
			}
			return
		case database.ReadOnly(err):
			t.become(outbox.RelayStandby, err)
		default:
			t.become(outbox.RelayUnavailable, err)
		}
		pause(ctx, min(time.Duration(try)*200*time.Millisecond, 5*time.Second))
	}
	t.become(outbox.RelayStopped, nil)
}

func fatalOf(err error) error {
	if Fatal(err) {
		return err
	}
	return nil
}

// Once publishes what is there, and returns what is left.
func Once(ctx context.Context, j Job) (left outbox.Left, err error) {
	t := &task{Job: j}
	err = t.turn(ctx, &left)
	return left, err
}

// turn opens store and destination and runs the relay.
func (t *task) turn(ctx context.Context, once *outbox.Left) error {
	store, err := t.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	dest, err := publish.Open(ctx, t.Relay.To, t.Publish)
	if err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		dest.Close(ctx)
	}()
	o := t.Relay.Options
	o.Logger = t.Log
	r, err := outbox.NewRelay(store.Store, dest.Publisher, o)
	if err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	t.mu.Lock()
	t.relay = r
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.relay = nil
		t.mu.Unlock()
	}()
	if once != nil {
		*once, err = r.Once(ctx)
		return err
	}
	return r.Run(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Keeps reports whether a store keeps an outbox.
func Keeps(s idempo.Store) bool {
	_, ok := s.(outbox.Opener)
	return ok
}
