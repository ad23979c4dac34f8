package sqlkit

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idempo/idempo/outbox"
)

// Status implements outbox.Desk. It takes no lock and writes nothing.
func (o Outbox) Status(ctx context.Context, p outbox.StatusParams) (s outbox.Status, err error) {
	err = o.DB.Reading(ctx, "status", func(tx OutboxTx) error {
		s = outbox.Status{}
		return o.status(tx, p, &s)
	})
	if err != nil {
		return outbox.Status{}, err
	}
	return s, nil
}

func (o Outbox) status(tx OutboxTx, p outbox.StatusParams, s *outbox.Status) error {
	now, err := nowOf(tx, p.Now)
	if err != nil {
		return err
	}
	s.Now = now
	if err := tx.Each("outbox_state_plain", func(scan func(...any) error) error { return scan(&s.Environment) }); err != nil {
		return err
	}
	if err := o.DB.Around(tx, s); err != nil {
		return err
	}
	names, err := groupNames(tx)
	if err != nil {
		return err
	}
	var all []string
	for _, name := range names {
		g, found, err := readGroup(tx, "outbox_group_plain", name)
		if err != nil || !found {
			return err
		}
		all = append(all, g.topics...)
		if p.Group != "" && p.Group != name {
			continue
		}
		one, err := o.groupStatus(tx, g, now)
		if err != nil {
			return err
		}
		one.Foreign = s.Identity != "" && s.Identity != g.identity
		s.Groups = append(s.Groups, one)
	}
	if slices.Contains(all, "*") || p.Group != "" {
		return nil
	}
	s.Unmatched, err = unmatched(tx, all, now)
	return err
}

// unmatched are the topics of the log that none of globs takes, and nobody has discarded.
func unmatched(tx OutboxTx, globs []string, now time.Time) (all []outbox.TopicStatus, err error) {
	discarded := map[string]bool{}
	err = tx.Each("outbox_discarded", func(scan func(...any) error) error {
		var topic string
		err := scan(&topic)
		discarded[topic] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	err = tx.Each("outbox_topics", func(scan func(...any) error) error {
		var t outbox.TopicStatus
		var oldest int64
		if err := scan(&t.Topic, &t.Rows, &t.Bytes, &oldest); err != nil {
			return err
		}
		if t.Oldest = now.Sub(time.UnixMicro(oldest)); !discarded[t.Topic] && !outbox.Match(globs, t.Topic) {
			all = append(all, t)
		}
		return nil
	})
	return all, err
}

// groupStatus is how a group stands.
func (o Outbox) groupStatus(tx OutboxTx, g group, now time.Time) (s outbox.GroupStatus, err error) {
	s = outbox.GroupStatus{Name: g.name, Topics: g.topics, External: g.external, Slot: g.slot, Paused: g.paused, PausedTopics: g.pausedTopics}
	relays, err := readRelays(tx, g.name)
	if err != nil {
		return s, err
	}
	cursors, err := readCursors(tx, "outbox_cursors_plain", g.name)
	if err != nil {
		return s, err
	}
	owned := map[string]int{}
	for _, c := range cursors {
		owned[c.Owner]++
	}
	living := map[string]bool{}
	for _, r := range relays {
		if r.until.After(now) {
			living[r.owner] = true
			s.Relays = append(s.Relays, outbox.RelayStatus{Owner: r.owner, Partitions: owned[r.owner], Since: r.since, Until: r.until})
		}
	}
	slices.SortFunc(s.Relays, func(a, b outbox.RelayStatus) int { return cmp.Compare(a.Owner, b.Owner) })
	free := map[int64]bool{}
	for _, c := range cursors {
		if !living[c.Owner] {
			s.Free++
			free[int64(c.Part)] = true
		}
	}
	age := func(at int64) time.Duration {
		if at == 0 {
			return 0
		}
		return max(now.Sub(time.UnixMicro(at)), 1)
	}
	held := func(kind, text string, age time.Duration) {
		if age > 0 {
			s.Holders = append(s.Holders, outbox.Holder{Kind: kind, Text: text, Age: age})
		}
	}
	var alone time.Duration
	if !g.external {
		err = tx.Each("outbox_pending", func(scan func(...any) error) error {
			var part, n, oldest int64
			var topic string
			if err := scan(&part, &topic, &n, &oldest); err != nil {
				return err
			}
			if outbox.Match(g.topics, topic) {
				s.Pending += n
				s.Oldest = max(s.Oldest, age(oldest))
				if free[part] {
					alone = max(alone, age(oldest))
				}
			}
			return nil
		}, "group", g.name)
		if err != nil {
			return s, err
		}
	}
	var queued, oldest, dead, noRoute int64
	err = tx.Each("outbox_asides_count", func(scan func(...any) error) error {
		return scan(&s.Waiting, &queued, &s.Dead, &s.NoRoute, &oldest, &dead, &noRoute)
	}, "group", g.name)
	if err != nil {
		return s, err
	}
	s.Pending += queued
	s.Oldest = max(s.Oldest, age(oldest))
	if !g.paused {
		held("partition", "a partition has no relay", alone)
	}
	held("dead", "a dead event holds its key", age(dead))
	held("no_route", "nothing takes its topic", age(noRoute))
	if g.paused {
		s.Holders = append(s.Holders, outbox.Holder{Kind: "paused", Text: "the group is paused", Age: s.Oldest})
	}
	err = tx.Each("outbox_asides_blocked", func(scan func(...any) error) error { return scan(&s.BlockedKeys) }, "group", g.name)
	return s, err
}
