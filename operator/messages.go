package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// FindMessages say which messages of inboxes are wanted: those that failed, wait, or wait for a person. Every field that is
// set must match.
type FindMessages struct {
	Number     int64  // inbox.Receipt.Seq
	Ref        string // k_ and 26 characters, as the audit has it
	Subscriber string
	Tenant     string
	Status     inbox.Status // "": those that wait for anything
	Reason     string
	Lane       string
	Source     string
	ID         string        // of the message, as the handler sees it or as it came
	OlderThan  time.Duration // received at least so long ago, on the store's clock
	NewerThan  time.Duration // received less than so long ago
	Limit      int           // of one page; 0: 100, at most 1,000
	After      string        // MessagePage.Next of the page before
}

// MessageStatuses are the words of FindMessages.Status. The first five wait for something; of started ones only the starts
// are counted, and finished ones are kept where inbox.Options.KeepDone says so.
func MessageStatuses() []inbox.Status {
	return []inbox.Status{inbox.StatusRetrying, inbox.StatusStored, inbox.StatusDead, inbox.StatusParked, inbox.StatusInDoubt, inbox.StatusStarted,
		inbox.StatusDone, inbox.StatusSkipped}
}

// match says whether r is wanted, subscriber and status apart.
func (p FindMessages) match(r inbox.Receipt) bool {
	age := r.Now.Sub(r.ReceivedAt)
	return (p.Number == 0 || p.Number == r.Seq) && (p.Ref == "" || p.Ref == MessageKey(r).Ref()) && (p.Tenant == "" || p.Tenant == r.Message.Tenant) &&
		(p.Reason == "" || p.Reason == r.Reason) && (p.Source == "" || p.Source == r.Message.Source) &&
		(p.ID == "" || p.ID == r.Message.ID) && (p.OlderThan == 0 || age >= p.OlderThan) && (p.NewerThan == 0 || age < p.NewerThan)
}

// MessagePage is a part of a list.
type MessagePage struct {
	Messages []inbox.Receipt // without bodies
	Next     string          // "": this was the last page
}

// MessageKey is what the audit calls a message: the tenant, the subscriber's operation and the digest of its receipt.
func MessageKey(r inbox.Receipt) idempo.Key {
	return idempo.Key{Tenant: r.Message.Tenant, Operation: "inbox:" + r.Subscriber, ID: r.Key}
}

// messageCursor is where a list goes on after r.
func messageCursor(r inbox.Receipt) string {
	return base64.RawURLEncoding.EncodeToString([]byte(r.Subscriber)) + "." + strconv.FormatInt(r.Seq, 36)
}

func parseMessageCursor(s string) (subscriber string, seq int64, err error) {
	if s == "" {
		return "", 0, nil
	}
	name, number, _ := strings.Cut(s, ".")
	b, err := base64.RawURLEncoding.DecodeString(name)
	if err == nil {
		seq, err = strconv.ParseInt(number, 36, 64)
	}
	if err != nil || seq < 1 {
		return "", 0, ErrCursor
	}
	return string(b), seq, nil
}

// inboxes returns the receipts of the store.
func (s *Service) inboxes(a Action) (inbox.Store, inbox.Counter, error) {
	if o, ok := s.store.(inbox.Opener); ok {
		shelf := o.Inbox()
		if c, ok := shelf.(inbox.Counter); ok {
			return shelf, c, nil
		}
	}
	return nil, nil, unsupported(a, "list the messages of inboxes")
}

// SubscribersParams ask how inboxes stand.
type SubscribersParams struct {
	By         Principal
	Tenant     string
	Subscriber string
}

// Subscribers counts what inboxes keep, by subscriber.
func (s *Service) Subscribers(ctx context.Context, p SubscribersParams) ([]inbox.Counted, error) {
	_, counter, err := s.inboxes("")
	if err != nil {
		return nil, err
	}
	if !p.By.reads() {
		return nil, &Error{Code: CodeNotFound}
	}
	var all []inbox.Counted
	for _, tenant := range p.By.tenants(p.Tenant) {
		part, err := counter.Count(ctx, inbox.CountParams{Tenant: tenant, Subscriber: p.Subscriber})
		if err != nil {
			return nil, err
		}
		for _, c := range part {
			i := slices.IndexFunc(all, func(x inbox.Counted) bool { return x.Subscriber == c.Subscriber })
			if i < 0 {
				all = append(all, c)
				continue
			}
			x := &all[i]
			for status, n := range c.Statuses {
				x.Statuses[status] += n
			}
			x.BlockedLanes += c.BlockedLanes
			if x.Oldest.IsZero() || !c.Oldest.IsZero() && c.Oldest.Before(x.Oldest) {
				x.Oldest = c.Oldest
			}
		}
	}
	slices.SortFunc(all, func(a, b inbox.Counted) int { return strings.Compare(a.Subscriber, b.Subscriber) })
	return all, nil
}

// ListMessagesParams ask for a part of the list.
type ListMessagesParams struct {
	By   Principal
	Find FindMessages
}

// Messages lists the messages of inboxes that did not have their effect at once: by subscriber, each in the order in which
// they came. Following Next lists every one that is there throughout exactly once. Those whose starts are only counted, as
// they are still the broker's, are listed by their status alone.
func (s *Service) Messages(ctx context.Context, p ListMessagesParams) (MessagePage, error) {
	shelf, _, err := s.inboxes("")
	if err != nil {
		return MessagePage{}, err
	}
	find := p.Find
	limit := min(cmp.Or(find.Limit, 100), 1000)
	from, seq, err := parseMessageCursor(find.After)
	switch {
	case err != nil:
		return MessagePage{}, invalid("", "%v", err)
	case find.Status != "" && !slices.Contains(MessageStatuses(), find.Status):
		return MessagePage{}, invalid("", "unknown status %q", find.Status)
	}
	subscribers, err := s.Subscribers(ctx, SubscribersParams{By: p.By, Tenant: find.Tenant, Subscriber: find.Subscriber})
	if err != nil {
		return MessagePage{}, err
	}
	var page MessagePage
	for _, sub := range subscribers {
		if sub.Subscriber < from {
			continue
		}
		ask := inbox.ListParams{Subscriber: sub.Subscriber, Tenant: find.Tenant, Lane: find.Lane, Limit: 500, WithoutBody: true}
		switch {
		case find.Status != "":
			ask.Statuses = []inbox.Status{find.Status}
		case find.Number == 0 && find.Ref == "":
			ask.Statuses = MessageStatuses()[:5]
		}
		if sub.Subscriber == from {
			ask.After = seq
		}
		if ask.After = max(ask.After, find.Number-1); find.Number != 0 {
			ask.Limit = 1
		}
		for {
			got, err := shelf.List(ctx, ask)
			if err != nil {
				return MessagePage{}, err
			}
			for _, r := range got {
				ask.After = r.Seq
				if !find.match(r) || !p.By.sees(r.Message.Tenant) {
					continue
				}
				if len(page.Messages) == limit {
					page.Next = messageCursor(page.Messages[limit-1])
					return page, nil
				}
				page.Messages = append(page.Messages, r)
			}
			if len(got) < ask.Limit || find.Number != 0 {
				break
			}
		}
	}
	return page, nil
}

// ShowMessageParams ask for one message.
type ShowMessageParams struct {
	By   Principal
	Find FindMessages // the first that it finds
}

// ShownMessage is what is known of a message.
type ShownMessage struct {
	Receipt inbox.Receipt // with its body, or with Unreadable where no key at hand opens it
	Audit   []Entry       // the newest 1,000, the oldest first
	Next    []NextStep
}

// Message explains one message.
func (s *Service) Message(ctx context.Context, p ShowMessageParams) (ShownMessage, error) {
	p.Find.Limit = 1
	page, err := s.Messages(ctx, ListMessagesParams(p))
	if err != nil {
		return ShownMessage{}, err
	}
	if len(page.Messages) == 0 {
		return ShownMessage{}, &Error{Code: CodeNotFound, Of: "message"}
	}
	r := page.Messages[0]
	shelf, _, err := s.inboxes("")
	if err != nil {
		return ShownMessage{}, err
	}
	if o, ok := inbox.Over(s.config.Engine); ok { // what is encrypted is opened
		shelf = o
	}
	full, err := shelf.List(ctx, inbox.ListParams{Tenant: r.Message.Tenant, Subscriber: r.Subscriber, Key: r.Key, Limit: 1})
	if err != nil {
		return ShownMessage{}, err
	}
	if len(full) == 0 { // gone this moment
		return ShownMessage{}, &Error{Code: CodeNotFound, Of: "message"}
	}
	shown := ShownMessage{Receipt: full[0], Next: NextOfMessage(full[0])}
	if m := &shown.Receipt; m.Sealed != "" && s.config.Engine == nil {
		m.Message.Body, m.Message.Headers = nil, nil
		m.Unreadable = &Error{Of: "message", Code: CodeUnreadable, Hint: "it is encrypted, and its key is not at hand"}
	}
	if a, ok := s.store.(Auditor); ok {
		page, err := a.Audit(ctx, AuditParams{Key: MessageKey(r), Newest: true, Limit: 1000})
		if err != nil {
			return ShownMessage{}, err
		}
		shown.Audit = page.Entries
		slices.Reverse(shown.Audit)
	}
	return shown, nil
}

// NextOfMessage says what can become of a message, what comes by itself first.
func NextOfMessage(r inbox.Receipt) []NextStep {
	self := func(text string) NextStep { return NextStep{Text: text} }
	act := func(a Action, rest, text string) NextStep {
		return NextStep{Action: a, Text: text, Command: "idempo inbox " + string(a) + " " + strconv.FormatInt(r.Seq, 10) + rest + ` --reason "…"`}
	}
	retry := act(ActionRetry, "", "runs again, attempts from 0, as soon as a worker comes to it")
	skip := act(ActionSkip, "", "is done without its effect; copies are duplicates, its lane goes on")
	discard := act(ActionDiscard, "", "is forgotten, body and all; a copy that still comes is a new message")
	nameless := r.Reason == inbox.ReasonMissingID || r.Reason == inbox.ReasonBadID || r.Reason == inbox.ReasonUnparsable
	switch {
	case r.Status == inbox.StatusInDoubt:
		return []NextStep{self("its probe or its owner's late answer settles it; otherwise find out what happened and say so"),
			{Text: "lists what is in doubt there", Command: "idempo keys list --state in_doubt --operation inbox:" + r.Subscriber}}
	case r.Status == inbox.StatusDone, r.Status == inbox.StatusSkipped, r.Status == inbox.StatusDuplicate:
		return []NextStep{self("it is finished; copies are duplicates")}
	case r.Status == inbox.StatusStarted:
		return []NextStep{self("the broker delivers it again; only its starts are counted here")}
	case r.Reason == inbox.ReasonSkip:
		return []NextStep{self("a worker completes it without its effect"), discard}
	case r.Status == inbox.StatusStored && r.Reason == inbox.ReasonGap:
		return []NextStep{self("it runs when the versions before it have come"),
			{Action: ActionRelease, Text: "its lane goes on from the lowest version that is held", Command: `idempo inbox release --subscriber ` + r.Subscriber + ` --lane LANE --reason "…"`}, skip, discard}
	case r.Status == inbox.StatusStored:
		return []NextStep{self("it runs when its turn or its time comes"), skip, discard}
	case r.Status == inbox.StatusRetrying:
		return []NextStep{self("it runs again when its time comes"), retry, skip, discard}
	case r.Reason == inbox.ReasonConflict:
		return []NextStep{act(ActionRetry, " --accept", "runs although another body was handled under its id"), discard}
	case r.Reason == inbox.ReasonGap:
		return []NextStep{{Action: ActionRelease, Text: "its lane goes on from the lowest version that is held",
			Command: `idempo inbox release --subscriber ` + r.Subscriber + ` --lane LANE --reason "…"`}, retry, skip, discard}
	case nameless:
		return []NextStep{act(ActionRetry, "", "is looked at again, once MissingID or the lane settings are changed"), discard}
	}
	return []NextStep{retry, skip, discard}
}
