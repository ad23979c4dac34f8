package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo/internal/backoff"
)

const (
	behindHead   = 100     // rows of a key that are taken with its head
	maxSlots     = 100     // pages of the prefix that are kept while something early in it is not done
	maxSettings  = 500     // before they are written, however soon after the last Move
	settingsSize = 4 << 20 //
)

// canRead reports whether there is room for a page.
func (x *run) canRead() bool {
	return !x.stopping && len(x.settings) < maxSettings && x.settingsBytes < settingsSize && x.slots < maxSlots*x.o.BatchRows &&
		x.unsent <= x.o.BatchRows/2 && x.unsentBytes <= x.o.BatchBytes/2
}

// read takes a page in, or learns that there is none.
func (x *run) read(now time.Time) error {
	if now.Before(x.nextRead) || !x.canRead() {
		return nil
	}
	p := ReadParams{Group: x.o.Group, Topics: x.o.Topics, MaxRows: x.o.BatchRows, MaxBytes: x.o.BatchBytes, PublishAfter: x.o.PublishAfter}
	if !x.paused && x.maySend(now) {
		for _, pt := range x.parts {
			if !pt.leaving {
				p.From = append(p.From, Place{Partition: pt.id, Fence: pt.fence, Cursor: pt.place})
			}
		}
		slices.SortFunc(p.From, func(a, b Place) int { return a.Partition - b.Partition })
	}
	var page Page
	err := x.call("read", func(ctx context.Context) (err error) {
		page, err = x.store.Read(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	if page.Epoch != x.epoch {
		x.epoch, x.nextHold, x.nextTake = page.Epoch, time.Time{}, time.Time{}
	}
	x.page(&page)
	x.caughtUp = len(page.Rows) == 0 && !page.More && len(p.From) == len(x.parts)
	switch {
	case page.More || len(page.Rows) > 0:
		x.wake()
	default:
		x.nextRead = now.Add(backoff.Around(x.pause*9/10, 0.1))
		x.pause = min(x.pause*2, x.o.MaxPoll)
	}
	return nil
}

// page puts its rows into their chains, and their places into the order of their partitions.
func (x *run) page(page *Page) {
	slots, n := make([]slot, len(page.Rows)+len(page.Next)), 0
	var items []item
	for i := range page.Rows {
		row := &page.Rows[i]
		p := x.parts[row.Partition]
		if p == nil || p.leaving {
			continue
		}
		s := &slots[n]
		n++
		s.cursor, p.place = row.Cursor, row.Cursor
		p.open = append(p.open, s)
		x.slots++
		if !x.all && !Match(x.o.Topics, row.Topic) {
			s.done = true
			continue
		}
		if len(items) == 0 {
			items = make([]item, 16) // few enough that one which takes long does not hold a page of others
		}
		x.intake(p, row, s, &items[0])
		items = items[1:]
	}
	for _, next := range page.Next {
		p := x.parts[next.Partition]
		if p == nil || p.leaving {
			continue
		}
		p.place = next.Cursor
		if len(p.open) == 0 && len(page.Rows) == 0 {
			p.reached = next.Cursor // nothing was there: it is stored with what comes, not by itself
			continue
		}
		slots[n] = slot{cursor: next.Cursor, done: true}
		p.open = append(p.open, &slots[n])
		x.slots++
		n++
	}
}

// prefix moves p.reached over everything that is done.
func (x *run) prefix(p *part) {
	i := 0
	for ; i < len(p.open) && p.open[i].done; i++ {
		p.reached = p.open[i].cursor
		p.open[i] = nil
	}
	if i > 0 {
		p.open = p.open[i:]
		x.slots -= i
		x.progress, x.stalled = time.Now(), false
	}
}

// move stores how far it came and what is set aside, at most every AckEvery unless much waits for it.
func (x *run) move(now time.Time) error {
	if !x.dirty || now.Before(x.nextMove) && len(x.settings) < maxSettings && x.settingsBytes < settingsSize && !x.hurry() {
		return nil
	}
	p := MoveParams{Group: x.o.Group, Owner: x.o.Owner}
	for _, pt := range x.parts {
		x.prefix(pt)
		place := Place{Partition: pt.id, Fence: pt.fence}
		if pt.reached != pt.stored {
			place.Cursor = pt.reached
		}
		if pt.reached != pt.stored || pt.writing > 0 {
			p.To = append(p.To, place)
		}
	}
	for i := range x.settings {
		p.Asides = append(p.Asides, x.settings[i].Setting)
	}
	x.nextMove = now.Add(x.o.AckEvery)
	if len(p.To) == 0 {
		x.dirty = false
		x.leavers()
		return nil
	}
	slices.SortFunc(p.To, func(a, b Place) int { return a.Partition - b.Partition })
	var m Moved
	err := x.call("move", func(ctx context.Context) (err error) {
		m, err = x.store.Move(ctx, p)
		return err
	})
	if err != nil {
		return err // known or not: the same again changes nothing
	}
	x.dirty = false
	written := x.settings
	x.settings, x.settingsBytes = nil, 0
	for _, lost := range m.Lost {
		if pt := x.parts[lost.Partition]; pt != nil {
			x.lose(pt, lost)
		}
		x.nextHold = time.Time{}
	}
	for _, to := range p.To {
		if pt := x.parts[to.Partition]; pt != nil && to.Cursor != (Cursor{}) {
			pt.stored = to.Cursor
		}
	}
	for _, s := range written {
		s.part.writing--
		if s.chain != nil {
			s.chain.writing--
			x.tidy(s.chain)
		}
	}
	if len(written) > 0 {
		x.nextTake = time.Time{}
	}
	x.leavers()
	return nil
}

// hurry reports whether nothing else is to be done than what waits for a Move.
func (x *run) hurry() bool { return len(x.settings) > 0 && x.flying == 0 && x.unsent == 0 }

// leavers looks after partitions that are to be given up.
func (x *run) leavers() {
	for _, p := range x.parts {
		x.drainedPart(p)
	}
}

// canTake reports whether what was set aside can be sent now.
func (x *run) canTake(now time.Time) bool {
	return x.maySend(now) && !x.stopping && !x.paused && len(x.parts) > 0 && x.flying+x.unsent < x.o.MaxInFlight && x.flyingBytes+x.unsentBytes < x.o.MaxInFlightBytes && len(x.solo) == 0 &&
		len(x.settings) < maxSettings
}

// take takes what was set aside and is due.
func (x *run) take(now time.Time) error {
	if now.Before(x.nextTake) || !x.canTake(now) {
		return nil
	}
	p := TakeParams{Group: x.o.Group, Owner: x.o.Owner, Limit: x.o.MaxInFlight - x.flying - x.unsent, Behind: behindHead, MaxBytes: x.o.BatchBytes,
		Lease: x.o.PublishTimeout + 5*time.Second}
	if len(x.settings) > 0 { // what is written first is not taken for something else
		x.nextMove = time.Time{}
		if err := x.move(now); err != nil {
			return err
		}
	}
	gentle := x.gentle
	for _, pt := range x.parts {
		gentle = gentle || pt.careful
		if !pt.leaving {
			p.From = append(p.From, Place{Partition: pt.id, Fence: pt.fence})
		}
	}
	if gentle {
		p.Limit, p.Behind = 1, 0
	}
	if len(p.From) == 0 {
		x.nextTake = now.Add(time.Hour)
		return nil
	}
	slices.SortFunc(p.From, func(a, b Place) int { return a.Partition - b.Partition })
	var t Taken
	err := x.call("take", func(ctx context.Context) (err error) {
		t, err = x.store.Take(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	for _, lost := range t.Lost {
		if pt := x.parts[lost.Partition]; pt != nil {
			x.lose(pt, lost)
		}
		x.nextHold = time.Time{}
	}
	x.gentle = false
	var head *item
	for i := range t.Asides {
		head = x.retry(&t.Asides[i], head)
	}
	switch {
	case t.More:
		x.nextTake = time.Time{}
	case t.NextIn > 0:
		x.nextTake = now.Add(t.NextIn)
	default:
		x.nextTake = now.Add(time.Hour) // until something is set aside, or another epoch begins
	}
	return nil
}

var errUnseen = errors.New("its relay died each time while it was sent")

// retry puts one that was set aside on its way. head is the last one that was a head; those behind it follow it.
func (x *run) retry(a *Aside, head *item) *item {
	p := x.parts[a.Partition]
	if p == nil || p.leaving {
		return nil
	}
	k := chainKey{a.Tenant, a.Key}
	if head != nil && a.Key != "" && head.chain != nil && head.chain.key == k && !head.settled && !head.alone { // behind its head
		it := &item{}
		x.load(p, &a.Row, it)
		x.taken(it, a, head.chain)
		return head
	}
	if a.Key != "" && x.chains[k] != nil { // something of it is on its way already
		if a.State == StateQueued && a.Starts == 0 {
			return nil // behind its head
		}
		it := &item{}
		x.load(p, &a.Row, it)
		x.taken(it, a, nil)
		x.write(it, x.untaken(it, x.o.AckEvery))
		return nil
	}
	it := &item{}
	x.load(p, &a.Row, it)
	var c *chain
	if a.Key != "" {
		c = &chain{key: k, part: p, aside: true}
		x.chains[k] = c
	}
	x.taken(it, a, c)
	lone := a.Starts > 1 || p.careful
	switch {
	case a.Attempts+a.Starts > x.o.MaxAttempts:
		x.o.Logger.Error("outbox: an event is dead; its relay died each time while it was sent", "group", x.o.Group, "id", a.ID, "topic", a.Topic, "starts", a.Starts-1)
		x.drop1(it, Setting{State: StateDead, Attempts: a.Attempts + a.Starts - 1, Holds: a.Key != "" && x.o.OnDead == OnDeadBlock, Error: errUnseen.Error()})
	case lone && len(x.solo) > 0: // one at a time: this start does not happen
		x.gentle = true
		x.drop1(it, x.untaken(it, 0))
	case lone:
		x.gentle, it.alone = true, true
		x.solo = append(x.solo, it)
	default:
		x.push(it)
	}
	return it
}

// untaken puts one that was taken and not sent back as it was, to be due after wait.
func (x *run) untaken(it *item, wait time.Duration) Setting {
	return Setting{State: StateWaiting, Class: it.class, Holds: it.d.Key != "", Attempts: it.attempts, Starts: max(it.starts-1, 0), Wait: wait}
}

// drop1 writes what becomes of a head that is not sent.
func (x *run) drop1(it *item, s Setting) {
	if it.chain != nil {
		it.chain.items = nil
	}
	x.write(it, s)
}

// taken makes it an item that was set aside as a.
func (x *run) taken(it *item, a *Aside, c *chain) {
	it.attempts, it.starts, it.class, it.chain, it.first = a.Attempts, a.Starts, a.Class, c, a.FirstAt
	it.repeat = a.LastError != "" || a.Starts > 1
	if a.Replay != "" {
		it.d.Replay, it.d.BrokerID = a.Replay, a.ID+"."+a.Replay
	}
	it.part.takes[it] = struct{}{}
	if c != nil {
		c.items = append(c.items, it)
	}
}

// keep empties old slots of the log, by the first relay of a group.
func (x *run) keep(now time.Time) error {
	if x.stopping || now.Before(x.nextKeep) {
		return nil
	}
	x.nextKeep = now.Add(backoff.Around(time.Minute, 0.2))
	x.dirty = true // partitions without events get on, too
	k, ok := x.store.(Keeper)
	if !ok || x.rank != 0 || len(x.parts) == 0 {
		return nil
	}
	var kept Kept
	err := x.call("keep", func(ctx context.Context) (err error) {
		kept, err = k.Keep(ctx, KeepParams{Retention: x.o.Retention, Budget: 100 * time.Millisecond})
		return err
	})
	if err != nil { // no event waits for it
		x.o.Logger.Warn("outbox: old events could not be removed; trying again", "group", x.o.Group, "error", err)
		return nil
	}
	if kept.More {
		x.nextKeep = now.Add(time.Second)
	}
	if kept.Rows > 0 {
		observe(x.ctx, x.o.Observer, Observation{Kind: "kept", Group: x.o.Group, Count: int(kept.Rows)})
	}
	return nil
}
