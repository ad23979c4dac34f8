package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/internal/storecheck/pgserver"
	"github.com/idempo/idempo/postgres"
)

// A cut is one fault of the wire at one statement of a call.
type cut struct {
	op    string
	place string
	match func(sql string) bool
	name  string
	fault crashtest.Fault
}

// cuts has every fault at every decisive statement: an atomic claim, a leased one, its result; and COMMIT.
func cuts(atomic, leased, result func(sql string) bool) (all []cut) {
	for _, at := range []struct {
		op, place string
		match     func(string) bool
	}{
		{"atomic", "the claim", atomic}, {"atomic", "COMMIT", crashtest.IsCommit},
		{"leased", "the claim", leased}, {"leased", "the result", result},
	} {
		for name, fault := range map[string]crashtest.Fault{"lost": crashtest.LoseRequest, "answer lost": crashtest.KeepAnswer,
			"cut inside": crashtest.CutInside, "delayed": crashtest.Delay, "raced": crashtest.Race} {
			all = append(all, cut{at.op, at.place, at.match, name, fault})
		}
	}
	return all
}

// TestPostgresWire has every fault meet every decisive statement, in every protocol. One fault is overcome by the call
// itself, or it says that nothing happened and the next call does it.
func TestPostgresWire(t *testing.T) {
	t.Parallel()
	var tally crashtest.Tally
	all := cuts(pgserver.IsLock, pgserver.IsClaim, pgserver.IsResult)
	t.Run("cuts", func(t *testing.T) {
		throughWire(t, func(t *testing.T, p *pg, x *crashtest.Wire) {
			e := pgEngineWith(t, p, idempo.Config{AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second})
			for _, c := range all {
				t.Run(fmt.Sprintf("[stores/CT43] %s: %s %s", c.op, c.place, c.name), func(t *testing.T) { c.run(t, p, x, e, &tally) })
			}
		})
	})
	t.Run("[stores/CT46] a run in which the faults did not take hold is void", func(t *testing.T) {
		ways := len(protocols())
		tally.Least("faults", ways*len(all))
		tally.Least("definite successes", ways*len(all))
		tally.Least("replays", ways*len(all))
		if err := tally.Void(); err != nil {
			t.Errorf("%v (%s)", err, &tally)
		}
	})
}

// wired is a store behind a wire, with the effects of its atomic calls.
type wired interface {
	effect(ctx context.Context, what string) error
	done(t testing.TB, what string) int
}

func (p *pg) done(t testing.TB, what string) int {
	return p.count(t, `select count(*) from SCHEMA.effects where what = $1`, what)
}

func (c cut) run(t *testing.T, p wired, x *crashtest.Wire, e *idempo.Engine, tally *crashtest.Tally) {
	id := c.place + " " + c.name
	var outside atomic.Int64
	work := func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
		n := outside.Add(1)
		if c.op == "atomic" {
			if err := p.effect(ctx, c.op+id); err != nil {
				return idempo.Result{}, err
			}
		}
		return idempo.Result{Status: 200, Body: fmt.Appendf(nil, "run %d", n)}, nil
	}
	x.Arm(crashtest.Trap{Match: c.match, Fault: c.fault, Cut: true})
	var wg sync.WaitGroup
	if c.fault == crashtest.Delay {
		wg.Go(func() {
			select {
			case <-x.Sprung():
				x.Release()
			case <-t.Context().Done():
			}
		})
	}
	r := request(c.op, id)
	b, err := e.Do(t.Context(), r, work)
	for r.Wait = time.Minute; err != nil; b, err = e.Do(t.Context(), r, work) {
		switch {
		case t.Context().Err() != nil:
			t.Fatal(err)
		case errors.Is(err, idempo.ErrInProgress): // the server has not seen yet that the claim's connection is gone; a driver may have sent it twice
		case !errors.Is(err, idempo.ErrUnavailable) || idempo.MayHaveHappened(err):
			t.Fatalf("%v: neither done nor known not to be", err)
		}
	}
	select {
	case <-x.Sprung():
		tally.Add("faults", 1)
	default:
		t.Fatal("void run: the fault did not take hold")
	}
	wg.Wait()
	if b.Verdict != idempo.VerdictRun {
		t.Fatalf("%q", b.Verdict)
	}
	tally.Add("definite successes", 1)
	effects := int(outside.Load())
	if c.op == "atomic" {
		effects = p.done(t, c.op+id)
	}
	if effects != 1 {
		t.Errorf("%d effects", effects)
	}
	again, err := e.Do(t.Context(), request(c.op, id), work)
	if err != nil || again.Verdict != idempo.VerdictReplay || string(again.Record.Result.Body) != string(b.Record.Result.Body) {
		t.Errorf("asked once more: %q %v, %q after %q", again.Verdict, err, again.Record.Result.Body, b.Record.Result.Body)
	}
	tally.Add("replays", 1)
}

// TestPostgresBlackHole cuts a host off without a reset: nothing it sends arrives and nothing reaches it.
func TestPostgresBlackHole(t *testing.T) {
	t.Parallel()
	dsn := postgresDSN(t)
	for name, open := range protocols() {
		if strings.Contains(name, " ") {
			continue // one for each driver: what is cut off is the connection
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := migrated(t, dsn, postgres.Options{TxIdle: time.Second})
			x, behind := newWire(t, dsn)
			far, near := open(t, behind, o), open(t, dsn, o)
			engine := func(p *pg) *idempo.Engine {
				e, err := idempo.New(p.Store, idempo.Config{
					DigestKeys: []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
					Operations: []idempo.Operation{
						{Name: "atomic", Guard: idempo.GuardAtomic},
						{Name: "leased", Guard: idempo.GuardLeased, Lease: time.Second, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true},
					},
					CompleteBudget: 500 * time.Millisecond,
				})
				must(t, err)
				return e
			}
			cutOff, here := engine(far), engine(near)
			t.Run("[stores/CT16] a lease is running: in progress until it is over, and its owner knows before anyone gets the key", func(t *testing.T) {
				b, err := cutOff.Begin(t.Context(), request("leased", "lease"))
				must(t, err)
				x.Arm(crashtest.Trap{Match: pgserver.IsRenewal, Fault: crashtest.BlackHole})
				<-x.Sprung() // the first renewal of the owner
				asked, err := here.Begin(t.Context(), request("leased", "lease"))
				if err != nil || asked.Verdict != idempo.VerdictInProgress {
					t.Errorf("%q %v, want in progress", asked.Verdict, err)
				}
				r := request("leased", "lease")
				r.Wait = time.Minute
				next, err := here.Begin(t.Context(), r)
				must(t, err)
				if next.Verdict != idempo.VerdictRun || next.Record.Attempt != 2 {
					t.Fatalf("%q attempt %d", next.Verdict, next.Record.Attempt)
				}
				if !errors.Is(context.Cause(b.Claim.Context()), idempo.ErrLeaseLost) {
					t.Errorf("another has the key, and the one that is cut off goes on: %v", context.Cause(b.Claim.Context()))
				}
				must(t, next.Claim.Complete(t.Context(), idempo.Result{Status: 200}))
				must(t, x.Close()) // who waits for an answer without end gets none
			})
		})
		t.Run(name+" in a transaction", func(t *testing.T) {
			t.Parallel()
			o := migrated(t, dsn, postgres.Options{TxIdle: time.Second})
			x, behind := newWire(t, dsn)
			far, near := open(t, behind, o), open(t, dsn, o)
			cutOff := pgEngineWith(t, far, idempo.Config{AcquireTimeout: 300 * time.Millisecond, CompleteBudget: 300 * time.Millisecond})
			here := pgEngine(t, near)
			t.Run("[stores/CT16] a transaction is open: the server ends it, and the key is free", func(t *testing.T) {
				armed, over := make(chan struct{}), make(chan error, 1)
				go func() {
					_, err := cutOff.Do(t.Context(), request("atomic", "tx"), func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
						err := far.effect(ctx, "cut off")
						x.Arm(crashtest.Trap{Match: crashtest.IsCommit, Fault: crashtest.BlackHole})
						close(armed)
						return idempo.Result{}, err
					})
					over <- err
				}()
				<-armed
				<-x.Sprung()
				asked, err := here.Do(t.Context(), request("atomic", "tx"), nothing)
				if !errors.Is(err, idempo.ErrInProgress) {
					t.Errorf("%q %v, want in progress", asked.Verdict, err)
				}
				r := request("atomic", "tx")
				r.Wait = time.Minute
				b, err := here.Do(t.Context(), r, func(ctx context.Context, _ *idempo.Claim) (idempo.Result, error) {
					return idempo.Result{Status: 201}, near.effect(ctx, "next")
				})
				if err != nil || b.Verdict != idempo.VerdictRun {
					t.Errorf("%q %v", b.Verdict, err)
				}
				must(t, x.Close()) // who waits for an answer without end gets none
				if err := <-over; !errors.Is(err, idempo.ErrUnavailable) || !idempo.MayHaveHappened(err) {
					t.Errorf("who was cut off: %v", err)
				}
				if n := near.count(t, `select count(*) from SCHEMA.effects where what = 'cut off'`); n != 0 {
					t.Errorf("%d effects of who was cut off", n)
				}
			})
		})
	}
}
