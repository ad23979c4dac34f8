package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
)

type txnKey struct{}

// txn is a transaction that travels in a context: opened by InTx, or the caller's own. One opened by InTx begins, and
// takes the write lock, at the first call that needs it.
type txn struct {
	store *Store // of the caller's own: nil until the first call
	own   bool

	mu      sync.Mutex
	x       *session  // nil: not begun
	failed  error     // why it could not begin
	dead    []*sql.DB // serve Tx after failed
	ended   bool
	checked bool // the caller's own: it is this store's file, and holds the write lock
	changes []*change
	lost    error         // a Complete that met another winner: it cannot commit
	done    chan struct{} // closed at its end, where somebody waits for it; guarded by store.mu
}

// change is one record of a transaction.
type change struct {
	names []string
	key   idempo.Key             // of the call, for its tenant and operation
	base  []idempo.Record        // what is in the table under names
	from  idempo.Record          // what its claim was won from
	found bool                   // whether there was anything
	next  idempo.Record          // the record as the transaction sees it; State "": none
	claim bool                   // won here, not written yet
	keep  bool                   // next is to be written
	alone *idempo.CompleteParams // a failing result: kept although everything else is undone
	free  []string               // identities given back
	issue *idempo.AcquireParams  // the next one-time key
}

// seen is the record inside the transaction, where a claim's lease is alive as long as the transaction is open.
func (c *change) seen(now time.Time) (idempo.Record, bool) {
	r := c.next.Clone()
	if c.claim && !r.LeaseUntil.After(now) {
		r.LeaseUntil = now.Add(time.Second)
	}
	return r, r.State != ""
}

// WithTx returns a context whose claims are part of tx, a transaction the caller began, with _txlock=immediate, on the
// file of the store. The caller commits it or rolls it back; the store does neither. Make one such context for a
// transaction, and use it from one goroutine at a time.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txnKey{}, &txn{x: &session{tx: tx}})
}

// Tx returns the transaction in ctx, nil outside. In one that the store opened, it begins here, and takes the write
// lock, unless a claim has begun it already. Where it cannot begin, or is over, every use of what Tx returns fails, and
// InTx returns why. Never commit it or roll it back.
func Tx(ctx context.Context) *sql.Tx {
	t, _ := ctx.Value(txnKey{}).(*txn)
	switch {
	case t == nil:
		return nil
	case !t.own:
		return t.x.tx
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.begin(ctx, nil); err != nil {
		return t.refusing(err)
	}
	return t.x.tx
}

// Joined implements idempo.Joiner.
func (s *Store) Joined(ctx context.Context) (tx, own bool, err error) {
	t, err := s.joined(ctx, "join", idempo.Key{})
	return t != nil || err != nil, t != nil && t.own, err
}

func (s *Store) joined(ctx context.Context, op string, k idempo.Key) (*txn, error) {
	t, _ := ctx.Value(txnKey{}).(*txn)
	if t != nil && t.own && t.store != s {
		return nil, misuse(op, k, "the transaction in this context belongs to another store")
	}
	return t, nil
}

// InTx implements idempo.Transactor. The transaction begins with fn's first claim that is not answered by a record
// already there, or with the first Tx. When a result completed in it is Failing, the commit keeps that result alone.
// A transaction inside another is misuse. Nothing but Tx(ctx) may write to the file meanwhile.
func (s *Store) InTx(ctx context.Context, fn func(context.Context) error) error {
	if t, err := s.joined(ctx, "begin", idempo.Key{}); t != nil || err != nil {
		return misuse("begin", idempo.Key{}, "the context carries a transaction already")
	}
	if ctx.Err() != nil {
		return failure("begin", idempo.Key{}, context.Cause(ctx), false)
	}
	t := &txn{store: s, own: true}
	defer t.over() // on error, panic and Goexit; after the commit it does nothing
	err := fn(context.WithValue(ctx, txnKey{}, t))
	t.mu.Lock()
	defer t.mu.Unlock()
	switch code := resultCode(err); {
	case t.failed != nil:
		return t.failed
	case err != nil && (code == codeBusySnapshot || busy(err)):
		return &idempo.Error{Op: "in_tx", Code: "tx_conflict", Err: shown(err), Hint: "inside a transaction of the store write to its file through sqlite.Tx(ctx) only"}
	case err != nil:
		return err
	case t.lost != nil:
		return t.lost
	case t.x == nil:
		return nil
	}
	return t.commit()
}

// begin opens the transaction if it is not open. names are the digests of the claim that needs it: errOpen says that
// another transaction took one of them meanwhile. t is locked.
func (t *txn) begin(ctx context.Context, keys []idempo.Key) error {
	switch {
	case t.ended:
		return &idempo.Error{Op: "begin", Code: "tx_ended", Hint: "the transaction in this context is over"}
	case t.x != nil:
		return nil
	case t.failed != nil:
		return t.failed
	}
	s := t.store
	err := s.line.enter(ctx, keys)
	if err != nil {
		if errors.Is(err, errOpen) {
			return err
		}
		return t.lent(nil, err)
	}
	x, err := s.session(ctx)
	if err == nil {
		err = x.lend(ctx)
	}
	if err != nil {
		s.leave()
	}
	return t.lent(x, err)
}

// lent notes that the transaction has begun in x, or why it could not. t is locked.
func (t *txn) lent(x *session, err error) error {
	if err != nil {
		t.failed = failure("begin", idempo.Key{}, err, false)
		return t.failed
	}
	t.x = x
	return nil
}

// over ends the transaction: rolls back what is open, lets the next in line begin, wakes who waits for a key.
func (t *txn) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	if t.x != nil {
		t.x.rollback()
	}
	s := t.store
	s.mu.Lock()
	for k, holder := range s.held {
		if holder == t {
			delete(s.held, k)
		}
	}
	if t.done != nil {
		close(t.done)
	}
	s.mu.Unlock()
	if t.x != nil {
		s.leave()
	}
	for _, db := range t.dead {
		_ = db.Close()
	}
}

// commit writes what the transaction's claims became and commits, or keeps failing results alone. t is locked.
func (t *txn) commit() error {
	x := t.x
	if slices.ContainsFunc(t.changes, func(c *change) bool { return c.alone != nil }) {
		return t.keepAlone()
	}
	if err := t.alive(); err != nil {
		x.rollback()
		return err
	}
	for _, c := range t.changes {
		if err := t.write(c); err != nil {
			x.rollback()
			return failure("commit", c.key, err, false)
		}
	}
	unknown, err := x.end()
	return failure("commit", idempo.Key{}, committed(err), unknown)
}

// committed words what a failed COMMIT means where it is no fault of the store.
func committed(err error) error {
	if primary(resultCode(err)) == codeConstraint {
		return &idempo.Error{Op: "commit", Code: "tx_aborted", Err: shown(err), Hint: "a deferred constraint is violated; everything was rolled back"}
	}
	return err
}

// alive returns an error if the work, or SQLite, ended the transaction under the store. Asking is one statement that
// must fail: inside a transaction there is no second BEGIN. On a handle that Open made the guard knows more.
func (t *txn) alive() error {
	_, err := t.x.tx.ExecContext(background{}, "BEGIN")
	if e, ok := errors.AsType[*idempo.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return &idempo.Error{Op: "commit", Code: "tx_ended", Err: err, Hint: "the work ended the transaction of the store"}
	case err == nil:
		return &idempo.Error{Op: "commit", Code: "tx_ended", Hint: "a statement of the work ended the transaction, or SQLite rolled it back after an error that the work ignored"}
	}
	return nil
}

// keepAlone undoes everything and keeps the failing results, in a transaction of their own.
func (t *txn) keepAlone() error {
	t.x.rollback()
	s := t.store
	x, err := s.session(background{})
	if err == nil {
		err = x.begin(background{})
	}
	if err != nil {
		return failure("commit", idempo.Key{}, err, false)
	}
	for _, c := range t.changes {
		if c.alone == nil {
			continue
		}
		if err := s.completeAlone(x, c); err != nil {
			x.rollback()
			return failure("commit", c.key, err, false)
		}
	}
	unknown, err := x.end()
	return failure("commit", idempo.Key{}, err, unknown)
}

// completeAlone writes the failing result of c as if nothing else had happened in its transaction.
func (s *Store) completeAlone(x *session, c *change) error {
	p := *c.alone
	base, err := x.find(p.Key, c.names)
	if err != nil {
		return err
	}
	now := s.now(p.Now)
	r, found := pick(base, p.Won, now)
	rec, write, err := p.Judge(r, found, now)
	if err != nil {
		return err
	}
	if write {
		if err := x.put(base, rec, c.names); err != nil {
			return err
		}
	}
	if p.Issue != nil {
		_, err = s.issue(x, *p.Issue, now)
	}
	return err
}

// write puts c into the table if it is to be kept.
func (t *txn) write(c *change) error {
	if !c.keep {
		return nil
	}
	c.keep = false
	if c.next.State == "" {
		for _, b := range c.base {
			if err := t.x.remove(b.Key); err != nil {
				return err
			}
		}
		c.base = nil
		return nil
	}
	if err := t.x.put(c.base, c.next, c.names); err != nil {
		return err
	}
	c.base = []idempo.Record{c.next.Clone()}
	if err := t.x.free(c.next.Key, c.free); err != nil || c.issue == nil {
		return err
	}
	p := *c.issue
	c.issue = nil
	_, err := t.store.issue(t.x, p, t.store.now(c.next.ChangedAt))
	return err
}

// change returns the transaction's record under one of names, nil if it has none.
func (t *txn) change(k idempo.Key, names []string) *change {
	for _, c := range t.changes {
		if c.key.Tenant == k.Tenant && c.key.Operation == k.Operation &&
			slices.ContainsFunc(names, func(id string) bool { return slices.Contains(c.names, id) }) {
			return c
		}
	}
	return nil
}

// enter makes the caller's own transaction ready: it must be of this store's file, and holds the write lock from here.
// t is locked.
func (t *txn) enter(s *Store, op string, k idempo.Key) error {
	if t.checked {
		if t.store != s {
			return misuse(op, k, "the transaction in this context belongs to another store")
		}
		return nil
	}
	t.store, t.x.s = s, s
	_, err := t.x.exec("touch") // first: a transaction that reads before it writes can be overtaken
	var id string
	if err == nil {
		err = t.x.tx.QueryRowContext(background{}, s.queries["meta"].text, "store_id").Scan(&id)
	}
	if err == nil && id != s.id || resultCode(err) == codeError || errors.Is(err, sql.ErrNoRows) {
		return misuse(op, k, "the transaction in this context is not one of this store's file")
	}
	if err != nil {
		return failure(op, k, err, false)
	}
	t.checked = true
	return nil
}

func first(base []idempo.Record) (idempo.Record, bool) {
	if len(base) == 0 {
		return idempo.Record{}, false
	}
	return base[0], true
}

// pick returns the record that p is judged on: of another key that held an identity and is over, nothing counts.
func pick(base []idempo.Record, p idempo.AcquireParams, now time.Time) (idempo.Record, bool) {
	for _, r := range base {
		if _, live := r.Effective(now); live || !p.Foreign(r) {
			return r, true
		}
	}
	return idempo.Record{}, false
}
