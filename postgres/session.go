package postgres

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/internal/sqlkit"
)

type sessionKey struct{}

// session is the transaction that a context carries: one that InTx opened, or the caller's own. A claim that is won in
// it has no row before it is completed; what the transaction knows of such keys stands in changes.
type session struct {
	own   bool   // opened by InTx
	store *Store // of an own one

	mu      sync.Mutex
	tx      PortTx // nil: not begun yet
	start   any    // its start on the server's clock, by which a commit knows that it is still the same one
	bound   *Store // of a caller's: the store whose tables were found in it
	ended   bool
	broken  error // why it cannot commit
	changes []*change
	queue   []Statement // sent together with COMMIT

	foreseen map[idempo.Key]*foreseen
	entries  map[entry]*entering
}

// change is one key of a session: what stands in the table, and what the transaction makes of it.
type change struct {
	ids    []string // digests, the record's first
	key    idempo.Key
	from   idempo.Record   // the row that was read; State "": none
	over   []idempo.Record // records of other keys that are gone, and leave when rec is written
	rec    idempo.Record   // as the transaction sees it; State "": none
	claim  bool            // won here, not written yet
	queued bool            // its completion waits for COMMIT
	read   time.Time       // this process's clock when rec.Now was read
	fail   []Statement     // of a failing result: what is kept of the transaction
}

// carried returns the session in ctx, or nil.
func carried(ctx context.Context) *session {
	s, _ := ctx.Value(sessionKey{}).(*session)
	return s
}

// WithTx returns a context that carries the caller's own transaction: claims begun with it are part of tx, and only the
// caller commits or rolls back. A lost race is a verdict at READ COMMITTED and code tx_conflict (40001) at a higher
// level. Use one such context for all calls of one transaction, and from one goroutine at a time.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return Join(ctx, &sqlTx{tx: tx})
}

// Tx returns the transaction that ctx carries, for the effect of an atomic claim: the one that InTx opened or the one of
// WithTx. Outside of a transaction, or in one of another driver, it is nil. The store commits what InTx opened: a Commit
// or Rollback by the work itself makes InTx fail with code tx_ended.
func Tx(ctx context.Context) *sql.Tx {
	tx, err := Joined(ctx)
	if err != nil {
		return sqlkit.FinishedTx() // InTx tells why when it ends
	}
	if t, ok := tx.(*sqlTx); ok {
		return t.tx
	}
	return nil
}

// Join returns a context that carries tx, a transaction of a Port that its caller ends. It is what WithTx is made of.
func Join(ctx context.Context, tx PortTx) context.Context {
	return context.WithValue(ctx, sessionKey{}, &session{tx: tx})
}

// Joined returns the transaction that ctx carries, nil if none. One that InTx has not begun yet is begun.
func Joined(ctx context.Context) (PortTx, error) {
	s := carried(ctx)
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tx == nil && s.ended {
		return nil, &idempo.Error{Op: "begin", Code: "tx_ended", Hint: "the transaction in this context is over"}
	}
	if s.tx == nil {
		if err := s.begin(ctx); err != nil {
			s.broken = failed("begin", idempo.Key{}, err, false)
			return nil, s.broken
		}
	}
	return s.tx, nil
}

// begin opens the transaction of an own session. s is locked.
func (s *session) begin(ctx context.Context, more ...Statement) error {
	first := s.store.q["begin"].with(nil, "idle", s.store.o.idle())
	first.Row = func(scan func(...any) error) error {
		var set string
		var start int64
		err := scan(&set, &start)
		s.start = start
		return err
	}
	tx, err := s.store.port.Begin(ctx, append([]Statement{first}, more...)...)
	if err == nil {
		s.tx = tx
	}
	return err
}

// find returns the change that any of ids stands for.
func (s *session) find(key idempo.Key, ids []string) *change {
	for _, c := range s.changes {
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
func (c *change) seen(now time.Time) (idempo.Record, bool) {
	r := c.rec
	if c.claim && !r.LeaseUntil.After(now) {
		r.LeaseUntil = now.Add(time.Second)
	}
	return r, r.State != ""
}

// enter returns the session in ctx for a call of this store, nil outside of a transaction, or why the call cannot start.
func (s *Store) enter(ctx context.Context, op string, key idempo.Key) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, &idempo.Error{Op: op, Code: "unavailable", KeyRef: key.Ref(), Err: shown(err)}
	}
	t := carried(ctx)
	if t == nil {
		return nil, nil
	}
	if t.own && t.store != s {
		return nil, misuse(op, key, "the transaction in this context belongs to another store")
	}
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended {
		return nil, &idempo.Error{Op: op, Code: "tx_ended", KeyRef: key.Ref(), Hint: "the transaction in this context is over"}
	}
	if !t.own {
		return t, s.bind(ctx, t, op, key)
	}
	return t, nil
}

// bind makes sure, once per caller's transaction, that it runs where this store's tables are. The first question fails
// in no database; only then are the tables touched.
func (s *Store) bind(ctx context.Context, t *session, op string, key idempo.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bound == s {
		return nil
	}
	var here bool
	place := s.q["place"].with(nil, "records", s.names.Table("records"))
	place.Row = func(scan func(...any) error) error { return scan(&here) }
	if err := s.port.Run(ctx, t.tx, place); err != nil {
		return failed(op, key, err, true)
	}
	var id string
	if here {
		same := s.q["id"].with(nil)
		same.Row = func(scan func(...any) error) error { return scan(&id) }
		if err := s.port.Run(ctx, t.tx, same); err != nil {
			return failed(op, key, err, true)
		}
	}
	if id != s.id {
		return misuse(op, key, "the transaction in this context is of another database or store")
	}
	t.bound = s
	return nil
}

func misuse(op string, key idempo.Key, hint string) error {
	return &idempo.Error{Op: op, Code: "misuse", KeyRef: key.Ref(), Hint: hint}
}
