package webhook

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo/inbox"
)

// Item is one event as it is stored: what came in, what was made of it, what became of it.
type Item struct {
	Receipt    string // of the delivery; ids sort by time
	Index      int    // within the delivery
	Source     string
	Provider   string
	Tenant     string
	DeliveryID string // as the provider wrote it, "" where there is none
	Signed     bool   // the code covers the delivery id
	Type       string
	Lane       string
	Version    string

	Status   string // stored running handled skipped stale retrying held in_doubt dead parked
	Reason   string
	Attempts int
	Failures []inbox.Failure
	NextAt   time.Time // zero: by itself it never runs

	ReceivedAt time.Time // the store's clock
	ChangedAt  time.Time
	Seen       int64     // how often it came again; a lower bound
	SeenAt     time.Time // when it last did
	Repeats    string    // the receipt that it is another version or copy of
	Origin     string    // "", or reconciled: it was fetched

	Method, Path string      // the path with its query
	Header       http.Header // of the request, credentials redacted
	Attempt      string      // what the sender said about its attempt
	Scheme       string      // of the verdict
	Secret       string      // id of the secret that verified
	SignedAt     time.Time   // zero: no time was signed
	Skew         time.Duration
	Body         []byte    // nil: not asked for, or gone
	BodyUntil    time.Time // it goes then, or went; zero: it stays
	Sealed       string    // id of the encryption key that it is stored under
	Unreadable   error     // it could not be decrypted: what came in is not known

	Number  int64 // inbox.Receipt.Seq
	Waiting int   // of Blocked: how many wait behind it
}

// ItemOf reads what is stored of an event.
func ItemOf(r inbox.Receipt) Item {
	m := r.Message
	it := Item{Source: m.Source, Tenant: m.Tenant, Type: m.Type, Lane: m.Lane, Version: m.Version, Reason: r.Reason, Attempts: r.Attempts, Failures: r.Failures,
		NextAt: r.NextAt, ReceivedAt: r.ReceivedAt, ChangedAt: r.ChangedAt, Seen: r.Seen, SeenAt: r.SeenAt, Body: m.Body, BodyUntil: r.BodyUntil, Sealed: r.Sealed,
		Unreadable: r.Unreadable, Number: r.Seq, Header: http.Header{}}
	receipt, index, _ := strings.Cut(m.Position, "/")
	it.Receipt = receipt
	it.Index, _ = strconv.Atoi(index)
	for _, h := range m.Headers {
		switch name, value := h[0], h[1]; name {
		case "webhook-provider":
			it.Provider = value
		case "webhook-delivery-id":
			if it.DeliveryID == "" {
				class, text, _ := strings.Cut(value, " ")
				it.DeliveryID, it.Signed = text, class == "signed"
			}
		case "webhook-method":
			it.Method = value
		case "webhook-path":
			it.Path = value
		case "webhook-verdict":
			it.Scheme = value
		case "webhook-secret":
			it.Secret = value
		case "webhook-signed-at":
			it.SignedAt, _ = time.Parse(time.RFC3339Nano, value)
		case "webhook-skew":
			s, _ := strconv.ParseFloat(value, 64)
			it.Skew = time.Duration(s * float64(time.Second))
		case "webhook-attempt":
			it.Attempt = value
		case "webhook-repeats":
			it.Repeats = value
		case "webhook-origin":
			it.Origin = value
		default:
			if original, ok := strings.CutPrefix(name, original); ok {
				it.Header.Add(original, value)
			}
		}
	}
	it.Status = statusOf(r)
	return it
}

// statusOf is the word of the page for what the inbox says.
func statusOf(r inbox.Receipt) string {
	switch r.Status {
	case inbox.StatusDone:
		return "handled"
	case inbox.StatusSkipped:
		if r.Reason == inbox.ReasonStale {
			return "stale"
		}
	case inbox.StatusStored:
		switch {
		case r.Reason == inbox.ReasonLane, r.Reason == inbox.ReasonGap:
			return "held"
		case r.Attempts > 0 && r.NextAt.After(r.Now) && r.Reason == "":
			return "running" // a worker has it, until it is due again
		}
	}
	return string(r.Status)
}

// Ref is the name of the item: its receipt, with its index where that is not 0.
func (it Item) Ref() string {
	if it.Index == 0 {
		return it.Receipt
	}
	return it.Receipt + "/" + strconv.Itoa(it.Index)
}

// FirstError and LastError are those of its failures, the first line of each.
func (it Item) FirstError() string {
	if len(it.Failures) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(it.Failures[0].Error, "\n")
	return line
}

// LastError is the first line of the last failure.
func (it Item) LastError() string {
	if len(it.Failures) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(it.Failures[len(it.Failures)-1].Error, "\n")
	return line
}

// Items lists stored events of a source, see inbox.ListParams; nil where there is no such source.
func (r *Receiver) Items(ctx context.Context, source string, p inbox.ListParams) ([]Item, error) {
	e := r.sources[source]
	if e == nil {
		return nil, nil
	}
	rs, err := e.in.Receipts(ctx, p)
	items := make([]Item, len(rs))
	for i := range rs {
		items[i] = ItemOf(rs[i])
	}
	return items, err
}

// Blocked lists what holds lanes of a source, the oldest first: for each lane the event that the others wait for.
func (r *Receiver) Blocked(ctx context.Context, source string) ([]Item, error) {
	e := r.sources[source]
	if e == nil {
		return nil, nil
	}
	return e.blocked(ctx)
}

func (e *endpoint) blocked(ctx context.Context) ([]Item, error) {
	var all []inbox.Receipt
	p := inbox.ListParams{WithoutBody: true, Limit: 500, Statuses: []inbox.Status{inbox.StatusStored, inbox.StatusRetrying, inbox.StatusDead, inbox.StatusParked, inbox.StatusInDoubt}}
	for {
		rs, err := e.in.Receipts(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if p.After = r.Seq; r.Holds {
				all = append(all, r)
			}
		}
		if len(rs) < p.Limit {
			return BlockedBy(all), nil
		}
	}
}

// BlockedBy finds among stored events, in the order of their arrival, what lanes wait for: for each lane its first event,
// where that does not run by itself at once. Waiting says how many are behind it.
func BlockedBy(rs []inbox.Receipt) (list []Item) {
	at := map[[3]string]int{}
	for _, r := range rs {
		lane := [3]string{r.Subscriber, r.Message.Tenant, r.Message.Lane}
		if i, ok := at[lane]; ok {
			list[i].Waiting++
		} else if r.Holds && r.Message.Lane != "" {
			at[lane] = len(list)
			list = append(list, ItemOf(r))
		}
	}
	return slices.DeleteFunc(list, func(it Item) bool { return it.Status == "stored" || it.Status == "running" })
}
