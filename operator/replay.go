package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
	"github.com/idempo/idempo/outbox"
)

// ReplayParams publish events once more.
type ReplayParams struct {
	By     Principal
	Find   FindEvents       // only what is published counts; Find.After goes on where another ended
	To     outbox.Publisher // whose destination may be another one
	Reason string           // required
	Limit  int              // of events; 0: 1,000
	Rate   int              // events a second at most; 0: 5,000
	DryRun bool
	// OpenFunc opens the payload of an encrypted event; nil: such events end the replay.
	OpenFunc func(outbox.Row) ([]byte, error)
	// ProgressFunc is told after every batch. It must not block.
	ProgressFunc func(Handled[outbox.Aside])
	// Stop, once closed, ends it after the batch that runs. The end of the context ends it at once.
	Stop <-chan struct{}
}

// replayTries is how often an event is sent whose destination does not answer.
const replayTries = 8

// Replay publishes events that a group has published before, once more: the same ids and order within each key, a fresh id for
// the broker, the header idempo-replay for consumers. No cursor moves. One that the destination refuses ends it with
// Handled.Failed 1; Handled.Next goes on behind what was published. An event is sent when the one before it of its key is done.
func (s *Service) Replay(ctx context.Context, p ReplayParams) (Handled[outbox.Aside], error) {
	e := Entry{Actor: p.By.Actor, Role: p.By.Role, Channel: p.By.Channel, Action: ActionReplay, Reason: strings.TrimSpace(p.Reason),
		Key: idempo.Key{Operation: "outbox:" + p.Find.Group}, Outcome: OutcomeDone}
	if err := s.admitted(ctx, p.By, e, p.DryRun, "event"); err != nil {
		return Handled[outbox.Aside]{}, err
	}
	if p.Find.State != "" && p.Find.State != outbox.StatePublished {
		return Handled[outbox.Aside]{}, invalid(ActionReplay, "only what is published can be published once more; retry the others")
	}
	if !p.DryRun {
		if err := s.record(ctx, e); err != nil {
			return Handled[outbox.Aside]{}, err
		}
	}
	p.Find.State, p.Find.Limit = outbox.StatePublished, 500
	r := &replay{p: p, word: rand.Text()[:12], after: p.Find.After}
	w := walk[outbox.Aside]{dry: p.DryRun, limit: orDefault(p.Limit, 1000), rate: orDefault(p.Rate, 5000), stop: p.Stop, cursor: eventCursor, do: r.flush,
		take: func(x outbox.Aside) (bool, error) {
			r.got.Looked++
			if p.DryRun {
				if r.got.OK++; len(r.got.Sample) < maxSample {
					r.got.Sample = append(r.got.Sample, x)
				}
				return true, nil
			}
			r.batch = append(r.batch, x)
			return true, nil
		},
		page: func(ctx context.Context, after string) ([]outbox.Aside, string, error) {
			p.Find.After = after
			page, err := s.Events(ctx, ListEventsParams{By: p.By, Find: p.Find, Payload: !p.DryRun})
			return page.Events, page.Next, err
		}}
	next, stopped, err := w.run(ctx, p.Find.After)
	r.got.Next, r.got.Stopped = next, stopped
	if err != nil {
		r.got.Next = r.after
	}
	if errors.Is(err, errReplayEnded) {
		err = nil
	}
	return r.got, err
}

// errReplayEnded says that an event was refused, which Handled tells.
var errReplayEnded = errors.New("operator: the replay has ended")

// replay is one Replay at work.
type replay struct {
	p     ReplayParams
	word  string // of this order
	got   Handled[outbox.Aside]
	batch []outbox.Aside
	after string // cursor behind what was published, with all before it
}

// flush publishes the batch: in waves in which each key comes once.
func (r *replay) flush(ctx context.Context) error {
	rest := r.batch
	r.batch = nil
	for len(rest) > 0 {
		n, seen := 0, map[[2]string]bool{}
		for ; n < len(rest); n++ {
			k := [2]string{rest[n].Tenant, rest[n].Key}
			if k[1] != "" && seen[k] {
				break
			}
			seen[k] = true
		}
		if err := r.wave(ctx, rest[:n]); err != nil {
			return err
		}
		r.after = eventCursor(rest[n-1])
		rest = rest[n:]
	}
	if r.p.ProgressFunc != nil {
		r.p.ProgressFunc(r.got)
	}
	return nil
}

// wave publishes events at once, and those again that were not answered.
func (r *replay) wave(ctx context.Context, all []outbox.Aside) error {
	todo := make([]outbox.Delivery, 0, len(all))
	for _, e := range all {
		if e.Sealed != "" {
			if r.p.OpenFunc == nil {
				return r.refuse(e, "it is encrypted, and its key is not at hand")
			}
			clear, err := r.p.OpenFunc(e.Row)
			if err != nil {
				return r.refuse(e, "it is encrypted, and cannot be opened")
			}
			e.Payload = clear
		}
		todo = append(todo, outbox.Delivery{Event: e.Event, Trace: e.Trace, Seq: e.Seq, BrokerID: e.ID + "." + r.word, Replay: r.word})
	}
	for try := 1; ; try++ {
		errs, err := publish(ctx, r.p.To, todo)
		if err != nil {
			return err
		}
		var again []outbox.Delivery
		for i, err := range errs {
			switch class := outbox.ClassOf(err); {
			case err == nil || errors.Is(err, outbox.ErrDuplicate):
				r.got.OK++
			case try == replayTries, class == outbox.ClassRefused, class == outbox.ClassNoRoute:
				return r.refuse(all[indexOf(all, todo[i].ID, todo[i].Seq)], fmt.Sprintf("the destination did not take it: %v", err))
			default:
				again = append(again, todo[i])
			}
		}
		if todo = again; len(todo) == 0 {
			return nil
		}
		timer := time.NewTimer(backoff.Full(try, 100*time.Millisecond, 10*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func indexOf(all []outbox.Aside, id string, seq int64) int {
	for i, e := range all {
		if e.ID == id && e.Seq == seq {
			return i
		}
	}
	return 0
}

// refuse ends the replay at e.
func (r *replay) refuse(e outbox.Aside, why string) error {
	r.got.Failed++
	r.got.Failures = append(r.got.Failures, Refused[outbox.Aside]{e, &Error{Action: ActionReplay, Of: "event", Code: CodeWrongState, State: idempo.State(e.State), Hint: why}})
	return errReplayEnded
}

// publish hands events over and waits until each is done, or ctx ends.
func publish(ctx context.Context, to outbox.Publisher, events []outbox.Delivery) ([]error, error) {
	var mu sync.Mutex
	errs, told, left := make([]error, len(events)), make([]bool, len(events)), len(events)
	over := make(chan struct{})
	to.Publish(ctx, outbox.PublishParams{Events: events, Done: func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if i < 0 || i >= len(events) || told[i] {
			return
		}
		errs[i], told[i] = err, true
		if left--; left == 0 {
			close(over)
		}
	}})
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-over:
		return errs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C: // who is not done is not answered
	}
	mu.Lock()
	defer mu.Unlock()
	out := make([]error, len(events))
	for i := range events {
		if out[i] = errs[i]; !told[i] {
			out[i] = outbox.Unanswered(errors.New("no answer in 30s"))
		}
	}
	return out, nil
}
