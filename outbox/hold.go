package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/backoff"
)

// part is a partition that this relay has.
type part struct {
	id      int
	fence   int64
	place   Cursor  // where reading goes on
	reached Cursor  // everything up to it is done
	stored  Cursor  // as the store knows it
	open    []*slot // behind reached, in order
	careful bool    // its owners keep dying: one event at a time, each start written first
	leaving bool    // to be given up, drained first
	leaveBy time.Time
	done    bool               // drained: the next Hold gives it up
	gone    bool               // it is another's; what is on its way counts no more
	takes   map[*item]struct{} // on their way, set aside before
	writing int                // settings that are not written yet
}

// slot is a place in the order of a partition.
type slot struct {
	cursor Cursor
	item   *item // nil: nothing to send
	sent   bool  // it may have gone out, or is set aside
	done   bool
}

// careStarts is how many owners in a row must have died on a partition.
const careStarts = 3

func (x *run) holdParams(want int, release []Place, leave bool) HoldParams {
	return HoldParams{Group: x.o.Group, Topics: x.o.Topics, Owner: x.o.Owner, Environment: x.o.Environment, From: x.o.From, Lease: x.o.Lease, Want: want,
		Release: release, Leave: leave}
}

// hold says that this relay lives, and learns what it has.
func (x *run) hold(now time.Time) error {
	if now.Before(x.nextHold) {
		return nil
	}
	var release []Place
	for _, p := range x.parts {
		if p.done {
			release = append(release, Place{Partition: p.id, Fence: p.fence})
		}
	}
	want := x.want
	if x.stopping {
		want = 0
	}
	var h Held
	before := time.Now()
	err := x.call("hold", func(ctx context.Context) (err error) {
		h, err = x.store.Hold(ctx, x.holdParams(want, release, false))
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range release {
		x.drop(x.parts[r.Partition])
	}
	if x.epoch != h.Epoch || x.paused != h.Paused || !slices.Equal(x.pausedTopics, h.PausedTopics) {
		x.nextTake = now // a sign of life may hear of a new epoch before a read does
	}
	x.until, x.epoch, x.total, x.rank, x.relays = before.Add(x.o.Lease), h.Epoch, h.Total, h.Rank, h.Relays
	x.paused, x.pausedTopics, x.environment = h.Paused, h.PausedTopics, h.Environment
	x.checkEnvironment()
	x.adopt(h.Leases, now)
	x.share()
	x.nextHold = now.Add(backoff.Around(x.o.Renew, 0.1))
	if h.NextFree > 0 { // another that lives speaks long before
		if soon := now.Add(h.NextFree + backoff.Around(x.o.Lease/50, 0.5)); soon.Before(x.nextHold) {
			x.nextHold = soon
		}
	}
	if x.want != want && !x.stopping {
		x.nextHold = now
	}
	return nil
}

// checkEnvironment warns once where nothing protects from a clone of the database.
func (x *run) checkEnvironment() {
	if x.warnedEnvironment || x.o.Environment != "" {
		return
	}
	x.warnedEnvironment = true
	x.o.Logger.Warn("outbox: no environment is set; a clone of this database would be published as well: set the same --environment on every relay", "group", x.o.Group)
}

// adopt makes leases the partitions of this relay.
func (x *run) adopt(leases []Lease, now time.Time) {
	has := map[int]int64{}
	changed := false
	for _, l := range leases {
		has[l.Partition] = l.Fence
		if p := x.parts[l.Partition]; p != nil && p.fence == l.Fence {
			continue
		}
		if p := x.parts[l.Partition]; p != nil {
			x.lose(p, Lost{Partition: p.id, Fence: l.Fence})
		}
		p := &part{id: l.Partition, fence: l.Fence, place: l.Cursor, reached: l.Cursor, stored: l.Cursor, careful: l.Starts >= careStarts, takes: map[*item]struct{}{}}
		x.parts[p.id] = p
		changed = true
		if x.stopping {
			p.leaving, p.leaveBy, p.done = true, now, true
		}
	}
	for id, p := range x.parts {
		if _, ok := has[id]; !ok {
			x.lose(p, Lost{Partition: id})
			changed = true
		}
	}
	if changed {
		x.nextTake, x.caughtUp = now, false
		x.wake()
		observe(x.ctx, x.o.Observer, Observation{Kind: "owned", Group: x.o.Group, Count: len(x.parts)})
	}
}

// share computes how many partitions are this relay's part, and gives up what is more.
func (x *run) share() {
	x.want = x.total
	if x.relays > 0 {
		if x.want = x.total / x.relays; x.rank < x.total%x.relays {
			x.want++
		}
	}
	var stay []*part
	for _, p := range x.parts {
		if !p.leaving {
			stay = append(stay, p)
		}
	}
	slices.SortFunc(stay, func(a, b *part) int { return a.id - b.id })
	for len(stay) > x.want {
		x.leave(stay[len(stay)-1], time.Now().Add(x.o.DrainTimeout))
		stay = stay[:len(stay)-1]
	}
}

// leave begins to give p up: what was not sent behind the last sent event is left to the next owner, so that nothing goes
// out twice; the rest is waited for.
func (x *run) leave(p *part, by time.Time) {
	if p.leaving {
		return
	}
	p.leaving, p.leaveBy = true, by
	for n := len(p.open); n > 0 && !p.open[n-1].sent; n-- {
		if it := p.open[n-1].item; it != nil {
			x.forget(it)
		}
		p.open = p.open[:n-1]
		x.slots--
	}
	for it := range p.takes {
		if it.sends > 0 {
			continue
		}
		if it.starts > 0 { // a start that does not happen
			it.unchain()
			x.write(it, x.untaken(it, 0))
			continue
		}
		x.forget(it)
	}
	x.solo = slices.DeleteFunc(x.solo, func(it *item) bool { return it.settled })
	x.dirty = true
	x.drainedPart(p)
}

// drainedPart notes that a partition that leaves has nothing on its way any more.
func (x *run) drainedPart(p *part) {
	if p.leaving && !p.done && len(p.open) == 0 && p.reached == p.stored && len(p.takes) == 0 && p.writing == 0 {
		p.done = true
		x.nextHold = time.Time{}
	}
}

// giveUp ends the wait for partitions that did not drain in time. What is on its way goes out again from their next owner.
func (x *run) giveUp(now time.Time) {
	for _, p := range x.parts {
		if !p.leaving || p.done || x.stopping || now.Before(p.leaveBy) {
			continue
		}
		x.drop(p)
		x.parts[p.id] = &part{id: p.id, fence: p.fence, leaving: true, done: true, takes: map[*item]struct{}{}}
		x.nextHold = time.Time{}
	}
}

// lose drops a partition that went to another relay unasked.
func (x *run) lose(p *part, to Lost) {
	if p.done {
		x.drop(p)
		return
	}
	owner := "nobody"
	if to.Owner != "" {
		owner = to.Owner
	}
	err := fmt.Errorf("%w: partition %d now belongs to %s (fence %d): stopped sending", idempo.ErrLeaseLost, p.id, owner, to.Fence)
	x.o.Logger.Warn("outbox: lost a partition", "group", x.o.Group, "error", err)
	observe(x.ctx, x.o.Observer, Observation{Kind: "lost", Group: x.o.Group, Count: 1, Err: err})
	x.drop(p)
}

// drop forgets a partition and all that is on its way.
func (x *run) drop(p *part) {
	p.gone = true
	for k, c := range x.chains {
		if c.part == p {
			for _, it := range slices.Clone(c.items) {
				x.forget(it)
			}
			delete(x.chains, k)
		}
	}
	for _, s := range p.open {
		if s.item != nil && !s.done {
			x.forget(s.item)
		}
	}
	x.slots -= len(p.open)
	p.open = nil
	for it := range p.takes {
		x.forget(it)
	}
	x.solo = slices.DeleteFunc(x.solo, func(it *item) bool { return it.settled })
	x.settings = slices.DeleteFunc(x.settings, func(s pending) bool { return s.part == p })
	delete(x.parts, p.id)
}

// maySend reports whether the leases last long enough to send: with under a fifth of it left nothing is sent.
func (x *run) maySend(now time.Time) bool { return now.Before(x.until.Add(-x.o.Lease / 5)) }
