package sqlkit

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/inbox"
)

// ReceiptRow is one row of table receipts while it is read, in the order tenant_id, subscriber, receipt_key, seq, rev,
// status, reason, holds, source, message_id, message_type, lane, version, headers, body, position, message_at, attempts,
// failures, received_at, changed_at, next_at, sealed, seen, seen_at, body_until, gone_at. Every column may be NULL: an outer join nothing. Use one per row.
type ReceiptRow struct {
	Micros bool // as of Row

	tenant, subscriber, key                   []byte
	source, id, kind, lane, version, position []byte
	headers, body, failures                   []byte
	status, reason                            *string
	seq, rev, attempts                        *int64
	holds                                     *bool
	messageAt, receivedAt, changedAt, nextAt  when
	sealed                                    *string
	seen                                      *int64
	seenAt, bodyUntil, goneAt                 when
}

// Dest returns where to scan the columns, and room for more destinations behind them.
func (r *ReceiptRow) Dest() []any {
	m := r.Micros
	return append(make([]any, 0, 31),
		&r.tenant, &r.subscriber, &r.key, &r.seq, &r.rev, &r.status, &r.reason, &r.holds,
		&r.source, &r.id, &r.kind, &r.lane, &r.version, &r.headers, &r.body, &r.position, r.messageAt.dest(m),
		&r.attempts, &r.failures, r.receivedAt.dest(m), r.changedAt.dest(m), r.nextAt.dest(m),
		&r.sealed, &r.seen, r.seenAt.dest(m), r.bodyUntil.dest(m), r.goneAt.dest(m))
}

// Receipt returns what was read; false: nothing was there. The row must not be scanned into again.
func (r *ReceiptRow) Receipt() (inbox.Receipt, bool, error) {
	if r.key == nil {
		return inbox.Receipt{}, false, nil
	}
	out := inbox.Receipt{
		Subscriber: string(r.subscriber), Key: string(r.key), Seq: deref(r.seq), Rev: deref(r.rev),
		Status: inbox.Status(deref(r.status)), Reason: deref(r.reason), Holds: deref(r.holds), Attempts: int(deref(r.attempts)),
		Message: inbox.Message{Tenant: string(r.tenant), Source: string(r.source), ID: string(r.id), Type: string(r.kind), Lane: string(r.lane),
			Version: string(r.version), Body: r.body, Position: string(r.position), Time: r.messageAt.time()},
		ReceivedAt: r.receivedAt.time(), ChangedAt: r.changedAt.time(), NextAt: r.nextAt.time(),
		Sealed: deref(r.sealed), Seen: deref(r.seen), SeenAt: r.seenAt.time(), BodyUntil: r.bodyUntil.time(), GoneAt: r.goneAt.time(),
	}
	var err error
	out.Message.Headers, err = ParseHeaders(r.headers)
	if err == nil && len(r.failures) > 0 {
		err = json.Unmarshal(r.failures, &out.Failures)
	}
	if err != nil {
		return inbox.Receipt{}, false, &idempo.Error{Op: "read receipt", Code: "record_unreadable", Err: errors.New("headers or failures are not what this release writes")}
	}
	return out, true, nil
}

// Failures returns the stored form of a receipt's failures; none are nil.
func Failures(fs []inbox.Failure) []byte {
	if len(fs) == 0 {
		return nil
	}
	b, _ := json.Marshal(fs) // times of years 1 to 9999 and strings cannot fail
	return b
}

// MessageValues returns the columns of a receipt that never change, as ReceiptRow reads them: source, message_id,
// message_type, lane, version, headers, body, position, message_at.
func MessageValues(m inbox.Message) []any {
	var at any
	if !m.Time.IsZero() {
		at = m.Time.Truncate(time.Microsecond).UnixMicro()
	}
	return []any{[]byte(m.Source), []byte(m.ID), []byte(m.Type), []byte(m.Lane), []byte(m.Version), Bytes(Headers(m.Headers)), Bytes(m.Body),
		[]byte(m.Position), at}
}

// ListReceipts reads the receipts of p by the statement that fits it: by key, message id or position, else one for each
// status, so that each has an index. read runs the statement of a name, once for each status ("": any).
func ListReceipts(p inbox.ListParams, read func(name, status string) ([]inbox.Receipt, error)) ([]inbox.Receipt, error) {
	name, newest := "receipt_list", p.Newest
	switch {
	case p.Key != "":
		name, newest = "receipt_find_key", false
	case p.ID != "":
		name, newest = "receipt_find_id", false
	case p.Position != "":
		name, newest = "receipt_find_position", false
	}
	suffix := ""
	if newest {
		suffix = "_newest"
	}
	if name != "receipt_list" || len(p.Statuses) == 0 {
		found, err := read(name+suffix, "")
		return slices.DeleteFunc(found, func(r inbox.Receipt) bool { return len(p.Statuses) > 0 && !slices.Contains(p.Statuses, r.Status) }), err
	}
	var all []inbox.Receipt
	for _, status := range p.Statuses {
		found, err := read("receipt_list_status"+suffix, string(status))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b inbox.Receipt) int {
		if newest {
			a, b = b, a
		}
		return cmp.Compare(a.Seq, b.Seq)
	})
	return all[:min(len(all), cmp.Or(p.Limit, 100))], nil
}

// CountRow is one row of a count of receipts, in the order subscriber, status, n, oldest (microseconds since 1970, or
// NULL), now. The status "" stands for the subscriber itself, n being the lanes of it that wait for a person.
type CountRow struct {
	Subscriber []byte
	Status     string
	N          int64
	Oldest     *int64
	Now        int64
}

// Counts are rows of CountRow, by subscriber, put together.
func Counts(rows []CountRow) (all []inbox.Counted) {
	for _, r := range rows {
		if len(all) == 0 || all[len(all)-1].Subscriber != string(r.Subscriber) {
			all = append(all, inbox.Counted{Subscriber: string(r.Subscriber), Statuses: map[inbox.Status]int64{}, Now: time.UnixMicro(r.Now).UTC()})
		}
		c := &all[len(all)-1]
		if r.Status == "" {
			c.BlockedLanes += r.N
			continue
		}
		c.Statuses[inbox.Status(r.Status)] += r.N
		if r.Oldest == nil || !inbox.Waits(inbox.Status(r.Status)) {
			continue
		}
		if at := time.UnixMicro(*r.Oldest).UTC(); c.Oldest.IsZero() || at.Before(c.Oldest) {
			c.Oldest = at
		}
	}
	return all
}
