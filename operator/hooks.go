package operator

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// webhookPrefix begins the subscribers that are sources of webhooks.
const webhookPrefix = "webhook:"

// skippedFor is how long an event is still shown that was skipped without having run.
const skippedFor = 35 * 24 * time.Hour

// FindHooks say which stored events of webhooks are wanted, finished ones among them. Every field that is set must match.
type FindHooks struct {
	Source    string
	Tenant    string
	Receipt   string // of the delivery, or RECEIPT/ITEM
	Statuses  []inbox.Status
	IDs       []string // of the message: any of them
	Lane      string
	Since     time.Time // received at or after
	Until     time.Time // received before
	MatchFunc func(inbox.Receipt) bool
	Newest    bool   // the newest first; else the oldest
	Limit     int    // of one page; 0: 100, at most 1,000
	After     string // MessagePage.Next of the page before
}

// HooksParams ask for a part of the list.
type HooksParams struct {
	By   Principal
	Find FindHooks
}

// Hooks lists stored events of webhooks in the order in which they came, over all sources, or the newest first. Following
// Next lists every one that is there throughout exactly once. Bodies are left out; headers are opened where the engine is at hand.
func (s *Service) Hooks(ctx context.Context, p HooksParams) (MessagePage, error) {
	shelf, _, err := s.inboxes("")
	if err != nil {
		return MessagePage{}, err
	}
	if o, ok := inbox.Over(s.config.Engine); ok {
		shelf = o
	}
	find := p.Find
	limit := min(cmp.Or(find.Limit, 100), 1000)
	after := int64(0)
	if find.After != "" {
		if after, err = strconv.ParseInt(find.After, 36, 64); err != nil || after < 1 {
			return MessagePage{}, invalid("", "%v", ErrCursor)
		}
	}
	sources, err := s.sources(ctx, p.By, find)
	if err != nil {
		return MessagePage{}, err
	}
	var all []inbox.Receipt
	for _, source := range sources {
		found, err := hooksOf(ctx, shelf, source, find, after, limit+1, p.By)
		if err != nil {
			return MessagePage{}, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b inbox.Receipt) int {
		if find.Newest {
			a, b = b, a
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	page := MessagePage{Messages: all[:min(limit, len(all))]}
	if len(all) > limit {
		page.Next = hookCursor(all[limit-1])
	}
	return page, nil
}

func hookCursor(r inbox.Receipt) string { return strconv.FormatInt(r.Seq, 36) }

// sources are the subscribers that are asked.
func (s *Service) sources(ctx context.Context, by Principal, find FindHooks) (names []string, err error) {
	if find.Source != "" {
		if !by.reads() {
			return nil, &Error{Code: CodeNotFound}
		}
		return []string{webhookPrefix + find.Source}, nil
	}
	counted, err := s.Subscribers(ctx, SubscribersParams{By: by})
	for _, c := range counted {
		if strings.HasPrefix(c.Subscriber, webhookPrefix) {
			names = append(names, c.Subscriber)
		}
	}
	return names, err
}

// hooksOf reads up to limit events of one source after a number.
func hooksOf(ctx context.Context, shelf inbox.Store, subscriber string, find FindHooks, after int64, limit int, by Principal) (found []inbox.Receipt, err error) {
	ask := inbox.ListParams{Subscriber: subscriber, Tenant: find.Tenant, Lane: find.Lane, Position: find.Receipt, Statuses: find.Statuses, Since: find.Since, Until: find.Until,
		Newest: find.Newest && find.Receipt == "" && len(find.IDs) == 0, After: after, Limit: limit, WithoutBody: true}
	ids := find.IDs
	if len(ids) == 0 {
		ids = []string{""}
	}
	for _, ask.ID = range ids {
		ask.After = after
		if find.Newest && !ask.Newest {
			ask.After = 0 // few: all of them, and the page is cut below
		}
		for len(found) < limit {
			got, err := shelf.List(ctx, ask)
			if err != nil {
				return nil, err
			}
			for _, r := range got {
				ask.After = r.Seq
				behind := after != 0 && find.Newest && r.Seq >= after
				if len(found) < limit && !behind && by.sees(r.Message.Tenant) && (find.MatchFunc == nil || find.MatchFunc(r)) {
					found = append(found, r)
				}
			}
			if len(got) < ask.Limit {
				break
			}
		}
	}
	return found, nil
}

// hooksAfter is a page of what an action is done to, the oldest first.
func (s *Service) hooksAfter(ctx context.Context, p MessagesParams, after string) ([]inbox.Receipt, string, error) {
	find := *p.Hooks
	find.After, find.Newest, find.Limit = after, false, 500
	page, err := s.Hooks(ctx, HooksParams{By: p.By, Find: find})
	return page.Messages, page.Next, err
}

// Hook explains one event, with its body. CodeNotFound: there is none of that name.
func (s *Service) Hook(ctx context.Context, p HooksParams) (ShownMessage, error) {
	p.Find.Limit = 1
	page, err := s.Hooks(ctx, p)
	if err != nil {
		return ShownMessage{}, err
	}
	if len(page.Messages) == 0 {
		return ShownMessage{}, &Error{Code: CodeNotFound, Of: "message"}
	}
	return s.Message(ctx, ShowMessageParams{By: p.By, Find: FindMessages{Subscriber: page.Messages[0].Subscriber, Number: page.Messages[0].Seq}})
}

// judgeHook is judge for what is particular to events. done false: the rules for messages decide.
func (m *messages) judgeHook(r inbox.Receipt, refuse func(string) (inbox.Receipt, bool, *Error)) (next inbox.Receipt, done bool, why *Error) {
	no := func(hint, flag string) (inbox.Receipt, bool, *Error) {
		_, _, why := refuse(hint)
		why.Flag = flag
		return r, true, why
	}
	finished := r.Status == inbox.StatusDone || r.Status == inbox.StatusSkipped
	next = r
	switch {
	case m.p.On != 0 && m.p.On != r.Rev, r.Status == inbox.StatusInDoubt:
		return next, false, nil
	case m.p.Action == ActionSkip && finished:
		return no("it is finished", "")
	case m.p.Action == ActionSkip && r.Status == inbox.StatusParked: // it has not been started, and may have no id of its own
		next.Status, next.Reason, next.Holds = inbox.StatusSkipped, "asked", false
		return next, true, nil
	case m.p.Action != ActionRetry:
		return next, false, nil
	case finished && !m.p.Again:
		return no("already handled; add --again to run it a second time", "--again")
	case r.Bodiless():
		return no("its body was deleted at "+r.BodyUntil.UTC().Format(time.RFC3339)+", as body_retention says", "")
	case r.Unreadable != nil:
		return no("it cannot be decrypted: configure its encryption key", "")
	case (r.Reason == inbox.ReasonConflict || r.Reason == "suspect-replay") && r.Status == inbox.StatusParked && !m.p.Accept:
		return no("it is a "+r.Reason+": it runs only if you say so", "--accept")
	case finished:
		next.Status, next.Reason, next.Attempts, next.Failures, next.Holds = inbox.StatusStored, "", 0, nil, r.Message.Lane != ""
		if m.p.IgnoreOrder {
			next.Reason = inbox.ReasonUnordered
		}
		return next, true, nil
	}
	return next, false, nil
}

// renew gives the finished events of a batch their next generation, before they are due again. Done twice it changes
// nothing: the key is failed then.
func (m *messages) renew(ctx context.Context) error {
	if !m.p.Again {
		return nil
	}
	changer, ok := m.s.store.(Changer)
	if !ok {
		return unsupported(m.p.Action, "change a key")
	}
	for _, r := range m.batch {
		if r.Status != inbox.StatusDone && r.Status != inbox.StatusSkipped {
			continue
		}
		rec, err := m.s.find(ctx, Target{Key: inbox.KeyOf(r)})
		if err != nil {
			return err
		}
		if rec.State != idempo.StateCompleted && rec.State != idempo.StateExpired {
			continue
		}
		c := Change{Action: ActionRetry, Key: rec.Key, Attempt: rec.Attempt, State: rec.State, Force: true, Retention: m.s.config.Retention,
			Actor: m.entry.Actor, Role: m.entry.Role, Channel: m.entry.Channel, Reason: m.entry.Reason, Evidence: m.entry.Evidence}
		if _, err := m.s.change(ctx, changer, []Change{c}); err != nil {
			return err
		}
	}
	return nil
}

// cursor is where a list goes on after one that was looked at.
func (p MessagesParams) cursor() func(inbox.Receipt) string {
	if p.Hooks != nil {
		return hookCursor
	}
	return messageCursor
}
