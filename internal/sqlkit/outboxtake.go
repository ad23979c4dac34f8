package sqlkit

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo/outbox"
)

// Take implements outbox.Store.
func (o Outbox) Take(ctx context.Context, p outbox.TakeParams) (taken outbox.Taken, err error) {
	err = o.DB.Within(ctx, "take", func(tx OutboxTx) error {
		taken = outbox.Taken{}
		return o.take(tx, p, &taken)
	})
	if err != nil {
		return outbox.Taken{}, err
	}
	return taken, nil
}

// dueRow is a head that is due.
type dueRow struct {
	seq, part, size int64
	tenant, key     string
}

func (o Outbox) take(tx OutboxTx, p outbox.TakeParams, taken *outbox.Taken) error {
	places := make([]outbox.Place, len(p.From))
	for i, one := range p.From {
		places[i] = outbox.Place{Partition: one.Partition, Fence: one.Fence}
	}
	g, found, err := readGroup(tx, "outbox_group", p.Group)
	if err == nil && !found {
		err = noGroup(p.Group)
	}
	if err != nil {
		return err
	}
	mine, err := o.DB.Advance(tx, p.Group, p.Owner, places, p.Now)
	if err != nil {
		return err
	}
	if taken.Lost, err = lost(tx, "outbox_cursor", p.Group, places, mine); err != nil || len(mine) == 0 || g.paused {
		return err
	}
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return err
	}
	var parts []string
	for part := range mine {
		parts = append(parts, strconv.Itoa(part))
	}
	where := []any{"group", p.Group, "at", now.UnixMicro(), "parts", strings.Join(parts, ",")}
	var all []dueRow
	err = tx.Each("outbox_due", func(scan func(...any) error) error {
		var d dueRow
		err := scan(&d.seq, &d.part, &d.tenant, &d.key, &d.size)
		all = append(all, d)
		return err
	}, append(where, "limit", int64(p.Limit)+1)...)
	if err != nil {
		return err
	}
	left := int64(p.MaxBytes)
	if p.MaxBytes <= 0 {
		left = math.MaxInt64
	}
	for i, d := range all {
		if i == p.Limit || i > 0 && d.size > left {
			taken.More = true
			break
		}
		if err := o.takeHead(tx, p, d, now, taken, &left); err != nil {
			return err
		}
	}
	var next int64
	err = tx.Each("outbox_due_next", func(scan func(...any) error) error { return scan(&next) }, where...)
	if next > 0 {
		taken.NextIn = max(time.UnixMicro(next).Sub(now), 1)
	}
	return err
}

// takeHead counts the start of a head and reads it, and those behind it.
func (o Outbox) takeHead(tx OutboxTx, p outbox.TakeParams, d dueRow, now time.Time, taken *outbox.Taken, left *int64) error {
	err := tx.Exec("outbox_started", "group", p.Group, "seq", d.seq, "due_from", now.Add(p.Lease).UnixMicro())
	if err != nil {
		return err
	}
	head, err := readAsides(tx, "outbox_aside_read", "group", p.Group, "seq", d.seq)
	if err != nil {
		return err
	}
	*left -= d.size
	taken.Asides = append(taken.Asides, head...)
	if d.key == "" || p.Behind <= 0 || len(head) == 0 || !head[0].Holds {
		return nil
	}
	behind, err := readAsides(tx, "outbox_behind", "group", p.Group, "tenant", d.tenant, "event_key", d.key, "seq", d.seq, "limit", int64(p.Behind))
	for _, a := range behind {
		if *left -= int64(len(a.Payload)); *left < 0 {
			taken.More = true
			break
		}
		taken.Asides = append(taken.Asides, a)
	}
	return err
}
