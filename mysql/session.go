package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

type sessionKey struct{}

// session is a transaction: one that a context carries, opened by InTx or the caller's own, or a short one of the store's
// own statements.
type session struct {
	own   bool   // opened by the store
	lent  bool   // by InTx: the work has it
	store *Store // of an own one

	mu      sync.Mutex
	on      queryer   // nil: not begun yet
	tx      *sql.Tx   // what the work gets
	conn    *sql.Conn // of an own one
	stop    func()    // ends the life of tx
	handed  bool      // the work asked for tx
	bound   *Store    // of a caller's: the store whose tables were found in it
	ended   bool
	broken  error // why it cannot commit
	changes []*change
}

// change is an atomic claim that was won in a session. Its row is in the table, pending, seen by this transaction only.
type change struct {
	ids     []string               // digests, the record's first
	key     idempo.Key             // of the row
	from    row                    // the row that was there; State "": none
	rec     idempo.Record          // as the transaction sees it
	aliases []string               // of the row
	claim   bool                   // not completed yet
	alone   *idempo.CompleteParams // a failing result: kept although everything else is undone
	read    time.Time              // this process's clock when rec.Now was read
}

// carried returns the session in ctx, or nil.
func carried(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// WithTx returns a context that carries the caller's own transaction: claims begun with it are part of tx, and only the
// caller commits or rolls back. A claim that the caller commits without its completion stays pending until its lease
// ends. After a deadlock (1213, or 1020) the server has rolled tx back: begin the whole transaction again. Use one such
// context for all calls of one transaction, and from one goroutine at a time.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, sessionKey{}, &session{on: tx, tx: tx})
}

// Tx returns the transaction that ctx carries, for the effect of an atomic claim: the one that InTx opened or the one of
// WithTx. Outside of a transaction it is nil. The store commits what InTx opened: a Commit or Rollback by the work, also
// as a statement or by a statement that commits implicitly (DDL), makes InTx fail with code tx_ended.
func Tx(ctx context.Context) *sql.Tx {
	t := carried(ctx)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.on == nil && !t.ended {
		if err := t.begin(ctx); err != nil {
			t.broken = t.store.failed("begin", idempo.Key{}, err, reading)
		}
	}
	if t.tx == nil {
		return sqlkit.FinishedTx() // InTx tells why when it ends
	}
	t.handed = true
	return t.tx
}

// savepoint tells at the end whether the transaction is still the one that was begun: whatever ended it (a deadlock that
// the work ignored, a COMMIT in the text of a statement, DDL) took the savepoint with it.
const savepoint = "idempo"

// begin opens the transaction of an own session. t is locked.
func (t *session) begin(ctx context.Context) error {
	s := t.store
	conn, err := s.dial(ctx, s.server.enter)
	if err != nil {
		return err
	}
	if !t.lent {
		t.conn, t.on = conn, conn
		return nil
	}
	// Once it is open it is detached from ctx: database/sql would roll it back when ctx ends, also while its COMMIT is on
	// the way.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	follow := context.AfterFunc(ctx, end)
	tx, err := conn.BeginTx(life, nil)
	if !follow() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "savepoint "+savepoint)
	}
	if err != nil {
		if tx != nil {
			_ = tx.Rollback()
		}
		end()
		drop(conn)
		return errNothing{err}
	}
	t.conn, t.tx, t.on, t.stop = conn, tx, tx, end
	return nil
}

// afresh begins an own transaction again that the server rolled back under its first claim, before the work had it; false
// where there is more to do again than that claim.
func (t *session) afresh(ctx context.Context) bool {
	if !t.lent || t.handed || len(t.changes) > 0 {
		return false
	}
	_, err := t.tx.ExecContext(ctx, "savepoint "+savepoint)
	return err == nil
}

// find returns the change that any of ids stands for.
func (t *session) find(key idempo.Key, ids []string) *change {
	for _, c := range t.changes {
		if c.key.Tenant != key.Tenant || c.key.Operation != key.Operation {
			continue
		}
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(c.ids, id) }) {
			return c
		}
	}
	return nil
}

// seen is the record as the transaction sees it; the lease of a claim is alive as long as the transaction is open.
func (c *change) seen(now time.Time) idempo.Record {
	r := c.rec.Clone()
	if c.claim && !r.LeaseUntil.After(now) {
		r.LeaseUntil = now.Add(time.Second)
	}
	return r
}

// now is the server's clock as far as the transaction knows it: what it read last, and the time since. given is a test's.
func (c *change) now(given time.Time) time.Time {
	if !given.IsZero() {
		return given
	}
	return c.rec.Now.Add(time.Since(c.read)).Truncate(time.Microsecond)
}

// drop forgets c: the table says what it was.
func (t *session) drop(c *change) {
	t.changes = slices.DeleteFunc(t.changes, func(x *change) bool { return x == c })
}

// enter returns the session in ctx for a call of this store, nil outside of a transaction, or why the call cannot start.
func (s *Store) enter(ctx context.Context, op string, key idempo.Key) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, &idempo.Error{Op: op, Code: "unavailable", KeyRef: key.Ref(), Err: s.shown(err)}
	}
	t := carried(ctx)
	if t == nil {
		return nil, nil
	}
	if t.own && t.store != s {
		return nil, misuse(op, key, "the transaction in this context belongs to another store")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, &idempo.Error{Op: op, Code: "tx_ended", KeyRef: key.Ref(), Hint: "the transaction in this context is over"}
	}
	if !t.own {
		return t, s.bind(ctx, t, op, key)
	}
	return t, nil
}

// bind makes sure, once per caller's transaction, that it runs where this store's tables are. t is locked.
func (s *Store) bind(ctx context.Context, t *session, op string, key idempo.Key) error {
	if t.bound == s {
		return nil
	}
	var id, database string
	err := each(ctx, t.on, s.q["meta"].with(nil), func(scan func(...any) error) error { return scan(&id, &database) })
	if n := s.number(err); err != nil && n != noTable && n != 1142 && n != 1044 && n != 1049 {
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrTxDone) {
			return &idempo.Error{Op: op, Code: "tx_ended", KeyRef: key.Ref(), Hint: "the transaction in this context is over"}
		}
		return s.failed(op, key, err, inside)
	}
	if id != s.id || database != s.database {
		return misuse(op, key, "the transaction in this context is of another database or store")
	}
	t.bound = s
	return nil
}
