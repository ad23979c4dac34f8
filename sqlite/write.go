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
// use the session, and may be left out when ctx ends before it was reached. keys are the claim's, see queue.
func (s *Store) share(ctx context.Context, op string, k idempo.Key, keys []idempo.Key, do func(*session) error) error {
	if ctx.Err() != nil {
		return failure(op, k, context.Cause(ctx), false)
	}
	w := &work{do: do, ran: make(chan struct{}), done: make(chan struct{})}
	t := &turn{keys: keys, work: w}
	lead, err := s.line.add(t)
	if err != nil {
		return failure(op, k, err, false)
	}
	if lead {
		s.serving.Go(s.serve)
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

// serve holds the writing connection and commits works until the next in line is none.
func (s *Store) serve() {
	for again := true; again; again = s.line.leave() {
		s.commit()
	}
}

// leave passes the connection on after a transaction of its own.
func (s *Store) leave() {
	if s.line.leave() {
		s.serving.Go(s.serve)
	}
}

// commit runs all works that wait in one transaction, each in a savepoint, and answers them after the commit.
func (s *Store) commit() {
	x, err := s.begin(background{})
	batch := s.line.take(maxShared)
	if err != nil || len(batch) == 0 {
		if x != nil {
			x.rollback()
		}
		ran(batch)
		finish(batch, failure("begin", idempo.Key{}, err, false))
		return
	}
	all := batch
	for len(batch) > 0 { // those that came meanwhile come along: it costs no commit
		for i, w := range batch {
			if err := x.savepoint(w); err != nil {
				x.rollback()
				ran(batch[i:])
				finish(all, failure("write", idempo.Key{}, err, false))
				return
			}
			close(w.ran)
		}
		batch = s.line.take(maxShared - len(all))
		all = append(all, batch...)
	}
	unknown, err := x.end()
	finish(all, failure("commit", idempo.Key{}, err, unknown))
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

// savepoint runs one work so that its failure undoes nothing but itself. An error says that the transaction is gone.
func (x *session) savepoint(w *work) error {
	if _, err := x.tx.ExecContext(background{}, "SAVEPOINT work"); err != nil {
		return err
	}
	w.err = w.do(x)
	if w.err != nil {
		if _, err := x.tx.ExecContext(background{}, "ROLLBACK TO work"); err != nil {
			return fmt.Errorf("SQLite rolled the transaction back: %v", shown(w.err))
		}
	}
	_, err := x.tx.ExecContext(background{}, "RELEASE work")
	return err
}

// begin opens a transaction that holds the write lock, on the writing connection, which the caller must have. ctx
// bounds the wait for the lock, not the transaction.
func (s *Store) begin(ctx context.Context) (*session, error) {
	x := &session{s: s}
	var own context.Context = background{}
	stop := func() bool { return true }
	if ctx.Done() != nil {
		own, x.cancel = context.WithCancel(background{})
		stop = context.AfterFunc(ctx, x.cancel)
	}
	var err error
	x.tx, err = s.writer.BeginTx(own, nil)
	if !stop() { // ctx ended meanwhile: database/sql is rolling back
		if err == nil {
			x.rollback()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		if x.cancel != nil {
			x.cancel()
		}
		return nil, err
	}
	if err := x.syncClock(); err != nil {
		x.rollback()
		return nil, err
	}
	return x, nil
}

// end commits. A COMMIT that SQLite answers with BUSY leaves the transaction open and is sent again. unknown says that
// it may become durable although it failed.
//
// COMMIT travels as a statement: both drivers roll back by themselves when their own Commit fails. BEGIN goes with it,
// in the same call, so that whoever still uses the transaction writes into one that is rolled back at once.
func (x *session) end() (unknown bool, err error) {
	until := time.Now().Add(x.s.opts.BusyTimeout)
	for {
		_, err = x.tx.ExecContext(background{}, "COMMIT; BEGIN")
		if !busy(err) || time.Now().After(until) {
			break
		}
		pause(background{}, 5*time.Millisecond) // the driver has waited already where it could
	}
	x.rollback()
	switch primary(resultCode(err)) {
	case codeIO, codeCorrupt, codeInterrupt:
		unknown = true
	}
	return unknown, err
}
