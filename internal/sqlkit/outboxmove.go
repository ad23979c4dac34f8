package sqlkit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/idempo/idempo/outbox"
)

// Move implements outbox.Store.
func (o Outbox) Move(ctx context.Context, p outbox.MoveParams) (moved outbox.Moved, err error) {
	err = o.DB.Within(ctx, "move", func(tx OutboxTx) error {
		moved = outbox.Moved{}
		return o.move(tx, p, &moved)
	})
	if err != nil {
		return outbox.Moved{}, err
	}
	return moved, nil
}

func (o Outbox) move(tx OutboxTx, p outbox.MoveParams, moved *outbox.Moved) error {
	g, found, err := readGroup(tx, "outbox_group", p.Group) // locked, so that no pause comes in between
	if err != nil {
		return err
	}
	if !found {
		return noGroup(p.Group)
	}
	mine, err := o.DB.Advance(tx, p.Group, p.Owner, p.To, p.Now)
	if err != nil {
		return err
	}
	if moved.Lost, err = lost(tx, "outbox_cursor", p.Group, p.To, mine); err != nil {
		return err
	}
	if len(p.Asides) == 0 {
		return nil
	}
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return err
	}
	for _, s := range p.Asides {
		if !mine[s.Row.Partition] {
			continue
		}
		if err := o.set(tx, g, s, now); err != nil {
			return err
		}
	}
	return nil
}

// lost says whose the partitions of to are now that are not in mine.
func lost(tx OutboxTx, query, group string, to []outbox.Place, mine map[int]bool) (all []outbox.Lost, err error) {
	for _, one := range to {
		if mine[one.Partition] {
			continue
		}
		l := outbox.Lost{Partition: one.Partition}
		err = tx.Each(query, func(scan func(...any) error) error { return scan(&l.Owner, &l.Fence) },
			"group", group, "part", int64(one.Partition))
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// Whose says whose partitions are that are owner's no more. Where it is still their owner its places were of before a crash.
func (o Outbox) Whose(ctx context.Context, group, owner string, parts []outbox.Place) (all []outbox.Lost, err error) {
	err = o.DB.Reading(ctx, "move", func(tx OutboxTx) error {
		_, found, err := readGroup(tx, "outbox_group_plain", group)
		if err == nil && !found {
			err = noGroup(group)
		}
		if err == nil {
			all, err = lost(tx, "outbox_cursor_plain", group, parts, nil)
		}
		return err
	})
	for i := range all {
		if all[i].Owner == owner {
			all[i].Owner = ""
		}
	}
	return all, err
}

// due is when a state becomes due, as an argument.
func due(s outbox.Setting, now time.Time) any {
	switch s.State {
	case outbox.StateWaiting:
		return now.Add(s.Wait).UnixMicro()
	case outbox.StateQueued:
		return now.UnixMicro()
	}
	return nil
}

// set writes what became of an event.
func (o Outbox) set(tx OutboxTx, g group, s outbox.Setting, now time.Time) error {
	err := tx.Exec("outbox_cursor_progress", "group", g.name, "part", int64(s.Row.Partition))
	if err != nil {
		return err
	}
	a, found, err := readStanding(tx, g.name, s.Row.Seq)
	switch {
	case err != nil:
		return err
	case found && (s.New || int(a.part) != s.Row.Partition || a.state == string(outbox.StateSkipped) && s.State != outbox.StatePublished):
		return nil
	case found:
		return o.changeAside(tx, g.name, a, s, now)
	case !found && s.New && s.State != outbox.StatePublished:
		return o.setAside(tx, g, s, now)
	}
	return nil
}

// setAside copies an event from the log.
func (o Outbox) setAside(tx OutboxTx, g group, s outbox.Setting, now time.Time) error {
	first, err := holding(tx, g.name, s.Row.Tenant, s.Row.Key)
	if err != nil {
		return err
	}
	err = tx.Exec("outbox_set_aside", "group", g.name, "seq", s.Row.Seq, "part", int64(s.Row.Partition), "state", string(s.State), "class", string(s.Class),
		"hold", flag(s.Holds), "head", flag(s.Row.Key == "" || s.Row.Seq < first), "paused", flag(outbox.Match(g.pausedTopics, s.Row.Topic)),
		"attempts", int64(s.Attempts), "starts", int64(s.Starts), "due_from", due(s, now), "at", now.UnixMicro(), "error", s.Error)
	if err != nil || s.Row.Key == "" || s.Row.Seq > first {
		return err
	}
	return heads(tx, g.name, s.Row.Tenant, s.Row.Key) // it came before others: late
}

// holding is the seq of the first event of a key that others wait for; beyond every seq where there is none.
func holding(tx OutboxTx, group, tenant, key string) (first int64, err error) {
	if key == "" {
		return math.MaxInt64, nil
	}
	err = tx.Each("outbox_holding", func(scan func(...any) error) error { return scan(&first) }, "group", group, "tenant", tenant, "event_key", key)
	return cmp.Or(first, math.MaxInt64), err
}

// heads says anew which events of a key wait for none.
func heads(tx OutboxTx, group, tenant, key string) error {
	if key == "" {
		return nil
	}
	first, err := holding(tx, group, tenant, key)
	if err != nil {
		return err
	}
	return tx.Exec("outbox_heads", "group", group, "tenant", tenant, "event_key", key, "first", first)
}

// standing is what a change must know of an event that is set aside.
type standing struct {
	part                                int64
	id, tenant, key, topic, state, said string
	holds, attempts                     int64
}

func readStanding(tx OutboxTx, group string, seq int64) (a standing, found bool, err error) {
	err = tx.Each("outbox_aside", func(scan func(...any) error) error {
		found = true
		return scan(&a.part, &a.id, &a.tenant, &a.key, &a.topic, &a.state, &a.holds, &a.attempts, &a.said)
	}, "group", group, "seq", seq)
	return a, found, err
}

// changeAside writes what became of an event that is set aside.
func (o Outbox) changeAside(tx OutboxTx, group string, a standing, s outbox.Setting, now time.Time) error {
	var err error
	if s.State == outbox.StatePublished {
		err = tx.Exec("outbox_aside_remove", "group", group, "seq", s.Row.Seq)
	} else {
		err = tx.Exec("outbox_aside_set", "group", group, "seq", s.Row.Seq, "state", string(s.State), "class", string(s.Class), "hold", flag(s.Holds),
			"attempts", int64(s.Attempts), "starts", int64(s.Starts), "due_from", due(s, now), "at", now.UnixMicro(), "first_error", cmp.Or(a.said, s.Error), "error", s.Error)
	}
	if err == nil && (s.State == outbox.StatePublished || s.Holds != (a.holds != 0)) {
		err = heads(tx, group, a.tenant, a.key)
	}
	return err
}

// noGroup says that there is none of the name.
func noGroup(name string) error {
	return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, name)
}
