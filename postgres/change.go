package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
)

// won notes that the transaction won rec.
func (c *change) won(rec idempo.Record) {
	c.rec, c.claim, c.queued, c.read = rec.Clone(), true, false, time.Now()
}

// now is the server's clock as far as the transaction knows it: what it read last, and the time since.
func (c *change) now() time.Time {
	if c.read.IsZero() {
		return c.rec.Now
	}
	return c.rec.Now.Add(time.Since(c.read)).Truncate(time.Microsecond)
}

// fail notes why the transaction cannot commit; the first reason counts.
func (t *session) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failLocked(err)
}

func (t *session) failLocked(err error) {
	if t.broken == nil && errors.Is(err, idempo.ErrLeaseLost) {
		t.broken = err
	}
}

// drop forgets c: the table holds what it was.
func (t *session) drop(c *change) {
	t.changes = slices.DeleteFunc(t.changes, func(x *change) bool { return x == c })
}

// updateChange is update for a key that the transaction has won and not written.
func (s *Store) updateChange(ctx context.Context, t *session, c *change, w writing) (idempo.Record, error) {
	t.mu.Lock()
	now := c.now()
	if !w.now.IsZero() {
		now = w.now
	}
	r, found := c.seen(now)
	rec, write, err := w.judge(r, found, now)
	if err != nil || !write {
		t.mu.Unlock()
		return rec, err
	}
	if rec.State == idempo.StatePending && c.claim { // renewed: still to be completed
		c.rec, c.read = rec.Clone(), time.Now()
		t.mu.Unlock()
		return rec, nil
	}
	t.mu.Unlock()
	if err := s.writeChange(ctx, t, c, rec); err != nil {
		return idempo.Record{}, failed(w.op, w.key, err, true)
	}
	return rec, nil
}

// writeChange writes rec, what became of c, at once.
func (s *Store) writeChange(ctx context.Context, t *session, c *change, rec idempo.Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var put []Statement
	switch {
	case rec.State == "" && c.from.State == "":
		t.drop(c)
		return nil
	case rec.State == "":
		put = []Statement{s.removeStatement(t, c.from, new(int))}
	default:
		rec.Key = c.key
		put = s.replacing(t, c, rec, t.start)
	}
	if err := s.runLocked(ctx, t, append(s.removals(t, c.over), put...)...); err != nil {
		return err
	}
	t.drop(c)
	return nil
}
