package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

// AdvanceEpoch says that commits of the database were lost: after the promotion of an asynchronous standby, or the restore of an
// older backup. Call it before the engines go on; its role must own the tables. It returns the number of the new epoch.
//
// Atomic operations need nothing of it: effect and record were lost together. Leased effects may have happened without a trace,
// so until the window ends a leased key that is not found counts as lapsed and started, and OnCrash decides: hold is in doubt,
// probe asks. Every claim that runs is lost (ErrLeaseLost), and an old primary is refused by every store that has seen the new
// epoch. Keys that are found are believed: one that had failed, or was issued, and ran after the last commit that is left, runs
// again. Choose the window longer than the longest horizon of your callers; 0 ends an open one.
//
// It excludes claims for the moment of the change, asks for its lock again for as long as ctx lives, and is safe to repeat.
func (s *Store) AdvanceEpoch(ctx context.Context, window time.Duration) (epoch int64, err error) {
	if window < 0 {
		return 0, &idempo.Error{Op: "advance epoch", Code: "invalid", Hint: "window: 0 or longer"}
	}
	st := s.q["advance_epoch"].with(nil, "window", fmt.Sprintf("%d microseconds", window.Microseconds()))
	st.Row = func(scan func(...any) error) error { return scan(&epoch) }
	for {
		err := s.port.Run(ctx, nil, st)
		if err == nil {
			return epoch, s.servers.look(func(st Statement) error { return s.port.Run(ctx, nil, st) }, s.q)
		}
		if sqlState(err) != "55P03" && !Conflict(err) || !pause(ctx, 50*time.Millisecond) {
			return 0, failed("advance epoch", idempo.Key{}, err, false)
		}
	}
}

// primary is where a connection leads.
type primary struct {
	start    time.Time // of the server: what a claim's statement tells of where it ran
	epoch    int64
	system   int64 // which cluster; 0 where the server does not say
	timeline int64
}

// servers is what a store has seen of its servers, so that it notices one that has been left behind.
type servers struct {
	mu     sync.Mutex
	newest primary
	good   map[int64]bool // start times
	query  string         // the one that this server answers
}

// meet judges a server: nil, or why it was left behind. A newer epoch counts whatever the timeline says.
func (v *servers) meet(n primary) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.newest
	if n.epoch < old.epoch || n.epoch == old.epoch && n.system == old.system && n.timeline < old.timeline {
		return &idempo.Error{Op: "acquire", Code: "unavailable", Hint: "the server is an old primary: lead the connections to the new one; " +
			"if this one is meant, call AdvanceEpoch on it"}
	}
	if n.epoch > old.epoch || n.system != old.system || n.timeline > old.timeline || v.good == nil {
		v.newest, v.good = n, map[int64]bool{}
	}
	v.good[n.start.UnixMicro()] = true
	return nil
}

// known reports whether the server that started then was judged, and is good.
func (v *servers) known(start time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.good[start.UnixMicro()]
}

// check makes sure that the server on which a claim's statement ran is not an old primary: by its start time where that is known,
// else by asking it by run. Without a transaction run may lead elsewhere, hence the tries.
func (v *servers) check(start time.Time, run func(Statement) error, q map[string]query) error {
	if start.IsZero() {
		return nil
	}
	for range tries {
		if v.known(start) {
			return nil
		}
		if err := v.look(run, q); err != nil {
			return err
		}
	}
	return &idempo.Error{Op: "acquire", Code: "unavailable", Hint: "the server changes from call to call"}
}

// answered is check for a statement that ran in t, or on its own: what an old primary says or took is no answer.
func (s *Store) answered(ctx context.Context, t *session, start time.Time) error {
	return s.servers.check(start, func(st Statement) error { return s.run(ctx, t, st) }, s.q)
}

// look asks a server who it is, and judges it.
func (v *servers) look(run func(Statement) error, q map[string]query) error {
	var n primary
	st := q[cmp.Or(v.query, "server")].with(nil)
	st.Row = func(scan func(...any) error) error { return scan(&n.start, &n.epoch, &n.system, &n.timeline) }
	if err := run(st); err != nil {
		return err
	}
	return v.meet(n)
}

// first is look at start-up. Some servers that speak PostgreSQL do not tell their timeline: then the epoch alone counts.
func (v *servers) first(run func(Statement) error, q map[string]query) error {
	err := v.look(run, q)
	if state := sqlState(err); state == "" || cut(state) || conflict(state) {
		return err
	}
	v.query = "server_epoch"
	return v.look(run, q)
}
