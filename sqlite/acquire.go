package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

// Acquire implements idempo.Store. It reads without a lock first; only a claim that seems won stands in line for the
// write lock, under which it is decided. Where another open transaction of this process holds the key it says in
// progress, after at most p.Wait; one of another process is waited for as long as ctx and the busy timeout allow, and
// is then code unavailable.
func (s *Store) Acquire(ctx context.Context, p idempo.AcquireParams) (idempo.Acquired, error) {
	t, err := s.joined(ctx, "acquire", p.Key)
	switch {
	case err != nil:
		return idempo.Acquired{}, err
	case ctx.Err() != nil:
		return idempo.Acquired{}, failure("acquire", p.Key, context.Cause(ctx), false)
	case !atOnce(p) && (p.Guard == idempo.GuardAtomic) != (t != nil):
		return idempo.Acquired{}, misuse("acquire", p.Key, "an atomic claim needs a transaction in its context, a leased one must have none")
	}
	c := claim{s: s, t: t, p: p, names: names32(p)}
	var over <-chan time.Time
	if p.Wait > 0 {
		timer := time.NewTimer(p.Wait)
		defer timer.Stop()
		over = timer.C
	}
	for {
		a, busy, err := c.try(ctx, over != nil)
		if busy == nil {
			return a, failure("acquire", p.Key, err, false)
		}
		select {
		case <-busy:
		case <-over:
			over = nil // once more: it may have ended this moment
		case <-ctx.Done():
			return idempo.Acquired{}, failure("acquire", p.Key, context.Cause(ctx), false)
		}
	}
}

// atOnce reports whether p is written by itself; a claim inside a transaction waits for its completion.
func atOnce(p idempo.AcquireParams) bool { return p.Issue > 0 || !p.Due.IsZero() }

// names32 lists the digests that p occupies.
func names32(p idempo.AcquireParams) []string {
	return slices.Concat([]string{p.Key.ID}, p.Aliases, p.Unique)
}

func keysOf(k idempo.Key, names []string) []idempo.Key {
	out := make([]idempo.Key, len(names))
	for i, id := range names {
		out[i] = idempo.Key{Tenant: k.Tenant, Operation: k.Operation, ID: id}
	}
	return out
}

// claim is one Acquire.
type claim struct {
	s     *Store
	t     *txn
	p     idempo.AcquireParams
	names []string
}

// try is one try. Where an open transaction stands in the way and wait is true, busy is closed at its end.
func (c *claim) try(ctx context.Context, wait bool) (a idempo.Acquired, busy <-chan struct{}, err error) {
	if c.t != nil {
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		if !c.t.own {
			if err := c.t.enter(c.s, "acquire", c.p.Key); err != nil {
				return a, nil, err
			}
		}
		if c.t.x != nil || c.t.ended {
			a, err = c.inside(ctx)
			return a, nil, err
		}
	}
	if c.s.line.tryEnter() {
		return c.idle(ctx, wait)
	}
	base, err := c.s.read(ctx, "find", c.p.Key, c.names)
	if err != nil {
		return a, nil, err
	}
	a, busy, final, err := c.glance(base, wait)
	if final {
		return a, busy, err
	}
	if c.t != nil {
		a, err = c.inside(ctx)
	} else {
		err = c.s.share(ctx, "acquire", c.p.Key, keysOf(c.p.Key, c.names), func(x *session) (err error) {
			a, err = c.atOnce(x, len(base) == 0)
			return failure("acquire", c.p.Key, err, false)
		})
		if err != nil && !errors.Is(err, errOpen) {
			return idempo.Acquired{}, nil, err
		}
	}
	if errors.Is(err, errOpen) { // another transaction won the key while this one waited for the lock
		return c.again(wait)
	}
	return a, nil, err
}

// idle is a try for a caller that found nobody in the line and holds it now: it reads on the writing connection, whose
// pages are warm, still without a lock in the file, and goes on there if it must.
func (c *claim) idle(ctx context.Context, wait bool) (a idempo.Acquired, busy <-chan struct{}, err error) {
	var base []idempo.Record
	x, err := c.s.session(ctx)
	if err == nil {
		base, err = x.find(c.p.Key, c.names)
	}
	final := err != nil
	if err == nil {
		a, busy, final, err = c.glance(base, wait)
	}
	switch {
	case final:
		if x != nil {
			x.ended(err)
		}
		c.s.leave()
	case c.t != nil:
		err = x.lend(ctx)
		if err != nil {
			c.s.leave()
		}
		if err = c.t.lent(x, err); err == nil {
			a, err = c.inside(ctx)
		}
	default:
		err = c.s.shareNow(ctx, x, func(x *session) (err error) {
			a, err = c.atOnce(x, len(base) == 0)
			return err
		})
	}
	if err != nil {
		a = idempo.Acquired{}
	}
	return a, busy, err
}

// glance judges what was read without a lock. final says that nothing has to be locked for the answer.
func (c *claim) glance(base []idempo.Record, wait bool) (a idempo.Acquired, busy <-chan struct{}, final bool, err error) {
	a, _, write, err := c.judge(base, c.s.now(c.p.Now))
	if err != nil || !write {
		return a, nil, true, err
	}
	if a, busy, held := c.s.inProgress(c.p.Key, c.names, wait); held {
		return a, busy, true, nil
	}
	return a, nil, false, nil
}

// again answers a claim that was sent away from the line, because a transaction came to hold the key.
func (c *claim) again(wait bool) (idempo.Acquired, <-chan struct{}, error) {
	a, busy, held := c.s.inProgress(c.p.Key, c.names, wait)
	if !held { // it is over already: in progress a moment ago is a right answer, and asking again another
		now := make(chan struct{})
		close(now)
		return a, now, nil
	}
	return a, busy, nil
}

// judge decides on the records found. Of several, whichever refuses decides; one of another key that held an identity
// and is over does not count. from is what the claim is won from.
func (c *claim) judge(base []idempo.Record, now time.Time) (a idempo.Acquired, from *idempo.Record, write bool, err error) {
	for i, r := range base {
		if _, live := r.Effective(now); !live && c.p.Foreign(r) {
			continue
		}
		one, write, err := c.p.Judge(r, true, now)
		if err != nil || !write {
			return one, nil, false, err
		}
		if from == nil {
			a, from = one, &base[i]
		}
	}
	if from == nil {
		a, write, err = c.p.Judge(idempo.Record{}, false, now)
		return a, nil, write, err
	}
	return a, from, true, nil
}

// atOnce decides under the write lock and writes. fresh says that there was nothing a moment ago: then the insert asks.
func (c *claim) atOnce(x *session, fresh bool) (idempo.Acquired, error) {
	if fresh && len(c.names) == 1 {
		a, _, _, err := c.judge(nil, c.s.now(c.p.Now))
		if err != nil {
			return a, err
		}
		sqlkit.Micros(&a.Record)
		if won, err := x.insert(a.Record); err != nil || won {
			return a, err
		}
		x.wrote = 0 // it wrote nothing
	}
	base, err := x.find(c.p.Key, c.names)
	if err != nil {
		return idempo.Acquired{}, err
	}
	a, _, write, err := c.judge(base, c.s.now(c.p.Now))
	if err != nil || !write {
		return a, err
	}
	sqlkit.Micros(&a.Record)
	return a, x.put(base, a.Record, c.names)
}

// inside decides in the transaction, which it begins where it has to. t is locked.
func (c *claim) inside(ctx context.Context) (idempo.Acquired, error) {
	t := c.t
	if err := t.begin(ctx, keysOf(c.p.Key, c.names)); err != nil {
		return idempo.Acquired{}, err
	}
	if ch := t.change(c.p.Key, c.names); ch != nil {
		now := c.s.now(c.p.Now)
		r, found := ch.seen(now)
		a, write, err := c.p.Judge(r, found, now)
		if write && err == nil {
			sqlkit.Micros(&a.Record)
			ch.from, ch.found, ch.next = ch.next, ch.next.State != "", a.Record.Clone()
			ch.claim, ch.keep = !atOnce(c.p), atOnce(c.p)
			err = t.written(ch)
		}
		return a, err
	}
	base, err := t.x.find(c.p.Key, c.names)
	if err != nil {
		return idempo.Acquired{}, err
	}
	a, from, write, err := c.judge(base, c.s.now(c.p.Now))
	if err != nil || !write {
		return a, err
	}
	sqlkit.Micros(&a.Record)
	ch := &change{names: c.names, key: c.p.Key, base: base, next: a.Record.Clone(), claim: !atOnce(c.p), keep: atOnce(c.p)}
	if from != nil {
		ch.from, ch.found = from.Clone(), true
	}
	t.changes = append(t.changes, ch)
	if ch.claim {
		c.s.hold(t, keysOf(c.p.Key, c.names))
	}
	return a, t.written(ch)
}

// written writes ch at once where the transaction is the caller's own; the store's own writes at its commit. t is locked.
func (t *txn) written(ch *change) error {
	if t.own {
		return nil
	}
	return t.write(ch)
}

// hold notes that t has won keys, and answers everybody who waits in line for one of them.
func (s *Store) hold(t *txn, keys []idempo.Key) {
	s.mu.Lock()
	for k, other := range s.held {
		if other.gone() {
			delete(s.held, k)
		}
	}
	for _, k := range keys {
		s.held[k] = t
	}
	s.mu.Unlock()
	s.line.sendAway(keys)
}

// gone reports whether the caller's own transaction has ended; of the store's own the end is known. database/sql tells
// without a word to the database: a statement of no handle gets ErrTxDone from one that is over, another error else.
func (t *txn) gone() bool {
	return !t.own && errors.Is(t.x.tx.StmtContext(background{}, &sql.Stmt{}).Close(), sql.ErrTxDone)
}

// inProgress answers for a key that an open transaction of this process has won: nothing of it is known yet.
func (s *Store) inProgress(k idempo.Key, names []string, wait bool) (a idempo.Acquired, busy <-chan struct{}, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keysOf(k, names) {
		t := s.held[key]
		if t == nil || t.gone() {
			delete(s.held, key)
			continue
		}
		a = idempo.Acquired{Verdict: idempo.VerdictInProgress, RetryAfter: time.Second}
		a.Record = idempo.Record{Key: k, State: idempo.StatePending, Now: s.now(time.Time{})}
		switch {
		case !wait:
			return a, nil, true
		case !t.own: // its end cannot be heard: look again
			soon := make(chan struct{})
			time.AfterFunc(25*time.Millisecond, func() { close(soon) })
			return a, soon, true
		case t.done == nil:
			t.done = make(chan struct{})
		}
		return a, t.done, true
	}
	return a, nil, false
}

// Lookup implements idempo.Store. In a transaction it sees what the transaction did.
func (s *Store) Lookup(ctx context.Context, p idempo.LookupParams) (idempo.Record, error) {
	t, err := s.joined(ctx, "lookup", p.Key)
	if err != nil {
		return idempo.Record{}, err
	}
	r, err := s.lookup(ctx, t, p)
	if p.WithoutBody {
		r.Result.Body = nil
	}
	return r, failure("lookup", p.Key, err, false)
}

func (s *Store) lookup(ctx context.Context, t *txn, p idempo.LookupParams) (idempo.Record, error) {
	names := append([]string{p.Key.ID}, p.Aliases...)
	query := "find"
	if p.WithoutBody {
		query = "find_bodiless"
	}
	var base []idempo.Record
	var err error
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.own {
			if err := t.enter(s, "lookup", p.Key); err != nil {
				return idempo.Record{}, err
			}
		}
		if c := t.change(p.Key, names); c != nil {
			now := s.now(p.Now)
			r, _ := c.seen(now)
			r, _ = r.Effective(now)
			return r, nil
		}
	}
	if t != nil && t.x != nil && !t.ended {
		base, err = find(query, p.Key, names, t.x.query)
	} else {
		base, err = s.read(ctx, query, p.Key, names)
	}
	if err != nil {
		return idempo.Record{}, err
	}
	now := s.now(p.Now)
	for _, r := range base { // of several, the first that is still there
		if eff, live := r.Effective(now); live {
			return eff, nil
		}
	}
	return idempo.Record{Now: now}, nil
}

// read finds records on a reading connection: no lock, no line.
func (s *Store) read(ctx context.Context, name string, k idempo.Key, names []string) ([]idempo.Record, error) {
	return find(name, k, names, func(name string, args ...any) (*sql.Rows, error) { return s.readRows(ctx, name, args...) })
}
