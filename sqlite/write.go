package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/idempo/idempo"
)

// maxShared is how many works share one commit at most.
const maxShared = 256

// share runs do in a transaction together with others that wait, and returns once its commit is durable. do must only
// use the session, and is left out when ctx ends before it was reached. Where nobody else is in the line the caller does it
// all by itself, and waits for its COMMIT whatever ctx says. keys are the claim's, see queue.
func (s *Store) share(ctx context.Context, op string, k idempo.Key, keys []idempo.Key, do func(*session) error) error {
	if ctx.Err() != nil {
		return failure(op, k, context.Cause(ctx), false)
	}
	if s.line.tryEnter() {
		x, err := s.session(ctx)
		if err != nil {
			s.leave()
			return failure(op, k, err, false)
		}
		return failure(op, k, s.shareNow(ctx, x, do), false)
	}
	w := newWork(do)
	t := &turn{keys: keys, work: w}
	lead, err := s.line.add(t)
	if err != nil {
		return failure(op, k, err, false)
	}
	if lead {
		s.wake <- struct{}{}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if s.line.drop(t) {
			return failure(op, k, context.Cause(ctx), false)
		}
		<-w.ran // short, and the caller's memory is not looked at afterwards
		select {
		case <-w.done:
		default:
			return failure(op, k, context.Cause(ctx), true)
		}
	}
	return w.err
}

// shareNow is share for a caller that holds the line and has a session: nobody is waited for.
func (s *Store) shareNow(ctx context.Context, x *session, do func(*session) error) error {
	defer s.leave()
	if err := x.begin(ctx); err != nil {
		return err
	}
	w := newWork(do)
	s.commit(x, []*work{w})
	return w.err
}

// serve commits works whenever the line comes to some, until Close. It is one goroutine for the life of the store:
// SQLite needs a deep stack, which a new one would have to grow each time.
func (s *Store) serve() {
	for range s.wake {
		for again := true; again; again = s.line.leave() {
			x, err := s.session(background{})
			if err == nil {
				err = x.begin(background{})
			}
			batch := s.line.take(maxShared)
			if err != nil {
				ran(batch)
				finish(batch, failure("begin", idempo.Key{}, err, false))
				continue
			}
			s.commit(x, batch)
		}
	}
}

// leave passes the connection on.
func (s *Store) leave() {
	if s.line.leave() {
		s.wake <- struct{}{}
	}
}

// commit runs works in the transaction x and answers them after its commit. Those that come meanwhile come along: they
// cost no commit.
func (s *Store) commit(x *session, batch []*work) {
	all, err := batch, error(nil)
	for len(batch) > 0 && err == nil {
		for i, w := range batch {
			if err = x.run(w, i == 0 && len(all) == len(batch)); err != nil {
				ran(batch[i:])
				break
			}
			close(w.ran)
		}
		if err == nil {
			batch = s.line.take(maxShared - len(all))
			all = append(all, batch...)
		}
	}
	if err != nil || len(all) == 0 {
		x.rollback()
		finish(all, failure("write", idempo.Key{}, err, false))
		return
	}
	unknown, err := x.end()
	finish(all, failure("commit", idempo.Key{}, err, unknown))
}

func newWork(do func(*session) error) *work {
	return &work{do: do, ran: make(chan struct{}), done: make(chan struct{})}
}

// ran says of works that they do not look at their callers' memory any more.
func ran(ws []*work) {
	for _, w := range ws {
		close(w.ran)
	}
}

// finish answers works after the commit, or its failure, which outweighs what they found.
func finish(ws []*work, err error) {
	for _, w := range ws {
		if err != nil {
			w.err = err
		}
		close(w.done)
	}
}

// run runs one work so that its failure undoes nothing but itself: what the first one did is undone with the
// transaction, a single statement undoes itself, and several stand in a savepoint. An error says that the transaction
// is gone.
func (x *session) run(w *work, first bool) error {
	x.shared, x.marked, x.wrote = !first, false, 0
	w.err = w.do(x)
	x.shared = false
	switch {
	case w.err == nil && x.marked:
		return x.w.word("RELEASE work")
	case w.err == nil || x.wrote == 0: // most failures are verdicts
		return nil
	case first:
		_ = x.w.word("ROLLBACK") // SQLite may have done it already
		return x.w.word("BEGIN IMMEDIATE")
	case x.marked:
		if err := x.w.word("ROLLBACK TO work"); err == nil {
			return x.w.word("RELEASE work")
		}
	case x.w.word("BEGIN") != nil: // inside a transaction there is no second: so it is still there
		return nil
	}
	return fmt.Errorf("SQLite rolled the transaction back: %v", shown(w.err))
}

// session is the store's statements on the writing connection, before any transaction: each statement is one. The
// caller holds the line.
func (s *Store) session(ctx context.Context) (*session, error) {
	w, err := s.takeWire(ctx)
	if err != nil {
		return nil, err
	}
	return &session{s: s, w: w}, nil
}

// begin opens a transaction for the store's own statements; it holds the write lock. ctx bounds the wait for the lock.
// After an error the session is over.
func (x *session) begin(ctx context.Context) error {
	err := x.w.beginImmediate(ctx)
	if err == nil {
		err = x.syncClock()
	}
	if err != nil {
		x.rollback()
	}
	return err
}

// lend opens a transaction for the caller's work; it holds the write lock. ctx bounds the wait for the lock, not the
// transaction. After an error the session is over.
func (x *session) lend(ctx context.Context) (err error) {
	var own context.Context = background{}
	stop := func() bool { return true }
	if ctx.Done() != nil {
		own, x.cancel = context.WithCancel(background{})
		stop = context.AfterFunc(ctx, x.cancel)
	}
	x.tx, err = x.w.conn.BeginTx(own, nil)
	if !stop() && err == nil { // ctx ended meanwhile: database/sql is rolling back
		err = context.Cause(ctx)
	}
	if err == nil {
		err = x.syncClock()
	}
	if err != nil {
		x.rollback()
	}
	return err
}

// end commits. A COMMIT that SQLite answers with BUSY leaves the transaction open and is sent again. unknown says that
// it may become durable although it failed.
//
// COMMIT travels as a statement: both drivers roll back by themselves when their own Commit fails. After work of the
// caller's BEGIN goes with it, in the same call, so that whoever still uses the transaction writes into one that is
// rolled back at once.
func (x *session) end() (unknown bool, err error) {
	until := time.Now().Add(x.s.opts.BusyTimeout)
	for {
		if x.tx != nil {
			_, err = x.tx.ExecContext(background{}, "COMMIT; BEGIN")
		} else {
			err = x.w.word("COMMIT")
		}
		if !busy(err) || time.Now().After(until) {
			break
		}
		pause(background{}, 5*time.Millisecond) // the driver has waited already where it could
	}
	if err == nil && x.tx == nil {
		x.ended(nil)
	} else {
		x.rollback()
	}
	switch primary(resultCode(err)) {
	case codeIO, codeCorrupt, codeInterrupt:
		unknown = true
	}
	return unknown, err
}

// rollback ends the transaction. After the end it does nothing.
func (x *session) rollback() {
	switch {
	case x.over:
	case x.tx != nil:
		x.ended(x.tx.Rollback())
	case x.w != nil:
		x.ended(x.w.word("ROLLBACK"))
	}
}

// ended gives the writing connection back.
func (x *session) ended(err error) {
	x.over = true
	if x.cancel != nil {
		x.cancel()
	}
	x.s.giveWire(x.w, err)
}
