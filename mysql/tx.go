package mysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

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

// InTx implements idempo.Transactor. The transaction is READ COMMITTED with lock waits of a second, whatever the
// defaults, and begins with the first call that needs it. When a result completed in it is Failing, everything is rolled
// back and that result alone is kept. The work must be repeatable until InTx returns: a conflict (code tx_conflict) is
// for the caller to try again as a whole.
func (s *Store) InTx(ctx context.Context, fn func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return &idempo.Error{Op: "begin", Code: "unavailable", Err: s.shown(err)}
	}
	if carried(ctx) != nil {
		return misuse("begin", idempo.Key{}, "the context carries a transaction already")
	}
	t := &session{own: true, lent: true, store: s}
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

// short runs f in a transaction of the store's own statements, again where the server gave it up.
func (s *Store) short(ctx context.Context, op string, key idempo.Key, f func(*session) error) error {
	for try := 1; ; try++ {
		t := &session{own: true, store: s}
		err := t.begin(ctx)
		if err != nil {
			return s.failed(op, key, err, reading)
		}
		if err = f(t); err != nil {
			t.rollback(ctx)
		} else {
			err = t.end(ctx)
		}
		n := s.number(err)
		if e, ok := errors.AsType[*idempo.Error](err); err == nil || ok && e.Code != "tx_conflict" || !ok && !conflict(n) || try > tries {
			return s.failed(op, key, err, reading)
		}
		if !pause(ctx, time.Duration(try)*5*time.Millisecond) {
			return s.failed(op, key, err, reading)
		}
	}
}

// abandon rolls back because the work ended with err, which it returns, unless the server gave the transaction up under
// the work.
func (t *session) abandon(ctx context.Context, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.on != nil {
		t.rollback(ctx)
	} else if err != nil && t.broken != nil { // why the work got no transaction
		return t.broken
	}
	if err != nil && conflict(t.store.number(err)) {
		return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: t.store.shown(err)}
	}
	return err
}

// commit ends the transaction after work that succeeded.
func (t *session) commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	switch {
	case t.broken != nil:
		if t.on != nil {
			t.rollback(ctx)
		}
		return t.broken
	case t.on == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	failing := false
	for _, c := range t.changes {
		failing = failing || c.alone != nil
	}
	if !failing { // claims that came to nothing are taken back
		for _, c := range t.changes {
			if err := t.undo(ctx, c); err != nil {
				t.rollback(ctx)
				return t.store.failed("commit", c.key, err, inside)
			}
		}
	}
	if err := t.same(ctx); err != nil {
		return err
	}
	if failing {
		t.rollback(ctx)
		return t.keepAlone(ctx)
	}
	return t.store.failed("commit", idempo.Key{}, t.end(ctx), inside)
}

// same makes sure that the transaction is still the one that was begun; where it is not, everything that can be is
// rolled back, and the error says what happened: nothing of it (tx_conflict), or the work committed it (tx_ended).
func (t *session) same(ctx context.Context) error {
	_, err := t.on.ExecContext(ctx, "release savepoint "+savepoint)
	s := t.store
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		t.rollback(ctx)
		return &idempo.Error{Op: "commit", Code: "tx_ended", Hint: "the work ended the transaction itself; idempo commits it"}
	case s.number(err) != noSavepoint:
		t.rollback(ctx)
		return s.failed("commit", idempo.Key{}, err, inside) // COMMIT was not sent
	}
	t.rollback(ctx)
	if len(t.changes) == 0 { // nothing of ours says what became of it
		return &idempo.Error{Op: "commit", Code: "tx_ended", Unknown: true, Hint: "the transaction was ended under idempo; it commits it itself"}
	}
	for _, c := range t.changes {
		r, err := s.read(ctx, s.db, c.key, []string{c.key.ID}, time.Time{})
		if err != nil {
			return &idempo.Error{Op: "commit", Code: "tx_ended", Unknown: true, Err: s.shown(err), Hint: "whether the work committed the transaction is not known"}
		}
		if len(r.rows) > 0 && r.rows[0].rec.Token.Equal(c.rec.Token) {
			return &idempo.Error{Op: "commit", Code: "tx_ended", KeyRef: c.key.Ref(), Hint: "a statement of the work committed the transaction (COMMIT, or DDL); idempo commits it"}
		}
	}
	return &idempo.Error{Op: "commit", Code: "tx_conflict", Hint: "the server rolled the transaction back, and the work went on"}
}

// keepAlone keeps the failing results, in a transaction of their own, as if nothing else had happened.
func (t *session) keepAlone(ctx context.Context) error {
	s := t.store
	for _, c := range t.changes {
		if c.alone == nil {
			continue
		}
		p := *c.alone
		err := s.short(ctx, "commit", c.key, func(x *session) error {
			r, err := s.lock(ctx, x, p.Key, c.ids, p.Now, wait)
			if err != nil {
				return err
			}
			old, over := r.pick(p.Won)
			rec, write, err := p.Judge(old.rec, old.rec.State != "", r.now)
			if err != nil || !write {
				return err
			}
			_, err = s.put(ctx, x, old, over, rec, c.ids)
			if err == nil {
				err = s.issueNext(ctx, x, p.Issue)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// end commits an own transaction and gives its connection back. An error of the server by which it rolled back is a
// conflict; whatever else is no answer to COMMIT.
func (t *session) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	s := t.store
	var err error
	if t.tx != nil {
		err = within(ctx, t.tx.Commit)
		defer t.stop()
	} else {
		_, err = t.conn.ExecContext(ctx, "commit")
	}
	switch n := s.number(err); {
	case err == nil:
		s.giveBack(ctx, t.conn, s.server.leave)
		return nil
	case errors.Is(err, errEndBudget):
		go drop(t.conn) // it waits for the answer
		return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true, Err: show(err, n)}
	case errors.Is(err, sql.ErrTxDone):
		drop(t.conn)
		return &idempo.Error{Op: "commit", Code: "tx_ended", Hint: "the work ended the transaction itself; idempo commits it"}
	case n == deadlock || n == snapshotOld:
		drop(t.conn)
		return &idempo.Error{Op: "commit", Code: "tx_conflict", Err: show(err, n)}
	default:
		drop(t.conn)
		return &idempo.Error{Op: "commit", Code: "unavailable", Unknown: true, Err: show(err, n)}
	}
}

// rollback ends an own transaction; where that fails the connection is closed, and the server rolls back.
func (t *session) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBudget)
	defer cancel()
	var err error
	if t.tx != nil {
		err = within(ctx, t.tx.Rollback)
		defer t.stop()
	}
	if t.tx == nil || errors.Is(err, sql.ErrTxDone) {
		_, err = t.conn.ExecContext(ctx, "rollback")
	}
	switch {
	case errors.Is(err, errEndBudget):
		go drop(t.conn) // it waits for the answer
		return
	case err != nil:
		drop(t.conn)
		return
	}
	t.store.giveBack(ctx, t.conn, t.store.server.leave)
}
