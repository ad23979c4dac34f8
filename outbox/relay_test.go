package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idempo/idempo/idempotest"
	"github.com/idempo/idempo/outbox"
)

func TestNeverWoken(t *testing.T) {
	t.Parallel()
	t.Run("[messages/O16] Wake is never called: published within MaxPoll", func(t *testing.T) {
		bubble(t, func(s *shop) {
			var slowest time.Duration
			s.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
				slowest = max(slowest, time.Since(d.Time))
				return nil
			}
			_, stop := s.relay(s.store, s.pub, outbox.RelayOptions{})
			for i := range 200 {
				time.Sleep(time.Duration(i*37%1000) * time.Millisecond)
				s.sell(1, 1)
			}
			s.wait(200, time.Second)
			if slowest > 250*time.Millisecond || slowest == 0 {
				t.Errorf("the slowest took %v", slowest)
			}
			stop()
		})
	})
}

func TestIdle(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL12] idle: at most five calls a second, jittered, each with a time limit; a full page is followed at once; a call that hangs is seen", func(t *testing.T) {
		bubble(t, func(s *shop) {
			var calls, without, blocked atomic.Int64
			var times []time.Time
			hang := make(chan struct{})
			g := gate{s.store, func(ctx context.Context, op string) error {
				calls.Add(1)
				times = append(times, time.Now())
				if at, ok := ctx.Deadline(); !ok || time.Until(at) > 10*time.Second {
					without.Add(1)
				}
				if op == "read" && blocked.Load() == 1 {
					<-hang // and does not even honour its context
				}
				return nil
			}}
			r, stop := s.relay(g, s.pub, outbox.RelayOptions{})
			time.Sleep(10 * time.Second)
			before := calls.Load()
			const minutes = 10
			time.Sleep(minutes * time.Minute)
			if n := calls.Load() - before; n > minutes*60*5 || n < minutes*60*3 {
				t.Errorf("%d calls in %d idle minutes", n, minutes)
			}
			gaps := map[time.Duration]bool{}
			for i := len(times) - 100; i < len(times); i++ {
				gaps[times[i].Sub(times[i-1])] = true
			}
			if len(gaps) < 50 {
				t.Errorf("%d different pauses of 100: not jittered", len(gaps))
			}
			s.sell(5000, 50)
			at := time.Now()
			s.wait(5000, time.Second)
			if d := time.Since(at); d > 250*time.Millisecond {
				t.Errorf("five pages took %v", d)
			}
			if n := without.Load(); n > 0 {
				t.Errorf("%d calls without a time limit", n)
			}
			if st := r.Status(); !st.Ready() {
				t.Errorf("before it hangs: %+v", st)
			}
			blocked.Store(1)
			time.Sleep(time.Minute)
			if st := r.Status(); st.State != outbox.RelayStalled || st.Ready() {
				t.Errorf("a call that hangs: %+v", st)
			}
			blocked.Store(0)
			close(hang)
			time.Sleep(20 * time.Second)
			if st := r.Status(); !st.Ready() {
				t.Errorf("after it hung: %+v", st)
			}
			stop()
		})
	})
}

func TestAway(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL5] a destination that is away for ten minutes, a topic without route for an hour: nothing is dead, then all comes, in order", func(t *testing.T) {
		for _, c := range []struct {
			name string
			err  error
			away time.Duration
			most int // tries
		}{
			{"unavailable", outbox.Unavailable(errors.New("no link")), 10 * time.Minute, 1500},
			{"unanswered", outbox.Unanswered(errors.New("503")), 10 * time.Minute, 1500},
			{"no route", outbox.NoRoute(errors.New("nobody listens")), time.Hour, 10_000},
		} {
			bubble(t, func(s *shop) {
				var log bytes.Buffer
				back := time.Now().Add(c.away)
				s.pub.Answer = func(context.Context, outbox.Delivery) error {
					if time.Now().Before(back) {
						return c.err
					}
					return nil
				}
				r, stop := s.relay(s.store, s.pub, outbox.RelayOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				for range 100 {
					s.sell(1, 10)
					time.Sleep(c.away / 100)
				}
				if st := s.status(); st.Dead != 0 || st.Pending+st.Waiting < 90 {
					t.Errorf("%s: %+v", c.name, st)
				}
				if n := len(s.pub.Sent()); n > c.most {
					t.Errorf("%s: %d tries", c.name, n)
				}
				if st := r.Status(); c.name != "no route" && st.State != outbox.RelayWaiting {
					t.Errorf("%s: %+v", c.name, st)
				}
				if c.name == "no route" && strings.Count(log.String(), "nothing takes a topic") != 1 {
					t.Errorf("%s: %s", c.name, log.String())
				}
				s.wait(100, 3*time.Minute)
				s.ordered(100)
				time.Sleep(time.Second)
				if st := s.status(); st.Dead+st.Pending+st.Waiting != 0 {
					t.Errorf("%s, after: %+v", c.name, st)
				}
				stop()
			})
		}
	})
}

func TestPoisonRate(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL6] one event in a hundred is refused for ever: one dead row each, all other keys at four fifths of the rate", func(t *testing.T) {
		took := map[bool]time.Duration{}
		for _, poison := range []bool{false, true} {
			bubble(t, func(s *shop) {
				bad := func(d outbox.Delivery) bool { return poison && d.Seq%100 == 0 }
				s.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
					time.Sleep(5 * time.Millisecond)
					if bad(d) {
						return fmt.Errorf("no %s", d.Payload)
					}
					return nil
				}
				const n, keys = 10_000, 2500
				s.sell(n, keys)
				_, stop := s.relay(s.store, s.pub, outbox.RelayOptions{MaxInFlight: 100, MaxAttempts: 3})
				good := n
				if poison {
					good = n - n/100*n/keys // each blocks its key: four events at most
				}
				at := time.Now()
				s.wait(good, time.Hour)
				took[poison] = time.Since(at)
				time.Sleep(time.Minute)
				_, desk := s.store.Outbox()
				dead, err := desk.List(t.Context(), outbox.ListParams{Group: "main", States: []outbox.State{outbox.StateDead}, Limit: n})
				if err != nil {
					t.Fatal(err)
				}
				for _, a := range dead.Events {
					if a.Attempts != 3 || a.LastError != "no "+string(a.Payload) || a.Seq%100 != 0 {
						t.Errorf("dead: %+v", a)
					}
				}
				if st := s.status(); poison != (st.Dead >= 25) || int(st.Dead) != len(dead.Events) || int(st.Dead+st.Pending)+len(s.pub.First()) != n || st.Waiting != 0 {
					t.Errorf("poison %v: %+v, %d published", poison, st, len(s.pub.First()))
				}
				stop()
			})
		}
		if float64(took[false]) < 0.8*float64(took[true]) {
			t.Errorf("with poison %v, without %v", took[true], took[false])
		}
	})
}

func TestShares(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL3] two to eight relays: even within two leases; one that joins, leaves or dies; no repeat at a hand-over", func(t *testing.T) {
		bubble(t, func(s *shop) {
			var relays []*outbox.Relay
			var stops []func()
			var dead []*atomic.Bool
			join := func() {
				gone := &atomic.Bool{}
				r, stop := s.relay(gate{s.store, func(context.Context, string) error {
					if gone.Load() {
						return errors.New("killed")
					}
					return nil
				}}, s.pub, outbox.RelayOptions{})
				relays, stops, dead = append(relays, r), append(stops, stop), append(dead, gone)
			}
			even := func(what string) {
				t.Helper()
				if least, most, all := spread(relays); most-least > 1 || all != outbox.Partitions {
					t.Errorf("%s: %d relays have %d to %d, %d in all", what, len(relays), least, most, all)
				}
			}
			busy := func(d time.Duration) { // events go on all the time
				for range int(d / (50 * time.Millisecond)) {
					s.sell(1, 40)
					time.Sleep(50 * time.Millisecond)
				}
			}
			for len(relays) < 8 {
				join()
				busy(30 * time.Second)
				even("joined")
			}
			stops[3]() // leaves
			relays, stops, dead = append(relays[:3:3], relays[4:]...), append(stops[:3:3], stops[4:]...), append(dead[:3:3], dead[4:]...)
			busy(time.Second)
			if _, _, all := spread(relays); all != outbox.Partitions {
				t.Errorf("a second after a clean stop %d partitions have a relay", all)
			}
			busy(30 * time.Second)
			even("left")
			s.wait(s.n, 5*time.Second)
			if sent := len(s.pub.Sent()); sent != s.n {
				t.Errorf("%d sends of %d events at clean hand-overs", sent, s.n)
			}
			dead[0].Store(true)
			stops[0]()
			relays, stops, dead = relays[1:], stops[1:], dead[1:]
			busy(16 * time.Second) // lease and a second
			if _, _, all := spread(relays); all != outbox.Partitions {
				t.Errorf("a lease and a second after a crash %d partitions have a relay", all)
			}
			busy(30 * time.Second)
			even("died")
			s.wait(s.n, 5*time.Second)
			s.ordered(s.n)
			for _, stop := range stops {
				stop()
			}
		})
	})
}

func TestFrozen(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL4] a relay frozen past its lease: its writes are fenced, first appearances stay in order", func(t *testing.T) {
		bubble(t, func(s *shop) {
			var frozen atomic.Bool
			thaw := make(chan struct{})
			moved := 0
			g := gate{s.store, func(_ context.Context, op string) error {
				if frozen.Load() {
					<-thaw
				}
				if op == "move" {
					moved++
				}
				return nil
			}}
			hold := &idempotest.Publisher{Hold: func(outbox.Delivery) bool { return frozen.Load() }}
			both := &twoPublishers{first: hold, all: s.pub}
			w := &watch{}
			r, stop := s.relay(g, both, outbox.RelayOptions{Observer: w})
			s.sell(100, 10)
			s.wait(100, 5*time.Second)
			frozen.Store(true)
			s.sell(100, 10)
			time.Sleep(40 * time.Second) // nothing of it moves; its leases are long over
			_, stopOther := s.relay(s.store, s.pub, outbox.RelayOptions{})
			s.wait(200, 5*time.Second)
			s.sell(100, 10)
			s.wait(300, 5*time.Second)
			frozen.Store(false)
			close(thaw)
			hold.Release(nil)
			time.Sleep(40 * time.Second)
			s.sell(100, 10)
			s.wait(400, 5*time.Second)
			s.ordered(400)
			if w.count("lost", "") == 0 || moved == 0 || r.Status().Partitions != outbox.Partitions/2 {
				t.Errorf("lost %d partitions, %d moves, has %d now", w.count("lost", ""), moved, r.Status().Partitions)
			}
			stop()
			stopOther()
		})
	})
}

// twoPublishers gives every event to first, and notes what first has taken in all as well.
type twoPublishers struct{ first, all *idempotest.Publisher }

// Publish implements outbox.Publisher.
func (p *twoPublishers) Publish(ctx context.Context, b outbox.PublishParams) {
	p.first.Publish(ctx, outbox.PublishParams{Events: b.Events, Done: func(i int, err error) {
		if err == nil {
			p.all.Publish(ctx, outbox.PublishParams{Events: b.Events[i : i+1], Done: func(int, error) {}})
		}
		b.Done(i, err)
	}})
}

func TestStandby(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *shop) {
		var standby atomic.Bool
		standby.Store(true)
		g := gate{s.store, func(context.Context, string) error {
			if standby.Load() {
				return fmt.Errorf("hold: %w", outbox.ErrStandby)
			}
			return nil
		}}
		r, stop := s.relay(g, s.pub, outbox.RelayOptions{})
		for range 2 {
			n := s.n
			s.sell(10, 2)
			time.Sleep(time.Minute)
			if st := r.Status(); st.State != outbox.RelayStandby || !errors.Is(st.Err, outbox.ErrStandby) || len(s.pub.Sent()) != n {
				t.Errorf("on a standby: %+v, sent %d", st, len(s.pub.Sent()))
			}
			standby.Store(false)
			s.wait(n+10, 5*time.Second)
			time.Sleep(time.Second)
			standby.Store(true)
		}
		standby.Store(false)
		stop()
	})
}

// A windowed publisher's broker forgets ids after a minute.
type windowed struct{ *idempotest.Publisher }

// DedupWindow implements outbox.Windower.
func (windowed) DedupWindow() time.Duration { return time.Minute }

func TestWindow(t *testing.T) {
	t.Parallel()
	t.Run("[messages/RL21] a repeat past the broker's dedup window is counted, warned of once, and delivered", func(t *testing.T) {
		bubble(t, func(s *shop) {
			var log bytes.Buffer
			back := time.Now().Add(5 * time.Minute)
			s.pub.Answer = func(context.Context, outbox.Delivery) error {
				if time.Now().Before(back) {
					return outbox.Unanswered(errors.New("no answer"))
				}
				return nil
			}
			w := &watch{}
			_, stop := s.relay(s.store, windowed{s.pub}, outbox.RelayOptions{Observer: w, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s.sell(20, 20)
			s.wait(20, 10*time.Minute)
			synctest.Wait() // what was published is observed, too
			if n := w.count("window_exceeded", ""); n < 5 || strings.Count(log.String(), "has forgotten its id") != 1 {
				t.Errorf("counted %d; log:\n%s", n, log.String())
			}
			if w.count("published", "acked") != 20 || w.count("republished", "") != len(s.pub.Sent())-20 {
				t.Errorf("%d acked, %d republished of %d sent", w.count("published", "acked"), w.count("republished", ""), len(s.pub.Sent()))
			}
			stop()
		})
	})
}

func TestOrderer(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *shop) {
		var mu sync.Mutex
		failed := map[string]bool{}
		s.pub.Ordered = true
		s.pub.Answer = func(_ context.Context, d outbox.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if d.Seq%40 == 0 && !failed[d.ID] {
				failed[d.ID] = true
				return outbox.Unavailable(errors.New("leader moved"))
			}
			return nil
		}
		s.sell(400, 1)
		_, stop := s.relay(s.store, s.pub, outbox.RelayOptions{})
		s.wait(400, 5*time.Minute)
		synctest.Wait()
		if n := len(s.pub.Sent()); n < 400 || n > 2000 {
			t.Errorf("%d sends", n)
		}
		stop()
		if st := s.status(); st.Pending+st.Waiting+st.Dead != 0 {
			t.Errorf("left %+v", st)
		}
	})
}

func TestRelayOptions(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *shop) {
		_, err := outbox.NewRelay(s.store, nil, outbox.RelayOptions{Group: "a b", Lease: time.Second, Renew: time.Second, MaxAttempts: -1, OnDead: "explode", Topics: []string{"a b", ""},
			From: "tomorrow", BackoffBase: time.Hour, MinPoll: time.Minute})
		if err == nil {
			t.Fatal("everything wrong was taken")
		}
		for _, want := range []string{"Group", "Lease 1s is shorter", "MaxAttempts is negative", `OnDead "explode"`, `"a b"`, `From "tomorrow"`, "BackoffMax", "MaxPoll", "publisher"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in:\n%v", want, err)
			}
		}
		r, err := outbox.NewRelay(s.store, s.pub, outbox.RelayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o := r.Options()
		if o.Group != "main" || o.MaxAttempts != 10 || o.BackoffBase != 100*time.Millisecond || o.BackoffMax != 30*time.Second || o.BatchRows != 1000 || o.BatchBytes != 8<<20 ||
			o.MaxInFlight != 1000 || o.MaxInFlightBytes != 16<<20 || o.MinPoll != 5*time.Millisecond || o.MaxPoll != 250*time.Millisecond || o.AckEvery != 100*time.Millisecond ||
			o.Lease != 15*time.Second || o.Renew != 5*time.Second || o.PublishTimeout != 30*time.Second || o.StatementTimeout != 10*time.Second ||
			o.DrainTimeout != 20*time.Second || o.Retention != 7*24*time.Hour || o.OnDead != "block" || o.PublishAfter != "commit" {
			t.Errorf("defaults %+v", o)
		}
	})
}
