package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
)

var (
	_ outbox.Opener = (*Store)(nil)
	_ outbox.Store  = (*events)(nil)
	_ outbox.Beller = (*events)(nil)
	_ outbox.Keeper = (*events)(nil)
	_ outbox.Desk   = (*events)(nil)
)

// Outbox implements outbox.Opener.
func (s *Store) Outbox() (outbox.Store, outbox.Desk) { return &events{s}, &events{s} }

// events is the outbox.Store of a Store.
type events struct{ s *Store }

// Bell implements outbox.Beller.
func (e *events) Bell() *outbox.Bell { return &e.s.bell }

// eventKey is what order is kept within.
type eventKey struct{ tenant, key string }

// ledger is the log and its groups. Guarded by Store.mu. A Cursor is a place in the order of commits, so that nothing can
// appear behind one.
type ledger struct {
	log         []logged // in the order of commits
	seq, place  int64    // the last ones drawn
	held        map[eventKey]*Tx
	queues      map[eventKey][]waiter // who waits for a key, in order
	groups      map[string]*group
	environment string
	discarded   map[string]bool // topics
	fence       int64
	gone        time.Time // of the last row that left
}

// waiter is a transaction that waits for a key; ready is closed when it has it.
type waiter struct {
	tx    *Tx
	ready chan struct{}
}

// next gives a key that is free to who has waited longest. The store is locked.
func (l *ledger) next(k eventKey) {
	delete(l.held, k)
	for len(l.queues[k]) > 0 {
		w := l.queues[k][0]
		if l.queues[k] = l.queues[k][1:]; !w.tx.ended {
			l.held[k], w.tx.keys = w.tx, append(w.tx.keys, k)
			close(w.ready)
			for _, other := range l.queues[k] {
				other.tx.waits = w.tx
			}
			return
		}
	}
	delete(l.queues, k)
}

// logged is a committed event at its place.
type logged struct {
	row   outbox.Row
	place int64
}

// group is one reader of the log.
type group struct {
	outbox.GroupStatus // settings: Name, Topics, External, Slot, Paused, PausedTopics
	epoch              int64
	parts              [outbox.Partitions]part
	relays             map[string]*outbox.RelayStatus
	asides             map[int64]*aside // by Seq
	began              time.Time
}

// aside is one that is set aside, and the fence it was last taken under.
type aside struct {
	outbox.Aside
	taken int64
}

type part struct {
	owner  string
	fence  int64
	until  time.Time
	cursor int64
	starts int
}

// book is the ledger, made when it is first asked for. The store is locked.
func (s *Store) book() *ledger {
	if s.ledger == nil {
		s.ledger = &ledger{held: map[eventKey]*Tx{}, queues: map[eventKey][]waiter{}, groups: map[string]*group{}, discarded: map[string]bool{}}
	}
	return s.ledger
}

// do runs f under the store's lock. It must not be called in a transaction.
func (e *events) do(ctx context.Context, op string, at time.Time, f func(l *ledger, now time.Time) error) error {
	tx, err := e.s.enter(ctx, op, idempo.Key{})
	if err != nil {
		return err
	}
	if tx != nil {
		return misuse(op, idempo.Key{}, "a relay works outside of transactions")
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return f(e.s.book(), e.s.now(at))
}

// Append implements outbox.Store.
func (e *events) Append(ctx context.Context, p outbox.AppendParams) (outbox.Appended, error) {
	tx, err := e.s.enter(ctx, "append", idempo.Key{})
	switch {
	case err != nil:
		return outbox.Appended{}, err
	case tx == nil:
		return outbox.Appended{}, outbox.ErrNoTx
	}
	if p.Lock {
		if err := e.lock(ctx, tx, p.Rows); err != nil {
			return outbox.Appended{}, err
		}
	}
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	if tx.ended {
		return outbox.Appended{}, fmt.Errorf("%w: %w", outbox.ErrNoTx, ended("append", idempo.Key{}))
	}
	l, now := e.s.book(), e.s.now(p.Now)
	rows := make([]outbox.Row, len(p.Rows))
	for i, r := range p.Rows {
		l.seq++
		r = cloneRow(r)
		r.Seq, r.Time, r.Cursor, r.Blocked = l.seq, now, outbox.Cursor{}, false
		rows[i] = r
	}
	tx.effects = append(tx.effects, func() {
		for _, r := range rows {
			l.place++
			r.Cursor.Seq = l.place
			l.log = append(l.log, logged{r, l.place})
		}
	})
	return outbox.Appended{Time: now}, nil
}

// lock gives tx the key of every row, in sorted order, waiting for other transactions. One of several that wait for each
// other gets tx_conflict.
func (e *events) lock(ctx context.Context, tx *Tx, rows []outbox.Row) error {
	var keys []eventKey
	for _, r := range rows {
		if r.Key != "" {
			keys = append(keys, eventKey{r.Tenant, r.Key})
		}
	}
	slices.SortFunc(keys, func(a, b eventKey) int { return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.key, b.key)) })
	for _, k := range slices.Compact(keys) {
		for {
			busy, err := e.tryLock(tx, k)
			if err != nil {
				return err
			}
			if busy == nil {
				break
			}
			select {
			case <-busy:
			case <-ctx.Done():
				return unavailable("append", idempo.Key{}, ctx.Err())
			}
		}
	}
	return nil
}

// tryLock takes k, or joins its queue and returns what is closed when it may look again.
func (e *events) tryLock(tx *Tx, k eventKey) (busy <-chan struct{}, err error) {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	tx.waits = nil
	if tx.ended {
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTx, ended("append", idempo.Key{}))
	}
	l := e.s.book()
	other := l.held[k]
	if other == nil || other == tx {
		if other == nil {
			l.held[k] = tx
			tx.keys = append(tx.keys, k)
		}
		return nil, nil
	}
	for w := other; w != nil && !w.ended; w = w.waits {
		if w == tx {
			return nil, &idempo.Error{Op: "append", Code: "tx_conflict", Hint: "two transactions wait for each other's event keys; append in one call, or in one order"}
		}
	}
	tx.waits = other
	ready := make(chan struct{})
	l.queues[k] = append(l.queues[k], waiter{tx, ready})
	return ready, nil
}

// Hold implements outbox.Store.
func (e *events) Hold(ctx context.Context, p outbox.HoldParams) (h outbox.Held, err error) {
	err = e.do(ctx, "hold", p.Now, func(l *ledger, now time.Time) error {
		g, err := l.join(p, now)
		if err != nil {
			return err
		}
		known := g.relays[p.Owner] != nil
		switch {
		case p.Leave:
			delete(g.relays, p.Owner)
			p.Want = 0
			if known {
				g.epoch++
			}
		case !known:
			g.relays[p.Owner] = &outbox.RelayStatus{Owner: p.Owner, Since: now, Until: now.Add(p.Lease)}
			g.epoch++
		default:
			g.relays[p.Owner].Until = now.Add(p.Lease)
		}
		for owner, r := range g.relays {
			if !r.Until.After(now) {
				delete(g.relays, owner)
			}
		}
		g.release(p, now)
		g.take(l, p, now)
		h = g.held(p.Owner, now)
		h.Environment = l.environment
		return nil
	})
	return h, err
}

// join finds the group of a relay, or makes it.
func (l *ledger) join(p outbox.HoldParams, now time.Time) (*group, error) {
	switch {
	case p.Environment == "":
	case l.environment == "":
		l.environment = p.Environment
	case l.environment != p.Environment:
		return nil, fmt.Errorf("%w: database says %s, this relay says %s: nothing was published", outbox.ErrEnvironment, l.environment, p.Environment)
	}
	g := l.groups[p.Group]
	if g == nil {
		if len(l.groups) > 0 && p.From == "" {
			return nil, fmt.Errorf("%w: group %s is new and others have published from this outbox: say --from beginning or --from now", outbox.ErrFrom, p.Group)
		}
		g = l.group(p.Group, p.From, now)
	}
	if g.External {
		return nil, fmt.Errorf("%w: group %s is external: it is published from a replication slot", outbox.ErrGroup, p.Group)
	}
	g.Topics = slices.Clone(p.Topics)
	return g, nil
}

// group makes one.
func (l *ledger) group(name, from string, now time.Time) *group {
	g := &group{GroupStatus: outbox.GroupStatus{Name: name}, relays: map[string]*outbox.RelayStatus{}, asides: map[int64]*aside{}, began: now}
	if from == outbox.FromNow {
		for i := range g.parts {
			g.parts[i].cursor = l.place
		}
	}
	l.groups[name] = g
	return g
}

// release extends what the owner has, but for what it gives up.
func (g *group) release(p outbox.HoldParams, now time.Time) {
	for i := range g.parts {
		pt := &g.parts[i]
		if pt.owner != p.Owner || !pt.until.After(now) {
			continue
		}
		gives := slices.ContainsFunc(p.Release, func(r outbox.Place) bool { return r.Partition == i && r.Fence == pt.fence })
		if p.Leave || gives {
			pt.owner, pt.until = "", time.Time{}
			g.epoch++
			continue
		}
		pt.until = now.Add(p.Lease)
	}
}

// take gives the owner free and lapsed partitions until it has p.Want.
func (g *group) take(l *ledger, p outbox.HoldParams, now time.Time) {
	has := 0
	for _, pt := range g.parts {
		if pt.owner == p.Owner && pt.until.After(now) {
			has++
		}
	}
	for i := range g.parts {
		pt := &g.parts[i]
		if has >= p.Want {
			return
		}
		if pt.owner != "" && pt.until.After(now) {
			continue
		}
		if pt.owner != "" {
			pt.starts++
		}
		l.fence++
		pt.owner, pt.fence, pt.until = p.Owner, l.fence, now.Add(p.Lease)
		has++
	}
}

// held is what the owner has.
func (g *group) held(owner string, now time.Time) outbox.Held {
	h := outbox.Held{Total: outbox.Partitions, Relays: len(g.relays), Epoch: g.epoch, Paused: g.Paused, PausedTopics: slices.Clone(g.PausedTopics)}
	if own := g.relays[owner]; own != nil {
		for _, r := range g.relays {
			if c := r.Since.Compare(own.Since); c < 0 || c == 0 && r.Owner < owner {
				h.Rank++
			}
		}
	}
	for i, pt := range g.parts {
		switch {
		case pt.owner == "" || !pt.until.After(now):
		case pt.owner == owner:
			h.Leases = append(h.Leases, outbox.Lease{Partition: i, Fence: pt.fence, Cursor: outbox.Cursor{Seq: pt.cursor}, Starts: pt.starts})
		case h.NextFree == 0 || pt.until.Sub(now) < h.NextFree:
			h.NextFree = pt.until.Sub(now)
		}
	}
	return h
}

// Read implements outbox.Store.
func (e *events) Read(ctx context.Context, p outbox.ReadParams) (page outbox.Page, err error) {
	err = e.do(ctx, "read", p.Now, func(l *ledger, _ time.Time) error {
		g := l.groups[p.Group]
		if g == nil {
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		}
		page.Epoch = g.epoch
		if len(p.From) == 0 {
			return nil
		}
		var from [outbox.Partitions]int64
		for i := range from {
			from[i] = l.place // not asked for
		}
		first := l.place
		for _, f := range p.From {
			from[f.Partition] = f.Cursor.Seq
			first = min(first, f.Cursor.Seq)
		}
		holds := g.holding()
		size, last := 0, l.place
		start, _ := slices.BinarySearchFunc(l.log, first+1, func(r logged, place int64) int { return cmp.Compare(r.place, place) })
		for _, r := range l.log[start:] {
			if r.place <= from[r.row.Partition] {
				continue
			}
			if n := len(r.row.Payload); len(page.Rows) > 0 && (len(page.Rows) >= p.MaxRows || size+n > p.MaxBytes) {
				last, page.More = r.place-1, true
				break
			}
			size += len(r.row.Payload)
			row := cloneRow(r.row)
			row.Blocked = g.asides[row.Seq] != nil || row.Key != "" && holds[eventKey{row.Tenant, row.Key}]
			page.Rows = append(page.Rows, row)
		}
		for _, f := range p.From {
			if last > f.Cursor.Seq {
				page.Next = append(page.Next, outbox.Place{Partition: f.Partition, Cursor: outbox.Cursor{Seq: last}})
			}
		}
		return nil
	})
	return page, err
}

// holding are the keys with a row that holds.
func (g *group) holding() map[eventKey]bool {
	keys := map[eventKey]bool{}
	for _, a := range g.asides {
		if a.Holds {
			keys[eventKey{a.Tenant, a.Key}] = true
		}
	}
	return keys
}

// fenced splits places into those that are the owner's and those that are lost.
func (g *group) fenced(owner string, places []outbox.Place, now time.Time) (mine map[int]outbox.Place, lost []outbox.Lost) {
	mine = map[int]outbox.Place{}
	for _, f := range places {
		pt := &g.parts[f.Partition]
		if pt.owner == owner && pt.fence == f.Fence && pt.until.After(now) {
			mine[f.Partition] = f
		} else {
			lost = append(lost, outbox.Lost{Partition: f.Partition, Owner: pt.owner, Fence: pt.fence})
		}
	}
	return mine, lost
}

// Move implements outbox.Store.
func (e *events) Move(ctx context.Context, p outbox.MoveParams) (m outbox.Moved, err error) {
	err = e.do(ctx, "move", p.Now, func(l *ledger, now time.Time) error {
		g := l.groups[p.Group]
		if g == nil {
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		}
		mine, lost := g.fenced(p.Owner, p.To, now)
		m.Lost = lost
		for i, to := range mine {
			if to.Cursor != (outbox.Cursor{}) {
				g.parts[i].cursor, g.parts[i].starts = to.Cursor.Seq, 0
			}
		}
		for _, s := range p.Asides {
			if _, ok := mine[s.Row.Partition]; ok {
				g.parts[s.Row.Partition].starts = 0
				g.set(s, now)
			}
		}
		return nil
	})
	return m, err
}

// set applies what became of an event.
func (g *group) set(s outbox.Setting, now time.Time) {
	a := g.asides[s.Row.Seq]
	switch {
	case s.State == outbox.StatePublished:
		delete(g.asides, s.Row.Seq)
		return
	case a == nil && !s.New:
		return
	case a == nil:
		a = &aside{Aside: outbox.Aside{Row: cloneRow(s.Row), FirstAt: now}}
		g.asides[s.Row.Seq] = a
	case s.New || a.State == outbox.StateSkipped:
		return
	}
	a.State, a.Class, a.Holds, a.Attempts, a.Starts, a.LastAt, a.NextAt, a.taken = s.State, s.Class, s.Holds, s.Attempts, s.Starts, now, time.Time{}, 0
	if s.State == outbox.StateWaiting {
		a.NextAt = now.Add(s.Wait).Truncate(time.Microsecond)
	}
	if s.Error != "" {
		a.LastError = s.Error
		a.FirstError = cmp.Or(a.FirstError, s.Error)
	}
}

// Take implements outbox.Store.
func (e *events) Take(ctx context.Context, p outbox.TakeParams) (t outbox.Taken, err error) {
	err = e.do(ctx, "take", p.Now, func(l *ledger, now time.Time) error {
		g := l.groups[p.Group]
		if g == nil {
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		}
		mine, lost := g.fenced(p.Owner, p.From, now)
		t.Lost = lost
		heads, behind := g.heads(mine)
		size := 0
		for _, a := range heads {
			fence := mine[a.Partition].Fence
			if a.NextAt.After(now) && (a.taken == 0 || a.taken == fence) {
				if wait := a.NextAt.Sub(now); t.NextIn == 0 || wait < t.NextIn {
					t.NextIn = wait
				}
				continue
			}
			if len(t.Asides) > 0 && (p.Limit <= 0 || size+len(a.Payload) > p.MaxBytes) {
				t.More = true
				continue
			}
			p.Limit--
			a.Starts++
			a.NextAt, a.taken = now.Add(p.Lease), fence
			for i, one := range append([]*aside{a}, behind[eventKey{a.Tenant, a.Key}]...) {
				if size += len(one.Payload); i > 0 && (i > p.Behind || size > p.MaxBytes || one.State != outbox.StateQueued || g.pausedTopic(one.Topic)) {
					break
				}
				t.Asides = append(t.Asides, cloneAside(one.Aside))
			}
		}
		return nil
	})
	return t, err
}

// heads are the rows of the partitions that are due some time, in that order, and what is behind each.
func (g *group) heads(mine map[int]outbox.Place) (heads []*aside, behind map[eventKey][]*aside) {
	rows := make([]*aside, 0, len(g.asides))
	for _, a := range g.asides {
		if _, ok := mine[a.Partition]; ok {
			rows = append(rows, a)
		}
	}
	slices.SortFunc(rows, func(a, b *aside) int { return cmp.Compare(a.Seq, b.Seq) })
	behind = map[eventKey][]*aside{}
	held := map[eventKey]bool{}
	for _, a := range rows {
		k := eventKey{a.Tenant, a.Key}
		if held[k] {
			behind[k] = append(behind[k], a)
			continue
		}
		held[k] = a.Key != "" && a.Holds
		if (a.State == outbox.StateWaiting || a.State == outbox.StateQueued) && !g.pausedTopic(a.Topic) {
			heads = append(heads, a)
		}
	}
	slices.SortStableFunc(heads, func(a, b *aside) int { return a.NextAt.Compare(b.NextAt) })
	return heads, behind
}

func (g *group) pausedTopic(topic string) bool {
	return g.Paused || outbox.Match(g.PausedTopics, topic)
}

func cloneRow(r outbox.Row) outbox.Row {
	r.Headers, r.Payload = slices.Clone(r.Headers), cloneBytes(r.Payload)
	return r
}

func cloneAside(a outbox.Aside) outbox.Aside {
	a.Row = cloneRow(a.Row)
	return a
}
