package outbox

import (
	"context"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

// What a relay is doing.
const (
	RelayStarting    = "starting"    // nothing is held yet
	RelayRunning     = "running"     //
	RelayIdle        = "idle"        // others of its group have all partitions
	RelayPaused      = "paused"      // its group is paused
	RelayWaiting     = "waiting"     // a destination is away
	RelayStalled     = "stalled"     // there is work, and nothing has got on for longer than PublishTimeout and StatementTimeout together
	RelayStandby     = "standby"     // the server is read-only, or a standby
	RelayUnavailable = "unavailable" // the store does not answer
	RelayDraining    = "draining"    // Run was told to stop
	RelayStopped     = "stopped"
)

// RelayState is how a relay is doing.
type RelayState struct {
	State      string
	Owner      string
	Group      string
	Paused     []string // globs of topics that are paused
	Partitions int
	InFlight   int
	Buffered   int       // events in memory that are to be sent
	Blocked    int       // keys that this relay knows to be blocked
	Progress   time.Time // when something was published or stored last
	Err        error     // of the store, with unavailable and standby
}

// Ready reports whether the relay gets on, for a readiness probe: false with stalled, unavailable, starting and stopped.
func (s RelayState) Ready() bool {
	switch s.State {
	case RelayStalled, RelayUnavailable, RelayStarting, RelayStopped:
		return false
	}
	return true
}

// Status tells how the relay is doing. It asks neither store nor publisher, and never waits.
func (r *Relay) Status() RelayState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if r.running && !r.beat.IsZero() && time.Since(r.beat) > r.o.StatementTimeout+5*time.Second { // its loop hangs in a call
		s.State = RelayStalled
	}
	return s
}

// tell notes how the run is doing.
func (x *run) tell() {
	now := time.Now()
	if now.Sub(x.told) < 20*time.Millisecond && !x.stopping && now.After(x.told) {
		return
	}
	x.told = now
	s := RelayState{State: x.state(now), Owner: x.o.Owner, Group: x.o.Group, Paused: x.pausedTopics, Partitions: len(x.parts), InFlight: x.flying, Buffered: x.unsent, Progress: x.progress, Err: x.storeErr}
	for _, c := range x.chains {
		if c.aside {
			s.Blocked++
		}
	}
	if s.State == RelayStalled && !x.stalled {
		x.stalled = true
		x.o.Logger.Error("outbox: nothing has got on although there is work", "group", x.o.Group, "since", x.progress)
		observe(x.ctx, x.o.Observer, Observation{Kind: "stalled", Group: x.o.Group, Took: now.Sub(x.progress)})
	}
	x.mu.Lock()
	x.status, x.beat = s, now
	x.mu.Unlock()
	x.report(now)
}

func (x *run) state(now time.Time) string {
	waiting := false
	for _, d := range x.dests {
		waiting = waiting || d.failures > 0
	}
	if x.flying == 0 && x.unsent == 0 && !x.dirty {
		x.progress = now // there is nothing to get on with
	}
	switch {
	case x.stopping:
		return RelayDraining
	case x.standby:
		return RelayStandby
	case x.storeErr != nil && x.failures > 1:
		return RelayUnavailable
	case x.until.IsZero():
		return RelayStarting
	case x.paused:
		return RelayPaused
	case waiting:
		return RelayWaiting
	case now.Sub(x.progress) > x.o.PublishTimeout+x.o.StatementTimeout:
		return RelayStalled
	case len(x.parts) == 0 && x.want == 0:
		return RelayIdle
	}
	return RelayRunning
}

// report tells the observer how the group stands, about every 15s, by its first relay.
func (x *run) report(now time.Time) {
	if x.o.Observer == nil || x.rank != 0 || x.stopping || now.Before(x.nextTell) || now.Before(x.away) {
		return
	}
	x.nextTell = now.Add(backoff.Around(15*time.Second, 0.1))
	var s Status
	err := x.call("status", func(ctx context.Context) (err error) {
		s, err = x.desk.Status(ctx, StatusParams{Group: x.o.Group})
		return err
	})
	if err != nil {
		return
	}
	for i := range s.Groups {
		observe(x.ctx, x.o.Observer, Observation{Kind: "status", Group: x.o.Group, Status: &s.Groups[i], Log: &s})
	}
}
