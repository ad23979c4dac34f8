package memstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

type txKey struct{}

// Tx is an open transaction: what its claims won is held against everybody else until it ends, what it wrote is
// applied at once by its commit. A Tx is for one goroutine at a time.
type Tx struct {
	store *Store
	own   bool          // opened by InTx
	done  chan struct{} // closed at its end

	// Under store.mu:
	ended   bool
	changes []*change
	effects []func()
	one     [1]*change // room for the usual number of changes
	lost    error      // a Complete that met another winner: the transaction cannot commit
	shelf   *overlay   // what it did to receipts and lanes; nil: nothing
	keys    []eventKey // of events, held against other appends
	waits   *Tx        // who holds the key it waits for
}

// A change is one record of a transaction.
type change struct {
	names []idempo.Key
	base  []*row // what it builds on; empty: nothing was there
	from  *row   // what its claim was won from, nil: nothing
	next  *row   // the record as the transaction sees it; nil: nothing, or removed
	claim bool   // won here, not written yet
	keep  bool   // next is written at the commit
	alone bool   // a failing result, or the key issued with it: kept although everything else is undone
}

// won notes that the transaction won next where from was.
func (c *change) won(from, next *row, keep bool) {
	c.from, c.next, c.claim, c.keep = from, next, !keep, keep
}

// seen is the record inside the transaction, where a claim's lease is alive as long as the transaction is open.
func (c *change) seen(now time.Time) (idempo.Record, bool) {
	r, found := c.next.record()
	if c.claim && !r.LeaseUntil.After(now) {
		r.LeaseUntil = now.Add(time.Second)
	}
	return r, found
}

// InTx implements idempo.Transactor. Inside fn an effect is given to OnCommit. A transaction inside another is misuse.
// When a result completed in it is Failing, the commit keeps that result alone: no other record, no effect.
func (s *Store) InTx(ctx context.Context, fn func(context.Context) error) error {
	ctx, tx, err := s.begin(ctx, true)
	if err != nil {
		return err
	}
	defer tx.Rollback() // on error, panic and Goexit; after the commit it does nothing
	if err := fn(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

// Begin opens a transaction of the caller's own, the counterpart of postgres.WithTx: claims made with the returned
// context are part of it. The caller must end it by Commit or Rollback.
func (s *Store) Begin(ctx context.Context) (context.Context, *Tx, error) { return s.begin(ctx, false) }

func (s *Store) begin(ctx context.Context, own bool) (context.Context, *Tx, error) {
	if tx, _, err := s.Joined(ctx); tx || err != nil {
		return ctx, nil, misuse("begin", idempo.Key{}, "the context carries a transaction already")
	}
	if err := ctx.Err(); err != nil {
		return ctx, nil, unavailable("begin", idempo.Key{}, err)
	}
	tx := &Tx{store: s, own: own}
	tx.changes = tx.one[:0]
	return context.WithValue(ctx, txKey{}, tx), tx, nil
}

// OnCommit has f called when the transaction in ctx commits, and never if it rolls back. Its effect appears together
// with the records of the transaction: nobody sees one without the other. f must be short, must not call the store and
// must not panic. OnCommit outside an open transaction panics.
func OnCommit(ctx context.Context, f func()) {
	tx := Current(ctx)
	if tx == nil {
		panic("memstore: OnCommit outside a transaction")
	}
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ended {
		panic("memstore: OnCommit after the end of its transaction")
	}
	tx.effects = append(tx.effects, f)
}

// Current returns the transaction that ctx carries, or nil. It may be over.
func Current(ctx context.Context) *Tx {
	tx, _ := ctx.Value(txKey{}).(*Tx)
	return tx
}

// Joined implements idempo.Joiner.
func (s *Store) Joined(ctx context.Context) (tx, own bool, err error) {
	t := Current(ctx)
	switch {
	case t == nil:
		return false, false, nil
	case t.store != s:
		return true, false, misuse("join", idempo.Key{}, "the transaction in this context belongs to another store")
	}
	return true, t.own, nil
}

// enter returns the transaction in ctx, or why the call op cannot start.
func (s *Store) enter(ctx context.Context, op string, k idempo.Key) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, unavailable(op, k, err)
	}
	if _, _, err := s.Joined(ctx); err != nil {
		return nil, err
	}
	return Current(ctx), nil
}

// find returns the change under one of names; a nil transaction has none.
func (tx *Tx) find(names []idempo.Key) *change {
	if tx == nil {
		return nil
	}
	for _, c := range tx.changes {
		if slices.ContainsFunc(names, func(k idempo.Key) bool { return slices.Contains(c.names, k) }) {
			return c
		}
	}
	return nil
}

// hold makes c part of the transaction, and its names nobody else's.
func (tx *Tx) hold(c *change) {
	tx.changes = append(tx.changes, c)
	for _, k := range c.names {
		tx.store.held[k] = tx
	}
}

// update judges w inside the transaction and notes it for the commit. The store is locked.
func (tx *Tx) update(w write, now time.Time) (idempo.Record, error) {
	s, done := tx.store, w.done
	c := tx.find([]idempo.Key{w.key})
	if c == nil { // a leased claim whose write joins this transaction
		c = &change{}
		if r := s.rows[w.key]; r != nil {
			c.names, c.base, c.next = r.keys(), []*row{r}, r
		}
	}
	r, found := c.seen(now)
	if done != nil && done.Won.Guard == idempo.GuardAtomic {
		switch own := found && r.Token.Equal(done.Token); {
		case own && c.claim:
			r, found = c.from.record() // the completion is written over what was there before
		case own && c.keep:
			done.Won.Guard = idempo.GuardLeased // settled above: by the rules of a row
		default:
			tx.lost = &idempo.Error{Op: "complete", Code: "lease_lost", KeyRef: w.key.Ref(), Attempt: r.Attempt}
			return idempo.Record{}, tx.lost
		}
	}
	rec, write, err := w.judge(r, found, now)
	if err != nil {
		if done != nil && errors.Is(err, idempo.ErrLeaseLost) {
			tx.lost = err
		}
		return idempo.Record{}, err
	}
	if !write {
		return rec, nil
	}
	failing := done != nil && done.Result.Failing
	if done != nil && done.Issue != nil {
		next, k, write, err := s.issue(done.Issue, now)
		if err != nil {
			return idempo.Record{}, err
		}
		if write {
			tx.hold(&change{names: k, base: s.find(k), next: s.row(k, next), keep: true, alone: failing})
		}
	}
	if !slices.Contains(tx.changes, c) {
		tx.changes = append(tx.changes, c)
	}
	c.next = nil
	if rec.State != "" {
		c.next = s.row(w.kept(c.names), rec)
	}
	c.claim = c.claim && rec.State == idempo.StatePending // a renewed claim is still to be completed
	c.keep, c.alone = !c.claim, failing
	return rec, nil
}

// Commit ends the transaction and applies all it wrote, or nothing: with ErrLeaseLost when a completed key was lost,
// code tx_conflict when a joined write met another's, tx_ended when it is over already, unavailable when the store is
// full.
func (tx *Tx) Commit() error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.ended {
		return ended("commit", idempo.Key{})
	}
	defer tx.end()
	if tx.lost != nil {
		return tx.lost
	}
	failed := tx.own && slices.ContainsFunc(tx.changes, func(c *change) bool { return c.alone })
	kept := func(c *change) bool { return c.keep && (c.alone || !failed) }
	fresh := 0
	for _, c := range tx.changes {
		if !kept(c) {
			continue
		}
		if err := c.check(s); err != nil {
			return err
		}
		if len(c.base) == 0 && c.next != nil {
			fresh++
		}
	}
	if fresh > 0 && s.full(fresh, s.now(time.Time{})) {
		return full("commit", idempo.Key{})
	}
	for _, f := range tx.effects {
		if !failed {
			f()
		}
	}
	for _, c := range tx.changes {
		switch {
		case !kept(c):
		case c.next != nil:
			for _, r := range c.base {
				next, _ := c.next.record()
				s.replaced(r, next)
			}
			s.put(c.next)
		default:
			for _, r := range c.base {
				s.remove(s.rows[r.key()])
			}
		}
	}
	return nil
}

// check returns an error if what c builds on is no longer what is there.
func (c *change) check(s *Store) error {
	for _, k := range c.names {
		if r := s.rows[k]; r != nil && !slices.Contains(c.base, r) {
			return c.beaten(k)
		}
	}
	for _, r := range c.base {
		if k := r.key(); s.rows[k] != r {
			return c.beaten(k)
		}
	}
	return nil
}

// beaten is the error of a commit that finds another row than the one c builds on.
func (c *change) beaten(k idempo.Key) error {
	rec, _ := c.next.record()
	code := "tx_conflict"
	if rec.Guard == idempo.GuardAtomic {
		code = "lease_lost"
	}
	return &idempo.Error{Op: "commit", Code: code, KeyRef: k.Ref(), Attempt: rec.Attempt}
}

// Rollback ends the transaction and forgets all it did. After its end it does nothing.
func (tx *Tx) Rollback() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if !tx.ended {
		tx.end()
	}
}

// end gives back what the transaction holds and wakes who waits for it. The store is locked.
func (tx *Tx) end() {
	for _, c := range tx.changes {
		for _, k := range c.names {
			if tx.store.held[k] == tx {
				delete(tx.store.held, k)
			}
		}
	}
	if tx.shelf != nil {
		for _, id := range tx.shelf.lanes {
			delete(tx.store.shelf.held, id)
		}
	}
	tx.ended, tx.changes, tx.effects = true, nil, nil
	for _, k := range tx.keys {
		tx.store.ledger.next(k)
	}
	if tx.done != nil {
		close(tx.done)
	}
}
