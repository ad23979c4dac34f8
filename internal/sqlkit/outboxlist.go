package sqlkit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo/outbox"
)

// asideBatch is how many rows a statement of List reads, without their payloads.
const asideBatch = 500

// stream is events of one table in the order of Seq, read in parts.
type stream struct {
	next  func(after int64) ([]outbox.Aside, error)
	after int64
	rows  []outbox.Aside
	done  bool
}

// peek returns the next event; nil: there is none.
func (s *stream) peek() (*outbox.Aside, error) {
	if len(s.rows) == 0 && !s.done {
		var err error
		if s.rows, err = s.next(s.after); err != nil {
			return nil, err
		}
		s.done = len(s.rows) < asideBatch
	}
	if len(s.rows) == 0 {
		return nil, nil
	}
	return &s.rows[0], nil
}

func (s *stream) drop() {
	s.after = s.rows[0].Seq
	s.rows = s.rows[1:]
}

// List implements outbox.Desk. It takes no lock and writes nothing.
func (o Outbox) List(ctx context.Context, p outbox.ListParams) (found outbox.Listed, err error) {
	err = o.DB.Reading(ctx, "list", func(tx OutboxTx) error {
		found = outbox.Listed{}
		return o.list(tx, p, &found)
	})
	if err != nil {
		return outbox.Listed{}, err
	}
	return found, nil
}

func (o Outbox) list(tx OutboxTx, p outbox.ListParams, found *outbox.Listed) error {
	g, there, err := readGroup(tx, "outbox_group_plain", p.Group)
	if err == nil && !there {
		err = noGroup(p.Group)
	}
	if err == nil {
		found.Now, err = nowOf(tx, p.Now)
	}
	if err == nil {
		err = kept(tx, p, found)
	}
	if err != nil {
		return err
	}
	log := &stream{after: p.After, next: func(after int64) ([]outbox.Aside, error) { return readLog(tx, p, after) }}
	asides := &stream{after: p.After, next: func(after int64) ([]outbox.Aside, error) {
		return readAsides(tx, "outbox_asides_list", "group", p.Group, "after", after, "limit", int64(asideBatch))
	}}
	limit := cmp.Or(p.Limit, 100)
	for {
		a, err := log.peek()
		if err != nil {
			return err
		}
		b, err := asides.peek()
		if err != nil {
			return err
		}
		set := b != nil && (a == nil || b.Seq <= a.Seq)
		var one outbox.Aside
		switch {
		case a == nil && b == nil:
			return nil
		case set:
			one = *b
			if asides.drop(); a != nil && a.Seq == one.Seq { // the log has it, too
				log.drop()
			}
		default:
			one = *a
			log.drop()
		}
		if !set && !outbox.Match(g.topics, one.Topic) || !listed(p, one) {
			continue
		}
		if len(found.Events) == limit {
			found.More = true
			return nil
		}
		if one.Payload = nil; !p.WithoutPayload {
			if one.Payload, err = payloadOf(tx, p.Group, one.Seq, set); err != nil {
				return err
			}
		}
		found.Events = append(found.Events, one)
	}
}

// kept says from when events are kept, and refuses to list from before.
func kept(tx OutboxTx, p outbox.ListParams, found *outbox.Listed) error {
	var gone, oldest int64
	err := tx.Each("outbox_gone", func(scan func(...any) error) error { return scan(&gone) })
	if err == nil {
		err = tx.Each("outbox_oldest", func(scan func(...any) error) error { return scan(&oldest) })
	}
	if err != nil {
		return err
	}
	if oldest > 0 {
		found.Kept = time.UnixMicro(oldest).UTC()
	}
	if at := time.UnixMicro(gone).UTC(); gone > 0 && !p.Since.IsZero() && !at.Before(p.Since) {
		return fmt.Errorf("%w: events up to %s are gone, those after it are kept", outbox.ErrKept, at.Format(time.RFC3339))
	}
	return nil
}

// readLog reads events of the log without payload, each with its state in the group.
func readLog(tx OutboxTx, p outbox.ListParams, after int64) (all []outbox.Aside, err error) {
	micros := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMicro()
	}
	err = tx.Each("outbox_log_list", func(scan func(...any) error) error {
		var r EventRow
		var published int64
		if err := scan(append(r.Dest(), &published)...); err != nil {
			return err
		}
		row, _, err := r.Row()
		a := outbox.Aside{Row: row, State: outbox.StatePending}
		if published != 0 {
			a.State = outbox.StatePublished
		}
		all = append(all, a)
		return err
	}, "group", p.Group, "after", after, "limit", int64(asideBatch), "tenant", p.Tenant, "event_key", p.Key, "key_ref", p.KeyRef,
		"from_at", micros(p.Since), "to_at", micros(p.Until))
	return all, err
}

func payloadOf(tx OutboxTx, group string, seq int64, set bool) (b []byte, err error) {
	name := "outbox_log_payload"
	if set {
		name = "outbox_aside_payload"
	}
	var null int64
	err = tx.Each(name, func(scan func(...any) error) error { return scan(&b, &null) }, "group", group, "seq", seq)
	if null == 0 && b == nil && err == nil {
		b = []byte{}
	}
	return b, err
}

// listed reports whether p wants a.
func listed(p outbox.ListParams, a outbox.Aside) bool {
	state := a.State
	if state == outbox.StateQueued && !slices.Contains(p.States, state) {
		state = outbox.StatePending
	}
	one := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return (p.Tenant == "" || p.Tenant == a.Tenant) && one(p.IDs, a.ID) && (len(p.Topics) == 0 || outbox.Match(p.Topics, a.Topic)) &&
		one(p.Types, a.Type) && (p.Key == "" || p.Key == a.Key) && (p.KeyRef == "" || p.KeyRef == a.Trace.KeyRef) &&
		(len(p.States) == 0 || slices.Contains(p.States, state)) && (p.Since.IsZero() || !a.Time.Before(p.Since)) && (p.Until.IsZero() || a.Time.Before(p.Until))
}
