package storecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/crashtest"
	"github.com/idempo/idempo/mysql"
)

func (m *my) done(t testing.TB, what string) int {
	return m.count(t, "select count(*) from effects where what = ?", what)
}

// What a store on MySQL says at the decisive moments.
func insertsRecord(sql string) bool { return says(sql, "insert into ") }
func updatesRecord(sql string) bool { return says(sql, "update ") }

// says reports whether sql is a statement of that kind on table records. Settings for it may come first.
func says(sql, verb string) bool {
	sql, _, _ = strings.Cut(sql, " set ")
	_, rest, found := strings.Cut(strings.NewReplacer("\n", " ", "(", " ").Replace(" "+sql+" "), " "+verb)
	table, _, _ := strings.Cut(rest, " ")
	return found && strings.HasSuffix(table, "`idempo_records`")
}

// TestMySQLWire has every fault meet every decisive statement. One fault is overcome by the call itself, or it says that nothing
// happened and the next call does it.
func TestMySQLWire(t *testing.T) {
	t.Parallel()
	var tally crashtest.Tally
	all := cuts(insertsRecord, insertsRecord, updatesRecord)
	ways := map[string]func(*driver.Config){"prepared": nil, "in the text": func(c *driver.Config) { c.InterpolateParams = true }}
	t.Run("cuts", func(t *testing.T) {
		for name, change := range ways {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m, x := throughMySQLWire(t, mysql.Options{}, change)
				e := myEngine(t, m.Store, idempo.Config{AcquireTimeout: 20 * time.Second, CompleteBudget: 20 * time.Second})
				for _, c := range all {
					t.Run(fmt.Sprintf("[stores/CT43] %s: %s %s", c.op, c.place, c.name), func(t *testing.T) { c.run(t, m, x, e, &tally) })
				}
			})
		}
	})
	t.Run("[stores/CT46] a run in which the faults did not take hold is void", func(t *testing.T) {
		for _, what := range []string{"faults", "definite successes", "replays"} {
			tally.Least(what, len(ways)*len(all))
		}
		if err := tally.Void(); err != nil {
			t.Errorf("%v (%s)", err, &tally)
		}
	})
}

// TestMySQLBlackHole cuts a host off without a reset.
func TestMySQLBlackHole(t *testing.T) {
	t.Parallel()
	both := func(t *testing.T) (far, near *my, x *crashtest.Wire) {
		far, x = throughMySQLWire(t, mysql.Options{TxIdle: time.Second}, nil)
		return far, openStore(t, far.c, mysql.Options{TxIdle: time.Second}, nil), x
	}
	t.Run("[stores/CT16] a lease is running: in progress until it is over, and its owner knows before anyone gets the key", func(t *testing.T) {
		t.Parallel()
		far, near, x := both(t)
		engine := func(m *my) *idempo.Engine {
			e, err := idempo.New(m.Store, idempo.Config{
				DigestKeys:     []idempo.Secret{{ID: "k1", Value: []byte("0123456789abcdef0123456789abcdef")}},
				Operations:     []idempo.Operation{{Name: "leased", Guard: idempo.GuardLeased, Lease: time.Second, OnCrash: idempo.OnCrashRerun, DownstreamHonoursKey: true}},
				CompleteBudget: 500 * time.Millisecond,
			})
			must(t, err)
			return e
		}
		cutOff, here := engine(far), engine(near)
		b, err := cutOff.Begin(t.Context(), request("leased", "lease"))
		must(t, err)
		x.Arm(crashtest.Trap{Match: updatesRecord, Fault: crashtest.BlackHole})
		<-x.Sprung() // the first renewal of the owner
		if asked, err := here.Begin(t.Context(), request("leased", "lease")); err != nil || asked.Verdict != idempo.VerdictInProgress {
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
	t.Run("[stores/CT16] a transaction is open: the server ends it, and the key is free", func(t *testing.T) {
		t.Parallel()
		far, near, x := both(t)
		cutOff := myEngine(t, far.Store, idempo.Config{AcquireTimeout: 300 * time.Millisecond, CompleteBudget: 300 * time.Millisecond})
		here := myEngine(t, near.Store, idempo.Config{})
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
		if asked, err := here.Do(t.Context(), request("atomic", "tx"), nothing); !errors.Is(err, idempo.ErrInProgress) {
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
		must(t, x.Close())
		if err := <-over; !errors.Is(err, idempo.ErrUnavailable) || !idempo.MayHaveHappened(err) {
			t.Errorf("who was cut off: %v", err)
		}
		far.effects(t, "cut off", 0)
	})
}
