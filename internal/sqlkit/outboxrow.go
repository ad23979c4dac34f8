package sqlkit

import (
	"errors"
	"time"

	"github.com/idempo/idempo"
	"github.com/idempo/idempo/outbox"
)

// EventRow is an event while it is read, in the order seq, partition, id, source, tenant, topic, key, type, content type,
// payload, 1 where that is NULL, headers, traceparent, tracestate, correlation id, key reference, sealed, appended at in
// microseconds since 1970. A text that is NULL reads as "". Use one per row.
type EventRow struct {
	seq, part, null, at                                 *int64
	id, source, tenant, topic, key, kind, content       *string
	headers, parent, state, correlation, keyRef, sealed *string
	payload                                             []byte
}

// Dest returns where to scan the columns, and room for more destinations behind them.
func (r *EventRow) Dest() []any {
	return append(make([]any, 0, 36), &r.seq, &r.part, &r.id, &r.source, &r.tenant, &r.topic, &r.key, &r.kind, &r.content, &r.payload, &r.null,
		&r.headers, &r.parent, &r.state, &r.correlation, &r.keyRef, &r.sealed, &r.at)
}

// Row returns what was read; false: nothing was there.
func (r *EventRow) Row() (outbox.Row, bool, error) {
	if r.seq == nil {
		return outbox.Row{}, false, nil
	}
	out := outbox.Row{Seq: *r.seq, Partition: int(deref(r.part)), Sealed: deref(r.sealed),
		Trace: outbox.Trace{Parent: deref(r.parent), State: deref(r.state), Correlation: deref(r.correlation), KeyRef: deref(r.keyRef)},
		Event: outbox.Event{ID: deref(r.id), Source: deref(r.source), Tenant: deref(r.tenant), Topic: deref(r.topic), Key: deref(r.key),
			Type: deref(r.kind), ContentType: deref(r.content), Payload: r.payload, Time: time.UnixMicro(deref(r.at)).UTC()},
	}
	if deref(r.null) == 0 && out.Payload == nil {
		out.Payload = []byte{}
	}
	if h := deref(r.headers); h != "" {
		var err error
		if out.Headers, err = ParseHeaders([]byte(h)); err != nil {
			return out, false, &idempo.Error{Op: "read event", Code: "record_unreadable", Err: errors.New("headers are not what this release writes")}
		}
	}
	return out, true, nil
}

// asideColumns are what AsideRow reads.
const asideColumns = "seq, part, id, source, tenant, topic, event_key, event_type, content_type, payload, case when payload is null then 1 else 0 end, " +
	"headers, traceparent, tracestate, correlation_id, key_ref, sealed, appended_at, " +
	"state, class, holds, attempts, starts, coalesce(due_at, 0), first_at, last_at, first_error, last_error, replay"

// asideRow is a row of table outbox_asides while it is read.
type asideRow struct {
	EventRow
	a                            outbox.Aside
	holds, attempts, starts      int64
	due, first, last             int64
	stateWord, classWord, replay string
}

func (r *asideRow) dest() []any {
	return append(r.Dest(), &r.stateWord, &r.classWord, &r.holds, &r.attempts, &r.starts, &r.due, &r.first, &r.last,
		&r.a.FirstError, &r.a.LastError, &r.replay)
}

func (r *asideRow) aside() (outbox.Aside, error) {
	row, _, err := r.Row()
	a := r.a
	a.Row, a.State, a.Class, a.Replay = row, outbox.State(r.stateWord), outbox.Class(r.classWord), r.replay
	a.Holds, a.Attempts, a.Starts = r.holds != 0, int(r.attempts), int(r.starts)
	a.FirstAt, a.LastAt = time.UnixMicro(r.first).UTC(), time.UnixMicro(r.last).UTC()
	if a.State == outbox.StateWaiting {
		a.NextAt = time.UnixMicro(r.due).UTC()
	}
	return a, err
}

// readAsides runs a query of asideColumns.
func readAsides(tx OutboxTx, name string, args ...any) (all []outbox.Aside, err error) {
	err = tx.Each(name, func(scan func(...any) error) error {
		var r asideRow
		if err := scan(r.dest()...); err != nil {
			return err
		}
		a, err := r.aside()
		all = append(all, a)
		return err
	}, args...)
	return all, err
}

// EventHeaders is the stored form of an event's headers; "": it has none.
func EventHeaders(h [][2]string) string { return string(Headers(h)) }
