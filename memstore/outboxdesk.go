package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/operator"
	"github.com/idempo/idempo/outbox"
)

// Keep implements outbox.Keeper. Every row is a slot.
func (e *events) Keep(ctx context.Context, p outbox.KeepParams) (k outbox.Kept, err error) {
	err = e.do(ctx, "keep", p.Now, func(l *ledger, now time.Time) error {
		l.log = slices.DeleteFunc(l.log, func(r logged) bool {
			if now.Sub(r.row.Time) < p.Retention {
				return false
			}
			if h := l.needed(r); h.Kind != "" {
				if h.Age = now.Sub(r.row.Time); k.Holder.Kind == "" {
					k.Holder = h
				}
				return false
			}
			l.gone = r.row.Time
			k.Rows, k.Slots = k.Rows+1, k.Slots+1
			return true
		})
		return nil
	})
	return k, err
}

// needed says who still needs a row of the log; Kind "": nobody.
func (l *ledger) needed(r logged) outbox.Holder {
	matched := l.discarded[r.row.Topic]
	for _, name := range l.names() {
		g := l.groups[name]
		if !outbox.Match(g.Topics, r.row.Topic) {
			continue
		}
		matched = true
		switch {
		case g.External:
			return outbox.Holder{Kind: "slot", Text: "group " + name + ": replication slot " + g.Slot + " is not there"}
		case g.parts[r.row.Partition].cursor < r.place:
			return outbox.Holder{Kind: "group", Text: "group " + name}
		}
	}
	if !matched {
		return outbox.Holder{Kind: "topic", Text: "topic " + r.row.Topic + " is matched by no group"}
	}
	return outbox.Holder{}
}

func (l *ledger) names() (names []string) {
	for name := range l.groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Status implements outbox.Desk.
func (e *events) Status(ctx context.Context, p outbox.StatusParams) (s outbox.Status, err error) {
	err = e.do(ctx, "status", p.Now, func(l *ledger, now time.Time) error {
		s = outbox.Status{Rows: int64(len(l.log)), Environment: l.environment, Identity: "memory", Now: now}
		topics := map[string]*outbox.TopicStatus{}
		for _, r := range l.log {
			s.Bytes += int64(len(r.row.Payload))
			if s.Kept.IsZero() {
				s.Kept = r.row.Time
			}
			if l.needed(r).Kind == "topic" {
				t := topics[r.row.Topic]
				if t == nil {
					t = &outbox.TopicStatus{Topic: r.row.Topic, Oldest: now.Sub(r.row.Time)}
					topics[r.row.Topic] = t
				}
				t.Rows, t.Bytes = t.Rows+1, t.Bytes+int64(len(r.row.Payload))
			}
		}
		for _, t := range topics {
			s.Unmatched = append(s.Unmatched, *t)
		}
		slices.SortFunc(s.Unmatched, func(a, b outbox.TopicStatus) int { return cmp.Compare(a.Topic, b.Topic) })
		for _, name := range l.names() {
			if p.Group == "" || p.Group == name {
				s.Groups = append(s.Groups, l.groups[name].status(l, now))
			}
		}
		return nil
	})
	return s, err
}

// status is how the group stands.
func (g *group) status(l *ledger, now time.Time) outbox.GroupStatus {
	s := g.GroupStatus
	s.Topics, s.PausedTopics = slices.Clone(g.Topics), slices.Clone(g.PausedTopics)
	old := func(t time.Time) { s.Oldest = max(s.Oldest, now.Sub(t)) }
	var free [outbox.Partitions]bool
	for i, pt := range g.parts {
		if free[i] = pt.owner == "" || !pt.until.After(now); free[i] {
			s.Free++
		}
	}
	waits := outbox.Holder{Kind: "partition", Text: "a partition has no relay"}
	for _, r := range l.log {
		if r.place > g.parts[r.row.Partition].cursor && g.asides[r.row.Seq] == nil && outbox.Match(g.Topics, r.row.Topic) && !g.External {
			s.Pending++
			old(r.row.Time)
			if free[r.row.Partition] {
				waits.Age = max(waits.Age, now.Sub(r.row.Time))
			}
		}
	}
	if waits.Age > 0 && !g.Paused {
		s.Holders = append(s.Holders, waits)
	}
	dead, route := outbox.Holder{Kind: "dead", Text: "a dead event holds its key"}, outbox.Holder{Kind: "no_route", Text: "nothing takes its topic"}
	for _, a := range g.asides {
		switch a.State {
		case outbox.StateQueued:
			s.Pending++
			old(a.Time)
		case outbox.StateDead:
			s.Dead++
			if a.Holds {
				dead.Age = max(dead.Age, now.Sub(a.Time))
			}
		case outbox.StateWaiting:
			s.Waiting++
			old(a.Time)
			if a.Class == outbox.ClassNoRoute {
				s.NoRoute++
				route.Age = max(route.Age, now.Sub(a.Time))
			}
		}
	}
	for _, h := range []outbox.Holder{dead, route} {
		if h.Age > 0 {
			s.Holders = append(s.Holders, h)
		}
	}
	if g.Paused {
		s.Holders = append(s.Holders, outbox.Holder{Kind: "paused", Text: "the group is paused", Age: s.Oldest})
	}
	s.BlockedKeys = int64(len(g.holding()))
	for _, r := range g.relays {
		if r.Until.After(now) {
			one := *r
			for _, pt := range g.parts {
				if pt.owner == r.Owner && pt.until.After(now) {
					one.Partitions++
				}
			}
			s.Relays = append(s.Relays, one)
		}
	}
	slices.SortFunc(s.Relays, func(a, b outbox.RelayStatus) int { return cmp.Compare(a.Owner, b.Owner) })
	return s
}

// List implements outbox.Desk.
func (e *events) List(ctx context.Context, p outbox.ListParams) (found outbox.Listed, err error) {
	err = e.do(ctx, "list", p.Now, func(l *ledger, now time.Time) error {
		g := l.groups[p.Group]
		if g == nil {
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		}
		found = outbox.Listed{Now: now}
		if len(l.log) > 0 {
			found.Kept = l.log[0].row.Time
		}
		if !p.Since.IsZero() && !l.gone.Before(p.Since) {
			return fmt.Errorf("%w: events up to %s are gone, those after it are kept", outbox.ErrKept, l.gone.Format(time.RFC3339))
		}
		limit := cmp.Or(p.Limit, 100)
		for _, a := range g.all(l) {
			if !listed(p, a) {
				continue
			}
			if len(found.Events) == limit {
				found.More = true
				break
			}
			a = cloneAside(a)
			if p.WithoutPayload {
				a.Payload = nil
			}
			found.Events = append(found.Events, a)
		}
		return nil
	})
	return found, err
}

// all are the events that the group knows, by Seq.
func (g *group) all(l *ledger) (all []outbox.Aside) {
	for _, r := range l.log {
		if g.asides[r.row.Seq] != nil || !outbox.Match(g.Topics, r.row.Topic) {
			continue
		}
		a := outbox.Aside{Row: r.row, State: outbox.StatePublished}
		if r.place > g.parts[r.row.Partition].cursor {
			a.State = outbox.StatePending
		}
		all = append(all, a)
	}
	for _, a := range g.asides {
		all = append(all, a.Aside)
	}
	slices.SortFunc(all, func(a, b outbox.Aside) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// listed reports whether p wants a.
func listed(p outbox.ListParams, a outbox.Aside) bool {
	state := a.State
	if state == outbox.StateQueued && !slices.Contains(p.States, state) {
		state = outbox.StatePending
	}
	one := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	return a.Seq > p.After && (p.Tenant == "" || p.Tenant == a.Tenant) && one(p.IDs, a.ID) && (len(p.Topics) == 0 || outbox.Match(p.Topics, a.Topic)) &&
		one(p.Types, a.Type) && (p.Key == "" || p.Key == a.Key) && (p.KeyRef == "" || p.KeyRef == a.Trace.KeyRef) &&
		(len(p.States) == 0 || slices.Contains(p.States, state)) && (p.Since.IsZero() || !a.Time.Before(p.Since)) && (p.Until.IsZero() || a.Time.Before(p.Until))
}

// Change implements outbox.Desk.
func (e *events) Change(ctx context.Context, p outbox.ChangeParams) (c outbox.Changed, err error) {
	err = e.do(ctx, "change", p.Now, func(l *ledger, now time.Time) error {
		g := l.groups[p.Group]
		if g == nil {
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		}
		for _, topic := range p.Topics {
			if !p.DryRun {
				l.discarded[topic] = true
				e.s.note(p.Audit, p.Group, p.Action, outbox.Row{}, "topic "+topic, now)
			}
		}
		for _, t := range p.Targets {
			a := g.asides[t.Seq]
			o := outbox.ChangeOutcome{Seq: t.Seq, Code: "not_found"}
			if a != nil {
				o.ID, o.State, o.Code = a.ID, a.State, p.Judge(a.Aside, t)
			}
			if o.Code == "" {
				next, gone := p.Apply(a.Aside, replay(), now)
				if o.State = next.State; gone {
					o.State = ""
				}
				if !p.DryRun {
					e.s.note(p.Audit, p.Group, p.Action, a.Row, "", now)
					if *a = (aside{Aside: next}); gone {
						delete(g.asides, t.Seq)
					}
				}
			}
			c.Outcomes = append(c.Outcomes, o)
		}
		if !p.DryRun {
			g.epoch++
		}
		return nil
	})
	return c, err
}

func replay() string { return rand.Text()[:12] }

// note adds a row to the audit.
func (s *Store) note(who outbox.Audit, group, action string, r outbox.Row, evidence string, now time.Time) {
	k := idempo.Key{Tenant: r.Tenant, Operation: "outbox:" + group}
	if r.ID != "" {
		sum := sha256.Sum256([]byte(r.ID))
		k.ID = string(sum[:])
	}
	s.audit = append(s.audit, operator.Entry{ID: int64(len(s.audit) + 1), At: now, Actor: who.Actor, Role: operator.Role(who.Role), Channel: who.Channel,
		Action: operator.Action(action), Outcome: operator.OutcomeDone, Key: k, Reason: who.Reason, Evidence: evidence})
}

// SetGroup implements outbox.Desk.
func (e *events) SetGroup(ctx context.Context, p outbox.GroupParams) (s outbox.GroupStatus, err error) {
	err = e.do(ctx, "set_group", p.Now, func(l *ledger, now time.Time) error {
		g := l.groups[p.Group]
		switch {
		case g == nil && p.Action != outbox.GroupCreate:
			return fmt.Errorf("%w: there is no group %s", outbox.ErrGroup, p.Group)
		case g != nil && p.Action == outbox.GroupCreate:
			return fmt.Errorf("%w: there is a group %s already", outbox.ErrGroup, p.Group)
		case g == nil && p.From == "" && len(l.groups) > 0:
			return fmt.Errorf("%w: group %s is new and others have published from this outbox: say --from beginning or --from now", outbox.ErrFrom, p.Group)
		}
		switch p.Action {
		case outbox.GroupCreate:
			g = l.group(p.Group, p.From, now)
			g.Topics, g.External, g.Slot = slices.Clone(p.Topics), p.External, p.Slot
		case outbox.GroupPause:
			if g.Paused = g.Paused || len(p.Topics) == 0; len(p.Topics) > 0 {
				g.PausedTopics = slices.Compact(slices.Sorted(slices.Values(append(g.PausedTopics, p.Topics...))))
			}
		case outbox.GroupResume:
			if g.Paused = g.Paused && len(p.Topics) > 0; len(p.Topics) > 0 {
				g.PausedTopics = slices.DeleteFunc(g.PausedTopics, func(t string) bool { return slices.Contains(p.Topics, t) })
			}
		case outbox.GroupRemove:
			delete(l.groups, p.Group)
		case outbox.GroupAdopt: // there is no other memory
		default:
			return misuse("set_group", idempo.Key{}, "the action "+p.Action+" is not known")
		}
		g.epoch++
		e.s.note(p.Audit, p.Group, "group_"+p.Action, outbox.Row{}, "", now)
		if p.Action != outbox.GroupRemove {
			s = g.status(l, now)
		}
		return nil
	})
	return s, err
}
