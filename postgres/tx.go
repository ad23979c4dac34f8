package postgres

import (
	"context"
	"errors"

	"github.com/idempo/idempo"
)

// Joined implements idempo.Joiner.
func (s *Store) Joined(ctx context.Context) (tx, own bool, err error) {
	t := carried(ctx)
	switch {
	case t == nil:
		return false, false, nil
	case t.own && t.store != s:
		return true, false, misuse("join", idempo.Key{}, "the transaction in this context belongs to another store")
	}
	return true, t.own, nil
}

// InTx implements idempo.Transactor. The transaction is READ COMMITTED, whatever the defaults, and begins with the first
// call that needs it. What Complete left to the end is sent together with COMMIT. When a result completed in it is
// Failing, everything is rolled back and that result alone is kept. The work must be repeatable until InTx returns: a
// conflict (code tx_conflict) is for the caller to try again as a whole.
func (s *Store) InTx(ctx context.Context, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &idempo.Error{Op: "begin", Code: "unavailable", Err: shown(err)}
	}
	if carried(ctx) != nil {
		return misuse("begin", idempo.Key{}, "the context carries a transaction already")
	}
	t := &session{own: true, store: s}
	returned := false
	defer func() {
		if !returned { // panic or Goexit goes on when nothing of the transaction is left
			_ = t.abandon(ctx, nil)
		}
	}()
	err := fn(context.WithValue(ctx, sessionKey{}, t))
	returned = true
	if err != nil {
		return t.abandon(ctx, err)
	}
	return t.commit(ctx)
}

// abandon rolls back because the work ended with err, which it returns, unless the server gave the transaction up under
// the work.
func (t *session) abandon(ctx context.Context, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	var noted error
	if t.tx != nil {
		noted = t.store.port.Rollback(ctx, t.tx)
	}
	switch {
	case err == nil:
		return nil
	case Conflict(err) || Gone(err): // the server ended the transaction; nothing of it can be committed
		return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: shown(err)}
	case noted != nil:
		return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: shown(noted)}
	}
	return err
}

// commit ends the transaction after work that succeeded.
func (t *session) commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	port := t.store.port
	switch {
	case t.broken != nil:
		if t.tx != nil {
			_ = port.Rollback(ctx, t.tx)
		}
		return t.broken
	case t.tx == nil:
		return nil
	}
	var kept []Statement
	for _, c := range t.changes {
		kept = append(kept, c.fail...)
	}
	if kept != nil {
		err := port.Rollback(ctx, t.tx, kept...)
		if _, sent := errors.AsType[*PortError](err); err != nil && !sent { // noted of the work
			return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: shown(err)}
		}
		return ended(err, true)
	}
	return ended(port.Commit(ctx, t.tx, t.queue...), false)
}

// ended is what InTx returns for what the port said of the end. autocommit: the error is of what was kept after a
// rollback.
func ended(err error, autocommit bool) error {
	if err == nil {
		return nil
	}
	key := idempo.Key{}
	p, ported := errors.AsType[*PortError](err)
	state := sqlState(err)
	_, told := errors.AsType[*TxError](err)
	if !told && ported && p.Sent && (state == "" || cut(state)) {
		return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true, Err: shown(err)}
	}
	if told && state != "" && !conflict(state) {
		t, _ := errors.AsType[*TxError](err)
		return &idempo.Error{Op: "commit", Code: t.Code, Err: shown(t.Err)}
	}
	return failed("commit", key, err, !autocommit)
}
