package postgres

import (
	"context"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/outbox"
)

var _ outbox.Desk = (*events)(nil)

// reading is sqlkit.OutboxDB.Reading.
func (e *events) reading(ctx context.Context, op string, fn func(sqlkit.OutboxTx) error) error {
	return e.failed(op, fn(&outboxTx{ctx, e.s, nil}))
}

// around is sqlkit.OutboxDB.Around.
func (e *events) around(tx sqlkit.OutboxTx, s *outbox.Status) error {
	var err error
	if s.Identity, err = e.identity(tx, nil); err != nil {
		return err
	}
	err = tx.Each("outbox_around", func(scan func(...any) error) error { return scan(&s.Standby, &s.Rows, &s.Bytes) })
	if err != nil {
		return err
	}
	err = tx.Each("outbox_oldest", func(scan func(...any) error) error {
		var us int64
		err := scan(&us)
		s.Kept = time.UnixMicro(us).UTC()
		return err
	})
	if err != nil {
		return err
	}
	return tx.Each("outbox_holders", func(scan func(...any) error) error {
		var h outbox.Holder
		var us int64
		err := scan(&h.Kind, &h.Text, &us)
		h.Age = time.Duration(us) * time.Microsecond
		s.Holders = append(s.Holders, h)
		return err
	})
}

// adopt is sqlkit.OutboxDB.Adopt. No append runs meanwhile, and the snapshot that the cursors get is taken before this
// transaction has a number.
func (e *events) adopt(tx sqlkit.OutboxTx, at time.Time) error {
	if err := tx.Exec("outbox_adopt_lock"); err != nil {
		return err
	}
	l, err := e.look(tx, "")
	if err != nil {
		return err
	}
	identity, err := e.identity(tx, nil)
	if err != nil {
		return err
	}
	if at.IsZero() {
		if at, err = tx.Now(); err != nil {
			return err
		}
	}
	win := window{older: l.snapshot, low: l.last}.stored()
	if err := tx.Exec("outbox_adopt", "identity", identity, "at", at.UnixMicro()); err != nil {
		return err
	}
	if err := tx.Exec("outbox_adopt_rows", "older", l.snapshot); err != nil {
		return err
	}
	return tx.Exec("outbox_adopt_cursors", "identity", identity, "win", win)
}
