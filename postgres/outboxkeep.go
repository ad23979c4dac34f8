package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo/internal/sqlkit"
	"github.com/idempo/idempo/outbox"
)

var _ outbox.Keeper = (*events)(nil)

// ring is how many slots the log has.
const ring = 11

// slot is one that holds events.
type slot struct {
	n, seq int64
	newest time.Time
}

// Keep implements outbox.Keeper: slots whose newest event is past the retention, and that no group needs, are truncated.
// The lock of a slot is in the way of appends of its own days only, and of readers for the moment of the truncation.
func (e *events) Keep(ctx context.Context, p outbox.KeepParams) (kept outbox.Kept, err error) {
	begun := time.Now()
	slots, now, err := e.old(ctx, p)
	if err != nil {
		return kept, err
	}
	for i, s := range slots {
		if i > 0 && p.Budget > 0 && time.Since(begun) > p.Budget {
			kept.More = true
			break
		}
		h, err := e.needed(ctx, s, now)
		if err == nil && h.Kind == "" {
			var rows int64
			if rows, h, err = e.empty(ctx, s, now.Add(-p.Retention)); rows > 0 {
				kept.Rows, kept.Slots = kept.Rows+rows, kept.Slots+1
			}
		}
		if err != nil {
			return kept, err
		}
		if kept.Holder.Kind == "" && h.Kind != "" {
			h.Age = now.Sub(s.newest)
			kept.Holder = h
		}
	}
	return kept, nil
}

// old are the slots whose newest event is past the retention, the oldest first. It sees to it that the ring outlasts the
// retention.
func (e *events) old(ctx context.Context, p outbox.KeepParams) (old []slot, now time.Time, err error) {
	err = e.within(ctx, "keep", func(tx sqlkit.OutboxTx) error {
		old = nil
		if now = p.Now; now.IsZero() {
			if now, err = tx.Now(); err != nil {
				return err
			}
		}
		days := int64(p.Retention/(24*time.Hour))/(ring-2) + 1
		if err := tx.Exec("outbox_span", "days", days); err != nil {
			return err
		}
		return tx.Each("outbox_slots", func(scan func(...any) error) error {
			var s slot
			var us int64
			err := scan(&s.n, &us, &s.seq)
			if s.newest = time.UnixMicro(us).UTC(); now.Sub(s.newest) >= p.Retention {
				old = append(old, s)
			}
			return err
		})
	})
	slices.SortFunc(old, func(a, b slot) int { return a.newest.Compare(b.newest) })
	return old, now, err
}

// needed says who still needs events of a slot; Kind "": nobody.
func (e *events) needed(ctx context.Context, s slot, now time.Time) (h outbox.Holder, err error) {
	err = e.reading(ctx, "keep", func(tx sqlkit.OutboxTx) error {
		globs, external, err := groups(tx)
		if err != nil {
			return err
		}
		for _, g := range external {
			if h, err = e.confirmed(tx, s, g); err != nil || h.Kind != "" {
				return err
			}
		}
		err = tx.Each("outbox_slot_needed", func(scan func(...any) error) error {
			var name string
			var us int64
			err := scan(&name, &us)
			h = outbox.Holder{Kind: "group", Text: "group " + name, Age: now.Sub(time.UnixMicro(us))}
			return err
		}, "seq", s.n)
		if err != nil || h.Kind != "" || slices.Contains(globs, "*") {
			return err
		}
		return e.stray(tx, s, globs, &h)
	})
	return h, err
}

// stray looks for topics of a slot that no group takes.
func (e *events) stray(tx sqlkit.OutboxTx, s slot, globs []string, h *outbox.Holder) error {
	err := tx.Each("outbox_discarded", func(scan func(...any) error) error {
		var topic string
		err := scan(&topic)
		globs = append(globs, topic)
		return err
	})
	if err != nil {
		return err
	}
	return tx.Each("outbox_slot_topics", func(scan func(...any) error) error {
		var topic string
		if err := scan(&topic); err != nil || outbox.Match(globs, topic) {
			return err
		}
		*h = outbox.Holder{Kind: "topic", Text: "topic " + topic + " is matched by no group"}
		return nil
	}, "seq", s.n)
}

// groups are the globs of all groups, and the names and replication slots of those that are external.
func groups(tx sqlkit.OutboxTx) (globs []string, external [][2]string, err error) {
	list, err := sqlkit.OutboxGroups(tx)
	for _, g := range list {
		globs = append(globs, g.Topics...)
		if g.External {
			external = append(external, [2]string{g.Name, g.Slot})
		}
	}
	return globs, external, err
}

// confirmed asks whether the replication slot of an external group is past a slot of the log: it has confirmed a place of
// the server's log that was read when the newest event of the slot was there already.
func (e *events) confirmed(tx sqlkit.OutboxTx, s slot, group [2]string) (h outbox.Holder, err error) {
	e.mu.Lock()
	mark, known := e.marks[s.n]
	e.mu.Unlock()
	if !known || mark.seq != s.seq {
		l, err := e.look(tx, "")
		if err != nil {
			return h, err
		}
		mark = lsnMark{seq: s.seq, lsn: l.lsn}
		e.mu.Lock()
		e.marks[s.n] = mark
		e.mu.Unlock()
	}
	var answer int64
	err = tx.Each("outbox_slot_confirmed", func(scan func(...any) error) error { return scan(&answer) }, "slot_name", group[1], "lsn", mark.lsn)
	switch {
	case err != nil || answer == 1:
		return h, err
	case answer < 0:
		return outbox.Holder{Kind: "slot", Text: "group " + group[0] + ": replication slot " + group[1] + " is not there"}, nil
	}
	return outbox.Holder{Kind: "slot", Text: "group " + group[0] + ": replication slot " + group[1] + " has not confirmed it"}, nil
}

// lsnMark is a place of the server's log that was read when an event was the newest of its slot.
type lsnMark struct {
	seq int64
	lsn string
}

// empty truncates a slot once nobody writes to it. What came to it since it was looked at, or was open then, is seen under
// the lock.
func (e *events) empty(ctx context.Context, s slot, before time.Time) (rows int64, h outbox.Holder, err error) {
	var us, seq int64
	err = e.reading(ctx, "keep", func(tx sqlkit.OutboxTx) error {
		return tx.Each("outbox_slot_newest", func(scan func(...any) error) error { return scan(&us, &rows, &seq) }, "seq", s.n)
	})
	if err != nil || seq != s.seq || time.UnixMicro(us).After(before) {
		return 0, h, err
	}
	err = e.once(ctx, "keep", func(tx sqlkit.OutboxTx) error {
		if err := tx.Each("outbox_keep_begin", func(func(...any) error) error { return nil }); err != nil {
			return err
		}
		if err := tx.Exec(fmt.Sprint("outbox_lock_", s.n)); err != nil {
			return err
		}
		needed := false
		err := tx.Each("outbox_slot_top", func(scan func(...any) error) error { return scan(&seq) }, "seq", s.n)
		if err == nil {
			err = tx.Each("outbox_slot_needed", func(func(...any) error) error { needed = true; return nil }, "seq", s.n)
		}
		if err != nil || needed || seq != s.seq {
			rows, h = 0, outbox.Holder{Kind: "lock", Text: "events came to the slot meanwhile"}
			return err
		}
		if err := tx.Exec("outbox_gone_set", "at", us); err != nil {
			return err
		}
		return tx.Exec(fmt.Sprint("outbox_truncate_", s.n))
	})
	if sqlState(err) == "55P03" {
		return 0, outbox.Holder{Kind: "lock", Text: "a transaction uses the slot: tried again later"}, nil
	}
	if err != nil {
		rows = 0
	}
	return rows, h, e.failed("keep", err)
}
