package webhook

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// Why an event that is known in part waits for a person.
const (
	ParkedConflict = "conflict"       // a known id with other bytes
	ParkedSuspect  = "suspect-replay" // a new id that no code covers, with known bytes
)

// The bounds of what a sender can make us keep by repeating one event in another dress.
const (
	conflictsKept = 10  // for each id
	suspectsKept  = 100 // for each body
)

var (
	errBusy    = errors.New("webhook: a key is in use by another request")
	errNothing = errors.New("webhook: nothing is new")
)

// keep stores the events of a verified request and answers.
func (r *Receiver) keep(req *http.Request, e *endpoint, body []byte, got Accepted, now time.Time, budget time.Duration) answer {
	a := answer{Reply: e.success(body), secret: got.Verdict.SecretID, outcome: "stored"}
	if e.v.source.MissingID == "refuse" && slices.ContainsFunc(got.Delivery.Events, func(ev Event) bool { return ev.Parked == ParkedNoID }) {
		return plainly(http.StatusBadRequest, "refused")
	}
	if len(got.Delivery.Events) == 0 {
		return a
	}
	// Detached: a sender that hangs up now must not undo what its next attempt would find.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), budget)
	defer cancel()
	in := &ingest{r: r, e: e, req: req, got: got, id: receiptID(now)}
	if in.known(ctx) {
		a.outcome = in.outcome()
		return a
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := in.once(ctx)
		switch {
		case err == nil:
			in.note()
			a.outcome = in.outcome()
			return a
		case errors.Is(err, errBusy):
		default:
			r.cfg.Logger.Error("webhook: could not store a delivery", "source", e.v.source.Name, "error", err)
			return later("store_error")
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return later("store_error")
		}
	}
}

// ingest is one verified request on its way into the store.
type ingest struct {
	r   *Receiver
	e   *endpoint
	req *http.Request
	got Accepted
	id  string // of the receipt

	fates []fate // of the last try, one for each event
}

// fate is what becomes of one event.
type fate struct {
	word string // stored duplicate late_duplicate conflict suspect_replay parked
	of   string // the receipt that it repeats
	kept bool   // something is written
	why  string // it is parked all the same
}

// outcome is the word for the whole request: the most remarkable one of its events.
func (in *ingest) outcome() string {
	for _, word := range []string{"conflict", "suspect_replay", "stored", "parked", "late_duplicate"} {
		if slices.ContainsFunc(in.fates, func(f fate) bool { return f.word == word }) {
			if word == "parked" {
				return "stored"
			}
			return word
		}
	}
	return "duplicate"
}

// names are the keys of one event: its ids, and its bytes where no code covers an id.
func (in *ingest) names(ev *Event) (list []string, bytes string) {
	signed := false
	for _, id := range ev.IDs {
		list = append(list, id.Key)
		signed = signed || id.Signed
	}
	if len(list) > 0 && !signed && in.e.v.profile.SameBytes != "run" {
		sum := sha256.Sum256(ev.Content)
		bytes = "content " + hex.EncodeToString(sum[:])
		list = append(list, bytes)
	}
	return list, bytes
}

// once is one transaction: the keys of all events, in sorted order; then one inbox entry for each event that is new.
func (in *ingest) once(ctx context.Context) error {
	err := in.r.cfg.Engine.InTx(ctx, func(ctx context.Context) error {
		in.fates = make([]fate, len(in.got.Delivery.Events))
		begun, err := in.claim(ctx)
		if err != nil {
			return err
		}
		wrote := false
		owner := map[string]int{} // which event of this request has a key
		for i := range in.got.Delivery.Events {
			if in.fates[i], err = in.event(ctx, i, begun, owner); err != nil {
				return err
			}
			wrote = wrote || in.fates[i].kept
		}
		if !wrote {
			return errNothing // rolled back: a repetition writes nothing, and neither does the 101st one in another dress
		}
		for _, b := range begun {
			if b.Claim == nil {
				continue
			}
			if err := b.Claim.Complete(ctx, idempo.Result{Resource: idempo.Resource{Type: "webhook-receipt", ID: in.id}}); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// claim begins every key of the request.
func (in *ingest) claim(ctx context.Context) (map[string]idempo.Begun, error) {
	inputs := map[string][]byte{}
	for i := range in.got.Delivery.Events {
		ev := &in.got.Delivery.Events[i]
		list, bytes := in.names(ev)
		for _, name := range list {
			if _, twice := inputs[name]; !twice {
				inputs[name] = ev.Content
			}
			if name == bytes {
				inputs[name] = nil
			}
		}
	}
	names := make([]string, 0, len(inputs))
	for name := range inputs {
		names = append(names, name)
	}
	slices.Sort(names)
	begun := make(map[string]idempo.Begun, len(names))
	for _, name := range names {
		b, err := in.r.cfg.Engine.Begin(ctx, idempo.Request{Key: idempo.Key{Tenant: in.e.tenant, Operation: in.e.operation, ID: name},
			Input: [][]byte{inputs[name]}, Surface: "webhook"})
		if err != nil {
			return nil, err
		}
		if b.Verdict == idempo.VerdictInProgress {
			return nil, errBusy
		}
		begun[name] = b
	}
	return begun, nil
}

// event decides about one event and stores it where it is new.
func (in *ingest) event(ctx context.Context, i int, begun map[string]idempo.Begun, owner map[string]int) (fate, error) {
	ev := &in.got.Delivery.Events[i]
	names, bytes := in.names(ev)
	if len(names) == 0 || ev.Parked != "" {
		return in.park(ctx, i, fate{word: "parked"}, ev.Parked, in.id+"/"+strconv.Itoa(i))
	}
	f := fate{word: "stored"}
	if in.e.v.source.Order.versioned() && begun[names[0]].Claim != nil && !in.e.in.Accepts(in.message(i, "", "")) {
		f.why = ParkedNoVersion
	}
	for _, name := range names {
		b := begun[name]
		first, seen := owner[name]
		switch {
		case seen && name != bytes && string(in.got.Delivery.Events[first].Content) != string(ev.Content):
			f = fate{word: "conflict", of: in.id}
		case seen && name != bytes:
			f = fate{word: "duplicate", of: in.id}
		case seen:
			f = fate{word: "suspect_replay", of: in.id}
		case b.Claim != nil:
			continue
		case b.Verdict == idempo.VerdictMismatch:
			f = fate{word: "conflict", of: b.Record.Result.Resource.ID}
		case name == bytes:
			f = fate{word: "suspect_replay", of: b.Record.Result.Resource.ID}
		case b.Verdict == idempo.VerdictExpired:
			f = fate{word: "late_duplicate", of: b.Record.Result.Resource.ID}
		default:
			f = fate{word: "duplicate", of: b.Record.Result.Resource.ID}
		}
		break // the ids stand first: what one of them says counts
	}
	for _, name := range names {
		if _, seen := owner[name]; !seen {
			owner[name] = i
		}
	}
	switch f.word {
	case "stored":
		if f.why != "" {
			return in.park(ctx, i, fate{word: "parked"}, f.why, in.id+"/"+strconv.Itoa(i))
		}
		_, err := in.e.in.Put(ctx, in.message(i, "", ""))
		f.kept = true
		return f, err
	case "conflict":
		if f.of == "" { // of a mismatch the engine tells nothing
			rs, err := in.e.in.Receipts(ctx, inbox.ListParams{Tenant: in.e.tenant, Key: inbox.ReceiptKey(in.e.v.source.Name, ev.IDs[0].Key), WithoutBody: true})
			if err != nil {
				return f, err
			}
			if len(rs) > 0 {
				f.of = ItemOf(rs[0]).Receipt
			}
		}
		return in.park(ctx, i, f, ParkedConflict, "conflict "+names[0]+" "+bucketOf(ev.Content, conflictsKept))
	case "suspect_replay":
		return in.park(ctx, i, f, ParkedSuspect, "suspect "+bytes+" "+bucketOf([]byte(names[0]), suspectsKept))
	}
	return f, nil
}

// bucketOf spreads what a sender can vary over a bounded number of places: the first of each is kept.
func bucketOf(text []byte, n uint64) string {
	sum := sha256.Sum256(text)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])%n, 10)
}

// park stores an event that must not run by itself. Of one place only the first is kept.
func (in *ingest) park(ctx context.Context, i int, f fate, why, place string) (fate, error) {
	key := sha256.Sum256([]byte("webhook parked " + place))
	reason := why
	if why == ParkedConflict {
		reason = inbox.ReasonConflict
	}
	kept, err := in.e.in.Park(ctx, in.message(i, why, f.of), string(key[:]), reason)
	f.kept = kept
	return f, err
}

// message is the inbox entry of one event.
func (in *ingest) message(i int, parked, repeats string) inbox.Message {
	ev, v, s := &in.got.Delivery.Events[i], in.got.Verdict, in.e.v
	m := inbox.Message{Tenant: in.e.tenant, Source: s.source.Name, Type: ev.Type, Lane: ev.Lane, Version: ev.Version, Body: ev.Body,
		Position: in.id + "/" + strconv.Itoa(i)}
	if m.Body == nil {
		m.Body = []byte{}
	}
	if len(ev.IDs) > 0 && parked == "" || parked == ParkedConflict || parked == ParkedSuspect {
		m.ID = ev.IDs[0].Key
	} else {
		m.ID = "receipt " + in.id + "/" + strconv.Itoa(i) // so that a person can let it run
	}
	add := func(name, value string) {
		if value != "" {
			m.Headers = append(m.Headers, [2]string{name, value})
		}
	}
	add("webhook-receipt", in.id)
	add("webhook-item", strconv.Itoa(i))
	add("webhook-provider", s.source.Provider)
	for _, id := range ev.IDs {
		class := "unsigned "
		if id.Signed {
			class = "signed "
		}
		add("webhook-delivery-id", class+strings.ToValidUTF8(id.Text, "?"))
	}
	add("webhook-method", in.req.Method)
	add("webhook-path", in.req.URL.RequestURI())
	add("webhook-verdict", v.Scheme)
	add("webhook-secret", v.SecretID)
	if !v.SignedAt.IsZero() {
		add("webhook-signed-at", v.SignedAt.UTC().Format(time.RFC3339Nano))
		add("webhook-skew", seconds(v.Skew))
	}
	add("webhook-attempt", in.got.Delivery.Attempt)
	if in.got.Delivery.Notice {
		add("webhook-notice", "true")
	}
	add("webhook-parked", parked)
	add("webhook-repeats", repeats)
	m.Headers = append(m.Headers, in.e.stored(in.req.Header)...)
	return m
}

// handler runs one stored event.
func (e *endpoint) handler() inbox.Handler {
	return func(ctx context.Context, m inbox.Message) error {
		if _, notice := m.Header("webhook-notice"); notice || len(e.v.source.Types) > 0 && !slices.Contains(e.v.source.Types, m.Type) {
			return inbox.Skip("filtered")
		}
		if e.target != nil {
			return e.target.send(ctx, m)
		}
		ev := &Event{doing: &doing{ctx, e}, Body: m.Body, Content: m.Body, Type: m.Type, Lane: m.Lane, Version: m.Version, Source: m.Source, Tenant: m.Tenant, Header: http.Header{}}
		ev.Receipt, _ = m.Header("webhook-receipt")
		if index, ok := m.Header("webhook-item"); ok {
			ev.Index, _ = strconv.Atoi(index)
		}
		for _, h := range m.Headers {
			if name, ok := strings.CutPrefix(h[0], original); ok {
				ev.Header.Add(name, h[1])
			}
			if h[0] == "webhook-delivery-id" {
				class, text, _ := strings.Cut(h[1], " ")
				ev.IDs = append(ev.IDs, Identity{Text: text, Signed: class == "signed"})
			}
		}
		h, err := e.choose(ctx, ev, m)
		if err != nil {
			return err
		}
		return h(ctx, ev)
	}
}

// receiptID is a ULID: 48 bits of time in milliseconds and 80 random bits, in Crockford's base 32.
func receiptID(now time.Time) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(now.UnixMilli())<<16) //nolint:gosec // the time since 1970 is positive
	if _, err := rand.Read(raw[6:]); err != nil {
		panic(fmt.Sprintf("webhook: no randomness: %v", err)) // crypto/rand never fails
	}
	high, low := binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	out := make([]byte, 26)
	for i := 25; i >= 0; i-- {
		out[i] = digits[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return string(out)
}
