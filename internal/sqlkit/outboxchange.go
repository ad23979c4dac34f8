package sqlkit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo/outbox"
)

// Change implements outbox.Desk.
func (o Outbox) Change(ctx context.Context, p outbox.ChangeParams) (done outbox.Changed, err error) {
	err = o.DB.Within(ctx, "change", func(tx OutboxTx) error {
		done = outbox.Changed{}
		return o.change(tx, p, &done)
	})
	if err != nil {
		return outbox.Changed{}, err
	}
	return done, nil
}

func (o Outbox) change(tx OutboxTx, p outbox.ChangeParams, done *outbox.Changed) error {
	if _, err := readState(tx); err != nil {
		return err
	}
	g, found, err := readGroup(tx, "outbox_group", p.Group)
	if err == nil && !found {
		err = noGroup(p.Group)
	}
	if err != nil {
		return err
	}
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return err
	}
	if !p.DryRun {
		if err := o.discard(tx, p, now); err != nil {
			return err
		}
	}
	for _, t := range p.Targets {
		out, err := o.changeOne(tx, p, t, now)
		if err != nil {
			return err
		}
		done.Outcomes = append(done.Outcomes, out)
	}
	if p.DryRun {
		return nil
	}
	g.epoch++
	return g.change(tx)
}

// discard says of topics that nobody needs them.
func (o Outbox) discard(tx OutboxTx, p outbox.ChangeParams, now time.Time) error {
	if len(p.Topics) == 0 {
		return nil
	}
	var known []string
	err := tx.Each("outbox_discarded", func(scan func(...any) error) error {
		var topic string
		err := scan(&topic)
		known = append(known, topic)
		return err
	})
	for _, topic := range p.Topics {
		if err == nil && !slices.Contains(known, topic) {
			err = tx.Exec("outbox_discard", "topic", topic, "at", now.UnixMicro())
		}
		if err == nil {
			err = o.DB.Audited(tx, OutboxAudit{Audit: p.Audit, At: now, Action: p.Action, Operation: "outbox:" + p.Group, Evidence: "topic " + topic})
		}
	}
	return err
}

func (o Outbox) changeOne(tx OutboxTx, p outbox.ChangeParams, t outbox.Target, now time.Time) (out outbox.ChangeOutcome, err error) {
	out = outbox.ChangeOutcome{Seq: t.Seq, Code: "not_found"}
	all, err := readAsides(tx, "outbox_aside_read", "group", p.Group, "seq", t.Seq)
	if err != nil || len(all) == 0 {
		return out, err
	}
	a := all[0]
	out.ID, out.State, out.Code = a.ID, a.State, p.Judge(a, t)
	if out.Code != "" {
		return out, nil
	}
	next, gone := p.Apply(a, rand.Text()[:12], now)
	if out.State = next.State; gone {
		out.State = ""
	}
	if p.DryRun {
		return out, nil
	}
	if gone {
		err = tx.Exec("outbox_aside_remove", "group", p.Group, "seq", t.Seq)
	} else {
		var from any
		if next.State == outbox.StateWaiting || next.State == outbox.StateQueued {
			from = now.UnixMicro()
		}
		err = tx.Exec("outbox_aside_put", "group", p.Group, "seq", t.Seq, "state", string(next.State), "class", string(next.Class), "hold", flag(next.Holds),
			"attempts", int64(next.Attempts), "starts", int64(next.Starts), "due_from", from, "at", now.UnixMicro(), "replay", next.Replay)
	}
	if err == nil {
		err = heads(tx, p.Group, a.Tenant, a.Key)
	}
	if err == nil {
		id := sha256.Sum256([]byte(a.ID))
		err = o.DB.Audited(tx, OutboxAudit{Audit: p.Audit, At: now, Action: p.Action, Tenant: a.Tenant, Operation: "outbox:" + p.Group, ID: id[:]})
	}
	return out, err
}

// SetGroup implements outbox.Desk. To adopt is for all groups that were published from another database.
func (o Outbox) SetGroup(ctx context.Context, p outbox.GroupParams) (s outbox.GroupStatus, err error) {
	var newest outbox.Cursor
	if p.Action == outbox.GroupCreate && p.From == outbox.FromNow {
		if newest, err = o.DB.Newest(ctx); err != nil {
			return s, err
		}
	}
	err = o.DB.Within(ctx, "set_group", func(tx OutboxTx) error {
		if p.Action == outbox.GroupAdopt {
			if err := o.adopt(tx, p.Now); err != nil {
				return err
			}
		}
		s, err = o.setGroup(tx, p, newest)
		return err
	})
	if err != nil {
		return outbox.GroupStatus{}, err
	}
	return s, nil
}

func (o Outbox) setGroup(tx OutboxTx, p outbox.GroupParams, newest outbox.Cursor) (s outbox.GroupStatus, err error) {
	if _, err := readState(tx); err != nil {
		return s, err
	}
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return s, err
	}
	g, found, err := readGroup(tx, "outbox_group", p.Group)
	switch {
	case err != nil:
		return s, err
	case !found && p.Action != outbox.GroupCreate:
		return s, noGroup(p.Group)
	case found && p.Action == outbox.GroupCreate:
		return s, fmt.Errorf("%w: there is a group %s already", outbox.ErrGroup, p.Group)
	}
	switch p.Action {
	case outbox.GroupCreate:
		g, err = o.create(tx, p, newest, now)
	case outbox.GroupPause:
		if g.paused = g.paused || len(p.Topics) == 0; len(p.Topics) > 0 {
			g.pausedTopics = slices.Compact(slices.Sorted(slices.Values(append(g.pausedTopics, p.Topics...))))
		}
	case outbox.GroupResume:
		if g.paused = g.paused && len(p.Topics) > 0; len(p.Topics) > 0 {
			g.pausedTopics = slices.DeleteFunc(g.pausedTopics, func(t string) bool { return slices.Contains(p.Topics, t) })
		}
	case outbox.GroupRemove:
		for _, name := range []string{"outbox_asides_remove", "outbox_cursors_remove", "outbox_relays_remove", "outbox_group_remove"} {
			if err == nil {
				err = tx.Exec(name, "group", p.Group)
			}
		}
	case outbox.GroupAdopt: // done
	default:
		return s, invalid("set_group", "the action "+p.Action+" is not known")
	}
	if err == nil {
		err = o.DB.Audited(tx, OutboxAudit{Audit: p.Audit, At: now, Action: "group_" + p.Action, Operation: "outbox:" + p.Group})
	}
	if err != nil || p.Action == outbox.GroupRemove {
		return s, err
	}
	if p.Action == outbox.GroupPause || p.Action == outbox.GroupResume {
		if err := g.pause(tx); err != nil {
			return s, err
		}
	}
	g.epoch++
	if err := g.change(tx); err != nil {
		return s, err
	}
	return o.groupStatus(tx, g, now)
}

// pause says of each event that is set aside whether its topic is paused.
func (g group) pause(tx OutboxTx) error {
	var topics []string
	err := tx.Each("outbox_aside_topics", func(scan func(...any) error) error {
		var topic string
		err := scan(&topic)
		topics = append(topics, topic)
		return err
	}, "group", g.name)
	for _, topic := range topics {
		if err == nil {
			err = tx.Exec("outbox_aside_pause", "group", g.name, "topic", topic, "paused", flag(outbox.Match(g.pausedTopics, topic)))
		}
	}
	return err
}

// adopt makes every group one of this database.
func (o Outbox) adopt(tx OutboxTx, at time.Time) error {
	if err := o.DB.Adopt(tx, at); err != nil {
		return err
	}
	if _, err := readState(tx); err != nil {
		return err
	}
	identity, err := o.DB.Identity(tx, nil)
	if err != nil {
		return err
	}
	names, err := groupNames(tx)
	for _, name := range names {
		var g group
		if err == nil {
			g, _, err = readGroup(tx, "outbox_group", name)
		}
		if err == nil && g.identity != identity {
			if err = g.pause(tx); err == nil {
				g.identity = identity
				g.epoch++
				err = g.change(tx)
			}
		}
	}
	return err
}
