package sqlkit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idempo/idempo/outbox"
)

// relayRow is a row of table outbox_relays.
type relayRow struct {
	owner        string
	since, until time.Time
}

func readRelays(tx OutboxTx, group string) (all []relayRow, err error) {
	err = tx.Each("outbox_relays", func(scan func(...any) error) error {
		var r relayRow
		var since, until int64
		err := scan(&r.owner, &since, &until)
		r.since, r.until = time.UnixMicro(since).UTC(), time.UnixMicro(until).UTC()
		all = append(all, r)
		return err
	}, "group", group)
	return all, err
}

// Hold implements outbox.Store.
func (o Outbox) Hold(ctx context.Context, p outbox.HoldParams) (held outbox.Held, err error) {
	var newest outbox.Cursor
	if p.From == outbox.FromNow {
		if newest, err = o.DB.Newest(ctx); err != nil {
			return held, err
		}
	}
	err = o.DB.Within(ctx, "hold", func(tx OutboxTx) error {
		held, err = o.hold(tx, p, newest)
		return err
	})
	if err != nil {
		return outbox.Held{}, err
	}
	return held, nil
}

func (o Outbox) hold(tx OutboxTx, p outbox.HoldParams, newest outbox.Cursor) (held outbox.Held, err error) {
	environment, err := readState(tx)
	if err != nil {
		return held, err
	}
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return held, err
	}
	if held.Environment, err = o.environment(tx, environment, p.Environment); err != nil {
		return held, err
	}
	g, found, err := readGroup(tx, "outbox_group", p.Group)
	switch {
	case err != nil:
		return held, err
	case g.external:
		return held, fmt.Errorf("%w: group %s is external, published through the replication slot %s", outbox.ErrGroup, p.Group, g.slot)
	case p.Leave && !found:
		return held, nil
	}
	if !found {
		if g, err = o.create(tx, outbox.GroupParams{Group: p.Group, Topics: p.Topics, From: p.From}, newest, now); err != nil {
			return held, err
		}
	}
	before := g.epoch
	void, err := o.DB.Wake(tx)
	if err == nil && void { // nobody's place in memory counts any more
		if err = tx.Exec("outbox_void"); err == nil {
			err = tx.Exec("outbox_void_groups")
		}
		g.epoch++
	}
	if err != nil {
		return held, err
	}
	cursors, err := readCursors(tx, "outbox_cursors", p.Group)
	if err != nil {
		return held, err
	}
	if err := o.known(tx, g, cursors); err != nil {
		return held, err
	}
	relays, err := o.signOfLife(tx, &g, p, now)
	if err != nil {
		return held, err
	}
	if err := o.share(tx, &g, cursors, relays, p, now); err != nil {
		return held, err
	}
	if g.epoch != before || !slices.Equal(g.topics, p.Topics) && !p.Leave {
		if !p.Leave {
			g.topics = p.Topics
		}
		if err := g.change(tx); err != nil {
			return held, err
		}
	}
	for _, c := range cursors {
		if c.Owner == p.Owner && !p.Leave {
			held.Leases = append(held.Leases, outbox.Lease{Partition: c.Part, Fence: c.Fence, Cursor: o.DB.Loaded(c.Cursor), Starts: c.Starts})
		}
	}
	held.Total, held.Relays, held.Epoch, held.Paused, held.PausedTopics = len(cursors), len(relays), g.epoch, g.paused, g.pausedTopics
	for i, r := range relays {
		if r.owner == p.Owner {
			held.Rank = i
		} else if left := r.until.Sub(now); slices.ContainsFunc(cursors, func(c OutboxCursor) bool { return c.Owner == r.owner }) {
			held.NextFree = cmp.Or(min(held.NextFree, left), left)
		}
	}
	return held, nil
}

// environment keeps the first one that is said, and refuses another.
func (o Outbox) environment(tx OutboxTx, stored, said string) (string, error) {
	switch {
	case said == "" || said == stored:
		return stored, nil
	case stored != "":
		return "", fmt.Errorf("%w: database says %s, this relay says %s: nothing was published", outbox.ErrEnvironment, stored, said)
	}
	return said, tx.Exec("outbox_environment", "environment", said)
}

// known refuses a database that is not the one that the group was published from.
func (o Outbox) known(tx OutboxTx, g group, cursors []OutboxCursor) error {
	identity, err := o.DB.Identity(tx, cursors)
	if identity != "" && identity != g.identity { // says more than what else may be wrong then
		err = fmt.Errorf("%w: group %s was last published from %s, this is %s: nothing was published; if this is the one to publish from now on, run idempo outbox adopt",
			outbox.ErrForeignDatabase, g.name, g.identity, identity)
	}
	return err
}

// create makes a group and its cursors.
func (o Outbox) create(tx OutboxTx, p outbox.GroupParams, newest outbox.Cursor, now time.Time) (group, error) {
	names, err := groupNames(tx)
	if err != nil {
		return group{}, err
	}
	if len(names) > 0 && p.From == "" {
		return group{}, fmt.Errorf("%w: group %s is new, and the outbox is in use: begin it with --from beginning or --from now", outbox.ErrFrom, p.Group)
	}
	if p.From != outbox.FromNow {
		newest = outbox.Cursor{}
	}
	g := group{name: p.Group, topics: p.Topics, external: p.External, slot: p.Slot, epoch: 1, createdAt: now}
	if g.identity, err = o.DB.Identity(tx, nil); err != nil {
		return g, err
	}
	if err := tx.Exec("outbox_group_put", "group", p.Group, "topics", strings.Join(p.Topics, " "), "external", flag(p.External), "slot_name", p.Slot,
		"identity", g.identity, "at", now.UnixMicro()); err != nil {
		return g, err
	}
	if p.External {
		return g, nil
	}
	for part := range o.DB.Parts {
		if err := tx.Exec("outbox_cursor_put", "group", p.Group, "part", int64(part), "win", newest.Window, "seq", newest.Seq, "at", now.UnixMicro()); err != nil {
			return g, err
		}
	}
	return g, nil
}

func groupNames(tx OutboxTx) (names []string, err error) {
	err = tx.Each("outbox_group_names", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		names = append(names, name)
		return err
	})
	return names, err
}

// signOfLife renews the relay's row, forgets those that are over, and returns the living by the time they came.
func (o Outbox) signOfLife(tx OutboxTx, g *group, p outbox.HoldParams, now time.Time) (living []relayRow, err error) {
	all, err := readRelays(tx, g.name)
	if err != nil {
		return nil, err
	}
	until, there := now.Add(p.Lease), false
	for _, r := range all {
		switch {
		case r.owner == p.Owner && !p.Leave:
			there = true
			r.until = until
			living = append(living, r)
			err = tx.Exec("outbox_relay_renew", "group", g.name, "owner", p.Owner, "until_at", until.UnixMicro())
		case r.owner == p.Owner, !r.until.After(now):
			g.epoch++
			err = tx.Exec("outbox_relay_remove", "group", g.name, "owner", r.owner)
		default:
			living = append(living, r)
		}
		if err != nil {
			return nil, err
		}
	}
	if there || p.Leave {
		return living, nil
	}
	g.epoch++
	living = append(living, relayRow{owner: p.Owner, since: now, until: until})
	return living, tx.Exec("outbox_relay_put", "group", g.name, "owner", p.Owner, "at", now.UnixMicro(), "until_at", until.UnixMicro())
}

// share gives up what is to be released, and takes what is free until there is enough.
func (o Outbox) share(tx OutboxTx, g *group, cursors []OutboxCursor, living []relayRow, p outbox.HoldParams, now time.Time) error {
	owners := map[string]bool{}
	for _, r := range living {
		owners[r.owner] = true
	}
	mine := 0
	for i := range cursors {
		c := &cursors[i]
		release := c.Owner == p.Owner && (p.Leave || slices.ContainsFunc(p.Release, func(r outbox.Place) bool { return r.Partition == c.Part && r.Fence == c.Fence }))
		if release {
			g.epoch++
			c.Owner = ""
			if err := o.owned(tx, g.name, c); err != nil {
				return err
			}
		}
		if c.Owner == p.Owner {
			mine++
		}
	}
	if p.Leave {
		return nil
	}
	for i := range cursors {
		c := &cursors[i]
		released := slices.ContainsFunc(p.Release, func(r outbox.Place) bool { return r.Partition == c.Part })
		if mine >= p.Want || owners[c.Owner] || released {
			continue
		}
		if c.Owner != "" { // its owner lapsed
			c.Starts++
		}
		c.Owner, c.Fence = p.Owner, c.Fence+1
		if err := o.owned(tx, g.name, c); err != nil {
			return err
		}
		if err := tx.Exec("outbox_untake", "group", g.name, "part", int64(c.Part), "at", now.UnixMicro()); err != nil {
			return err
		}
		mine++
	}
	return nil
}

func (o Outbox) owned(tx OutboxTx, group string, c *OutboxCursor) error {
	return tx.Exec("outbox_cursor_owner", "group", group, "part", int64(c.Part), "owner", c.Owner, "fence", c.Fence, "starts", int64(c.Starts))
}
