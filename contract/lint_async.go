package contract

import (
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
)

// async asks the rules of every operation of an AsyncAPI document.
func (l *linter) async() {
	all := l.d.messages()
	for i, o := range all {
		n, _ := l.d.resolve(o.at.Value)
		off := l.inline(n)
		for _, m := range o.objects {
			for id := range l.inline(m) {
				if off == nil {
					off = map[string]bool{}
				}
				off[id] = true
			}
		}
		l.message(o, off)
		if l.options.Progress != nil {
			l.options.Progress(i+1, len(all))
		}
	}
}

func (l *linter) message(o message, off map[string]bool) {
	say := l.report(o.name, off, o.place)
	s := &o.statement
	if s.Supported != nil && !*s.Supported {
		if strings.TrimSpace(s.Reason) == "" {
			say("A01", []string{"supported"}, "opts out without a reason: say why a second delivery may be a second effect")
		}
		return
	}
	if s.ID == nil || s.ID.Name == "" {
		say("A01", nil, "no identity is declared: state where it is in x-idempotency.id, or supported: false with a reason")
		return
	}
	for _, v := range l.fixedID(o) {
		l.add("A04", "", o.name, off, at(v), nil, "a fixed value of the identity is copied into programs, and every message becomes one: remove it")
	}
	if o.action != "receive" {
		return
	}
	if s.Retention == "" {
		say("A02", nil, "it is not stated how long a message is recognised: retention")
	} else if kept, where := l.brokerKeeps(o); where != nil {
		if d, err := ParseDuration(s.Retention); err == nil && d != idempo.Forever && (kept < 0 || d < kept) {
			words := FormatDuration(kept)
			if kept < 0 {
				words = forever
			}
			say("A02", []string{"retention"}, "a message is recognised for %s, and the broker keeps it for %s (line %d): a late delivery runs again", s.Retention, words, where.Line)
		}
	}
	if s.SameIDOtherBody == "" || s.MissingID == "" {
		say("A03", nil, "it is not stated what another body under a known identity, or a message without one, gets: sameIdOtherBody, missingId")
	}
	if s.Order != "" && s.Order != "none" && s.OrderKey == "" {
		say("A05", []string{"order"}, "order is promised, and not within what: orderKey")
	}
	if s.Guard == "" {
		say("A06", nil, "the guard is not stated: atomic or leased")
	}
}

// fixedID are values of the identity that stand in the document.
func (l *linter) fixedID(o message) (out []*Node) {
	id := o.statement.ID
	for _, m := range o.objects {
		part := map[string]string{"header": "headers", "payload": "payload"}[id.In]
		name := strings.TrimPrefix(id.Name, "/")
		for _, s := range l.d.schemas(m.Get(part), 4) {
			for _, v := range l.d.schemas(s.Get("properties", name), 4) {
				for _, fixed := range []string{"example", "default", "const"} {
					if f := v.Get(fixed); f != nil {
						out = append(out, f)
					}
				}
				if e := v.Get("examples"); e != nil && len(e.Items) > 0 {
					out = append(out, e)
				}
				if e := v.Get("enum"); e != nil && len(e.Items) == 1 {
					out = append(out, e)
				}
			}
		}
		if e := m.Get("examples"); e != nil {
			for _, v := range e.Items {
				if f := v.Get(part, name); f != nil {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// brokerKeeps is how long the broker keeps a message, where the bindings of its channel say so; below 0: for ever.
func (l *linter) brokerKeeps(o message) (time.Duration, *Node) {
	for _, b := range []struct {
		path []string
		unit time.Duration
	}{
		{[]string{"bindings", "kafka", "topicConfiguration", "retention.ms"}, time.Millisecond},
		{[]string{"bindings", "sqs", "queue", "messageRetentionPeriod"}, time.Second},
		{[]string{"bindings", "googlepubsub", "messageRetentionDuration"}, time.Second},
	} {
		v := o.channel.Get(b.path...)
		if v == nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(v.Value, "s"), 10, 64)
		if err != nil || n > int64(idempo.Forever/b.unit) {
			continue
		}
		return time.Duration(n) * b.unit, v
	}
	return 0, nil
}
