package crash

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
)

// A service that is stopped, or told to end, while its work waits for the far side.
func TestPausedServices(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		store string
		lane  func(*testing.T) lane
	}{{"sqlite", newSQLiteLane}, {byPGX, newPostgresLane(byPGX)}, {byPQ, newPostgresLane(byPQ)}, {byMySQL, newMySQLLane()}} {
		t.Run(one.store, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, one.store, one.lane)
			t.Run("cases", func(t *testing.T) {
				for _, guard := range []string{opAtomic, opHold, opProbe, opRerun} {
					b.paused(t, guard+" [stores/CT8] stopped past its lease, and woken", guard, b.stopped)
					b.paused(t, guard+" [stores/CT10] SIGTERM: what runs is finished and stored, new work refused", guard, b.terminated)
					b.paused(t, guard+" [stores/CT10] SIGKILL at the end of the grace", guard, b.killedInGrace)
				}
			})
			t.Run("[stores/CT44] one order of events explains every answer", func(t *testing.T) {
				if err := b.story.Check(); err != nil {
					t.Error(err)
				}
			})
			t.Run("[stores/CT46] a run in which nobody was stopped is void", func(t *testing.T) {
				for kind, n := range map[string]int{"stopped": 4, "terminated": 4, "killed": 4, "fenced": 2, "replays": 8, "new work refused": 4} {
					b.tally.Least(kind, n)
				}
				if err := b.tally.Void(); err != nil {
					t.Errorf("%v (%s)", err, &b.tally)
				}
			})
		})
	}
}

// victim is a service whose work has had its effect and waits.
type victim struct {
	*crashtest.Process
	o       order
	release func()
	answers chan answer
}

// paused runs f with a victim of its own, whose order v.o is then as a caller would repeat it.
func (b *bench) paused(t *testing.T, name, guard string, f func(ctx context.Context, t *testing.T, p *place, v *victim)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
		defer end()
		p := <-b.free
		defer func() { b.free <- p }()
		o := order{Guard: guard, Key: name, Pause: true, Stopped: guard != opAtomic && strings.Contains(name, "stopped")}
		arrived, release := b.ledger.Hold(pausing(o.Key))
		defer release()
		c := p.config()
		c.Doomed, c.TxIdle = true, time.Second
		v := &victim{Process: b.start(t, c), o: order{Guard: guard, Key: name}, release: release, answers: make(chan answer, 1)}
		defer func() { _ = v.Kill() }() // an error where it has ended
		go func() {
			a, err := b.ask(ctx, v.Process, o)
			if err != nil {
				a.Err = err.Error()
			}
			v.answers <- a
		}()
		select {
		case <-arrived:
		case a := <-v.answers:
			t.Fatalf("the service answered and never came there: %+v", a)
		case <-ctx.Done():
			t.Fatal("the work never paused")
		}
		f(ctx, t, p, v)
	})
}

// stopped: SIGSTOP until another has the key, or the key is in doubt; then SIGCONT.
func (b *bench) stopped(ctx context.Context, t *testing.T, p *place, v *victim) {
	must(t, v.Signal(syscall.SIGSTOP))
	b.tally.Add("stopped", 1)
	if v.o.Guard == opAtomic && b.store == "sqlite" {
		// The file is the owner's until it wakes: nobody can take the key over, and nobody runs.
		if a, err := b.ask(ctx, p.survivor, v.o); err != nil || a.Verdict == idempo.VerdictRun || a.Verdict == idempo.VerdictReplay {
			t.Errorf("while the owner is stopped: %+v %v", a, err)
		}
		must(t, v.Signal(syscall.SIGCONT))
		v.release()
		b.same(ctx, t, p, v, <-v.answers, idempo.VerdictRun)
		return
	}
	a, _, err := b.retry(ctx, p, v.o)
	must(t, err)
	want := map[string]idempo.Verdict{opAtomic: idempo.VerdictRun, opHold: idempo.VerdictInDoubt, opProbe: idempo.VerdictReplay, opRerun: idempo.VerdictRun}[v.o.Guard]
	if a.Verdict != want {
		t.Fatalf("while the owner is stopped: %+v, want %s", a, want)
	}
	before, err := p.record(ctx, v.o.Key)
	must(t, err)
	must(t, v.Signal(syscall.SIGCONT))
	v.release()
	late := <-v.answers
	if v.o.Guard != opAtomic && !late.Ended {
		t.Errorf("the owner's new calls carry a context that goes on: %+v", late)
	}
	switch v.o.Guard {
	case opAtomic: // its transaction is over; it runs again and finds the winner's record
		if late.Code == "unavailable" && !late.Open { // lib/pq says that the connection was bad: nothing was sent, ask again
			late, err = b.ask(ctx, v.Process, v.o)
			must(t, err)
		}
		b.same(ctx, t, p, v, late, idempo.VerdictReplay)
		if late.Body != a.Body {
			t.Errorf("the owner answers %q, the winner %q", late.Body, a.Body)
		}
		return
	case opHold: // nobody has taken over: the late truth counts
		b.same(ctx, t, p, v, late, idempo.VerdictRun)
		return
	}
	if !late.Lost || late.Fenced != 1 {
		t.Errorf("the late result: %+v, want the lease lost and one write refused", late)
	}
	b.tally.Add("fenced", late.Fenced)
	if after, err := p.record(ctx, v.o.Key); err != nil || after != before {
		t.Errorf("the late result changed the winner's row: %v\n%s\n%s", err, before, after)
	}
	again, _, err := b.retry(ctx, p, v.o)
	if err != nil || again.Verdict != idempo.VerdictReplay || again.Body != a.Body {
		t.Errorf("asked once more: %+v %v", again, err)
	}
	b.tally.Add("replays", 1)
	b.effects(ctx, t, p, v.o)
}

// terminated: SIGTERM, and the work ends within its grace.
func (b *bench) terminated(ctx context.Context, t *testing.T, p *place, v *victim) {
	b.sigterm(ctx, t, v)
	b.tally.Add("terminated", 1)
	v.release()
	a := <-v.answers
	must(t, v.Ended(ctx))
	b.same(ctx, t, p, v, a, idempo.VerdictRun)
}

// killedInGrace: SIGTERM, the work does not end, and whoever sent the signal has waited long enough.
func (b *bench) killedInGrace(ctx context.Context, t *testing.T, p *place, v *victim) {
	b.sigterm(ctx, t, v)
	must(t, v.Kill())
	b.tally.Add("killed", 1)
	a, _, err := b.retry(ctx, p, v.o)
	must(t, err)
	if want := outcomes("CT4", v.o.Guard, "")[0]; a.Verdict != want.verdict {
		t.Errorf("%+v, want %s", a, want.verdict)
	}
	b.effects(ctx, t, p, v.o)
}

// sigterm tells the victim to end, and asks it for work until that is refused.
func (b *bench) sigterm(ctx context.Context, t *testing.T, v *victim) {
	must(t, v.Signal(syscall.SIGTERM))
	for {
		a, err := b.ask(ctx, v.Process, v.o)
		must(t, err)
		if a.Verdict != idempo.VerdictInProgress {
			if a.Code != "unavailable" || a.Open {
				t.Errorf("new work after SIGTERM: %+v, want unavailable, and nothing sent", a)
			}
			b.tally.Add("new work refused", 1)
			return
		}
	}
}

// same wants first to be a definite answer, and the survivor to give it too.
func (b *bench) same(ctx context.Context, t *testing.T, p *place, v *victim, first answer, verdict idempo.Verdict) {
	if first.Err != "" || first.Verdict != verdict {
		t.Errorf("the owner answers %+v, want %s", first, verdict)
	}
	again, _, err := b.retry(ctx, p, v.o)
	if err != nil || again.Verdict != idempo.VerdictReplay || again.Body != first.Body {
		t.Errorf("asked once more: %+v %v, want the replay of %q", again, err, first.Body)
	}
	b.tally.Add("replays", 1)
	b.effects(ctx, t, p, v.o)
}

// effects wants one effect of an order, counted outside.
func (b *bench) effects(ctx context.Context, t *testing.T, p *place, o order) {
	effects := b.ledger.Effects(o.Key)
	if o.Guard == opAtomic {
		var err error
		effects, err = p.rows(ctx, o.Key)
		must(t, err)
	}
	if len(effects) != 1 {
		t.Errorf("%d effects", len(effects))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
