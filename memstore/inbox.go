package memstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

var (
	_ inbox.Opener  = (*Store)(nil)
	_ inbox.Sweeper = receipts{}
	_ inbox.Noter   = receipts{}
)

// Inbox implements inbox.Opener.
func (s *Store) Inbox() inbox.Store { return receipts{s} }

// laneID is one lane of one subscriber; the lane "" of the tenant "" is the subscriber itself.
type laneID struct{ tenant, subscriber, lane string }

type laneRow struct {
	version string
	created time.Time
	changed time.Time
}

type receiptID struct{ tenant, subscriber, key string }

// shelf is what a store keeps for inboxes. Guarded by Store.mu.
type shelf struct {
	rows  map[receiptID]*inbox.Receipt
	lanes map[laneID]*laneRow
	held  map[laneID]*Tx
	seq   int64
}

// receipts is the inbox.Store of a Store. What it does in a transaction is applied at the commit; inside it is seen
// through the Tx's overlay.
type receipts struct{ s *Store }

// overlay is what an open transaction did to the shelf.
type overlay struct {
	versions map[laneID]string
	gone     map[receiptID]bool
	puts     map[receiptID]inbox.Receipt
	lanes    []laneID // held
}

func (s *Store) open() *shelf {
	if s.shelf.rows == nil {
		s.shelf = shelf{rows: map[receiptID]*inbox.Receipt{}, lanes: map[laneID]*laneRow{}, held: map[laneID]*Tx{}}
	}
	return &s.shelf
}

// do runs f under the store's lock, tx being the open transaction of ctx, if any.
func (r receipts) do(ctx context.Context, op string, f func(sh *shelf, tx *Tx) error) error {
	tx, err := r.s.enter(ctx, op, idempo.Key{})
	if err != nil {
		return err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if tx != nil && tx.ended {
		return ended(op, idempo.Key{})
	}
	if tx != nil && tx.shelf == nil {
		tx.shelf = &overlay{versions: map[laneID]string{}, gone: map[receiptID]bool{}, puts: map[receiptID]inbox.Receipt{}}
	}
	return f(r.s.open(), tx)
}

// Enter implements inbox.Store.
func (r receipts) Enter(ctx context.Context, p inbox.EnterParams) (e inbox.Entered, err error) {
	err = r.do(ctx, "enter", func(sh *shelf, tx *Tx) error {
		e.Now = r.s.now(p.Now)
		id := laneID{p.Tenant, p.Subscriber, p.Lane}
		if p.Lane != "" {
			if tx == nil {
				return misuse("enter", idempo.Key{}, "a lane is entered in a transaction")
			}
			if other := sh.held[id]; other != nil && other != tx {
				e.Busy = true
				return nil
			}
			if sh.held[id] == nil {
				sh.held[id] = tx
				tx.shelf.lanes = append(tx.shelf.lanes, id)
			}
		}
		if row := sh.lanes[id]; row != nil && (p.Lane != "" || p.Key == "") {
			e.Version, e.CreatedAt, e.ChangedAt = row.version, row.created, row.changed
		}
		if tx != nil {
			if v, ok := tx.shelf.versions[id]; ok {
				e.Version = v
			}
		}
		own, found := sh.seen(tx, receiptID{p.Tenant, p.Subscriber, p.Key})
		if found {
			own = clone(own)
			own.Now = e.Now
			e.Receipt = &own
		}
		if p.Lane == "" {
			return nil
		}
		for rid, other := range sh.rows {
			seen, there := sh.seen(tx, rid)
			if there && rid.key != p.Key && rid.tenant == p.Tenant && rid.subscriber == p.Subscriber && other.Message.Lane == p.Lane && seen.Holds &&
				(!found || seen.Seq < own.Seq) {
				e.Blocked = true
			}
		}
		return nil
	})
	return e, err
}

// seen is the receipt as tx, or everybody, sees it.
func (sh *shelf) seen(tx *Tx, id receiptID) (inbox.Receipt, bool) {
	if tx != nil && tx.shelf != nil {
		if put, ok := tx.shelf.puts[id]; ok {
			return put, true
		}
		if tx.shelf.gone[id] {
			return inbox.Receipt{}, false
		}
	}
	if r := sh.rows[id]; r != nil {
		return *r, true
	}
	return inbox.Receipt{}, false
}

// Put implements inbox.Store.
func (r receipts) Put(ctx context.Context, p inbox.PutParams) (st inbox.Stored, err error) {
	err = r.do(ctx, "put", func(sh *shelf, tx *Tx) error {
		now := r.s.now(p.Now)
		id := receiptID{p.Receipt.Message.Tenant, p.Receipt.Subscriber, p.Receipt.Key}
		old, found := sh.seen(tx, id)
		if found != (p.Rev != 0) || found && old.Rev != p.Rev {
			st.Lost, st.Receipt = true, clone(old)
			st.Receipt.Now = now
			return nil
		}
		next := clone(p.Receipt)
		next.Rev, next.ChangedAt, next.NextAt, next.Now = p.Rev+1, now, time.Time{}, time.Time{}
		if found {
			next.Seq, next.ReceivedAt, next.Message, next.Sealed = old.Seq, old.ReceivedAt, clone(old).Message, old.Sealed
			next.Seen, next.SeenAt = old.Seen, old.SeenAt
		} else {
			sh.seq++
			next.Seq, next.ReceivedAt, next.Seen, next.SeenAt = sh.seq, now, 0, time.Time{}
			next.Message.Attempt, next.Message.Partition = 0, ""
		}
		next.Message.Time = micro(next.Message.Time)
		next.BodyUntil, next.GoneAt, next.Unreadable = later(now, p.BodyFor), later(now, p.KeepFor), nil
		if p.Due {
			next.NextAt = now.Add(max(p.Delay, 0)).Truncate(time.Microsecond)
		}
		st.Receipt = clone(next)
		st.Receipt.Now = now
		if tx == nil {
			sh.rows[id] = &next
			return nil
		}
		tx.shelf.puts[id] = next
		delete(tx.shelf.gone, id)
		tx.effects = append(tx.effects, func() {
			if cur := sh.rows[id]; (cur == nil) == (p.Rev == 0) && (cur == nil || cur.Rev == p.Rev) {
				sh.rows[id] = &next
			}
		})
		return nil
	})
	return st, err
}

// Leave implements inbox.Store.
func (r receipts) Leave(ctx context.Context, p inbox.LeaveParams) error {
	return r.do(ctx, "leave", func(sh *shelf, tx *Tx) error {
		now := r.s.now(p.Now)
		if tx == nil {
			sh.leave(p, now)
			return nil
		}
		if p.Version != "" {
			tx.shelf.versions[laneID{p.Tenant, p.Subscriber, p.Lane}] = p.Version
		}
		if p.Key != "" {
			id := receiptID{p.Tenant, p.Subscriber, p.Key}
			tx.shelf.gone[id] = true
			delete(tx.shelf.puts, id)
		}
		tx.effects = append(tx.effects, func() { sh.leave(p, now) })
		return nil
	})
}

func (sh *shelf) leave(p inbox.LeaveParams, now time.Time) {
	if p.Key != "" {
		id := receiptID{p.Tenant, p.Subscriber, p.Key}
		if r := sh.rows[id]; r != nil && (p.Rev == 0 || r.Rev == p.Rev) {
			delete(sh.rows, id)
		}
	}
	lane := laneID{p.Tenant, p.Subscriber, p.Lane}
	if p.Version != "" || p.Lane == "" && p.Key == "" {
		row := sh.lanes[lane]
		if row == nil {
			row = &laneRow{created: now, changed: now}
			sh.lanes[lane] = row
		}
		if p.Version != "" {
			row.version, row.changed = p.Version, now
		}
	}
	if p.Lane != "" {
		sh.wake(p, now)
	}
}

// wake makes the next receipt of a lane due.
func (sh *shelf) wake(p inbox.LeaveParams, now time.Time) {
	var next *inbox.Receipt
	for id, r := range sh.rows {
		if id.tenant != p.Tenant || id.subscriber != p.Subscriber || r.Message.Lane != p.Lane || !r.Holds {
			continue
		}
		switch {
		case p.Wanted == "":
			if next == nil || r.Seq < next.Seq {
				next = r
			}
		case r.Message.Version == p.Wanted && (r.Status == inbox.StatusStored || r.Status == inbox.StatusParked):
			r.NextAt = now
		}
	}
	if next != nil && next.Status == inbox.StatusStored && next.NextAt.IsZero() {
		next.NextAt = now
	}
}

// Take implements inbox.Store.
func (r receipts) Take(ctx context.Context, p inbox.TakeParams) (taken []inbox.Receipt, err error) {
	err = r.do(ctx, "take", func(sh *shelf, tx *Tx) error {
		if tx != nil {
			return misuse("take", idempo.Key{}, "due receipts are taken outside of transactions")
		}
		now := r.s.now(p.Now)
		var due []*inbox.Receipt
		for id, row := range sh.rows {
			if id.subscriber == p.Subscriber && !row.NextAt.IsZero() && !row.NextAt.After(now) {
				due = append(due, row)
			}
		}
		slices.SortFunc(due, func(a, b *inbox.Receipt) int {
			if c := a.NextAt.Compare(b.NextAt); c != 0 {
				return c
			}
			return int(a.Seq - b.Seq)
		})
		for _, row := range due[:min(len(due), max(p.Limit, 0))] {
			row.Attempts, row.Rev, row.NextAt, row.ChangedAt = row.Attempts+1, row.Rev+1, now.Add(p.Lease), now
			c := clone(*row)
			c.Now = now
			taken = append(taken, c)
		}
		return nil
	})
	return taken, err
}

// List implements inbox.Store.
func (r receipts) List(ctx context.Context, p inbox.ListParams) (found []inbox.Receipt, err error) {
	err = r.do(ctx, "list", func(sh *shelf, _ *Tx) error {
		now := r.s.now(p.Now)
		for id, row := range sh.rows {
			ahead := row.Seq > p.After
			if p.Newest && p.After != 0 {
				ahead = row.Seq < p.After
			}
			if ahead && id.subscriber == p.Subscriber && (p.Tenant == "" || p.Tenant == id.tenant) && (p.Key == "" || p.Key == id.key) &&
				(p.Lane == "" || p.Lane == row.Message.Lane) && (len(p.Statuses) == 0 || slices.Contains(p.Statuses, row.Status)) &&
				(p.ID == "" || p.ID == row.Message.ID) && at(row.Message.Position, p.Position) && between(row.ReceivedAt, p.Since, p.Until) {
				c := clone(*row)
				c.Now = now
				if p.WithoutBody {
					c.Message.Body = nil
				}
				found = append(found, c)
			}
		}
		slices.SortFunc(found, func(a, b inbox.Receipt) int {
			if p.Newest {
				a, b = b, a
			}
			return int(a.Seq - b.Seq)
		})
		limit := p.Limit
		if limit == 0 {
			limit = 100
		}
		found = found[:min(len(found), limit)]
		return nil
	})
	return found, err
}

// Sweep implements inbox.Sweeper.
func (r receipts) Sweep(ctx context.Context, p inbox.SweepParams) (done inbox.Swept, err error) {
	err = r.do(ctx, "sweep", func(sh *shelf, tx *Tx) error {
		if tx != nil {
			return misuse("sweep", idempo.Key{}, "a sweep has its own transactions")
		}
		now := r.s.now(p.Now)
		over := func(t time.Time, n int) bool { return !t.IsZero() && !t.After(now) && n < p.Limit }
		for id, row := range sh.rows {
			switch {
			case id.subscriber != p.Subscriber:
			case over(row.GoneAt, done.Receipts):
				delete(sh.rows, id)
				done.Receipts++
			case row.Message.Body != nil && over(row.BodyUntil, done.Bodies):
				row.Message.Body, row.Message.Headers, row.Sealed = nil, nil, ""
				done.Bodies++
			}
		}
		return nil
	})
	return done, err
}

// Note implements inbox.Noter.
func (r receipts) Note(ctx context.Context, p inbox.NoteParams) error {
	return r.do(ctx, "note", func(sh *shelf, _ *Tx) error {
		for _, one := range p.Seen {
			if row := sh.rows[receiptID{one.Tenant, p.Subscriber, one.Key}]; row != nil {
				row.Seen, row.SeenAt = row.Seen+one.Times, r.s.now(p.Now)
			}
		}
		return nil
	})
}

// at tells whether position is want, or begins with it before a slash.
func at(position, want string) bool {
	return want == "" || position == want || strings.HasPrefix(position, want+"/")
}

func between(t, since, until time.Time) bool {
	return (since.IsZero() || !t.Before(since)) && (until.IsZero() || t.Before(until))
}

// later is d from now; never for 0.
func later(now time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return now.Add(d).Truncate(time.Microsecond)
}

// clone shares no memory with r.
func clone(r inbox.Receipt) inbox.Receipt {
	r.Message.Headers, r.Message.Body, r.Failures = slices.Clone(r.Message.Headers), cloneBytes(r.Message.Body), slices.Clone(r.Failures)
	return r
}

func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func micro(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Count implements inbox.Counter.
func (r receipts) Count(ctx context.Context, p inbox.CountParams) (all []inbox.Counted, err error) {
	err = r.do(ctx, "count", func(sh *shelf, _ *Tx) error {
		counts, blocked := map[string]*inbox.Counted{}, map[laneID]bool{}
		of := func(subscriber string) *inbox.Counted {
			if counts[subscriber] == nil {
				counts[subscriber] = &inbox.Counted{Subscriber: subscriber, Statuses: map[inbox.Status]int64{}, Now: r.s.now(p.Now)}
			}
			return counts[subscriber]
		}
		for id := range sh.lanes {
			if id.tenant == "" && id.lane == "" && p.Tenant == "" && (p.Subscriber == "" || p.Subscriber == id.subscriber) {
				of(id.subscriber)
			}
		}
		for id, row := range sh.rows {
			if p.Tenant != "" && p.Tenant != id.tenant || p.Subscriber != "" && p.Subscriber != id.subscriber {
				continue
			}
			c := of(id.subscriber)
			c.Statuses[row.Status]++
			if inbox.Waits(row.Status) && (c.Oldest.IsZero() || row.ReceivedAt.Before(c.Oldest)) {
				c.Oldest = row.ReceivedAt
			}
			lane := laneID{id.tenant, id.subscriber, row.Message.Lane}
			waits := row.Status == inbox.StatusDead || row.Status == inbox.StatusParked || row.Status == inbox.StatusInDoubt
			if waits && row.Holds && lane.lane != "" && !blocked[lane] {
				blocked[lane] = true
				c.BlockedLanes++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			all = append(all, *counts[name])
		}
		return nil
	})
	return all, err
}
